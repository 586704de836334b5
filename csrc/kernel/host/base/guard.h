/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * Copies into and out of registered memory, in the place of csrc/base/guard.h.  Memory of kernel
 * users is there as long as its region.  An address in the range of paged regions (paged.h) names a
 * byte of one of their pages, and its copies go page by page. */
#ifndef NUPA_GUARD_H
#define NUPA_GUARD_H

#include "base/atomics.h"
#include "base/memory.h"
#include "kernel/host/base/block.h"
#include "kernel/host/paged.h"

static inline void nupa_guard_install(void)
{
}

static inline void nupa_guard_renew(void)
{
}

static inline bool nupa_guard_copy(void *to, const void *from, uint64_t bytes)
{
	if (likely(!nupa_is_paged(to) && !nupa_is_paged(from))) {
		nupa_block_copy(to, from, bytes);
		return true;
	}
	return nupa_paged_copy(to, from, bytes);
}

static inline bool nupa_guard_copy_small(void *to, const void *from, uint64_t bytes)
{
	return nupa_guard_copy(to, from, bytes);
}

/* Of bytes that end at *to* + *bytes*: how many are stored last. */
static inline uint64_t nupa_guard_last(const void *to, uint64_t bytes)
{
	return bytes ? 1 : 0;
}

/* With the last byte last: a release fence orders what precedes it. */
static inline bool nupa_guard_write(void *to, const void *from, uint64_t bytes)
{
	if (bytes <= 1)
		return nupa_guard_copy(to, from, bytes);
	if (!nupa_guard_copy(to, from, bytes - 1))
		return false;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return nupa_guard_copy((uint8_t *)to + bytes - 1, (const uint8_t *)from + bytes - 1, 1);
}

static inline bool nupa_memory_copy(void *to, const void *from, size_t bytes)
{
	return nupa_guard_copy(to, from, bytes);
}

static inline bool nupa_guard_store(uint64_t *word, uint64_t value)
{
	word = nupa_paged_word(word);
	if (word)
		nupa_store_release(word, value);
	return word;
}

static inline bool nupa_guard_cas(uint64_t *word, uint64_t *expected, uint64_t swap)
{
	word = nupa_paged_word(word);
	if (word)
		nupa_cas_seq(word, expected, swap);
	return word;
}

static inline bool nupa_guard_add(uint64_t *word, uint64_t add, uint64_t *original)
{
	word = nupa_paged_word(word);
	if (word)
		*original = nupa_fetch_add_seq(word, add);
	return word;
}

#endif
