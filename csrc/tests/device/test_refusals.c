/* SPDX-License-Identifier: BSD-3-Clause
 * Devices that cannot be opened: the system denies a call, or a limit is reached.  errno and the
 * reason that is said name the same cause. */
#define _GNU_SOURCE
#include "engine/core/nupa.h"
#include "region/slot_life.h"
#include "segment/segment.h"
#include "tests/support/end.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char why[512];

/* Denies a system call to this process, as a container's profile does.  Each case has its own. */
static void deny(uint32_t number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Sets a soft limit; returns the old one. */
static rlim_t limit(int resource, rlim_t value)
{
	struct rlimit limits;
	rlim_t old;

	CHECK_EQ(getrlimit((__rlimit_resource_t)resource, &limits), 0);
	old = limits.rlim_cur;
	limits.rlim_cur = value;
	CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &limits), 0);
	return old;
}

static void check_refused(struct nupa_fabric *fabric, int error, const char *call,
			  const char *remedy)
{
	errno = 0;
	CHECK(!nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, sizeof(why)));
	CHECK_EQ(errno, error);
	CHECK(strstr(why, call));
	CHECK(strstr(why, strerror(error)));
	CHECK(strstr(why, remedy));
	nupa_fabric_put(fabric);
}

TEST(a_denied_memfd_create_is_named)
{
	struct nupa_fabric *fabric = test_fabric();

	deny(SYS_memfd_create);
	check_refused(fabric, EPERM, "memfd_create", "seccomp profile");
}

TEST(denied_random_numbers_are_named)
{
	struct nupa_fabric *fabric = test_fabric();

	deny(SYS_getrandom);
	check_refused(fabric, EPERM, "getrandom", "seccomp profile");
}

TEST(a_file_size_limit_is_an_error_and_no_signal)
{
	struct nupa_fabric *fabric = test_fabric();

	(void)limit(RLIMIT_FSIZE, 0);
	check_refused(fabric, EFBIG, "pwrite", "ulimit -f");
}

TEST(each_descriptor_that_is_missing_is_named)
{
	struct nupa_fabric *fabric = test_fabric();
	struct ibv_context *context = NULL;
	int next = dup(0);
	rlim_t files, old;

	CHECK(next >= 0);
	close(next);
	old = limit(RLIMIT_NOFILE, (rlim_t)next);
	for (files = (rlim_t)next; !context; files++) {
		(void)limit(RLIMIT_NOFILE, files);
		errno = 0;
		context = nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, sizeof(why));
		CHECK(context || (errno == EMFILE && strstr(why, strerror(EMFILE)) &&
				  strstr(why, "ulimit -n")));
		CHECK(files < (rlim_t)next + 64);
	}
	CHECK(files > (rlim_t)next + 1);
	(void)limit(RLIMIT_NOFILE, old);
	CHECK_EQ(nupa_close_device(context), 0);
	nupa_fabric_put(fabric);
}

TEST(a_null_region_names_the_call_that_is_denied)
{
	struct nupa_fabric *fabric = test_fabric();
	struct ibv_context *context = nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, sizeof(why));
	struct ibv_pd *pd = nupa_alloc_pd(context);

	CHECK(pd);
	deny(SYS_memfd_create);
	errno = 0;
	CHECK(!nupa_alloc_null_mr(pd));
	CHECK_EQ(errno, EPERM);
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	CHECK_EQ(nupa_close_device(context), 0);
	nupa_fabric_put(fabric);
}

static void check_full(uint32_t slots, bool more)
{
	const struct nupa_config config = {
		.slots = slots,
		.ring_lines = 16,
		.dma_bytes = 4096,
		.qp_entries = 64,
		.mr_entries = 64,
		.extent_bytes = 4096,
		.pool_bytes = 4096,
	};
	struct nupa_fabric *fabric = test_fabric_of(&config);
	uint32_t slot;

	for (uint32_t i = 1; i < slots; i++)
		CHECK_EQ(nupa_fabric_claim_slot(fabric, 0, &slot), 0);
	errno = 0;
	CHECK(!nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, sizeof(why)));
	CHECK_EQ(errno, EUSERS);
	CHECK_EQ(strstr(why, "make it with more slots") != NULL, more);
	nupa_fabric_put(fabric);
}

TEST(more_slots_are_advised_only_where_a_fabric_can_have_more)
{
	check_full(NUPA_SLOTS_MAX, false);
	check_full(NUPA_SLOTS_MAX - 1, true);
}
