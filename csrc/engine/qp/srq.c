/* SPDX-License-Identifier: BSD-3-Clause
 * Shared receive queues. */
#include "engine/qp/verbs.h"

#include <errno.h>
#include <stdlib.h>

static struct nupa_srq *srq_of(struct ibv_srq *ibv)
{
	return container_of(ibv, struct nupa_srq, ibv);
}

static struct nupa_resource_row row_of(const struct nupa_srq *srq)
{
	return (struct nupa_resource_row){
		.kind = NUPA_RESOURCE_SRQ,
		.context = nupa_context_number(srq->ibv.context),
		.pd = srq->ibv.pd->handle,
		.srq.type = srq->xrcd ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.srq.cq = nupa_cq_number(srq->cq),
		.srq.max_wr = srq->rq.capacity,
	};
}

static void show(struct nupa_srq *srq)
{
	const struct nupa_resource_row row = row_of(srq);

	nupa_resource_change(&nupa_engine_of(srq->ibv.context)->resources, srq->resource, &row);
}

struct ibv_srq *nupa_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_resource_row row;
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
	if (nupa_domain_buffer(pd, NUPA_BUFFER_SRQ, &srq->rq.ring, nupa_rq_ring_bytes(&srq->rq),
			       &srq->custom)) {
		nupa_rq_free(&srq->rq);
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
	row = row_of(srq);
	srq->resource = nupa_resource_add(&engine->resources, &row);
	nupa_engine_unlock(engine);
	return &srq->ibv;
}

static int check_ex(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr,
		    bool xrc)
{
	const uint32_t xrc_mask = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | xrc_mask;

	if (attr->comp_mask & ~known ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && !xrc && attr->srq_type != IBV_SRQT_BASIC))
		return nupa_unsupported("ibv_create_srq_ex with tag matching");
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
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
	if (!error)
		show(srq_of(srq));
	nupa_engine_unlock(engine);
	if (error) {
		nupa_destroy_srq(srq);
		errno = error;
		return NULL;
	}
	return srq;
}

/* Posted requests come along, in order: they have to fit (IBTA 11.2.3.3). */
static int resize(struct nupa_srq *srq, uint32_t max_wr)
{
	struct nupa_engine *engine = nupa_engine_of(srq->ibv.context);
	struct nupa_rq rq, old = srq->rq;
	bool custom, old_custom;

	if (max_wr == 0 || max_wr > NUPA_SRQ_WR_MAX)
		return EINVAL;
	if (nupa_rq_init(&rq, max_wr, srq->rq.max_sge))
		return ENOMEM;
	if (nupa_domain_buffer(srq->ibv.pd, NUPA_BUFFER_SRQ, &rq.ring, nupa_rq_ring_bytes(&rq),
			       &custom)) {
		nupa_rq_free(&rq);
		return ENOMEM;
	}
	nupa_engine_lock(engine);
	old_custom = srq->custom;
	if (srq->rq.tail - srq->rq.head <= max_wr && srq->limit < max_wr) {
		old = srq->rq;
		for (uint64_t i = old.head; i != old.tail; i++, rq.tail++)
			memcpy(rq.ring + (size_t)(rq.tail & rq.mask) * rq.stride,
			       old.ring + (size_t)(i & old.mask) * old.stride, rq.stride);
		srq->rq = rq;
		srq->custom = custom;
		show(srq);
	} else {
		old = rq; /* the one to be given back */
		old_custom = custom;
		max_wr = 0;
	}
	nupa_engine_unlock(engine);
	nupa_domain_release(srq->ibv.pd, NUPA_BUFFER_SRQ, &old.ring, &old_custom);
	nupa_rq_free(&old);
	return max_wr ? 0 : EINVAL;
}

int nupa_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct nupa_srq *srq = srq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	uint32_t capacity = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->rq.capacity;
	int error = 0;

	if (!(mask & (IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR)) ||
	    mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR) ||
	    (mask & IBV_SRQ_LIMIT && attr->srq_limit >= capacity))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR)
		error = resize(srq, attr->max_wr);
	if (error || !(mask & IBV_SRQ_LIMIT))
		return error;
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
	nupa_resource_drop(&engine->resources, srq->resource, NUPA_RESOURCE_SRQ);
	if (srq->xrcd)
		nupa_xrc_srq_remove(srq);
	nupa_engine_unlock(engine);
	nupa_event_wait_acked(context, &srq->async_pending);
	nupa_domain_release(ibv->pd, NUPA_BUFFER_SRQ, &srq->rq.ring, &srq->custom);
	nupa_engine_lock(engine);
	container_of(ibv->pd, struct nupa_pd, ibv)->users--;
	nupa_engine_unlock(engine);
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
	if (unlikely(engine->trace & NUPA_TRACE_QUEUE))
		nupa_trace_doorbell(engine, NUPA_QUEUE_SRQ, srq->srq_num, srq->rq.tail, 0);
	nupa_engine_unlock(engine);
	return error;
}
