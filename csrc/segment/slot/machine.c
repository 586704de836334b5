/* SPDX-License-Identifier: BSD-3-Clause
 * Machines of a fabric as its trunk sees them, and whether that trunk lives. */
#include "segment/slot/machine.h"

#include "base/atomics.h"
#include "base/clock.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_NS UINT64_C(1000000000)

bool nupa_trunk_alive(const struct nupa_fabric *fabric)
{
	const uint32_t pid = nupa_fabric_trunk_pid(fabric);
	const struct nupa_trunk_area *area = &fabric->sb->trunk;
	const uint32_t theirs = nupa_load_relaxed(&area->pid_ns);

	if (!pid)
		return false;
	if (theirs && nupa_pid_namespace() && theirs != nupa_pid_namespace())
		return true;
	return nupa_process_alive(pid, nupa_load_relaxed(&area->start_time));
}

uint32_t nupa_fabric_trunk_pid(const struct nupa_fabric *fabric)
{
	return nupa_fabric_has_trunk(fabric) ? nupa_load_acquire(&fabric->sb->trunk.pid) : 0;
}

int nupa_fabric_machine(const struct nupa_fabric *fabric, uint32_t machine,
			struct nupa_machine_info *info)
{
	const struct nupa_machine *seen = &fabric->sb->trunk.seen[machine % NUPA_MACHINES_MAX];

	if (machine >= nupa_fabric_n_machines(fabric))
		return -EINVAL;
	*info = (struct nupa_machine_info){
		.state = nupa_load_relaxed(&seen->state) % NUPA_MACHINE_STATES,
		.own = machine == fabric->geometry.trunk.machine,
		.losses = nupa_load_relaxed(&seen->losses),
		.rtt_ns = nupa_load_relaxed(&seen->rtt_ns),
		.sent_bytes = nupa_load_relaxed(&seen->sent_bytes),
		.sent_messages = nupa_load_relaxed(&seen->sent_messages),
		.received_bytes = nupa_load_relaxed(&seen->received_bytes),
		.received_messages = nupa_load_relaxed(&seen->received_messages),
		.refused = nupa_load_relaxed(&seen->refused),
		.since_ns = nupa_load_relaxed(&seen->since_ns),
	};
	nupa_machine_slots(fabric, machine, &info->first_slot, &info->end_slot);
	/* What a trunk said that is gone does not hold. */
	if (!nupa_trunk_alive(fabric))
		info->state = info->state == NUPA_MACHINE_UP ? NUPA_MACHINE_DOWN : info->state;
	else if (info->own)
		info->state = NUPA_MACHINE_UP;
	return 0;
}

/* --- telling the trunk ------------------------------------------------------------------ */

void nupa_trunk_tell(const struct nupa_fabric *fabric, enum nupa_news kind, uint32_t place,
		     uint32_t at)
{
	struct nupa_trunk_area *area = &fabric->sb->trunk;
	uint64_t n;

	if (!nupa_fabric_has_trunk(fabric))
		return;
	n = nupa_fetch_add_seq(&area->news_tail, 1);
	/* Pairs with the trunk's acquire: the change was stored before. */
	nupa_store_release(&area->news[n % NUPA_TRUNK_NEWS],
			   (n / NUPA_TRUNK_NEWS + 1) << 32 | NUPA_NEWS(kind, place, at));
	nupa_trunk_ring(fabric);
}

/* The trunk's pipe, to be written to; -1: it is not to be had. */
static int open_bell(const struct nupa_fabric *fabric, uint32_t pid)
{
	const uint32_t number = nupa_load_acquire(&fabric->sb->trunk.bell_fd);
	struct stat status;
	char path[64];

	if (!number)
		return -1;
	snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid, number - 1);
	/* Opening something else might do something. */
	if (stat(path, &status) || !S_ISFIFO(status.st_mode))
		return -1;
	/* Not O_WRONLY: a trunk that was killed asleep would cost who rings it a SIGPIPE. */
	return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* That of a former trunk stays open: another thread may be writing to it. */
static int bell_of(const struct nupa_fabric *fabric)
{
	uint64_t *known = (uint64_t *)&fabric->trunk_bell; /* a cache */
	const uint32_t pid = nupa_load_acquire(&fabric->sb->trunk.pid);
	uint64_t seen = nupa_load_acquire(known);
	int fd;

	if (pid && seen >> 32 == pid)
		return (int)(uint32_t)seen - 1;
	fd = pid ? open_bell(fabric, pid) : -1;
	if (fd < 0) {
		nupa_store_relaxed(&fabric->sb->trunk.deaf, 1);
		return -1;
	}
	if (nupa_cas_seq(known, &seen, (uint64_t)pid << 32 | (uint32_t)(fd + 1)))
		return fd;
	close(fd);
	return (int)(uint32_t)seen - 1;
}

void nupa_trunk_ring(const struct nupa_fabric *fabric)
{
	uint32_t *sleeping = &fabric->sb->trunk.sleeping;
	int fd;

	/* P3: what was stored before, then `sleeping`. */
	if (!nupa_fetch_add_seq(sleeping, 0) || !nupa_exchange_seq(sleeping, 0))
		return;
	fd = bell_of(fabric);
	if (fd >= 0)
		(void)!write(fd, "", 1);
}

void nupa_trunk_settle(const struct nupa_fabric *fabric)
{
	const uint64_t until_ns = nupa_clock_ns() + SETTLE_NS;
	struct nupa_trunk_area *area = &fabric->sb->trunk;
	const struct timespec look = { .tv_nsec = 50000000 };
	uint32_t ours, settled;

	if (!nupa_fabric_has_trunk(fabric) || !nupa_trunk_alive(fabric))
		return;
	ours = nupa_fetch_add_seq(&area->wanted, 1) + 1;
	nupa_trunk_ring(fabric);
	while ((int32_t)((settled = nupa_load_acquire(&area->settled)) - ours) < 0 &&
	       nupa_clock_ns() < until_ns && nupa_trunk_alive(fabric))
		syscall(SYS_futex, &area->settled, FUTEX_WAIT, settled, &look, NULL, 0);
}
