/* SPDX-License-Identifier: BSD-3-Clause
 * Changing a region in place (man ibv_rereg_mr): its keys stay, what they stand for changes at
 * once.  A refusal leaves the region as it was. */
#include "engine/memory/mr.h"
#include "segment/control/quota.h"

#include <errno.h>

/* The region as it is to be: what does not change is taken from the old one. */
struct change {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
	int access;
	enum nupa_mr_kind kind;
};

/* False: libibverbs itself would refuse it (EINVAL). */
static bool well_formed(const struct nupa_mr *mr, int flags, const struct ibv_pd *pd,
			const void *addr, size_t length, int access)
{
	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return false;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!addr || !length))
		return false;
	if (flags & IBV_REREG_MR_CHANGE_PD &&
	    (!pd || nupa_engine_of(pd->context) != nupa_engine_of(mr->ibv.context)))
		return false;
	if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return false;
	/* Nor are null regions, device memory, dma-bufs and imported regions changed. */
	return (mr->kind == NUPA_MR_MEMORY || mr->kind == NUPA_MR_ON_DEMAND) && !mr->dm &&
	       !mr->dmabuf && !mr->imported && !mr->exporter && !mr->gone;
}

static int prepare(const struct nupa_mr *mr, int flags, struct change *change)
{
	const struct nupa_engine *engine = nupa_engine_of(mr->ibv.context);

	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		change->access = mr->access & ~NUPA_ACCESS_PLAIN;
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		change->pd = mr->ibv.pd;
	change->iova = (uintptr_t)change->addr;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		change->addr = mr->ibv.addr;
		change->length = mr->ibv.length;
		change->iova = mr->iova;
	}
	if (change->access & IBV_ACCESS_ZERO_BASED)
		change->iova = 0;
	else if (mr->access & IBV_ACCESS_ZERO_BASED)
		change->iova = (uintptr_t)change->addr;
	return nupa_mr_check(engine, change->addr, change->length, change->iova, change->access,
			     &change->kind);
}

/* *pages: the new ones, and the old ones afterwards. */
static void apply(struct nupa_engine *engine, struct nupa_mr *mr, const struct change *change,
		  struct nupa_mr_pages **pages)
{
	struct nupa_mr_pages *old = mr->pages;

	nupa_mr_retract(engine, mr);
	container_of(mr->ibv.pd, struct nupa_pd, ibv)->users--;
	container_of(change->pd, struct nupa_pd, ibv)->users++;
	mr->ibv.pd = change->pd;
	mr->ibv.addr = change->addr;
	mr->ibv.length = change->length;
	mr->va = change->addr;
	mr->length = change->length;
	mr->iova = change->iova;
	mr->kind = (uint8_t)change->kind;
	mr->access = nupa_mr_access(change->kind, change->access);
	mr->pages = *pages;
	mr->sent_bytes = 0;
	mr->becomes_shared = false;
	*pages = old;
	nupa_mr_expose(engine, mr);
}

/* From so many registered bytes to so many: 0 or ENOMEM. */
static int recount(const struct nupa_engine *engine, uint64_t from, uint64_t to)
{
	if (to > from)
		return nupa_quota_take(engine->fabric, engine->slot_index,
				       NUPA_QUOTA_REGISTERED_BYTES, to - from)
			   ? ENOMEM
			   : 0;
	nupa_quota_give(engine->fabric, engine->slot_index, NUPA_QUOTA_REGISTERED_BYTES, from - to);
	return 0;
}

/* Under the lock: windows may be bound to it, and peers may be using it.  EAGAIN: waiting for
 * them has let go of the lock, and a fork has made the new pages private meanwhile. */
static int replace(struct nupa_engine *engine, struct nupa_mr *mr, const struct change *change,
		   struct nupa_mr_pages **pages)
{
	const uint64_t before = nupa_mr_bytes(mr->kind, mr, mr->length);
	const uint64_t after = nupa_mr_bytes(change->kind, mr, change->length);
	const uint32_t forks = nupa_load_relaxed(&nupa_forks);
	bool settled;

	if (mr->users)
		return EBUSY;
	if (recount(engine, before, after))
		return ENOMEM;
	settled = nupa_mr_settle(engine, mr->index);
	if (!settled || forks != nupa_load_relaxed(&nupa_forks)) {
		nupa_mr_publish(engine, mr);
		(void)recount(engine, after, before);
		return settled ? EAGAIN : EBUSY;
	}
	apply(engine, mr, change, pages);
	return 0;
}

/* The new pages are shared before the lock is taken, and the old ones are taken back behind it. */
static int change_to(struct nupa_engine *engine, struct nupa_mr *mr, const struct change *change)
{
	struct nupa_mr next = { .va = change->addr,
				.length = change->length,
				.kind = (uint8_t)change->kind,
				.access = nupa_mr_access(change->kind, change->access) };
	struct nupa_mr_pages *pages;
	int error = nupa_mr_share_and_lock(engine, &next);

	if (error)
		return error;
	pages = next.pages;
	error = replace(engine, mr, change, &pages);
	nupa_engine_unlock(engine);
	nupa_mr_unshare(pages);
	return error;
}

int nupa_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length,
		  int access)
{
	struct nupa_mr *mr = nupa_mr_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct change change = { .pd = pd, .addr = addr, .length = length, .access = access };
	int error = EINVAL;

	if (well_formed(mr, flags, pd, addr, length, access))
		error = prepare(mr, flags, &change);
	if (!error) {
		do
			error = change_to(engine, mr, &change);
		while (error == EAGAIN);
	}
	if (!error)
		return 0;
	errno = error;
	return IBV_REREG_MR_ERR_INPUT;
}
