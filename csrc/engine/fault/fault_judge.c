/* SPDX-License-Identifier: BSD-3-Clause
 * Judges messages that come by a path with faults: each fault on it has a say, before anything else
 * looks at the message.  The verdict is carried out by fault_hold.c. */
#include "engine/fault/fault_internal.h"
#include "engine/transport/sq.h"
#include "region/region.h"

/* Where a fault's duration is 0. */
#define RETRY_NS 1000u      /* a link sends a corrupt packet again */
#define REORDER_NS 1000000u /* how long a message waits for one to pass it */

/* --- which, and whether -------------------------------------------------------------- */

static bool is_request(const struct nupa_msg *msg)
{
	return msg->op >= NUPA_OP_SEND && msg->op <= NUPA_OP_ATOMIC;
}

static bool is_answer(const struct nupa_msg *msg)
{
	return msg->op >= NUPA_OP_READ_RESP && msg->op <= NUPA_OP_NAK;
}

/* Words between attachments, which no link carries. */
bool nupa_fault_is_exempt(const struct nupa_msg *msg)
{
	switch (msg->op) {
	case NUPA_OP_GONE:
	case NUPA_OP_INJECTED:
		return true;
	case NUPA_OP_NET: /* padding */
		return !(msg->flags & NUPA_F_LAST);
	case NUPA_OP_INJECT: /* a question */
		return !(msg->flags & NUPA_F_DMA);
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
	case NUPA_FAULT_TIMEOUT: /* it changes what requesters make of silence: retry.c */
		return false;
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

/* --- effects ------------------------------------------------------------------------- */

static uint64_t sum(uint64_t at_ns, uint64_t ns)
{
	return at_ns + ns < at_ns ? UINT64_MAX : at_ns + ns;
}

static void hold(struct nupa_verdict *verdict, const struct nupa_fault_view *view, uint64_t due_ns)
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
	struct nupa_qp_faults *faults = nupa_qp_faults(qp);

	nupa_count(&engine->hw->fault_stuck, 1);
	if (!qp->stuck)
		nupa_list_add(&engine->faults->stuck, &faults->stuck_link);
	qp->stuck = true;
	faults->stuck_until_ns = view->duration_ns ? sum(now_ns, view->duration_ns) : UINT64_MAX;
	faults->stuck_by = view->id;
	nupa_fault_due(engine, faults->stuck_until_ns);
}

static void poison(const struct nupa_engine *engine, const struct nupa_msg *msg,
		   struct nupa_verdict *verdict)
{
	const struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	nupa_count(&engine->hw->fault_poisoned, verdict->copies);
	verdict->trace |= NUPA_TRACE_POISON;
	if (msg->op == NUPA_OP_NET || (qp && qp->type != IBV_QPT_RC))
		verdict->drop = true;
	else
		verdict->poisoned = true;
}

static void kill_qp(struct nupa_engine *engine, const struct nupa_msg *msg,
		    struct nupa_verdict *verdict)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	verdict->drop = true;
	nupa_count(&engine->hw->fault_killed, 1);
	nupa_qp_error(qp);
	nupa_event_raise_qp(qp, IBV_EVENT_QP_FATAL);
}

static void hit(struct nupa_engine *engine, const struct nupa_fault_view *view,
		const struct nupa_msg *msg, uint64_t now_ns, struct nupa_verdict *verdict)
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
static uint64_t effect_end_ns(const struct nupa_fault_view *view,
			      const struct nupa_verdict *verdict, uint64_t now_ns)
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

void nupa_fault_judge(struct nupa_engine *engine, const struct nupa_channel *channel,
		      const struct nupa_msg *msg, uint64_t now_ns, struct nupa_verdict *verdict)
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
