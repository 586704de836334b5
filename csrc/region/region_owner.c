/* SPDX-License-Identifier: BSD-3-Clause
 * Owners of regions, and the end of regions whose owner died. */
#include "region/region_internal.h"

#include <errno.h>
#include <unistd.h>

#define LOAD_TRIES 1000

int nupa_region_own(struct nupa_fabric *fabric, uint32_t slot, uint32_t pid,
		    struct nupa_region_body *body)
{
	uint64_t claim;

	if (slot >= fabric->geometry.n_slots)
		return -EINVAL;
	/* A host is one wherever its kernel runs; a pid is not. */
	if (slot == 0 && pid && nupa_fabric_machines(fabric))
		return -EOPNOTSUPP;
	if (!nupa_pool_owner(fabric, slot) || (pid && pid != (uint32_t)getpid()))
		return -EPERM;
	body->slot = slot;
	body->epoch = 0;
	body->owner = 0;
	body->start_time = 0;
	if (slot) {
		claim = nupa_slot_claim(&fabric->slots[slot]);
		if (nupa_load_relaxed(&fabric->slots[slot].host) != body->host)
			return -EPERM;
		body->epoch = NUPA_CLAIM_EPOCH(claim);
		body->owner = nupa_region_claimant(fabric);
	} else if (pid) {
		body->owner = nupa_region_claimant(fabric);
		body->start_time = nupa_process_start_time(pid);
	}
	return 0;
}

/* The namespace of our pid in 10 bits, where claims have their kernel if there are several: others'
 * pids say nothing here.  0: not known, taken for ours. */
static uint32_t namespace_bits(void)
{
	const uint32_t pid_ns = nupa_pid_namespace();

	return pid_ns ? pid_ns % 1023 + 1 : 0;
}

uint32_t nupa_region_claimant(const struct nupa_fabric *fabric)
{
	return nupa_fabric_machines(fabric) ? nupa_fabric_owner(fabric)
					    : NUPA_OWNER(namespace_bits(), getpid());
}

/* Whether a pid there says nothing: such a process is taken for alive. */
static bool elsewhere(const struct nupa_fabric *fabric, uint32_t owner)
{
	const uint32_t theirs = owner >> 22;

	if (nupa_fabric_machines(fabric))
		return theirs != nupa_fabric_owner(fabric) >> 22;
	return theirs && namespace_bits() && theirs != namespace_bits();
}

static bool process_there(const struct nupa_fabric *fabric, uint32_t owner, uint64_t start_time)
{
	return elsewhere(fabric, owner) || nupa_process_alive(owner & 0x3fffff, start_time);
}

static bool slot_there(const struct nupa_fabric *fabric, uint32_t slot, uint32_t epoch)
{
	uint64_t claim;

	if (slot >= fabric->geometry.n_slots)
		return false;
	claim = nupa_slot_claim(&fabric->slots[slot]);
	return NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE && NUPA_CLAIM_EPOCH(claim) == epoch &&
	       nupa_slot_alive(fabric, slot, claim);
}

bool nupa_region_owned(const struct nupa_fabric *fabric, const struct nupa_region_body *body)
{
	if (body->slot)
		return slot_there(fabric, body->slot, body->epoch);
	return !body->owner || process_there(fabric, body->owner, body->start_time);
}

bool nupa_region_window_owned(const struct nupa_fabric *fabric,
			      const struct nupa_region_mapping *mapping, uint64_t claim)
{
	const uint32_t slot = nupa_load_relaxed(&mapping->slot);

	if (NUPA_CLAIM_STATE(claim) == NUPA_MAPPING_TAKING)
		return nupa_region_claimant_alive(fabric, claim);
	if (slot)
		return slot_there(fabric, slot, nupa_load_relaxed(&mapping->epoch));
	return process_there(fabric, NUPA_CLAIM_OWNER(claim),
			     nupa_load_relaxed(&mapping->start_time));
}

bool nupa_region_claimant_alive(const struct nupa_fabric *fabric, uint64_t claim)
{
	return process_there(fabric, NUPA_CLAIM_OWNER(claim), 0);
}

/* --- published memory -------------------------------------------------------------------- */

static bool covers(const struct nupa_superblock *sb, const struct nupa_region_body *body,
		   uint32_t extent)
{
	const uint64_t from = (uint64_t)extent * sb->extent_bytes;
	const uint64_t each = body->bytes / body->ways;

	for (uint32_t i = 0; i < body->ways; i++)
		if (body->pieces[i] < from + sb->extent_bytes && from < body->pieces[i] + each)
			return true;
	return false;
}

/* One that changes all the time is taken for one that does: memory is kept rather than given away.
 */
static bool pins(struct nupa_fabric *fabric, struct nupa_region_row *row, uint32_t extent)
{
	struct nupa_region_body body;
	int rc = -EAGAIN;

	for (int i = 0; i < LOAD_TRIES && rc == -EAGAIN; i++) {
		const uint64_t claim = nupa_load_seq(&row->claim);

		if (NUPA_CLAIM_STATE(claim) == NUPA_REGION_FREE ||
		    NUPA_CLAIM_STATE(claim) == NUPA_REGION_FREEING ||
		    !nupa_load_relaxed(&row->body.published))
			return false;
		rc = nupa_region_load(fabric, row, claim, &body);
	}
	return rc ? rc == -EAGAIN : body.published && covers(&fabric->geometry, &body, extent);
}

uint32_t nupa_region_pin(struct nupa_fabric *fabric, uint32_t extent)
{
	struct nupa_regions t;

	if (nupa_regions(fabric, false, &t))
		return 0;
	for (uint32_t i = 0; i < t.rows_limit; i++)
		if (pins(fabric, &t.rows[i], extent))
			return nupa_pool_region_word(i);
	return 0;
}

/* --- death ------------------------------------------------------------------------------- */

static void reap_live(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		      uint64_t claim)
{
	struct nupa_region_row *row = &t->rows[index];
	struct nupa_region_body body;

	if (nupa_region_load(fabric, row, claim, &body) || body.orphan ||
	    nupa_region_owned(fabric, &body))
		return;
	if (!body.published && !nupa_region_exclusive(&body)) {
		if (!nupa_region_step(fabric, row, &claim, NUPA_REGION_CHANGING))
			return;
		nupa_store_release(&row->body.orphan, 1);
		(void)nupa_region_step(fabric, row, &claim, NUPA_REGION_LIVE);
		return;
	}
	if (!nupa_region_step(fabric, row, &claim, NUPA_REGION_REVOKED))
		return;
	nupa_region_announce(t);
	if (!nupa_region_windows(fabric, t, body.id))
		(void)nupa_region_finish(fabric, t, index, claim);
}

static void reap_row(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index)
{
	struct nupa_region_row *row = &t->rows[index];
	uint64_t claim = nupa_load_acquire(&row->claim);

	switch (NUPA_CLAIM_STATE(claim)) {
	case NUPA_REGION_CHANGING:
		if (!nupa_region_claimant_alive(fabric, claim) &&
		    nupa_region_step(fabric, row, &claim, NUPA_REGION_LIVE))
			reap_live(fabric, t, index, claim);
		break;
	case NUPA_REGION_LIVE:
		reap_live(fabric, t, index, claim);
		break;
	case NUPA_REGION_MAKING:
	case NUPA_REGION_FREEING:
		if (!nupa_region_claimant_alive(fabric, claim))
			(void)nupa_region_finish(fabric, t, index, claim);
		else /* its memory is what is wanted, perhaps */
			nupa_region_await_end(fabric, row);
		break;
	case NUPA_REGION_REVOKED:
		if (!nupa_region_windows(fabric, t, nupa_load_relaxed(&row->body.id)))
			(void)nupa_region_finish(fabric, t, index, claim);
		break;
	default:
		break;
	}
}

void nupa_region_reap(struct nupa_fabric *fabric)
{
	struct nupa_regions t;

	if (nupa_regions(fabric, false, &t))
		return;
	nupa_region_reap_windows(fabric, &t);
	for (uint32_t i = 0; i < t.rows_limit; i++)
		reap_row(fabric, &t, i);
}
