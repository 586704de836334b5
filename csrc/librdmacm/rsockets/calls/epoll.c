/* SPDX-License-Identifier: BSD-3-Clause
 * repoll_create, repoll_ctl, repoll_wait (since v65): sets of rsockets and ordinary descriptors, on
 * rpoll.  As in rdma-core they are level-triggered: EPOLLET is ignored.
 *
 * R1 the number of a set is an eventfd, written with each change, so that a thread in rpoll sees it
 * R2 one thread of a set is in rpoll at a time: another would miss a change that the first reads */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct interest {
	int fd;
	uint32_t events; /* 0: nothing is reported until it is modified */
	epoll_data_t data;
};

struct repoll {
	struct nupa_list link;
	int fd;
	uint32_t users; /* under sets_lock: its descriptor, and calls */
	bool closed;
	pthread_mutex_t lock;  /* guards what follows */
	bool waiting;          /* R2 */
	pthread_cond_t waited; /* waiting became false */
	struct interest *interests;
	size_t n, room, first; /* first: the next to be reported, so that none starves */
};

/* A call of repoll_wait: the set as it was when rpoll was called. */
struct snapshot {
	struct pollfd *fds; /* n, and the set's own */
	struct interest *interests;
	size_t n, first;
};

static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nupa_list sets = { &sets, &sets };

static struct repoll *find(int fd)
{
	struct repoll *found = NULL;

	pthread_mutex_lock(&sets_lock);
	for (struct nupa_list *at = sets.next; at != &sets; at = at->next)
		if (container_of(at, struct repoll, link)->fd == fd)
			found = container_of(at, struct repoll, link);
	if (found)
		found->users++;
	pthread_mutex_unlock(&sets_lock);
	return found;
}

static void put(struct repoll *set)
{
	uint32_t left;

	pthread_mutex_lock(&sets_lock);
	left = --set->users;
	pthread_mutex_unlock(&sets_lock);
	if (left)
		return;
	close(set->fd);
	pthread_mutex_destroy(&set->lock);
	pthread_cond_destroy(&set->waited);
	free(set->interests);
	free(set);
}

static void announce(const struct repoll *set)
{
	(void)!write(set->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* As epoll_create1(2); -1 with errno EINVAL, EMFILE, ENFILE, ENOMEM. */
int repoll_create(int flags)
{
	pthread_condattr_t attr;
	struct repoll *set;

	if (flags & ~EPOLL_CLOEXEC)
		return RS_ERROR(EINVAL);
	set = calloc(1, sizeof(*set));
	if (!set)
		return RS_ERROR(ENOMEM);
	set->fd = eventfd(0, EFD_NONBLOCK | (flags & EPOLL_CLOEXEC ? EFD_CLOEXEC : 0));
	if (set->fd < 0) {
		free(set);
		return -1;
	}
	set->users = 1;
	pthread_mutex_init(&set->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&set->waited, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&sets_lock);
	nupa_list_add(&sets, &set->link);
	pthread_mutex_unlock(&sets_lock);
	return set->fd;
}

bool rs_repoll_close(int fd)
{
	struct repoll *set = find(fd);

	if (!set)
		return false;
	pthread_mutex_lock(&sets_lock);
	if (!set->closed) {
		nupa_list_del(&set->link);
		set->users--;
		__atomic_store_n(&set->closed, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&sets_lock);
	announce(set);
	put(set);
	return true;
}

/* --- the interests ------------------------------------------------------------------- */

static struct interest *interest_of(struct repoll *set, int fd)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->interests[i].fd == fd)
			return &set->interests[i];
	return NULL;
}

static int add(struct repoll *set, int fd, const struct epoll_event *event)
{
	if (interest_of(set, fd))
		return EEXIST;
	if (set->n == set->room) {
		size_t room = set->room ? 2 * set->room : 16;
		struct interest *more = realloc(set->interests, room * sizeof(*more));

		if (!more)
			return ENOMEM;
		set->interests = more;
		set->room = room;
	}
	set->interests[set->n++] = (struct interest){ fd, event->events, event->data };
	return 0;
}

static int change(struct repoll *set, int op, int fd, const struct epoll_event *event)
{
	struct interest *interest;

	if (op == EPOLL_CTL_ADD)
		return add(set, fd, event);
	interest = interest_of(set, fd);
	if (!interest)
		return ENOENT;
	if (op == EPOLL_CTL_MOD) {
		interest->events = event->events;
		interest->data = event->data;
	} else {
		*interest = set->interests[--set->n];
	}
	return 0;
}

/* As epoll_ctl(2); -1 with errno EBADF, EEXIST, EFAULT, EINVAL, ENOENT, ENOMEM. */
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct repoll *set;
	int error;

	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL)
		return RS_ERROR(EINVAL);
	if (op != EPOLL_CTL_DEL && !event)
		return RS_ERROR(EFAULT);
	if (fcntl(fd, F_GETFD) < 0)
		return RS_ERROR(EBADF);
	if (fd == epfd)
		return RS_ERROR(EINVAL);
	set = find(epfd);
	if (!set)
		return RS_ERROR(EBADF);
	pthread_mutex_lock(&set->lock);
	error = change(set, op, fd, event);
	pthread_mutex_unlock(&set->lock);
	if (!error)
		announce(set);
	put(set);
	return error ? RS_ERROR(error) : 0;
}

/* --- waiting ------------------------------------------------------------------------- */

static int take_snapshot(struct repoll *set, struct snapshot *shot)
{
	uint64_t changes;
	int error = 0;

	pthread_mutex_lock(&set->lock);
	/* NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): EFD_NONBLOCK */
	(void)!read(set->fd, &changes, sizeof(changes));
	shot->n = set->n;
	shot->first = set->n ? set->first % set->n : 0;
	shot->fds = calloc(set->n + 1, sizeof(*shot->fds));
	shot->interests = calloc(set->n + 1, sizeof(*shot->interests));
	if (!shot->fds || !shot->interests)
		error = ENOMEM;
	for (size_t i = 0; !error && i < shot->n; i++) {
		const struct interest *from = &set->interests[(shot->first + i) % shot->n];

		shot->interests[i] = *from;
		shot->fds[i] = (struct pollfd){ from->events ? from->fd : -1,
						(short)(from->events & 0xffff), 0 };
	}
	if (!error)
		shot->fds[shot->n] = (struct pollfd){ set->fd, POLLIN, 0 };
	pthread_mutex_unlock(&set->lock);
	return error;
}

static void drop_snapshot(struct snapshot *shot)
{
	free(shot->fds);
	free(shot->interests);
}

/* A descriptor that was closed leaves the set, one with EPOLLONESHOT rests. */
static void after_report(struct repoll *set, const struct interest *seen, bool gone)
{
	struct interest *now;

	pthread_mutex_lock(&set->lock);
	now = interest_of(set, seen->fd);
	if (now && gone)
		*now = set->interests[--set->n];
	else if (now && now->events == seen->events)
		now->events = 0;
	pthread_mutex_unlock(&set->lock);
}

static int report(struct repoll *set, const struct snapshot *shot, struct epoll_event *events,
		  int most)
{
	int got = 0;
	size_t i;

	for (i = 0; i < shot->n && got < most; i++) {
		const struct interest *interest = &shot->interests[i];
		short revents = shot->fds[i].revents;

		if (revents & POLLNVAL) {
			after_report(set, interest, true);
			continue;
		}
		if (!revents)
			continue;
		events[got++] = (struct epoll_event){ (uint32_t)(uint16_t)revents, interest->data };
		if (interest->events & EPOLLONESHOT)
			after_report(set, interest, false);
	}
	pthread_mutex_lock(&set->lock);
	set->first = shot->first + i;
	pthread_mutex_unlock(&set->lock);
	return got;
}

static int wait_in(struct repoll *set, struct epoll_event *events, int most, int64_t deadline_ns)
{
	for (;;) {
		struct snapshot shot;
		int error = take_snapshot(set, &shot), ready = 0, got = 0;
		int timeout_ms = rs_poll_ms(deadline_ns, INT32_MAX);

		if (!error && __atomic_load_n(&set->closed, __ATOMIC_ACQUIRE))
			error = EBADF;
		if (error) {
			drop_snapshot(&shot);
			return RS_ERROR(error);
		}
		ready = rpoll(shot.fds, shot.n + 1, deadline_ns == RS_FOREVER ? -1 : timeout_ms);
		if (ready > 0)
			got = report(set, &shot, events, most);
		drop_snapshot(&shot);
		if (ready < 0)
			return -1;
		if (got || !ready)
			return got;
	}
}

/* False: the time passed while another thread waited. */
static bool take_turn(struct repoll *set, int64_t deadline_ns)
{
	const struct timespec until = { deadline_ns / 1000000000, deadline_ns % 1000000000 };
	bool taken;

	pthread_mutex_lock(&set->lock);
	while (set->waiting && !pthread_cond_timedwait(&set->waited, &set->lock, &until))
		;
	taken = !set->waiting;
	set->waiting = true;
	pthread_mutex_unlock(&set->lock);
	return taken;
}

static void pass_turn(struct repoll *set)
{
	pthread_mutex_lock(&set->lock);
	set->waiting = false;
	pthread_cond_signal(&set->waited);
	pthread_mutex_unlock(&set->lock);
}

/* As epoll_wait(2), level-triggered; -1 with errno EBADF, EINTR, EINVAL, ENOMEM. */
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	int64_t deadline_ns = timeout < 0 ? RS_FOREVER : rs_now_ns() + timeout * RS_NS_PER_MS;
	struct repoll *set;
	int got = 0;

	if (maxevents <= 0)
		return RS_ERROR(EINVAL);
	set = find(epfd);
	if (!set)
		return RS_ERROR(EBADF);
	if (take_turn(set, deadline_ns)) {
		got = wait_in(set, events, maxevents, deadline_ns);
		pass_turn(set);
	}
	put(set);
	return got;
}
