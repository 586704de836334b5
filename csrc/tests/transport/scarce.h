/* SPDX-License-Identifier: BSD-3-Clause
 * In place of base/reserve.h, for a part of the engine that is compiled once more: memory for
 * refusals is as scarce as it may be in a kernel (csrc/kernel/host/reserve.c). */
#ifndef NUPA_RESERVE_H
#define NUPA_RESERVE_H

#include "tests/check.h"

#include <stdbool.h>
#include <stdlib.h>

/* What there is for two engines. */
extern int scarce_blocks;

static inline bool nupa_reserve_has_room(void)
{
	return __atomic_load_n(&scarce_blocks, __ATOMIC_ACQUIRE) >= 2;
}

static inline void *nupa_calloc_reserved(size_t bytes)
{
	void *memory = calloc(1, bytes);

	CHECK(memory);
	CHECK(__atomic_fetch_sub(&scarce_blocks, 1, __ATOMIC_ACQ_REL) > 0);
	return memory;
}

#endif
