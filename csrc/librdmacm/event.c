/* SPDX-License-Identifier: BSD-3-Clause
 * Events: their channels, and events acknowledged. */
#include "librdmacm/internal.h"

#include <stdlib.h>

/* A thread may be about to wait for an event of a channel that another one destroys, as rping's
 * does.  The memory that it reads stays for a while. */
#define CLOSED_KEPT 64u

/* --- channels ------------------------------------------------------------------------ */

struct rdma_event_channel *rdma_channel_open(void)
{
	struct rdma_channel *channel = calloc(1, sizeof(*channel));
	int error;

	if (!channel)
		return NULL;
	error = nupa_cm_channel_open(&channel->cm);
	if (error) {
		free(channel);
		errno = error;
		return NULL;
	}
	channel->channel.fd = nupa_cm_channel_fd(channel->cm);
	return &channel->channel;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	/* ENODEV where there is no device. */
	return rdma_default_context() ? rdma_channel_open() : NULL;
}

void rdma_destroy_event_channel(struct rdma_event_channel *ibv)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static struct rdma_channel *closed[CLOSED_KEPT];
	static uint32_t next;
	struct rdma_channel *channel = container_of(ibv, struct rdma_channel, channel), *oldest;

	nupa_cm_channel_close(channel->cm);
	pthread_mutex_lock(&mutex);
	oldest = closed[next];
	closed[next] = channel;
	next = (next + 1) % CLOSED_KEPT;
	pthread_mutex_unlock(&mutex);
	if (!oldest)
		return;
	nupa_cm_channel_free(oldest->cm);
	free(oldest);
}

/* --- acknowledging ----------------------------------------------------------------- */

/* Destroying an id waits for the events that the program has. */
void rdma_release_event(struct rdma_event *event)
{
	struct rdma_private *owner = event->owner;
	struct rdma_group *group = event->group;

	nupa_cm_free_event(event->cm);
	free(event);
	pthread_mutex_lock(&owner->mutex);
	owner->events_done++;
	if (group)
		group->events_done++;
	pthread_cond_broadcast(&owner->done);
	pthread_mutex_unlock(&owner->mutex);
}

void rdma_wait_done(struct rdma_private *id, const uint32_t *done, uint32_t wanted)
{
	pthread_mutex_lock(&id->mutex);
	while (*done < wanted)
		pthread_cond_wait(&id->done, &id->mutex);
	pthread_mutex_unlock(&id->mutex);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (!event)
		return rdma_result(EINVAL);
	rdma_release_event(container_of(event, struct rdma_event, event));
	return 0;
}

/* The kernel takes no other type from a program. */
int rdma_write_cm_event(struct rdma_cm_id *ibv, enum rdma_cm_event_type event, int status,
			uint64_t arg)
{
	if (!ibv || event != RDMA_CM_EVENT_USER)
		return rdma_result(EINVAL);
	return rdma_result(nupa_cm_write_event(rdma_private_of(ibv)->cm, event, status, arg));
}

void rdma_drop_event(struct rdma_private *id)
{
	struct rdma_cm_event *event = id->id.event;

	id->id.event = NULL;
	if (event)
		rdma_ack_cm_event(event);
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
		[RDMA_CM_EVENT_ADDRINFO_RESOLVED] = "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
		[RDMA_CM_EVENT_ADDRINFO_ERROR] = "RDMA_CM_EVENT_ADDRINFO_ERROR",
		[RDMA_CM_EVENT_USER] = "RDMA_CM_EVENT_USER",
		[RDMA_CM_EVENT_INTERNAL] = "RDMA_CM_EVENT_INTERNAL",
	};

	if ((unsigned int)event >= sizeof(names) / sizeof(names[0]))
		return "UNKNOWN EVENT";
	return names[event];
}
