/* SPDX-License-Identifier: BSD-3-Clause
 * How a slot is fetched and flushed where memory is not coherent. */
#include "base/atomics.h"
#include "segment/coherence.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

uint64_t nupa_slot_claim(const struct nupa_slot *slot)
{
	/* Pairs with the owner's release store of LIVE: what it published before is seen. */
	return nupa_load_acquire(&slot->claim);
}

uint64_t nupa_slot_fetch(const struct nupa_fabric *fabric, uint32_t slot)
{
	const struct nupa_slot *entry = &fabric->slots[slot];
	bool apart = nupa_slot_apart(fabric, slot);

	nupa_fetch(apart, NUPA_POINT_CLAIM, entry, NUPA_CACHE_LINE_BYTES);
	nupa_fetch(apart, NUPA_POINT_QUEUE, &entry->sleeping, NUPA_CACHE_LINE_BYTES);
	return nupa_slot_claim(entry);
}

void nupa_slot_flush(const struct nupa_fabric *fabric, uint32_t slot)
{
	const struct nupa_slot *entry = &fabric->slots[slot];
	bool incoherent = nupa_fabric_incoherent(fabric);

	/* The claim last: a process that sees it has to see the rest. */
	nupa_flush(incoherent, NUPA_POINT_CONTACT, nupa_contact(fabric, slot, 0),
		   fabric->contact_words * sizeof(uint32_t));
	nupa_flush(incoherent, NUPA_POINT_BEAT, &entry->contact_epoch, 2 * NUPA_CACHE_LINE_BYTES);
	nupa_slot_flush_queue(fabric, entry);
	nupa_slot_flush_claim(fabric, entry);
}

void nupa_slot_flush_claim(const struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
	const uint32_t index = (uint32_t)(slot - fabric->slots);

	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_CLAIM, slot, NUPA_CACHE_LINE_BYTES);
	if (nupa_fabric_has_trunk(fabric) && !nupa_slot_trunked(fabric, index))
		nupa_trunk_tell(fabric, NUPA_NEWS_SLOT, index, 0);
}

void nupa_slot_flush_queue(const struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_QUEUE, &slot->sleeping,
		   NUPA_CACHE_LINE_BYTES);
}

void nupa_qp_entry_flush(const struct nupa_fabric *fabric, const struct nupa_qp_entry *entry)
{
	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_QP, entry, sizeof(*entry));
	if (nupa_fabric_has_trunk(fabric)) {
		const uint32_t qpn = nupa_load_relaxed(&entry->qpn);

		nupa_trunk_tell(fabric, NUPA_NEWS_QP, nupa_qpn_slot(&fabric->geometry, qpn),
				nupa_qpn_index(&fabric->geometry, qpn));
	}
}

void nupa_past_flush(const struct nupa_fabric *fabric, const void *counts, size_t bytes)
{
	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_COUNTERS, counts, bytes);
}

void nupa_past_fetch(const struct nupa_fabric *fabric, uint32_t host, const void *counts,
		     size_t bytes)
{
	nupa_fetch(fabric->kernel != host + 1 && nupa_fabric_incoherent(fabric),
		   NUPA_POINT_COUNTERS, counts, bytes);
}

void nupa_fabric_net_changed(struct nupa_fabric *fabric)
{
	nupa_fetch_add_seq(fabric->net_epoch, 1);
}
