/* SPDX-License-Identifier: BSD-3-Clause
 * The state of this machine as records, one at a time or all of them.  A record always has the
 * state of now, so that an older one is never late. */
#include "trunk/internal.h"

#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <string.h>

/* --- records ------------------------------------------------------------------------------- */

bool nupa_tell_slot(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t slot)
{
	const struct nupa_slot *entry = &trunk->fabric->slots[slot];
	const uint64_t claim = trunk->own[slot].claim;
	struct nupa_told_slot *record =
	    nupa_out_room(trunk, peer, NUPA_TOLD_SLOT, sizeof(*record), false);

	if (!record)
		return false;
	*record = (struct nupa_told_slot){
		.head = record->head,
		.slot = slot,
		.state = claim ? NUPA_SLOT_LIVE : NUPA_SLOT_FREE,
		.epoch = NUPA_CLAIM_EPOCH(claim),
		.pid = NUPA_CLAIM_PID(claim),
		.host = nupa_load_relaxed(&entry->host),
		.uid = nupa_load_relaxed(&entry->uid),
		.qp_limit = nupa_load_relaxed(&entry->qp_limit),
		.net_queue = nupa_load_relaxed(&entry->net_queue),
		.left_epoch = nupa_load_relaxed(&entry->left_epoch),
	};
	if (claim) /* else the next owner may be writing its own */
		memcpy(record->comm, entry->comm, sizeof(record->comm));
	return true;
}

/* Word by word, as its owner may be changing it: that is news again, and sent when it is done. */
static void copy_entry(struct nupa_qp_entry *to, const struct nupa_qp_entry *from)
{
	const uint64_t *words = (const uint64_t *)(const void *)from;
	uint64_t copy[sizeof(*to) / sizeof(*words)];

	for (size_t i = 0; i < sizeof(copy) / sizeof(*copy); i++)
		copy[i] = nupa_load_acquire(&words[i]);
	memcpy(to, copy, sizeof(*to));
}

bool nupa_tell_qp(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t slot, uint32_t index)
{
	const uint8_t *arena = nupa_fabric_arena(trunk->fabric, slot);
	const struct nupa_qp_entry *entry;
	struct nupa_told_qp *record;

	if (!arena || !trunk->own[slot].claim ||
	    index >= nupa_load_acquire(&trunk->fabric->slots[slot].qp_limit) ||
	    index >= trunk->fabric->geometry.qp_entries)
		return true;
	entry = (const struct nupa_qp_entry *)(const void *)(arena + trunk->map.qps_off) + index;
	record = nupa_out_room(trunk, peer, NUPA_TOLD_QP, sizeof(*record), false);
	if (!record)
		return false;
	record->slot = slot;
	record->index = index;
	copy_entry(&record->entry, entry);
	return true;
}

bool nupa_tell_contact(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	const uint32_t word = nupa_load_acquire(nupa_contact(trunk->fabric, from, to));
	struct nupa_told_contact *record;

	if (!word || !trunk->own[from].claim)
		return true;
	if (word & NUPA_CONTACT_CLOSED)
		nupa_pair_close_out(trunk, peer, from, to);
	else
		nupa_pair_open_out(trunk, from, to);
	record = nupa_out_room(trunk, peer, NUPA_TOLD_CONTACT, sizeof(*record), false);
	if (!record)
		return false;
	record->from = from;
	record->to = to;
	record->word = word;
	record->pad = 0;
	return true;
}

bool nupa_tell_bound(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t host, uint32_t at)
{
	const struct nupa_cm_bucket *table = nupa_fabric_cm_table(trunk->fabric, host, false);
	struct nupa_told_bound *record;

	if (!table)
		return true;
	record = nupa_out_room(trunk, peer, NUPA_TOLD_BOUND, sizeof(*record), false);
	if (!record)
		return false;
	record->host = host;
	record->at = at;
	record->word =
	    nupa_load_acquire(&table[at / NUPA_CM_BUCKET_WORDS].words[at % NUPA_CM_BUCKET_WORDS]);
	return true;
}

bool nupa_tell_port(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t port)
{
	const struct nupa_port *entry = &trunk->fabric->ports[port];
	struct nupa_told_port *record =
	    nupa_out_room(trunk, peer, NUPA_TOLD_PORT, sizeof(*record), false);

	if (!record)
		return false;
	record->port = port;
	record->state = nupa_load_relaxed(&entry->state);
	record->link_downed = nupa_load_relaxed(&entry->link_downed);
	record->pad = 0;
	return true;
}
/* --- everything ---------------------------------------------------------------------------- */

enum { SYNC_NONE, SYNC_SLOTS, SYNC_QPS, SYNC_BOUND, SYNC_PORTS, SYNC_CONTACTS, SYNC_END };

void nupa_tell_begin(struct nupa_peer *peer)
{
	peer->stale = false;
	peer->sync = SYNC_SLOTS;
	peer->sync_place = peer->sync_at = 0;
}

static bool sync_slots(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->end; peer->sync_place++)
		if (nupa_slot_ours(trunk, peer->sync_place) &&
		    !nupa_tell_slot(trunk, peer, peer->sync_place))
			return false;
	return true;
}

static bool sync_qps(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->end; peer->sync_place++, peer->sync_at = 0) {
		const uint32_t slot = peer->sync_place;

		if (!nupa_slot_ours(trunk, slot) || !trunk->own[slot].claim)
			continue;
		for (; peer->sync_at < nupa_load_relaxed(&trunk->fabric->slots[slot].qp_limit) &&
		       peer->sync_at < trunk->fabric->geometry.qp_entries;
		     peer->sync_at++)
			if (!nupa_tell_qp(trunk, peer, slot, peer->sync_at))
				return false;
	}
	return true;
}

/* Words that are 0 are told to a machine that knew others. */
static bool sync_bound(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->fabric->geometry.n_hosts;
	     peer->sync_place++, peer->sync_at = 0) {
		const uint32_t host = peer->sync_place;
		const struct nupa_cm_bucket *table =
		    nupa_host_trunked(trunk->fabric, host)
			? NULL
			: nupa_fabric_cm_table(trunk->fabric, host, false);

		if (!table)
			continue;
		for (; peer->sync_at < NUPA_CM_BUCKETS * NUPA_CM_BUCKET_WORDS; peer->sync_at++) {
			const uint32_t at = peer->sync_at;

			if ((peer->up ||
			     nupa_load_relaxed(&table[at / NUPA_CM_BUCKET_WORDS]
						    .words[at % NUPA_CM_BUCKET_WORDS])) &&
			    !nupa_tell_bound(trunk, peer, host, at))
				return false;
		}
	}
	return true;
}

static bool sync_ports(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->fabric->geometry.n_ports; peer->sync_place++)
		if (nupa_port_machine(trunk->fabric, peer->sync_place) == trunk->machine &&
		    !nupa_tell_port(trunk, peer, peer->sync_place))
			return false;
	return true;
}

static bool sync_contacts(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	uint32_t first, end;

	nupa_machine_slots(trunk->fabric, peer->machine, &first, &end);
	for (; peer->sync_place < trunk->end; peer->sync_place++, peer->sync_at = 0) {
		if (!nupa_slot_ours(trunk, peer->sync_place))
			continue;
		for (; peer->sync_at < end; peer->sync_at++)
			if (peer->sync_at >= first &&
			    !nupa_tell_contact(trunk, peer, peer->sync_place, peer->sync_at))
				return false;
	}
	return true;
}

static bool sync_end(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	return nupa_out_room(trunk, peer, NUPA_TOLD_SYNCED, sizeof(struct nupa_told), false);
}

bool nupa_tell_more(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	static bool (*const parts[])(struct nupa_trunk *, struct nupa_peer *) = {
		[SYNC_SLOTS] = sync_slots,       [SYNC_QPS] = sync_qps,
		[SYNC_BOUND] = sync_bound,       [SYNC_PORTS] = sync_ports,
		[SYNC_CONTACTS] = sync_contacts, [SYNC_END] = sync_end,
	};
	bool any = false;

	if (peer->known && peer->stale && !peer->sync)
		nupa_tell_begin(peer);
	while (peer->sync && parts[peer->sync](trunk, peer)) {
		peer->sync = peer->sync == SYNC_END ? SYNC_NONE : peer->sync + 1;
		peer->sync_place = peer->sync_at = 0;
		any = true;
	}
	return any;
}
