/* SPDX-License-Identifier: BSD-3-Clause
 * Keys published and taken back.
 *
 * Hazards, the owner's side.  The owner clears a key, then waits for processes that announced a
 * copy (window.c).  A copy takes microseconds, unless its process is stopped in the middle of it.
 * Memory cannot be taken away from that process, so waiting has limits.  A restartable sequence
 * (rseq) around the look at the key would make a system call safe to ignore, but not a memcpy.  A
 * lease (copy only within so many ms of the look) leaves a window. */
#include "engine/memory/mr.h"

#include <time.h>

#define HERE_NS UINT64_C(1000000000)  /* by those who cannot let go of the lock */
#define ASIDE_NS UINT64_C(5000000000) /* by those who can */
#define LOOK_AGAIN_NS 100000

void nupa_mr_publish(struct nupa_engine *engine, struct nupa_mr *mr)
{
	struct nupa_mr_entry *entry = &engine->mr_entries[mr->index];
	struct nupa_mr_entry whole = *entry;

	whole.key = mr->ibv.lkey;
	whole.changes++;
	/* Readers may be at it: see nupa_mr_entry_copy. */
	nupa_store_relaxed(&entry->check, nupa_mr_entry_check(&whole));
	nupa_store_relaxed(&entry->changes, whole.changes);
	nupa_store_release(&entry->key, whole.key); /* P5 */
	mr->known = true;
}

static bool is_held(const struct nupa_channel *channel, uint64_t hazard)
{
	const struct nupa_slot *slot = channel->peer_slot;
	const uint32_t n_lanes = nupa_slot_lanes(slot);

	if (nupa_load_seq(&slot->hazard) == hazard)
		return true;
	for (uint32_t i = 0; i < n_lanes; i++)
		if (nupa_load_seq(&slot->lanes[i].hazard) == hazard)
			return true;
	return false;
}

/* C4: a living process that may still be copying; NULL: none. */
static const struct nupa_channel *find_copier(const struct nupa_engine *engine, uint32_t index)
{
	uint64_t hazard = (uint64_t)engine->slot_index << 32 | (index + 1);

	/* A child's picture of the parent's hazards does not change. */
	if (engine->forked || !nupa_reach_from_outside())
		return NULL;
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		const struct nupa_channel *channel = engine->channels[peer];

		if (channel && is_held(channel, hazard) && nupa_channel_process_alive(channel) &&
		    is_held(channel, hazard))
			return channel;
	}
	return NULL;
}

/* The barrier is also the one that initiators would need between their announcement and their look
 * at the key. */
static void take_key(struct nupa_engine *engine, uint32_t index)
{
	if (engine->mrs[index])
		engine->mrs[index]->known = false;
	(void)nupa_exchange_seq(&engine->mr_entries[index].key, 0);
	(void)nupa_port_barrier(engine);
}

static bool wait_here(const struct nupa_engine *engine, uint32_t index, uint64_t limit_ns)
{
	uint64_t until_ns = 0, hazard = (uint64_t)engine->slot_index << 32 | (index + 1);
	const struct nupa_channel *channel;

	while ((channel = find_copier(engine, index))) {
		uint64_t now_ns = nupa_clock_ns();

		until_ns = until_ns ? until_ns : now_ns + limit_ns;
		if (now_ns >= until_ns)
			return false;
		for (uint32_t spins = 0; spins < 100 && is_held(channel, hazard); spins++)
			nupa_cpu_pause();
		sched_yield();
	}
	return true;
}

bool nupa_mr_withdraw(struct nupa_engine *engine, uint32_t index)
{
	take_key(engine, index);
	return wait_here(engine, index, HERE_NS);
}

bool nupa_mr_settle(struct nupa_engine *engine, uint32_t index)
{
	const struct timespec pause = { .tv_nsec = LOOK_AGAIN_NS };
	uint64_t until_ns;

	take_key(engine, index);
	if (wait_here(engine, index, LOOK_AGAIN_NS))
		return true;
	until_ns = nupa_clock_ns() + ASIDE_NS;
	while (find_copier(engine, index)) {
		if (nupa_clock_ns() >= until_ns) {
			nupa_hint("process %u is stopped in the middle of a copy to or from memory "
				  "of this one: continue or end it",
				  find_copier(engine, index)->peer_pid);
			return false;
		}
		nupa_engine_unlock(engine);
		nanosleep(&pause, NULL);
		nupa_engine_lock(engine);
	}
	return true;
}
