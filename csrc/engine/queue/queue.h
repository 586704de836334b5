/* SPDX-License-Identifier: BSD-3-Clause
 * Receive queues, completion queues and events, for the folders above and among themselves. */
#ifndef NUPA_QUEUE_H
#define NUPA_QUEUE_H

#include "engine/memory/memory.h"
#include "engine/record/record.h"
#include "engine/trace/trace.h"

/* rq.c */
int nupa_rq_init(struct nupa_rq *rq, uint32_t capacity, uint32_t max_sge);
void nupa_rq_free(struct nupa_rq *rq);
static inline size_t nupa_rq_ring_bytes(const struct nupa_rq *rq)
{
	return ((size_t)rq->mask + 1) * rq->stride;
}
static inline int nupa_rq_post(struct nupa_rq *rq, const struct ibv_recv_wr *wr)
{
	struct nupa_rwqe *rwqe;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;
	if (unlikely(rq->tail - rq->head >= rq->capacity))
		return ENOMEM;
	rwqe = (struct nupa_rwqe *)(void *)(rq->ring + (size_t)(rq->tail & rq->mask) * rq->stride);
	rwqe->wr_id = wr->wr_id;
	rwqe->n_sge = (uint32_t)wr->num_sge;
	if (likely(wr->num_sge == 1))
		rwqe->sge[0] = wr->sg_list[0];
	else
		for (int i = 0; i < wr->num_sge; i++)
			rwqe->sge[i] = wr->sg_list[i];
	rq->tail++;
	return 0;
}
static inline struct nupa_rwqe *nupa_rq_peek(struct nupa_rq *rq)
{
	if (rq->head == rq->tail && likely(!rq->source || !rq->source->take(rq->source, rq)))
		return NULL;
	return (struct nupa_rwqe *)(rq->ring + (size_t)(rq->head & rq->mask) * rq->stride);
}
uint32_t nupa_pow2_at_least(uint32_t n);
void *nupa_queue_map(size_t bytes);

/* cq.c */
void nupa_cq_tell(struct nupa_cq *cq, bool solicited);

static inline bool nupa_cq_full(const struct nupa_cq *cq)
{
	return unlikely(cq->overrun || cq->tail - cq->head >= cq->capacity);
}

/* Whether a completion is just put there, and there is room for it. */
static inline bool nupa_cq_is_quiet(const struct nupa_cq *cq)
{
	return likely(!cq->notes && cq->arm == NUPA_ARM_NONE && !nupa_cq_full(cq));
}

static inline void nupa_cq_commit(struct nupa_cq *cq, bool solicited)
{
	cq->tail++;
	if (unlikely(cq->notes || cq->arm != NUPA_ARM_NONE))
		nupa_cq_tell(cq, solicited);
}
struct nupa_cq *nupa_cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context,
			    struct ibv_comp_channel *channel, uint32_t comp_vector,
			    struct ibv_pd *parent_domain);
void nupa_cq_purge(struct nupa_cq *cq, struct nupa_qp *qp);

/* comp_channel.c: an event, if the CQ is armed. */
void nupa_cq_raise(struct nupa_cq *cq);

/* event.c */
void nupa_event_raise(struct nupa_context *context, const struct ibv_async_event *event);
void nupa_event_raise_qp(struct nupa_qp *qp, enum ibv_event_type type);
void nupa_event_raise_port(struct nupa_engine *engine, enum ibv_event_type type);
void nupa_event_drop(struct nupa_context *context, void *element);
void nupa_event_wait_acked(struct nupa_context *context, const uint32_t *pending);

/* moderation.c */
bool nupa_cq_moderate(struct nupa_cq *cq);
void nupa_cq_run_timers(struct nupa_engine *engine);
uint64_t nupa_cq_next_timer_ns(const struct nupa_engine *engine);

#endif
