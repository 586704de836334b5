/* SPDX-License-Identifier: BSD-3-Clause
 * The thread that stands for the kernel: it takes mail, ends requests that were not answered in
 * time, and closes the ports whose descriptor the program closed. */
#define _GNU_SOURCE
#include "shim/umad/umad.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONGEST_MS 60000

static pid_t served; /* the process that has the thread: not its children */
static int wake_fd = -1;

void nupa_umad_wake(void)
{
	const uint64_t one = 1;

	if (wake_fd >= 0)
		(void)syscall(SYS_write, wake_fd, &one, sizeof(one));
}

static void take_mail(struct nupa_umad_port *port)
{
	struct nupa_umad_message message;
	uint8_t *data;
	int rc;

	do {
		rc = nupa_umad_take(port->mailbox, MSG_DONTWAIT, &message, &data);
		if (!rc)
			nupa_umad_deliver(port, &message, data);
		free(data);
	} while (!rc || rc == -EPROTO);
}

/* When the next request ends, in ms. */
static int expire(struct nupa_umad_port *port, uint64_t now_ns)
{
	uint64_t next_ns = now_ns + LONGEST_MS * UINT64_C(1000000);

	for (struct nupa_umad_pending **at = &port->pending; *at;) {
		struct nupa_umad_pending *pending = *at;

		if (pending->until_ns > now_ns) {
			if (pending->until_ns < next_ns)
				next_ns = pending->until_ns;
			at = &pending->next;
			continue;
		}
		*at = pending->next;
		nupa_umad_expire(port, pending);
		free(pending);
	}
	return (int)((next_ns - now_ns) / 1000000) + 1;
}

/* Two descriptors a port, then the one that wakes. */
static nfds_t list(struct pollfd polled[2 * NUPA_UMAD_PORTS + 1])
{
	nfds_t n = 0;

	for (uint32_t i = 0; i < NUPA_UMAD_PORTS; i++) {
		const struct nupa_umad_port *port = &nupa_umad.ports[i];

		polled[n++] = (struct pollfd){ .fd = port->used ? port->ours : -1 };
		polled[n++] =
		    (struct pollfd){ .fd = port->used ? port->mailbox : -1, .events = POLLIN };
	}
	polled[n++] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };
	return n;
}

/* Returns for how long nothing ends. */
static int serve_ports(const struct pollfd polled[2 * NUPA_UMAD_PORTS + 1])
{
	const uint64_t now_ns = nupa_clock_ns();
	int timeout_ms = LONGEST_MS;

	for (uint32_t i = 0; i < NUPA_UMAD_PORTS; i++) {
		struct nupa_umad_port *port = &nupa_umad.ports[i];
		int next_ms;

		/* Of another port that had this place while we waited: looked at again. */
		if (!port->used || (polled[2 * i].fd >= 0 && polled[2 * i].fd != port->ours))
			continue;
		if (polled[2 * i].fd >= 0 && polled[2 * i].revents & (POLLHUP | POLLERR)) {
			nupa_umad_close(port);
			continue;
		}
		take_mail(port);
		next_ms = expire(port, now_ns);
		if (next_ms < timeout_ms)
			timeout_ms = next_ms;
	}
	return timeout_ms;
}

static void *serve(void *argument)
{
	struct pollfd polled[2 * NUPA_UMAD_PORTS + 1];
	int timeout_ms = 0;
	uint64_t count;
	nfds_t n;

	(void)argument;
	for (;;) {
		nupa_umad_lock();
		n = list(polled);
		nupa_umad_unlock();
		if (poll(polled, n, timeout_ms) < 0 && errno != EINTR)
			return NULL;
		if (polled[n - 1].revents)
			(void)syscall(SYS_read, wake_fd, &count, sizeof(count));
		nupa_umad_lock();
		timeout_ms = serve_ports(polled);
		nupa_umad_unlock();
	}
}

int nupa_umad_serve(void)
{
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (served == getpid())
		return 0;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -error;
	pthread_detach(thread);
	served = getpid();
	return 0;
}
