/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that the kernel pins while it is promoted.  It stays promoted after its deregistration,
 * the program finds all data stored there, and it becomes private when it can. */
#define _GNU_SOURCE
#include "base/atomics.h"
#include "tests/support/end.h"
#include "tests/support/promoted.h"
#include "tests/promote/uring.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 16u

TEST(a_pin_taken_while_promoted_stays_good_after_the_release)
{
	struct nupa_shared_range range, other;
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	at = filled_pages(PAGES, 'a');
	range = promote_one(at, PAGES * page());
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	nupa_promote_release(&range, 1);
	uring_store(&ring, at, PAGES * page(), 'Z');
	CHECK(is_filled(at, PAGES * page(), 'Z'));
	/* Registered again, it is the same memory. */
	other = promote_one(at, PAGES * page());
	CHECK_EQ(other.file_off, range.file_off);
	nupa_promote_release(&other, 1);
	uring_store(&ring, at, PAGES * page(), 'Y');
	CHECK(is_filled(at, PAGES * page(), 'Y'));
	/* Private again at the next chance. */
	uring_close(&ring);
	other = promote_one(filled_pages(1, 1), page());
	CHECK_EQ(bytes_in_memfd(), page());
	CHECK(is_filled(at, PAGES * page(), 'Y'));
	nupa_promote_release(&other, 1);
	CHECK_EQ(bytes_in_memfd(), 0);
	CHECK_EQ(madvise(at, page(), MADV_DONTNEED), 0);
	CHECK_EQ(at[0], 0);
}

TEST(so_it_does_for_an_ordinary_user)
{
	become_nobody();
	a_pin_taken_while_promoted_stays_good_after_the_release();
}

TEST(a_read_in_flight_over_the_release_arrives)
{
	struct nupa_shared_range range;
	struct source source;
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	source = source_open();
	at = filled_pages(PAGES, 'a');
	range = promote_one(at, PAGES * page());
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	uring_read(&ring, source.ends[0], at + 5000, 100);
	nupa_promote_release(&range, 1);
	source_give(source, 'Z', 100);
	CHECK_EQ(uring_wait(&ring), 100);
	CHECK(is_filled(at + 5000, 100, 'Z'));
	source_close(source);
	uring_close(&ring);
}

TEST(a_pin_stays_good_when_the_region_is_changed)
{
	struct nupa_fabric *fabric;
	struct ibv_mr *mr;
	struct uring ring;
	struct end *end;
	uint8_t *at;
	int access = (int)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!pins_work())
		return;
	fabric = test_fabric();
	end = end_open(fabric, &end_defaults);
	at = filled_pages(2 * PAGES, 'a');
	mr = nupa_reg_mr(end->pd, at, PAGES * page(), (uintptr_t)at, access);
	CHECK(mr);
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	CHECK_EQ(nupa_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at + PAGES * page(),
			       PAGES * page(), 0),
		 0);
	uring_store(&ring, at, PAGES * page(), 'Z');
	CHECK(is_filled(at, PAGES * page(), 'Z'));
	CHECK_EQ(nupa_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at, PAGES * page(), 0),
		 0);
	uring_store(&ring, at, PAGES * page(), 'Y');
	CHECK(is_filled(at, PAGES * page(), 'Y'));
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	uring_store(&ring, at, PAGES * page(), 'X');
	CHECK(is_filled(at, PAGES * page(), 'X'));
	uring_close(&ring);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(a_fork_leaves_the_pin_to_the_parent_and_a_copy_to_the_child)
{
	int to_child[2], to_parent[2];
	struct nupa_shared_range range, again;
	struct uring ring;
	uint8_t *at, byte = 0;
	pid_t pid;

	if (!pins_work())
		return;
	CHECK_EQ(pthread_atfork(nupa_promote_before_fork, nupa_promote_after_fork,
				nupa_promote_forget_in_child),
		 0);
	CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
	at = filled_pages(PAGES, 'a');
	range = promote_one(at, PAGES * page());
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(is_filled(at, PAGES * page(), 'a'));
		memset(at, 'c', page());
		CHECK_EQ(write(to_parent[1], &byte, 1), 1);
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		CHECK(is_filled(at, page(), 'c'));
		CHECK(is_filled(at + page(), (PAGES - 1) * page(), 'a'));
		_exit(0);
	}
	again = promote_one(at, PAGES * page());
	nupa_promote_release(&range, 1);
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	CHECK(is_filled(at, PAGES * page(), 'a'));
	uring_store(&ring, at, PAGES * page(), 'Z');
	CHECK(is_filled(at, PAGES * page(), 'Z'));
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_CHILD(pid);
	nupa_promote_release(&again, 1);
	uring_store(&ring, at, PAGES * page(), 'Y');
	CHECK(is_filled(at, PAGES * page(), 'Y'));
	uring_close(&ring);
}

static bool stop;
static uint64_t counted;

static void *count(void *arg)
{
	uint64_t *word = arg, n = 0;

	while (!nupa_load_relaxed(&stop)) {
		CHECK_EQ(++*word, ++n);
		nupa_store_relaxed(&counted, n);
	}
	return NULL;
}

/* Each release holds it off, finds that memory may be pinned, and lets it go on. */
TEST(a_thread_that_stores_there_meanwhile_goes_on)
{
	struct nupa_shared_range range;
	struct uring ring;
	pthread_t thread;
	uint8_t *at;

	if (!pins_work())
		return;
	at = filled_pages(1, 0);
	CHECK_EQ(pthread_create(&thread, NULL, count, at), 0);
	for (int round = 0; round < 300; round++) {
		range = promote_one(at, page());
		uring_open(&ring);
		nupa_promote_release(&range, 1);
		for (uint64_t n = nupa_load_relaxed(&counted); nupa_load_relaxed(&counted) == n;)
			sched_yield();
		uring_close(&ring);
		range = promote_one(at, page());
		nupa_promote_release(&range, 1);
		CHECK_EQ(bytes_in_memfd(), 0);
	}
	nupa_store_relaxed(&stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* --- kept promotions ------------------------------------------------------------- */

TEST(memory_that_stays_promoted_does_not_grow)
{
	struct nupa_shared_range range;
	struct uring ring;
	uint8_t *at;

	if (!pins_work())
		return;
	range = promote_one(filled_pages(PAGES, 1), PAGES * page());
	uring_open(&ring);
	nupa_promote_release(&range, 1);
	for (int round = 0; round < 1000; round++) {
		at = filled_pages(2, 2);
		stays_private(at, 2 * page());
		CHECK_EQ(munmap(at, 2 * page()), 0);
		CHECK_EQ(bytes_in_memfd(), PAGES * page());
	}
	uring_close(&ring);
	range = promote_one(filled_pages(1, 3), page());
	CHECK_EQ(bytes_in_memfd(), page());
	nupa_promote_release(&range, 1);
}

/* A registration looks for what was unmapped of one set of pages. */
static void register_others(uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		stays_private(filled_pages(1, 3), page());
}

TEST(pages_that_the_program_unmaps_are_freed)
{
	struct nupa_shared_range a, b;
	uint8_t *at, *other;
	struct uring ring;

	if (!pins_work())
		return;
	at = filled_pages(PAGES, 1);
	other = filled_pages(PAGES, 2);
	a = promote_one(at, PAGES * page());
	b = promote_one(other, PAGES * page());
	uring_open(&ring);
	uring_pin(&ring, at, PAGES * page());
	nupa_promote_release(&a, 1);
	nupa_promote_release(&b, 1);
	CHECK_EQ(bytes_in_memfd(), 2 * PAGES * page());
	CHECK_EQ(munmap(at + 2 * page(), 3 * page()), 0);
	register_others(2);
	CHECK_EQ(bytes_in_memfd(), (2 * PAGES - 3) * page());
	/* Moved, it is still there. */
	other = mremap(other, PAGES * page(), 2 * PAGES * page(), MREMAP_MAYMOVE);
	CHECK(other != MAP_FAILED);
	CHECK_EQ(munmap(at, PAGES * page()), 0);
	register_others(2);
	CHECK_EQ(bytes_in_memfd(), PAGES * page());
	for (size_t i = 0; i < PAGES * page(); i++)
		CHECK_EQ(other[i], 2);
	CHECK_EQ(munmap(other, 2 * PAGES * page()), 0);
	register_others(2);
	CHECK_EQ(bytes_in_memfd(), 0);
	uring_close(&ring);
}

#define CHUNK ((size_t)1 << 20)

/* In a thread malloc has an arena of its own.  It shrinks by a madvise that cannot be intercepted;
 * the C library does not count on zeros there. */
static void *use_arena(void *arg)
{
	void *keep = malloc(CHUNK), *at = malloc(CHUNK);
	struct nupa_shared_range range;
	struct uring ring;

	CHECK(keep && at);
	memset(at, 3, CHUNK);
	range = promote_one((char *)at + page(), CHUNK - 2 * page());
	uring_open(&ring);
	nupa_promote_release(&range, 1);
	for (int round = 0; round < 5; round++) {
		memset(at, 3, CHUNK);
		free(at);
		at = calloc(1, CHUNK);
		CHECK(at);
		for (size_t i = 0; i < CHUNK; i++)
			CHECK_EQ(((uint8_t *)at)[i], 0);
	}
	free(at);
	free(keep);
	uring_close(&ring);
	return arg;
}

TEST(calloc_gives_zeros_where_memory_stays_promoted)
{
	pthread_t thread;

	if (!pins_work())
		return;
	mallopt(M_MMAP_THRESHOLD, 4 * (int)CHUNK);
	nupa_promote_count_own_threads(1);
	CHECK_EQ(pthread_create(&thread, NULL, use_arena, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}
