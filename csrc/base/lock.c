/* SPDX-License-Identifier: BSD-3-Clause
 * The rarer half of the engine's lock: waiting for it, granting the bias, taking it away. */
#define _GNU_SOURCE
#include "base/lock.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/likely.h"
#include "base/machine.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 100

/* So many acquisitions in a row earn the bias.  Revoking it costs about two microseconds: where it
 * did not last, the next one takes longer to earn. */
#define ENOUGH_MIN 256u
#define ENOUGH_MAX 65536u
#define SHORT_LIVED_NS UINT64_C(10000000)
#define VOTES_MIN 16u
#define VOTES_MAX 65536u

/* The thread sanitizer knows no membarrier: there a lock is never biased, and sharers fence. */
#ifdef __SANITIZE_THREAD__
#define MAY_BIAS false
#define MAY_SHARE true
#else
#define MAY_BIAS true
#define MAY_SHARE may_bias
#endif

_Thread_local struct nupa_thread *nupa_thread_self __attribute__((tls_model("initial-exec")));

static struct nupa_thread nobody;
struct nupa_thread nupa_sharers;
static struct nupa_thread *free_records;
static pthread_mutex_t records = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t record_key;
static pthread_once_t record_once = PTHREAD_ONCE_INIT;

void nupa_lock_init(struct nupa_lock *lock)
{
	bool may_bias = MAY_BIAS && syscall(SYS_membarrier,
					    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

	*lock = (struct nupa_lock){ .owner = &nobody,
				    .enough = may_bias ? ENOUGH_MIN : 0,
				    .enough_votes = MAY_SHARE ? VOTES_MIN : 0 };
}

/* Another thread of the parent may have been changing the records.  This thread's record says that
 * it holds the parent's lock, which the child has made anew: with it no lock would ever be biased
 * here. */
void nupa_lock_forget_in_child(void)
{
	struct nupa_thread *self = nupa_thread_self;

	pthread_mutex_init(&records, NULL);
	if (self)
		self->holds = self->nested = NULL;
}

/* --- records ------------------------------------------------------------------------- */

/* L4: the next new thread takes it. */
static void give_record(void *record)
{
	struct nupa_thread *thread = record;

	pthread_mutex_lock(&records);
	thread->next_free = free_records;
	free_records = thread;
	pthread_mutex_unlock(&records);
	nupa_thread_self = NULL;
}

static void make_record_key(void)
{
	if (pthread_key_create(&record_key, give_record))
		abort(); /* of 1,024 keys none is left */
}

/* This thread's record; NULL: no memory, and therefore no bias. */
static struct nupa_thread *take_record(void)
{
	struct nupa_thread *thread;

	pthread_once(&record_once, make_record_key);
	nupa_guard_admit_thread();
	pthread_mutex_lock(&records);
	thread = free_records;
	if (thread)
		free_records = thread->next_free;
	pthread_mutex_unlock(&records);
	if (!thread)
		thread = aligned_alloc(NUPA_CACHE_LINE_BYTES, NUPA_CACHE_LINE_BYTES);
	if (!thread)
		return NULL;
	*thread = (struct nupa_thread){ 0 };
	if (pthread_setspecific(record_key, thread)) {
		free(thread);
		return NULL;
	}
	nupa_thread_self = thread;
	return thread;
}

/* --- the bias ------------------------------------------------------------------------ */

/* Waits until it is out. */
static void await_thread(const struct nupa_lock *lock, const struct nupa_thread *thread)
{
	for (uint32_t spins = 1; nupa_load_acquire(&thread->holds) == lock ||
				 nupa_load_acquire(&thread->nested) == lock;
	     spins++) {
		nupa_cpu_pause();
		if (spins % SPINS == 0)
			sched_yield();
	}
}

/* How many it takes from now on, after what they earned was taken away. */
static uint32_t enough_after(uint32_t enough, bool short_lived, uint32_t min, uint32_t max)
{
	if (!short_lived)
		return min;
	return enough < max ? enough * 2 : enough;
}

/* Also from those who share it. */
static void take_bias(struct nupa_lock *lock)
{
	const struct nupa_thread *owner = lock->owner;
	bool short_lived = nupa_clock_ns() - lock->granted_ns < SHORT_LIVED_NS;

	__atomic_store_n(&lock->owner, &nobody, __ATOMIC_SEQ_CST);
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); /* C6 */
	if (owner == &nupa_sharers) {
		for (uint32_t i = 0; i < NUPA_SHARERS_MAX && lock->sharers[i]; i++)
			await_thread(lock, lock->sharers[i]);
		lock->enough_votes =
		    enough_after(lock->enough_votes, short_lived, VOTES_MIN, VOTES_MAX);
		return;
	}
	await_thread(lock, owner);
	lock->biased = false;
	lock->enough = enough_after(lock->enough, short_lived, ENOUGH_MIN, ENOUGH_MAX);
}

/* The holder continues, but by the bias. */
static void give_bias(struct nupa_lock *lock, struct nupa_thread *self)
{
	lock->granted_ns = nupa_clock_ns();
	lock->in_row = 0;
	lock->biased = true;
	nupa_store_relaxed(&self->holds, lock);
	nupa_store_relaxed(&lock->owner, self);
	nupa_store_release(&lock->word, 0);
}

static bool take_word(struct nupa_lock *lock)
{
	return !nupa_load_relaxed(&lock->word) &&
	       !__atomic_exchange_n(&lock->word, 1, __ATOMIC_ACQUIRE);
}

bool nupa_lock_acquire_slow(struct nupa_lock *lock, bool unless_shared)
{
	struct nupa_thread *self = nupa_thread_self;

	for (uint32_t spins = 1; !take_word(lock); spins++) {
		nupa_cpu_pause();
		if (spins % SPINS == 0) /* the core goes to the holder */
			sched_yield();
	}
	if (unlikely(unless_shared && lock->owner == &nupa_sharers)) {
		nupa_store_release(&lock->word, 0);
		return false;
	}
	if (unlikely(lock->owner != &nobody))
		take_bias(lock);
	if (unlikely(!self))
		self = take_record();
	if (lock->last != self) {
		lock->last = self;
		lock->in_row = 0;
	} else if (lock->enough && ++lock->in_row >= lock->enough && self && !self->holds) {
		give_bias(lock, self);
	}
	return true;
}

int nupa_lock_join(struct nupa_lock *lock)
{
	struct nupa_thread *self = nupa_thread_self;

	for (uint32_t i = 0; self && i < NUPA_SHARERS_MAX; i++) {
		if (lock->sharers[i] && lock->sharers[i] != self)
			continue;
		lock->sharers[i] = self;
		return (int)i;
	}
	return -1;
}

bool nupa_lock_vote(struct nupa_lock *lock)
{
	if (lock->biased || lock->voter == nupa_thread_self)
		return false; /* one alone is better off with the bias */
	lock->voter = nupa_thread_self;
	if (!lock->enough_votes || ++lock->votes < lock->enough_votes)
		return false;
	lock->votes = 0;
	lock->in_row = 0;
	lock->granted_ns = nupa_clock_ns();
	nupa_store_release(&lock->owner, &nupa_sharers);
	nupa_store_release(&lock->word, 0);
	return true;
}

bool nupa_lock_try(struct nupa_lock *lock)
{
	struct nupa_thread *self = nupa_thread_self;

	if (self && nupa_load_relaxed(&lock->owner) == self) {
		if (self->nested || self->holds == lock)
			return false;
		nupa_store_relaxed(&self->nested, lock);
		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* P6 */
		if (likely(nupa_load_relaxed(&lock->owner) == self))
			return true;
		nupa_store_release(&self->nested, NULL);
		return false;
	}
	if (nupa_load_relaxed(&lock->owner) != &nobody || !take_word(lock))
		return false;
	if (likely(lock->owner == &nobody))
		return true;
	nupa_store_release(&lock->word, 0);
	return false;
}
