/* SPDX-License-Identifier: BSD-3-Clause
 * Memory windows (IBTA 10.6.7), and invalidation by key.  A window has a place in the table of
 * regions, where its memory is published under the window's own key.  Peers reach it as they reach
 * a region.
 *
 * The low 8 bits of a window's key are the tag, which a bind changes.  A window of type 1 gets the
 * next tag, one of type 2 the tag that the program chooses.  A key is never 0: bits 8 to 11 are not
 * all clear. */
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>

#define TAG_BITS 8u
#define WINDOW_ACCESS                                                                              \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |             \
	 IBV_ACCESS_ZERO_BASED)

static struct nupa_mw *mw_of(struct ibv_mw *ibv)
{
	return container_of(ibv, struct nupa_mw, ibv);
}

struct ibv_mw *nupa_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_mw *mw;
	int error;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		errno = EINVAL;
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	mw->ibv.context = mw->mr.ibv.context = pd->context;
	mw->ibv.pd = mw->mr.ibv.pd = pd;
	mw->ibv.type = type;
	mw->mr.kind = NUPA_MR_WINDOW;
	nupa_engine_lock(engine);
	error = nupa_mr_place(engine, &mw->mr);
	if (!error) {
		mw->ibv.handle = mw->mr.index;
		mw->ibv.rkey = mw->mr.ibv.lkey;
		container_of(pd, struct nupa_pd, ibv)->users++;
	}
	nupa_engine_unlock(engine);
	if (!error)
		return &mw->ibv;
	free(mw);
	errno = error;
	return NULL;
}

static void count_on_qp(struct nupa_engine *engine, uint32_t qpn, uint32_t delta)
{
	struct nupa_qp *qp = qpn ? nupa_qp_find(engine, qpn) : NULL;

	if (qp)
		qp->windows += delta;
}

static void unbind(struct nupa_engine *engine, struct nupa_mw *mw)
{
	if (!mw->bound)
		return;
	nupa_mr_retract(engine, &mw->mr);
	count_on_qp(engine, mw->mr.qpn, UINT32_MAX);
	mw->mr.qpn = 0;
	mw->bound->users--;
	mw->bound = NULL;
}

int nupa_dealloc_mw(struct ibv_mw *ibv)
{
	struct nupa_mw *mw = mw_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	if (mw->bound && !nupa_mr_settle(engine, mw->mr.index)) {
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	unbind(engine, mw);
	nupa_mr_unplace(engine, &mw->mr);
	container_of(ibv->pd, struct nupa_pd, ibv)->users--;
	nupa_engine_unlock(engine);
	free(mw);
	return 0;
}

void nupa_mw_forget_qp(struct nupa_qp *qp)
{
	struct nupa_engine *engine = qp->engine;

	for (uint32_t i = 0; i < engine->mr_limit && qp->windows; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (mr && mr->kind == NUPA_MR_WINDOW && mr->qpn == qp->ibv.qp_num)
			unbind(engine, container_of(mr, struct nupa_mw, mr));
	}
}

/* --- posting ------------------------------------------------------------------------- */

int nupa_mw_fill_wqe(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_mw *mw, uint32_t rkey,
		     const struct ibv_mw_bind_info *info)
{
	if (!mw || nupa_engine_of(mw->context) != qp->engine ||
	    rkey >> TAG_BITS != mw_of(mw)->mr.ibv.rkey >> TAG_BITS)
		return EINVAL;
	if (!info->mr && (info->length || mw->type == IBV_MW_TYPE_2))
		return EINVAL;
	if (info->mr && nupa_engine_of(info->mr->context) != qp->engine)
		return EINVAL;
	if (info->mw_access_flags & ~(unsigned int)(WINDOW_ACCESS | IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	wqe->n_sge = 0;
	wqe->length_bytes = 0;
	wqe->rkey = rkey;
	wqe->raddr = info->addr;
	wqe->bind_bytes = info->length;
	wqe->bind_lkey = info->mr ? info->mr->lkey : 0;
	wqe->bind_access = info->mw_access_flags & WINDOW_ACCESS;
	return 0;
}

/* --- execution, in the turn of the work request --------------------------------------- */

/* IBTA C10-72 to C10-75. */
static bool may_bind(const struct nupa_qp *qp, const struct nupa_mw *mw, const struct nupa_mr *mr,
		     const struct nupa_wqe *wqe)
{
	uint32_t wants = wqe->bind_access;

	if (mw->ibv.pd->handle != qp->ibv.pd->handle)
		return false;
	if (mw->ibv.type == IBV_MW_TYPE_2 && (mw->bound || !wqe->bind_bytes))
		return false; /* it is bound when it is free, and freed by invalidation alone */
	if (!wqe->bind_bytes)
		return true;
	if (!mr || (mr->kind != NUPA_MR_MEMORY && mr->kind != NUPA_MR_ON_DEMAND) ||
	    mr->ibv.pd->handle != qp->ibv.pd->handle)
		return false;
	if (!(mr->access & IBV_ACCESS_MW_BIND) || mr->access & IBV_ACCESS_ZERO_BASED)
		return false;
	if (wants & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return nupa_mr_at(mr, wqe->raddr, wqe->bind_bytes) != NULL;
}

static bool bind(struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	struct nupa_engine *engine = qp->engine;
	struct nupa_mr *place = engine->mrs[wqe->rkey >> NUPA_KEY_VARIANT_BITS];
	struct nupa_mr *mr = nupa_mr_find(engine, wqe->bind_lkey);
	struct nupa_mw *mw;

	/* It may have been deallocated since it was posted. */
	if (!place || place->kind != NUPA_MR_WINDOW ||
	    place->ibv.rkey >> TAG_BITS != wqe->rkey >> TAG_BITS)
		return false;
	mw = container_of(place, struct nupa_mw, mr);
	if (!may_bind(qp, mw, mr, wqe))
		return false;
	unbind(engine, mw);
	mw->mr.ibv.lkey = mw->mr.ibv.rkey = wqe->rkey;
	if (!wqe->bind_bytes)
		return true;
	mw->bound = mr;
	mr->users++;
	mw->mr.va = nupa_mr_at(mr, wqe->raddr, wqe->bind_bytes);
	mw->mr.length = wqe->bind_bytes;
	mw->mr.iova = wqe->bind_access & IBV_ACCESS_ZERO_BASED ? 0 : wqe->raddr;
	mw->mr.access = (int)wqe->bind_access | (mr->access & IBV_ACCESS_ON_DEMAND);
	mw->mr.qpn = mw->ibv.type == IBV_MW_TYPE_2 ? qp->ibv.qp_num : 0;
	count_on_qp(engine, mw->mr.qpn, 1);
	nupa_mr_expose(engine, &mw->mr);
	return true;
}

static int invalidate_window(struct nupa_qp *qp, struct nupa_mr *mr)
{
	/* o10-37.2.26: type 1 windows are unbound by a bind, not by invalidation. */
	if (mr->qpn != qp->ibv.qp_num)
		return EINVAL;
	unbind(qp->engine, container_of(mr, struct nupa_mw, mr));
	return 0;
}

/* LOCAL_INV and SEND_WITH_INV.  A window is free again; a region is usable again only by a new
 * registration.  0; EINVAL for a key that is not the PD's or to which windows are bound; EBUSY when
 * a peer is stopped while it copies. */
int nupa_mr_invalidate(struct nupa_qp *qp, uint32_t rkey)
{
	struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);

	if (!mr || !nupa_mr_same_pd(mr, qp))
		return EINVAL;
	if (mr->kind == NUPA_MR_WINDOW)
		return invalidate_window(qp, mr);
	if (mr->kind == NUPA_MR_NULL || mr->users)
		return EINVAL;
	return nupa_mr_retract(qp->engine, mr) ? 0 : EBUSY;
}

enum ibv_wc_status nupa_mw_execute(struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	bool done =
	    wqe->opcode == IBV_WR_BIND_MW ? bind(qp, wqe) : nupa_mr_invalidate(qp, wqe->imm) == 0;

	return done ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}
