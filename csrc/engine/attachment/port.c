/* SPDX-License-Identifier: BSD-3-Clause
 * The port runs an attachment when its program does not poll.  The port thread runs the engine and
 * sleeps on the doorbell; the death watch sleeps on the peers' pidfds and pipes.
 *
 *   sleeping       the port thread waits on *engine->bell == 1; producers ring
 *   app_drives     the program spins on poll_cq; the thread only looks in every millisecond
 *   else           it runs the engine, and continues for SPIN_NS after the last message
 *
 * Where several kernels share a segment, producers cannot ring that bell.  It is private to this
 * process then, and the thread polls: often after traffic, and less often the longer there is none.
 * Or it sleeps until a doorbell rings, if all others have one, too (bell.h). */
#define _GNU_SOURCE
#include "engine/attachment/attachment.h"
#include "engine/cm/hooks.h"
#include "engine/core/lane.h"
#include "segment/slot/machine.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 20000u
#define SUPERVISE_NS 1000000u
/* Fewer polls in that time are of a program that does not spin. */
#define SPINNING_POLLS 128u
#define HELD_BACK_POLL_NS 50000u
#define DEATH_POLL_MS 50 /* where the descriptors below are not to be had */
#define WATCHED_MAX 32u  /* peers by two descriptors each: a process may have 1,024 in all */
#define NAP_MIN_NS 50000u
#define NAP_MAX_NS 2000000u

static void futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec timeout = { (time_t)(timeout_ns / 1000000000),
				    (long)(timeout_ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns == UINT64_MAX ? NULL : &timeout,
		NULL, 0);
}

static bool membarrier_register(void)
{
#ifdef __SANITIZE_THREAD__
	return false; /* TSan knows fences only */
#endif
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/* C3: announces sleep, then makes sure that every producer either sees it or had its message seen
 * by the caller's next look at the rings. */
static void announce_sleep(struct nupa_engine *engine)
{
	if (engine->rings) {
		nupa_bell_announce(engine);
		(void)nupa_exchange_seq(engine->bell, NUPA_AT_DOORBELL);
		return;
	}
	(void)nupa_exchange_seq(engine->bell, NUPA_ON_FUTEX);
	(void)nupa_port_barrier(engine);
}

static bool must_run(struct nupa_engine *engine)
{
	return nupa_load_acquire(&engine->stop) || nupa_load_relaxed(&engine->app_drives) ||
	       nupa_load_relaxed(&engine->deaths) || nupa_engine_rings_ready(engine);
}

/* The lock is shared, and there is nothing to do but to tell what the lanes have moved. */
static bool port_is_idle(struct nupa_engine *engine)
{
	bool idle;

	if (!engine->port_shares || !nupa_lock_enter(&engine->lock))
		return false;
	nupa_lanes_tell(engine);
	idle = !must_run(engine) && !engine->cm_owes && !nupa_engine_owes(engine) &&
	       nupa_engine_next_timer_ns(engine) > engine->now_ns() + SUPERVISE_NS;
	nupa_lock_leave();
	return idle;
}

/* Sleeps beside lanes, if there is nothing else to do. */
static bool port_sleeps_beside(struct nupa_engine *engine)
{
	bool idle;

	if (!port_is_idle(engine))
		return false;
	announce_sleep(engine);
	idle = port_is_idle(engine);
	if (idle)
		futex_wait(engine->bell, NUPA_ON_FUTEX, SUPERVISE_NS);
	nupa_store_release(engine->bell, 0);
	return idle;
}

/* What lanes have moved, or had when the lock was shared last. */
static void tell_lanes(struct nupa_engine *engine)
{
	if (likely(!nupa_load_relaxed(&engine->lanes_untold)))
		return;
	if (engine->port_shares && nupa_lock_enter(&engine->lock)) {
		nupa_lanes_tell(engine);
		nupa_lock_leave();
		return;
	}
	nupa_engine_lock(engine);
	nupa_lanes_tell(engine);
	nupa_store_relaxed(&engine->lanes_untold, false);
	nupa_engine_unlock(engine);
}

/* A process that cannot be rung polls often; less often, the less traffic there is. */
static uint64_t limit_nap(struct nupa_engine *engine, uint64_t timeout_ns, uint64_t *nap_ns)
{
	uint64_t nap = *nap_ns;

	if (engine->rings && nupa_bell_heard_by_all(engine))
		return timeout_ns < NUPA_BELL_SLEEP_NS ? timeout_ns : NUPA_BELL_SLEEP_NS;
	if (timeout_ns <= nap)
		return timeout_ns;
	*nap_ns = nap < NAP_MAX_NS / 2 ? nap * 2 : NAP_MAX_NS;
	return nap;
}

/* Returns when there may be something to do. */
static void port_sleep(struct nupa_engine *engine, uint64_t *nap_ns)
{
	uint64_t now_ns = engine->now_ns();
	uint64_t timer_ns, timeout_ns = UINT64_MAX;
	bool busy;

	announce_sleep(engine);
	nupa_engine_lock(engine);
	timer_ns = nupa_engine_next_timer_ns(engine);
	busy = must_run(engine);
	nupa_engine_unlock(engine);
	if (timer_ns != UINT64_MAX)
		timeout_ns = timer_ns > now_ns ? timer_ns - now_ns : 0;
	if (engine->polls_bell)
		timeout_ns = limit_nap(engine, timeout_ns, nap_ns);
	if (!busy && timeout_ns && engine->rings)
		nupa_bell_sleep(engine, timeout_ns);
	else if (!busy && timeout_ns)
		futex_wait(engine->bell, NUPA_ON_FUTEX, timeout_ns);
	nupa_store_release(engine->bell, 0);
	if (engine->rings)
		nupa_bell_awake(engine);
}

/* The program polls: make sure that it goes on doing so. */
static void port_supervise(struct nupa_engine *engine)
{
	uint32_t polls = nupa_load_relaxed(&engine->polls);

	futex_wait(engine->bell, 0, SUPERVISE_NS);
	polls = nupa_load_relaxed(&engine->polls) - polls;
	if (!polls)
		nupa_store_relaxed(&engine->app_drives, false);
	nupa_store_relaxed(&engine->spins, polls >= SPINNING_POLLS);
	if (polls && polls < SPINNING_POLLS) { /* what waits for a time waits for us, too */
		nupa_engine_lock(engine);
		nupa_sq_run_timed(engine);
		nupa_engine_unlock(engine);
	}
	if (engine->looks) {
		nupa_engine_lock(engine);
		nupa_engine_look(engine, engine->now_ns());
		nupa_engine_unlock(engine);
	}
	tell_lanes(engine);
}

static bool cm_timer_due(const struct nupa_engine *engine)
{
	const uint64_t at_ns = nupa_load_acquire(&engine->cm_timer_ns);

	return unlikely(at_ns) && at_ns <= engine->now_ns();
}

static void *port_thread(void *arg)
{
	struct nupa_engine *engine = arg;
	uint64_t spin_until_ns = 0, nap_ns = NAP_MIN_NS;

	prctl(PR_SET_NAME, "nupa-port");
	nupa_engine_lock(engine);
	engine->port_shares = nupa_lock_join(&engine->lock) >= 0;
	nupa_engine_unlock(engine);
	while (!nupa_load_acquire(&engine->stop)) {
		uint32_t handled;
		uint64_t now_ns;

		if (unlikely(cm_timer_due(engine))) {
			nupa_engine_lock(engine);
			nupa_cm_run_timers(engine);
			nupa_engine_unlock(engine);
		}
		if (unlikely(nupa_load_relaxed(&engine->late_key)))
			nupa_mr_share_late(engine);
		if (nupa_load_relaxed(&engine->app_drives)) {
			port_supervise(engine);
			continue;
		}
		if (port_sleeps_beside(engine))
			continue;
		nupa_engine_lock(engine);
		nupa_store_relaxed(&engine->held_back, false);
		if (engine->looks)
			nupa_engine_look(engine, engine->now_ns());
		if (nupa_load_relaxed(&engine->lanes_untold)) {
			nupa_lanes_tell(engine);
			nupa_store_relaxed(&engine->lanes_untold, false);
		}
		handled = nupa_engine_progress(engine);
		now_ns = engine->now_ns();
		nupa_engine_unlock(engine);
		if (unlikely(nupa_load_relaxed(&engine->held_back))) {
			/* Give the program the core. */
			futex_wait(engine->bell, 0, HELD_BACK_POLL_NS);
			continue;
		}
		if (handled) {
			spin_until_ns = now_ns + SPIN_NS;
			nap_ns = NAP_MIN_NS;
		}
		if (now_ns < spin_until_ns) {
			sched_yield();
			continue;
		}
		nupa_engine_lock(engine);
		nupa_engine_flush(engine);
		nupa_engine_unlock(engine);
		port_sleep(engine, &nap_ns);
	}
	return NULL;
}

/* --- death watch --------------------------------------------------------------------- */

static void watch_by_time(struct nupa_engine *engine, bool *how)
{
	nupa_store_release(how, true);
	(void)!write(engine->watch_wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* A peer on another machine is lost with our trunk, if the latter does not tell before. */
static void watch_trunk(struct nupa_engine *engine, struct nupa_channel *channel)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };
	const uint32_t pid = nupa_fabric_trunk_pid(engine->fabric);

	channel->pidfd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	event.data.fd = channel->pidfd;
	if (channel->pidfd < 0 ||
	    epoll_ctl(engine->watch_epoll, EPOLL_CTL_ADD, channel->pidfd, &event))
		watch_by_time(engine, &engine->watch_polls);
	if (!nupa_channel_process_alive(channel))
		nupa_store_release(&engine->deaths, true);
}

/* False: there is no proof of life to look at. */
static bool watch_life(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	if (!nupa_load_relaxed(&channel->peer_slot->life))
		return false;
	watch_by_time(engine, &engine->watch_lives);
	return true;
}

/* By its proof of life, which the kernel has marked. */
static bool peer_ended(const struct nupa_engine *engine)
{
	const struct nupa_fabric *fabric = engine->fabric;

	for (uint32_t peer = 1; peer < fabric->geometry.n_slots; peer++)
		if (nupa_load_relaxed(nupa_contact(fabric, engine->slot_index, peer)) &&
		    nupa_life_is_over(&fabric->slots[peer]))
			return true;
	return false;
}

void nupa_port_reap(struct nupa_engine *engine)
{
	nupa_fabric_reap(engine->fabric);
}

void nupa_port_watch(struct nupa_engine *engine, struct nupa_channel *channel)
{
	/* One shot: who has ended stays readable until nupa_channel_fail closes it. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };
	bool watched = false;
	int fd;

	if (nupa_channel_same_process(channel))
		return;
	if (channel->trunked) {
		watch_trunk(engine, channel);
		return;
	}
	if (engine->n_watched >= WATCHED_MAX && watch_life(engine, channel)) {
		if (!nupa_channel_process_alive(channel))
			nupa_store_release(&engine->deaths, true);
		return;
	}
	fd = channel->foreign ? -1 : (int)syscall(SYS_pidfd_open, channel->peer_pid, 0);
	if (fd >= 0) {
		event.data.fd = channel->pidfd = fd;
		engine->n_watched++;
		watched = epoll_ctl(engine->watch_epoll, EPOLL_CTL_ADD, fd, &event) == 0 &&
			  nupa_life_watch(engine, channel);
	}
	if (!nupa_channel_process_alive(channel)) { /* died between claim and here */
		nupa_store_release(&engine->deaths, true);
	} else if (!watched && !engine->polls_bell) {
		/* No such descriptors here: look every DEATH_POLL_MS. */
		watch_by_time(engine, &engine->watch_polls);
	}
}

/* Ours, and those of others.  Nothing here waits for the lock: its holder may take long, and we
 * would be declared dead. */
static void beat(struct nupa_engine *engine)
{
	struct nupa_slot *slot = engine->slot;

	if (nupa_slot_claim(slot) != engine->claim) {
		/* Stopped for too long, and given up by others. */
		nupa_store_release(&engine->fenced, true);
	} else {
		nupa_store_release(&slot->heartbeat, nupa_load_relaxed(&slot->heartbeat) + 1);
		if (engine->looks)
			nupa_engine_show(engine);
		if (!nupa_beat_look(engine->fabric, nupa_clock_ns(), &engine->silences))
			return;
	}
	nupa_store_release(&engine->deaths, true);
	nupa_port_wake(engine);
	if (nupa_lock_try(&engine->lock)) {
		nupa_engine_progress(engine);
		nupa_engine_unlock(engine);
	}
}

static void *watch_thread(void *arg)
{
	struct nupa_engine *engine = arg;

	prctl(PR_SET_NAME, "nupa-watch");
	nupa_life_begin(engine);
	while (!nupa_load_acquire(&engine->stop)) {
		struct epoll_event event;
		const bool polls = nupa_load_acquire(&engine->watch_polls);
		const bool lives = nupa_load_acquire(&engine->watch_lives);
		const int timeout_ms = engine->polls_bell ? NUPA_BEAT_MS
				       : polls || lives   ? DEATH_POLL_MS
							  : -1;
		int n = epoll_wait(engine->watch_epoll, &event, 1, timeout_ms);

		if (engine->polls_bell)
			beat(engine);
		else if (n == 0 && !polls && !peer_ended(engine))
			continue;
		if (n == 1 && engine->rings && event.data.fd == engine->fabric->bell->server) {
			nupa_bell_hear(engine->fabric->bell);
			continue;
		}
		if (n == 1 && event.data.fd == engine->watch_wake) {
			uint64_t count;

			(void)!read(engine->watch_wake, &count, sizeof(count));
			continue;
		}
		if (n >= 0 && !(n == 0 && engine->polls_bell)) {
			/* Here and now: on a busy machine each thread that has to wake up first
			 * makes partners wait. */
			nupa_store_release(&engine->deaths, true);
			nupa_engine_lock(engine);
			nupa_engine_progress(engine);
			nupa_engine_unlock(engine);
		}
	}
	nupa_life_end(engine);
	return NULL;
}

static int start_thread(pthread_t *thread, void *(*run)(void *), struct nupa_engine *engine)
{
	sigset_t all, old;
	int error;

	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(thread, NULL, run, engine);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -error;
}

/* Watches the bell server's socket, which tells of clients that come and go. */
static void watch_bell(struct nupa_engine *engine)
{
	/* Edge-triggered: after the server's end the socket stays readable. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	if (!engine->rings || engine->fabric->bell->server < 0)
		return;
	event.data.fd = engine->fabric->bell->server;
	/* On failure the messages are read when a client is to be rung. */
	(void)epoll_ctl(engine->watch_epoll, EPOLL_CTL_ADD, event.data.fd, &event);
}

int nupa_port_start(struct nupa_engine *engine)
{
	struct epoll_event event = { .events = EPOLLIN };
	int error;

	engine->membarrier = membarrier_register();
	/* Before a peer can know a key of ours.  No barrier reaches another kernel's processes. */
	nupa_store_release(&engine->slot->needs_fence,
			   engine->polls_bell || !engine->membarrier || !nupa_barrier());
	engine->watch_epoll = epoll_create1(EPOLL_CLOEXEC);
	engine->watch_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.fd = engine->watch_wake;
	if (engine->watch_epoll < 0 || engine->watch_wake < 0 ||
	    epoll_ctl(engine->watch_epoll, EPOLL_CTL_ADD, engine->watch_wake, &event)) {
		error = -errno;
		goto close_fds;
	}
	error = nupa_life_open(engine);
	if (error)
		goto close_fds;
	watch_bell(engine);
	error = start_thread(&engine->port_thread, port_thread, engine);
	if (error)
		goto close_life;
	error = start_thread(&engine->watch_thread, watch_thread, engine);
	if (!error) {
		nupa_promote_count_own_threads(2);
		nupa_life_await(engine);
		return 0;
	}
	nupa_store_release(&engine->stop, true);
	nupa_port_wake_hard(engine);
	pthread_join(engine->port_thread, NULL);
close_life:
	close(engine->life_fd);
close_fds:
	close(engine->watch_epoll);
	close(engine->watch_wake);
	return error;
}

void nupa_port_stop(struct nupa_engine *engine)
{
	nupa_promote_count_own_threads(-2);
	nupa_store_release(&engine->stop, true);
	nupa_port_wake_hard(engine);
	(void)!write(engine->watch_wake, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_join(engine->port_thread, NULL);
	pthread_join(engine->watch_thread, NULL);
	close(engine->life_fd);
	close(engine->watch_epoll);
	close(engine->watch_wake);
}
