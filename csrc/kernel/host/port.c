// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The port of a kernel attachment, in the place of engine/attachment/port.c: a thread that runs the
 * engine, and a heartbeat.  No peer rings it, so it polls: often after traffic, and less often the
 * longer there is none.
 */
#include "base/reserve.h"
#include "kernel/host/host.h"
#include "engine/attachment/attachment.h"
#include "engine/cm/hooks.h"
#include "engine/core/wake.h"
#include "engine/queue/queue.h"

#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <uapi/linux/sched/types.h>
#include <linux/workqueue.h>

#define SPIN_NS 20000u
#define NAP_MIN_NS 50000u
#define NAP_MAX_NS 10000000u
#define SLACK_NS 5000u
#define SLICE_NS 100000u

struct nupa_engine *nupa_engines;
uint32_t nupa_engines_readers;
bool nupa_kernel_halted;

static struct {
	struct task_struct *thread;
	struct nupa_engine *engine; /* NULL: it does not run yet, or not any more */
	struct completion left;     /* the thread does not run it any more */
	struct delayed_work beat;
} port;

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
	return port.thread ? task_pid_nr(port.thread) : 0;
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

/* Until something may be to be done: at most *nap_ns, which grows. */
static void nap(struct nupa_engine *engine, uint64_t *nap_ns)
{
	uint64_t now_ns = engine->now_ns(), timer_ns, left_ns;
	ktime_t timeout;
	bool busy;

	nupa_engine_lock(engine);
	nupa_engine_flush(engine);
	timer_ns = nupa_engine_next_timer_ns(engine);
	/* Set before the look: a wake-up after it is not lost. */
	set_current_state(TASK_IDLE);
	nupa_store_release(&engine->own_bell, 1);
	busy = must_run(engine);
	nupa_engine_unlock(engine);
	left_ns = timer_ns > now_ns ? timer_ns - now_ns : 0;
	if (left_ns > *nap_ns)
		left_ns = *nap_ns;
	timeout = ns_to_ktime(left_ns);
	if (!busy && left_ns)
		schedule_hrtimeout_range(&timeout, SLACK_NS, HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
	nupa_store_release(&engine->own_bell, 0);
	*nap_ns = min_t(uint64_t, *nap_ns * 2, NAP_MAX_NS);
}

static void run(struct nupa_engine *engine)
{
	uint64_t spin_until_ns = 0, nap_ns = NAP_MIN_NS, now_ns;

	while (!nupa_load_acquire(&engine->stop) && !nupa_load_acquire(&nupa_kernel_halted)) {
		uint32_t handled;

		if (nupa_reserve_fill()) {
			cond_resched();
			continue;
		}
		run_cm(engine);
		nupa_engine_lock(engine);
		handled = nupa_engine_progress(engine);
		now_ns = engine->now_ns();
		nupa_engine_unlock(engine);
		if (handled) {
			spin_until_ns = now_ns + SPIN_NS;
			nap_ns = NAP_MIN_NS;
		}
		if (now_ns < spin_until_ns)
			cond_resched();
		else
			nap(engine, &nap_ns);
	}
}

static int port_thread(void *unused)
{
	while (!kthread_should_stop()) {
		struct nupa_engine *engine = nupa_load_acquire(&port.engine);

		if (engine) {
			run(engine);
			nupa_store_release(&port.engine, NULL);
			complete(&port.left);
			continue;
		}
		set_current_state(TASK_IDLE);
		if (!nupa_load_acquire(&port.engine) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
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
	struct task_struct *thread = kthread_run(port_thread, NULL, "nupa-port");

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	sched_setattr_nocheck(thread, &attr);
	port.thread = get_task_struct(thread);
	return 0;
}

void nupa_kernel_port_forget(void)
{
	if (!port.thread)
		return;
	kthread_stop(port.thread);
	put_task_struct(port.thread);
	port.thread = NULL;
	nupa_reserve_free();
}

/* --- the heartbeat --------------------------------------------------------------------- */

/* Whether a process of this kernel has ended to which a channel is open. */
static bool neighbour_ended(struct nupa_engine *engine)
{
	bool ended = false;

	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots && !ended; peer++) {
		const struct nupa_channel *channel = engine->channels[peer];

		ended = channel && !channel->broken && !channel->foreign &&
			!nupa_channel_process_alive(channel);
	}
	return ended;
}

static void stand_down(struct nupa_engine *engine)
{
	const struct ibv_async_event event = { .event_type = IBV_EVENT_DEVICE_FATAL };

	nupa_hint("this kernel stood still for so long that others declared it dead: load the "
		  "modules again");
	nupa_engine_lock(engine);
	nupa_store_release(&nupa_kernel_halted, true);
	for (struct nupa_list *at = engine->contexts.next; at != &engine->contexts; at = at->next)
		nupa_event_raise(container_of(at, struct nupa_context, link), &event);
	nupa_engine_unlock(engine);
	wake_up_process(port.thread);
}

static void beat(struct work_struct *work)
{
	struct nupa_engine *engine = port.engine;
	struct nupa_slot *slot = engine->slot;
	bool ended;

	if (nupa_slot_claim(slot) != engine->claim) {
		stand_down(engine);
		return;
	}
	nupa_store_release(&slot->heartbeat, nupa_load_relaxed(&slot->heartbeat) + 1);
	nupa_engine_lock(engine);
	ended = neighbour_ended(engine);
	nupa_engine_unlock(engine);
	if (nupa_beat_look(engine->fabric, nupa_clock_ns()) || ended) {
		nupa_store_release(&engine->deaths, true);
		nupa_port_wake(engine);
	}
	schedule_delayed_work(&port.beat, msecs_to_jiffies(NUPA_BEAT_MS));
}

/* --- the engine's calls ---------------------------------------------------------------- */

int nupa_port_start(struct nupa_engine *engine)
{
	engine->membarrier = false;
	nupa_store_release(&engine->slot->needs_fence, 1);
	INIT_DELAYED_WORK(&port.beat, beat);
	init_completion(&port.left);
	nupa_store_release(&port.engine, engine);
	wake_up_process(port.thread);
	schedule_delayed_work(&port.beat, 0);
	return 0;
}

/* The thread itself stays: its pid is the slot's owner. */
void nupa_port_stop(struct nupa_engine *engine)
{
	cancel_delayed_work_sync(&port.beat);
	nupa_store_release(&engine->stop, true);
	wake_up_process(port.thread);
	wait_for_completion(&port.left);
}

void nupa_port_watch(struct nupa_engine *engine, struct nupa_channel *channel)
{
	if (!nupa_channel_same_process(channel) && !nupa_channel_process_alive(channel))
		nupa_store_release(&engine->deaths, true);
}

void nupa_port_wake(struct nupa_engine *engine)
{
	if (nupa_load_seq(&engine->own_bell))
		wake_up_process(port.thread);
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
