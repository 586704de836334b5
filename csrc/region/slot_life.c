/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a slot.  An attaching process claims it.  Its owner frees it; after the owner's death
 * another process does.  Its memory in the pool and its regions are freed with it.  `claim` is the
 * only word that decides; nothing is locked. */
#include "segment/coherence.h"
#include "region/region_internal.h"
#include "segment/layout/geometry.h"
#include "segment/ring/lines.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- giving back --------------------------------------------------------------------- */

static void add_to_past_hw(struct nupa_fabric *fabric, uint32_t host,
			   const struct nupa_hw_counters *hw)
{
	const uint64_t *counted = (const uint64_t *)hw;
	uint64_t *sums = (uint64_t *)nupa_past_hw(fabric, host);

	for (uint32_t i = 0; i < NUPA_HW_COUNTERS; i++)
		if (counted[i])
			nupa_fetch_add_seq(&sums[i], counted[i]);
}

/* Adds the owner's counts to those of earlier owners on the same host, and clears them.  They are
 * cleared before they are added: a reaper that dies in between loses counts, but doubles none. */
static void retire_counters(struct nupa_fabric *fabric, uint32_t index)
{
	const uint32_t host = nupa_load_relaxed(&fabric->slots[index].host);
	const uint32_t n_hosts = fabric->geometry.n_hosts;
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	const uint64_t at = nupa_arena_offset(fabric, index);
	/* Without memory they are lost, as where a reaper dies. */
	struct nupa_flow *flows = host < n_hosts ? calloc(n_hosts, sizeof(*flows)) : NULL;
	struct nupa_hw_counters hw;

	if (flows && nupa_fabric_read(fabric, at + map.flows_off, flows, n_hosts * sizeof(*flows)))
		memset(flows, 0, n_hosts * sizeof(*flows));
	if (flows)
		nupa_lines_add_rings(fabric, index, flows);
	if (nupa_fabric_read(fabric, at + map.hw_off, &hw, sizeof(hw)))
		memset(&hw, 0, sizeof(hw));
	nupa_fabric_clear_arena(fabric, index);
	if (host >= n_hosts)
		return;
	add_to_past_hw(fabric, host, &hw);
	if (!flows)
		return;
	for (uint32_t peer = 0; peer < n_hosts; peer++) {
		struct nupa_flow *sum = nupa_past_flow(fabric, host, peer);

		nupa_fetch_add_seq(&sum->xmit_bytes, flows[peer].xmit_bytes);
		nupa_fetch_add_seq(&sum->xmit_packets, flows[peer].xmit_packets);
		nupa_fetch_add_seq(&sum->rcv_bytes, flows[peer].rcv_bytes);
		nupa_fetch_add_seq(&sum->rcv_packets, flows[peer].rcv_packets);
		nupa_fetch_add_seq(&sum->xmit_wait, flows[peer].xmit_wait);
		nupa_fetch_add_seq(&sum->xmit_discards, flows[peer].xmit_discards);
		nupa_fetch_add_seq(&sum->lines_first, flows[peer].lines_first);
		nupa_fetch_add_seq(&sum->lines_again, flows[peer].lines_again);
	}
	nupa_past_flush(fabric, nupa_past_flow(fabric, host, 0), n_hosts * sizeof(*flows));
	nupa_past_flush(fabric, nupa_past_hw(fabric, host), sizeof(hw));
	free(flows);
}

/* A copy to or from a region of the slot with this index is announced. */
static bool touches(const struct nupa_slot *slot, uint32_t index)
{
	const uint32_t n_lanes = nupa_slot_lanes(slot);

	if (nupa_load_seq(&slot->hazard) >> 32 == index)
		return true;
	for (uint32_t i = 0; i < n_lanes; i++)
		if (nupa_load_seq(&slot->lanes[i].hazard) >> 32 == index)
			return true;
	return false;
}

/* C4: whether a living process is in the middle of a copy to or from a region of the slot.  Its
 * keys are gone by now, and clearing the arena has interrupted all that had it mapped. */
static bool is_touched(struct nupa_fabric *fabric, uint32_t index)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		struct nupa_slot *slot = &fabric->slots[i];
		uint64_t claim = nupa_slot_claim(slot);

		if (touches(slot, index) && NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
		    nupa_slot_alive(fabric, i, claim))
			return true;
	}
	return false;
}

static void clear_used(struct nupa_slot *slot)
{
	for (uint32_t kind = 0; kind < sizeof(slot->used) / sizeof(slot->used[0]); kind++)
		nupa_store_relaxed(&slot->used[kind], 0);
}

/* No other process touches the slot: its state is REAPING, with our pid.  False: a frame that its
 * owner sent, or the owner's memory in the pool, is still in use.  So it stays with *owner*, its
 * last owner, for the next reaper. */
static bool clear_slot(struct nupa_fabric *fabric, uint32_t index, uint32_t epoch, uint32_t owner)
{
	struct nupa_slot *slot = &fabric->slots[index];

	/* A frame that it sent is being read. */
	if (nupa_load_relaxed(&slot->net_queue) && is_touched(fabric, index)) {
		nupa_store_release(&slot->claim, NUPA_CLAIM(owner, epoch, NUPA_SLOT_REAPING));
		return false;
	}
	retire_counters(fabric, index);
	if (nupa_load_relaxed(&slot->pool_regions) && is_touched(fabric, index)) {
		nupa_store_release(&slot->claim, NUPA_CLAIM(owner, epoch, NUPA_SLOT_REAPING));
		return false;
	}
	nupa_store_relaxed(&slot->pool_regions, 0);
	nupa_pool_reclaim(fabric, index);
	nupa_store_relaxed(&slot->start_time, 0);
	nupa_store_relaxed(&slot->life, 0);
	nupa_store_relaxed(&slot->life_fd, 0);
	nupa_store_relaxed(&slot->pid_ns, 0);
	nupa_store_relaxed(&slot->heartbeat, 0);
	nupa_store_relaxed(&slot->doorbell, 0);
	nupa_store_relaxed(&slot->asleep, 0);
	nupa_store_relaxed(&slot->probe_addr, 0);
	nupa_store_relaxed(&slot->probe_value, 0);
	nupa_store_relaxed(&slot->qp_limit, 0);
	nupa_store_relaxed(&slot->mr_limit, 0);
	nupa_store_relaxed(&slot->has_xrcds, 0);
	if (nupa_load_relaxed(&slot->mcast_limit)) {
		nupa_store_relaxed(&slot->mcast_limit, 0);
		nupa_fetch_add_seq(&fabric->sb->mcast_epoch, 1);
	}
	if (nupa_load_relaxed(&slot->net_queue)) {
		nupa_store_relaxed(&slot->net_queue, 0);
		nupa_fabric_net_changed(fabric);
	}
	clear_used(slot);
	nupa_store_relaxed(&slot->hazard, 0);
	nupa_store_relaxed(&slot->n_lanes, 0);
	nupa_store_relaxed(&slot->sleeping, 0);
	nupa_slot_flush_queue(fabric, slot);
	/* Pairs with the acquire of the next claim: the slot is clean by then. */
	nupa_store_release(&slot->claim, NUPA_CLAIM(0, epoch, NUPA_SLOT_FREE));
	nupa_slot_flush_claim(fabric, slot);
	return true;
}

/* Takes a slot from its owner, who has ended.  The epoch in the claim makes this fail if another
 * process was faster.  A reaper that died half way is taken over the same way: clearing twice does
 * no harm. */
static bool take_slot(struct nupa_fabric *fabric, uint32_t slot, uint64_t claim)
{
	const uint32_t epoch = NUPA_CLAIM_EPOCH(claim);
	const uint32_t owner = NUPA_CLAIM_OWNER(claim);

	return nupa_cas_seq(&fabric->slots[slot].claim, &claim,
			    NUPA_CLAIM(nupa_fabric_owner(fabric), epoch, NUPA_SLOT_REAPING)) &&
	       clear_slot(fabric, slot, epoch, owner);
}

/* --- claiming ------------------------------------------------------------------------ */

/* A slot whose owner is not of our boot, and is not known to have ended. */
static bool is_strange(const struct nupa_fabric *fabric, uint32_t index)
{
	const struct nupa_slot *slot = &fabric->slots[index];

	return NUPA_CLAIM_STATE(nupa_slot_claim(slot)) != NUPA_SLOT_FREE &&
	       nupa_load_acquire(&slot->boot) != fabric->boot;
}

/* Waits until it has been silent for long enough, and frees it then. */
static int wait_for_silence(struct nupa_fabric *fabric, uint32_t index)
{
	const struct timespec pause = { .tv_nsec = NUPA_BEAT_MS * 1000000L };
	const struct nupa_slot *slot = &fabric->slots[index];
	const uint64_t claim = nupa_slot_claim(slot);
	uint32_t beat = nupa_load_relaxed(&slot->heartbeat);

	for (uint32_t looks = 0; looks < NUPA_BEATS_MISSED; looks++) {
		nanosleep(&pause, NULL);
		nupa_fetch(true, NUPA_POINT_CLAIM, slot, NUPA_CACHE_LINE_BYTES);
		nupa_fetch(true, NUPA_POINT_BEAT, &slot->contact_epoch, 2 * NUPA_CACHE_LINE_BYTES);
		if (!is_strange(fabric, index) || nupa_slot_claim(slot) != claim)
			return 0;
		if (nupa_load_relaxed(&slot->heartbeat) != beat)
			return -EADDRINUSE;
	}
	take_slot(fabric, index, claim);
	return 0;
}

/* SOFTWARE: that no process of another kernel has a slot of the host: 0, or -EADDRINUSE.  Those
 * that had one and are silent are given up. */
static int settle_host(struct nupa_fabric *fabric, uint32_t host)
{
	uint32_t first, end;

	if (!nupa_fabric_incoherent(fabric))
		return 0;
	if (fabric->kernel && fabric->kernel != host + 1)
		return -EXDEV;
	if (!fabric->kernel)
		fabric->kernel = host + 1;
	nupa_slots_of(fabric, host, &first, &end);
	for (uint32_t i = first; i < end; i++)
		while (is_strange(fabric, i)) {
			int error = wait_for_silence(fabric, i);

			if (error)
				return error;
		}
	return 0;
}

static uint32_t next_epoch(uint32_t epoch)
{
	return epoch >= NUPA_EPOCH_MAX ? 1 : epoch + 1;
}

static void introduce(struct nupa_slot *slot, uint32_t host)
{
	char comm[sizeof(slot->comm)] = "";

	if (prctl(PR_GET_NAME, comm))
		comm[0] = '?';
	memcpy(slot->comm, comm, sizeof(slot->comm));
	nupa_store_relaxed(&slot->uid, geteuid());
	nupa_store_relaxed(&slot->pid_ns, nupa_pid_namespace());
	nupa_store_relaxed(&slot->host, host);
	nupa_store_relaxed(&slot->backlogs, 0);
	nupa_store_relaxed(&slot->start_time, nupa_process_start_time((uint32_t)getpid()));
}

int nupa_fabric_claim_slot(struct nupa_fabric *fabric, uint32_t host, uint32_t *slot)
{
	uint32_t first, end;
	int error;

	if (host >= fabric->geometry.n_hosts)
		return -EINVAL;
	if (nupa_load_acquire(&fabric->fenced))
		return -ESTALE;
	error = settle_host(fabric, host);
	if (error)
		return error;
	nupa_slots_of(fabric, host, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		struct nupa_slot *entry = &fabric->slots[i];
		uint64_t claim = nupa_slot_claim(entry);
		uint32_t epoch = next_epoch(NUPA_CLAIM_EPOCH(claim));

		if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_FREE ||
		    !nupa_cas_seq(
			&entry->claim, &claim,
			NUPA_CLAIM(nupa_fabric_owner(fabric), epoch, NUPA_SLOT_ATTACHING)))
			continue;
		nupa_store_release(&entry->boot, fabric->boot);
		introduce(entry, host);
		*slot = i;
		return 0;
	}
	return -EBUSY;
}

/* --- freeing ------------------------------------------------------------------------- */

/* Peers that had not noticed yet may have touched pages of an arena after it was cleared. */
static void clear_free_arenas(struct nupa_fabric *fabric)
{
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		struct nupa_slot *slot = &fabric->slots[i];
		uint64_t claim = nupa_slot_claim(slot);
		uint32_t epoch = NUPA_CLAIM_EPOCH(claim);

		if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_FREE || epoch == 0 ||
		    !nupa_fabric_arena_held(fabric, i) ||
		    !nupa_cas_seq(&slot->claim, &claim,
				  NUPA_CLAIM(nupa_fabric_owner(fabric), epoch, NUPA_SLOT_REAPING)))
			continue;
		nupa_fabric_clear_arena(fabric, i);
		nupa_store_release(&slot->claim, NUPA_CLAIM(0, epoch, NUPA_SLOT_FREE));
	}
}

/* Tells every attachment to look again at its peers, but for those that look by themselves. */
static void announce_deaths(struct nupa_fabric *fabric)
{
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		struct nupa_slot *slot = &fabric->slots[i];

		if (nupa_slot_apart(fabric, i) ||
		    NUPA_CLAIM_STATE(nupa_slot_claim(slot)) != NUPA_SLOT_LIVE)
			continue;
		nupa_fetch_add_seq(&slot->contact_epoch, 1);
		nupa_slot_ring(fabric, slot);
	}
}

int nupa_fabric_free_slot(struct nupa_fabric *fabric, uint32_t slot)
{
	const uint32_t owner = nupa_fabric_owner(fabric);
	uint64_t claim;

	if (slot == 0 || slot >= fabric->geometry.n_slots)
		return -EINVAL;
	claim = nupa_slot_claim(&fabric->slots[slot]);
	if (NUPA_CLAIM_OWNER(claim) != owner ||
	    !nupa_cas_seq(&fabric->slots[slot].claim, &claim,
			  NUPA_CLAIM(owner, NUPA_CLAIM_EPOCH(claim), NUPA_SLOT_REAPING)))
		return -EPERM;
	clear_slot(fabric, slot, NUPA_CLAIM_EPOCH(claim), owner);
	nupa_region_reap(fabric);
	announce_deaths(fabric);
	return 0;
}

/* A peer may be in the middle of a copy from it: that takes microseconds. */
#define EVICT_TRIES 1000

static bool evict_slot(struct nupa_fabric *fabric, uint32_t slot, uint64_t claim)
{
	const uint64_t kept =
	    NUPA_CLAIM(NUPA_CLAIM_OWNER(claim), NUPA_CLAIM_EPOCH(claim), NUPA_SLOT_REAPING);

	for (int i = 0; i < EVICT_TRIES; i++) {
		if (take_slot(fabric, slot, claim))
			return true;
		claim = nupa_slot_claim(&fabric->slots[slot]);
		if (claim != kept) /* another took it */
			return false;
		sched_yield();
	}
	return false;
}

int nupa_fabric_evict(struct nupa_fabric *fabric, uint32_t host)
{
	uint64_t *claims; /* 0: none to evict */
	uint32_t first, end;
	int evicted = 0;

	if (host >= fabric->geometry.n_hosts)
		return -EINVAL;
	nupa_slots_of(fabric, host, &first, &end);
	claims = calloc(end, sizeof(*claims));
	if (!claims)
		return -ENOMEM;
	/* All are found before the first goes: it may be back at once, in another slot. */
	for (uint32_t i = first; i < end; i++) {
		struct nupa_slot *slot = &fabric->slots[i];
		uint64_t claim = nupa_slot_fetch(fabric, i);

		if ((NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE ||
		     NUPA_CLAIM_STATE(claim) == NUPA_SLOT_ATTACHING) &&
		    nupa_load_relaxed(&slot->host) == host && nupa_slot_elsewhere(fabric, claim))
			claims[i] = claim;
	}
	for (uint32_t i = first; i < end; i++)
		if (claims[i])
			evicted += evict_slot(fabric, i, claims[i]);
	free(claims);
	if (evicted) {
		nupa_region_reap(fabric);
		announce_deaths(fabric);
	}
	return evicted;
}

bool nupa_fabric_lose_slot(struct nupa_fabric *fabric, uint32_t slot)
{
	const uint64_t claim = nupa_slot_claim(&fabric->slots[slot]);

	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE || !evict_slot(fabric, slot, claim))
		return false;
	announce_deaths(fabric);
	return true;
}

int nupa_fabric_reap(struct nupa_fabric *fabric)
{
	int reaped = 0;

	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		uint64_t claim = nupa_slot_claim(&fabric->slots[i]);

		/* Another kernel's are given back there. */
		if (!nupa_slot_apart(fabric, i) && NUPA_CLAIM_STATE(claim) != NUPA_SLOT_FREE &&
		    !nupa_slot_alive(fabric, i, claim))
			reaped += take_slot(fabric, i, claim);
	}
	nupa_region_reap(fabric);
	nupa_pool_reclaim(fabric, 0);
	clear_free_arenas(fabric);
	if (reaped)
		announce_deaths(fabric);
	return reaped;
}
