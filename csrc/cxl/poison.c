/* SPDX-License-Identifier: BSD-3-Clause
 * Lines of the memory of poison.h: read, written, poisoned. */
#include "cxl/poison.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static uint64_t poison_bit(uint64_t offset)
{
	return UINT64_C(1) << (offset / CXL_LINE_BYTES % 64);
}

bool cxl_memory_has_poison(const struct nupa_cxl_memory *memory, uint64_t offset)
{
	if (!__atomic_load_n(&memory->n_poisoned, __ATOMIC_RELAXED))
		return false;
	return __atomic_load_n(&memory->poison[offset / CXL_LINE_BYTES / 64], __ATOMIC_RELAXED) &
	       poison_bit(offset);
}

#define WORD_BYTES sizeof(uint64_t)

static bool is_words(const void *memory, size_t bytes)
{
	return !((uintptr_t)memory % WORD_BYTES) && !(bytes % WORD_BYTES);
}

/* Acquire: loaded data is not newer than the turn that is loaded next. */
static void load(const uint8_t *memory, uint8_t *to, size_t bytes)
{
	if (!is_words(memory, bytes)) {
		for (size_t i = 0; i < bytes; i++)
			to[i] = __atomic_load_n(&memory[i], __ATOMIC_ACQUIRE);
		return;
	}
	for (size_t i = 0; i < bytes; i += WORD_BYTES) {
		const uint64_t *word = (const uint64_t *)(const void *)(memory + i);
		uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		memcpy(to + i, &value, WORD_BYTES);
	}
}

/* Release: a thread that loads it sees the turn in which it was stored. */
static void store(uint8_t *memory, const uint8_t *from, size_t bytes)
{
	if (!is_words(memory, bytes)) {
		for (size_t i = 0; i < bytes; i++)
			__atomic_store_n(&memory[i], from[i], __ATOMIC_RELEASE);
		return;
	}
	for (size_t i = 0; i < bytes; i += WORD_BYTES) {
		uint64_t value;

		memcpy(&value, from + i, WORD_BYTES);
		__atomic_store_n((uint64_t *)(void *)(memory + i), value, __ATOMIC_RELEASE);
	}
}

/* The turn in which no line becomes poisoned. */
static uint64_t quiet_turn(const struct nupa_cxl_memory *memory)
{
	uint64_t turn;

	while ((turn = __atomic_load_n(&memory->turns, __ATOMIC_ACQUIRE)) & 1)
		sched_yield();
	return turn;
}

static bool is_still(const struct nupa_cxl_memory *memory, uint64_t turn)
{
	return __atomic_load_n(&memory->turns, __ATOMIC_ACQUIRE) == turn;
}

bool cxl_memory_read(const struct nupa_cxl_memory *memory, uint64_t offset, void *to, size_t bytes)
{
	uint64_t turn;
	bool has_poison;

	do {
		turn = quiet_turn(memory);
		has_poison = cxl_memory_has_poison(memory, offset);
		if (!has_poison)
			load(memory->bytes + offset, to, bytes);
	} while (!is_still(memory, turn));
	return !has_poison;
}

static void heal(struct nupa_cxl_memory *memory, uint64_t offset)
{
	uint64_t bit = poison_bit(offset);

	if (cxl_memory_has_poison(memory, offset) &&
	    __atomic_fetch_and(&memory->poison[offset / CXL_LINE_BYTES / 64], ~bit,
			       __ATOMIC_SEQ_CST) &
		bit)
		__atomic_fetch_sub(&memory->n_poisoned, 1, __ATOMIC_RELAXED);
}

/* A thread that heals a line that becomes poisoned at this moment sees the turn change, as healing
 * is a barrier.  A thread that comes too early to heal it leaves it poisoned. */
void cxl_memory_write(struct nupa_cxl_memory *memory, uint64_t offset, const void *from,
		      size_t bytes)
{
	uint64_t turn;

	do {
		turn = quiet_turn(memory);
		store(memory->bytes + offset, from, bytes);
		if (bytes == CXL_LINE_BYTES)
			heal(memory, offset);
	} while (!is_still(memory, turn));
}

/* The data is lost: loads past the buses, through a mapping, see ones, too. */
static void poison(struct nupa_cxl_memory *memory, uint64_t offset)
{
	static const uint8_t ones[CXL_LINE_BYTES] = { [0 ... CXL_LINE_BYTES - 1] = 0xFF };
	uint64_t bit = poison_bit(offset), turn;

	do
		turn = quiet_turn(memory);
	while (!__atomic_compare_exchange_n(&memory->turns, &turn, turn + 1, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	if (!(__atomic_fetch_or(&memory->poison[offset / CXL_LINE_BYTES / 64], bit,
				__ATOMIC_SEQ_CST) &
	      bit)) {
		__atomic_fetch_add(&memory->n_poisoned, 1, __ATOMIC_RELAXED);
		store(memory->bytes + offset, ones, sizeof(ones));
	}
	__atomic_store_n(&memory->turns, turn + 2, __ATOMIC_RELEASE);
}

void cxl_memory_poison_line(struct nupa_cxl_memory *memory, uint64_t offset, bool poisoned)
{
	if (poisoned)
		poison(memory, offset);
	else
		heal(memory, offset);
}

int nupa_cxl_memory_set_poison(struct nupa_cxl_memory *memory, uint64_t offset, uint64_t size,
			       bool poisoned)
{
	if (offset % CXL_LINE_BYTES || size % CXL_LINE_BYTES || offset > memory->size ||
	    size > memory->size - offset)
		return -EINVAL;
	if (!poisoned && !__atomic_load_n(&memory->n_poisoned, __ATOMIC_RELAXED))
		return 0;
	for (uint64_t i = 0; i < size; i += CXL_LINE_BYTES)
		cxl_memory_poison_line(memory, offset + i, poisoned);
	return 0;
}

int nupa_cxl_memory_is_poisoned(struct nupa_cxl_memory *memory, uint64_t offset)
{
	return offset < memory->size ? cxl_memory_has_poison(memory, offset) : -EINVAL;
}
