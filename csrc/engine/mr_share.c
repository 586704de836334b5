/* SPDX-License-Identifier: BSD-3-Clause
 * Regions whose pages are promoted (promote.h), so that peers load and store; and what becomes of
 * them around a fork, when all memory has to be the program's own. */
#include "mr.h"

#define REACHED                                                                                    \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |             \
	 IBV_ACCESS_MW_BIND)

/* What is not promoted, or not in one piece, peers reach by the other movers. */
void nupa_mr_share(struct nupa_engine *engine, struct nupa_mr *mr)
{
	uintptr_t va = (uintptr_t)mr->va;
	struct nupa_shared_range range = { 0 };

	if (mr->kind != NUPA_MR_MEMORY || !(mr->access & REACHED) || !mr->length ||
	    (engine->forced_mover != NUPA_MOVER_NONE &&
	     engine->forced_mover != NUPA_MOVER_SHARED) ||
	    nupa_promote(mr->va, mr->length, &range, 1) != 1)
		return;
	if (range.va > va || range.va + range.bytes < va + mr->length) {
		nupa_promote_release(&range, 1);
		return;
	}
	mr->shared = range;
	nupa_store_release(&engine->slot->shared_fd, (uint32_t)nupa_promote_fd() + 1);
}

/* The same before taking the lock; again, if a fork in between has made it private. */
void nupa_mr_share_and_lock(struct nupa_engine *engine, struct nupa_mr *mr)
{
	for (;;) {
		uint32_t forks = nupa_load_acquire(&nupa_forks);

		nupa_mr_share(engine, mr);
		nupa_engine_lock(engine);
		if (!mr->shared.bytes || forks == nupa_load_relaxed(&nupa_forks))
			return;
		nupa_engine_unlock(engine);
		nupa_mr_unshare(mr);
	}
}

void nupa_mr_unshare(struct nupa_mr *mr)
{
	if (mr->shared.bytes)
		nupa_promote_release(&mr->shared, 1);
	mr->shared.bytes = 0;
}

uint64_t nupa_mr_shared_offset(struct nupa_mr *mr)
{
	const struct nupa_shared_range *shared = &mr->shared;

	if (mr->kind == NUPA_MR_WINDOW) /* only asked of bound ones */
		shared = &container_of(mr, struct nupa_mw, mr)->bound->shared;
	return shared->bytes ? shared->file_off + ((uintptr_t)mr->va - shared->va) : UINT64_MAX;
}

/* --- forks --------------------------------------------------------------------------- */

/* The lock is held over both, so nobody is refused while a key is away: who asks for it waits. */

static bool is_exposed(const struct nupa_engine *engine, const struct nupa_mr *mr)
{
	return nupa_load_relaxed(&engine->mr_entries[mr->index].key) == mr->ibv.lkey;
}

/* Peers look at the entry again, and find it at *shared_off*. */
static void move_entry(struct nupa_engine *engine, const struct nupa_mr *mr, uint64_t shared_off)
{
	struct nupa_mr_entry *entry = &engine->mr_entries[mr->index];

	nupa_mr_withdraw(engine, mr->index);
	entry->shared_off = shared_off;
	nupa_mr_publish(entry, mr->ibv.lkey);
}

/* The bound windows on regions that are promoted. */
static struct nupa_mr *window_at(const struct nupa_engine *engine, uint32_t index)
{
	struct nupa_mr *mr = engine->mrs[index];
	const struct nupa_mw *mw;

	if (!mr || mr->kind != NUPA_MR_WINDOW || !is_exposed(engine, mr))
		return NULL;
	mw = container_of(mr, struct nupa_mw, mr);
	return mw->bound && mw->bound->shared.bytes ? mr : NULL;
}

void nupa_mr_hide_all(struct nupa_engine *engine)
{
	/* Windows first: nobody is to find pages that are on their way back. */
	for (uint32_t i = 0; i < engine->mr_limit; i++)
		if (window_at(engine, i))
			move_entry(engine, engine->mrs[i], UINT64_MAX);
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (!mr || !mr->shared.bytes)
			continue;
		if (is_exposed(engine, mr))
			move_entry(engine, mr, UINT64_MAX);
		nupa_mr_unshare(mr);
		mr->hidden = true;
	}
}

void nupa_mr_share_all(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (!mr || !mr->hidden)
			continue;
		mr->hidden = false;
		nupa_mr_share(engine, mr);
		if (mr->shared.bytes && is_exposed(engine, mr))
			move_entry(engine, mr, nupa_mr_shared_offset(mr));
	}
	for (uint32_t i = 0; i < engine->mr_limit; i++)
		if (window_at(engine, i))
			move_entry(engine, engine->mrs[i], nupa_mr_shared_offset(engine->mrs[i]));
}
