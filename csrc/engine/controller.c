/* SPDX-License-Identifier: BSD-3-Clause
 * The controller's view of a fabric: names and counts, port states, who is attached, traffic, and
 * taking back what dead processes held.  Other processes' arenas are read with pread: a hole read
 * through a mapping would allocate a page, or kill us when /dev/shm is full (I4). */
#include "atomics.h"
#include "geometry.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOVER_LAST 4u /* NUPA_MOVER_RELAY: nupa.h lies above this file */
#define SCAN_ENTRIES 256u

_Static_assert(sizeof(struct nupa_qp_entry) == sizeof(struct nupa_mr_entry), "one scan for both");
_Static_assert(offsetof(struct nupa_qp_entry, qpn) == 0, "zero says unused");
_Static_assert(offsetof(struct nupa_mr_entry, key) == 0, "zero says unused");

uint32_t nupa_fabric_n_hosts(const struct nupa_fabric *fabric)
{
	return fabric->geometry.n_hosts;
}

uint32_t nupa_fabric_n_ports(const struct nupa_fabric *fabric)
{
	return fabric->geometry.n_ports;
}

uint32_t nupa_fabric_n_slots(const struct nupa_fabric *fabric)
{
	return fabric->geometry.n_slots;
}

uint32_t nupa_fabric_flags(const struct nupa_fabric *fabric)
{
	return fabric->geometry.flags;
}

uint64_t nupa_fabric_generation(const struct nupa_fabric *fabric)
{
	return fabric->geometry.generation;
}

uint64_t nupa_fabric_created_ns(const struct nupa_fabric *fabric)
{
	return fabric->geometry.created_ns;
}

const char *nupa_fabric_name(const struct nupa_fabric *fabric)
{
	return fabric->geometry.name;
}

int nupa_fabric_fd(const struct nupa_fabric *fabric)
{
	return fabric->fd;
}

const struct nupa_host *nupa_fabric_host(const struct nupa_fabric *fabric, uint32_t host)
{
	return host < fabric->geometry.n_hosts ? &fabric->hosts[host] : NULL;
}

const struct nupa_port *nupa_fabric_port(const struct nupa_fabric *fabric, uint32_t port)
{
	return port < fabric->geometry.n_ports ? &fabric->ports[port] : NULL;
}

const struct nupa_route *nupa_fabric_route(const struct nupa_fabric *fabric, uint32_t from,
					   uint32_t to)
{
	const uint32_t n_hosts = fabric->geometry.n_hosts;

	return from < n_hosts && to < n_hosts ? &fabric->routes[(size_t)from * n_hosts + to] : NULL;
}

static uint64_t load_claim(const struct nupa_slot *slot)
{
	/* Pairs with the owner's release store of LIVE: what it published before is seen. */
	return nupa_load_acquire(&slot->claim);
}

/* Wakes the owner of a slot if it said that it sleeps. */
static void ring_doorbell(struct nupa_slot *slot)
{
	/* P3: the news (port_epoch, contact_epoch) was stored before, by a full fence. */
	if (nupa_load_seq(&slot->sleeping) && nupa_exchange_seq(&slot->sleeping, 0))
		syscall(SYS_futex, &slot->sleeping, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int nupa_fabric_set_port(struct nupa_fabric *fabric, uint32_t port, uint32_t state)
{
	struct nupa_port *entry;

	if (port >= fabric->geometry.n_ports ||
	    (state != NUPA_PORT_DOWN && state != NUPA_PORT_ACTIVE))
		return -EINVAL;
	entry = &fabric->ports[port];
	if (nupa_load_relaxed(&entry->state) == state)
		return 0;
	/* One writer, under the control lock; the epoch below publishes it. */
	if (state == NUPA_PORT_DOWN)
		nupa_fetch_add_seq(&entry->link_downed, 1);
	nupa_store_release(&entry->state, state);
	nupa_fetch_add_seq(&fabric->sb->port_epoch, 1);
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		if (NUPA_CLAIM_STATE(load_claim(&fabric->slots[slot])) == NUPA_SLOT_LIVE)
			ring_doorbell(&fabric->slots[slot]);
	return 0;
}

static uint64_t arena_offset(const struct nupa_fabric *fabric, uint32_t slot)
{
	return fabric->geometry.arenas_off + (slot - 1) * fabric->geometry.arena_bytes;
}

/* Reads all of *bytes*, zeros where the file has holes.  0 or a negative errno. */
static int read_at(const struct nupa_fabric *fabric, uint64_t offset, void *to, size_t bytes)
{
	ssize_t got;

	do
		got = pread(fabric->fd, to, bytes, (off_t)offset);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	return (size_t)got == bytes ? 0 : -EIO;
}

/* Used entries of a QP or MR table: those whose first word is not zero. */
static int count_used(const struct nupa_fabric *fabric, uint64_t table, uint32_t limit,
		      uint32_t *used)
{
	struct nupa_mr_entry entries[SCAN_ENTRIES];

	*used = 0;
	for (uint32_t at = 0; at < limit; at += SCAN_ENTRIES) {
		uint32_t n = limit - at < SCAN_ENTRIES ? limit - at : SCAN_ENTRIES;
		int rc = read_at(fabric, table + at * sizeof(entries[0]), entries,
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

/* A slot that is being attached or reaped has no settled start time: its pid alone counts. */
static bool owner_alive(const struct nupa_slot *slot, uint64_t claim)
{
	uint64_t start_time = 0;

	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE)
		start_time = nupa_load_relaxed(&slot->start_time);
	return nupa_process_alive(NUPA_CLAIM_PID(claim), start_time);
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
	claim = load_claim(entry);
	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE)
		return -ENOENT;
	*info = (struct nupa_slot_info){
		.slot = slot,
		.state = NUPA_CLAIM_STATE(claim),
		.epoch = NUPA_CLAIM_EPOCH(claim),
		.pid = NUPA_CLAIM_PID(claim),
		.uid = entry->uid,
		.host = bounded(&entry->host, sb->n_hosts - 1),
		.alive = owner_alive(entry, claim),
	};
	memcpy(info->comm, entry->comm, sizeof(info->comm) - 1);
	if (info->state != NUPA_SLOT_LIVE)
		return 0;
	rc = count_used(fabric, arena_offset(fabric, slot) + map.qps_off,
			bounded(&entry->qp_limit, sb->qp_entries), &info->qps);
	if (rc)
		return rc;
	return count_used(fabric, arena_offset(fabric, slot) + map.mrs_off,
			  bounded(&entry->mr_limit, sb->mr_entries), &info->mrs);
}

int nupa_fabric_flow(struct nupa_fabric *fabric, uint32_t slot, uint32_t host,
		     struct nupa_flow_info *info)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	struct nupa_flow flow;
	int rc;

	if (slot == 0 || slot >= sb->n_slots || host >= sb->n_hosts)
		return -EINVAL;
	rc = read_at(
	    fabric, arena_offset(fabric, slot) + nupa_arena_map(sb).flows_off + host * sizeof(flow),
	    &flow, sizeof(flow));
	if (rc)
		return rc;
	*info = (struct nupa_flow_info){ flow.xmit_bytes,  flow.xmit_packets, flow.rcv_bytes,
					 flow.rcv_packets, flow.xmit_wait,    flow.xmit_discards };
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
	producer = load_claim(&fabric->slots[from]);
	consumer = load_claim(&fabric->slots[to]);
	if (NUPA_CLAIM_STATE(producer) != NUPA_SLOT_LIVE ||
	    NUPA_CLAIM_STATE(consumer) != NUPA_SLOT_LIVE)
		return -ENOENT;
	rc = read_at(fabric, arena_offset(fabric, from) + map.rings_off + to * map.ring_stride,
		     &ring, sizeof(ring));
	if (rc)
		return rc;
	if (ring.pair !=
		((uint64_t)NUPA_CLAIM_EPOCH(producer) << 32 | NUPA_CLAIM_EPOCH(consumer)) ||
	    ring.mover == 0 || ring.mover > MOVER_LAST)
		return -ENOENT;
	return (int)ring.mover;
}

/* Nobody but us touches the slot: its state is REAPING, with our pid. */
static void clear_slot(struct nupa_fabric *fabric, uint32_t index, uint32_t epoch)
{
	struct nupa_slot *slot = &fabric->slots[index];

	nupa_fabric_clear_arena(fabric, index);
	nupa_pool_reclaim(fabric, index);
	nupa_store_relaxed(&slot->start_time, 0);
	nupa_store_relaxed(&slot->probe_addr, 0);
	nupa_store_relaxed(&slot->probe_value, 0);
	nupa_store_relaxed(&slot->qp_limit, 0);
	nupa_store_relaxed(&slot->mr_limit, 0);
	nupa_store_relaxed(&slot->hazard, 0);
	nupa_store_relaxed(&slot->sleeping, 0);
	/* Pairs with the acquire of whoever claims it next: the slot is clean by then. */
	nupa_store_release(&slot->claim, NUPA_CLAIM(0, epoch, NUPA_SLOT_FREE));
}

/* Tells every attachment to look again at its peers. */
static void announce_deaths(struct nupa_fabric *fabric)
{
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		struct nupa_slot *slot = &fabric->slots[i];

		if (NUPA_CLAIM_STATE(load_claim(slot)) != NUPA_SLOT_LIVE)
			continue;
		nupa_fetch_add_seq(&slot->contact_epoch, 1);
		ring_doorbell(slot);
	}
}

int nupa_fabric_free_slot(struct nupa_fabric *fabric, uint32_t slot)
{
	uint64_t claim;

	if (slot == 0 || slot >= fabric->geometry.n_slots)
		return -EINVAL;
	claim = load_claim(&fabric->slots[slot]);
	if (NUPA_CLAIM_PID(claim) != (uint32_t)getpid() ||
	    !nupa_cas_seq(&fabric->slots[slot].claim, &claim,
			  NUPA_CLAIM(getpid(), NUPA_CLAIM_EPOCH(claim), NUPA_SLOT_REAPING)))
		return -EPERM;
	clear_slot(fabric, slot, NUPA_CLAIM_EPOCH(claim));
	announce_deaths(fabric);
	return 0;
}

int nupa_fabric_reap(struct nupa_fabric *fabric)
{
	int reaped = 0;

	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		struct nupa_slot *slot = &fabric->slots[i];
		uint64_t claim = load_claim(slot);
		const uint32_t epoch = NUPA_CLAIM_EPOCH(claim);

		if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE || owner_alive(slot, claim))
			continue;
		/* The epoch in the claim makes this fail if somebody else was faster.  A reaper that
		 * died half way is taken over the same way: clearing twice does no harm. */
		if (!nupa_cas_seq(&slot->claim, &claim,
				  NUPA_CLAIM(getpid(), epoch, NUPA_SLOT_REAPING)))
			continue;
		clear_slot(fabric, i, epoch);
		reaped++;
	}
	nupa_pool_reclaim(fabric, 0);
	if (reaped)
		announce_deaths(fabric);
	return reaped;
}
