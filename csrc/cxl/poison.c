/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of poison.h. */
#include "poison.h"

#include "snoop.h"

#include <errno.h>
#include <stdlib.h>

struct nupa_cxl_memory *nupa_cxl_memory_new(void *bytes, uint64_t size)
{
	struct nupa_cxl_memory *memory;

	if (size % CXL_LINE_BYTES) {
		errno = EINVAL;
		return NULL;
	}
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return NULL;
	memory->bytes = bytes;
	memory->size = size;
	memory->poison = calloc(size / CXL_LINE_BYTES / 64 + 1, sizeof(*memory->poison));
	if (!memory->poison) {
		free(memory);
		return NULL;
	}
	return memory;
}

void nupa_cxl_memory_free(struct nupa_cxl_memory *memory)
{
	if (!memory)
		return;
	snoop_free(memory->snoop);
	free(memory->poison);
	free(memory);
}

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

/* What was there is lost; who loads past the buses, through a mapping, sees ones, too. */
static void lose_line(struct nupa_cxl_memory *memory, uint64_t offset)
{
	uint64_t *words = (uint64_t *)(void *)(memory->bytes + offset);

	for (uint32_t i = 0; i < CXL_LINE_BYTES / sizeof(*words); i++)
		__atomic_store_n(&words[i], UINT64_MAX, __ATOMIC_RELAXED);
}

void cxl_memory_poison_line(struct nupa_cxl_memory *memory, uint64_t offset, bool poisoned)
{
	uint64_t *word = &memory->poison[offset / CXL_LINE_BYTES / 64];
	uint64_t bit = poison_bit(offset), before;

	if (!poisoned && !cxl_memory_has_poison(memory, offset))
		return;
	before = poisoned ? __atomic_fetch_or(word, bit, __ATOMIC_RELAXED)
			  : __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
	if (poisoned && !(before & bit))
		lose_line(memory, offset);
	if (!(before & bit) == poisoned)
		__atomic_fetch_add(&memory->n_poisoned, poisoned ? 1 : UINT64_MAX,
				   __ATOMIC_RELAXED);
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
