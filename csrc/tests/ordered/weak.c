/* SPDX-License-Identifier: BSD-3-Clause
 * The functions that -fsanitize=thread makes the code under test call: see weak.h.  One thread at
 * a time. */
#include "tests/ordered/weak.h"
#include "tests/support/runner.h"

#include <string.h>

#define LOADS_MAX 64u
#define WORDS_MAX 16u
#define STORES_MAX 64u

static struct {
	uint8_t *at;
	size_t bytes;
	const uint8_t *steps[WEAK_STEPS_MAX];
	uint32_t n_steps;
	bool records;

	/* One execution: the step that each load chose, of those it had. */
	uint32_t chosen[LOADS_MAX], floors[LOADS_MAX];
	uint32_t n_loads, n_replayed;
	uint32_t floor, pending; /* no load before; none behind a fence */
	uint32_t of_word[WORDS_MAX];
	bool first;

	struct weak_store stores[STORES_MAX];
	uint32_t n_stores;
} weak;

void weak_begin(void *at, size_t bytes, const void *const *steps, uint32_t n_steps)
{
	CHECK(n_steps && n_steps <= WEAK_STEPS_MAX && bytes <= WORDS_MAX * 8 && bytes % 8 == 0);
	memset(&weak, 0, sizeof(weak));
	weak.at = at;
	weak.bytes = bytes;
	weak.n_steps = n_steps;
	for (uint32_t i = 0; i < n_steps; i++)
		weak.steps[i] = steps[i];
	weak.first = true;
}

const struct weak_store *weak_record(void *at, size_t bytes, const uint32_t **n)
{
	memset(&weak, 0, sizeof(weak));
	weak.at = at;
	weak.bytes = bytes;
	weak.records = true;
	*n = &weak.n_stores;
	return weak.stores;
}

void weak_end(void)
{
	weak.at = NULL;
}

/* Depth first: the last load that may still be later is, and what follows it begins anew. */
bool weak_next(void)
{
	uint32_t n = weak.n_loads;

	if (!weak.first) {
		while (n && weak.chosen[n - 1] + 1 == weak.n_steps)
			n--;
		if (!n)
			return false;
		weak.chosen[n - 1]++;
	}
	weak.first = false;
	weak.n_replayed = n;
	weak.n_loads = weak.floor = weak.pending = 0;
	memset(weak.of_word, 0, sizeof(weak.of_word));
	memcpy(weak.at, weak.steps[0], weak.bytes);
	return true;
}

static bool concerns(const volatile void *at, size_t bytes)
{
	const uint8_t *from = (const uint8_t *)(uintptr_t)at;

	return weak.at && from + bytes > weak.at && from < weak.at + weak.bytes;
}

/* A load of one word, or of a part of one. */
static void load_word(size_t offset, size_t bytes, bool acquire)
{
	uint32_t *of_word = &weak.of_word[offset / 8];
	uint32_t step = weak.floor > *of_word ? weak.floor : *of_word;

	CHECK(weak.n_loads < LOADS_MAX);
	if (weak.n_loads < weak.n_replayed)
		step = weak.chosen[weak.n_loads];
	weak.chosen[weak.n_loads++] = step;
	memcpy(weak.at + offset, weak.steps[step] + offset, bytes);
	*of_word = step;
	if (step > weak.pending)
		weak.pending = step;
	if (acquire && step > weak.floor)
		weak.floor = step;
}

static void load(const volatile void *at, size_t bytes, int order)
{
	size_t offset, end;

	if (!concerns(at, bytes) || weak.records)
		return;
	offset = (size_t)((const uint8_t *)(uintptr_t)at - weak.at);
	end = offset + bytes < weak.bytes ? offset + bytes : weak.bytes;
	while (offset < end) {
		size_t part = 8 - offset % 8 < end - offset ? 8 - offset % 8 : end - offset;

		load_word(offset, part, order != __ATOMIC_RELAXED);
		offset += part;
	}
}

static void store(volatile void *at, size_t bytes, int order)
{
	if (!concerns(at, bytes) || !weak.records)
		return;
	CHECK(weak.n_stores < STORES_MAX);
	weak.stores[weak.n_stores++] = (struct weak_store){
		(const void *)(uintptr_t)at,
		bytes,
		order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST,
	};
}

void weak_load_plain(const void *at, size_t bytes)
{
	load(at, bytes, __ATOMIC_RELAXED);
}

/* --- the interface of TSan's runtime, as far as our code calls it ----------------------- */

void __tsan_init(void);
void __tsan_func_entry(void *at);
void __tsan_func_exit(void);
void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes);
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *at)
{
	(void)at;
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *at, unsigned long bytes)
{
	load(at, bytes, __ATOMIC_RELAXED);
}

void __tsan_write_range(void *at, unsigned long bytes)
{
	store(at, bytes, __ATOMIC_RELAXED);
}

void __tsan_atomic_thread_fence(int order)
{
	if (order != __ATOMIC_RELEASE && weak.pending > weak.floor)
		weak.floor = weak.pending;
}

void __tsan_atomic_signal_fence(int order)
{
	(void)order;
}

#define PLAIN(bytes)                                                                               \
	void __tsan_read##bytes(void *at);                                                         \
	void __tsan_read##bytes(void *at)                                                          \
	{                                                                                          \
		load(at, bytes, __ATOMIC_RELAXED);                                                 \
	}                                                                                          \
	void __tsan_unaligned_read##bytes(void *at);                                               \
	void __tsan_unaligned_read##bytes(void *at)                                                \
	{                                                                                          \
		load(at, bytes, __ATOMIC_RELAXED);                                                 \
	}                                                                                          \
	void __tsan_write##bytes(void *at);                                                        \
	void __tsan_write##bytes(void *at)                                                         \
	{                                                                                          \
		store(at, bytes, __ATOMIC_RELAXED);                                                \
	}                                                                                          \
	void __tsan_unaligned_write##bytes(void *at);                                              \
	void __tsan_unaligned_write##bytes(void *at)                                               \
	{                                                                                          \
		store(at, bytes, __ATOMIC_RELAXED);                                                \
	}
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

#define ATOMIC(bits, type)                                                                         \
	type __tsan_atomic##bits##_load(const volatile type *at, int order);                       \
	type __tsan_atomic##bits##_load(const volatile type *at, int order)                        \
	{                                                                                          \
		load(at, sizeof(*at), order);                                                      \
		return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                      \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile type *at, type value, int order);                \
	void __tsan_atomic##bits##_store(volatile type *at, type value, int order)                 \
	{                                                                                          \
		store(at, sizeof(*at), order);                                                     \
		__atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                     \
	}                                                                                          \
	type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order);             \
	type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)              \
	{                                                                                          \
		load(at, sizeof(*at), order);                                                      \
		store(at, sizeof(*at), order);                                                     \
		return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                           \
	}                                                                                          \
	type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order);            \
	type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order)             \
	{                                                                                          \
		load(at, sizeof(*at), order);                                                      \
		store(at, sizeof(*at), order);                                                     \
		return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                            \
	}
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
