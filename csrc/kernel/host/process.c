// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Processes of this kernel by their pids, in the place of segment/slot/process.c; and files of the
 * segment's owner, which in a kernel is the segment's device.
 */
#include "kernel/host/host.h"
#include "segment/owner.h"
#include "segment/slot/slot.h"

#include <linux/math64.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <uapi/linux/futex.h>

/* As /proc/PID/stat shows it, field 22. */
static uint64_t start_time_of(const struct task_struct *task)
{
	return div_u64(task->start_boottime, NSEC_PER_SEC / USER_HZ);
}

static bool find_process(uint32_t pid, uint64_t *start_time, bool *dead, bool *stopped)
{
	struct task_struct *task;

	rcu_read_lock();
	task = pid ? pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_TGID) : NULL;
	if (task) {
		*start_time = start_time_of(task);
		*dead = READ_ONCE(task->exit_state) && thread_group_empty(task);
		*stopped = task_is_stopped_or_traced(task);
	}
	rcu_read_unlock();
	return task;
}

uint64_t nupa_process_start_time(uint32_t pid)
{
	uint64_t start_time = 0;
	bool dead, stopped;

	return find_process(pid, &start_time, &dead, &stopped) ? start_time : 0;
}

bool nupa_process_stopped(uint32_t pid)
{
	uint64_t start_time;
	bool dead, stopped = false;

	return find_process(pid, &start_time, &dead, &stopped) && stopped;
}

bool nupa_process_alive(uint32_t pid, uint64_t start_time)
{
	uint64_t found;
	bool dead, stopped;

	return find_process(pid, &found, &dead, &stopped) && !dead &&
	       (!start_time || found == start_time);
}

bool nupa_life_is_over(const struct nupa_slot *slot)
{
	return nupa_load_acquire(&slot->life) & FUTEX_OWNER_DIED;
}

bool nupa_life_is_proven(const struct nupa_slot *slot)
{
	return false; /* the mark is of the owner's kernel */
}

bool nupa_slot_foreign(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim)
{
	return nupa_slot_elsewhere(fabric, claim);
}

int nupa_owner_open(const char *path, char *why, size_t why_bytes)
{
	return NUPA_SEGMENT_FD;
}

int nupa_owner_check(const struct stat *status, bool device, const char *path, char *why,
		     size_t why_bytes)
{
	return 0;
}
