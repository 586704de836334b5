/* SPDX-License-Identifier: BSD-3-Clause
 * Sleeping until a socket's state changes: first the thread spins, then it sleeps. */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <signal.h>

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
