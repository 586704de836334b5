/* SPDX-License-Identifier: BSD-3-Clause
 * Device memory (man ibv_alloc_dm): extents of the fabric's pool, which every host reaches by load
 * and store.  A DM has a place in the table of regions, without any access, so that an importer
 * finds it. */
#define _GNU_SOURCE
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define COPY_ALIGN 4u /* of offsets and lengths, as devices want it */

static struct nupa_dm *dm_of(struct ibv_dm *ibv)
{
	return container_of(ibv, struct nupa_dm, ibv);
}

static bool inside(const struct nupa_dm *dm, uint64_t offset, uint64_t bytes)
{
	return offset <= dm->mr.length && bytes <= dm->mr.length - offset;
}

static struct nupa_context *context_of(const struct nupa_dm *dm)
{
	return container_of(dm->ibv.context, struct nupa_context, ibv.context);
}

static int check_copy(const struct nupa_dm *dm, uint64_t offset, size_t bytes)
{
	if (!inside(dm, offset, bytes) || offset % COPY_ALIGN || bytes % COPY_ALIGN)
		return EINVAL;
	return dm->foreign && !nupa_context_exporter_lives(context_of(dm)) ? ENODEV : 0;
}

static int memcpy_to_dm(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t bytes)
{
	const struct nupa_dm *dm = dm_of(ibv);

	int error = check_copy(dm, offset, bytes);

	if (!error)
		memcpy(dm->mr.va + offset, from, bytes);
	return error;
}

static int memcpy_from_dm(void *to, struct ibv_dm *ibv, uint64_t offset, size_t bytes)
{
	const struct nupa_dm *dm = dm_of(ibv);

	int error = check_copy(dm, offset, bytes);

	if (!error)
		memcpy(to, dm->mr.va + offset, bytes);
	return error;
}

/* A child's attachment is a picture of its parent's: what it allocates is its own alone. */
static int take_memory(struct nupa_engine *engine, struct nupa_dm *dm)
{
	void *at;
	int error;

	if (!engine->forked) {
		error = nupa_pool_alloc(engine->fabric, engine->slot_index, dm->mr.length, &at);
		dm->mr.va = error ? NULL : at;
		return error == -EDQUOT ? ENOMEM : -error;
	}
	at = mmap(NULL, dm->mr.length, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return ENOMEM;
	dm->mr.va = at;
	dm->private = true;
	return 0;
}

static void give_memory_back(struct nupa_engine *engine, struct nupa_dm *dm)
{
	if (dm->private)
		munmap(dm->mr.va, dm->mr.length);
	else if (!engine->forked)
		(void)nupa_pool_free(engine->fabric, engine->slot_index, dm->mr.va, dm->mr.length);
}

static struct nupa_dm *dm_new(struct ibv_context *context)
{
	struct nupa_dm *dm = calloc(1, sizeof(*dm));

	if (!dm)
		return NULL;
	dm->ibv.context = dm->mr.ibv.context = context;
	dm->ibv.memcpy_to_dm = memcpy_to_dm;
	dm->ibv.memcpy_from_dm = memcpy_from_dm;
	dm->mr.kind = NUPA_MR_DEVICE;
	return dm;
}

struct ibv_dm *nupa_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	struct nupa_dm *dm;
	int error;

	/* Alignment is that of the place in the pool, where a DM begins with an extent. */
	if (attr->comp_mask || !attr->length || attr->length > sb->pool_bytes ||
	    attr->log_align_req > 31 || UINT32_C(1) << attr->log_align_req > sb->extent_bytes) {
		errno = EINVAL;
		return NULL;
	}
	dm = dm_new(context);
	if (!dm) {
		errno = ENOMEM;
		return NULL;
	}
	dm->mr.length = attr->length;
	error = take_memory(engine, dm);
	if (!error) {
		nupa_engine_lock(engine);
		error = nupa_mr_place(engine, &dm->mr);
		if (!error)
			nupa_mr_expose(engine, &dm->mr);
		nupa_engine_unlock(engine);
		if (error)
			give_memory_back(engine, dm);
	}
	if (error) {
		free(dm);
		errno = error;
		return NULL;
	}
	dm->ibv.handle = dm->mr.index;
	return &dm->ibv;
}

/* The DM that a handle stands for; NULL: it is gone.  Under the lock. */
static struct nupa_dm *original_of(struct nupa_engine *engine, struct nupa_dm *dm)
{
	struct nupa_mr *place = engine->mrs[dm->ibv.handle];

	if (!dm->imported)
		return dm->gone ? NULL : dm;
	if (dm->foreign || !place || place->kind != NUPA_MR_DEVICE || place->va != dm->mr.va)
		return NULL;
	return container_of(place, struct nupa_dm, mr);
}

/* Ends the memory itself, through any handle; only the process that allocated it can. */
int nupa_free_dm(struct ibv_dm *ibv)
{
	struct nupa_dm *dm = dm_of(ibv), *original;
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	int error = 0;

	if (dm->foreign)
		return EPERM;
	nupa_engine_lock(engine);
	original = original_of(engine, dm);
	if (!original)
		error = EINVAL;
	else if (original->users || !nupa_mr_settle(engine, original->mr.index))
		error = EBUSY;
	if (!error) {
		nupa_mr_retract(engine, &original->mr);
		nupa_mr_unplace(engine, &original->mr);
		give_memory_back(engine, original);
		original->gone = true;
	}
	nupa_engine_unlock(engine);
	if (!error)
		free(dm);
	return error;
}

struct ibv_mr *nupa_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t dm_offset,
			      size_t length, unsigned int access)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_dm *dm = dm_of(ibv);
	struct nupa_mr *mr = NULL;
	enum nupa_mr_kind kind;
	int error = EINVAL;

	/* man ibv_alloc_dm: such a region is zero based, which needs the access flag. */
	if (!(access & IBV_ACCESS_ZERO_BASED) || !inside(dm, dm_offset, length) ||
	    nupa_engine_of(ibv->context) != engine)
		goto fail;
	error = nupa_mr_check(engine, dm->mr.va + dm_offset, length, 0, (int)access, &kind);
	if (error)
		goto fail;
	error = ENOMEM;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		goto fail;
	mr->ibv = (struct ibv_mr){ pd->context, pd, NULL, length, 0, 0, 0 };
	mr->va = dm->mr.va + dm_offset;
	mr->length = length;
	mr->kind = NUPA_MR_MEMORY;
	mr->access = nupa_mr_access(NUPA_MR_MEMORY, (int)access);
	nupa_engine_lock(engine);
	mr->dm = dm->foreign ? dm : original_of(engine, dm);
	error = mr->dm ? 0 : EINVAL;
	if (dm->foreign && !nupa_mr_follow(engine, mr, context_of(dm)))
		error = ENODEV;
	if (!error)
		error = nupa_mr_place(engine, mr);
	if (!error) {
		nupa_mr_expose(engine, mr);
		engine->foreign_regions += mr->exporter != 0;
		container_of(pd, struct nupa_pd, ibv)->users++;
		mr->dm->users++;
	}
	nupa_engine_unlock(engine);
	if (!error)
		return &mr->ibv;
fail:
	free(mr);
	errno = error;
	return NULL;
}

/* --- import -------------------------------------------------------------------------- */

/* A DM of the process that the context was imported from: its memory is ours to map. */
static int find_foreign(struct nupa_engine *engine, const struct nupa_context *context,
			uint32_t handle, struct nupa_dm *dm)
{
	struct nupa_mr_entry entry;
	int error = nupa_context_foreign_entry(context, handle, &entry);

	if (error)
		return error;
	if (entry.pd || entry.access || entry.qpn || entry.pool_off == UINT64_MAX)
		return ENOENT; /* a region, not a DM */
	dm->mr.va = nupa_pool_at(engine, entry.pool_off, entry.length);
	dm->mr.length = entry.length;
	dm->foreign = true;
	return dm->mr.va ? 0 : ENOENT;
}

struct ibv_dm *nupa_import_dm(struct ibv_context *ibv, uint32_t handle)
{
	struct nupa_context *context = container_of(ibv, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;
	struct nupa_dm *dm = dm_new(ibv);
	int error = 0;

	if (!dm) {
		errno = ENOMEM;
		return NULL;
	}
	dm->ibv.handle = handle;
	dm->imported = true;
	nupa_engine_lock(engine);
	if (context->exporter_slot) {
		error = find_foreign(engine, context, handle, dm);
	} else if (handle < engine->mr_limit && engine->mrs[handle] &&
		   engine->mrs[handle]->kind == NUPA_MR_DEVICE) {
		dm->mr.va = engine->mrs[handle]->va;
		dm->mr.length = engine->mrs[handle]->length;
	} else {
		error = ENOENT;
	}
	nupa_engine_unlock(engine);
	if (!error)
		return &dm->ibv;
	free(dm);
	errno = error;
	return NULL;
}

/* Ends the handle alone.  The process that allocated the DM may do so, too: the DM stays until it
 * is freed. */
void nupa_unimport_dm(struct ibv_dm *ibv)
{
	struct nupa_dm *dm = dm_of(ibv);

	if ((dm->imported && !dm->users) || dm->gone)
		free(dm);
}
