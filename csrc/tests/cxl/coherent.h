/* SPDX-License-Identifier: BSD-3-Clause
 * Hosts whose buses share one memory with a snoop filter, and what has to hold after each step. */
#ifndef NUPA_TESTS_COHERENT_H
#define NUPA_TESTS_COHERENT_H

#include "cxl/cache.h"

#define COHERENT_BASE (UINT64_C(1) << 32)
#define COHERENT_BYTES 4096u
#define COHERENT_LINES (COHERENT_BYTES / 64u)
#define COHERENT_HOSTS 8u

/* Hosts 0 to n - 1; each has one port. */
struct coherent {
	_Alignas(64) uint8_t bytes[COHERENT_BYTES];
	struct nupa_cxl_memory *memory;
	struct nupa_cxl_bus *buses[COHERENT_HOSTS];
	uint32_t n;
};

/* Caches of 4 * ways lines, and a filter of 8 * filter_ways; ways[i] 0: host i has no cache. */
void coherent_make(struct coherent *world, uint32_t n, const uint32_t *ways, uint32_t filter_ways,
		   uint32_t tells);
void coherent_free(struct coherent *world);
/* One writer or many readers, and the directory knows of all that caches have. */
void coherent_check(struct coherent *world);

#endif
