/* SPDX-License-Identifier: BSD-3-Clause
 * Heaps give the least first, whatever is added and taken away in between. */
#include "base/heap.h"
#include "tests/support/runner.h"

#define ITEMS 200u
#define STEPS 20000u
#define KEYS 50u /* fewer than items: some are the same */

static const struct nupa_heap_item *least(const struct nupa_heap_item *items)
{
	const struct nupa_heap_item *found = NULL;

	for (uint32_t i = 0; i < ITEMS; i++)
		if (nupa_heap_has(&items[i]) && (!found || items[i].key < found->key))
			found = &items[i];
	return found;
}

static void check_top(const struct nupa_heap *heap, const struct nupa_heap_item *items)
{
	const struct nupa_heap_item *wanted = least(items);

	CHECK_EQ(heap->top != NULL, wanted != NULL);
	if (wanted)
		CHECK_EQ(heap->top->key, wanted->key);
}

TEST(the_least_key_is_on_top_after_each_step)
{
	static struct nupa_heap_item items[ITEMS];
	struct nupa_heap heap = { NULL };
	uint64_t state = test_seed();

	for (uint32_t step = 0; step < STEPS; step++) {
		struct nupa_heap_item *item = &items[test_random(&state) % ITEMS];

		if (test_random(&state) % 4 == 0 && heap.top)
			item = heap.top;
		if (nupa_heap_has(item))
			nupa_heap_del(&heap, item);
		else
			nupa_heap_add(&heap, item, test_random(&state) % KEYS);
		check_top(&heap, items);
	}
	while (heap.top) {
		uint64_t key = heap.top->key;

		nupa_heap_del(&heap, heap.top);
		CHECK(!heap.top || heap.top->key >= key);
	}
	CHECK(!least(items));
}

TEST(an_item_that_is_in_no_heap_may_be_taken_away)
{
	struct nupa_heap_item item = { 0 };
	struct nupa_heap heap = { NULL };

	nupa_heap_del(&heap, &item);
	CHECK(!heap.top);
	nupa_heap_add(&heap, &item, 1);
	nupa_heap_del(&heap, &item);
	nupa_heap_del(&heap, &item);
	CHECK(!heap.top);
}
