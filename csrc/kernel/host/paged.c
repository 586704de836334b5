// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Paged regions: an address leads to its region's place, and the offset to a page.  Places change
 * under the engine's lock, and copies are made with it.
 */
#include "kernel/host/base/block.h"
#include "kernel/host/paged.h"

#include <linux/align.h>
#include <linux/bitops.h>
#include <linux/math64.h>
#include <linux/spinlock.h>
#include <linux/string.h>

static struct nupa_pages *places[NUPA_PAGED_PLACES];
static uint32_t next_place;
static DEFINE_SPINLOCK(places_lock);

int nupa_paged_add(struct nupa_pages *pages)
{
	unsigned long flags;
	int error = -ENOSPC;

	spin_lock_irqsave(&places_lock, flags);
	for (uint32_t i = 0; i < NUPA_PAGED_PLACES && error; i++) {
		const uint32_t place = next_place++ % NUPA_PAGED_PLACES;

		if (READ_ONCE(places[place]))
			continue;
		pages->place = place;
		WRITE_ONCE(places[place], pages);
		error = 0;
	}
	spin_unlock_irqrestore(&places_lock, flags);
	return error;
}

void nupa_paged_del(struct nupa_pages *pages)
{
	WRITE_ONCE(places[pages->place], NULL);
}

/* Where the byte is, and in *run how many follow it in its page; NULL: beyond the region. */
static uint8_t *find_byte(const void *address, uint64_t *run)
{
	const uint64_t word = (uint64_t)(uintptr_t)address & ~NUPA_PAGED_MARK;
	const uint32_t place = word >> NUPA_PAGED_OFFSET_BITS;
	const struct nupa_pages *pages =
	    place < NUPA_PAGED_PLACES ? READ_ONCE(places[place]) : NULL;
	uint64_t offset = word & ((UINT64_C(1) << NUPA_PAGED_OFFSET_BITS) - 1);
	uint32_t in_page;

	if (!pages || offset >= pages->length)
		return NULL;
	*run = min(*run, pages->length - offset);
	offset += pages->first;
	in_page = offset & (pages->page_bytes - 1);
	offset >>= __ffs(pages->page_bytes);
	if (offset >= pages->n)
		return NULL;
	*run = min_t(uint64_t, *run, pages->page_bytes - in_page);
	return (uint8_t *)(uintptr_t)pages->at[offset] + in_page;
}

bool nupa_paged_copy(void *to, const void *from, uint64_t bytes)
{
	while (bytes) {
		uint64_t run = bytes;
		void *target = nupa_is_paged(to) ? find_byte(to, &run) : to;
		const void *source = nupa_is_paged(from) ? find_byte(from, &run) : from;

		if (!target || !source)
			return false;
		nupa_block_copy(target, source, run);
		to = (uint8_t *)to + run;
		from = (const uint8_t *)from + run;
		bytes -= run;
	}
	return true;
}

uint64_t *nupa_paged_word(uint64_t *word)
{
	uint64_t run = sizeof(*word);

	if (!nupa_is_paged(word))
		return word;
	word = (uint64_t *)(void *)find_byte(word, &run);
	/* Pages may begin at any byte, and an atomic across two lines is a fault. */
	return run == sizeof(*word) && IS_ALIGNED((uintptr_t)word, sizeof(*word)) ? word : NULL;
}
