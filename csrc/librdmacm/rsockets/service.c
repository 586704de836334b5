/* SPDX-License-Identifier: BSD-3-Clause
 * A thread for work while the program does not call: connection requests, lookups of datagram
 * ports, streams closed before the peer had all data. */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t service_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t at_fork_once = PTHREAD_ONCE_INIT;
static int service_fd = -1; /* an epoll; socket and serial name the watched descriptors */

static int control(struct rsocket *rs, int operation, uint32_t events)
{
	struct epoll_event event = {
		.events = events,
		.data.u64 = (uint64_t)rs->serial << 32 | (uint32_t)rs->fd,
	};

	return (int)syscall(SYS_epoll_ctl, nupa_load_acquire(&service_fd), operation, rs->served_fd,
			    &event);
}

static void run(uint64_t name)
{
	struct rsocket *rs = rs_get_quietly((int)(uint32_t)name);
	void (*serve)(struct rsocket * rs);

	if (!rs)
		return;
	serve = nupa_load_acquire(&rs->serve);
	if (rs->serial == name >> 32 && serve)
		serve(rs);
	rs_notify(rs);
	rs_put(rs);
}

static void *service(void *unused)
{
	int fd = nupa_load_acquire(&service_fd);

	for (;;) {
		struct epoll_event event;

		/* Not a function that a preloaded library may have replaced. */
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

/* *serve* runs in the thread whenever *fd*, one of the socket's, is readable. */
int rs_serve(struct rsocket *rs, int fd, void (*serve)(struct rsocket *rs))
{
	int result;

	pthread_once(&at_fork_once, install_at_fork);
	pthread_mutex_lock(&service_lock);
	result = start_service();
	pthread_mutex_unlock(&service_lock);
	if (result)
		return -1;
	rs->served_fd = fd;
	nupa_store_release(&rs->serve, serve);
	return control(rs, EPOLL_CTL_ADD, EPOLLIN);
}

void rs_serve_pause(struct rsocket *rs, bool pause)
{
	control(rs, EPOLL_CTL_MOD, pause ? 0 : EPOLLIN);
}

/* It may still be running, for the last time. */
void rs_unserve(struct rsocket *rs)
{
	if (nupa_exchange_seq(&rs->serve, NULL))
		control(rs, EPOLL_CTL_DEL, 0);
}
