/* SPDX-License-Identifier: BSD-3-Clause
 * Heaps by a key of 64 bits, the least on top: pairing heaps, whose links lie in the items.  To add
 * takes constant time; to take away the top, a time that grows with the logarithm of their number,
 * on average over many. */
#ifndef NUPA_HEAP_H
#define NUPA_HEAP_H

#include "base/list.h"

#include <stdint.h>

struct nupa_heap_item {
	uint64_t key; /* does not change while it is in a heap */
	struct nupa_heap_item *child, *next;
	/* The one whose `child` or `next` it is; itself on top; NULL: it is in no heap. */
	struct nupa_heap_item *before;
};

struct nupa_heap {
	struct nupa_heap_item *top; /* NULL: empty */
};

static inline bool nupa_heap_has(const struct nupa_heap_item *item)
{
	return item->before != NULL;
}

/* An item that is in none. */
void nupa_heap_add(struct nupa_heap *heap, struct nupa_heap_item *item, uint64_t key);
/* One that is in this heap, or in none. */
void nupa_heap_del(struct nupa_heap *heap, struct nupa_heap_item *item);

#endif
