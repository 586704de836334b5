/* SPDX-License-Identifier: BSD-3-Clause
 * Event channels: queues in which the events of ids wait for a thread of the program.  They belong
 * to no device, so that one made before a fork serves the child. */
#include "engine/cm/internal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct nupa_cm_channel {
	int fd; /* an eventfd: not 0 while an event waits; changes under the mutex */
	uint32_t users;
	bool closed;
	pthread_mutex_t mutex;
	struct nupa_list events; /* struct nupa_cm_event */
};

int nupa_cm_channel_open(struct nupa_cm_channel **out)
{
	struct nupa_cm_channel *channel = calloc(1, sizeof(*channel));
	int error;

	if (!channel)
		return ENOMEM;
	channel->fd = eventfd(0, EFD_CLOEXEC);
	if (channel->fd < 0) {
		error = errno;
		free(channel);
		return error;
	}
	channel->users = 1;
	pthread_mutex_init(&channel->mutex, NULL);
	nupa_list_init(&channel->events);
	*out = channel;
	return 0;
}

int nupa_cm_channel_fd(const struct nupa_cm_channel *channel)
{
	return channel->fd;
}

void cm_channel_use(struct nupa_cm_channel *channel)
{
	__atomic_fetch_add(&channel->users, 1, __ATOMIC_RELAXED);
}

/* An id of a channel that was closed too early keeps its memory. */
void cm_channel_unuse(struct nupa_cm_channel *channel)
{
	struct nupa_list *link;

	if (__atomic_fetch_sub(&channel->users, 1, __ATOMIC_ACQ_REL) != 1)
		return;
	while ((link = nupa_list_pop(&channel->events)))
		free(container_of(link, struct nupa_cm_event, link));
	pthread_mutex_destroy(&channel->mutex);
	free(channel);
}

void nupa_cm_channel_close(struct nupa_cm_channel *channel)
{
	pthread_mutex_lock(&channel->mutex);
	close(channel->fd);
	channel->closed = true;
	pthread_mutex_unlock(&channel->mutex);
}

void nupa_cm_channel_free(struct nupa_cm_channel *channel)
{
	cm_channel_unuse(channel);
}

/* --- posting ------------------------------------------------------------------------- */

struct nupa_cm_event *cm_event_new(struct nupa_cm_id *id, enum rdma_cm_event_type type, int status)
{
	struct nupa_cm_event *event = calloc(1, sizeof(*event));

	if (!event)
		return NULL; /* as in the kernel: an event without memory is lost */
	event->id = id;
	event->type = type;
	event->status = status;
	return event;
}

static void append(struct nupa_cm_channel *channel, struct nupa_cm_event *event)
{
	nupa_list_add(&channel->events, &event->link);
	if (!channel->closed)
		(void)!write(channel->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void cm_event_post(struct nupa_cm_event *event)
{
	struct nupa_cm_channel *channel = event->id->events;

	pthread_mutex_lock(&channel->mutex);
	append(channel, event);
	pthread_mutex_unlock(&channel->mutex);
}

void cm_event_report(struct nupa_cm_id *id, enum rdma_cm_event_type type, int status)
{
	struct nupa_cm_event *event;

	/* As in the kernel: an id that has not accepted yet gets the event when it does. */
	if (!id->user)
		return;
	event = cm_event_new(id, type, status);
	if (event)
		cm_event_post(event);
}

int nupa_cm_write_event(struct nupa_cm_id *id, enum rdma_cm_event_type type, int status,
			uint64_t arg)
{
	struct nupa_cm_event *event = cm_event_new(id, type, status);

	if (!event)
		return ENOMEM;
	event->arg = arg;
	nupa_engine_lock(id->engine);
	cm_event_post(event);
	nupa_engine_unlock(id->engine);
	return 0;
}

/* --- getting ------------------------------------------------------------------------- */

static void update_fd(struct nupa_cm_channel *channel)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	uint64_t count;

	/* It was written for each event, but a child of a fork may have read it. */
	if (nupa_list_empty(&channel->events) && !channel->closed && poll(&ready, 1, 0) == 1)
		/* NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection) */
		(void)!read(channel->fd, &count, sizeof(count));
}

/* Its channel was closed while the caller waited.  A read of a device that is closed meanwhile
 * never returns, and programs leave a thread behind there when they end. */
static void wait_for_ever(void)
{
	for (;;)
		poll(NULL, 0, -1);
}

static struct nupa_cm_event *pop(struct nupa_cm_channel *channel, bool *closed)
{
	struct nupa_cm_event *event = NULL;
	struct nupa_list *link;

	pthread_mutex_lock(&channel->mutex);
	*closed = channel->closed;
	link = nupa_list_pop(&channel->events);
	if (link) {
		event = container_of(link, struct nupa_cm_event, link);
		event->user = event->id->user;
		event->id->events_got++;
		if (event->group)
			event->group->events_got++;
		if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST)
			__atomic_fetch_add(&event->id->backlog, 1, __ATOMIC_RELAXED);
		update_fd(channel);
	}
	pthread_mutex_unlock(&channel->mutex);
	return event;
}

int nupa_cm_get_event(struct nupa_cm_channel *channel, struct nupa_cm_event **event)
{
	bool closed;

	while (!(*event = pop(channel, &closed))) {
		struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
		int flags = closed ? 0 : fcntl(channel->fd, F_GETFL);

		if (closed || flags < 0)
			wait_for_ever();
		if (flags & O_NONBLOCK)
			return EAGAIN;
		if (poll(&wait, 1, -1) < 0)
			return errno;
	}
	return 0;
}

void nupa_cm_free_event(struct nupa_cm_event *event)
{
	free(event);
}

/* --- moving and dropping ------------------------------------------------------------- */

uint32_t cm_events_take(struct nupa_cm_id *id, const struct nupa_cm_group *group,
			struct nupa_list *taken)
{
	struct nupa_cm_channel *channel = id->events;
	struct nupa_list *at;
	uint32_t got;

	pthread_mutex_lock(&channel->mutex);
	at = channel->events.next;
	while (at != &channel->events) {
		struct nupa_cm_event *event = container_of(at, struct nupa_cm_event, link);

		at = at->next;
		if (event->id != id || (group && event->group != group))
			continue;
		nupa_list_del(&event->link);
		nupa_list_add(taken, &event->link);
	}
	if (!nupa_list_empty(taken))
		update_fd(channel);
	got = group ? group->events_got : id->events_got;
	pthread_mutex_unlock(&channel->mutex);
	return got;
}

void cm_events_put(struct nupa_cm_channel *channel, struct nupa_list *events)
{
	struct nupa_list *link;

	pthread_mutex_lock(&channel->mutex);
	while ((link = nupa_list_pop(events)))
		append(channel, container_of(link, struct nupa_cm_event, link));
	pthread_mutex_unlock(&channel->mutex);
}
