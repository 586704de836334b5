/* SPDX-License-Identifier: BSD-3-Clause
 * The biased lock of lock.h: no thread enters beside a holder, in any state of the bias. */
#include "base/lock.h"
#include "tests/support/runner.h"

#include <pthread.h>
#include <sched.h>

#define ROUNDS 200000u
#define BURST 1000u /* more in a row than it takes to earn the bias */
#define THREADS 4u

struct shared {
	struct nupa_lock lock;
	uint64_t count; /* not atomic: two holders at once would lose some */
};

static void *count_in_bursts(void *arg)
{
	struct shared *shared = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		nupa_lock_acquire(&shared->lock);
		shared->count++;
		nupa_lock_release(&shared->lock);
		if (i % BURST == 0)
			sched_yield();
	}
	return NULL;
}

TEST(threads_lose_no_update)
{
	struct shared shared = { 0 };
	pthread_t threads[THREADS];

	nupa_lock_init(&shared.lock);
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, count_in_bursts, &shared), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(shared.count, (uint64_t)THREADS * ROUNDS);
}

static void take_often(struct nupa_lock *lock)
{
	for (uint32_t i = 0; i < BURST; i++) {
		nupa_lock_acquire(lock);
		nupa_lock_release(lock);
	}
}

static void *take_once(void *arg)
{
	nupa_lock_acquire(arg);
	nupa_lock_release(arg);
	return NULL;
}

TEST(the_bias_is_earned_and_taken_away)
{
	struct nupa_lock lock;
	pthread_t other;

	nupa_lock_init(&lock);
	if (!lock.enough)
		return; /* no membarrier here, or TSan: never biased, as the other cases check */
	take_often(&lock);
	CHECK(lock.biased);
	CHECK_EQ(pthread_create(&other, NULL, take_once, &lock), 0);
	CHECK_EQ(pthread_join(other, NULL), 0);
	CHECK(!lock.biased);
	take_often(&lock);
	CHECK(lock.biased);
}

static void *earn_and_end(void *arg)
{
	take_often(arg);
	return NULL;
}

TEST(a_thread_that_ended_with_the_bias_holds_up_nobody)
{
	struct nupa_lock lock;
	pthread_t other;

	nupa_lock_init(&lock);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(pthread_create(&other, NULL, earn_and_end, &lock), 0);
		CHECK_EQ(pthread_join(other, NULL), 0);
		take_once(&lock);
	}
}

struct attempt {
	struct nupa_lock *lock;
	bool got;
};

static void *try_it(void *arg)
{
	struct attempt *attempt = arg;

	attempt->got = nupa_lock_try(attempt->lock);
	if (attempt->got)
		nupa_lock_release(attempt->lock);
	return NULL;
}

static bool another_thread_gets(struct nupa_lock *lock)
{
	struct attempt attempt = { .lock = lock };
	pthread_t other;

	CHECK_EQ(pthread_create(&other, NULL, try_it, &attempt), 0);
	CHECK_EQ(pthread_join(other, NULL), 0);
	return attempt.got;
}

TEST(a_try_respects_holders_and_the_bias)
{
	struct nupa_lock lock, outer;

	nupa_lock_init(&lock);
	nupa_lock_init(&outer);
	CHECK(another_thread_gets(&lock));
	nupa_lock_acquire(&lock);
	CHECK(!another_thread_gets(&lock));
	nupa_lock_release(&lock);
	take_often(&lock);
	take_often(&outer);
	nupa_lock_acquire(&lock);
	CHECK(!nupa_lock_try(&lock)); /* its own holder, too */
	nupa_lock_release(&lock);
	/* Below another lock, as the engines of one process are driven along. */
	nupa_lock_acquire(&outer);
	CHECK(nupa_lock_try(&lock));
	CHECK(!another_thread_gets(&lock));
	CHECK(!another_thread_gets(&outer));
	nupa_lock_release(&lock);
	CHECK(!another_thread_gets(&outer));
	nupa_lock_release(&outer);
	take_once(&lock);
	take_once(&outer);
}

/* --- sharing it ---------------------------------------------------------------------- */

#define SHARERS 3u
#define ENTRIES 20000u /* of each at least, while it is shared */

struct party {
	struct nupa_lock lock;
	uint32_t n_done; /* members: one alone would not share it */
	uint32_t held;   /* not atomic: sharers read it, holders change it */
	struct member {
		struct party *party;
		bool joined;
		uint64_t own; /* not atomic: its thread changes it, holders read it */
		uint64_t seen;
	} members[SHARERS];
};

static void *enter_often(void *arg)
{
	struct member *member = arg;
	struct party *party = member->party;

	while (nupa_load_relaxed(&party->n_done) < SHARERS) {
		if (!member->joined || nupa_lock_acquire_unless_shared(&party->lock)) {
			if (!member->joined) /* it may not enter yet */
				nupa_lock_acquire(&party->lock);
			CHECK(nupa_lock_join(&party->lock) >= 0);
			member->joined = true;
			if (!nupa_lock_vote(&party->lock))
				nupa_lock_release(&party->lock);
			continue;
		}
		if (!nupa_lock_enter(&party->lock))
			continue;
		CHECK_EQ(party->held, 0);
		if (++member->own == ENTRIES)
			nupa_fetch_add_seq(&party->n_done, 1);
		nupa_lock_leave();
	}
	return NULL;
}

static uint64_t hold(struct party *party)
{
	uint64_t sum = 0;

	nupa_lock_acquire(&party->lock);
	party->held = 1;
	for (uint32_t i = 0; i < SHARERS; i++) {
		CHECK(party->members[i].own >= party->members[i].seen);
		party->members[i].seen = party->members[i].own;
		sum += party->members[i].own;
	}
	party->held = 0;
	nupa_lock_release(&party->lock);
	return sum;
}

TEST(sharers_and_holders_exclude_each_other)
{
	struct party party = { 0 };
	pthread_t threads[SHARERS];

	nupa_lock_init(&party.lock);
	if (!party.lock.enough_votes)
		return; /* no membarrier here: never shared */
	for (uint32_t i = 0; i < SHARERS; i++) {
		party.members[i].party = &party;
		CHECK_EQ(pthread_create(&threads[i], NULL, enter_often, &party.members[i]), 0);
	}
	for (uint32_t i = 0; i < 100; i++) {
		(void)hold(&party);
		sched_yield();
	}
	for (uint32_t i = 0; i < SHARERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK(hold(&party) >= (uint64_t)SHARERS * ENTRIES);
}

TEST(places_of_sharers_are_limited)
{
	struct nupa_lock lock;
	pthread_t other;

	nupa_lock_init(&lock);
	take_once(&lock); /* it has a record now */
	for (uint32_t i = 0; i < NUPA_SHARERS_MAX; i++)
		lock.sharers[i] = (struct nupa_thread *)(void *)&lock;
	nupa_lock_acquire(&lock);
	CHECK_EQ(nupa_lock_join(&lock), -1);
	lock.sharers[NUPA_SHARERS_MAX - 1] = NULL;
	CHECK_EQ(nupa_lock_join(&lock), (int)NUPA_SHARERS_MAX - 1);
	CHECK_EQ(nupa_lock_join(&lock), (int)NUPA_SHARERS_MAX - 1); /* again, the same */
	nupa_lock_release(&lock);
	CHECK_EQ(pthread_create(&other, NULL, take_once, &lock), 0);
	CHECK_EQ(pthread_join(other, NULL), 0);
}
