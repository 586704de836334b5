/* SPDX-License-Identifier: BSD-3-Clause
 * Listening.  A thread of the process answers connection requests and queues the connections, so
 * that a connect succeeds before the program calls accept, as with TCP. */
#include "rs.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t service_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t at_fork_once = PTHREAD_ONCE_INIT;
static int service_fd = -1; /* an epoll; what is watched is named by fd and serial */

static void watch(struct rsocket *rs, int operation, uint32_t events)
{
	struct epoll_event event = {
		.events = events,
		.data.u64 = (uint64_t)rs->serial << 32 | (uint32_t)rs->fd,
	};

	syscall(SYS_epoll_ctl, nupa_load_acquire(&service_fd), operation, rs->events->fd, &event);
}

static void run(uint64_t name)
{
	struct rsocket *rs = rs_get_quietly((int)(uint32_t)name);

	if (!rs)
		return;
	pthread_mutex_lock(&rs->control);
	if (rs->serial == name >> 32 && rs->serve)
		rs->serve(rs);
	pthread_mutex_unlock(&rs->control);
	rs_notify(rs);
	rs_put(rs);
}

static void *service(void *unused)
{
	int fd = nupa_load_acquire(&service_fd);

	for (;;) {
		struct epoll_event event;

		/* Not a function that a preloaded library may have taken over. */
		if (syscall(SYS_epoll_pwait, fd, &event, 1, -1, NULL, 0) == 1)
			run(event.data.u64);
		else if (errno != EINTR)
			return unused;
	}
}

/* The thread stays with the parent; a child that serves starts its own. */
static void forget_in_child(void)
{
	if (service_fd >= 0)
		close(service_fd);
	service_fd = -1;
	pthread_mutex_init(&service_lock, NULL);
}

static void install_at_fork(void)
{
	pthread_atfork(NULL, NULL, forget_in_child);
}

static int start_service(void)
{
	sigset_t all, before;
	pthread_t thread;
	int fd, code;

	if (service_fd >= 0)
		return 0;
	fd = rs_epoll_new();
	if (fd < 0)
		return -1;
	nupa_store_release(&service_fd, fd);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
	code = pthread_create(&thread, NULL, service, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code) {
		nupa_store_release(&service_fd, -1);
		close(fd);
		return RS_ERROR(code);
	}
	pthread_detach(thread);
	return 0;
}

/* *serve* runs in the thread, under `control`, whenever the socket has events of the manager. */
int rs_serve(struct rsocket *rs, void (*serve)(struct rsocket *rs))
{
	int result;

	pthread_once(&at_fork_once, install_at_fork);
	pthread_mutex_lock(&service_lock);
	result = start_service();
	pthread_mutex_unlock(&service_lock);
	if (result)
		return -1;
	rs_unwatch(rs, rs->events->fd);
	rs->serve = serve;
	watch(rs, EPOLL_CTL_ADD, EPOLLIN);
	return 0;
}

void rs_unserve(struct rsocket *rs)
{
	pthread_mutex_lock(&rs->control);
	if (rs->serve)
		watch(rs, EPOLL_CTL_DEL, 0);
	rs->serve = NULL;
	pthread_mutex_unlock(&rs->control);
}

static void enqueue(struct rsocket *rs, struct rsocket *connection)
{
	nupa_list_add(&rs->queue, &connection->queue_link);
	nupa_store_release(&rs->queued, rs->queued + 1);
	(void)!write(rs->accept_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	if (rs->queued > rs->backlog)
		watch(rs, EPOLL_CTL_MOD, 0);
}

static void answer_requests(struct rsocket *rs)
{
	struct rdma_cm_event *event;

	while (rs->queued <= rs->backlog && rs_fd_readable(rs->events->fd) &&
	       rdma_get_cm_event(rs->events, &event) == 0) {
		struct rsocket *connection;

		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_ack_cm_event(event);
			continue;
		}
		connection = rs_accept_request(rs, event);
		if (connection)
			enqueue(rs, connection);
	}
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
	/* What exceeds ours waits with the manager; beyond its own it would refuse. */
	if (rdma_listen(rs->id, 0))
		return -1;
	nupa_store_release(&rs->state, RS_LISTENING);
	return rs_serve(rs, answer_requests);
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
		if (rs->queued == rs->backlog && rs->serve)
			watch(rs, EPOLL_CTL_MOD, EPOLLIN);
	}
	pthread_mutex_unlock(&rs->control);
	if (!first)
		return NULL;
	(void)!read(rs->accept_fd, &count, sizeof(count));
	return container_of(first, struct rsocket, queue_link);
}

/* Connections that nobody took end as if they had been closed. */
void rs_stop_listening(struct rsocket *rs)
{
	struct rsocket *connection;

	rs_unserve(rs);
	while ((connection = rs_next_connection(rs)))
		rs_close(connection);
}
