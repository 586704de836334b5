/* SPDX-License-Identifier: BSD-3-Clause
 * Regions for local use that are shared after all, because a program sends much from them: peers
 * then fetch by one copy and no system call.  Registering them stays cheap.
 *
 *   I1  Sharing must go unnoticed at any time, so it takes a hold that also holds off system calls
 *       (promote_hold.c).
 *   I2  Nobody copies to or from such a region by a mapping before it is shared.  So its entry
 *       changes without waiting for anybody.
 *   I3  Pages that a peer's system call is just reading cannot be shared.  So what is sent from
 *       such a region goes in parts, until sharing it has succeeded or was tried often. */
#include "engine/memory/mr.h"

/* Sharing it and taking it back cost about as much as is saved by sending all of it so often. */
#define SENT_TIMES 16u
/* The port thread does nothing else meanwhile: some 10 ms. */
#define LATE_MAX_BYTES (UINT64_C(16) << 20)
#define TRIES 10u
#define NEVER UINT64_MAX /* in sent_bytes */

bool nupa_mr_sends(struct nupa_engine *engine, const struct ibv_sge *sge)
{
	struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);

	if (!mr || mr->pages || mr->sent_bytes == NEVER || mr->kind != NUPA_MR_MEMORY ||
	    mr->dmabuf || mr->exporter || mr->length > LATE_MAX_BYTES)
		return false;
	mr->sent_bytes += sge->length;
	if (mr->sent_bytes >= mr->length * SENT_TIMES && !engine->late_key) {
		mr->sent_bytes = 0;
		mr->becomes_shared = true;
		engine->late_tries = TRIES;
		nupa_store_relaxed(&engine->late_key, sge->lkey);
	}
	return mr->becomes_shared;
}

/* The region takes these pages, unless it is another one by now. */
static bool adopt(struct nupa_engine *engine, struct nupa_mr *mr, const struct nupa_mr *copy)
{
	struct nupa_mr_entry *entry;

	if (mr->pages || mr->va != copy->va || mr->length != copy->length || !copy->pages ||
	    !copy->pages->whole)
		return false;
	mr->pages = copy->pages;
	entry = &engine->mr_entries[mr->index];
	(void)nupa_exchange_seq(&entry->key, 0); /* I2 */
	nupa_store_relaxed(&entry->shared_off, nupa_mr_shared_offset(mr));
	nupa_mr_publish(engine, mr);
	return true;
}

/* Of a try, under the lock; true: the pages are the region's. */
static bool finish(struct nupa_engine *engine, const struct nupa_mr *copy)
{
	struct nupa_mr *mr = nupa_mr_find(engine, engine->late_key);
	bool adopted = mr && adopt(engine, mr, copy);

	if (engine->late_tries)
		engine->late_tries--;
	if (mr && !adopted && engine->late_tries)
		return false;
	if (mr) {
		mr->becomes_shared = false;
		mr->sent_bytes = adopted ? 0 : NEVER;
	}
	nupa_store_relaxed(&engine->late_key, 0);
	return adopted;
}

void nupa_mr_share_late(struct nupa_engine *engine)
{
	const bool unnoticed = nupa_promote_unnoticed(); /* I1 */
	struct nupa_mr copy = { .pages = NULL };
	const struct nupa_mr *mr;
	bool adopted;

	nupa_engine_lock(engine);
	mr = nupa_mr_find(engine, engine->late_key);
	if (mr && unnoticed)
		copy = *mr;
	else
		engine->late_tries = 0;
	nupa_engine_unlock(engine);
	copy.access |= copy.length ? IBV_ACCESS_REMOTE_READ : 0; /* as one that peers reach */
	if (nupa_mr_share_and_lock(engine, &copy))
		nupa_engine_lock(engine);
	adopted = finish(engine, &copy);
	nupa_engine_unlock(engine);
	if (!adopted)
		nupa_mr_unshare(copy.pages);
}
