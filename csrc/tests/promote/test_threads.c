/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion under running threads: no store to a region or beside it is lost while it is registered
 * and deregistered. */
#define _GNU_SOURCE
#include "base/atomics.h"
#include "tests/support/promoted.h"
#include "tests/support/runner.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define WRITERS 4u
#define ROUNDS 1000u
#define WORDS 6144u /* twelve pages of the heap, neither end at the end of a page */
#define HELD 3u     /* regions at a time */

/* The stores of threads to *words* meanwhile: each has every fourth of them. */
static uint64_t *words;
static bool stop;

struct writer {
	pthread_t thread;
	uint32_t index;
	uint64_t laps;
	uint32_t at; /* words of the last, unfinished lap are below */
};

static void *write_words(void *arg)
{
	struct writer *writer = arg;

	while (!nupa_load_relaxed(&stop)) {
		for (writer->at = writer->index; writer->at < WORDS; writer->at += WRITERS) {
			if (nupa_load_relaxed(&stop))
				return NULL;
			/* Plainly, as programs do: a load and a store. */
			words[writer->at]++;
		}
		writer->laps++;
	}
	return NULL;
}

static void start_writers(struct writer *writers)
{
	words = calloc(WORDS, sizeof(*words));
	CHECK(words);
	for (uint32_t i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ .index = i, .at = i };
		CHECK_EQ(pthread_create(&writers[i].thread, NULL, write_words, &writers[i]), 0);
	}
}

static void stop_writers(struct writer *writers)
{
	nupa_store_relaxed(&stop, true);
	for (uint32_t i = 0; i < WRITERS; i++)
		CHECK_EQ(pthread_join(writers[i].thread, NULL), 0);
	for (uint32_t i = 0; i < WORDS; i++) {
		const struct writer *writer = &writers[i % WRITERS];
		bool in_last = writer->at >= WORDS ? false : i < writer->at;

		CHECK_EQ(words[i], writer->laps + in_last);
	}
	free(words);
}

/* A region, all of it promoted (of an ordinary user's, while other threads run: but for pages that
 * it has in part).  It is one range, unless it joins what was promoted apart. */
struct held {
	struct nupa_shared_range ranges[HELD + 1];
	int n;
};

static bool spares_neighbours;

static void hold(struct held *held, void *at, size_t bytes)
{
	uintptr_t from = (uintptr_t)at, to = from + bytes;

	if (spares_neighbours) {
		from = (from + page() - 1) & ~(page() - 1);
		to &= ~(page() - 1);
	}
	held->n = nupa_promote(at, bytes, held->ranges, HELD + 1);
	for (int i = 0; i < held->n; i++)
		if (held->ranges[i].va <= from && held->ranges[i].va + held->ranges[i].bytes > from)
			from = held->ranges[i].va + held->ranges[i].bytes;
	CHECK(from >= to);
}

static void let_go(struct held *held)
{
	nupa_promote_release(held->ranges, held->n);
	held->n = 0;
}

/* So many registrations of random pieces of the words.  Half of them come while others are held,
 * which they may overlap; the others find none of it promoted. */
static void register_randomly(uint32_t rounds)
{
	static uint64_t random;
	struct held held[HELD] = { 0 };

	if (!random)
		random = test_seed();
	for (uint32_t round = 0; round < rounds; round++) {
		size_t from = test_random(&random) % (WORDS * sizeof(*words));
		size_t bytes = 1 + test_random(&random) % (WORDS * sizeof(*words) - from);

		if (round % 2)
			let_go(&held[test_random(&random) % HELD]);
		else
			for (uint32_t i = 0; i < HELD; i++)
				let_go(&held[i]);
		for (uint32_t i = 0; i < HELD; i++) {
			if (held[i].n)
				continue;
			hold(&held[i], (char *)words + from, bytes);
			break;
		}
	}
	for (uint32_t i = 0; i < HELD; i++)
		let_go(&held[i]);
}

TEST(four_writers_lose_no_update_through_1000_registrations)
{
	struct writer writers[WRITERS];

	if (!promotion_works())
		return;
	spares_neighbours = !sees_system_calls();
	start_writers(writers);
	register_randomly(ROUNDS);
	CHECK_EQ(bytes_in_memfd(), 0);
	stop_writers(writers);
}

TEST(nor_do_they_as_an_ordinary_user)
{
	become_nobody();
	spares_neighbours = !sees_system_calls();
	four_writers_lose_no_update_through_1000_registrations();
}

/* --- other ways to write ------------------------------------------------------------- */

static void *read_words(void *arg)
{
	uint64_t *word = arg, count = 0;
	int ends[2];

	CHECK_EQ(pipe(ends), 0);
	while (!nupa_load_relaxed(&stop)) {
		count++;
		CHECK_EQ(write(ends[1], &count, sizeof(count)), sizeof(count));
		CHECK_EQ(read(ends[0], word, sizeof(*word)), sizeof(*word));
		CHECK_EQ(*word, count);
	}
	close(ends[0]);
	close(ends[1]);
	return NULL;
}

static void read_beside_registrations(uint64_t *word, void (*registrations)(uint32_t))
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, read_words, word), 0);
	registrations(ROUNDS);
	nupa_store_relaxed(&stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(a_system_call_that_writes_into_the_region_waits_and_succeeds)
{
	if (!promotion_works())
		return;
	if (!sees_system_calls()) {
		printf("  skipped: only root's userfaultfd holds off system calls here\n");
		return;
	}
	words = calloc(WORDS, sizeof(*words));
	CHECK(words);
	read_beside_registrations(&words[WORDS / 2], register_randomly);
	free(words);
}

/* From the second word of a page on, to the last but one of another. */
static void register_all_but_the_ends(uint32_t rounds)
{
	for (uint32_t round = 0; round < rounds; round++) {
		struct held held = { 0 };

		hold(&held, words + 1, 4 * page() - 2 * sizeof(*words));
		let_go(&held);
	}
}

TEST(one_that_writes_beside_the_region_succeeds_for_every_user)
{
	become_nobody();
	if (!promotion_works())
		return;
	spares_neighbours = !sees_system_calls();
	words = (uint64_t *)(void *)map_pages(4, PROT_READ | PROT_WRITE);
	read_beside_registrations(&words[0], register_all_but_the_ends);
	stop = false;
	read_beside_registrations(&words[4 * page() / sizeof(uint64_t) - 1],
				  register_all_but_the_ends);
}

static uint64_t ticks;

static void tick(int signal)
{
	(void)signal;
	ticks++;
	words[ticks % WORDS]++;
}

TEST(a_signal_handler_that_writes_there_is_not_waited_for)
{
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { 0 };
	uint64_t sum = 0;

	if (!promotion_works())
		return;
	words = calloc(WORDS, sizeof(*words));
	CHECK(words);
	CHECK_EQ(sigaction(SIGVTALRM, &action, NULL), 0);
	CHECK_EQ(setitimer(ITIMER_VIRTUAL, &often, NULL), 0);
	register_randomly(ROUNDS);
	CHECK_EQ(setitimer(ITIMER_VIRTUAL, &never, NULL), 0);
	for (uint32_t i = 0; i < WORDS; i++)
		sum += words[i];
	CHECK_EQ(sum, ticks);
	free(words);
}

/* --- peers --------------------------------------------------------------------------- */

#define PEER_ADDS 2000u

static void *add_to_word(void *arg)
{
	for (uint32_t i = 0; i < PEER_ADDS; i++)
		nupa_fetch_add_seq((uint64_t *)arg, 1);
	return NULL;
}

/* The program and a peer write one word.  Other words of its page are registered and deregistered
 * all the time. */
TEST(atomics_of_peers_and_of_the_program_agree)
{
	struct held held = { 0 };
	uint64_t *word;

	if (!promotion_works())
		return;
	if (!sees_system_calls()) {
		printf("  skipped: an ordinary user's threads keep the page of one word private\n");
		return;
	}
	words = calloc(WORDS, sizeof(*words));
	CHECK(words);
	word = &words[WORDS / 2];
	for (uint32_t round = 1; round <= 50; round++) {
		const struct nupa_shared_range *range = &held.ranges[0];
		pthread_t peer, program;
		char *view;

		CHECK_EQ(pthread_create(&program, NULL, add_to_word, word), 0);
		hold(&held, word, sizeof(*word));
		view = mmap(NULL, range->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			    nupa_promote_fd(), (off_t)range->file_off);
		CHECK(view != MAP_FAILED);
		CHECK_EQ(
		    pthread_create(&peer, NULL, add_to_word, view + ((uintptr_t)word - range->va)),
		    0);
		register_randomly(4);
		CHECK_EQ(pthread_join(peer, NULL), 0);
		CHECK_EQ(munmap(view, range->bytes), 0);
		let_go(&held);
		CHECK_EQ(pthread_join(program, NULL), 0);
		CHECK_EQ(*word, round * 2 * PEER_ADDS);
	}
	free(words);
}
