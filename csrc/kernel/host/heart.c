// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The heartbeat of an attachment, and a look at those of others.
 */
#include "kernel/host/heart.h"
#include "kernel/host/host.h"
#include "engine/attachment/attachment.h"
#include "engine/core/wake.h"
#include "engine/queue/queue.h"

/* Whether a process of this kernel has ended to which a channel is open. */
static bool neighbour_ended(struct nupa_engine *engine)
{
	bool ended = false;

	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots && !ended; peer++) {
		const struct nupa_channel *channel = engine->channels[peer];

		ended = channel && !channel->broken && !channel->foreign &&
			!nupa_channel_process_alive(channel);
	}
	return ended;
}

/* One for all: the others' heartbeats follow. */
static void stand_down(struct nupa_engine *engine)
{
	const struct ibv_async_event event = { .event_type = IBV_EVENT_DEVICE_FATAL };

	if (!nupa_load_acquire(&nupa_kernel_halted))
		nupa_hint("this kernel stood still for so long that others declared it dead: load "
			  "the modules again");
	nupa_engine_lock(engine);
	nupa_store_release(&nupa_kernel_halted, true);
	nupa_kernel_halt(engine);
	for (struct nupa_list *at = engine->contexts.next; at != &engine->contexts; at = at->next)
		nupa_event_raise(container_of(at, struct nupa_context, link), &event);
	nupa_net_fenced(engine);
	nupa_engine_unlock(engine);
	nupa_port_wake(engine);
}

static void beat(struct work_struct *work)
{
	struct nupa_heart *own = container_of(to_delayed_work(work), struct nupa_heart, work);
	struct nupa_engine *engine = own->engine;
	struct nupa_slot *slot = engine->slot;
	bool ended;

	if (nupa_load_acquire(&nupa_kernel_halted) || nupa_slot_claim(slot) != engine->claim) {
		stand_down(engine);
		return;
	}
	nupa_store_release(&slot->heartbeat, nupa_load_relaxed(&slot->heartbeat) + 1);
	nupa_engine_lock(engine);
	ended = neighbour_ended(engine);
	nupa_engine_unlock(engine);
	if (nupa_beat_look(engine->fabric, nupa_clock_ns(), &engine->silences) || ended) {
		nupa_store_release(&engine->deaths, true);
		nupa_port_wake(engine);
	}
	schedule_delayed_work(&own->work, msecs_to_jiffies(NUPA_BEAT_MS));
}

void nupa_heart_start(struct nupa_heart *own, struct nupa_engine *engine)
{
	own->engine = engine;
	INIT_DELAYED_WORK(&own->work, beat);
	schedule_delayed_work(&own->work, 0);
}

void nupa_heart_stop(struct nupa_heart *own)
{
	cancel_delayed_work_sync(&own->work);
}
