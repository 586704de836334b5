/* SPDX-License-Identifier: BSD-3-Clause
 * Completion channels (man ibv_create_comp_channel). */
#define _GNU_SOURCE
#include "engine/queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct nupa_comp_channel *channel_of(struct ibv_comp_channel *ibv)
{
	return container_of(ibv, struct nupa_comp_channel, ibv);
}

struct ibv_comp_channel *nupa_create_comp_channel(struct ibv_context *context)
{
	struct nupa_comp_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->ibv.context = context;
	channel->ibv.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel->ibv.fd < 0) {
		free(channel);
		return NULL;
	}
	nupa_list_init(&channel->cqs);
	return &channel->ibv;
}

int nupa_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct nupa_comp_channel *channel = channel_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	uint32_t users;

	nupa_engine_lock(engine);
	users = channel->users;
	nupa_engine_unlock(engine);
	if (users)
		return EBUSY;
	close(ibv->fd);
	free(channel);
	return 0;
}

/* One event: the fd becomes readable. */
static void raise_event(struct nupa_cq *cq)
{
	struct nupa_comp_channel *channel = channel_of(cq->ibv.channel);

	cq->arm = NUPA_ARM_NONE;
	if (cq->events_pending++ == 0)
		nupa_list_add(&channel->cqs, &cq->event_link);
	(void)!write(channel->ibv.fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void nupa_cq_raise(struct nupa_cq *cq)
{
	if (cq->arm != NUPA_ARM_NONE)
		raise_event(cq);
}

void nupa_ack_cq_events(struct ibv_cq *ibv, unsigned int nevents)
{
	struct nupa_cq *cq = container_of(ibv, struct nupa_cq, ibv);

	pthread_mutex_lock(&ibv->mutex);
	ibv->comp_events_completed += nevents;
	pthread_cond_broadcast(&cq->ibv.cond);
	pthread_mutex_unlock(&ibv->mutex);
}
