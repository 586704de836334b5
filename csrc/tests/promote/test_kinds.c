/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion and a program's view of its memory.  Some kinds of memory stay as they are; the others
 * behave as before, while they are promoted and after. */
#define _GNU_SOURCE
#include "segment/layout/limits.h"
#include "tests/support/promoted.h"
#include "tests/support/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u /* those of other sizes are multiples of it: see page() */
#define N_RANGES 8

/* The memory as a peer has it. */
static uint8_t *view_of(const struct nupa_shared_range *range)
{
	uint8_t *view = mmap(NULL, range->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			     nupa_promote_fd(), (off_t)range->file_off);

	CHECK(view != MAP_FAILED);
	return view;
}

static unsigned int mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned int n = 0;

	CHECK(file);
	for (int c; (c = fgetc(file)) != EOF;)
		n += c == '\n';
	fclose(file);
	return n;
}

/* --- promoted memory ----------------------------------------------------------------- */

TEST(peers_and_the_program_see_each_others_stores)
{
	struct nupa_shared_range range;
	uint8_t *at, *view;

	if (!promotion_works())
		return;
	at = map_pages(3, PROT_READ | PROT_WRITE);
	memset(at, 1, 3 * page());
	range = promote_one(at + page(), page());
	CHECK_EQ(range.va, (uintptr_t)at + page());
	CHECK_EQ(range.bytes, page());
	view = view_of(&range);
	CHECK_EQ(view[7], 1);
	at[page() + 7] = 2;
	CHECK_EQ(view[7], 2);
	view[8] = 3;
	CHECK_EQ(at[page() + 8], 3);
	nupa_promote_release(&range, 1);
	view[8] = 4;
	CHECK_EQ(at[page() + 8], 3);
	CHECK_EQ(at[page() + 7], 2);
}

TEST(pages_that_a_region_has_in_part_are_promoted_whole)
{
	struct nupa_shared_range range;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = map_pages(4, PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < 4 * page(); i++)
		at[i] = (uint8_t)(i * 7);
	range = promote_one(at + page() + 100, page());
	CHECK_EQ(range.va, (uintptr_t)at + page());
	CHECK_EQ(range.bytes, 2 * page());
	nupa_promote_release(&range, 1);
	for (size_t i = 0; i < 4 * page(); i++)
		CHECK_EQ(at[i], (uint8_t)(i * 7));
}

TEST(regions_that_overlap_are_one_range_each)
{
	struct nupa_shared_range a, b, c;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = map_pages(8, PROT_READ | PROT_WRITE);
	memset(at, 9, 8 * page());
	b = promote_one(at + 3 * page() + 5, 2 * page());
	a = promote_one(at + page(), 3 * page());
	c = promote_one(at, 8 * page());
	CHECK_EQ(a.file_off - c.file_off, page());
	CHECK_EQ(b.file_off - c.file_off, 3 * page());
	nupa_promote_release(&b, 1);
	nupa_promote_release(&c, 1);
	CHECK_EQ(view_of(&a)[0], 9);
	nupa_promote_release(&a, 1);
	CHECK_EQ(bytes_in_memfd(), 0);
	CHECK_EQ(at[0], 9);
}

/* The heap is one mapping again, however many pieces of it were registered. */
TEST(nothing_is_left_behind_in_the_table_of_mappings)
{
	enum { CHUNKS = 64, CHUNK = 9000 };
	struct nupa_shared_range ranges[CHUNKS];
	uint8_t *chunks[CHUNKS];
	unsigned int before;

	if (!promotion_works())
		return;
	for (uint32_t i = 0; i < CHUNKS; i++) {
		chunks[i] = malloc(CHUNK);
		CHECK(chunks[i]);
		memset(chunks[i], (int)i, CHUNK);
	}
	before = mappings();
	for (uint32_t i = 0; i < CHUNKS; i++)
		ranges[i] = promote_one(chunks[i] + CHUNK / 2, 100);
	CHECK(mappings() > before);
	for (uint32_t i = 0; i < CHUNKS; i++)
		nupa_promote_release(&ranges[i], 1);
	CHECK(mappings() <= before);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		for (uint32_t j = 0; j < CHUNK; j++)
			CHECK_EQ(chunks[i][j], i);
		free(chunks[i]);
	}
}

TEST(memory_that_was_never_touched_takes_no_memory)
{
	const size_t bytes = (size_t)1 << 28;
	struct nupa_shared_range range;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	CHECK(at != MAP_FAILED);
	at[bytes / 2] = 5;
	range = promote_one(at, bytes);
	CHECK(bytes_in_memfd() < bytes / 16);
	CHECK_EQ(at[bytes / 2], 5);
	CHECK_EQ(at[17], 0);
	at[18] = 6;
	nupa_promote_release(&range, 1);
	CHECK_EQ(at[18], 6);
	CHECK_EQ(bytes_in_memfd(), 0);
}

/* --- other memory -------------------------------------------------------------------- */

TEST(read_only_file_backed_shared_and_locked_memory_stays_as_it_is)
{
	char name[] = "/tmp/nupa-promote-XXXXXX";
	uint8_t *at;
	int fd;

	if (!promotion_works())
		return;
	at = map_pages(2, PROT_READ);
	stays_private(at, 2 * page());
	at = map_pages(2, PROT_READ | PROT_WRITE | PROT_EXEC);
	stays_private(at, 2 * page());
	at = map_pages(2, PROT_NONE);
	stays_private(at, 2 * page());
	at = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	stays_private(at, page());
	fd = mkstemp(name);
	CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, (off_t)page()) == 0);
	at = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(at != MAP_FAILED);
	at[0] = 1;
	stays_private(at, page());
	at = map_pages(1, PROT_READ | PROT_WRITE);
	if (syscall(SYS_mlock, at, page()) == 0) /* which sanitizers do not make */
		stays_private(at, page());
	else
		printf("  no memory may be locked here (RLIMIT_MEMLOCK): not looked at\n");
}

TEST(huge_pages_stay_as_they_are)
{
	const size_t bytes = (size_t)2 << 20;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (!promotion_works())
		return;
	if (at == MAP_FAILED) {
		printf("  skipped: no huge pages (vm.nr_hugepages)\n");
		return;
	}
	stays_private(at, bytes);
}

static void *register_own_stack(void *arg)
{
	uint8_t buffer[3 * PAGE];

	(void)arg;
	memset(buffer, 1, sizeof(buffer));
	stays_private(buffer, sizeof(buffer));
	CHECK_EQ(buffer[PAGE], 1);
	return NULL;
}

static void *register_stack_of(void *other)
{
	stays_private(other, PAGE);
	return NULL;
}

TEST(stacks_stay_as_they_are)
{
	uint8_t buffer[2 * PAGE];
	pthread_t thread;

	if (!promotion_works())
		return;
	memset(buffer, 1, sizeof(buffer));
	register_own_stack(NULL);
	CHECK_EQ(pthread_create(&thread, NULL, register_own_stack, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(pthread_create(&thread, NULL, register_stack_of, buffer), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(buffer[PAGE], 1);
}

TEST(of_mixed_memory_the_pages_that_can_be_are_promoted)
{
	struct nupa_shared_range ranges[N_RANGES];
	uint8_t *at;

	if (!promotion_works())
		return;
	at = map_pages(6, PROT_READ | PROT_WRITE);
	memset(at, 4, 6 * page());
	CHECK_EQ(mprotect(at + 2 * page(), page(), PROT_READ), 0);
	CHECK_EQ(mprotect(at + 4 * page(), page(), PROT_NONE), 0);
	CHECK_EQ(nupa_promote(at + 10, 6 * page() - 20, ranges, N_RANGES), 3);
	CHECK_EQ(ranges[0].va, (uintptr_t)at);
	CHECK_EQ(ranges[0].bytes, 2 * page());
	CHECK_EQ(ranges[1].va, (uintptr_t)at + 3 * page());
	CHECK_EQ(ranges[1].bytes, page());
	CHECK_EQ(ranges[2].va, (uintptr_t)at + 5 * page());
	nupa_promote_release(ranges, 3);
	CHECK_EQ(at[0] + at[2 * page()] + at[3 * page()] + at[6 * page() - 1], 16);
}

/* Each other page of some that were never touched, so that no two go together. */
TEST(a_piece_more_than_the_limit_stays_private)
{
	static struct nupa_shared_range ranges[NUPA_PROMOTED_MAX];
	uint8_t *at = map_pages(2 * NUPA_PROMOTED_MAX + 1, PROT_READ | PROT_WRITE);

	if (!promotion_works())
		return;
	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++)
		ranges[i] = promote_one(at + 2 * i * page(), 1);
	stays_private(at + 2 * NUPA_PROMOTED_MAX * page(), 1);
	nupa_promote_release(&ranges[7], 1);
	ranges[7] = promote_one(at + 2 * NUPA_PROMOTED_MAX * page(), 1);
	nupa_promote_release(ranges, (int)NUPA_PROMOTED_MAX);
}

TEST(a_region_larger_than_the_limit_stays_private)
{
	const size_t bytes = NUPA_PROMOTE_MAX_BYTES + page();
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED) {
		printf("  skipped: no address space of 1 TiB\n");
		return;
	}
	stays_private(at, bytes);
	CHECK_EQ(munmap(at, bytes), 0);
}

TEST(nothing_is_promoted_where_it_is_not_wanted)
{
	uint8_t *at = map_pages(1, PROT_READ | PROT_WRITE);

	at[0] = 1;
	CHECK_EQ(setenv("NUPA_PROMOTE", "0", 1), 0);
	CHECK(!nupa_promote_possible());
	stays_private(at, page());
	CHECK_EQ(nupa_promote_fd(), -1);
	CHECK_EQ(at[0], 1);
}

static void deny_userfaultfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter_system_calls(code, sizeof(code) / sizeof(code[0]));
}

TEST(nothing_is_promoted_where_userfaultfd_is_denied)
{
	uint8_t *at = map_pages(1, PROT_READ | PROT_WRITE);

	if (access("/dev/userfaultfd", R_OK | W_OK) == 0 &&
	    (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
		return;
	at[0] = 1;
	deny_userfaultfd();
	CHECK(!nupa_promote_possible());
	stays_private(at, page());
	CHECK_EQ(at[0], 1);
}

/* Daemons close all descriptors, and what they open next may have our number. */
TEST(a_memfd_that_the_program_closed_is_left_alone)
{
	struct nupa_shared_range range;
	uint8_t *at;
	int fd;

	if (!promotion_works())
		return;
	at = map_pages(2, PROT_READ | PROT_WRITE);
	at[0] = 1;
	range = promote_one(at, page());
	fd = nupa_promote_fd();
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(open("/dev/null", O_RDWR), fd);
	stays_private(at + page(), page());
	nupa_promote_release(&range, 1);
	CHECK_EQ(at[0], 1);
	at[0] = 2;
	CHECK_EQ(at[0], 2);
}
