/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion and memory that the kernel has pinned: the program finds all that the kernel stores
 * there before, during and after a registration. */
#define _GNU_SOURCE
#include "tests/support/promoted.h"
#include "tests/support/runner.h"
#include "tests/promote/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGES 16u
#define HUGE_BYTES ((size_t)2 << 20)

/* --- pinned before ------------------------------------------------------------------- */

TEST(pinned_memory_stays_private_and_the_program_sees_what_the_kernel_stores)
{
	struct nupa_shared_range range;
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	at = filled_pages(PAGES, 'a');
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	stays_private(at, PAGES * page());
	CHECK(is_filled(at, PAGES * page(), 'a'));
	uring_store(&ring, at, PAGES * page(), 'Z');
	CHECK(is_filled(at, PAGES * page(), 'Z'));
	uring_unpin(&ring);
	range = promote_one(at, PAGES * page());
	CHECK(is_filled(at, PAGES * page(), 'Z'));
	uring_close(&ring);
	nupa_promote_release(&range, 1);
	CHECK_EQ(bytes_in_memfd(), 0);
	CHECK(is_filled(at, PAGES * page(), 'Z'));
}

TEST(nor_does_an_ordinary_user_lose_any_of_it)
{
	become_nobody();
	pinned_memory_stays_private_and_the_program_sees_what_the_kernel_stores();
}

/* Whichever page it is: those before it are as they were. */
TEST(one_pinned_page_keeps_its_piece_private)
{
	struct nupa_shared_range ranges[8];
	const uint32_t n = 600; /* three pieces at least */
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	at = filled_pages(n, 'a');
	uring_open(&ring);
	for (uint32_t pinned = 7; pinned < n; pinned += 199) {
		int n_ranges;

		uring_pin(&ring, at + pinned * page(), page());
		n_ranges = nupa_promote(at, n * page(), ranges, 8);
		for (int i = 0; i < n_ranges; i++)
			CHECK(ranges[i].va + ranges[i].bytes <= (uintptr_t)at + pinned * page() ||
			      ranges[i].va > (uintptr_t)at + pinned * page());
		for (uint32_t i = 0; i < n; i++)
			CHECK_EQ(at[i * page() + 5], 'a');
		uring_store(&ring, at + pinned * page(), page(), 'Z');
		CHECK(is_filled(at + pinned * page(), page(), 'Z'));
		memset(at, 'a', n * page());
		uring_close(&ring); /* so that all can be private again */
		nupa_promote_release(ranges, n_ranges);
		uring_open(&ring);
	}
	uring_close(&ring);
}

TEST(a_read_that_is_in_flight_arrives)
{
	struct source source;
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	source = source_open();
	at = filled_pages(PAGES, 'a');
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	uring_read(&ring, source.ends[0], at + 5000, 100);
	stays_private(at, PAGES * page());
	source_give(source, 'Z', 100);
	CHECK_EQ(uring_wait(&ring), 100);
	CHECK(is_filled(at + 5000, 100, 'Z'));
	CHECK(is_filled(at, 5000, 'a'));
	source_close(source);
	uring_close(&ring);
}

/* --- direct I/O ---------------------------------------------------------------------- */

#define DIRECT_BYTES 65536u

static int direct_file(void)
{
	char name[] = "/tmp/nupa-promote-XXXXXX";
	int fd = mkstemp(name);
	uint8_t *data = map_pages(DIRECT_BYTES / page(), PROT_READ | PROT_WRITE);
	int direct;

	CHECK(fd >= 0);
	memset(data, 'Z', DIRECT_BYTES);
	CHECK_EQ(write(fd, data, DIRECT_BYTES), DIRECT_BYTES);
	CHECK_EQ(fsync(fd), 0);
	direct = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
	CHECK_EQ(unlink(name), 0);
	close(fd);
	munmap(data, DIRECT_BYTES);
	return direct;
}

/* io_submit(2), by what it is in the middle of. */
static void read_directly(aio_context_t context, int fd, uint8_t *at)
{
	struct iocb read = { .aio_fildes = (uint32_t)fd,
			     .aio_lio_opcode = IOCB_CMD_PREAD,
			     .aio_buf = (uintptr_t)at,
			     .aio_nbytes = DIRECT_BYTES };
	struct iocb *reads = &read;

	CHECK_EQ(syscall(SYS_io_submit, context, 1, &reads), 1);
}

static void await(aio_context_t context)
{
	struct io_event event;

	CHECK_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
	CHECK_EQ(event.res, DIRECT_BYTES);
}

TEST(direct_reads_in_flight_arrive)
{
	aio_context_t context = 0;
	int fd;

	if (!promotion_works())
		return;
	fd = direct_file();
	if (fd < 0 || syscall(SYS_io_setup, 4, &context)) {
		printf("  skipped: no O_DIRECT in /tmp, or no aio (%s)\n", strerror(errno));
		return;
	}
	for (int round = 0; round < 100; round++) {
		uint8_t *at = filled_pages(DIRECT_BYTES / page(), 'a');
		struct nupa_shared_range range;
		int n;

		read_directly(context, fd, at);
		n = nupa_promote(at, DIRECT_BYTES, &range, 1);
		await(context);
		CHECK(is_filled(at, DIRECT_BYTES, 'Z'));
		memset(at, 'b', DIRECT_BYTES);
		read_directly(context, fd, at);
		nupa_promote_release(&range, n);
		await(context);
		CHECK(is_filled(at, DIRECT_BYTES, 'Z'));
		munmap(at, DIRECT_BYTES);
	}
	CHECK_EQ(syscall(SYS_io_destroy, context), 0);
	close(fd);
}

/* A pipe refers to the pages themselves, but only takes from them. */
TEST(data_that_vmsplice_put_into_a_pipe_is_read_from_it)
{
	struct nupa_shared_range range;
	uint8_t *at, read_back[4096];
	struct source pipe;
	struct iovec what;

	if (!promotion_works())
		return;
	pipe = source_open();
	at = filled_pages(2, 'a');
	what = (struct iovec){ at, sizeof(read_back) };
	CHECK_EQ(vmsplice(pipe.ends[1], &what, 1, 0), sizeof(read_back));
	range = promote_one(at, page());
	CHECK_EQ(vmsplice(pipe.ends[1], &what, 1, 0), sizeof(read_back));
	nupa_promote_release(&range, 1);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(read(pipe.ends[0], read_back, sizeof(read_back)), sizeof(read_back));
		CHECK(is_filled(read_back, sizeof(read_back), 'a'));
	}
	CHECK(is_filled(at, page(), 'a'));
	source_close(pipe);
}

/* --- not pinned ---------------------------------------------------------------------- */

/* The kernel tells shared pages from pinned ones only once they are the process's own. */
TEST(pages_shared_with_a_child_are_promoted)
{
	struct nupa_shared_range range;
	int to_child[2];
	uint8_t *at, byte = 0;
	pid_t pid;

	if (!promotion_works())
		return;
	CHECK_EQ(pipe(to_child), 0);
	at = filled_pages(PAGES, 'a');
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		_exit(is_filled(at, PAGES * page(), 'a') ? 0 : 1);
	}
	range = promote_one(at, PAGES * page());
	CHECK(is_filled(at, PAGES * page(), 'a'));
	memset(at, 'b', PAGES * page());
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_CHILD(pid);
	nupa_promote_release(&range, 1);
	CHECK(is_filled(at, PAGES * page(), 'b'));
}

static uint8_t *huge_page(void)
{
	uint8_t *at = map_pages(2 * HUGE_BYTES / page(), PROT_READ | PROT_WRITE);

	at += (HUGE_BYTES - (uintptr_t)at % HUGE_BYTES) % HUGE_BYTES;
	(void)madvise(at, HUGE_BYTES, MADV_HUGEPAGE); /* it may be of small ones: then of those */
	return memset(at, 'a', HUGE_BYTES);
}

TEST(a_transparent_huge_page_is_promoted_unless_a_part_of_it_is_pinned)
{
	struct nupa_shared_range range;
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	at = huge_page();
	range = promote_one(at + 3 * page(), HUGE_BYTES - 9 * page());
	CHECK(is_filled(at, HUGE_BYTES, 'a'));
	nupa_promote_release(&range, 1);
	CHECK(is_filled(at, HUGE_BYTES, 'a'));
	at = huge_page();
	uring_open(&ring);
	uring_pin(&ring, at, 2 * page());
	stays_private(at, 4 * page());
	CHECK(is_filled(at, HUGE_BYTES, 'a'));
	uring_store(&ring, at, 2 * page(), 'Z');
	CHECK(is_filled(at, 2 * page(), 'Z'));
	uring_close(&ring);
}
