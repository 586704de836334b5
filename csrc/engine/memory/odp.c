/* SPDX-License-Identifier: BSD-3-Clause
 * Regions that are not plain memory: on-demand paging, where the kernel is asked at each access
 * instead of at registration; and null regions (null_mr.c). */
#include "base/memory.h"
#include "engine/memory/mr.h"

#include <errno.h>

/* --- local access -------------------------------------------------------------------- */

uint8_t *nupa_mr_local_rare(const struct nupa_mr *mr, const struct ibv_pd *pd,
			    const struct ibv_sge *sge, int access)
{
	uint8_t *at;

	if (!mr || mr->kind == NUPA_MR_WINDOW || mr->kind == NUPA_MR_DEVICE || !pd ||
	    mr->ibv.pd->handle != pd->handle)
		return NULL;
	if (mr->kind == NUPA_MR_NULL)
		return nupa_mr_void((access & IBV_ACCESS_LOCAL_WRITE) != 0);
	if ((mr->access & access) != access)
		return NULL;
	at = nupa_mr_at(mr, sge->addr, sge->length);
	if (mr->kind == NUPA_MR_ON_DEMAND && at &&
	    !nupa_memory_present(at, sge->length, (access & IBV_ACCESS_LOCAL_WRITE) != 0))
		return NULL;
	return at;
}

/* --- advice -------------------------------------------------------------------------- */

/* The errors of man ibv_advise_mr; *at: where the memory is, NULL for none. */
static int check_advice(struct nupa_engine *engine, const struct ibv_pd *pd,
			enum ibv_advise_mr_advice advice, const struct ibv_sge *sge, uint8_t **at)
{
	uint32_t index = sge->lkey >> NUPA_KEY_VARIANT_BITS;
	const struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);

	if (!mr)
		return index < engine->mr_limit && engine->mrs[index] ? ENOENT : EFAULT;
	if (mr->kind != NUPA_MR_ON_DEMAND)
		return EINVAL;
	if (mr->ibv.pd->handle != pd->handle || (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
						 !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	*at = nupa_mr_at(mr, sge->addr, sge->length);
	return *at || !sge->length ? 0 : EFAULT;
}

static int advise_one(struct nupa_engine *engine, const struct ibv_pd *pd,
		      enum ibv_advise_mr_advice advice, const struct ibv_sge *sge)
{
	uint8_t *at = NULL;
	bool there;
	int error;

	nupa_engine_lock(engine);
	error = check_advice(engine, pd, advice, sge, &at);
	nupa_engine_unlock(engine);
	if (error || !sge->length)
		return error;
	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		there = nupa_memory_mapped(at, sge->length);
	else
		there = nupa_memory_present(at, sge->length,
					    advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
	return there ? 0 : EFAULT;
}

int nupa_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		   struct ibv_sge *sg_list, uint32_t num_sge)
{
	int error = 0;

	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !num_sge)
		return EINVAL;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return ENOTSUP;
	/* All of it now, flushed or not: there is nothing to wait for but the pages. */
	for (uint32_t i = 0; i < num_sge && !error; i++)
		error = advise_one(nupa_engine_of(pd->context), pd, advice, &sg_list[i]);
	return error;
}
