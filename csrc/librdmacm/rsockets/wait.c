/* SPDX-License-Identifier: BSD-3-Clause
 * Sleeping until a socket's state changes, in several threads at once.  A thread that takes an
 * event from a socket's descriptors may take it from another that sleeps on them.  So each sleeping
 * thread has an eventfd of its own, and a thread that changes the state writes to those of all
 * others (internal.h I3). */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

static pthread_key_t wake_key;
static pthread_once_t wake_once = PTHREAD_ONCE_INIT;

static void close_wake_fd(void *value)
{
	close((int)(intptr_t)value - 1);
}

/* A child's thread must not share its parent's. */
static void forget_wake_fd(void)
{
	void *value = pthread_getspecific(wake_key);

	if (value) {
		close_wake_fd(value);
		pthread_setspecific(wake_key, NULL);
	}
}

static void make_wake_key(void)
{
	pthread_key_create(&wake_key, close_wake_fd);
	pthread_atfork(NULL, NULL, forget_wake_fd);
}

/* This thread's eventfd; -1 with errno. */
int rs_wake_fd(void)
{
	void *value;
	int fd;

	pthread_once(&wake_once, make_wake_key);
	value = pthread_getspecific(wake_key);
	if (value)
		return (int)(intptr_t)value - 1;
	fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (fd >= 0)
		pthread_setspecific(wake_key, (void *)(intptr_t)(fd + 1));
	return fd;
}

void rs_wake_clear(int wake_fd)
{
	uint64_t count;

	(void)!read(wake_fd, &count, sizeof(count));
}

void rs_waiter_link(struct rsocket *rs, struct rs_waiter *waiter)
{
	pthread_mutex_lock(&rs->waiters_lock);
	nupa_list_add(&rs->waiters, &waiter->link);
	nupa_fetch_add_seq(&rs->n_waiters, 1);
	pthread_mutex_unlock(&rs->waiters_lock);
}

void rs_waiter_unlink(struct rsocket *rs, struct rs_waiter *waiter)
{
	pthread_mutex_lock(&rs->waiters_lock);
	nupa_list_del(&waiter->link);
	nupa_fetch_add_seq(&rs->n_waiters, -1);
	pthread_mutex_unlock(&rs->waiters_lock);
}

/* The state has changed. */
void rs_notify(struct rsocket *rs)
{
	if (!nupa_load_seq(&rs->n_waiters))
		return;
	pthread_mutex_lock(&rs->waiters_lock);
	for (struct nupa_list *at = rs->waiters.next; at != &rs->waiters; at = at->next) {
		struct rs_waiter *waiter = container_of(at, struct rs_waiter, link);

		(void)!write(waiter->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	}
	pthread_mutex_unlock(&rs->waiters_lock);
}

int64_t rs_deadline(int64_t timeout_ns)
{
	return timeout_ns == RS_FOREVER ? RS_FOREVER : rs_now_ns() + timeout_ns;
}

/* Milliseconds for poll, rounded up; *most_ms* at most. */
int rs_poll_ms(int64_t deadline_ns, int most_ms)
{
	int64_t left = deadline_ns == RS_FOREVER ? RS_FOREVER : deadline_ns - rs_now_ns();

	if (left <= 0)
		return 0;
	if (left > most_ms * RS_NS_PER_MS)
		return most_ms;
	return (int)((left + RS_NS_PER_MS - 1) / RS_NS_PER_MS);
}

static bool spin(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int64_t deadline_ns)
{
	int64_t until = rs_now_ns() + rs_defaults()->spin_ns;

	if (until > deadline_ns)
		until = deadline_ns;
	do {
		for (int i = 0; i < 8; i++) {
			rs_progress(rs);
			if (ready(rs))
				return true;
		}
	} while (rs_now_ns() < until);
	return false;
}

/* signal(7): a call on a socket is restarted after a handler with SA_RESTART. The handler that ran
 * is not known, so all of them must have it. */
static bool all_handlers_restart(void)
{
	for (int number = 1; number < NSIG; number++) {
		struct sigaction action;

		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
		    action.sa_handler != SIG_IGN && !(action.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

static int sleep_until_ready(struct rsocket *rs, bool (*ready)(struct rsocket *rs),
			     int64_t deadline_ns, int wake_fd, bool even_closed)
{
	for (;;) {
		struct pollfd fds[] = { { .fd = rs->fd, .events = POLLIN },
					{ .fd = wake_fd, .events = POLLIN } };
		int timeout_ms, n;

		rs_arm(rs);
		rs_progress(rs);
		if (ready(rs))
			return 0;
		if (!even_closed && nupa_load_acquire(&rs->closed))
			return RS_ERROR(EBADF);
		timeout_ms = rs_poll_ms(deadline_ns, rs_defaults()->wake_up_max_ms);
		if (!timeout_ms)
			return RS_ERROR(EAGAIN);
		n = poll(fds, 2, timeout_ms);
		if (n < 0 && errno == EINTR && deadline_ns == RS_FOREVER && all_handlers_restart())
			continue;
		if (n < 0)
			return -1;
		if (fds[1].revents)
			rs_wake_clear(wake_fd);
		if (fds[0].revents)
			rs_take_events(rs);
	}
}

static int wait_for(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int64_t deadline_ns,
		    bool even_closed)
{
	struct rs_waiter waiter;
	int result;

	if (spin(rs, ready, deadline_ns))
		return 0;
	waiter.wake_fd = rs_wake_fd();
	if (waiter.wake_fd < 0)
		return -1;
	rs_waiter_link(rs, &waiter);
	result = sleep_until_ready(rs, ready, deadline_ns, waiter.wake_fd, even_closed);
	rs_waiter_unlink(rs, &waiter);
	return result;
}

/* Until *ready*.  -1: EAGAIN after the deadline, EINTR, EBADF when the socket was closed. */
int rs_wait(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int64_t deadline_ns)
{
	return wait_for(rs, ready, deadline_ns, false);
}

/* The same, of a socket that may be closed. */
int rs_wait_closed(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int64_t deadline_ns)
{
	return wait_for(rs, ready, deadline_ns, true);
}
