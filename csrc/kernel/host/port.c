// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The ports of a kernel's attachments, in the place of engine/attachment/port.c: one thread that
 * runs their engines, and a heartbeat each.  No peer rings it, so it naps, and longer the longer
 * there is no traffic.  Meanwhile the watch (watch.c) takes its place.
 */
#include "base/reserve.h"
#include "kernel/host/heart.h"
#include "kernel/host/host.h"
#include "kernel/host/watch.h"
#include "engine/attachment/attachment.h"
#include "engine/cm/hooks.h"
#include "engine/core/wake.h"
#include "engine/queue/queue.h"

#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <uapi/linux/sched/types.h>

#define SLACK_NS 5000u
#define SLICE_NS 100000u

struct nupa_engine *nupa_engines;
uint32_t nupa_engines_readers;
bool nupa_kernel_halted;

struct port {
	struct nupa_engine *engine; /* NULL: it does not run yet, or not any more */
	struct completion left;     /* the thread does not run it any more */
	struct nupa_heart heart;
};

static struct port ports[2];  /* of verbs, and of the network interface */
static DEFINE_SPINLOCK(gate); /* of their engines against the watch */
static struct task_struct *thread;
static bool reaps;                     /* a peer has ended: set with an engine's lock */
static uint64_t wakes_ns = UINT64_MAX; /* the end of the nap; always, unless the thread naps */

#define PORTS_END (ports + ARRAY_SIZE(ports))

static DEFINE_MUTEX(registry);

void nupa_registry_lock(void)
{
	mutex_lock(&registry);
}

void nupa_registry_unlock(void)
{
	mutex_unlock(&registry);
}

uint64_t nupa_clock_ns(void)
{
	return ktime_get_ns();
}

pid_t getpid(void)
{
	return thread ? task_pid_nr(thread) : 0;
}

/* --- the thread ------------------------------------------------------------------------ */

static bool must_run(struct nupa_engine *engine)
{
	return nupa_load_acquire(&engine->stop) || nupa_load_relaxed(&engine->deaths) ||
	       nupa_engine_rings_ready(engine);
}

static void run_cm(struct nupa_engine *engine)
{
	const uint64_t at_ns = nupa_load_acquire(&engine->cm_timer_ns);

	if (likely(!at_ns) || at_ns > engine->now_ns())
		return;
	nupa_engine_lock(engine);
	nupa_cm_run_timers(engine);
	nupa_engine_unlock(engine);
}

/* Says that the thread sleeps: whether the engine has work all the same, or when it will have. */
static bool rest(struct nupa_engine *engine, uint64_t *until_ns)
{
	bool busy;

	nupa_engine_lock(engine);
	nupa_engine_flush(engine);
	*until_ns = min_t(uint64_t, *until_ns, nupa_engine_next_timer_ns(engine));
	nupa_store_release(&engine->own_bell, 1);
	busy = must_run(engine);
	nupa_engine_unlock(engine);
	return busy;
}

/* Until something may be to be done: at most *nap_ns. */
static void nap(uint64_t nap_ns)
{
	const uint64_t now_ns = nupa_clock_ns();
	uint64_t until_ns = now_ns + nap_ns;
	ktime_t timeout;
	bool busy = false;

	/* Set before the look: a wake-up after it is not lost. */
	set_current_state(TASK_IDLE);
	for (struct port *port = ports; port < PORTS_END; port++) {
		struct nupa_engine *engine = nupa_load_acquire(&port->engine);

		if (engine)
			busy |= rest(engine, &until_ns);
	}
	nupa_store_release(&wakes_ns, until_ns);
	timeout = ns_to_ktime(until_ns - now_ns);
	if (!busy && until_ns > now_ns)
		schedule_hrtimeout_range(&timeout, SLACK_NS, HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
	nupa_store_release(&wakes_ns, UINT64_MAX);
	for (struct port *port = ports; port < PORTS_END; port++) {
		struct nupa_engine *engine = nupa_load_acquire(&port->engine);

		if (engine)
			nupa_store_release(&engine->own_bell, 0);
	}
}

/* With bottom halves off: frames for the network stack are taken from us when they are on. */
static uint32_t turn(struct nupa_engine *engine)
{
	uint32_t handled = 0;

	nupa_kernel_completions_hold();
	nupa_engine_lock(engine);
	if (!nupa_load_relaxed(&nupa_kernel_halted))
		handled = nupa_engine_progress(engine);
	nupa_engine_unlock(engine);
	nupa_kernel_completions_tell();
	return handled;
}

/* Whether engines run, and how many messages they have handled. */
static bool run_all(uint32_t *handled)
{
	bool any = false;

	*handled = 0;
	for (struct port *port = ports; port < PORTS_END; port++) {
		struct nupa_engine *engine = nupa_load_acquire(&port->engine);

		if (!engine)
			continue;
		if (nupa_load_acquire(&engine->stop)) {
			spin_lock(&gate);
			nupa_store_release(&port->engine, NULL);
			spin_unlock(&gate);
			complete(&port->left);
		} else if (!nupa_load_acquire(&nupa_kernel_halted)) {
			run_cm(engine);
			local_bh_disable();
			*handled += turn(engine);
			local_bh_enable();
			if (nupa_exchange_seq(&reaps, false))
				nupa_fabric_reap(engine->fabric);
			any = true;
		}
	}
	return any;
}

/* Until an engine begins or ends. */
static void wait_for_engines(void)
{
	bool wanted = false;

	set_current_state(TASK_IDLE);
	for (struct port *port = ports; port < PORTS_END; port++) {
		const struct nupa_engine *engine = nupa_load_acquire(&port->engine);

		wanted |= engine && (nupa_load_acquire(&engine->stop) ||
				     !nupa_load_acquire(&nupa_kernel_halted));
	}
	if (!wanted && !kthread_should_stop())
		schedule();
	__set_current_state(TASK_RUNNING);
}

/* With the engine's lock: whether a turn is of use, by which the next look makes it. */
static bool has_work(const struct nupa_engine *engine)
{
	return nupa_engine_rings_ready(engine) || nupa_engine_owes(engine) ||
	       !nupa_list_empty(&engine->waiting);
}

/* Whether the watch has something to do for an engine while the thread naps. */
static bool may_serve(struct nupa_engine *engine)
{
	bool may;

	if (!nupa_load_acquire(&engine->own_bell))
		return false;
	nupa_engine_lock(engine);
	may = has_work(engine);
	nupa_engine_unlock(engine);
	return may;
}

/* Whether the thread has to do what the watch cannot, or has to wake sooner than it will.  What an
 * engine owes goes with a request, or by the next look. */
static bool thread_must_run(struct nupa_engine *engine)
{
	bool must;

	nupa_engine_lock(engine);
	must =
	    !has_work(engine) && nupa_engine_next_timer_ns(engine) < nupa_load_acquire(&wakes_ns);
	nupa_engine_unlock(engine);
	return must || nupa_load_acquire(&reaps) || !nupa_reserve_is_full();
}

/* In the thread's place. */
static void look(void)
{
	uint32_t handled = 0;
	bool must = false;

	local_bh_disable();
	spin_lock(&gate);
	for (struct port *port = ports; port < PORTS_END; port++) {
		struct nupa_engine *engine = nupa_load_acquire(&port->engine);

		if (!engine || !may_serve(engine))
			continue;
		handled += turn(engine);
		must |= thread_must_run(engine);
	}
	spin_unlock(&gate);
	local_bh_enable();
	if (handled)
		nupa_watch_traffic(nupa_clock_ns());
	if (must)
		wake_up_process(thread);
}

static int port_thread(void *unused)
{
	struct nupa_naps naps = {};

	while (!kthread_should_stop()) {
		uint32_t handled;
		uint64_t nap_ns;

		if (nupa_reserve_fill()) {
			cond_resched();
			continue;
		}
		if (!run_all(&handled)) {
			wait_for_engines();
			continue;
		}
		nap_ns = nupa_watch_nap(&naps, handled);
		if (nap_ns)
			nap(nap_ns);
		else
			cond_resched();
	}
	return 0;
}

int nupa_kernel_port_prepare(void)
{
	/* A short slice: a program that polls does not keep it from running when its nap is over.
	 */
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_NORMAL,
		.sched_runtime = SLICE_NS,
	};
	struct task_struct *made;
	int error = nupa_watch_start(look);

	if (error)
		return error;
	made = kthread_create(port_thread, NULL, "nupa-port");
	if (IS_ERR(made)) {
		nupa_watch_stop();
		return PTR_ERR(made);
	}
	sched_setattr_nocheck(made, &attr);
	thread = get_task_struct(made);
	wake_up_process(thread);
	return 0;
}

void nupa_kernel_port_forget(void)
{
	if (!thread)
		return;
	kthread_stop(thread);
	put_task_struct(thread);
	thread = NULL;
	nupa_watch_stop();
	nupa_reserve_free();
}

/* --- the engine's calls ---------------------------------------------------------------- */

static struct port *port_of(const struct nupa_engine *engine)
{
	for (struct port *port = ports; port < PORTS_END; port++)
		if (nupa_load_acquire(&port->engine) == engine)
			return port;
	return NULL;
}

/* With the registry's lock. */
int nupa_port_start(struct nupa_engine *engine)
{
	struct port *port = port_of(NULL);

	if (!port)
		return -EUSERS;
	engine->membarrier = false;
	nupa_store_release(&engine->slot->needs_fence, 1);
	init_completion(&port->left);
	nupa_store_release(&port->engine, engine);
	wake_up_process(thread);
	nupa_heart_start(&port->heart, engine);
	return 0;
}

/* The thread itself stays: its pid is the slot's owner. */
void nupa_port_stop(struct nupa_engine *engine)
{
	struct port *port = port_of(engine);

	nupa_heart_stop(&port->heart);
	nupa_store_release(&engine->stop, true);
	wake_up_process(thread);
	wait_for_completion(&port->left);
}

void nupa_port_watch(struct nupa_engine *engine, struct nupa_channel *channel)
{
	if (!nupa_channel_same_process(channel) && !nupa_channel_process_alive(channel))
		nupa_store_release(&engine->deaths, true);
}

/* Clearing an arena takes longer than interrupts may be off, as they are with the engine's lock. */
void nupa_port_reap(struct nupa_engine *engine)
{
	nupa_store_release(&reaps, true);
}

void nupa_port_wake(struct nupa_engine *engine)
{
	if (nupa_load_seq(&engine->own_bell))
		wake_up_process(thread);
}

void nupa_port_knock(struct nupa_engine *engine, struct nupa_slot *slot)
{
}

void nupa_port_app_drives(struct nupa_engine *engine)
{
}

void nupa_port_takes_over(struct nupa_engine *engine)
{
	engine->polls_in_row = 0;
}

/* The producers are of other kernels or fence by themselves. */
bool nupa_port_barrier(struct nupa_engine *engine)
{
	return true;
}
