/* SPDX-License-Identifier: BSD-3-Clause
 * Accesses to the bytes of a view: copies, the lines of a cache, atomics.
 *
 * A cache fetches lines when it is made and when it is told to, never else.  It writes back the
 * lines that differ from what was fetched.  So a stale load is stale each time, and two hosts that
 * store to different lines lose nothing.  Words are copied whole, in order, so that a program that
 * flushes data before a flag publishes them as it would with hardware. */
#include "base/atomics.h"
#include "region/view/view_internal.h"

#include <errno.h>
#include <string.h>

#define WORDS (NUPA_CACHE_LINE_BYTES / sizeof(uint64_t))

/* V2: what was copied before was loaded before `lost` is. */
static inline void loads_are_done(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb ishld" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static bool is_inside(const struct nupa_view *view, uint64_t offset, uint64_t bytes)
{
	return bytes <= view->bytes && offset <= view->bytes - bytes;
}

int nupa_view_read(const struct nupa_view *view, uint64_t offset, void *to, uint64_t bytes)
{
	if (!is_inside(view, offset, bytes))
		return -ERANGE;
	memcpy(to, view->at + offset, bytes);
	loads_are_done();
	if (nupa_load_acquire(&view->lost) == NUPA_VIEW_KEPT)
		return 0;
	memset(to, 0xff, bytes);
	return -ESTALE;
}

int nupa_view_write(const struct nupa_view *view, uint64_t offset, const void *from, uint64_t bytes)
{
	if (!is_inside(view, offset, bytes))
		return -ERANGE;
	if (nupa_load_acquire(&view->lost) != NUPA_VIEW_KEPT)
		return -ESTALE;
	memcpy(view->at + offset, from, bytes);
	return nupa_load_acquire(&view->lost) == NUPA_VIEW_KEPT ? 0 : -ESTALE;
}

/* --- lines of a cache ------------------------------------------------------------ */

static void fetch_line(const struct nupa_view *view, uint64_t at)
{
	const uint64_t *home = (const uint64_t *)(const void *)(view->home + at);
	uint64_t *own = (uint64_t *)(void *)(view->at + at);
	uint64_t *twin = (uint64_t *)(void *)(view->twin + at);

	for (uint32_t i = 0; i < WORDS; i++) {
		twin[i] = nupa_load_acquire(&home[i]);
		nupa_store_relaxed(&own[i], twin[i]);
	}
}

static void write_back_line(const struct nupa_view *view, uint64_t at)
{
	uint64_t *home = (uint64_t *)(void *)(view->home + at);
	uint64_t *own = (uint64_t *)(void *)(view->at + at);
	uint64_t *twin = (uint64_t *)(void *)(view->twin + at);
	uint64_t line[WORDS];

	for (uint32_t i = 0; i < WORDS; i++)
		line[i] = nupa_load_relaxed(&own[i]);
	if (memcmp(line, twin, sizeof(line)) == 0)
		return;
	for (uint32_t i = 0; i < WORDS; i++)
		nupa_store_release(&home[i], line[i]);
	memcpy(twin, line, sizeof(line));
}

void nupa_view_fill(struct nupa_view *view)
{
	for (uint64_t at = 0; at < view->mapped; at += NUPA_CACHE_LINE_BYTES)
		fetch_line(view, at);
}

static int each_line(struct nupa_view *view, uint64_t offset, uint64_t bytes,
		     void (*visit)(const struct nupa_view *view, uint64_t at))
{
	if (!is_inside(view, offset, bytes))
		return -ERANGE;
	if (nupa_load_acquire(&view->lost) != NUPA_VIEW_KEPT)
		return -ESTALE;
	if (!view->twin || bytes == 0)
		return 0;
	pthread_mutex_lock(&view->lines);
	for (uint64_t at = offset - offset % NUPA_CACHE_LINE_BYTES; at < offset + bytes;
	     at += NUPA_CACHE_LINE_BYTES)
		visit(view, at);
	pthread_mutex_unlock(&view->lines);
	loads_are_done();
	return nupa_load_acquire(&view->lost) == NUPA_VIEW_KEPT ? 0 : -ESTALE;
}

int nupa_view_flush(struct nupa_view *view, uint64_t offset, uint64_t bytes)
{
	return each_line(view, offset, bytes, write_back_line);
}

int nupa_view_invalidate(struct nupa_view *view, uint64_t offset, uint64_t bytes)
{
	return each_line(view, offset, bytes, fetch_line);
}

/* --- atomics --------------------------------------------------------------------- */

int nupa_word_atomic(void *base, uint64_t bytes, uint64_t offset, uint32_t operation,
		     uint64_t operand, uint64_t compare, uint64_t *before)
{
	uint64_t *word = (uint64_t *)(void *)((uint8_t *)base + offset);

	if (bytes < sizeof(*word) || offset > bytes - sizeof(*word))
		return -ERANGE;
	if ((uintptr_t)word % sizeof(*word))
		return -EINVAL;
	switch ((enum nupa_word_operation)operation) {
	case NUPA_WORD_LOAD:
		*before = nupa_load_seq(word);
		return 0;
	case NUPA_WORD_STORE:
	case NUPA_WORD_SWAP:
		*before = nupa_exchange_seq(word, operand);
		return 0;
	case NUPA_WORD_FETCH_ADD:
		*before = nupa_fetch_add_seq(word, operand);
		return 0;
	case NUPA_WORD_FETCH_AND:
		*before = __atomic_fetch_and(word, operand, __ATOMIC_SEQ_CST);
		return 0;
	case NUPA_WORD_FETCH_OR:
		*before = __atomic_fetch_or(word, operand, __ATOMIC_SEQ_CST);
		return 0;
	case NUPA_WORD_FETCH_XOR:
		*before = __atomic_fetch_xor(word, operand, __ATOMIC_SEQ_CST);
		return 0;
	case NUPA_WORD_COMPARE_SWAP:
		*before = compare;
		(void)nupa_cas_seq(word, before, operand);
		return 0;
	}
	return -EINVAL;
}
