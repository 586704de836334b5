/* SPDX-License-Identifier: BSD-3-Clause
 * Regions of an imported context (man ibv_import_mr).  One is a further handle of a region of this
 * process, or a region over another process's memory in the pool.  Such a region ends with that
 * process. */
#include "engine/memory/mr.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <stdlib.h>

bool nupa_context_exporter_lives(const struct nupa_context *context)
{
	const struct nupa_slot *slot = &context->engine->fabric->slots[context->exporter_slot];
	uint64_t claim = nupa_slot_claim(slot);

	return NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
	       NUPA_CLAIM_EPOCH(claim) == context->exporter_epoch;
}

uint8_t *nupa_pool_at(struct nupa_engine *engine, uint64_t offset, uint64_t bytes)
{
	uint64_t pool_bytes = engine->fabric->geometry.pool_bytes;
	uint8_t *pool = nupa_fabric_pool(engine->fabric);

	if (!pool || offset > pool_bytes || bytes > pool_bytes - offset)
		return NULL;
	return pool + offset;
}

int nupa_context_foreign_entry(const struct nupa_context *context, uint32_t index,
			       struct nupa_mr_entry *entry)
{
	struct nupa_fabric *fabric = context->engine->fabric;
	const struct nupa_slot *slot = &fabric->slots[context->exporter_slot];
	struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	const struct nupa_mr_entry *found;
	uint64_t word;
	uint8_t *arena;

	/* I5: against what the layout has room for and the owner has backed. */
	if (!nupa_context_exporter_lives(context) || index >= fabric->geometry.mr_entries ||
	    index >= nupa_load_acquire(&slot->mr_limit))
		return ENOENT;
	arena = nupa_fabric_arena(fabric, context->exporter_slot);
	if (!arena)
		return ENOMEM;
	found = (const struct nupa_mr_entry *)(const void *)(arena + map.mrs_off) + index;
	word = nupa_load_acquire((const uint64_t *)(const void *)found); /* C5 */
	if (!(uint32_t)word)
		return ENOENT;
	nupa_mr_entry_copy(entry, found);
	/* The same before and after: what stands between belongs together. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (nupa_load_relaxed((const uint64_t *)(const void *)found) != word)
		return EAGAIN;
	entry->key = (uint32_t)word;
	entry->changes = (uint32_t)(word >> 32);
	return entry->check == nupa_mr_entry_check(entry) ? 0 : ENOENT;
}

/* A channel is needed to detect a death. */
bool nupa_mr_follow(struct nupa_engine *engine, struct nupa_mr *mr,
		    const struct nupa_context *context)
{
	mr->exporter = context->exporter_slot;
	return nupa_channel_get(engine, mr->exporter) && nupa_context_exporter_lives(context);
}

void nupa_import_lose(struct nupa_engine *engine, uint32_t slot)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++)
		if (engine->mrs[i] && engine->mrs[i]->exporter == slot)
			nupa_mr_retract(engine, engine->mrs[i]);
}

/* A region of ours over the same pool memory; its keys are the exporter's if their place is free
 * here, else new ones. */
static int import_foreign(struct nupa_engine *engine, const struct nupa_context *context,
			  uint32_t handle, struct nupa_mr *mr)
{
	struct nupa_mr_entry entry;
	int error = nupa_context_foreign_entry(context, handle, &entry);

	if (error)
		return error;
	if (entry.pd != mr->ibv.pd->handle)
		return entry.pd ? EINVAL : ENOENT;
	if (entry.pool_off == UINT64_MAX)
		return EOPNOTSUPP;
	mr->va = nupa_pool_at(engine, entry.pool_off, entry.length);
	if (!mr->va || entry.access & ~(uint32_t)NUPA_MR_SUPPORTED_ACCESS ||
	    entry.iova + entry.length < entry.iova)
		return ENOENT;
	mr->length = mr->ibv.length = entry.length;
	mr->iova = entry.iova;
	mr->kind = NUPA_MR_MEMORY;
	mr->access = nupa_mr_access(NUPA_MR_MEMORY, (int)entry.access);
	if (!nupa_mr_follow(engine, mr, context))
		return ENODEV;
	error = nupa_mr_place_at(engine, mr, entry.key);
	if (error)
		error = nupa_mr_place(engine, mr);
	if (error)
		return error;
	nupa_mr_expose(engine, mr);
	engine->foreign_regions++;
	container_of(mr->ibv.pd, struct nupa_pd, ibv)->users++;
	return 0;
}

/* One more handle of a region of this attachment. */
static int import_own(struct nupa_engine *engine, uint32_t handle, struct nupa_mr *mr)
{
	const struct nupa_mr *region = handle < engine->mr_limit ? engine->mrs[handle] : NULL;

	if (!region || region->kind == NUPA_MR_WINDOW || region->kind == NUPA_MR_DEVICE)
		return ENOENT;
	if (region->ibv.pd->handle != mr->ibv.pd->handle)
		return EINVAL;
	mr->ibv.length = region->ibv.length;
	mr->ibv.handle = mr->index = handle;
	mr->ibv.lkey = region->ibv.lkey;
	mr->ibv.rkey = region->ibv.rkey;
	mr->imported = true;
	return 0;
}

struct ibv_mr *nupa_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct nupa_context *context = container_of(pd->context, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;
	struct nupa_mr *mr = calloc(1, sizeof(*mr));
	int error;

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	nupa_engine_lock(engine);
	if (context->exporter_slot)
		error = import_foreign(engine, context, handle, mr);
	else
		error = import_own(engine, handle, mr);
	nupa_engine_unlock(engine);
	if (!error)
		return &mr->ibv;
	if (error == EOPNOTSUPP)
		nupa_hint("ibv_import_mr: region %u is private memory of another process; what can "
			  "be shared is device memory (ibv_alloc_dm) and memory of the pool",
			  handle);
	free(mr);
	errno = error;
	return NULL;
}

/* The handle alone; the region goes on, but for one over another process's memory. */
void nupa_unimport_mr(struct ibv_mr *ibv)
{
	struct nupa_mr *mr = nupa_mr_of(ibv);

	if (mr->exporter)
		(void)nupa_dereg_mr(ibv);
	else if (mr->imported || mr->gone)
		free(mr);
}
