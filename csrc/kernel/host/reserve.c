// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Blocks for the engine's allocations that must not fail.  The port's thread fills up what has been
 * taken before it runs the engine again, and waits for memory there.  So only more refusals of
 * different queue pairs than there are blocks, all of them between two of its turns, can exhaust
 * it.
 */
#include "base/reserve.h"
#include "kernel/host/host.h"

#include <linux/list.h>
#include <linux/slab.h>

static struct {
	spinlock_t lock;
	struct list_head blocks;
	uint32_t n;
} reserve = {
	.lock = __SPIN_LOCK_UNLOCKED(reserve.lock),
	.blocks = LIST_HEAD_INIT(reserve.blocks),
};

static void *take(void)
{
	struct list_head *block = NULL;
	unsigned long flags;

	spin_lock_irqsave(&reserve.lock, flags);
	if (reserve.n) {
		block = reserve.blocks.next;
		list_del(block);
		reserve.n--;
	}
	spin_unlock_irqrestore(&reserve.lock, flags);
	return block ? memset(block, 0, NUPA_RESERVE_BLOCK_BYTES) : NULL;
}

void *nupa_calloc_reserved(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory && bytes <= NUPA_RESERVE_BLOCK_BYTES)
		memory = take();
	if (!memory)
		abort();
	return memory;
}

int nupa_reserve_fill(void)
{
	while (READ_ONCE(reserve.n) < NUPA_RESERVE_BLOCKS) {
		struct list_head *block = kmalloc(NUPA_RESERVE_BLOCK_BYTES, GFP_KERNEL);
		unsigned long flags;

		if (!block)
			return -ENOMEM;
		spin_lock_irqsave(&reserve.lock, flags);
		list_add(block, &reserve.blocks);
		reserve.n++;
		spin_unlock_irqrestore(&reserve.lock, flags);
	}
	return 0;
}

void nupa_reserve_free(void)
{
	for (void *block; (block = take());)
		kfree(block);
}
