/* SPDX-License-Identifier: BSD-3-Clause
 * Looking around where memory is not coherent: a process of another kernel cannot bump a word that
 * is looked at anyway.  So each process fetches, every LOOK_NS, the state of ports and the places
 * of network interfaces, and bumps its own epochs. */
#include "engine/attachment/attachment.h"
#include "segment/layout/geometry.h"

#define LOOK_NS 1000000u

static void look_at_ports(struct nupa_fabric *fabric)
{
	struct nupa_superblock *sb = fabric->sb;
	uint32_t epoch;

	if (fabric->creator)
		return;
	nupa_fetch(true, NUPA_POINT_EPOCH, &sb->port_epoch, NUPA_CACHE_LINE_BYTES);
	epoch = nupa_load_acquire(&sb->port_epoch);
	if (epoch == nupa_load_relaxed(fabric->port_epoch))
		return;
	nupa_fetch(true, NUPA_POINT_PORTS, fabric->ports,
		   fabric->geometry.n_ports * sizeof(fabric->ports[0]));
	nupa_store_release(fabric->port_epoch, epoch);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * UINT64_C(0x100000001b3);
}

static void look_at_slots(struct nupa_engine *engine)
{
	struct nupa_fabric *fabric = engine->fabric;
	uint64_t queues = 1;

	for (uint32_t peer = 1; peer < fabric->geometry.n_slots; peer++) {
		const struct nupa_slot *slot = &fabric->slots[peer];
		const uint32_t *contact = nupa_contact(fabric, peer, engine->slot_index);
		uint64_t claim;

		if (!nupa_slot_apart(fabric, peer))
			continue;
		claim = nupa_slot_fetch(fabric, peer);
		if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE)
			continue;
		nupa_fetch(true, NUPA_POINT_CONTACT, contact, sizeof(*contact));
		if (nupa_load_relaxed(&slot->net_queue))
			queues = mix(mix(queues, claim), nupa_load_relaxed(&slot->net_queue));
	}
	if (nupa_exchange_seq(&fabric->queues_seen, queues) != queues)
		nupa_fabric_net_changed(fabric);
}

void nupa_engine_look(struct nupa_engine *engine, uint64_t now_ns)
{
	if (now_ns - engine->looked_ns < LOOK_NS || engine->forked)
		return;
	engine->looked_ns = now_ns;
	look_at_ports(engine->fabric);
	look_at_slots(engine);
	nupa_channel_scan_contacts(engine);
}

void nupa_engine_show(const struct nupa_engine *engine)
{
	const struct nupa_arena_map map = nupa_arena_map(&engine->fabric->geometry);

	nupa_flush(true, NUPA_POINT_COUNTERS, engine->arena + map.flows_off,
		   map.hw_off + sizeof(struct nupa_hw_counters) - map.flows_off);
	nupa_flush(true, NUPA_POINT_COUNTERS, engine->arena + map.net_off,
		   sizeof(struct nupa_net_counters));
	nupa_flush(true, NUPA_POINT_BEAT, &engine->slot->heartbeat, NUPA_CACHE_LINE_BYTES);
}
