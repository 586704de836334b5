/* SPDX-License-Identifier: BSD-3-Clause
 * Protection domains and memory regions.  A region is an entry in our arena that peers read; keys
 * are index << 12 | variant, and a variant is not used again before 4,094 others were. */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <stdlib.h>

#define KEY_VARIANTS ((1u << NUPA_KEY_VARIANT_BITS) - 2)

#define ACCESS_SUPPORTED                                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                   \
	 IBV_ACCESS_OPTIONAL_RANGE)

struct ibv_pd *nupa_alloc_pd(struct ibv_context *context)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->ibv.context = context;
	nupa_engine_lock(engine);
	pd->ibv.handle = ++engine->objects;
	nupa_engine_unlock(engine);
	return &pd->ibv;
}

int nupa_dealloc_pd(struct ibv_pd *ibv)
{
	struct nupa_pd *pd = container_of(ibv, struct nupa_pd, ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	uint32_t users;

	nupa_engine_lock(engine);
	users = pd->users;
	nupa_engine_unlock(engine);
	if (users)
		return EBUSY;
	free(pd);
	return 0;
}

static uint64_t pool_offset(struct nupa_engine *engine, uintptr_t va, size_t length)
{
	uintptr_t pool = (uintptr_t)engine->fabric->pool;
	uint64_t bytes = engine->fabric->geometry.pool_bytes;

	if (!pool || va < pool || va - pool > bytes || length > bytes - (va - pool))
		return UINT64_MAX;
	return va - pool;
}

#define ACCESS_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Promotes the region's pages, so that peers load and store; what is not promoted, or not in one
 * piece, they reach by the other movers. */
static void share(struct nupa_engine *engine, void *addr, size_t length, int access,
		  struct nupa_shared_range *range)
{
	uintptr_t va = (uintptr_t)addr;

	*range = (struct nupa_shared_range){ 0 };
	if (!(access & ACCESS_REMOTE) || !length ||
	    (engine->forced_mover != NUPA_MOVER_NONE &&
	     engine->forced_mover != NUPA_MOVER_SHARED) ||
	    nupa_promote(addr, length, range, 1) != 1)
		return;
	if (range->va > va || range->va + range->bytes < va + length) {
		nupa_promote_release(range, 1);
		*range = (struct nupa_shared_range){ 0 };
		return;
	}
	nupa_store_release(&engine->slot->shared_fd, (uint32_t)nupa_promote_fd() + 1);
}

static void unshare_range(const struct nupa_shared_range *range)
{
	if (range->bytes)
		nupa_promote_release(range, 1);
}

/* The same, and takes the lock; again, if a fork in between has made it private. */
static void share_and_lock(struct nupa_engine *engine, void *addr, size_t length, int access,
			   struct nupa_shared_range *range)
{
	for (;;) {
		uint32_t forks = nupa_load_acquire(&nupa_forks);

		share(engine, addr, length, access, range);
		nupa_engine_lock(engine);
		if (!range->bytes || forks == nupa_load_relaxed(&nupa_forks))
			return;
		nupa_engine_unlock(engine);
		unshare_range(range);
	}
}

/* An index that is free, not one given back lately: they go round.  Under the lock. */
static int index_take(struct nupa_engine *engine, uint32_t *index)
{
	uint32_t limit = engine->mr_limit;
	uint32_t max = engine->fabric->geometry.mr_entries;
	uint32_t next;

	if (engine->mrs_used * 2 >= limit && limit < max) {
		uint32_t more = limit * 2 < max ? limit * 2 : max;
		int error =
		    nupa_fabric_back(engine->fabric,
				     (uint64_t)((uint8_t *)engine->mr_entries - engine->arena) +
					 nupa_arena_offset(engine->fabric, engine->slot_index) +
					 (uint64_t)limit * sizeof(struct nupa_mr_entry),
				     (uint64_t)(more - limit) * sizeof(struct nupa_mr_entry));

		if (!error) {
			nupa_store_release(&engine->slot->mr_limit, more);
			limit = engine->mr_limit = more;
		}
	}
	if (engine->mrs_used >= limit)
		return ENOMEM;
	next = engine->slot->next_mr_index;
	while (engine->mrs[next % limit])
		next++;
	*index = next % limit;
	engine->slot->next_mr_index = next + 1;
	return 0;
}

struct ibv_mr *nupa_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_mr *mr;
	struct nupa_mr_entry *entry;
	struct nupa_shared_range shared;
	uint32_t index;
	int error = EINVAL;

	/* man ibv_reg_mr: remote write and atomic need local write. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		goto fail;
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		goto fail;
	error = EOPNOTSUPP;
	if (access & ~ACCESS_SUPPORTED)
		goto fail;
	error = EFAULT;
	if (length && (!nupa_memory_mapped(addr, length) ||
		       (access & IBV_ACCESS_LOCAL_WRITE && !nupa_memory_writable(addr))))
		goto fail;
	error = ENOMEM;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		goto fail;
	share_and_lock(engine, addr, length, access, &shared);
	error = index_take(engine, &index);
	if (error) {
		nupa_engine_unlock(engine);
		unshare_range(&shared);
		free(mr);
		goto fail;
	}
	entry = &engine->mr_entries[index];
	mr->ibv = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
		.handle = index,
		.lkey = index << NUPA_KEY_VARIANT_BITS |
			((engine->epoch + entry->changes) % KEY_VARIANTS + 1),
	};
	mr->ibv.rkey = mr->ibv.lkey;
	mr->iova = iova;
	mr->access = access;
	mr->shared = shared;
	mr->index = index;
	entry->access = (uint32_t)access;
	entry->pd = pd->handle;
	entry->iova = iova;
	entry->length = length;
	entry->va = (uintptr_t)addr;
	entry->pool_off = pool_offset(engine, (uintptr_t)addr, length);
	entry->shared_off =
	    shared.bytes ? shared.file_off + ((uintptr_t)addr - shared.va) : UINT64_MAX;
	nupa_mr_publish(entry, mr->ibv.lkey);
	if (entry->pool_off != UINT64_MAX)
		nupa_store_relaxed(&engine->slot->pool_regions, engine->slot->pool_regions + 1);
	engine->mrs[index] = mr;
	engine->mrs_used++;
	container_of(pd, struct nupa_pd, ibv)->users++;
	nupa_engine_unlock(engine);
	return &mr->ibv;
fail:
	errno = error;
	return NULL;
}

void nupa_mr_publish(struct nupa_mr_entry *entry, uint32_t key)
{
	nupa_store_relaxed(&entry->changes, entry->changes + 1);
	nupa_store_release(&entry->key, key); /* P5 */
}

/* C4: the key is gone; whoever announced the region before may still be copying.  The barrier is
 * also the one that initiators would need between their announcement and their look at the key. */
void nupa_mr_withdraw(struct nupa_engine *engine, uint32_t index)
{
	uint64_t hazard = (uint64_t)engine->slot_index << 32 | (index + 1);

	(void)nupa_exchange_seq(&engine->mr_entries[index].key, 0);
	nupa_port_barrier(engine);
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		struct nupa_channel *channel = engine->channels[peer];
		uint32_t spins = 0;

		if (!channel || channel->broken)
			continue;
		while (nupa_load_seq(&channel->peer_slot->hazard) == hazard) {
			if (++spins % 1000 == 0 &&
			    !nupa_process_alive(channel->peer_pid, channel->peer_start_time))
				break;
			nupa_cpu_pause();
			if (spins % 100 == 0)
				sched_yield();
		}
	}
}

int nupa_dereg_mr(struct ibv_mr *ibv)
{
	struct nupa_mr *mr = container_of(ibv, struct nupa_mr, ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct nupa_mr_entry *entry;

	nupa_engine_lock(engine);
	if (mr->users) {
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	entry = &engine->mr_entries[mr->index];
	nupa_mr_withdraw(engine, mr->index);
	if (entry->pool_off != UINT64_MAX)
		nupa_store_relaxed(&engine->slot->pool_regions, engine->slot->pool_regions - 1);
	engine->mrs[mr->index] = NULL;
	engine->mrs_used--;
	container_of(ibv->pd, struct nupa_pd, ibv)->users--;
	nupa_engine_unlock(engine);
	unshare_range(&mr->shared);
	free(mr);
	return 0;
}

/* --- forks --------------------------------------------------------------------------- */

/* The lock is held over both, so nobody is refused while the key is away: who asks for it waits. */

void nupa_mr_hide_all(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (!mr || !mr->shared.bytes || engine->mr_entries[i].key != mr->ibv.lkey)
			continue;
		nupa_mr_withdraw(engine, i);
		unshare_range(&mr->shared);
		mr->shared.bytes = 0;
		mr->hidden = true;
		engine->mr_entries[i].shared_off = UINT64_MAX;
		nupa_mr_publish(&engine->mr_entries[i], mr->ibv.lkey);
	}
}

void nupa_mr_share_all(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];
		struct nupa_mr_entry *entry = &engine->mr_entries[i];

		if (!mr || !mr->hidden)
			continue;
		mr->hidden = false;
		share(engine, mr->ibv.addr, mr->ibv.length, mr->access, &mr->shared);
		if (!mr->shared.bytes)
			continue;
		nupa_mr_withdraw(engine, i); /* peers look again */
		entry->shared_off = mr->shared.file_off + (entry->va - mr->shared.va);
		nupa_mr_publish(entry, mr->ibv.lkey);
	}
}

/* --- looking up ---------------------------------------------------------------------- */

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

uint8_t *nupa_mr_remote(struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			int access)
{
	const struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);

	if (!mr || mr->ibv.pd != qp->ibv.pd || (mr->access & access) != access)
		return NULL;
	return nupa_mr_at(mr, raddr, bytes);
}

/* LOCAL_INV and SEND_WITH_INV: regions stay usable locally by their owner's word only through a
 * new registration, as with a consumed memory window: 0, or EINVAL for a key that is not the PD's.
 */
int nupa_mr_invalidate(struct nupa_qp *qp, uint32_t rkey)
{
	struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);

	if (!mr || mr->ibv.pd != qp->ibv.pd)
		return EINVAL;
	nupa_mr_withdraw(qp->engine, mr->index);
	return 0;
}
