/* SPDX-License-Identifier: BSD-3-Clause
 * Threads that sleep until a socket's state changes, several at once.  A thread that takes an event
 * from a socket's descriptors may take it from another that sleeps on them.  So each sleeping
 * thread has an eventfd of its own, and a thread that changes the state writes to those of all
 * others (internal.h I3). */
#include "librdmacm/rsockets/internal.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int64_t rs_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

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
