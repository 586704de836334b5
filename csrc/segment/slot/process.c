/* SPDX-License-Identifier: BSD-3-Clause
 * Whether the process that owns a slot still exists.  A pid alone does not say: it is given
 * out again; pid and start time together name one process (proc(5), /proc/PID/stat). */
#include "base/atomics.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct stat_fields {
	char state;
	long threads;
	uint64_t start_time;
};

/* proc(5): fields 3, 20 and 22.  0, or a negative errno. */
static int read_stat(uint32_t pid, struct stat_fields *fields)
{
	char path[32], text[1024];
	const char *rest;
	ssize_t bytes;
	int fd;

	/* QEMU's user mode emulates a process's own /proc/PID/stat, with another start time than
	 * its peers read.  It recognizes the file by this name, so the path has a `.` in it. */
	snprintf(path, sizeof(path), "/proc/./%" PRIu32 "/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	bytes = read(fd, text, sizeof(text) - 1);
	if (bytes < 0)
		bytes = -errno;
	close(fd);
	if (bytes < 0)
		return (int)bytes;
	text[bytes] = 0;
	/* The command name, field 2, may hold blanks and parentheses: count from the last one. */
	rest = strrchr(text, ')');
	if (!rest || sscanf(rest + 1,
			    " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			    "%ld %*s %" SCNu64,
			    &fields->state, &fields->threads, &fields->start_time) != 3)
		return -EBADMSG;
	return 0;
}

uint64_t nupa_process_start_time(uint32_t pid)
{
	struct stat_fields fields;

	return read_stat(pid, &fields) ? 0 : fields.start_time;
}

bool nupa_process_stopped(uint32_t pid)
{
	struct stat_fields fields;

	return !read_stat(pid, &fields) && (fields.state == 'T' || fields.state == 't');
}

bool nupa_process_alive(uint32_t pid, uint64_t start_time)
{
	struct stat_fields fields;

	if (pid == 0 || pid > INT32_MAX)
		return false;
	if (kill((pid_t)pid, 0) < 0 && errno == ESRCH)
		return false;
	if (read_stat(pid, &fields))
		/* Gone in between, or no /proc: then the pid is all there is. */
		return kill((pid_t)pid, 0) == 0 || errno != ESRCH;
	/* A zombie is dead, unless only its first thread has ended. */
	if ((fields.state == 'Z' || fields.state == 'X') && fields.threads <= 1)
		return false;
	return start_time == 0 || fields.start_time == start_time;
}

bool nupa_life_is_over(const struct nupa_slot *slot)
{
	return nupa_load_acquire(&slot->life) & FUTEX_OWNER_DIED;
}

bool nupa_life_is_proven(const struct nupa_slot *slot)
{
	const uint32_t life = nupa_load_acquire(&slot->life);

	return life && !(life & FUTEX_OWNER_DIED);
}

/* A namespace that we do not know is taken for ours. */
bool nupa_slot_foreign(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim)
{
	uint32_t theirs = nupa_load_relaxed(&fabric->slots[slot].pid_ns);
	uint32_t ours = theirs ? nupa_pid_namespace() : 0;

	return nupa_slot_elsewhere(fabric, claim) || (ours && theirs != ours);
}
