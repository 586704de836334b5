/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion and what a program does with its memory while it is registered, and after: mprotect,
 * munmap, mremap, madvise, fork; and what it costs. */
#define _GNU_SOURCE
#include "tests/support/promoted.h"
#include "tests/support/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The memory as a peer in another process has it: by the memfd, which it reads and writes. */
static uint8_t peek(const struct nupa_shared_range *range, size_t at)
{
	uint8_t byte;

	CHECK_EQ(pread(nupa_promote_fd(), &byte, 1, (off_t)(range->file_off + at)), 1);
	return byte;
}

static void poke(const struct nupa_shared_range *range, size_t at, uint8_t byte)
{
	CHECK_EQ(pwrite(nupa_promote_fd(), &byte, 1, (off_t)(range->file_off + at)), 1);
}

/* Whether the program may write there, as the kernel sees it. */
static bool is_writable(uint8_t *at)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(zero, at, 1);

	CHECK(n == 1 || errno == EFAULT);
	close(zero);
	return n == 1;
}

TEST(rights_change_as_before_and_stay_changed)
{
	struct nupa_shared_range range;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = filled_pages(4, 7);
	range = promote_one(at, 4 * page());
	CHECK_EQ(mprotect(at + page(), page(), PROT_READ), 0);
	CHECK_EQ(mprotect(at + 2 * page(), page(), PROT_NONE), 0);
	CHECK(is_writable(at));
	CHECK(!is_writable(at + page()));
	nupa_promote_release(&range, 1);
	CHECK_EQ(bytes_in_memfd(), 0);
	CHECK(is_writable(at) && is_writable(at + 3 * page()));
	CHECK(!is_writable(at + page()) && !is_writable(at + 2 * page()));
	CHECK_EQ(at[page() + 3], 7);
	CHECK_EQ(mprotect(at, 4 * page(), PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(at[2 * page() + 3], 7);
}

TEST(peers_keep_the_pages_of_memory_that_was_unmapped)
{
	struct nupa_shared_range old, new;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = filled_pages(2, 1);
	old = promote_one(at, 2 * page());
	CHECK_EQ(munmap(at, 2 * page()), 0);
	CHECK_EQ(peek(&old, 5), 1);
	/* Something else is there now, and is registered. */
	CHECK(mmap(at, 2 * page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == at);
	at[5] = 2;
	new = promote_one(at, 2 * page());
	poke(&old, 5, 9);
	CHECK_EQ(peek(&new, 5), 2);
	CHECK_EQ(at[5], 2);
	CHECK_EQ(at[6], 0);
	nupa_promote_release(&old, 1);
	poke(&new, 6, 3);
	CHECK_EQ(at[6], 3);
	nupa_promote_release(&new, 1);
	CHECK_EQ(at[5], 2);
	CHECK_EQ(bytes_in_memfd(), 0);
}

/* realloc of a large chunk is mremap: in place, or elsewhere. */
TEST(memory_that_grows_is_zero_behind_its_end)
{
	struct nupa_shared_range a, b;
	uint8_t *at, *moved;

	if (!promotion_works())
		return;
	at = filled_pages(4, 1);
	a = promote_one(at, 2 * page());
	b = promote_one(at + 2 * page(), 2 * page());
	moved = mremap(at, 2 * page(), 5 * page(), MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && moved != at);
	for (size_t i = 0; i < 3 * page(); i++)
		CHECK_EQ(moved[2 * page() + i], 0);
	memset(moved + 2 * page(), 4, 3 * page());
	CHECK_EQ(moved[0], 1);
	CHECK_EQ(at[2 * page()], 1);
	poke(&a, 0, 5);
	CHECK_EQ(moved[0], 5);
	poke(&b, 0, 6);
	CHECK_EQ(at[2 * page()], 6);
	nupa_promote_release(&a, 1);
	nupa_promote_release(&b, 1);
	CHECK_EQ(bytes_in_memfd(), 0);
	CHECK_EQ(moved[0], 5);
	CHECK_EQ(moved[5 * page() - 1], 4);
	CHECK_EQ(at[2 * page()], 6);
}

TEST(a_chunk_of_the_heap_may_be_reallocated_while_registered)
{
	const size_t bytes = 300000;
	struct nupa_shared_range range;

	if (!promotion_works())
		return;
	for (size_t n = bytes; n < 20 * bytes; n += bytes) {
		uint8_t *small = malloc(n), *at;

		CHECK(small);
		memset(small, 3, n);
		range = promote_one(small, n);
		at = realloc(small, n + bytes);
		CHECK(at);
		for (size_t i = 0; i < n; i++)
			CHECK_EQ(at[i], 3);
		memset(at, 4, n + bytes);
		nupa_promote_release(&range, 1);
		for (size_t i = 0; i < n + bytes; i++)
			CHECK_EQ(at[i], 4);
		free(at);
	}
	CHECK_EQ(bytes_in_memfd(), 0);
}

/* Allocators count on it, and the C library's own call cannot be intercepted. */
TEST(memory_given_back_after_deregistration_reads_as_zeros)
{
	struct nupa_shared_range range;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = filled_pages(4, 1);
	range = promote_one(at + page(), 2 * page());
	nupa_promote_release(&range, 1);
	CHECK_EQ(madvise(at, 4 * page(), MADV_DONTNEED), 0);
	for (size_t i = 0; i < 4 * page(); i++)
		CHECK_EQ(at[i], 0);
}

TEST(a_page_stays_promoted_as_long_as_one_region_has_it)
{
	struct nupa_shared_range a, b;
	uint8_t *at;

	if (!promotion_works())
		return;
	at = filled_pages(3, 1);
	a = promote_one(at, 2 * page());
	b = promote_one(at + page() + 100, page());
	nupa_promote_release(&a, 1);
	poke(&b, 0, 8);
	CHECK_EQ(at[page()], 8);
	nupa_promote_release(&b, 1);
	poke(&b, 0, 9);
	CHECK_EQ(at[page()], 8);
	/* Pages stored by the check above are not found again. */
	at[page() + 1] = 2;
	b = promote_one(at + page(), page());
	CHECK_EQ(peek(&b, 0), 8);
	nupa_promote_release(&b, 1);
}

/* --- fork ---------------------------------------------------------------------------- */

static void install_fork_handlers(void)
{
	CHECK_EQ(pthread_atfork(nupa_promote_before_fork, nupa_promote_after_fork,
				nupa_promote_forget_in_child),
		 0);
}

TEST(a_child_has_its_parents_memory_as_of_the_fork)
{
	struct nupa_shared_range range, again;
	int to_child[2], to_parent[2];
	uint8_t *at, byte;
	pid_t pid;

	if (!promotion_works())
		return;
	install_fork_handlers();
	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(pipe(to_parent), 0);
	at = filled_pages(3, 1);
	range = promote_one(at + 10, 2 * page());
	poke(&range, 20, 2);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		at[30] = 77;
		CHECK_EQ(write(to_parent[1], at, 1), 1);
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		_exit(at[20] == 2 && at[40] == 1 && at[30] == 77 && nupa_promote_fd() == -1 ? 0
											    : 1);
	}
	/* As the engine does: what it handed out is void, and promoted anew. */
	again = promote_one(at + 10, 2 * page());
	nupa_promote_release(&range, 1);
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	CHECK_EQ(at[30], 1);
	poke(&again, 40, 66);
	poke(&again, 20, 67);
	CHECK_EQ(at[40], 66);
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_CHILD(pid);
	CHECK_EQ(at[20], 67);
	nupa_promote_release(&again, 1);
	CHECK_EQ(bytes_in_memfd(), 0);
}

TEST(a_child_may_promote_its_own_copy)
{
	struct nupa_shared_range range;
	uint8_t *at;
	pid_t pid;

	if (!promotion_works())
		return;
	install_fork_handlers();
	at = filled_pages(2, 1);
	range = promote_one(at, 2 * page());
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		range = promote_one(at, page());
		poke(&range, 0, 5);
		CHECK_EQ(at[0], 5);
		nupa_promote_release(&range, 1);
		_exit(at[0] == 5 ? 0 : 1);
	}
	CHECK_CHILD(pid);
	CHECK_EQ(at[0], 1);
	nupa_promote_release(&range, 1);
}

/* --- cost ---------------------------------------------------------------------------- */

/* Of this thread, which other programs do not lengthen: all is done in it. */
static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The least that promotion has to do: pages of a new mapping of a memfd get a copy. */
static uint64_t copy_ns(const uint8_t *from, size_t bytes)
{
	int memfd = memfd_create("reference", MFD_CLOEXEC);
	uint64_t start_ns, ns;
	uint8_t *to;

	CHECK(memfd >= 0);
	CHECK_EQ(ftruncate(memfd, (off_t)bytes), 0);
	start_ns = cpu_ns();
	to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	CHECK(to != MAP_FAILED);
	memcpy(to, from, bytes);
	ns = cpu_ns() - start_ns;
	CHECK_EQ(munmap(to, bytes), 0);
	close(memfd);
	return ns;
}

static void keep_least(uint64_t *least, uint64_t ns)
{
	*least = ns < *least ? ns : *least;
}

TEST(registration_costs_at_most_three_times_a_copy_to_new_pages)
{
	const size_t sizes[] = { page(), (size_t)64 << 10, (size_t)1 << 20, (size_t)16 << 20 };

	if (!promotion_works())
		return;
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *at = filled_pages(sizes[i] / page(), 1);
		uint64_t best_ns = UINT64_MAX, release_ns = UINT64_MAX, reference_ns = UINT64_MAX;

		for (int round = 0; round < 10; round++) {
			uint64_t start_ns = cpu_ns(), mid_ns;
			struct nupa_shared_range range = promote_one(at, sizes[i]);

			mid_ns = cpu_ns();
			nupa_promote_release(&range, 1);
			keep_least(&release_ns, cpu_ns() - mid_ns);
			keep_least(&best_ns, mid_ns - start_ns);
			keep_least(&reference_ns, copy_ns(at, sizes[i]));
		}
		printf(
		    "  %6zu KiB: promoted in %llu us, private again in %llu us; a copy %llu us\n",
		    sizes[i] >> 10, (unsigned long long)best_ns / 1000,
		    (unsigned long long)release_ns / 1000, (unsigned long long)reference_ns / 1000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		if (sizes[i] >= (size_t)1 << 20)
			CHECK(best_ns < 3 * reference_ns);
#endif
		CHECK_EQ(munmap(at, sizes[i]), 0);
	}
}
