/* SPDX-License-Identifier: BSD-3-Clause
 * Windows for tests: a fabric whose whole pool is one region. */
#ifndef NUPA_TESTS_VIEWED_H
#define NUPA_TESTS_VIEWED_H

#include "tests/support/end.h"
#include "region/region.h"
#include "region/view/view.h"

#define PAGE UINT64_C(4096)
#define REGION_BYTES (16 * PAGE) /* all of the pool: the next region has the same memory */
#define WORDS (REGION_BYTES / sizeof(uint64_t))
#define OURS UINT64_C(0x1111111111111111)
#define THEIRS UINT64_C(0x2222222222222222)
#define ONES UINT64_MAX

struct nupa_fabric *viewed_fabric(void);
/* Of host 0, shared with host 1. */
uint64_t viewed_region(struct nupa_fabric *fabric, uint64_t bytes, uint32_t coherence);
struct nupa_view *viewed_map(struct nupa_fabric *fabric, uint64_t region, uint32_t host);
void viewed_fill(const struct nupa_view *view, uint64_t value);

/* A window that a thread loads from when it is taken away. */
struct under_way {
	const struct nupa_view *view;
	uint64_t words;   /* the first ones, which hold OURS */
	uint32_t started; /* one was loaded */
};

/* A thread: loads the words of a struct under_way until one reads as ones. */
void *load_until_ones(void *arg);

static inline uint64_t *words(const struct nupa_view *view)
{
	return nupa_view_at(view);
}

#endif
