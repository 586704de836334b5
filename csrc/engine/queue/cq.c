/* SPDX-License-Identifier: BSD-3-Clause
 * Completion queues. */
#include "engine/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct nupa_cq *cq_of(struct ibv_cq *ibv)
{
	return container_of(ibv, struct nupa_cq, ibv);
}

static struct nupa_comp_channel *channel_of(struct ibv_comp_channel *ibv)
{
	return container_of(ibv, struct nupa_comp_channel, ibv);
}

static struct nupa_cqe *make_ring(struct nupa_cq *cq, uint32_t entries, bool *custom)
{
	size_t bytes = entries * sizeof(struct nupa_cqe);
	uint8_t *ring = nupa_queue_map(bytes);

	if (ring && nupa_domain_buffer(cq->parent_domain, NUPA_BUFFER_CQ, &ring, bytes, custom)) {
		munmap(ring, bytes);
		return NULL;
	}
	return (struct nupa_cqe *)(void *)ring;
}

static void free_ring(struct nupa_cq *cq, struct nupa_cqe *ring, uint32_t entries, bool custom)
{
	uint8_t *at = (uint8_t *)ring;

	if (custom)
		nupa_domain_release(cq->parent_domain, NUPA_BUFFER_CQ, &at, &custom);
	else
		munmap(ring, entries * sizeof(struct nupa_cqe));
}

struct nupa_cq *nupa_cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context,
			    struct ibv_comp_channel *channel, uint32_t comp_vector,
			    struct ibv_pd *parent_domain)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_cq *cq;
	uint32_t entries;

	if (cqe == 0 || cqe > NUPA_CQE_MAX || comp_vector >= (uint32_t)context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	entries = nupa_pow2_at_least(cqe);
	cq->parent_domain = parent_domain;
	cq->ring = make_ring(cq, entries, &cq->custom);
	if (!cq->ring) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->mask = entries - 1;
	cq->capacity = cqe;
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = (int)cqe;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_mutex_init(&cq->cursor_mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	nupa_list_init(&cq->event_link);
	nupa_list_init(&cq->moderate_link);
	nupa_list_init(&cq->link);
	nupa_engine_lock(engine);
	if (parent_domain)
		container_of(parent_domain, struct nupa_pd, ibv)->users++;
	cq->ibv.handle = ++engine->objects;
	nupa_list_add(&engine->cqs, &cq->link);
	cq->resource =
	    nupa_resource_add(&engine->resources, &(struct nupa_resource_row){
						      .kind = NUPA_RESOURCE_CQ,
						      .context = nupa_context_number(context),
						      .cq.cqe = cqe,
						  });
	if (engine->trace & NUPA_TRACE_ENTRIES)
		cq->notes = NUPA_CQ_TRACED;
	if (engine->recorder)
		cq->notes |= NUPA_CQ_RECORDED;
	if (channel)
		channel_of(channel)->users++;
	nupa_engine_unlock(engine);
	return cq;
}

struct ibv_cq *nupa_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			      struct ibv_comp_channel *channel, int comp_vector)
{
	struct nupa_cq *cq;

	if (cqe < 0 || comp_vector < 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = nupa_cq_new(context, (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector, NULL);
	return cq ? &cq->ibv : NULL;
}

int nupa_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct nupa_cq *cq = cq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct nupa_cqe *ring, *old;
	uint32_t entries, old_entries, held;
	bool custom, old_custom;

	if (cqe <= 0 || (uint32_t)cqe > NUPA_CQE_MAX)
		return EINVAL;
	entries = nupa_pow2_at_least((uint32_t)cqe);
	ring = make_ring(cq, entries, &custom);
	if (!ring)
		return ENOMEM;
	nupa_engine_lock(engine);
	held = (uint32_t)(cq->tail - cq->head);
	if (held > (uint32_t)cqe) { /* IBTA 11.2.8.4: what is queued has to fit */
		nupa_engine_unlock(engine);
		free_ring(cq, ring, entries, custom);
		return EINVAL;
	}
	for (uint32_t i = 0; i < held; i++)
		ring[i] = cq->ring[(cq->head + i) & cq->mask];
	old = cq->ring;
	old_entries = cq->mask + 1;
	old_custom = cq->custom;
	cq->ring = ring;
	cq->custom = custom;
	cq->head = 0;
	cq->tail = held;
	cq->mask = entries - 1;
	cq->capacity = (uint32_t)cqe;
	ibv->cqe = cqe;
	nupa_resource_change(&engine->resources, cq->resource,
			     &(struct nupa_resource_row){
				 .context = nupa_context_number(ibv->context),
				 .cq.cqe = (uint32_t)cqe,
			     });
	nupa_engine_unlock(engine);
	free_ring(cq, old, old_entries, old_custom);
	return 0;
}

/* man ibv_destroy_cq: waits until all events that were got are acknowledged. */
static void wait_for_acks(struct nupa_cq *cq, uint32_t events_got)
{
	pthread_mutex_lock(&cq->ibv.mutex);
	while (cq->ibv.comp_events_completed < events_got)
		pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
	pthread_mutex_unlock(&cq->ibv.mutex);
}

int nupa_destroy_cq(struct ibv_cq *ibv)
{
	struct nupa_cq *cq = cq_of(ibv);
	struct nupa_context *context = container_of(ibv->context, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;
	uint32_t events_got;

	nupa_engine_lock(engine);
	if (cq->users) {
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	nupa_list_del(&cq->link);
	nupa_resource_drop(&engine->resources, cq->resource, NUPA_RESOURCE_CQ);
	nupa_list_del(&cq->moderate_link);
	nupa_list_del(&cq->event_link); /* events not got go with the CQ */
	nupa_event_drop(context, cq);
	if (ibv->channel)
		channel_of(ibv->channel)->users--;
	events_got = cq->events_got;
	nupa_engine_unlock(engine);
	nupa_event_wait_acked(context, &cq->async_pending);
	if (!nupa_engine_is_copy(engine))
		wait_for_acks(cq, events_got);
	free_ring(cq, cq->ring, cq->mask + 1, cq->custom);
	if (cq->parent_domain) {
		nupa_engine_lock(engine);
		container_of(cq->parent_domain, struct nupa_pd, ibv)->users--;
		nupa_engine_unlock(engine);
	}
	pthread_mutex_destroy(&cq->ibv.mutex);
	pthread_mutex_destroy(&cq->cursor_mutex);
	pthread_cond_destroy(&cq->ibv.cond);
	free(cq);
	return 0;
}

/* The rarer half of nupa_cq_commit. */
void nupa_cq_tell(struct nupa_cq *cq, bool solicited)
{
	if (cq->notes & NUPA_CQ_STAMPED)
		cq->ring[(cq->tail - 1) & cq->mask].timestamp_ns = nupa_clock_ns();
	if (cq->notes & NUPA_CQ_TRACED)
		nupa_trace_completion(nupa_engine_of(cq->ibv.context), cq);
	if (cq->notes & NUPA_CQ_RECORDED)
		nupa_record_made(nupa_engine_of(cq->ibv.context)->recorder,
				 &cq->ring[(cq->tail - 1) & cq->mask]);
	if (cq->notes & NUPA_CQ_HANDED_ON)
		cq->hand_on(cq);
	if (cq->arm == NUPA_ARM_NONE || (cq->arm == NUPA_ARM_SOLICITED && !solicited) ||
	    !cq->ibv.channel)
		return;
	if (cq->moderate_count > 1 && !nupa_cq_moderate(cq))
		return;
	nupa_cq_raise(cq);
}

/* A QP that is reset or destroyed takes its completions along. */
void nupa_cq_purge(struct nupa_cq *cq, struct nupa_qp *qp)
{
	uint64_t to = cq->head;

	for (uint64_t from = cq->head; from != cq->tail; from++) {
		if (cq->ring[from & cq->mask].qp == qp)
			continue;
		cq->ring[to++ & cq->mask] = cq->ring[from & cq->mask];
	}
	cq->tail = to;
}
