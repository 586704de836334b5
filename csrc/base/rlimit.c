/* SPDX-License-Identifier: BSD-3-Clause
 * The limits of this process: rlimit.h. */
#define _GNU_SOURCE
#include "base/rlimit.h"

#include "base/hint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
/* A program takes this besides: rings, stacks of threads, an arena of malloc. */
#define MARGIN_BYTES (160 * MIB)

/* The size of the address space, as proc_pid_statm(5) has it; 0: unknown. */
static uint64_t used_bytes(void)
{
	char text[64] = "";
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	return bytes > 0 ? strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

void nupa_limit_address_space(uint64_t bytes)
{
	int saved = errno;
	uint64_t used = used_bytes();
	uint64_t enough = (used + bytes + MARGIN_BYTES) / MIB;
	struct rlimit limit;

	if (saved == ENOMEM && !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    used + bytes + MARGIN_BYTES > limit.rlim_cur)
		nupa_hint(
		    "the address space of this process is too small: `ulimit -v` allows "
		    "%" PRIu64 " MiB, of which %" PRIu64 " are in use, and %" PRIu64
		    " more are needed: allow %" PRIu64 " MiB (`ulimit -v %" PRIu64 "`) or more",
		    (uint64_t)limit.rlim_cur / MIB, used / MIB, bytes / MIB, enough, enough * 1024);
	errno = saved;
}

bool nupa_limit_allows_file(uint64_t bytes)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < bytes) {
		errno = EFBIG;
		return false;
	}
	return true;
}
