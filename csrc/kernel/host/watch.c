// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A thread that runs the engines while the port's thread naps and nothing else wants the
 * processor: for a while after traffic, as an answer is often not far.  It is of SCHED_IDLE, so it
 * takes no time from others.
 */
#include "kernel/host/watch.h"
#include "kernel/host/host.h"

#include "base/atomics.h"
#include "base/clock.h"

#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <uapi/linux/sched/types.h>

#define WATCH_NS UINT64_C(4000000) /* a request of NFS takes 1 to 2 ms in an emulated guest */
/* While the watch is awake, the end of a nap only costs the others time. */
#define NAP_WATCHED_NS UINT64_C(2000000)
/* A process that polls leaves it no time, and what it waits for is often not far. */
#define NAP_POLLED_NS UINT64_C(50000)
#define SPIN_POLLED_NS UINT64_C(20000)
#define NAP_MAX_NS UINT64_C(20000000)

static struct task_struct *watch;
static void (*port_look)(void);
static uint64_t traffic_ns;

static bool is_awake(uint64_t now_ns)
{
	return now_ns - nupa_load_relaxed(&traffic_ns) < WATCH_NS;
}

static int watch_thread(void *unused)
{
	while (!kthread_should_stop()) {
		set_current_state(TASK_IDLE);
		if (!is_awake(nupa_clock_ns()) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
		port_look();
		cond_resched();
	}
	return 0;
}

/* It rests WATCH_NS after traffic at the earliest. */
void nupa_watch_traffic(uint64_t now_ns)
{
	const bool may_rest = now_ns - traffic_ns > WATCH_NS / 2;

	nupa_store_relaxed(&traffic_ns, now_ns);
	if (may_rest)
		wake_up_process(watch);
}

uint64_t nupa_watch_nap(struct nupa_naps *naps, uint32_t handled)
{
	const bool polled = nupa_load_relaxed(&nupa_kernel_polled);
	const uint64_t now_ns = nupa_clock_ns();

	if (handled) {
		nupa_watch_traffic(now_ns);
		naps->spin_until_ns = now_ns + SPIN_POLLED_NS;
	}
	if (polled && now_ns < naps->spin_until_ns)
		return 0;
	if (is_awake(now_ns))
		naps->latest_ns = polled ? NAP_POLLED_NS : NAP_WATCHED_NS;
	else
		naps->latest_ns = clamp(naps->latest_ns * 2, NAP_POLLED_NS, NAP_MAX_NS);
	return naps->latest_ns;
}

int nupa_watch_start(void (*run)(void))
{
	const struct sched_attr attr = { .size = sizeof(attr), .sched_policy = SCHED_IDLE };
	struct task_struct *made;

	port_look = run;
	made = kthread_create(watch_thread, NULL, "nupa-watch");
	if (IS_ERR(made))
		return PTR_ERR(made);
	sched_setattr_nocheck(made, &attr);
	watch = get_task_struct(made);
	wake_up_process(watch);
	return 0;
}

void nupa_watch_stop(void)
{
	if (!watch)
		return;
	kthread_stop(watch);
	put_task_struct(watch);
	watch = NULL;
}
