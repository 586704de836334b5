/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion and the proof that nothing is pinned: which open files count, and what it costs. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"
#include "tests/support/promoted.h"
#include "tests/support/runner.h"
#include "tests/promote/uring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* --- open files ---------------------------------------------------------------------- */

TEST(ordinary_files_pin_nothing)
{
	sigset_t signals;
	int ends[2];

	if (!promotion_works())
		return;
	CHECK(nupa_pins_excluded());
	sigemptyset(&signals);
	CHECK(eventfd(0, 0) >= 0);
	CHECK(epoll_create1(0) >= 0);
	CHECK(timerfd_create(CLOCK_MONOTONIC, 0) >= 0);
	CHECK(signalfd(-1, &signals, 0) >= 0);
	CHECK(inotify_init() >= 0);
	CHECK(memfd_create("test", 0) >= 0);
	CHECK(syscall(SYS_pidfd_open, getpid(), 0) >= 0 || errno == ENOSYS);
	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	CHECK(socket(AF_INET, SOCK_STREAM, 0) >= 0);
	CHECK(socket(AF_NETLINK, SOCK_RAW, 0) >= 0);
	CHECK(open("/", O_RDONLY) >= 0);
	CHECK(open("/proc/self/exe", O_RDONLY) >= 0);
	CHECK(open("/dev/null", O_RDWR) >= 0);
	CHECK(open("/dev/urandom", O_RDONLY) >= 0);
	CHECK(posix_openpt(O_RDWR | O_NOCTTY) >= 0 || errno == ENOENT);
	CHECK(nupa_pins_excluded());
}

TEST(a_ring_may_pin)
{
	struct uring ring;
	int copy;

	if (!uring_works())
		return;
	uring_open(&ring);
	CHECK(!nupa_pins_excluded());
	copy = fcntl(ring.fd, F_DUPFD, 300);
	CHECK(copy >= 0);
	uring_close(&ring);
	CHECK(!nupa_pins_excluded());
	CHECK_EQ(close(copy), 0);
	CHECK(nupa_pins_excluded());
}

TEST(a_file_opened_for_direct_reads_may_pin)
{
	char name[] = "/tmp/nupa-promote-XXXXXX";
	int fd = mkstemp(name), direct;

	CHECK(fd >= 0);
	direct = open(name, O_RDWR | O_DIRECT);
	if (direct < 0) {
		printf("  skipped: no O_DIRECT in /tmp\n");
		return;
	}
	CHECK(!nupa_pins_excluded());
	CHECK_EQ(fcntl(direct, F_SETFL, 0), 0);
	CHECK(nupa_pins_excluded());
	CHECK_EQ(fcntl(fd, F_SETFL, O_DIRECT), 0);
	CHECK(!nupa_pins_excluded());
	close(fd);
	fd = open(name, O_WRONLY | O_DIRECT); /* takes from memory alone */
	CHECK(fd >= 0);
	CHECK(nupa_pins_excluded());
	CHECK_EQ(unlink(name), 0);
}

TEST(asynchronous_io_may_pin_without_a_descriptor)
{
	aio_context_t context = 0;

	if (syscall(SYS_io_setup, 4, &context)) {
		printf("  skipped: no aio here (%s)\n", strerror(errno));
		return;
	}
	CHECK(!nupa_pins_excluded());
	CHECK_EQ(syscall(SYS_io_destroy, context), 0);
	CHECK(nupa_pins_excluded());
}

/* A device that is not on the list. */
TEST(an_unknown_device_may_pin)
{
	static const char *const devices[] = { "/dev/kvm", "/dev/fuse", "/dev/hwrng",
					       "/dev/loop-control", "/dev/cpu_dma_latency" };

	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		int fd = open(devices[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		CHECK(!nupa_pins_excluded());
		close(fd);
		CHECK(nupa_pins_excluded());
		return;
	}
	printf("  skipped: no device that may be opened here\n");
}

static void *look_from_thread(void *arg)
{
	(void)arg;
	while (access("/proc/self/fd/0", F_OK) == 0)
		sched_yield();
	CHECK(nupa_pins_excluded());
	CHECK(open("/dev/null", O_RDONLY) >= 0);
	if (uring_works()) {
		struct uring ring;

		uring_open(&ring);
		CHECK(!nupa_pins_excluded());
		uring_close(&ring);
	}
	exit(0);
}

/* /proc/self is empty then. */
TEST(files_are_found_after_the_first_thread_has_ended)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, look_from_thread, NULL), 0);
	pthread_exit(NULL);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void open_files(uint32_t *n, uint32_t wanted)
{
	for (; *n < wanted; ++*n) {
		int fd = -1;

		switch (*n % 4) {
		case 0:
			fd = socket(AF_INET, SOCK_STREAM, 0);
			break;
		case 1:
			fd = open("/proc/self/exe", O_RDONLY);
			break;
		case 2:
			fd = eventfd(0, 0);
			break;
		default:
			fd = socket(AF_UNIX, SOCK_STREAM, 0);
		}
		CHECK(fd >= 0);
	}
}

/* What the proof cannot do without: the kind of each open file. */
static uint64_t look_ns(void)
{
	const uint64_t start_ns = cpu_ns();
	struct dirent *entry;
	DIR *folder = opendir("/proc/thread-self/fd");

	CHECK(folder);
	while ((entry = readdir(folder))) {
		const int fd = atoi(entry->d_name);
		struct stat status;

		(void)fstat(fd, &status);
		(void)fcntl(fd, F_GETFL);
	}
	closedir(folder);
	return cpu_ns() - start_ns;
}

TEST(the_proof_costs_at_most_four_times_a_look_at_each_file)
{
	static const uint32_t numbers[] = { 4, 20, 200, 1000 };
	struct rlimit limit;
	uint32_t n = 4;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max < 1100 ? limit.rlim_max : 1100;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t best_ns = UINT64_MAX, look_best_ns = UINT64_MAX;

		if (numbers[i] + 50 > limit.rlim_cur)
			break;
		open_files(&n, numbers[i]);
		for (int round = 0; round < 20; round++) {
			uint64_t start_ns = cpu_ns(), ns;

			CHECK(nupa_pins_excluded());
			ns = cpu_ns() - start_ns;
			best_ns = ns < best_ns ? ns : best_ns;
			ns = look_ns();
			look_best_ns = ns < look_best_ns ? ns : look_best_ns;
		}
		printf("  %4u files: %llu us; a look %llu us\n", n,
		       (unsigned long long)best_ns / 1000, (unsigned long long)look_best_ns / 1000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		CHECK(best_ns < 100000 + 4 * look_best_ns);
#endif
	}
}

/* --- kernels that cannot move pages -------------------------------------------------- */

#define UFFDIO_MOVE_REQUEST 0xc028aa05u

static void deny_moves(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UFFDIO_MOVE_REQUEST, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter_system_calls(code, sizeof(code) / sizeof(code[0]));
}

TEST(before_linux_6_8_a_process_that_may_pin_promotes_nothing)
{
	struct nupa_shared_range range;
	struct uring ring;
	uint8_t *at;

	deny_moves();
	if (!pins_work())
		return;
	CHECK(!nupa_hold_can_take());
	at = filled_pages(300, 1);
	uring_open(&ring);
	stays_private(at, 300 * page());
	CHECK_EQ(bytes_in_memfd(), 0);
	uring_close(&ring);
	range = promote_one(at, 300 * page());
	CHECK_EQ(at[299 * page()], 1);
	nupa_promote_release(&range, 1);
	CHECK_EQ(at[299 * page()], 1);
	CHECK_EQ(bytes_in_memfd(), 0);
}
