// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * A thread that looks at the rings while the port's thread naps and nothing else wants the
 * processor: for a while after traffic, as an answer is often not far.  It is of SCHED_IDLE, so it
 * takes no time from others, and wakes the port's thread.
 */
#include "kernel/host/watch.h"

#include "base/atomics.h"
#include "base/clock.h"

#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <uapi/linux/sched/types.h>

#define WATCH_NS UINT64_C(4000000) /* a request of NFS takes 1 to 2 ms in an emulated guest */

static struct task_struct *watch;
static void (*look)(void);
static uint64_t traffic_ns;

static bool has_time(void)
{
	return nupa_clock_ns() - nupa_load_relaxed(&traffic_ns) < WATCH_NS;
}

static int watch_thread(void *unused)
{
	while (!kthread_should_stop()) {
		set_current_state(TASK_IDLE);
		if (!has_time() && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
		look();
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

int nupa_watch_start(void (*looks)(void))
{
	const struct sched_attr attr = { .size = sizeof(attr), .sched_policy = SCHED_IDLE };
	struct task_struct *made;

	look = looks;
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
