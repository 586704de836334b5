/* SPDX-License-Identifier: BSD-3-Clause
 * Asynchronous events: raised by the engine, got and acknowledged by the program. */
#define _GNU_SOURCE
#include "engine/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Events of an object that its destroyer has to wait for: counted while the program has them. */
static uint32_t *pending_count(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &container_of(event->element.cq, struct nupa_cq, ibv)->async_pending;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &container_of(event->element.srq, struct nupa_srq, ibv)->async_pending;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &container_of(event->element.qp, struct nupa_qp, ibv)->async_pending;
	default:
		return NULL;
	}
}

static struct ibv_context *context_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	default:
		return event->element.qp->context;
	}
}

void nupa_event_raise(struct nupa_context *context, const struct ibv_async_event *event)
{
	struct nupa_event *item = context->closed ? NULL : malloc(sizeof(*item));

	if (!item)
		return; /* IBTA lets an HCA that is out of resources lose an event; the state tells
			 */
	item->event = *event;
	nupa_list_add(&context->events, &item->link);
	(void)!write(context->ibv.context.async_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* Events of an object that goes and were not got; the fd may stay readable once too often. */
void nupa_event_drop(struct nupa_context *context, void *element)
{
	struct nupa_list *at = context->events.next;

	while (at != &context->events) {
		struct nupa_event *item = container_of(at, struct nupa_event, link);

		at = at->next;
		if (pending_count(&item->event) && (void *)item->event.element.qp == element) {
			nupa_list_del(&item->link);
			free(item);
		}
	}
}

int nupa_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
	struct nupa_context *context = container_of(ibv, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;
	struct nupa_event *item = NULL;
	uint64_t count;

	while (!item) {
		if (read(ibv->async_fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
			return -1;
		nupa_engine_lock(engine);
		if (!nupa_list_empty(&context->events)) {
			uint32_t *pending;

			item = container_of(context->events.next, struct nupa_event, link);
			nupa_list_del(&item->link);
			pending = pending_count(&item->event);
			if (pending)
				++*pending;
		}
		nupa_engine_unlock(engine);
	}
	*event = item->event;
	free(item);
	return 0;
}

void nupa_ack_async_event(struct ibv_async_event *event)
{
	uint32_t *pending = pending_count(event);
	struct nupa_context *context;

	if (!pending)
		return;
	context = container_of(context_of(event), struct nupa_context, ibv.context);
	pthread_mutex_lock(&context->events_mutex);
	nupa_engine_lock(context->engine);
	--*pending;
	nupa_engine_unlock(context->engine);
	pthread_cond_broadcast(&context->events_acked);
	pthread_mutex_unlock(&context->events_mutex);
}

/* man ibv_get_async_event: destroying an object waits for its events to be acknowledged. */
void nupa_event_wait_acked(struct nupa_context *context, const uint32_t *pending)
{
	/* A child of a fork acknowledges none of its parent's events, and the mutex may be held.
	 */
	if (nupa_engine_is_copy(context->engine))
		return;
	pthread_mutex_lock(&context->events_mutex);
	for (;;) {
		uint32_t left;

		nupa_engine_lock(context->engine);
		left = *pending;
		nupa_engine_unlock(context->engine);
		if (!left)
			break;
		pthread_cond_wait(&context->events_acked, &context->events_mutex);
	}
	pthread_mutex_unlock(&context->events_mutex);
}
