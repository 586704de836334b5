/* SPDX-License-Identifier: BSD-3-Clause
 * The engine's lock, biased towards the one thread that uses it nearly always: for that thread it
 * is a few plain stores.  Any other thread revokes the bias first, by a membarrier (a system call).
 * Several threads that touch nothing in common may have the bias together: they share the lock.
 *
 *   L1  `word` is held by a thread without the bias, and while the bias changes hands.
 *   L2  Only the holder of `word` stores `owner`; only a thread itself stores its record.
 *   L3  `biased` says how the holder got it; only a holder changes it.
 *   L4  Records are never freed, so the owner's may be read though its thread has ended.
 *   L5  While it is shared, `owner` is &nupa_sharers, and only threads of `sharers` enter.  They
 *       look at what the lock guards, and change what is theirs alone.
 *
 * P6/C6 (Dekker): the owner stores the lock that it holds, then reads `owner`; the revoker stores
 * `owner`, then reads the lock that the thread holds.  The revoker's membarrier is the full fence
 * of both. */
#ifndef NUPA_LOCK_H
#define NUPA_LOCK_H

#include "base/atomics.h"

#include <stddef.h>

struct nupa_lock;

/* Locks that a thread holds by bias: one, and another one below it that it only tried for. */
struct nupa_thread {
	const struct nupa_lock *holds;
	const struct nupa_lock *nested;
	struct nupa_thread *next_free;
};

#define NUPA_SHARERS_MAX 9u

struct nupa_lock {
	uint32_t word;
	bool biased;
	struct nupa_thread *owner; /* never NULL */
	/* Under the lock: the last thread, its acquisitions in a row, and how many earn the bias;
	 * 0: never. */
	const struct nupa_thread *last;
	uint32_t in_row;
	uint32_t enough;
	uint64_t granted_ns;
	/* Under the lock: those who may share it; how often one after another of them wanted to in
	 * a row, and how many of these earn it; 0: never. */
	struct nupa_thread *sharers[NUPA_SHARERS_MAX];
	const struct nupa_thread *voter;
	uint32_t votes;
	uint32_t enough_votes;
};

extern struct nupa_thread nupa_sharers;

extern _Thread_local struct nupa_thread *nupa_thread_self /* NULL until its first acquisition */
    __attribute__((tls_model("initial-exec")));

void nupa_lock_init(struct nupa_lock *lock);
void nupa_lock_forget_in_child(void);
/* unless_shared: gives up where it is shared, and returns false. */
bool nupa_lock_acquire_slow(struct nupa_lock *lock, bool unless_shared);
/* Never waits, and never revokes a bias. */
bool nupa_lock_try(struct nupa_lock *lock);

/* The holder will be one of the sharers: its place; -1: there is none left, or no memory. */
int nupa_lock_join(struct nupa_lock *lock);
/* The holder needed no more than a sharer may do.  True: the lock is shared now, and released. */
bool nupa_lock_vote(struct nupa_lock *lock);

static inline bool nupa_lock_is_shared(const struct nupa_lock *lock)
{
	return __builtin_expect(nupa_load_relaxed(&lock->owner) == &nupa_sharers, 0);
}

/* Enters as a sharer, which takes a place by then; false: the lock is not shared. */
static inline bool nupa_lock_enter(struct nupa_lock *lock)
{
	struct nupa_thread *self = nupa_thread_self;

	if (!nupa_lock_is_shared(lock) || !self || self->holds)
		return false;
#ifdef __SANITIZE_THREAD__
	(void)__atomic_exchange_n(&self->holds, lock, __ATOMIC_SEQ_CST);
#else
	nupa_store_relaxed(&self->holds, lock);
	__atomic_signal_fence(__ATOMIC_SEQ_CST); /* P6 */
#endif
	if (__builtin_expect(nupa_load_acquire(&lock->owner) == &nupa_sharers, 1))
		return true;
	nupa_store_release(&self->holds, NULL);
	return false;
}

static inline void nupa_lock_leave(void)
{
	nupa_store_release(&nupa_thread_self->holds, NULL);
}

static inline bool nupa_lock_acquire_biased(struct nupa_lock *lock)
{
	struct nupa_thread *self = nupa_thread_self;

	if (__builtin_expect(nupa_load_relaxed(&lock->owner) == self && !self->holds, 1)) {
		nupa_store_relaxed(&self->holds, lock);
		__atomic_signal_fence(__ATOMIC_SEQ_CST); /* P6 */
		if (__builtin_expect(nupa_load_relaxed(&lock->owner) == self, 1))
			return true;
		nupa_store_release(&self->holds, NULL);
	}
	return false;
}

static inline void nupa_lock_acquire(struct nupa_lock *lock)
{
	if (!nupa_lock_acquire_biased(lock))
		(void)nupa_lock_acquire_slow(lock, false);
}

/* The same for one who could do as a sharer; false: the lock is shared. */
static inline bool nupa_lock_acquire_unless_shared(struct nupa_lock *lock)
{
	return nupa_lock_acquire_biased(lock) ||
	       (!nupa_lock_is_shared(lock) && nupa_lock_acquire_slow(lock, true));
}

static inline void nupa_lock_release(struct nupa_lock *lock)
{
	struct nupa_thread *self = nupa_thread_self;

	if (__builtin_expect(!lock->biased, 0))
		nupa_store_release(&lock->word, 0);
	else if (__builtin_expect(self->holds == lock, 1))
		nupa_store_release(&self->holds, NULL);
	else
		nupa_store_release(&self->nested, NULL);
}

#endif
