/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * Paged regions: memory of a list of pages (ib_map_mr_sg), which has no one address in a kernel.
 * The engine knows it by an address that no memory has (not canonical on x86-64): a mark, the place
 * of the region among paged ones, the offset. */
#ifndef NUPA_KERNEL_PAGED_H
#define NUPA_KERNEL_PAGED_H

#include <linux/types.h>

#define NUPA_PAGED_OFFSET_BITS 40
#define NUPA_PAGED_PLACES 8192u
#define NUPA_PAGED_MARK (UINT64_C(1) << 62)

struct nupa_pages {
	uint64_t *at; /* addresses of pages, all of page_bytes */
	uint32_t n, max;
	uint32_t page_bytes;
	uint32_t first; /* offset in the first page */
	uint64_t length;
	uint32_t place;
};

static inline bool nupa_is_paged(const void *at)
{
	return (uint64_t)(uintptr_t)at >> 62 == 1;
}

static inline void *nupa_paged_address(const struct nupa_pages *pages)
{
	return (void *)(uintptr_t)(NUPA_PAGED_MARK | (uint64_t)pages->place
							 << NUPA_PAGED_OFFSET_BITS);
}

/* paged.c.  Gives it a place: 0 or -ENOSPC; takes it back. */
int nupa_paged_add(struct nupa_pages *pages);
void nupa_paged_del(struct nupa_pages *pages);
/* Of either side paged; false: beyond the region. */
bool nupa_paged_copy(void *to, const void *from, uint64_t bytes);
/* The aligned word that an address names; NULL: beyond the region. */
uint64_t *nupa_paged_word(uint64_t *word);

#endif
