/* SPDX-License-Identifier: BSD-3-Clause
 * Regions for local use that are shared after all, because a program sends much from them: peers
 * then fetch by one copy and no system call.  Registering them stays cheap.
 *
 *   I1  Sharing must go unnoticed at any time, so it takes a hold that also holds off system calls
 *       (promote_hold.c).
 *   I2  Nobody copies to or from such a region by a mapping before it is shared.  So its entry
 *       changes without waiting for anybody. */
#include "engine/memory/mr.h"

/* Sharing it and taking it back cost about as much as is saved by sending all of it so often. */
#define SENT_TIMES 16u
/* The port thread does nothing else meanwhile: some 30 ms. */
#define LATE_MAX_BYTES (UINT64_C(64) << 20)
#define ASKED UINT64_MAX /* in sent_bytes: once is enough */

void nupa_mr_sends(struct nupa_engine *engine, const struct ibv_sge *sge)
{
	struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);

	if (!mr || mr->pages || mr->sent_bytes == ASKED || mr->kind != NUPA_MR_MEMORY ||
	    mr->dmabuf || mr->exporter || mr->length > LATE_MAX_BYTES)
		return;
	mr->sent_bytes += sge->length;
	if (mr->sent_bytes < mr->length * SENT_TIMES)
		return;
	mr->sent_bytes = ASKED;
	nupa_store_relaxed(&engine->late_key, sge->lkey);
}

/* Under the lock: the region takes these pages, unless it is gone or another one by now. */
static bool adopt(struct nupa_engine *engine, const struct nupa_mr *copy)
{
	struct nupa_mr *mr = nupa_mr_find(engine, copy->ibv.lkey);
	struct nupa_mr_entry *entry;

	if (!mr || mr->pages || mr->va != copy->va || mr->length != copy->length ||
	    !copy->pages->whole)
		return false;
	mr->pages = copy->pages;
	entry = &engine->mr_entries[mr->index];
	(void)nupa_exchange_seq(&entry->key, 0); /* I2 */
	nupa_store_relaxed(&entry->shared_off, nupa_mr_shared_offset(mr));
	nupa_mr_publish(entry, mr->ibv.lkey);
	return true;
}

void nupa_mr_share_late(struct nupa_engine *engine)
{
	struct nupa_mr copy = { 0 };
	const struct nupa_mr *mr;
	bool adopted;

	nupa_engine_lock(engine);
	mr = nupa_mr_find(engine, nupa_load_relaxed(&engine->late_key));
	if (mr)
		copy = *mr;
	nupa_store_relaxed(&engine->late_key, 0);
	nupa_engine_unlock(engine);
	copy.access |= IBV_ACCESS_REMOTE_READ; /* as one that peers reach */
	if (!mr || !nupa_promote_unnoticed() /* I1 */ || nupa_mr_share_and_lock(engine, &copy))
		return;
	adopted = adopt(engine, &copy);
	nupa_engine_unlock(engine);
	if (!adopted)
		nupa_mr_unshare(copy.pages);
}
