/* SPDX-License-Identifier: BSD-3-Clause
 * A peer that takes nothing, as its senders see it (stall.c). */
#ifndef NUPA_STALL_H
#define NUPA_STALL_H

#include "engine/queue/queue.h"

/* UC, UD: what is sent to this QP now would find it without a receive (backlog.c). */
static inline bool nupa_stall_backlogged(const struct nupa_channel *channel, uint32_t qpn)
{
	uint32_t index = qpn & (NUPA_QP_MAX - 1);

	if (likely(!nupa_load_relaxed(&channel->peer_slot->backlogs)))
		return false;
	/* I5: an index from the program.  Where stores are not seen, no process waits for them. */
	return !channel->apart && index < nupa_load_acquire(&channel->peer_slot->qp_limit) &&
	       index < channel->engine->fabric->geometry.qp_entries &&
	       nupa_load_acquire(&channel->peer_qps[index].backlog);
}

/* UC, UD: a message found no room in the ring, or a backlog.  True: the QP waits.  False: it has
 * waited for long enough, the message is lost and counted. */
bool nupa_stall_waits(struct nupa_qp *qp, struct nupa_channel *channel, bool backlogged);

/* RC, where a fault of kind TIMEOUT is: the ring has been full for as long as the QP waits for an
 * answer. */
bool nupa_stall_times_out(struct nupa_qp *qp);

/* The message has been sent, or is lost: the next one may wait anew. */
static inline void nupa_stall_over(struct nupa_qp *qp)
{
	if (unlikely(qp->wait_deadline_ns))
		qp->wait_deadline_ns = 0;
}

#endif
