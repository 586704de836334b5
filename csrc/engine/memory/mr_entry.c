/* SPDX-License-Identifier: BSD-3-Clause
 * The table of regions.  A region is an entry in our arena that peers read; keys are index << 12 |
 * variant.  A variant is not reused before 4,094 others. */
#include "engine/memory/mr.h"
#include "segment/control/quota.h"

#include <errno.h>

#define KEY_VARIANTS ((1u << NUPA_KEY_VARIANT_BITS) - 2)
#define KEY_VARIANT_MASK ((1u << NUPA_KEY_VARIANT_BITS) - 1)

/* Backs more entries once half of them are used, or up to *least* of them. */
static void grow(struct nupa_engine *engine, uint32_t least)
{
	uint32_t limit = engine->mr_limit;
	uint32_t max = engine->fabric->geometry.mr_entries;
	uint32_t more = limit;

	while (more < max && (more < least || engine->mrs_used * 2 >= more))
		more = more * 2 < max ? more * 2 : max;
	if (more == limit ||
	    nupa_fabric_back(engine->fabric,
			     (uint64_t)((uint8_t *)engine->mr_entries - engine->arena) +
				 nupa_arena_offset(engine->fabric, engine->slot_index) +
				 (uint64_t)limit * sizeof(struct nupa_mr_entry),
			     (uint64_t)(more - limit) * sizeof(struct nupa_mr_entry)))
		return;
	nupa_store_release(&engine->slot->mr_limit, more);
	engine->mr_limit = more;
}

static uint32_t variant_of(const struct nupa_engine *engine, uint32_t changes)
{
	return (engine->epoch + changes) % KEY_VARIANTS + 1;
}

uint64_t nupa_mr_bytes(enum nupa_mr_kind kind, const struct nupa_mr *mr, uint64_t length)
{
	const bool is_memory = kind == NUPA_MR_MEMORY || kind == NUPA_MR_ON_DEMAND;

	return is_memory && !mr->dm && !mr->exporter && length != UINT64_MAX ? length : 0;
}

/* Counts a region against its tenant's quotas: 0 or ENOMEM. */
static int count(const struct nupa_engine *engine, const struct nupa_mr *mr)
{
	struct nupa_fabric *fabric = engine->fabric;
	const uint64_t bytes = nupa_mr_bytes(mr->kind, mr, mr->length);

	if (nupa_quota_take(fabric, engine->slot_index, NUPA_QUOTA_MRS, 1))
		return ENOMEM;
	if (!nupa_quota_take(fabric, engine->slot_index, NUPA_QUOTA_REGISTERED_BYTES, bytes))
		return 0;
	nupa_quota_give(fabric, engine->slot_index, NUPA_QUOTA_MRS, 1);
	return ENOMEM;
}

static void place_at(struct nupa_engine *engine, struct nupa_mr *mr, uint32_t index, uint32_t key)
{
	mr->index = index;
	mr->ibv.handle = index;
	mr->ibv.lkey = mr->ibv.rkey = key;
	engine->mrs[index] = mr;
	engine->mrs_used++;
}

int nupa_mr_place(struct nupa_engine *engine, struct nupa_mr *mr)
{
	uint32_t next =
	    unlikely(engine->has_wires) ? engine->random() : engine->slot->next_mr_index;
	uint32_t index, changes;

	grow(engine, 0);
	if (engine->mrs_used >= engine->mr_limit)
		return ENOMEM;
	if (count(engine, mr))
		return ENOMEM;
	/* Not one given back lately: they go round. */
	while (engine->mrs[next % engine->mr_limit])
		next++;
	index = next % engine->mr_limit;
	engine->slot->next_mr_index = next + 1;
	changes = engine->mr_entries[index].changes;
	if (unlikely(engine->has_wires)) /* any variant but that of before */
		changes += engine->random() % (KEY_VARIANTS - 1);
	/* Keys of a window differ in their tags; neither is any of them 0. */
	while (mr->kind == NUPA_MR_WINDOW && !NUPA_MW_GROUP(variant_of(engine, changes)))
		changes++;
	nupa_store_relaxed(&engine->mr_entries[index].changes, changes);
	place_at(engine, mr, index, index << NUPA_KEY_VARIANT_BITS | variant_of(engine, changes));
	return 0;
}

int nupa_mr_place_at(struct nupa_engine *engine, struct nupa_mr *mr, uint32_t key)
{
	uint32_t index = key >> NUPA_KEY_VARIANT_BITS;

	if (index >= engine->fabric->geometry.mr_entries)
		return EINVAL;
	grow(engine, index + 1);
	if (index >= engine->mr_limit || engine->mrs[index])
		return EBUSY;
	if (count(engine, mr))
		return ENOMEM;
	place_at(engine, mr, index, key);
	return 0;
}

void nupa_mr_unplace(struct nupa_engine *engine, struct nupa_mr *mr)
{
	uint32_t changes = engine->mr_entries[mr->index].changes;

	/* All tags may have been used: the next owner's keys have none of them. */
	while ((mr->kind == NUPA_MR_WINDOW &&
		NUPA_MW_GROUP(variant_of(engine, changes)) == NUPA_MW_GROUP(mr->ibv.lkey)) ||
	       variant_of(engine, changes) == (mr->ibv.lkey & KEY_VARIANT_MASK))
		changes++;
	nupa_store_relaxed(&engine->mr_entries[mr->index].changes, changes);
	engine->mrs[mr->index] = NULL;
	engine->mrs_used--;
	nupa_quota_give(engine->fabric, engine->slot_index, NUPA_QUOTA_MRS, 1);
	nupa_quota_give(engine->fabric, engine->slot_index, NUPA_QUOTA_REGISTERED_BYTES,
			nupa_mr_bytes(mr->kind, mr, mr->length));
}

uint64_t nupa_mr_pool_offset(const struct nupa_engine *engine, const struct nupa_mr *mr)
{
	uintptr_t va = (uintptr_t)mr->va;
	uintptr_t pool = (uintptr_t)nupa_load_acquire(&engine->fabric->pool);
	uint64_t bytes = engine->fabric->geometry.pool_bytes;

	if (!pool || va < pool || va - pool > bytes || mr->length > bytes - (va - pool))
		return UINT64_MAX;
	return va - pool;
}

/* Readers may be at it: see nupa_mr_entry_copy. */
#define SET(entry, field, value) nupa_store_relaxed(&(entry)->field, (value))

void nupa_mr_expose(struct nupa_engine *engine, struct nupa_mr *mr)
{
	struct nupa_mr_entry *entry = &engine->mr_entries[mr->index];

	SET(entry, access,
	    (uint32_t)(mr->access & ~NUPA_ACCESS_PLAIN) |
		(mr->kind == NUPA_MR_WINDOW ? NUPA_MR_ENTRY_WINDOW : 0) |
		(mr->dmabuf ? NUPA_MR_ENTRY_RELAYED : 0));
	SET(entry, pd, mr->qpn || !mr->ibv.pd ? 0 : mr->ibv.pd->handle);
	SET(entry, qpn, mr->qpn);
	SET(entry, iova, mr->iova);
	SET(entry, length, mr->length);
	SET(entry, va, (uintptr_t)mr->va);
	SET(entry, pool_off, nupa_mr_pool_offset(engine, mr));
	SET(entry, shared_off, nupa_mr_shared_offset(mr));
	if (entry->pool_off != UINT64_MAX)
		nupa_store_relaxed(&engine->slot->pool_regions, engine->slot->pool_regions + 1);
	nupa_mr_publish(engine, mr);
}

bool nupa_mr_retract(struct nupa_engine *engine, struct nupa_mr *mr)
{
	struct nupa_mr_entry *entry = &engine->mr_entries[mr->index];
	bool settled = nupa_mr_withdraw(engine, mr->index);

	if (entry->pool_off != UINT64_MAX)
		nupa_store_relaxed(&engine->slot->pool_regions, engine->slot->pool_regions - 1);
	SET(entry, pool_off, UINT64_MAX);
	return settled;
}
