/* SPDX-License-Identifier: BSD-3-Clause
 * Windows that are caches are stale until they are told; atomics lose nothing. */
#include "base/atomics.h"
#include "tests/support/runner.h"
#include "tests/region/viewed.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

/* --- caches ---------------------------------------------------------------------- */

TEST(a_cache_is_stale_until_it_is_told)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, 2 * PAGE, NUPA_COHERENT_SOFTWARE);
	struct nupa_view *a = viewed_map(fabric, region, 0), *b = viewed_map(fabric, region, 1);

	CHECK(nupa_view_is_software(a));
	words(a)[0] = OURS;
	words(a)[8] = OURS;
	CHECK_EQ(nupa_view_invalidate(b, 0, 2 * PAGE), 0);
	CHECK_EQ(words(b)[0], 0); /* not flushed */
	CHECK_EQ(nupa_view_flush(a, 0, 8), 0);
	CHECK_EQ(words(b)[0], 0); /* not invalidated */
	CHECK_EQ(nupa_view_invalidate(b, 56, 1), 0);
	CHECK_EQ(words(b)[0], OURS);
	CHECK_EQ(words(b)[8], 0); /* the next line */
	CHECK_EQ(nupa_view_flush(a, 0, 2 * PAGE), 0);
	words(b)[9] = THEIRS;
	CHECK_EQ(nupa_view_invalidate(b, 64, 64), 0);
	CHECK_EQ(words(b)[8], OURS);
	CHECK_EQ(words(b)[9], 0); /* stored, never flushed */
	CHECK_EQ(nupa_region_free(fabric, region, true), 0);
	CHECK_EQ(words(b)[8], ONES);
	CHECK_EQ(nupa_view_flush(b, 0, 64), -ESTALE);
	CHECK_EQ(nupa_view_invalidate(b, 0, 64), -ESTALE);
	CHECK_EQ(words(b)[8], ONES);
	nupa_view_free(a);
	nupa_view_free(b);
	nupa_fabric_put(fabric);
}

struct flusher {
	struct nupa_view *view;
	uint32_t first; /* line; every other is its own */
};

static void *store_and_flush_lines(void *arg)
{
	const struct flusher *own = arg;

	for (uint64_t round = 1; round <= 20; round++) {
		for (uint64_t i = own->first * 8; i < WORDS; i += 16)
			nupa_store_relaxed(&words(own->view)[i], round);
		CHECK_EQ(nupa_view_flush(own->view, 0, REGION_BYTES), 0);
	}
	return NULL;
}

TEST(hosts_that_flush_different_lines_lose_nothing)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_SOFTWARE);
	struct flusher flushers[2];
	pthread_t threads[2];

	for (uint32_t i = 0; i < 2; i++) {
		flushers[i] = (struct flusher){ viewed_map(fabric, region, i), i };
		CHECK_EQ(pthread_create(&threads[i], NULL, store_and_flush_lines, &flushers[i]), 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(nupa_view_invalidate(flushers[0].view, 0, REGION_BYTES), 0);
	for (uint64_t i = 0; i < WORDS; i++)
		CHECK_EQ(words(flushers[0].view)[i], i % 8 ? 0 : 20);
	for (uint32_t i = 0; i < 2; i++)
		nupa_view_free(flushers[i].view);
	nupa_fabric_put(fabric);
}

/* --- atomics --------------------------------------------------------------------- */

#define ADDS 20000u

static uint64_t atomic(void *base, uint64_t offset, uint32_t operation, uint64_t operand,
		       uint64_t compare)
{
	uint64_t before;

	CHECK_EQ(nupa_word_atomic(base, REGION_BYTES, offset, operation, operand, compare, &before),
		 0);
	return before;
}

/* One counter by adding, one by comparing and swapping. */
static void *count_up(void *arg)
{
	for (uint32_t i = 0; i < ADDS; i++) {
		uint64_t seen = atomic(arg, 8, NUPA_WORD_LOAD, 0, 0), before;

		atomic(arg, 0, NUPA_WORD_FETCH_ADD, 1, 0);
		while ((before = atomic(arg, 8, NUPA_WORD_COMPARE_SWAP, seen + 1, seen)) != seen)
			seen = before;
	}
	return NULL;
}

TEST(atomics_of_threads_and_processes_lose_nothing)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
	struct nupa_view *view;
	pthread_t threads[2];
	pid_t child = fork();

	view = viewed_map(fabric, region, child == 0);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, count_up, words(view)), 0);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	if (child == 0)
		_exit(0);
	CHECK_CHILD(child);
	CHECK_EQ(words(view)[0], 4 * ADDS);
	CHECK_EQ(words(view)[1], 4 * ADDS);
	nupa_view_free(view);
	nupa_fabric_put(fabric);
}

TEST(each_atomic_returns_what_was_there)
{
	_Alignas(8) uint8_t room[24] = { 0 };
	uint64_t before;

	CHECK_EQ(atomic(room, 8, NUPA_WORD_STORE, 0xf0, 0), 0);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_FETCH_AND, 0x3c, 0), 0xf0);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_FETCH_OR, 1, 0), 0x30);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_FETCH_XOR, 3, 0), 0x31);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_SWAP, ONES, 0), 0x32);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_FETCH_ADD, 2, 0), ONES);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_COMPARE_SWAP, 9, 2), 1);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_COMPARE_SWAP, 9, 1), 1);
	CHECK_EQ(atomic(room, 8, NUPA_WORD_LOAD, 0, 0), 9);
	CHECK_EQ(nupa_word_atomic(room, 24, 16, NUPA_WORD_LOAD, 0, 0, &before), 0);
	CHECK_EQ(nupa_word_atomic(room, 24, 24, NUPA_WORD_LOAD, 0, 0, &before), -ERANGE);
	CHECK_EQ(nupa_word_atomic(room, 7, 0, NUPA_WORD_LOAD, 0, 0, &before), -ERANGE);
	CHECK_EQ(nupa_word_atomic(room, 24, 4, NUPA_WORD_LOAD, 0, 0, &before), -EINVAL);
	CHECK_EQ(nupa_word_atomic(room, 24, 0, 99, 0, 0, &before), -EINVAL);
}
