/* SPDX-License-Identifier: BSD-3-Clause
 * Records of another machine, into this machine's copy of the segment.  All of them are checked: a
 * machine may write its own slots, their rings to ours, and its hosts' ports, and nothing else. */
#include "trunk/internal.h"

#include "region/slot_life.h"
#include "segment/segment_internal.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

#define CLAIM_TRIES 1000

/* --- slots --------------------------------------------------------------------------------- */

/* As claims of this machine's copy name a process there.  The incarnation tells a process that was
 * lost with its machine from the same one, found again. */
static uint64_t claim_of(const struct nupa_peer *peer, const struct nupa_told_slot *record)
{
	return NUPA_CLAIM(
	    NUPA_OWNER(1 + peer->machine + NUPA_MACHINES_MAX * peer->incarnation, record->pid),
	    record->epoch, NUPA_SLOT_LIVE);
}

static void fill_slot(struct nupa_trunk *trunk, struct nupa_slot *slot,
		      const struct nupa_told_slot *record)
{
	const bool queue = nupa_load_relaxed(&slot->net_queue) != record->net_queue;

	nupa_store_relaxed(&slot->host, record->host);
	nupa_store_relaxed(&slot->uid, record->uid);
	memcpy(slot->comm, record->comm, sizeof(slot->comm) - 1);
	nupa_store_relaxed(&slot->net_queue, record->net_queue);
	nupa_store_release(&slot->qp_limit, record->qp_limit);
	nupa_store_release(&slot->left_epoch, record->left_epoch);
	if (queue)
		nupa_fabric_net_changed(trunk->fabric);
}

/* The parts of its arena that are looked at without a channel. */
static bool back_slot(struct nupa_trunk *trunk, const struct nupa_told_slot *record)
{
	const uint64_t arena = nupa_arena_offset(trunk->fabric, record->slot);

	return !nupa_fabric_back(trunk->fabric, arena + trunk->map.flows_off,
				 trunk->map.qps_off - trunk->map.flows_off) &&
	       (!record->qp_limit ||
		!nupa_fabric_back(trunk->fabric, arena + trunk->map.qps_off,
				  record->qp_limit * sizeof(struct nupa_qp_entry)));
}

/* A free slot of theirs gets its owner. */
static void settle_slot(struct nupa_trunk *trunk, const struct nupa_told_slot *record,
			uint64_t wanted)
{
	struct nupa_slot *slot = &trunk->fabric->slots[record->slot];
	const uint64_t attaching = wanted - NUPA_SLOT_LIVE + NUPA_SLOT_ATTACHING;

	for (int i = 0; i < CLAIM_TRIES; i++) {
		uint64_t claim = nupa_slot_claim(slot);

		if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_FREE ||
		    !nupa_cas_seq(&slot->claim, &claim, attaching)) {
			sched_yield(); /* a reaper clears its arena */
			continue;
		}
		nupa_contacts_clear(trunk->fabric, record->slot);
		slot->pool_regions = slot->shared_fd = slot->life = slot->life_fd = 0;
		nupa_store_relaxed(&slot->left_epoch, 0);
		fill_slot(trunk, slot, record);
		nupa_store_release(&slot->claim, wanted);
		return;
	}
	nupa_hint("slot %u is not free, though its machine gave it to another process",
		  record->slot);
}

static bool obey_slot(struct nupa_trunk *trunk, struct nupa_peer *peer,
		      const struct nupa_told_slot *record)
{
	const struct nupa_superblock *sb = &trunk->fabric->geometry;
	const uint64_t wanted = claim_of(peer, record);
	struct nupa_slot *slot;

	if (!nupa_slot_theirs(trunk, peer, record->slot))
		return false;
	slot = &trunk->fabric->slots[record->slot];
	if (record->state == NUPA_SLOT_FREE) {
		nupa_store_relaxed(&slot->left_epoch, record->left_epoch);
		(void)nupa_fabric_lose_slot(trunk->fabric, record->slot);
		nupa_pair_close_in(peer, record->slot, 0);
		nupa_pair_close_out(trunk, peer, 0, record->slot);
		return true;
	}
	if (record->state != NUPA_SLOT_LIVE || !record->epoch || record->epoch > NUPA_EPOCH_MAX ||
	    record->host >= sb->n_hosts || sb->trunk.host_machine[record->host] != peer->machine ||
	    record->qp_limit > sb->qp_entries)
		return false;
	if (!back_slot(trunk, record)) {
		nupa_hint("no memory for slot %u of another machine: free some of %s", record->slot,
			  trunk->fabric->path);
		return true;
	}
	if (nupa_slot_claim(slot) == wanted) {
		fill_slot(trunk, slot, record);
		return true;
	}
	if (nupa_fabric_lose_slot(trunk->fabric, record->slot)) {
		nupa_pair_close_in(peer, record->slot, 0);
		nupa_pair_close_out(trunk, peer, 0, record->slot);
	}
	settle_slot(trunk, record, wanted);
	return true;
}

static bool obey_qp(struct nupa_trunk *trunk, struct nupa_peer *peer,
		    const struct nupa_told_qp *record)
{
	const struct nupa_slot *slot;
	struct nupa_qp_entry *entry, copy = record->entry;
	uint8_t *arena;

	if (!nupa_slot_theirs(trunk, peer, record->slot) ||
	    (copy.qpn &&
	     copy.qpn != nupa_qpn(&trunk->fabric->geometry, record->slot, record->index)))
		return false;
	slot = &trunk->fabric->slots[record->slot];
	if (NUPA_CLAIM_STATE(nupa_slot_claim(slot)) != NUPA_SLOT_LIVE)
		return true;
	if (record->index >= nupa_load_relaxed(&slot->qp_limit))
		return false;
	arena = nupa_fabric_arena(trunk->fabric, record->slot);
	if (!arena)
		return true;
	entry = (struct nupa_qp_entry *)(void *)(arena + trunk->map.qps_off) + record->index;
	/* P5: as its owner does (engine/transport/state.c). */
	nupa_store_relaxed(&entry->state, 0);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	nupa_store_relaxed(&entry->qpn, copy.qpn);
	nupa_store_relaxed(&entry->type, copy.type);
	nupa_store_relaxed(&entry->pkey, copy.pkey);
	nupa_store_relaxed(&entry->access, copy.access);
	nupa_store_relaxed(&entry->dest_qpn, copy.dest_qpn);
	nupa_store_relaxed(&entry->pd, copy.pd);
	nupa_store_relaxed(&entry->qkey, copy.qkey);
	nupa_store_relaxed(&entry->incarnation, copy.incarnation);
	nupa_store_release(&entry->state, copy.state);
	return true;
}

static bool obey_contact(struct nupa_trunk *trunk, struct nupa_peer *peer,
			 const struct nupa_told_contact *record)
{
	struct nupa_slot *from, *to;

	if (!nupa_slot_theirs(trunk, peer, record->from) || !nupa_slot_ours(trunk, record->to))
		return false;
	from = &trunk->fabric->slots[record->from];
	to = &trunk->fabric->slots[record->to];
	if (NUPA_CLAIM_STATE(nupa_slot_claim(from)) != NUPA_SLOT_LIVE)
		return true;
	if (record->word & NUPA_CONTACT_CLOSED)
		nupa_pair_close_in(peer, record->from, record->to);
	nupa_store_release(nupa_contact(trunk->fabric, record->from, record->to), record->word);
	nupa_fetch_add_seq(&to->contact_epoch, 1);
	nupa_slot_ring(trunk->fabric, to);
	return true;
}

/* --- hosts --------------------------------------------------------------------------------- */

static bool obey_bound(struct nupa_trunk *trunk, struct nupa_peer *peer,
		       const struct nupa_told_bound *record)
{
	const uint32_t slot = NUPA_CM_WORD_SLOT(record->word);
	struct nupa_cm_bucket *table;

	if (record->host >= trunk->fabric->geometry.n_hosts ||
	    trunk->fabric->geometry.trunk.host_machine[record->host] != peer->machine ||
	    record->at >= NUPA_CM_BUCKETS * NUPA_CM_BUCKET_WORDS ||
	    (record->word && !nupa_slot_theirs(trunk, peer, slot)))
		return false;
	table = nupa_fabric_cm_table(trunk->fabric, record->host, record->word != 0);
	if (table)
		nupa_store_release(&table[record->at / NUPA_CM_BUCKET_WORDS]
					.words[record->at % NUPA_CM_BUCKET_WORDS],
				   record->word);
	return true;
}

static bool obey_port(struct nupa_trunk *trunk, struct nupa_peer *peer,
		      const struct nupa_told_port *record)
{
	struct nupa_port *port;

	if (record->port >= trunk->fabric->geometry.n_ports ||
	    nupa_port_machine(trunk->fabric, record->port) != peer->machine ||
	    (record->state != NUPA_PORT_DOWN && record->state != NUPA_PORT_ACTIVE))
		return false;
	port = &trunk->fabric->ports[record->port];
	nupa_store_relaxed(&port->link_downed, record->link_downed);
	if (nupa_exchange_seq(&port->state, record->state) != record->state)
		trunk->announce = true;
	return true;
}

/* --- all ----------------------------------------------------------------------------------- */

static bool obey_number(struct nupa_trunk *trunk, struct nupa_peer *peer,
			const struct nupa_told_number *record)
{
	struct nupa_machine *seen = nupa_peer_seen(trunk, peer);
	struct nupa_told_number *answer;
	uint64_t rtt_ns;

	switch (record->head.kind) {
	case NUPA_TOLD_FENCED:
		peer->fence_done = (uint32_t)record->number;
		return true;
	case NUPA_TOLD_PONG:
		rtt_ns = nupa_clock_ns() - record->number;
		if (record->number == peer->ping_ns)
			nupa_store_relaxed(&seen->rtt_ns,
					   seen->rtt_ns ? (seen->rtt_ns * 7 + rtt_ns) / 8 : rtt_ns);
		return true;
	default:
		break;
	}
	answer = nupa_out_room(
	    trunk, peer, record->head.kind == NUPA_TOLD_PING ? NUPA_TOLD_PONG : NUPA_TOLD_FENCED,
	    sizeof(*answer), false);
	if (answer)
		answer->number = record->number;
	else if (record->head.kind == NUPA_TOLD_FENCE) /* once there is room */
		peer->fence_owed = record->number;
	return true;
}

static const uint16_t least_bytes[NUPA_TOLD_KINDS] = {
	[NUPA_TOLD_HELLO] = sizeof(struct nupa_told_hello),
	[NUPA_TOLD_SYNCED] = sizeof(struct nupa_told),
	[NUPA_TOLD_SLOT] = sizeof(struct nupa_told_slot),
	[NUPA_TOLD_QP] = sizeof(struct nupa_told_qp),
	[NUPA_TOLD_OPEN] = sizeof(struct nupa_told_open),
	[NUPA_TOLD_CONTACT] = sizeof(struct nupa_told_contact),
	[NUPA_TOLD_BULK] = sizeof(struct nupa_told_bulk),
	[NUPA_TOLD_LINES] = sizeof(struct nupa_told_lines),
	[NUPA_TOLD_WINDOW] = sizeof(struct nupa_told_window),
	[NUPA_TOLD_HEADS] = sizeof(struct nupa_told_heads),
	[NUPA_TOLD_BOUND] = sizeof(struct nupa_told_bound),
	[NUPA_TOLD_PORT] = sizeof(struct nupa_told_port),
	[NUPA_TOLD_FENCE] = sizeof(struct nupa_told_number),
	[NUPA_TOLD_FENCED] = sizeof(struct nupa_told_number),
	[NUPA_TOLD_PING] = sizeof(struct nupa_told_number),
	[NUPA_TOLD_PONG] = sizeof(struct nupa_told_number),
};

bool nupa_obey(struct nupa_trunk *trunk, struct nupa_peer *peer, const struct nupa_told *record)
{
	const void *body = record;

	if (record->kind >= NUPA_TOLD_KINDS || !least_bytes[record->kind] ||
	    record->bytes < least_bytes[record->kind] ||
	    peer->known == (record->kind == NUPA_TOLD_HELLO))
		return false;
	switch ((enum nupa_told_kind)record->kind) {
	case NUPA_TOLD_HELLO:
		return nupa_peer_hello(trunk, peer, body);
	case NUPA_TOLD_SYNCED:
		nupa_peer_synced(trunk, peer);
		return true;
	case NUPA_TOLD_SLOT:
		return obey_slot(trunk, peer, body);
	case NUPA_TOLD_QP:
		return obey_qp(trunk, peer, body);
	case NUPA_TOLD_OPEN:
		return nupa_pair_open_in(trunk, peer, body);
	case NUPA_TOLD_CONTACT:
		return obey_contact(trunk, peer, body);
	case NUPA_TOLD_BULK:
		return nupa_pair_bulk(trunk, peer, body);
	case NUPA_TOLD_LINES:
		return nupa_pair_lines(trunk, peer, body);
	case NUPA_TOLD_WINDOW:
		return nupa_put_window(trunk, peer, body);
	case NUPA_TOLD_HEADS:
		return nupa_pair_heads(trunk, peer, body);
	case NUPA_TOLD_BOUND:
		return obey_bound(trunk, peer, body);
	case NUPA_TOLD_PORT:
		return obey_port(trunk, peer, body);
	default:
		return obey_number(trunk, peer, body);
	}
}
