/* SPDX-License-Identifier: BSD-3-Clause
 * Attachments, and their counts.  Other processes' arenas are read with pread: a hole read through
 * a mapping would allocate a page, or kill us when /dev/shm is full (I4). */
#include "segment/slot/counters.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MOVER_LAST 5u /* NUPA_MOVER_RELAY: nupa.h lies above this file */
#define SCAN_ENTRIES 256u

_Static_assert(sizeof(struct nupa_qp_entry) == sizeof(struct nupa_mr_entry), "one scan for both");
_Static_assert(offsetof(struct nupa_qp_entry, qpn) == 0, "zero says unused");
_Static_assert(offsetof(struct nupa_mr_entry, key) == 0, "zero says unused");

/* Used entries of a QP or MR table: those whose first word is not zero. */
static int count_used(const struct nupa_fabric *fabric, uint64_t table, uint32_t limit,
		      uint32_t *used)
{
	struct nupa_mr_entry entries[SCAN_ENTRIES];

	*used = 0;
	for (uint32_t at = 0; at < limit; at += SCAN_ENTRIES) {
		uint32_t n = limit - at < SCAN_ENTRIES ? limit - at : SCAN_ENTRIES;
		int rc = nupa_fabric_read(fabric, table + at * sizeof(entries[0]), entries,
					  n * sizeof(entries[0]));

		if (rc)
			return rc;
		for (uint32_t i = 0; i < n; i++)
			*used += entries[i].key != 0;
	}
	return 0;
}

static uint32_t bounded(const uint32_t *word, uint32_t limit)
{
	uint32_t value = nupa_load_acquire(word);

	return value < limit ? value : limit;
}

int nupa_fabric_slot(struct nupa_fabric *fabric, uint32_t slot, struct nupa_slot_info *info)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const struct nupa_arena_map map = nupa_arena_map(sb);
	const struct nupa_slot *entry;
	uint64_t claim;
	int rc;

	if (slot == 0 || slot >= sb->n_slots)
		return -EINVAL;
	entry = &fabric->slots[slot];
	claim = nupa_slot_fetch(fabric, slot);
	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE)
		return -ENOENT;
	*info = (struct nupa_slot_info){
		.slot = slot,
		.state = NUPA_CLAIM_STATE(claim),
		.epoch = NUPA_CLAIM_EPOCH(claim),
		.pid = NUPA_CLAIM_PID(claim),
		.uid = entry->uid,
		.host = bounded(&entry->host, sb->n_hosts - 1),
		.alive = nupa_slot_alive(fabric, slot, claim),
		.net_queue = nupa_load_relaxed(&entry->net_queue) & ~NUPA_NET_COALESCED,
	};
	memcpy(info->comm, entry->comm, sizeof(info->comm) - 1);
	if (info->state != NUPA_SLOT_LIVE)
		return 0;
	rc = count_used(fabric, nupa_arena_offset(fabric, slot) + map.qps_off,
			bounded(&entry->qp_limit, sb->qp_entries), &info->qps);
	if (rc)
		return rc;
	return count_used(fabric, nupa_arena_offset(fabric, slot) + map.mrs_off,
			  bounded(&entry->mr_limit, sb->mr_entries), &info->mrs);
}

static struct nupa_flow_info flow_info(const struct nupa_flow *flow)
{
	return (struct nupa_flow_info){
		.xmit_bytes = nupa_load_relaxed(&flow->xmit_bytes),
		.xmit_packets = nupa_load_relaxed(&flow->xmit_packets),
		.rcv_bytes = nupa_load_relaxed(&flow->rcv_bytes),
		.rcv_packets = nupa_load_relaxed(&flow->rcv_packets),
		.xmit_wait = nupa_load_relaxed(&flow->xmit_wait),
		.xmit_discards = nupa_load_relaxed(&flow->xmit_discards),
	};
}

int nupa_fabric_flow(struct nupa_fabric *fabric, uint32_t slot, uint32_t host,
		     struct nupa_flow_info *info)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	struct nupa_flow flow;
	int rc;

	if (slot == 0 || slot >= sb->n_slots || host >= sb->n_hosts)
		return -EINVAL;
	rc = nupa_fabric_read(fabric,
			      nupa_arena_offset(fabric, slot) + nupa_arena_map(sb).flows_off +
				  host * sizeof(flow),
			      &flow, sizeof(flow));
	if (rc)
		return rc;
	*info = flow_info(&flow);
	return 0;
}

int nupa_fabric_net_counters(struct nupa_fabric *fabric, uint32_t slot,
			     struct nupa_net_counters *counters)
{
	if (slot == 0 || slot >= fabric->geometry.n_slots)
		return -EINVAL;
	return nupa_fabric_read(
	    fabric, nupa_arena_offset(fabric, slot) + nupa_arena_map(&fabric->geometry).net_off,
	    counters, sizeof(*counters));
}

int nupa_fabric_past_flow(struct nupa_fabric *fabric, uint32_t from, uint32_t to,
			  struct nupa_flow_info *info)
{
	if (from >= fabric->geometry.n_hosts || to >= fabric->geometry.n_hosts)
		return -EINVAL;
	nupa_past_fetch(fabric, from, nupa_past_flow(fabric, from, to), sizeof(struct nupa_flow));
	*info = flow_info(nupa_past_flow(fabric, from, to));
	return 0;
}

static void add_words(struct nupa_hw_counters *sums, const struct nupa_hw_counters *more)
{
	for (uint32_t i = 0; i < NUPA_HW_COUNTERS; i++)
		((uint64_t *)sums)[i] += nupa_load_relaxed((const uint64_t *)more + i);
}

int nupa_fabric_hw_counters(struct nupa_fabric *fabric, uint32_t host,
			    struct nupa_hw_counters *counters)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint64_t hw_off = nupa_arena_map(sb).hw_off;
	struct nupa_hw_counters found;

	if (host >= sb->n_hosts)
		return -EINVAL;
	memset(counters, 0, sizeof(*counters));
	/* The past first: who goes meanwhile is not counted twice. */
	nupa_past_fetch(fabric, host, nupa_past_hw(fabric, host), sizeof(*counters));
	add_words(counters, nupa_past_hw(fabric, host));
	for (uint32_t slot = 1; slot < sb->n_slots; slot++) {
		const struct nupa_slot *entry = &fabric->slots[slot];
		int rc;

		if (NUPA_CLAIM_STATE(nupa_slot_fetch(fabric, slot)) == NUPA_SLOT_FREE ||
		    nupa_load_relaxed(&entry->host) != host)
			continue;
		rc = nupa_fabric_read(fabric, nupa_arena_offset(fabric, slot) + hw_off, &found,
				      sizeof(found));
		if (rc)
			return rc;
		add_words(counters, &found);
	}
	return 0;
}

int nupa_fabric_mover(struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const struct nupa_arena_map map = nupa_arena_map(sb);
	struct nupa_ring_header ring;
	uint64_t producer, consumer;
	int rc;

	if (from == 0 || from >= sb->n_slots || to == 0 || to >= sb->n_slots)
		return -EINVAL;
	producer = nupa_slot_fetch(fabric, from);
	consumer = nupa_slot_fetch(fabric, to);
	if (NUPA_CLAIM_STATE(producer) != NUPA_SLOT_LIVE ||
	    NUPA_CLAIM_STATE(consumer) != NUPA_SLOT_LIVE)
		return -ENOENT;
	rc = nupa_fabric_read(
	    fabric, nupa_arena_offset(fabric, from) + map.rings_off + to * map.ring_stride, &ring,
	    sizeof(ring));
	if (rc)
		return rc;
	if (ring.pair !=
		((uint64_t)NUPA_CLAIM_EPOCH(producer) << 32 | NUPA_CLAIM_EPOCH(consumer)) ||
	    ring.mover == 0 || ring.mover > MOVER_LAST)
		return -ENOENT;
	return (int)ring.mover;
}
