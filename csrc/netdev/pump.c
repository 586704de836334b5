/* SPDX-License-Identifier: BSD-3-Clause
 * A pump: one thread that reads TAP queues into channels and runs the pump's own receivers.  The
 * attachment's port thread, which the doorbell wakes, writes frames from other processes to the
 * TAP. Without frames all of them sleep.
 *
 * The way of a frame from host A to host B, both of this pump:
 *   1  epoll_wait     A's TAP is readable
 *   2  nupa_net_room  the likely destination: the ring to that of the last frame
 *   3  read           the kernel copies header and frame into the ring
 *   4  nupa_net_send  its message is published
 *   5  nupa_net_flush B's engine finds it
 *   6  write          the kernel copies it out of the ring into B's TAP, and on to the program */
#define _GNU_SOURCE
#include "netdev/netdev.h"

#include "base/clock.h"
#include "base/explain.h"
#include "netdev/interface.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

/* The interval at which a receiver in another process is asked for room. */
#define ROOM_POLL_NS 50000

/* How long a frame waits for its rate before the rate is looked at again: it may have changed. */
#define RATE_POLL_NS 10000000u

struct nupa_pump {
	struct nupa_fabric *fabric;
	struct nupa_net_siblings siblings;
	struct nupa_interface *interfaces;
	int epoll, wake;
	bool woken;
};

/* --- the loop ------------------------------------------------------------------------ */

static void lose(struct nupa_pump *pump, struct nupa_interface *interface)
{
	struct nupa_interface **at = &pump->interfaces;

	while (*at != interface)
		at = &(*at)->next;
	*at = interface->next;
	nupa_interface_close(interface); /* and so out of the epoll */
	free(interface);
}

enum rest { REST_NONE, REST_SHORT, REST_LONG };

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* until_ns: when a frame may go by its rate, or UINT64_MAX. */
static int wait_for_events(struct nupa_pump *pump, enum rest rest, uint64_t until_ns)
{
	const uint64_t now_ns = until_ns == UINT64_MAX ? 0 : nupa_clock_ns();
	const uint64_t ns = until_ns > now_ns ? until_ns - now_ns : 0;
	const struct timespec no_time = { 0, 0 }, room_time = { 0, ROOM_POLL_NS };
	const struct timespec rate_time = { 0, ns < RATE_POLL_NS ? (long)ns : RATE_POLL_NS };
	const struct timespec *timeout[] = { &no_time, &room_time,
					     until_ns == UINT64_MAX ? NULL : &rate_time };
	struct epoll_event events[64];
	int n;

	if (rest == REST_SHORT && nupa_fabric_machines(pump->fabric)) {
		/* Frames that wait let the epoll return at once; a guest of one processor has
		 * better use for the processor than asking again and again. */
		nanosleep(&room_time, NULL);
		rest = REST_NONE;
	}
	n = epoll_pwait2(pump->epoll, events, 64, timeout[rest], NULL);
	if (n < 0 && errno == ENOSYS) /* before Linux 5.11 */
		n = epoll_wait(pump->epoll, events, 64,
			       rest == REST_LONG && until_ns == UINT64_MAX ? -1 : (int)rest);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		struct nupa_interface *interface = events[i].data.ptr;

		if (interface)
			interface->ready = true;
		else
			pump->woken = true;
	}
	return 0;
}

/* Frames that wait behind one that may not go yet would let each epoll return at once. */
static void mute(struct nupa_pump *pump, struct nupa_interface *interface, bool muted)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = interface };

	if (interface->muted == muted)
		return;
	interface->muted = muted;
	/* A device that is gone is found by the next read. */
	(void)epoll_ctl(pump->epoll, muted ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, interface->fd, &event);
}

static bool is_fenced(const struct nupa_pump *pump)
{
	for (const struct nupa_interface *at = pump->interfaces; at; at = at->next)
		if (nupa_load_acquire(&at->fenced))
			return true;
	return false;
}

int nupa_pump_run(struct nupa_pump *pump, int *host)
{
	enum rest rest = REST_NONE;
	uint64_t until_ns = UINT64_MAX;

	for (;;) {
		int error = wait_for_events(pump, rest, until_ns);
		uint64_t count;

		if (error)
			return error;
		if (pump->woken) {
			pump->woken = false;
			(void)!read(pump->wake, &count, sizeof(count));
			return is_fenced(pump) ? -ESTALE : 0;
		}
		rest = REST_LONG;
		until_ns = UINT64_MAX;
		for (struct nupa_interface *at = pump->interfaces; at; at = at->next) {
			if (!at->ready && !at->blocked)
				continue;
			nupa_interface_turn(at);
			if (unlikely(at->lost)) {
				*host = (int)nupa_net_host(at->net);
				lose(pump, at);
				return -ENODEV;
			}
			mute(pump, at, at->blocked && nupa_net_waits_until_ns(at->net));
			if (at->muted)
				until_ns = earlier(until_ns, nupa_net_waits_until_ns(at->net));
			else if (at->blocked)
				rest = rest == REST_NONE ? rest : REST_SHORT;
			else if (at->ready)
				rest = REST_NONE;
		}
	}
}

void nupa_pump_stop(struct nupa_pump *pump)
{
	(void)!write(pump->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* --- life ---------------------------------------------------------------------------- */

struct nupa_pump *nupa_pump_new(struct nupa_fabric *fabric)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
	struct nupa_pump *pump = calloc(1, sizeof(*pump));
	int error;

	if (!pump)
		return NULL;
	pump->epoll = epoll_create1(EPOLL_CLOEXEC);
	pump->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pump->epoll >= 0 && pump->wake >= 0 &&
	    !epoll_ctl(pump->epoll, EPOLL_CTL_ADD, pump->wake, &event)) {
		pump->fabric = nupa_fabric_get(fabric);
		return pump;
	}
	error = errno;
	if (pump->epoll >= 0)
		close(pump->epoll);
	if (pump->wake >= 0)
		close(pump->wake);
	free(pump);
	errno = error;
	return NULL;
}

void nupa_pump_free(struct nupa_pump *pump)
{
	while (pump->interfaces)
		lose(pump, pump->interfaces);
	close(pump->epoll);
	close(pump->wake);
	nupa_fabric_put(pump->fabric);
	free(pump);
}

int nupa_pump_add(struct nupa_pump *pump, uint32_t host, uint32_t queue, int fd, uint32_t mtu_bytes,
		  char *why, size_t why_bytes)
{
	struct nupa_interface *interface = malloc(sizeof(*interface));
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = interface };
	int error;

	if (!interface)
		return nupa_explain(-ENOMEM, why, why_bytes, "no memory");
	/* First: after a failure here the caller closes it. */
	if (epoll_ctl(pump->epoll, EPOLL_CTL_ADD, fd, &event)) {
		error =
		    nupa_explain(-errno, why, why_bytes, "descriptor %d: %s", fd, strerror(errno));
		free(interface);
		return error;
	}
	error = nupa_interface_open(interface, pump->fabric, host, queue, &pump->siblings, fd,
				    mtu_bytes, pump->wake, why, why_bytes);
	if (error) {
		epoll_ctl(pump->epoll, EPOLL_CTL_DEL, fd, NULL);
		free(interface);
		return error;
	}
	interface->next = pump->interfaces;
	pump->interfaces = interface;
	return 0;
}
