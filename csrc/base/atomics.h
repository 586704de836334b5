/* SPDX-License-Identifier: BSD-3-Clause
 * All memory ordering of the engine.  Each pair is labelled where it is used:
 *
 *   P1/C1  a ring line: the producer's release of `tag`, the consumer's acquire
 *   P2/C2  ring space: the consumer's release of `head`, the producer's acquire
 *   P3/C3  sleeping: owner stores `sleeping` then reads rings; producer writes
 *          rings then reads `sleeping` (Dekker: both sides need a full fence)
 *   P4/C4  hazard: the initiator stores `hazard` then reads `key`; the owner clears
 *          `key` then reads `hazard` (Dekker)
 *   P5/C5  tables: an entry's fields, then its key or state by release; an entry that
 *          is changed is marked first, by a release fence before its fields
 *   P6/C6  the bias of the engine's lock: see lock.h
 *   P7/C7  second look: a claim is changed, a tag cleared, before memory is taken away;
 *          the reader reads the memory, then (acquire fence) looks at claim or tag again
 *   P8/C8  attention: the consumer marks a ring, then looks at it once more; the producer
 *          writes the ring, then looks for the mark (Dekker): see attention.h
 *
 * Full fences are read-modify-writes, which x86 needs anyway and TSan understands.  Elsewhere a
 * read-modify-write orders what precedes it; NUPA_FULL orders later loads too. */
#ifndef NUPA_ATOMICS_H
#define NUPA_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

#define nupa_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define nupa_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define nupa_load_seq(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define nupa_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define nupa_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

#if defined(__x86_64__) || defined(__i386__) || defined(__SANITIZE_THREAD__)
#define NUPA_FULL(rmw) (rmw)
#else
#define NUPA_FULL(rmw)                                                                             \
	__extension__({                                                                            \
		__typeof__(rmw) was_ = (rmw);                                                      \
		__atomic_thread_fence(__ATOMIC_SEQ_CST);                                           \
		was_;                                                                              \
	})
#endif
#define nupa_exchange_seq(p, v) NUPA_FULL(__atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST))
#define nupa_fetch_add_seq(p, v) NUPA_FULL(__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST))
#define nupa_fetch_or_seq(p, v) NUPA_FULL(__atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST))
#define nupa_cas_seq(p, expected, v)                                                               \
	NUPA_FULL(__atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_SEQ_CST,       \
					      __ATOMIC_SEQ_CST))

/* A counter that has one writer and many readers. */
static inline void nupa_count(uint64_t *counter, uint64_t n)
{
	nupa_store_relaxed(counter, nupa_load_relaxed(counter) + n);
}

/* The line will be stored to soon: have it brought here meanwhile.  Any address will do. */
static inline void nupa_prefetch_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

static inline void nupa_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
