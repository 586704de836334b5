/* SPDX-License-Identifier: BSD-3-Clause
 * The backlog of a QP: messages of UC and UD that came when no receive was posted.  Hardware drops
 * these.  Here a message arrives as soon as it is sent, and the program may only lack a CPU core.
 * So until it has polled all its completions, the message waits for the receive that it posts next.
 *
 *   I10  While a QP has a backlog, all that comes for it goes behind that.  Nothing else waits.
 *   I11  The QP's entry and the slot say so, and the slot counts how it shrinks: senders wait, for
 *        a bounded time (sq.c), rather than lose what finds the backlog full. */
#include "engine/transport/responder.h"

#include <stdlib.h>

/* How long a receive is waited for, since the last one was posted. */
#define PATIENCE_NS UINT64_C(100000000)

#define MESSAGES_MAX 4096u    /* of one QP */
#define BYTES_MAX (32u << 20) /* of one attachment */

/* How soon a receive is looked for again. */
#define POLL_NS 50000u

struct nupa_waiting {
	struct nupa_list link;
	const struct nupa_channel *channel;
	uint32_t payload_bytes;
	uint8_t grh[NUPA_GRH_BYTES]; /* UD */
	struct nupa_msg msg;
	uint8_t payload[];
};

/* --- reports to peers ------------------------------------------------------------------ */

static void tell(struct nupa_qp *qp)
{
	struct nupa_slot *slot = qp->engine->slot;
	uint32_t has = qp->backlog.n != 0;

	if (nupa_load_relaxed(&qp->entry->backlog) == has)
		return;
	nupa_store_release(&qp->entry->backlog, has);
	nupa_store_release(&slot->backlogs,
			   nupa_load_relaxed(&slot->backlogs) + (has ? 1u : UINT32_MAX));
}

static void shrank(struct nupa_qp *qp)
{
	struct nupa_slot *slot = qp->engine->slot;

	nupa_store_relaxed(&slot->backlog_moves, nupa_load_relaxed(&slot->backlog_moves) + 1);
	if (!qp->backlog.n)
		nupa_list_del(&qp->backlog.link);
	tell(qp);
}

/* --- the list -------------------------------------------------------------------------- */

static struct nupa_waiting *first(const struct nupa_qp *qp)
{
	return container_of(qp->backlog.messages.next, struct nupa_waiting, link);
}

static void unlink_waiting(struct nupa_qp *qp, struct nupa_waiting *waiting)
{
	nupa_list_del(&waiting->link);
	qp->backlog.n--;
	qp->engine->backlog_bytes -= sizeof(*waiting) + waiting->payload_bytes;
}

static void drop_first(struct nupa_qp *qp)
{
	struct nupa_waiting *waiting = first(qp);

	unlink_waiting(qp, waiting);
	free(waiting);
}

/* False: no memory, or more than it may take. */
static bool append(struct nupa_qp *qp, const struct nupa_channel *channel,
		   const struct nupa_msg *msg, const uint8_t *payload, const uint8_t *grh)
{
	struct nupa_engine *engine = qp->engine;
	uint32_t payload_bytes = payload ? msg->length_bytes : 0;
	size_t bytes = sizeof(struct nupa_waiting) + payload_bytes;
	struct nupa_waiting *waiting;

	if (qp->backlog.n == MESSAGES_MAX || engine->backlog_bytes + bytes > BYTES_MAX)
		return false;
	waiting = malloc(bytes);
	if (!waiting)
		return false;
	waiting->channel = channel;
	waiting->payload_bytes = payload_bytes;
	waiting->msg = *msg;
	if (grh)
		memcpy(waiting->grh, grh, sizeof(waiting->grh));
	if (payload)
		memcpy(waiting->payload, payload, payload_bytes);
	waiting->msg.flags &= (uint8_t)~NUPA_F_DMA;     /* the payload is ours from now on */
	if (payload && !nupa_channel_intact(channel)) { /* it was cleared under us: C6 */
		free(waiting);
		return false;
	}
	if (!qp->backlog.n++) {
		nupa_list_init(&qp->backlog.messages);
		nupa_list_init(&qp->backlog.link);
		nupa_list_add(&engine->backlogs, &qp->backlog.link);
		qp->backlog.moved_ns = engine->now_ns();
	}
	nupa_list_add(&qp->backlog.messages, &waiting->link);
	engine->backlog_bytes += bytes;
	tell(qp);
	return true;
}

/* --- arrivals -------------------------------------------------------------------------- */

/* UC: what goes on with a message, or writes, takes none. */
static bool needs_receive(const struct nupa_qp *qp, const struct nupa_msg *msg)
{
	return qp->type == IBV_QPT_UD || (msg->op == NUPA_OP_SEND && msg->flags & NUPA_F_FIRST);
}

static bool has_receive(struct nupa_qp *qp)
{
	return qp->recv_active || qp->recv_kept || nupa_rq_peek(qp->srq ? &qp->srq->rq : &qp->rq);
}

/* The program has polled all its completions, and once more: it knows that it has no receive. */
static bool is_done(const struct nupa_cq *cq)
{
	return cq->head == cq->tail && cq->found_empty == cq->tail;
}

bool nupa_backlog_take(struct nupa_qp *qp, const struct nupa_channel *channel,
		       const struct nupa_msg *msg, const uint8_t *payload, const uint8_t *grh)
{
	if (likely(!qp->backlog.n)) {
		if (!needs_receive(qp, msg))
			return false;
		if (likely(has_receive(qp))) {
			qp->starved = false;
			return false;
		}
		if (qp->starved || qp->state > IBV_QPS_SQE || is_done(qp->recv_cq))
			return false;
	}
	if (!append(qp, channel, msg, payload, grh))
		nupa_count(&qp->engine->hw->rx_no_receive, 1);
	return true;
}

/* --- due work -------------------------------------------------------------------------- */

static void drop_all(struct nupa_qp *qp)
{
	nupa_count(&qp->engine->hw->rx_no_receive, qp->backlog.n);
	while (qp->backlog.n)
		drop_first(qp);
}

void nupa_backlog_offer(struct nupa_qp *qp, const struct nupa_cq *polled, nupa_deliver *deliver)
{
	uint64_t now_ns = qp->engine->now_ns();
	uint32_t before = qp->backlog.n;

	while (qp->backlog.n && (!needs_receive(qp, &first(qp)->msg) || has_receive(qp))) {
		struct nupa_waiting *waiting = first(qp);

		unlink_waiting(qp, waiting); /* ours, even if the QP is destroyed */
		deliver(qp, &waiting->msg, waiting->payload_bytes ? waiting->payload : NULL,
			waiting->grh);
		free(waiting);
		qp->backlog.moved_ns = now_ns;
	}
	if (qp->backlog.n && now_ns - qp->backlog.moved_ns >= PATIENCE_NS) {
		qp->starved = true;
		drop_all(qp);
	} else if (qp->recv_cq == polled && is_done(polled)) {
		drop_all(qp);
	}
	if (qp->backlog.n != before)
		shrank(qp);
}

void nupa_backlog_drop(struct nupa_qp *qp)
{
	qp->starved = false;
	if (!qp->backlog.n)
		return;
	while (qp->backlog.n)
		drop_first(qp);
	shrank(qp);
}

void nupa_backlog_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	struct nupa_list *at = engine->backlogs.next;

	while (at != &engine->backlogs) {
		struct nupa_qp *qp = container_of(at, struct nupa_qp, backlog.link);

		at = at->next;
		/* A datagram has arrived, even if its sender is gone.  A UC QP has one peer. */
		if (qp->type == IBV_QPT_UC && first(qp)->channel == channel)
			nupa_backlog_drop(qp);
	}
}

uint64_t nupa_backlog_next_timer_ns(const struct nupa_engine *engine, uint64_t now_ns)
{
	return nupa_list_empty(&engine->backlogs) ? UINT64_MAX : now_ns + POLL_NS;
}
