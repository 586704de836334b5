/* SPDX-License-Identifier: BSD-3-Clause
 * Listening.  The service thread answers connection requests and queues the connections, so that a
 * connect succeeds before the program calls accept, as with TCP. */
#include "librdmacm/rsockets/internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

static void enqueue(struct rsocket *rs, struct rsocket *connection)
{
	nupa_list_add(&rs->queue, &connection->queue_link);
	nupa_store_release(&rs->queued, rs->queued + 1);
	(void)!write(rs->accept_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	if (rs->queued > rs->backlog)
		rs_serve_pause(rs, true); /* the others wait with the manager */
}

static void answer_requests(struct rsocket *rs)
{
	struct rdma_cm_event *event;

	pthread_mutex_lock(&rs->control);
	while (nupa_load_acquire(&rs->serve) && rs->queued <= rs->backlog &&
	       rs_fd_readable(rs->events->fd) && rdma_get_cm_event(rs->events, &event) == 0) {
		struct rsocket *connection;

		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_ack_cm_event(event);
			continue;
		}
		connection = rs_accept_request(rs, event);
		if (connection)
			enqueue(rs, connection);
	}
	pthread_mutex_unlock(&rs->control);
}

int rs_start_listening(struct rsocket *rs, int backlog)
{
	rs->backlog = backlog < 0 ? 0 : backlog > SOMAXCONN ? SOMAXCONN : backlog;
	if (nupa_load_relaxed(&rs->state) == RS_LISTENING)
		return 0;
	if (rs->accept_fd < 0) {
		rs->accept_fd = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
		if (rs->accept_fd < 0 || rs_watch(rs, rs->accept_fd))
			return -1;
	}
	/* Connections beyond this library's limit wait with the manager; beyond its own it would
	 * refuse them. */
	if (rdma_listen(rs->id, 0))
		return -1;
	nupa_store_release(&rs->state, RS_LISTENING);
	rs_unwatch(rs, rs->events->fd);
	return rs_serve(rs, rs->events->fd, answer_requests);
}

/* The oldest connection of the queue; NULL: it is empty. */
struct rsocket *rs_next_connection(struct rsocket *rs)
{
	struct nupa_list *first;
	uint64_t count;

	pthread_mutex_lock(&rs->control);
	first = nupa_list_pop(&rs->queue);
	if (first) {
		nupa_store_release(&rs->queued, rs->queued - 1);
		if (rs->queued == rs->backlog && nupa_load_acquire(&rs->serve))
			rs_serve_pause(rs, false);
	}
	pthread_mutex_unlock(&rs->control);
	if (!first)
		return NULL;
	(void)!read(rs->accept_fd, &count, sizeof(count));
	return container_of(first, struct rsocket, queue_link);
}
