/* SPDX-License-Identifier: BSD-3-Clause
 * rpoll and rselect: rsockets and ordinary descriptors together. */
#include "librdmacm/rsockets/datagram/datagram.h"

#include <errno.h>
#include <stdlib.h>

#define ON_STACK 16

/* One call of rpoll. */
struct polling {
	struct pollfd *asked;
	nfds_t n;
	struct rsocket **sockets; /* NULL where the descriptor is an ordinary one */
	struct pollfd *kernel;    /* n, and one more: the thread's eventfd */
	struct rs_waiter *waiters;
	bool any_ordinary;
};

static short state_of_stream(struct rsocket *rs)
{
	short events = 0;

	if (nupa_load_acquire(&rs->rx.arrived) != nupa_load_relaxed(&rs->rx.taken))
		events |= POLLIN | POLLRDNORM;
	if (nupa_load_acquire(&rs->peer_shut) || nupa_load_acquire(&rs->read_shut))
		events |= POLLIN | POLLRDNORM | POLLRDHUP;
	if (nupa_load_acquire(&rs->broken) || nupa_load_acquire(&rs->peer_gone))
		events |= POLLIN | POLLRDNORM | POLLRDHUP | POLLHUP;
	if (nupa_load_acquire(&rs->peer_shut) && nupa_load_acquire(&rs->write_shut))
		events |= POLLHUP;
	if (rs_can_write(rs))
		events |= POLLOUT | POLLWRNORM;
	if (nupa_load_relaxed(&rs->error))
		events |= POLLERR;
	return events;
}

/* As the kernel's poll reports a TCP socket in this state. */
static short state_of(struct rsocket *rs)
{
	if (rs->datagrams)
		return rs_state_of_datagrams(rs);
	switch ((enum rs_state)nupa_load_acquire(&rs->state)) {
	case RS_INIT:
		if (nupa_load_relaxed(&rs->error))
			return POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLERR | POLLHUP;
		return POLLOUT | POLLWRNORM | POLLHUP;
	case RS_ADDRESS:
	case RS_ROUTE:
	case RS_REQUESTED:
		return 0;
	case RS_LISTENING:
		return nupa_load_acquire(&rs->queued) > 0 ? POLLIN | POLLRDNORM : 0;
	case RS_ACCEPTED:
	case RS_CONNECTED:
		break;
	}
	return state_of_stream(rs);
}

static void advance(struct rsocket *rs)
{
	int state = nupa_load_acquire(&rs->state);

	if (state == RS_CONNECTED || rs->datagrams)
		rs_progress(rs);
	else if (state != RS_LISTENING)
		rs_take_events(rs);
}

/* How many rsockets are ready. */
static int look(struct polling *p)
{
	int ready = 0;

	for (nfds_t i = 0; i < p->n; i++) {
		struct rsocket *rs = p->sockets[i];

		p->asked[i].revents = 0;
		if (!rs)
			continue;
		p->asked[i].revents = state_of(rs);
		if (!(p->asked[i].revents & (p->asked[i].events | POLLERR | POLLHUP))) {
			advance(rs);
			p->asked[i].revents = state_of(rs);
		}
		p->asked[i].revents &= (short)(p->asked[i].events | POLLERR | POLLHUP);
		ready += p->asked[i].revents != 0;
	}
	return ready;
}

/* Polls the ordinary ones in the kernel for the requested events, and the rsockets' *wake_fd* if
 * there is one.  -1 with errno, else the number of ordinary ones that are ready. */
static int ask_kernel(struct polling *p, int wake_fd, int timeout_ms)
{
	int ready = 0;

	for (nfds_t i = 0; i < p->n; i++) {
		struct rsocket *rs = p->sockets[i];

		p->kernel[i] = p->asked[i];
		p->kernel[i].revents = 0;
		if (rs)
			p->kernel[i] = (struct pollfd){ wake_fd < 0 ? -1 : rs->fd, POLLIN, 0 };
	}
	p->kernel[p->n] = (struct pollfd){ wake_fd, POLLIN, 0 };
	if (poll(p->kernel, p->n + 1, timeout_ms) < 0)
		return -1;
	if (p->kernel[p->n].revents)
		rs_wake_clear(wake_fd);
	for (nfds_t i = 0; i < p->n; i++) {
		if (p->sockets[i]) {
			if (p->kernel[i].revents)
				rs_take_events(p->sockets[i]);
			continue;
		}
		p->asked[i].revents = p->kernel[i].revents;
		ready += p->kernel[i].revents != 0;
	}
	return ready;
}

/* The events that are ready now. */
static int poll_once(struct polling *p)
{
	int ready = look(p), ordinary;

	if (!p->any_ordinary)
		return ready;
	ordinary = ask_kernel(p, -1, 0);
	return ordinary < 0 ? -1 : ready + ordinary;
}

static int spin(struct polling *p, int64_t deadline_ns)
{
	int64_t until = rs_now_ns() + rs_defaults()->spin_ns;
	int ready;

	if (until > deadline_ns)
		until = deadline_ns;
	do {
		for (int i = 0; i < 4; i++) {
			ready = look(p);
			if (ready)
				return p->any_ordinary ? poll_once(p) : ready;
		}
	} while (rs_now_ns() < until);
	return 0;
}

static int sleep_until_ready(struct polling *p, int64_t deadline_ns, int wake_fd)
{
	for (;;) {
		int ready, ordinary, timeout_ms;

		for (nfds_t i = 0; i < p->n; i++)
			if (p->sockets[i])
				rs_arm(p->sockets[i]);
		ready = look(p);
		timeout_ms = ready ? 0 : rs_poll_ms(deadline_ns, rs_defaults()->wake_up_max_ms);
		ordinary = ask_kernel(p, wake_fd, timeout_ms);
		if (ordinary < 0)
			return -1;
		if (ready + ordinary || !timeout_ms)
			return ready + ordinary;
	}
}

static int poll_all(struct polling *p, int timeout_ms)
{
	int64_t deadline_ns = timeout_ms < 0 ? RS_FOREVER : rs_now_ns() + timeout_ms * RS_NS_PER_MS;
	int ready = poll_once(p), wake_fd;

	if (ready || !timeout_ms)
		return ready;
	ready = spin(p, deadline_ns);
	if (ready)
		return ready;
	wake_fd = rs_wake_fd();
	if (wake_fd < 0)
		return -1;
	for (nfds_t i = 0; i < p->n; i++) {
		p->waiters[i].wake_fd = wake_fd;
		if (p->sockets[i])
			rs_waiter_link(p->sockets[i], &p->waiters[i]);
	}
	ready = sleep_until_ready(p, deadline_ns, wake_fd);
	for (nfds_t i = 0; i < p->n; i++)
		if (p->sockets[i])
			rs_waiter_unlink(p->sockets[i], &p->waiters[i]);
	return ready;
}

/* As poll(2); -1 with errno EFAULT, EINTR, EINVAL, ENOMEM. */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct rsocket *few_sockets[ON_STACK];
	struct pollfd few_fds[ON_STACK + 1];
	struct rs_waiter few_waiters[ON_STACK];
	struct polling p = { fds, nfds, few_sockets, few_fds, few_waiters, false };
	void *memory = NULL;
	nfds_t n_sockets = 0;
	int ready;

	if (nfds > ON_STACK) {
		if (nfds > INT32_MAX / 64)
			return RS_ERROR(EINVAL);
		memory =
		    calloc(nfds + 1, sizeof(*p.sockets) + sizeof(*p.kernel) + sizeof(*p.waiters));
		if (!memory)
			return RS_ERROR(ENOMEM);
		p.waiters = memory;
		p.sockets = (void *)(p.waiters + nfds);
		p.kernel = (void *)(p.sockets + nfds);
	}
	for (nfds_t i = 0; i < nfds; i++) {
		p.sockets[i] = fds[i].fd < 0 ? NULL : rs_get_quietly(fds[i].fd);
		n_sockets += p.sockets[i] != NULL;
		p.any_ordinary |= !p.sockets[i] && fds[i].fd >= 0;
	}
	ready = n_sockets ? poll_all(&p, timeout) : poll(fds, nfds, timeout);
	for (nfds_t i = 0; i < nfds; i++)
		if (p.sockets[i])
			rs_put(p.sockets[i]);
	free(memory);
	return ready;
}

static int milliseconds(const struct timeval *timeout)
{
	int64_t ms;

	if (!timeout)
		return -1;
	ms = timeout->tv_sec * INT64_C(1000) + (timeout->tv_usec + 999) / 1000;
	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

static bool is_in(int fd, const fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

static int to_set(const struct pollfd *fds, nfds_t n, short events, fd_set *set)
{
	int count = 0;

	for (nfds_t i = 0; set && i < n; i++) {
		if (!FD_ISSET(fds[i].fd, set))
			continue;
		if (fds[i].revents & events)
			count++;
		else
			FD_CLR(fds[i].fd, set);
	}
	return count;
}

/* As select(2), but that the timeout is left as it was; -1 with errno, EBADF for a closed one. */
int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t n = 0;
	int ready;

	if (nfds < 0 || nfds > FD_SETSIZE || (timeout && timeout->tv_sec < 0))
		return RS_ERROR(EINVAL);
	for (int fd = 0; fd < nfds; fd++) {
		short events = 0;

		if (is_in(fd, readfds))
			events |= POLLIN;
		if (is_in(fd, writefds))
			events |= POLLOUT;
		if (is_in(fd, exceptfds))
			events |= POLLPRI;
		if (events)
			fds[n++] = (struct pollfd){ fd, events, 0 };
	}
	ready = rpoll(fds, n, milliseconds(timeout));
	if (ready < 0)
		return -1;
	for (nfds_t i = 0; i < n; i++)
		if (fds[i].revents & POLLNVAL)
			return RS_ERROR(EBADF);
	return to_set(fds, n, POLLIN | POLLHUP | POLLERR, readfds) +
	       to_set(fds, n, POLLOUT | POLLERR, writefds) + to_set(fds, n, POLLPRI, exceptfds);
}
