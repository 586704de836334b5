/* SPDX-License-Identifier: BSD-3-Clause
 * Carries out the judgement of messages: drops them, passes them on once or twice, or holds them.
 *
 *   I8  Held messages keep their order, and later ones wait behind them.  Only a message that a
 *       reorder has hit lets the next one pass. */
#include "engine/fault/fault_internal.h"
#include "engine/inject/inject_engine.h"
#include "engine/transport/responder.h"

#include <stdlib.h>

/* Held messages of one peer: more stay in the ring, so the peer waits for room. */
#define HELD_MESSAGES_MAX 4096u
#define HELD_BYTES_MAX (16u << 20)

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

/* --- giving on ----------------------------------------------------------------------- */

/* False: nonsense. */
static bool give(struct nupa_engine *engine, struct nupa_channel *channel,
		 const struct nupa_msg *msg, const uint8_t *payload, uint8_t copies, bool poisoned)
{
	bool good = true;

	for (uint8_t i = 0; i < copies && good && !channel->broken; i++) {
		struct nupa_msg copy = *msg; /* the responder changes its own */

		engine->poisoned = poisoned;
		good = engine->ops->dispatch(engine, channel, &copy, payload);
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
		nupa_list_del(&held->link); /* ours, even if the channel closes */
		nupa_list_init(&held->link);
		good = give(engine, channel, &held->msg, held->payload_bytes ? held->payload : NULL,
			    held->copies, held->poisoned);
		forget(channel, held);
		if (!good)
			engine->ops->fail(engine, channel);
		if (channel->broken)
			break;
	}
	return UINT64_MAX;
}

/* A copy of it, at its place.  False: no memory. */
static bool keep(struct nupa_engine *engine, struct nupa_channel *channel,
		 const struct nupa_msg *msg, const uint8_t *payload,
		 const struct nupa_verdict *verdict, uint64_t now_ns)
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
	last = container_of(channel->held.prev, struct nupa_held, link);
	if (!nupa_list_empty(&channel->held) && last->passes) { /* I8 */
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
	nupa_rx_publish(&channel->rx); /* taken messages are no longer in the ring (retry.c I7) */
	return true;
}

bool nupa_fault_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_verdict verdict = { .copies = 1 };
	uint64_t now_ns = engine->now_ns();

	if (nupa_fault_is_exempt(msg))
		return give(engine, channel, msg, payload, 1, false);
	/* One that is pulled was sent before there was a fault: it keeps its place, no more. */
	if (!(msg->op == NUPA_OP_SEND && msg->flags & NUPA_F_PULL))
		nupa_fault_judge(engine, channel, msg, now_ns, &verdict);
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
