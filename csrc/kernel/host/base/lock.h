/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * The engine's lock in a kernel, in the place of csrc/base/lock.h: a spinlock with interrupts off,
 * as verbs are called from any context.  No thread has a bias, and none shares. */
#ifndef NUPA_LOCK_H
#define NUPA_LOCK_H

#include "base/atomics.h"

#include <linux/spinlock.h>

struct nupa_thread {
	const void *holds;
};

#define NUPA_SHARERS_MAX 9u

struct nupa_lock {
	spinlock_t spin;
	unsigned long flags; /* of the holder */
	bool biased;         /* true: nothing is asked of a holder that no lane gets */
};

#define nupa_thread_self ((struct nupa_thread *)NULL)

static inline void nupa_lock_init(struct nupa_lock *lock)
{
	spin_lock_init(&lock->spin);
	lock->biased = true;
}

static inline void nupa_lock_acquire(struct nupa_lock *lock)
{
	unsigned long flags;

	spin_lock_irqsave(&lock->spin, flags);
	lock->flags = flags;
}

static inline bool nupa_lock_try(struct nupa_lock *lock)
{
	unsigned long flags;

	if (!spin_trylock_irqsave(&lock->spin, flags))
		return false;
	lock->flags = flags;
	return true;
}

static inline void nupa_lock_release(struct nupa_lock *lock)
{
	spin_unlock_irqrestore(&lock->spin, lock->flags);
}

static inline bool nupa_lock_acquire_unless_shared(struct nupa_lock *lock)
{
	nupa_lock_acquire(lock);
	return true;
}

static inline bool nupa_lock_is_shared(const struct nupa_lock *lock)
{
	return false;
}

static inline bool nupa_lock_enter(struct nupa_lock *lock)
{
	return false;
}

static inline void nupa_lock_leave(void)
{
}

static inline int nupa_lock_join(struct nupa_lock *lock)
{
	return -1;
}

static inline bool nupa_lock_vote(struct nupa_lock *lock)
{
	return false;
}

#endif
