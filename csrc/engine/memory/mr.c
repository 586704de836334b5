/* SPDX-License-Identifier: BSD-3-Clause
 * Memory regions.  A region is an entry in our arena that peers read; keys are index << 12 |
 * variant.  A variant is not reused before 4,094 others. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEY_VARIANTS ((1u << NUPA_KEY_VARIANT_BITS) - 2)
#define KEY_VARIANT_MASK ((1u << NUPA_KEY_VARIANT_BITS) - 1)

/* --- places in the table ------------------------------------------------------------- */

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
	uint32_t next = engine->slot->next_mr_index;
	uint32_t index, changes;

	grow(engine, 0);
	if (engine->mrs_used >= engine->mr_limit)
		return ENOMEM;
	/* Not one given back lately: they go round. */
	while (engine->mrs[next % engine->mr_limit])
		next++;
	index = next % engine->mr_limit;
	engine->slot->next_mr_index = next + 1;
	changes = engine->mr_entries[index].changes;
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
}

static uint64_t pool_offset(const struct nupa_engine *engine, const struct nupa_mr *mr)
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

void nupa_mr_publish(struct nupa_mr_entry *entry, uint32_t key)
{
	struct nupa_mr_entry whole = *entry;

	whole.key = key;
	whole.changes++;
	SET(entry, check, nupa_mr_entry_check(&whole));
	SET(entry, changes, whole.changes);
	nupa_store_release(&entry->key, key); /* P5 */
}

void nupa_mr_expose(struct nupa_engine *engine, struct nupa_mr *mr)
{
	struct nupa_mr_entry *entry = &engine->mr_entries[mr->index];

	SET(entry, access, (uint32_t)(mr->access & ~NUPA_ACCESS_PLAIN));
	SET(entry, pd, mr->qpn || !mr->ibv.pd ? 0 : mr->ibv.pd->handle);
	SET(entry, qpn, mr->qpn);
	SET(entry, iova, mr->iova);
	SET(entry, length, mr->length);
	SET(entry, va, (uintptr_t)mr->va);
	SET(entry, pool_off, pool_offset(engine, mr));
	SET(entry, shared_off, nupa_mr_shared_offset(mr));
	if (entry->pool_off != UINT64_MAX)
		nupa_store_relaxed(&engine->slot->pool_regions, engine->slot->pool_regions + 1);
	nupa_mr_publish(entry, mr->ibv.lkey);
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

/* --- registration -------------------------------------------------------------------- */

static bool is_implicit(const void *addr, size_t length, int access)
{
	return access & IBV_ACCESS_ON_DEMAND && !addr && length == SIZE_MAX;
}

int nupa_mr_check(const struct nupa_engine *engine, void *addr, size_t length, uint64_t iova,
		  int access, enum nupa_mr_kind *kind)
{
	const struct nupa_mr memory = { .va = addr, .length = length };

	/* man ibv_reg_mr: remote write and atomic need local write. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		return EINVAL;
	if (access & ~NUPA_MR_SUPPORTED_ACCESS)
		return EOPNOTSUPP;
	*kind = NUPA_MR_MEMORY;
	if (access & IBV_ACCESS_ON_DEMAND && pool_offset(engine, &memory) == UINT64_MAX) {
		*kind = NUPA_MR_ON_DEMAND;
		/* The whole address space: addresses are what they are. */
		return is_implicit(addr, length, access) && iova ? EINVAL : 0;
	}
	if (length && (!nupa_memory_mapped(addr, length) ||
		       (access & IBV_ACCESS_LOCAL_WRITE && !nupa_memory_writable(addr))))
		return EFAULT;
	return 0;
}

int nupa_mr_access(enum nupa_mr_kind kind, int access)
{
	if (kind == NUPA_MR_MEMORY)
		return (access & ~IBV_ACCESS_ON_DEMAND) | NUPA_ACCESS_PLAIN;
	return access;
}

struct ibv_mr *nupa_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_mr *mr = NULL;
	enum nupa_mr_kind kind;
	int error;

	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	error = nupa_mr_check(engine, addr, length, iova, access, &kind);
	if (!error) {
		mr = calloc(1, sizeof(*mr));
		error = mr ? 0 : ENOMEM;
	}
	if (error)
		goto fail;
	mr->ibv = (struct ibv_mr){ pd->context, pd, addr, length, 0, 0, 0 };
	mr->va = addr;
	mr->length = length;
	mr->iova = iova;
	mr->kind = (uint8_t)kind;
	mr->access = nupa_mr_access(kind, access);
	nupa_guard_renew();
	nupa_mr_share_and_lock(engine, mr);
	error = nupa_mr_place(engine, mr);
	if (!error) {
		nupa_mr_expose(engine, mr);
		container_of(pd, struct nupa_pd, ibv)->users++;
	}
	nupa_engine_unlock(engine);
	if (!error)
		return &mr->ibv;
	nupa_mr_unshare(mr);
fail:
	free(mr);
	errno = error;
	return NULL;
}

/* The end of a region's life but for its memory: EBUSY while windows are bound to it. */
static int end(struct nupa_engine *engine, struct nupa_mr *mr)
{
	if (mr->users)
		return EBUSY;
	nupa_mr_retract(engine, mr);
	nupa_mr_unplace(engine, mr);
	if (mr->dm)
		mr->dm->users--;
	engine->foreign_regions -= mr->exporter != 0;
	container_of(mr->ibv.pd, struct nupa_pd, ibv)->users--;
	return 0;
}

/* Through any handle: the region itself ends; other handles can only be unimported then. */
int nupa_dereg_mr(struct ibv_mr *ibv)
{
	struct nupa_mr *mr = nupa_mr_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct nupa_mr_pages pages = { 0 };
	struct nupa_mr *region;
	int error;

	nupa_guard_renew();
	nupa_engine_lock(engine);
	region = mr->imported ? engine->mrs[mr->index] : mr;
	if (mr->gone || !region || region->ibv.lkey != ibv->lkey)
		error = EINVAL;
	else if (!region->users && !nupa_mr_settle(engine, region->index))
		error = EBUSY;
	else
		error = end(engine, region);
	if (!error) {
		region->gone = true;
		pages = nupa_mr_take_pages(region);
	}
	nupa_engine_unlock(engine);
	if (error)
		return error;
	nupa_promote_release(pages.ranges, pages.n);
	free(mr);
	return 0;
}

/* --- use ----------------------------------------------------------------------------- */

enum ibv_wc_status nupa_mr_resolve(struct nupa_engine *engine, struct ibv_pd *pd,
				   const struct ibv_sge *sge, uint32_t n_sge, int access,
				   struct nupa_span *spans, uint32_t *n_spans)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_sge; i++) {
		uint8_t *va;

		if (sge[i].length == 0)
			continue;
		va = nupa_mr_local(engine, pd, &sge[i], access);
		if (!va)
			return IBV_WC_LOC_PROT_ERR;
		spans[n++] = (struct nupa_span){ va, sge[i].length };
	}
	*n_spans = n;
	return IBV_WC_SUCCESS;
}

static bool same_pd(const struct nupa_mr *mr, const struct nupa_qp *qp)
{
	return mr->ibv.pd && qp->ibv.pd && mr->ibv.pd->handle == qp->ibv.pd->handle;
}

uint8_t *nupa_mr_remote(struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			int access, bool *on_demand)
{
	const struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);

	if (!mr || (mr->access & access) != access ||
	    (mr->qpn ? mr->qpn != qp->ibv.qp_num : !same_pd(mr, qp)))
		return NULL;
	*on_demand = (mr->access & IBV_ACCESS_ON_DEMAND) != 0;
	return nupa_mr_at(mr, raddr, bytes);
}

/* LOCAL_INV and SEND_WITH_INV.  A window is free again; a region is usable again only by a new
 * registration.  0; EINVAL for a key that is not the PD's or to which windows are bound; EBUSY when
 * a peer is stopped while it copies. */
int nupa_mr_invalidate(struct nupa_qp *qp, uint32_t rkey)
{
	struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);

	if (!mr || !same_pd(mr, qp))
		return EINVAL;
	if (mr->kind == NUPA_MR_WINDOW)
		return nupa_mw_invalidate(qp, mr);
	if (mr->kind == NUPA_MR_NULL || mr->users)
		return EINVAL;
	return nupa_mr_retract(qp->engine, mr) ? 0 : EBUSY;
}
