/* SPDX-License-Identifier: BSD-3-Clause
 * The end of an attachment: what it owes is sent, and its slot is given back. */
#include "engine/channel/apart.h"
#include "engine/attachment/attachment.h"
#include "engine/core/lane.h"
#include "engine/wire/wire.h"

#include <sched.h>

/* A peer that does not look at what it is sent is not waited for any longer. */
#define LINGER_NS UINT64_C(1000000000)

/* Answers what was executed; an answer waits while the peer's ring is full. */
static void answer_all(struct nupa_engine *engine, uint64_t deadline_ns)
{
	bool owes;

	do {
		nupa_engine_lock(engine);
		nupa_engine_progress(engine);
		owes = nupa_engine_owes(engine);
		nupa_engine_unlock(engine);
		if (owes) {
			nupa_engine_progress_siblings(engine);
			sched_yield();
		}
	} while (owes && nupa_clock_ns() < deadline_ns);
}

static bool closed_by_peer(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	nupa_channel_fetch_contact(channel,
				   nupa_contact(engine->fabric, channel->peer, engine->slot_index));
	return nupa_channel_contact(engine, channel->peer) ==
		   (engine->epoch | NUPA_CONTACT_CLOSED) &&
	       nupa_channel_peer_alive(channel);
}

/* Waits until the peers have taken what we sent last, acknowledgements above all. */
static void close_all(struct nupa_engine *engine, uint64_t deadline_ns)
{
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		/* Messages to ourselves are not taken any more. */
		struct nupa_channel *channel =
		    peer == engine->slot_index ? NULL : engine->channels[peer];

		if (channel && channel->wired) /* a network takes what it takes */
			continue;

		while (channel && !channel->broken && !nupa_tx_drained(&channel->tx) &&
		       !closed_by_peer(engine, channel) && nupa_channel_process_alive(channel) &&
		       nupa_clock_ns() < deadline_ns) {
			nupa_slot_ring(engine->fabric, channel->peer_slot);
			nupa_engine_progress_siblings(engine);
			sched_yield();
		}
	}
}

/* Leaves the fabric: what we owe is sent, partners that still have QPs to us see them end. */
void nupa_engine_leave(struct nupa_engine *engine)
{
	uint64_t deadline_ns = nupa_clock_ns() + LINGER_NS;

	answer_all(engine, deadline_ns);
	nupa_wires_stop(engine);
	nupa_port_stop(engine);
	close_all(engine, deadline_ns);
	nupa_engine_lock(engine);
	nupa_recorder_close(engine->recorder, false);
	engine->recorder = NULL;
	nupa_lanes_tell(engine);
	nupa_engine_unlock(engine);
	if (!engine->qps_used) /* flushed with the rest of the slot */
		nupa_store_release(&engine->slot->left_epoch, engine->epoch);
	nupa_fabric_free_slot(engine->fabric, engine->slot_index);
}
