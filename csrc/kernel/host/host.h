/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * What a kernel is to the engine: the segment's memory, the port's thread, its users. */
#ifndef NUPA_KERNEL_HOST_H
#define NUPA_KERNEL_HOST_H

#include "engine/memory/mr.h"
#include "engine/net/net.h"

/* libc.c: the file that the engine opens.  A kernel has one segment. */
struct nupa_kernel_memory {
	void *base;
	uint64_t bytes;
};
extern struct nupa_kernel_memory nupa_kernel_memory;
void nupa_kernel_flush_freed(void); /* waits until what was freed in atomic context is */

/* port.c: the thread has to be there before an engine is, as its pid is the attachment's. */
int nupa_kernel_port_prepare(void); /* 0 or -errno */
/* This kernel stood still for so long that others declared it dead: the slot is not ours, and the
 * engine must not run any more, as there is no private copy of the memory to go on with.  What it
 * has stays allocated.  Set with the engine's lock. */
extern bool nupa_kernel_halted;

/* halted.c: verbs of a kernel that is halted, whose queue pairs are in error.  With the engine's
 * lock: they are from now on. */
void nupa_kernel_halt(struct nupa_engine *engine);
/* A request or receive is flushed. */
void nupa_halted_post(struct ibv_qp *qp, uint64_t wr_id, bool receive);
/* No completion and no event leads to its user any more. */
void nupa_halted_forget_qp(struct ibv_qp *qp);

void nupa_kernel_port_forget(void);

/* The users of completions and events are called without the engine's lock: for a completion queue
 * that was armed with interrupts off, for an event in a work queue. */
struct nupa_kernel_user {
	void (*completion)(void *cq_context);
	void (*event)(const struct ibv_async_event *event);
};
extern const struct nupa_kernel_user *nupa_kernel_user; /* NULL: none */
void nupa_kernel_events_flush(void);

/* completions.c */
extern bool nupa_kernel_polled; /* the latest was for a process that polls */
struct ibv_comp_channel *nupa_kernel_channel(struct ibv_context *context); /* of every CQ */
int nupa_kernel_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
void nupa_kernel_arm_cq(struct ibv_cq *cq, bool solicited_only);
void nupa_kernel_cq_forget(struct ibv_cq *cq); /* before it is destroyed */
void nupa_kernel_completions_flush(void);
/* Around a turn of an engine, without its lock: its completions are told of at the end. */
void nupa_kernel_completions_hold(void);
void nupa_kernel_completions_tell(void);

/* cm.c: a datagram (NULL: of another length than MADs have) that QP 1 sends to QP 1 of a host.  The
 * QP there that it still has to go to; 0: it has been taken, or is lost. */
uint32_t nupa_kernel_gsi_send(struct ibv_context *context, uint32_t host, uint32_t gid_index,
			      const uint8_t *mad, uint32_t bytes);

/* memory.c: all of the kernel's memory as a region; NULL: nupa_errno says why. */
struct ibv_mr *nupa_kernel_reg_all(struct ibv_pd *pd, int access);
/* All of *pages*, which have a place (paged.h). */
struct ibv_mr *nupa_kernel_reg_paged(struct ibv_pd *pd, const struct nupa_pages *pages,
				     uint64_t iova, int access);

/* context.c: an attachment to a host, and the one context in it; NULL: *why* says it. */
struct ibv_context *nupa_kernel_open(struct nupa_fabric *fabric, uint32_t host, char *why,
				     size_t why_bytes);
void nupa_kernel_close(struct ibv_context *context);
void nupa_kernel_net_close(struct nupa_net *net);

#endif
