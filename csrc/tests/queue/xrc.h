/* SPDX-License-Identifier: BSD-3-Clause
 * XRC for tests: sending and receiving QPs, SRQs of a domain, and a process that has one. */
#ifndef NUPA_TESTS_XRC_H
#define NUPA_TESTS_XRC_H

#include "tests/support/faults.h"

#define XRC_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* A file that identifies a domain; no other process has it. */
int xrc_file(void);
struct ibv_xrcd *xrc_domain(struct ibv_context *context, int fd, int oflags);

/* A receiver: a domain with an SRQ whose completions go to end->recv_cq. */
struct xrc_side {
	struct end *end; /* its context, PD, CQs, region; its QP is not used */
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	uint32_t srqn;
	struct ibv_qp *target;
};

struct ibv_srq *xrc_srq(struct xrc_side *side, struct ibv_pd *pd);
uint32_t xrc_number_of(struct ibv_srq *srq);
struct xrc_side xrc_side_open(struct nupa_fabric *fabric, enum nupa_mover mover, int host, int fd);
struct ibv_qp *xrc_target(struct xrc_side *side);
void xrc_to_rtr(struct ibv_qp *qp, struct end *peer, uint32_t peer_qpn);

/* A sender on host 0, connected to the target of a side. */
struct xrc_sender {
	struct end *end;
	struct ibv_qp *qp;
};

struct xrc_sender xrc_sender_open(struct nupa_fabric *fabric, enum nupa_mover mover,
				  struct xrc_side *side);
void xrc_sender_close(struct xrc_sender *sender);
void xrc_side_close(struct xrc_side *side);

void xrc_post(struct xrc_sender *sender, enum ibv_wr_opcode opcode, uint32_t srqn, uint64_t wr_id,
	      uint32_t bytes, uint64_t raddr, uint32_t rkey);
void xrc_post_receive(struct xrc_side *side, struct ibv_srq *srq, uint64_t wr_id);
void xrc_check_receive(struct xrc_side *side, uint64_t wr_id, const struct xrc_sender *sender,
		       uint32_t qpn, uint32_t bytes);

struct xrc_remote {
	pid_t pid;
	int to, from;
	uint32_t srqn;
};

/* A process that has an SRQ in the domain.  A word makes it post a receive.  It answers when that
 * is posted, and when it has completed with the expected data. */
struct xrc_remote xrc_remote_open(struct nupa_fabric *fabric, int fd);
void xrc_remote_say(struct xrc_remote *remote, uint32_t word);
void xrc_remote_hear(struct xrc_remote *remote, uint32_t word);
void xrc_remote_close(struct xrc_remote *remote);
struct ibv_qp *xrc_open_qp(struct xrc_side *side, uint32_t qpn);

#endif
