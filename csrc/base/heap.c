/* SPDX-License-Identifier: BSD-3-Clause
 * Pairing heaps. */
#include "base/heap.h"

/* One of two heaps, neither of them empty. */
static struct nupa_heap_item *merge(struct nupa_heap_item *a, struct nupa_heap_item *b)
{
	if (b->key < a->key) {
		struct nupa_heap_item *less = b;

		b = a;
		a = less;
	}
	b->next = a->child;
	if (b->next)
		b->next->before = b;
	a->child = b;
	b->before = a;
	return a;
}

/* One of siblings: pairs of neighbours first, then all of these.  NULL: there are none. */
static struct nupa_heap_item *merge_all(struct nupa_heap_item *at)
{
	struct nupa_heap_item *pairs = NULL, *all = NULL;

	while (at) {
		struct nupa_heap_item *a = at, *b = at->next;

		at = b ? b->next : NULL;
		a = b ? merge(a, b) : a;
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct nupa_heap_item *next = pairs->next;

		all = all ? merge(all, pairs) : pairs;
		pairs = next;
	}
	return all;
}

static void set_top(struct nupa_heap *heap, struct nupa_heap_item *top)
{
	heap->top = top;
	if (!top)
		return;
	top->next = NULL;
	top->before = top;
}

void nupa_heap_add(struct nupa_heap *heap, struct nupa_heap_item *item, uint64_t key)
{
	item->key = key;
	item->child = NULL;
	set_top(heap, heap->top ? merge(heap->top, item) : item);
}

void nupa_heap_del(struct nupa_heap *heap, struct nupa_heap_item *item)
{
	struct nupa_heap_item *rest;

	if (!nupa_heap_has(item))
		return;
	rest = merge_all(item->child);
	if (item == heap->top) {
		set_top(heap, rest);
	} else {
		if (item->before->child == item)
			item->before->child = item->next;
		else
			item->before->next = item->next;
		if (item->next)
			item->next->before = item->before;
		if (rest)
			set_top(heap, merge(heap->top, rest));
	}
	item->child = item->next = item->before = NULL;
}
