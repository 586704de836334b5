/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * Objects of processes.  Their queues are shared with rdma-core's provider `rxe`, by the kernel's
 * ABI of that name (rdma/rdma_user_rxe.h, version 2): the process posts and polls without a call.
 *
 * The other side of a queue may be hostile:
 *   U1  Indexes are kept here.  Those of the process are masked, and only its own side is read.
 *   U2  An entry is copied before any of it is judged, and judged in the copy alone. */
#ifndef NUPA_KERNEL_USER_H
#define NUPA_KERNEL_USER_H

#include "engine/queue/queue.h"
#include "kernel/rdma/rdma.h"

#include <rdma/rdma_user_rxe.h>

/* --- queue.c ----------------------------------------------------------------------------- */

struct user_queue {
	struct rdma_user_mmap_entry entry; /* it ends with the last mapping that is being made */
	struct rxe_queue_buf *shared;
	uint32_t element_bits, mask;
	uint32_t index; /* ours: producer of completions, consumer of requests */
};

/* Of at least that many entries; *info is for the process.  Or ERR_PTR. */
struct user_queue *user_queue_new(struct ib_udata *udata, uint32_t entries, size_t entry_bytes,
				  struct mminfo *info);
void user_queue_free(struct user_queue *queue); /* NULL: nothing */

static inline void *user_queue_entry(const struct user_queue *queue, uint32_t index)
{
	return queue->shared->data + ((size_t)(index & queue->mask) << queue->element_bits);
}

/* The next request of the process; NULL: there is none. */
static inline const void *user_queue_next(const struct user_queue *queue)
{
	const uint32_t producer = smp_load_acquire(&queue->shared->producer_index) & queue->mask;

	return producer == queue->index ? NULL : user_queue_entry(queue, queue->index);
}

/* Requests that are waiting, at most what there is room for. */
static inline uint32_t user_queue_waiting(const struct user_queue *queue)
{
	return (smp_load_acquire(&queue->shared->producer_index) - queue->index) & queue->mask;
}

/* It is copied. */
static inline void user_queue_taken(struct user_queue *queue)
{
	queue->index = (queue->index + 1) & queue->mask;
}

/* The process may use all before that entry again. */
static inline void user_queue_release(struct user_queue *queue, uint32_t index)
{
	smp_store_release(&queue->shared->consumer_index, index & queue->mask);
}

/* The place of the next completion; NULL: the process has left none. */
static inline void *user_queue_place(const struct user_queue *queue)
{
	const uint32_t consumer = smp_load_acquire(&queue->shared->consumer_index) & queue->mask;

	return ((queue->index + 1) & queue->mask) == consumer
		   ? NULL
		   : user_queue_entry(queue, queue->index);
}

static inline void user_queue_placed(struct user_queue *queue)
{
	user_queue_taken(queue);
	smp_store_release(&queue->shared->producer_index, queue->index);
}

/* --- the objects ------------------------------------------------------------------------- */

struct user_context {
	struct ib_ucontext ib;
};

struct user_cq {
	struct user_queue *queue;
};

/* Receives of a QP or SRQ.  The engine takes one when it needs it. */
struct user_rq {
	struct nupa_rq_source source;
	struct user_queue *queue;
	struct ib_srq *srq;       /* or NULL */
	uint32_t max_wr, max_sge; /* as the process was told */
	uint32_t limit;           /* SRQ; 0: not armed */
	bool flushes; /* the QP is in error: `left` are flushed, and none posted later */
	uint32_t left;
};

struct user_qp {
	struct user_queue *sq;
	spinlock_t lock; /* of posting: above the engine's */
	struct user_rq rq;
	struct rxe_send_wqe *wqe; /* the copy */
	struct ib_qp_cap cap;     /* as the process was told */
};

/* queue.c */
int user_alloc_context_op(struct ib_ucontext *context, struct ib_udata *udata);
void user_dealloc_context_op(struct ib_ucontext *context);
void user_disassociate_op(struct ib_ucontext *context);
int user_mmap_op(struct ib_ucontext *context, struct vm_area_struct *area);
void user_mmap_free_op(struct rdma_user_mmap_entry *entry);
/* memory.c */
struct ib_mr *user_reg_mr_op(struct ib_pd *ib, u64 start, u64 length, u64 iova, int access,
			     struct ib_udata *udata);
/* ah.c */
int user_create_ah_op(struct ib_ah *ib, struct rdma_ah_init_attr *init, struct ib_udata *udata);
void user_forget_ah(struct rdma_ah *ah);
/* cq.c: what a process's CQ, made in the engine, has besides. */
int user_cq_init(struct rdma_cq *cq, uint32_t cqe, struct ib_udata *udata);
void user_cq_free(struct rdma_cq *cq);
int user_resize_cq_op(struct ib_cq *ib, int cqe, struct ib_udata *udata);
/* A completion that is none of the engine's. */
void user_cq_add(struct rdma_cq *cq, const struct nupa_cqe *cqe);
/* qp.c, post.c */
int user_qp_init(struct rdma_qp *qp, const struct ib_qp_init_attr *init, struct ib_udata *udata);
void user_qp_free(struct rdma_qp *qp);
/* Requests that were posted before a reset are gone. */
void user_qp_reset(struct rdma_qp *qp);
int user_post_send(struct rdma_qp *qp);
/* With the engine's lock. */
void user_qp_release(struct rdma_qp *qp);
/* rq.c */
void user_rq_init(struct user_rq *rq, struct user_queue *queue, uint32_t max_wr, uint32_t max_sge,
		  struct ib_srq *srq);
static inline size_t user_recv_bytes(uint32_t max_sge)
{
	return sizeof(struct rxe_recv_wqe) + max_sge * sizeof(struct rxe_sge);
}
/* srq.c */
int user_srq_init(struct rdma_srq *srq, const struct ib_srq_attr *attr, struct ib_udata *udata);
void user_srq_free(struct rdma_srq *srq);
int user_srq_modify(struct rdma_srq *srq, const struct ib_srq_attr *attr, int mask,
		    struct ib_udata *udata);
void user_srq_query(struct rdma_srq *srq, struct ib_srq_attr *attr);

#endif
