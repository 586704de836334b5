/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of promotion: see promoted.h. */
#define _GNU_SOURCE
#include "tests/support/promoted.h"

#include "tests/support/runner.h"

#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_RANGES 8

size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

bool promotion_works(void)
{
	if (nupa_promote_possible())
		return true;
	printf("  skipped: no userfaultfd that write-protects shared memory (Linux 5.19)\n");
	return false;
}

uint8_t *map_pages(size_t n, int prot)
{
	uint8_t *at = mmap(NULL, n * page(), prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

uint8_t *filled_pages(size_t n, int fill)
{
	return memset(map_pages(n, PROT_READ | PROT_WRITE), fill, n * page());
}

bool is_filled(const uint8_t *at, size_t bytes, uint8_t with)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != with)
			return false;
	return true;
}

struct nupa_shared_range promote_one(void *at, size_t bytes)
{
	struct nupa_shared_range range;

	CHECK_EQ(nupa_promote(at, bytes, &range, 1), 1);
	CHECK(range.va <= (uintptr_t)at && range.va + range.bytes >= (uintptr_t)at + bytes);
	return range;
}

void stays_private(void *at, size_t bytes)
{
	struct nupa_shared_range ranges[N_RANGES];

	CHECK_EQ(nupa_promote(at, bytes, ranges, N_RANGES), 0);
}

uint64_t bytes_in_memfd(void)
{
	struct stat status;

	CHECK_EQ(fstat(nupa_promote_fd(), &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

bool sees_system_calls(void)
{
	FILE *file = fopen("/proc/sys/vm/unprivileged_userfaultfd", "re");
	bool sees = geteuid() == 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0;

	if (file) {
		sees |= fgetc(file) == '1';
		fclose(file);
	}
	return sees;
}

/* A process that changed its user may not look at itself by /proc unless it is dumpable. */
void become_nobody(void)
{
	if (geteuid() == 0)
		CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 &&
		      setresuid(65534, 65534, 65534) == 0 &&
		      prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
}

void filter_system_calls(struct sock_filter *code, uint16_t n)
{
	struct sock_fprog program = { n, code };

	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}
