/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion of regions of several pieces under threads that store there all the time: by the
 * processor, by system calls and by the kernel's pins.  No store is lost. */
#define _GNU_SOURCE
#include "base/atomics.h"
#include "tests/support/promoted.h"
#include "tests/support/runner.h"
#include "tests/promote/uring.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BYTES (10 * MIB)
#define WORDS (BYTES / sizeof(uint64_t))
#define REGION_MIN (3 * MIB)
#define REGION_MAX (9 * MIB)
#define ROUNDS 60u
#define RANGES 16

/* Each has every sixth word: four threads that count, one that reads into it, one that has a ring.
 */
#define COUNTERS 4u
#define READER 4u
#define RING 5u
#define CLASSES 6u

static uint64_t *words;
static uint32_t round_now;
static bool stop;

struct writer {
	pthread_t thread;
	uint64_t seed;
	uint32_t index;
	uint64_t laps;
	size_t at; /* words of the last, unfinished lap are below */
};

static void *count(void *arg)
{
	struct writer *writer = arg;

	for (;;) {
		for (writer->at = writer->index; writer->at < WORDS; writer->at += CLASSES) {
			if (nupa_load_relaxed(&stop))
				return NULL;
			words[writer->at]++;
		}
		writer->laps++;
	}
}

static uint64_t *any_word(struct writer *writer)
{
	return &words[test_random(&writer->seed) % (WORDS / CLASSES) * CLASSES + writer->index];
}

static void *read_into(void *arg)
{
	struct writer *writer = arg;
	struct source source = source_open();

	for (uint64_t value = 1; !nupa_load_relaxed(&stop); value++) {
		uint64_t *word = any_word(writer);

		CHECK_EQ(write(source.ends[1], &value, sizeof(value)), sizeof(value));
		CHECK_EQ(read(source.ends[0], word, sizeof(value)), sizeof(value));
		CHECK_EQ(*word, value);
	}
	source_close(source);
	return NULL;
}

/* A ring comes, pins, and goes; some rounds are without one, so that memory becomes private. */
static void *read_by_ring(void *arg)
{
	struct writer *writer = arg;
	struct source source = source_open();
	uint64_t value = 1;

	while (!nupa_load_relaxed(&stop)) {
		uint32_t round = nupa_load_relaxed(&round_now);
		struct uring ring;

		uring_open(&ring);
		while (nupa_load_relaxed(&round_now) - round < 2 && !nupa_load_relaxed(&stop)) {
			uint64_t *word = any_word(writer);

			uring_pin(&ring, word, sizeof(*word));
			for (int i = 0; i < 3; i++, value++) {
				uring_read(&ring, source.ends[0], word, sizeof(*word));
				CHECK_EQ(write(source.ends[1], &value, sizeof(value)),
					 sizeof(value));
				CHECK_EQ(uring_wait(&ring), sizeof(value));
				CHECK_EQ(*word, value);
			}
			uring_unpin(&ring);
		}
		uring_close(&ring);
		while (nupa_load_relaxed(&round_now) - round < 4 && !nupa_load_relaxed(&stop))
			sched_yield();
	}
	source_close(source);
	return NULL;
}

static uint32_t n_promoted; /* regions, of all rounds, that were so at all */

static void register_rounds(uint64_t *seed)
{
	struct nupa_shared_range held[2][RANGES];
	int n_held[2] = { 0 };

	for (uint32_t round = 0; round < ROUNDS; round++) {
		size_t bytes = REGION_MIN + test_random(seed) % (REGION_MAX - REGION_MIN);
		size_t from = test_random(seed) % (BYTES - bytes);
		uint32_t at = round % 2;

		nupa_store_relaxed(&round_now, round);
		nupa_promote_release(held[at], n_held[at]);
		n_held[at] = 0;
		if (round % 8 == 7)
			continue; /* so that now and then no region is left */
		n_held[at] = nupa_promote((char *)words + from, bytes, held[at], RANGES);
		CHECK(n_held[at] >= 0);
		n_promoted += n_held[at] > 0;
	}
	nupa_promote_release(held[0], n_held[0]);
	nupa_promote_release(held[1], n_held[1]);
}

static void hammer(bool system_calls)
{
	void *(*const what[CLASSES])(
	    void *) = { count, count, count, count, read_into, read_by_ring };
	struct writer writers[CLASSES];
	uint64_t seed = test_seed();
	uint32_t n = system_calls ? CLASSES : COUNTERS;

	words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(words != MAP_FAILED);
	if (n > RING && !uring_works())
		n = RING;
	for (uint32_t i = 0; i < n; i++) {
		writers[i] = (struct writer){ .index = i, .at = i, .seed = seed + i + 1 };
		CHECK_EQ(pthread_create(&writers[i].thread, NULL, what[i], &writers[i]), 0);
	}
	register_rounds(&seed);
	nupa_store_relaxed(&stop, true);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(pthread_join(writers[i].thread, NULL), 0);
	printf("  %u of %u regions were promoted\n", n_promoted, ROUNDS);
	CHECK(n_promoted > ROUNDS / 8);
	for (size_t i = 0; i < WORDS; i++) {
		const struct writer *writer = &writers[i % CLASSES];

		if (i % CLASSES < COUNTERS)
			CHECK_EQ(words[i], writer->laps + (i < writer->at));
	}
}

TEST(no_store_is_lost_while_several_pieces_are_promoted)
{
	if (!promotion_works())
		return;
	if (!sees_system_calls())
		printf("  without system calls: an ordinary user's may fail meanwhile\n");
	hammer(sees_system_calls());
}

TEST(nor_is_one_of_an_ordinary_user)
{
	become_nobody();
	if (promotion_works())
		hammer(false);
}
