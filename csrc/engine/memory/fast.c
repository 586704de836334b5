/* SPDX-License-Identifier: BSD-3-Clause
 * Fast registration (IBTA 10.6.4): a region whose place in the table is taken once, and which a
 * work request gives its key, address, length and access.  It is usable until it is invalidated,
 * and then may be registered anew.  Users in a kernel have it (csrc/kernel); no function of
 * libibverbs does.
 *
 * The low 8 bits of its key are the user's to choose, as a window's tag is.  A key is never 0: bits
 * 8 to 11 are not all clear. */
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>

#define TAG_BITS 8u
#define FAST_ACCESS                                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct ibv_mr *nupa_alloc_fast_mr(struct ibv_pd *pd, void *memory)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_mr *mr = calloc(1, sizeof(*mr));
	int error = mr ? 0 : ENOMEM;

	if (!error) {
		mr->ibv = (struct ibv_mr){ pd->context, pd, memory, 0, 0, 0, 0 };
		mr->va = memory;
		mr->kind = NUPA_MR_WINDOW; /* for a key like a window's */
		nupa_engine_lock(engine);
		error = nupa_mr_place(engine, mr);
		mr->kind = NUPA_MR_FAST;
		if (!error) {
			/* An entry that is whole, under a key that nobody has yet. */
			nupa_mr_expose(engine, mr);
			nupa_mr_retract(engine, mr);
			container_of(pd, struct nupa_pd, ibv)->users++;
		}
		nupa_engine_unlock(engine);
	}
	if (!error)
		return &mr->ibv;
	free(mr);
	errno = error;
	return NULL;
}

static struct nupa_mr *find_fast(const struct nupa_qp *qp, uint32_t key)
{
	const uint32_t index = key >> NUPA_KEY_VARIANT_BITS;
	struct nupa_mr *mr = index < qp->engine->mr_limit ? qp->engine->mrs[index] : NULL;

	return mr && mr->kind == NUPA_MR_FAST && nupa_mr_same_pd(mr, qp) &&
		       mr->ibv.lkey >> TAG_BITS == key >> TAG_BITS
		   ? mr
		   : NULL;
}

int nupa_mr_fast_fill_wqe(const struct nupa_qp *qp, struct nupa_wqe *wqe, uint32_t key,
			  const struct ibv_mw_bind_info *info)
{
	if (!find_fast(qp, key) || info->addr + info->length < info->addr ||
	    info->mw_access_flags & ~(unsigned int)FAST_ACCESS)
		return EINVAL;
	wqe->n_sge = 0;
	wqe->length_bytes = 0;
	wqe->rkey = key;
	wqe->raddr = info->addr;
	wqe->bind_bytes = info->length;
	wqe->bind_lkey = 0;
	wqe->bind_access = info->mw_access_flags;
	return 0;
}

enum ibv_wc_status nupa_mr_fast_execute(struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	struct nupa_mr *mr = find_fast(qp, wqe->rkey);

	/* IBTA 10.6.4.3: it is registered when it is free, and freed by invalidation alone. */
	if (!mr || mr->known)
		return IBV_WC_MW_BIND_ERR;
	mr->iova = wqe->raddr;
	mr->length = wqe->bind_bytes;
	mr->access = (int)wqe->bind_access | NUPA_ACCESS_PLAIN;
	mr->ibv.lkey = mr->ibv.rkey = wqe->rkey;
	nupa_mr_expose(qp->engine, mr);
	return IBV_WC_SUCCESS;
}
