/* SPDX-License-Identifier: BSD-3-Clause
 * Doorbells between kernels, as the port thread uses them (segment/bell.h). */
#define _GNU_SOURCE
#include "engine/core/wake.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* Under the registry's lock: one bell for all attachments to the fabric. */
static void open_bell(struct nupa_fabric *fabric)
{
	const char *path = getenv("NUPA_BELL");
	char why[320];

	/* Without atomics and coherence no process sees in time that another one sleeps. */
	if (fabric->bell || !path || !*path || !nupa_fabric_machines(fabric) ||
	    fabric->geometry.flags & NUPA_SEGMENT_SOFTWARE)
		return;
	fabric->bell = nupa_bell_open(fabric, path, why, sizeof(why));
	if (!fabric->bell)
		nupa_hint("%s; processes look for messages by themselves", why);
}

/* The port thread waits for both.  All processes of a guest share one eventfd, so none reads it,
 * and each is woken once by every write (EPOLLET). */
static int open_epoll(struct nupa_engine *engine)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	engine->bell_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	engine->bell_epoll = epoll_create1(EPOLL_CLOEXEC);
	if (engine->bell_wake < 0 || engine->bell_epoll < 0 ||
	    epoll_ctl(engine->bell_epoll, EPOLL_CTL_ADD, engine->bell_wake, &event) ||
	    epoll_ctl(engine->bell_epoll, EPOLL_CTL_ADD, engine->fabric->bell->event, &event))
		return -errno;
	return 0;
}

static void close_epoll(struct nupa_engine *engine)
{
	if (engine->bell_wake >= 0)
		close(engine->bell_wake);
	if (engine->bell_epoll >= 0)
		close(engine->bell_epoll);
}

void nupa_bell_attach(struct nupa_engine *engine)
{
	open_bell(engine->fabric);
	if (!engine->fabric->bell)
		return;
	engine->rings = open_epoll(engine) == 0;
	if (!engine->rings)
		close_epoll(engine);
}

void nupa_bell_detach(struct nupa_engine *engine)
{
	if (engine->rings)
		close_epoll(engine);
	engine->rings = false;
}

void nupa_bell_announce(struct nupa_engine *engine)
{
	struct nupa_slot *slot = engine->slot;

	if (!++engine->sleeps)
		engine->sleeps = 1;
	nupa_store_relaxed(&slot->doorbell, nupa_bell_number(engine->fabric));
	(void)nupa_exchange_seq(&slot->asleep, engine->sleeps);
}

void nupa_bell_awake(struct nupa_engine *engine)
{
	nupa_store_release(&engine->slot->asleep, 0);
}

bool nupa_bell_heard_by_all(const struct nupa_engine *engine)
{
	const struct nupa_fabric *fabric = engine->fabric;

	if (!nupa_bell_number(fabric))
		return false;
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++)
		if (NUPA_CLAIM_STATE(nupa_slot_claim(&fabric->slots[i])) == NUPA_SLOT_LIVE &&
		    !nupa_load_relaxed(&fabric->slots[i].doorbell))
			return false;
	return true;
}

void nupa_bell_sleep(struct nupa_engine *engine, uint64_t timeout_ns)
{
	const struct timespec timeout = { (time_t)(timeout_ns / 1000000000),
					  (long)(timeout_ns % 1000000000) };
	struct pollfd fd = { engine->bell_epoll, POLLIN, 0 };
	struct epoll_event events[2];

	/* epoll_wait(2) itself counts in milliseconds. */
	if (ppoll(&fd, 1, &timeout, NULL) > 0)
		(void)epoll_wait(engine->bell_epoll, events, 2, 0);
}

void nupa_bell_wake(struct nupa_engine *engine)
{
	(void)!write(engine->bell_wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void nupa_bell_call(struct nupa_engine *engine, const struct nupa_slot *slot, uint32_t *rung)
{
	uint32_t number, asleep;

	if (!engine->rings)
		return;
	number = nupa_load_relaxed(&slot->doorbell);
	if (!number)
		return;
	/* P3: our message, then `asleep`; the read-modify-write is the fence. */
	(void)nupa_fetch_add_seq(&engine->bell_fence, 0);
	asleep = nupa_load_relaxed(&slot->asleep);
	if (!asleep || asleep == *rung)
		return;
	if (nupa_bell_ring(engine->fabric->bell, number))
		*rung = asleep;
}
