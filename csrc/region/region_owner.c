/* SPDX-License-Identifier: BSD-3-Clause
 * Owners of extents, regions and windows: who they are, and whether they are there. */
#include "region/region_internal.h"

#include <errno.h>
#include <unistd.h>

uint32_t nupa_pool_owner(const struct nupa_fabric *fabric, uint32_t slot)
{
	uint64_t claim;

	if (slot == 0)
		return NUPA_EXTENT(0, getpid());
	claim = nupa_load_relaxed(&fabric->slots[slot].claim);
	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE ||
	    NUPA_CLAIM_OWNER(claim) != nupa_fabric_owner(fabric))
		return 0;
	return NUPA_EXTENT(slot, NUPA_CLAIM_EPOCH(claim));
}

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
