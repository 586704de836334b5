/* SPDX-License-Identifier: BSD-3-Clause
 * Judges messages that come by a path with faults: each fault on it says what becomes of a message,
 * before anything else looks at that.
 *
 *   I8  What is held keeps its order, and what comes later waits behind it.  Only a message that a
 *       reorder has hit lets the next one pass. */
#include "fault_internal.h"
#include "inject.h"
#include "responder.h"
#include "sq.h"

#include <stdlib.h>

/* What is held of one peer: more stays in the ring, so the peer waits for room. */
#define HELD_MESSAGES_MAX 4096u
#define HELD_BYTES_MAX (16u << 20)

/* Where a fault's duration is 0. */
#define RETRY_NS 1000u      /* a link sends a corrupt packet again */
#define REORDER_NS 1000000u /* how long a message waits for one to pass it */

/* How soon a receive is looked for again. */
#define STARVED_POLL_NS 50000u

/* How far ahead a link of limited bandwidth is booked: what wakes up for it is not so exact. */
#define BURST_NS 200000u

struct nupa_held {
	struct nupa_list link;
	uint64_t due_ns;
	uint32_t by; /* the fault that holds it; 0: it waits behind others */
	uint32_t payload_bytes;
	uint8_t copies;
	bool passes; /* reordered: the next one goes before it */
	bool poisoned;
	struct nupa_msg msg;
	uint8_t payload[];
};

struct verdict {
	bool drop, passes, poisoned;
	uint8_t copies;
	uint8_t trace; /* enum nupa_trace_flag */
	uint32_t by;
	uint64_t due_ns;
};

/* --- which, and whether -------------------------------------------------------------- */

static bool is_request(const struct nupa_msg *msg)
{
	return msg->op >= NUPA_OP_SEND && msg->op <= NUPA_OP_ATOMIC;
}

static bool is_answer(const struct nupa_msg *msg)
{
	return msg->op >= NUPA_OP_READ_RESP && msg->op <= NUPA_OP_NAK;
}

/* What no link carries: words between attachments.  Connection management has no repetitions, and
 * the sender of a pulled UC message waits for word that its buffer is free. */
static bool is_exempt(const struct nupa_engine *engine, const struct nupa_msg *msg)
{
	const struct nupa_qp *qp;

	switch (msg->op) {
	case NUPA_OP_CM:
	case NUPA_OP_GONE:
	case NUPA_OP_INJECTED:
		return true;
	case NUPA_OP_NET: /* padding */
		return !(msg->flags & NUPA_F_LAST);
	case NUPA_OP_INJECT: /* a question */
		return !(msg->flags & NUPA_F_DMA);
	case NUPA_OP_ACK:
	case NUPA_OP_NAK:
		qp = nupa_qp_find(engine, msg->dest_qpn);
		return qp && qp->type == IBV_QPT_UC;
	default:
		return false;
	}
}

/* The requester that the message answers, if it is ours. */
static struct nupa_qp *answered(const struct nupa_engine *engine, const struct nupa_msg *msg)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	if (!is_answer(msg) && !(is_request(msg) && msg->flags & NUPA_F_ACK))
		return NULL;
	return qp && qp->type == IBV_QPT_RC && qp->dest_qpn == msg->src_qpn ? qp : NULL;
}

/* Whether this kind has anything to do with such a message: else it does not count. */
static bool concerns(const struct nupa_engine *engine, const struct nupa_fault_view *view,
		     const struct nupa_msg *msg)
{
	const struct nupa_qp *qp;

	switch (view->kind) {
	case NUPA_FAULT_POISON:
		if (msg->op == NUPA_OP_SEND || msg->op == NUPA_OP_WRITE)
			return msg->length_bytes != 0;
		return msg->op == NUPA_OP_READ || msg->op == NUPA_OP_ATOMIC ||
		       msg->op == NUPA_OP_NET;
	case NUPA_FAULT_STUCK:
		return answered(engine, msg) != NULL;
	case NUPA_FAULT_KILL:
		qp = is_request(msg) || is_answer(msg) ? nupa_qp_find(engine, msg->dest_qpn) : NULL;
		return qp && qp->state >= IBV_QPS_RTR && qp->state <= IBV_QPS_SQE;
	case NUPA_FAULT_FLAP:
		return !nupa_load_relaxed(&view->entry->down_until_ns);
	default:
		return true;
	}
}

/* F2: by seed and n alone (the finalizer of splitmix64). */
static bool draws(const struct nupa_fault_view *view, uint64_t n)
{
	uint64_t x = view->seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);

	if (n < view->after)
		return false;
	if (view->probability == UINT32_MAX)
		return true;
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((x ^ x >> 31) >> 32) < view->probability;
}

/* Takes one of the hits that are left; *last: it was the last one. */
static bool take_hit(const struct nupa_fault_view *view, bool *last)
{
	uint64_t hits = nupa_load_relaxed(&view->entry->hits);

	*last = false;
	if (!view->count) {
		nupa_fetch_add_seq(&view->entry->hits, 1);
		return true;
	}
	do {
		if (hits >= view->count)
			return false;
	} while (!nupa_cas_seq(&view->entry->hits, &hits, hits + 1));
	*last = hits + 1 == view->count;
	return true;
}

/* --- what it does -------------------------------------------------------------------- */

static uint64_t sum(uint64_t at_ns, uint64_t ns)
{
	return at_ns + ns < at_ns ? UINT64_MAX : at_ns + ns;
}

static void hold(struct verdict *verdict, const struct nupa_fault_view *view, uint64_t due_ns)
{
	if (due_ns <= verdict->due_ns)
		return;
	verdict->due_ns = due_ns;
	verdict->by = view->id;
}

/* The link carries this message next; what comes then waits in its ring (nupa_fault_blocks). */
static void book_link(const struct nupa_fault_view *view, const struct nupa_msg *msg,
		      uint64_t now_ns)
{
	uint64_t bytes = msg->length_bytes + sizeof(*msg);
	uint64_t whole_s = bytes / view->bytes_per_s, rest = bytes % view->bytes_per_s;
	uint64_t ns = whole_s * UINT64_C(1000000000) +
		      (uint64_t)((double)rest * 1e9 / (double)view->bytes_per_s);
	uint64_t free_ns = nupa_load_relaxed(&view->entry->free_at_ns);

	while (!nupa_cas_seq(&view->entry->free_at_ns, &free_ns,
			     sum(free_ns > now_ns ? free_ns : now_ns, ns)))
		;
}

static void take_port_down(struct nupa_engine *engine, const struct nupa_fault_view *view,
			   uint64_t now_ns)
{
	uint64_t up = 0;

	if (!nupa_cas_seq(&view->entry->down_until_ns, &up, sum(now_ns, view->duration_ns)))
		return;
	nupa_count(&engine->hw->fault_flaps, 1);
	nupa_fabric_set_port(engine->fabric, view->port, NUPA_PORT_DOWN);
	nupa_fault_due(engine, sum(now_ns, view->duration_ns));
}

static void stick(struct nupa_engine *engine, const struct nupa_fault_view *view,
		  const struct nupa_msg *msg, uint64_t now_ns)
{
	struct nupa_qp *qp = answered(engine, msg);

	nupa_count(&engine->hw->fault_stuck, 1);
	if (!qp->stuck_until_ns)
		nupa_list_add(&engine->faults->stuck, &qp->stuck_link);
	qp->stuck_until_ns = view->duration_ns ? sum(now_ns, view->duration_ns) : UINT64_MAX;
	qp->stuck_by = view->id;
	nupa_fault_due(engine, qp->stuck_until_ns);
}

void nupa_fault_unstick(struct nupa_qp *qp)
{
	qp->stuck_until_ns = 0;
	nupa_list_del(&qp->stuck_link);
	nupa_sq_complete_done(qp);
}

static void poison(const struct nupa_engine *engine, const struct nupa_msg *msg,
		   struct verdict *verdict)
{
	const struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	nupa_count(&engine->hw->fault_poisoned, verdict->copies);
	verdict->trace |= NUPA_TRACE_POISON;
	if (msg->op == NUPA_OP_NET || (qp && qp->type != IBV_QPT_RC))
		verdict->drop = true;
	else
		verdict->poisoned = true;
}

static void kill_qp(struct nupa_engine *engine, const struct nupa_msg *msg, struct verdict *verdict)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	verdict->drop = true;
	nupa_count(&engine->hw->fault_killed, 1);
	nupa_qp_error(qp);
	nupa_event_raise_qp(qp, IBV_EVENT_QP_FATAL);
}

static void hit(struct nupa_engine *engine, const struct nupa_fault_view *view,
		const struct nupa_msg *msg, uint64_t now_ns, struct verdict *verdict)
{
	struct nupa_hw_counters *hw = engine->hw;

	switch (view->kind) {
	case NUPA_FAULT_DROP:
		verdict->drop = true;
		nupa_count(&hw->fault_dropped, verdict->copies);
		break;
	case NUPA_FAULT_DUPLICATE:
		verdict->copies++; /* as often as one of them doubles it */
		nupa_count(&hw->fault_duplicated, 1);
		verdict->trace |= NUPA_TRACE_DUPLICATE;
		break;
	case NUPA_FAULT_REORDER:
		hold(verdict, view,
		     sum(now_ns, view->duration_ns ? view->duration_ns : REORDER_NS));
		verdict->passes = true;
		nupa_count(&hw->fault_reordered, 1);
		verdict->trace |= NUPA_TRACE_DELAYED;
		break;
	case NUPA_FAULT_DELAY:
		hold(verdict, view, sum(now_ns, view->duration_ns));
		nupa_count(&hw->fault_delayed, 1);
		verdict->trace |= NUPA_TRACE_DELAYED;
		break;
	case NUPA_FAULT_CORRUPT:
		hold(verdict, view, sum(now_ns, view->duration_ns ? view->duration_ns : RETRY_NS));
		nupa_count(&hw->link_retries, 1);
		verdict->trace |= NUPA_TRACE_CORRUPT;
		break;
	case NUPA_FAULT_POISON:
		poison(engine, msg, verdict);
		break;
	case NUPA_FAULT_FLAP:
		verdict->drop = true;
		take_port_down(engine, view, now_ns);
		break;
	case NUPA_FAULT_BANDWIDTH:
		book_link(view, msg, now_ns);
		break;
	case NUPA_FAULT_STUCK:
		stick(engine, view, msg, now_ns);
		break;
	default:
		kill_qp(engine, msg, verdict);
		break;
	}
}

/* When what the last hit has done is over. */
static uint64_t effect_end_ns(const struct nupa_fault_view *view, const struct verdict *verdict,
			      uint64_t now_ns)
{
	switch (view->kind) {
	case NUPA_FAULT_REORDER:
	case NUPA_FAULT_DELAY:
	case NUPA_FAULT_CORRUPT:
		return verdict->due_ns;
	case NUPA_FAULT_FLAP:
		return sum(now_ns, view->duration_ns);
	case NUPA_FAULT_STUCK:
		return view->duration_ns ? sum(now_ns, view->duration_ns) : UINT64_MAX;
	default:
		return now_ns;
	}
}

static void judge(struct nupa_engine *engine, const struct nupa_channel *channel,
		  const struct nupa_msg *msg, uint64_t now_ns, struct verdict *verdict)
{
	for (uint64_t left = channel->rx_faults; left && !verdict->drop; left &= left - 1) {
		const struct nupa_fault_view *view = &engine->faults->views[__builtin_ctzll(left)];
		bool last;

		if (!view->id || nupa_load_relaxed(&view->entry->id) != view->id ||
		    now_ns >= view->end_ns || !concerns(engine, view, msg) ||
		    !draws(view, nupa_fetch_add_seq(&view->entry->seen, 1)) ||
		    !take_hit(view, &last))
			continue;
		hit(engine, view, msg, now_ns, verdict);
		if (last) {
			nupa_store_release(&view->entry->over_ns,
					   effect_end_ns(view, verdict, now_ns));
			nupa_fault_announce(engine->fabric);
		}
	}
	if (verdict->drop)
		verdict->trace |= NUPA_TRACE_DROPPED;
}

/* --- giving on ----------------------------------------------------------------------- */

/* False: nonsense. */
static bool give(struct nupa_engine *engine, struct nupa_channel *channel,
		 const struct nupa_msg *msg, const uint8_t *payload, uint8_t copies, bool poisoned)
{
	bool good = true;

	for (uint8_t i = 0; i < copies && good && !channel->broken; i++) {
		struct nupa_msg copy = *msg; /* the responder changes its own */

		engine->poisoned = poisoned;
		good = nupa_engine_dispatch(engine, channel, &copy, payload);
		engine->poisoned = false;
	}
	return good;
}

static void forget(struct nupa_channel *channel, struct nupa_held *held)
{
	nupa_list_del(&held->link);
	channel->held_messages--;
	channel->held_bytes -= held->payload_bytes;
	free(held);
}

void nupa_fault_free_held(struct nupa_channel *channel)
{
	while (!nupa_list_empty(&channel->held))
		forget(channel, container_of(channel->held.next, struct nupa_held, link));
}

uint64_t nupa_fault_release_held(struct nupa_engine *engine, struct nupa_channel *channel,
				 uint64_t now_ns, bool all)
{
	while (!nupa_list_empty(&channel->held)) {
		struct nupa_held *held = container_of(channel->held.next, struct nupa_held, link);
		bool good;

		if (!all && now_ns < held->due_ns &&
		    (!held->by || nupa_fault_is_on(engine, held->by, now_ns)))
			return held->due_ns;
		if (held->msg.op == NUPA_OP_SEND &&
		    nupa_receive_must_wait(engine, channel, held->msg.dest_qpn))
			return now_ns + STARVED_POLL_NS;
		nupa_list_del(&held->link); /* ours, whatever becomes of the channel */
		nupa_list_init(&held->link);
		good = give(engine, channel, &held->msg, held->payload_bytes ? held->payload : NULL,
			    held->copies, held->poisoned);
		forget(channel, held);
		if (!good)
			nupa_channel_fail(engine, channel);
		if (channel->broken)
			break;
	}
	return UINT64_MAX;
}

/* A copy of it, at its place.  False: no memory. */
static bool keep(struct nupa_engine *engine, struct nupa_channel *channel,
		 const struct nupa_msg *msg, const uint8_t *payload, const struct verdict *verdict,
		 uint64_t now_ns)
{
	uint32_t bytes = payload ? msg->length_bytes : 0;
	struct nupa_held *held = malloc(sizeof(*held) + bytes), *last;

	if (!held)
		return false;
	held->due_ns = verdict->due_ns > now_ns ? verdict->due_ns : now_ns;
	held->by = verdict->by;
	held->payload_bytes = bytes;
	held->copies = verdict->copies;
	held->passes = verdict->passes;
	held->poisoned = verdict->poisoned;
	held->msg = *msg;
	if (bytes)
		memcpy(held->payload, payload, bytes);
	channel->held_messages++;
	channel->held_bytes += bytes;
	last = nupa_list_empty(&channel->held)
		   ? NULL
		   : container_of(channel->held.prev, struct nupa_held, link);
	if (last && last->passes) { /* I8 */
		nupa_list_add(&last->link, &held->link);
		if (held->passes) /* it has gone before one */
			held->due_ns = now_ns;
		held->passes = last->passes = false;
		last->due_ns = now_ns;
	} else {
		nupa_list_add(&channel->held, &held->link);
	}
	nupa_fault_due(engine, container_of(channel->held.next, struct nupa_held, link)->due_ns);
	return true;
}

bool nupa_fault_blocks(struct nupa_engine *engine, struct nupa_channel *channel)
{
	uint64_t now_ns = engine->now_ns(), until_ns = 0;

	for (uint64_t left = channel->rx_faults; left; left &= left - 1) {
		const struct nupa_fault_view *view = &engine->faults->views[__builtin_ctzll(left)];
		uint64_t free_ns = nupa_load_relaxed(&view->entry->free_at_ns);

		if (view->id && view->kind == NUPA_FAULT_BANDWIDTH && free_ns > until_ns &&
		    nupa_load_relaxed(&view->entry->id) == view->id && now_ns < view->end_ns)
			until_ns = free_ns;
	}
	until_ns = until_ns > BURST_NS ? until_ns - BURST_NS : 0;
	channel->gated = now_ns < until_ns || channel->held_messages >= HELD_MESSAGES_MAX ||
			 channel->held_bytes >= HELD_BYTES_MAX;
	if (!channel->gated)
		return false;
	channel->gated_until_ns = now_ns < until_ns ? until_ns : UINT64_MAX;
	nupa_fault_due(engine, channel->gated_until_ns);
	nupa_store_relaxed(&engine->held_back, true); /* the port thread need not look so often */
	nupa_rx_publish(&channel->rx); /* what was taken is no longer in the ring (retry.c I7) */
	return true;
}

bool nupa_fault_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_msg *msg, const uint8_t *payload)
{
	struct verdict verdict = { .copies = 1 };
	uint64_t now_ns = engine->now_ns();

	if (is_exempt(engine, msg))
		return give(engine, channel, msg, payload, 1, false);
	/* One that is pulled was sent before there was a fault: it keeps its place, no more. */
	if (!(msg->op == NUPA_OP_SEND && msg->flags & NUPA_F_PULL))
		judge(engine, channel, msg, now_ns, &verdict);
	if (unlikely(verdict.trace && engine->trace & NUPA_TRACE_TRANSPORT))
		nupa_trace_received(engine, channel->peer, msg, payload, verdict.trace);
	if (verdict.drop) {
		if (msg->op == NUPA_OP_INJECT)
			nupa_inject_drop(channel, msg, NUPA_INJECT_FAULT);
		return true;
	}
	if (nupa_list_empty(&channel->held) && !verdict.due_ns)
		return give(engine, channel, msg, payload, verdict.copies, verdict.poisoned);
	if (payload && !nupa_channel_intact(channel))
		return true; /* not its bytes: the death watch will tell */
	if (!keep(engine, channel, msg, payload, &verdict, now_ns))
		return give(engine, channel, msg, payload, verdict.copies, verdict.poisoned);
	(void)nupa_fault_release_held(engine, channel, now_ns, false);
	return true;
}
