/* SPDX-License-Identifier: BSD-3-Clause
 * Shared receive queues. */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>

static struct nupa_srq *srq_of(struct ibv_srq *ibv)
{
	return container_of(ibv, struct nupa_srq, ibv);
}

struct ibv_srq *nupa_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_srq *srq;

	if (init->attr.max_wr == 0 || init->attr.max_wr > NUPA_SRQ_WR_MAX ||
	    init->attr.max_sge > NUPA_SGE_MAX) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	if (nupa_rq_init(&srq->rq, init->attr.max_wr, init->attr.max_sge)) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = init->srq_context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	nupa_engine_lock(engine);
	srq->ibv.handle = srq->srq_num = ++engine->objects;
	container_of(pd, struct nupa_pd, ibv)->users++;
	nupa_engine_unlock(engine);
	return &srq->ibv;
}

static int check_ex(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr,
		    bool xrc)
{
	const uint32_t xrc_mask = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | xrc_mask;

	if (attr->comp_mask & ~known || (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && !xrc &&
					 attr->srq_type != IBV_SRQT_BASIC))
		return EOPNOTSUPP; /* no tag matching */
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != context)
		return EINVAL;
	if (xrc && ((attr->comp_mask & xrc_mask) != xrc_mask || attr->xrcd->context != context ||
		    attr->cq->context != context))
		return EINVAL;
	return 0;
}

struct ibv_srq *nupa_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr init = { .srq_context = attr->srq_context, .attr = attr->attr };
	bool xrc = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC;
	int error = check_ex(context, attr, xrc);
	struct nupa_engine *engine = nupa_engine_of(context);
	struct ibv_srq *srq;

	if (error) {
		errno = error;
		return NULL;
	}
	srq = nupa_create_srq(attr->pd, &init);
	if (!srq || !xrc)
		return srq;
	nupa_engine_lock(engine);
	error = nupa_xrc_srq_add(srq_of(srq), attr->xrcd, attr->cq);
	nupa_engine_unlock(engine);
	if (error) {
		nupa_destroy_srq(srq);
		errno = error;
		return NULL;
	}
	return srq;
}

int nupa_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct nupa_srq *srq = srq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP; /* no IBV_DEVICE_SRQ_RESIZE */
	if (!(mask & IBV_SRQ_LIMIT) || attr->srq_limit >= srq->rq.capacity)
		return EINVAL;
	nupa_engine_lock(engine);
	srq->limit = attr->srq_limit;
	nupa_engine_unlock(engine);
	return 0;
}

int nupa_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct nupa_srq *srq = srq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	attr->max_wr = srq->rq.capacity;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	nupa_engine_unlock(engine);
	return 0;
}

int nupa_destroy_srq(struct ibv_srq *ibv)
{
	struct nupa_srq *srq = srq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct nupa_context *context = container_of(ibv->context, struct nupa_context, ibv.context);

	nupa_engine_lock(engine);
	if (srq->users) {
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	nupa_event_drop(context, ibv);
	if (srq->xrcd)
		nupa_xrc_srq_remove(srq);
	container_of(ibv->pd, struct nupa_pd, ibv)->users--;
	nupa_engine_unlock(engine);
	nupa_event_wait_acked(context, &srq->async_pending);
	nupa_rq_free(&srq->rq);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(srq);
	return 0;
}

int nupa_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct nupa_srq *srq = srq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	int error = 0;

	nupa_engine_lock(engine);
	for (; wr; wr = wr->next) {
		error = nupa_rq_post(&srq->rq, wr);
		if (error) {
			*bad = wr;
			break;
		}
	}
	nupa_engine_unlock(engine);
	return error;
}
