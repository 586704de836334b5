/* SPDX-License-Identifier: BSD-3-Clause
 * The thread of a port to a wire: it receives and sends while the program does not poll. */
#define _GNU_SOURCE
#include "engine/wire/wire_internal.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SUPERVISE_NS 1000000 /* how soon the thread sees that the program polls no more */
#define JOIN_MS 1000         /* how often a keeper is asked whose queue is full */
#define SPIN_NS 50000u       /* after what came: to be woken costs the sender some microseconds */

/* Returns how many messages were handled: acknowledgements of them are due with the next turn. */
static uint32_t run(struct nupa_wire *wire)
{
	struct nupa_engine *engine = wire->engine;
	uint32_t handled = 0;

	nupa_engine_lock(engine);
	if (!nupa_load_relaxed(&wire->stop)) {
		if (!wire->frames)
			handled = nupa_wire_receive_kept(wire);
		handled += engine->ops->progress(engine);
		nupa_wires_flush(engine);
	}
	nupa_engine_unlock(engine);
	return handled;
}

/* A keeper whose machine is busy may answer late.  False: it never will. */
static bool join(struct nupa_wire *wire)
{
	int error = nupa_load_relaxed(&wire->joined) ? 0 : -EAGAIN;

	while (error == -EAGAIN && !nupa_load_acquire(&wire->stop)) {
		error = nupa_wire_join(wire, JOIN_MS);
		if (!error)
			run(wire); /* what was sent meanwhile */
		else if (error != -EAGAIN)
			nupa_wire_hint(wire, error);
	}
	return !error;
}

/* At once: the next keeper of the address waits for the socket to be gone. */
static void leave(struct nupa_wire *wire)
{
	nupa_engine_lock(wire->engine);
	nupa_wire_shut(&wire->udp);
	nupa_wire_shut(&wire->raw);
	nupa_wire_shut(&wire->keeper);
	nupa_engine_unlock(wire->engine);
	nupa_store_release(&wire->done, true);
}

static void *wire_thread(void *arg)
{
	struct nupa_wire *wire = arg;
	const struct timespec supervise = { .tv_nsec = SUPERVISE_NS }, at_once = { 0 };
	uint64_t busy_ns = 0;
	uint32_t handled = 0;
	bool kept;

	prctl(PR_SET_NAME, "nupa-wire");
	kept = join(wire);
	while (!nupa_load_acquire(&wire->stop)) {
		bool drives = nupa_load_relaxed(&wire->engine->app_drives);
		struct pollfd fds[] = {
			{ .fd = wire->wake, .events = POLLIN },
			{ .fd = wire->keeper, .events = POLLIN },
			{ .fd = wire->raw < 0 ? wire->udp : wire->raw, .events = POLLIN },
			{ .fd = wire->udp },
		};
		uint64_t count;

		if (nupa_load_relaxed(&wire->blocked))
			fds[wire->frames ? 1 : 3].events |= POLLOUT;
		if (wire->frames && drives)
			fds[1].events = 0;
		/* The socket is the program's while it polls. */
		const nfds_t n = !kept ? 1 : drives ? 2 : 4;
		const struct timespec *patience = kept && drives ? &supervise : NULL;
		const bool spins = kept && !drives && nupa_clock_ns() - busy_ns < SPIN_NS;

		if (ppoll(fds, n, handled || spins ? &at_once : patience, NULL) <= 0 && !handled) {
			if (spins)
				sched_yield();
			continue;
		}
		if (fds[0].revents)
			(void)!read(wire->wake, &count, sizeof(count));
		handled = 0;
		if (fds[1].revents & (POLLHUP | POLLERR))
			kept = false; /* the death watch tells of its end, and stops this thread */
		else
			handled = run(wire);
		if (handled)
			busy_ns = nupa_clock_ns();
	}
	leave(wire);
	return NULL;
}

int nupa_wire_start_thread(struct nupa_wire *wire)
{
	sigset_t all, old;
	int error;

	sigfillset(&all); /* signals are the program's */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&wire->thread, NULL, wire_thread, wire);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -error;
}
