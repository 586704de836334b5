// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Blocks for the engine's allocations that must not fail, which are refusals.  The port's thread
 * fills up what has been taken before it runs the engine again, and waits for memory there.
 *
 *   R1  A message that is taken from a ring makes one refusal at most.  None is taken unless there
 *       is a spare block for each engine: each has a lock.
 *   R2  The end of a queue pair makes one at most.  Its caller may sleep, and brings a block.
 *
 * So the blocks never run out, whatever peers send.
 */
#include "base/reserve.h"
#include "kernel/host/host.h"

#include <linux/list.h>
#include <linux/slab.h>

static DEFINE_SPINLOCK(lock);
static LIST_HEAD(blocks); /* those that are pledged, too */
int nupa_reserve_spare;

static void put(struct list_head *block, int spare)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	list_add(block, &blocks);
	WRITE_ONCE(nupa_reserve_spare, nupa_reserve_spare + spare);
	spin_unlock_irqrestore(&lock, flags);
}

/* NULL: there are no more than *kept* to spare. */
static void *take(int kept)
{
	struct list_head *block = NULL;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	if (nupa_reserve_spare > kept && !list_empty(&blocks)) {
		block = blocks.next;
		list_del(block);
		WRITE_ONCE(nupa_reserve_spare, nupa_reserve_spare - 1);
	}
	spin_unlock_irqrestore(&lock, flags);
	return block;
}

void *nupa_calloc_reserved(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory && bytes <= NUPA_RESERVE_BLOCK_BYTES) {
		memory = take(INT_MIN);
		if (memory)
			memset(memory, 0, NUPA_RESERVE_BLOCK_BYTES);
	}
	if (!memory)
		abort(); /* against R1 or R2 */
	return memory;
}

void nupa_reserve_pledge(void)
{
	put(kmalloc(NUPA_RESERVE_BLOCK_BYTES, GFP_KERNEL | __GFP_NOFAIL), 0);
}

/* Whether the block was taken or not, it is pledged no more. */
void nupa_reserve_redeem(void)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	WRITE_ONCE(nupa_reserve_spare, nupa_reserve_spare + 1);
	spin_unlock_irqrestore(&lock, flags);
	kfree(take(NUPA_RESERVE_BLOCKS));
}

int nupa_reserve_fill(void)
{
	while (!nupa_reserve_is_full()) {
		struct list_head *block = kmalloc(NUPA_RESERVE_BLOCK_BYTES, GFP_KERNEL);

		if (!block)
			return -ENOMEM;
		put(block, 1);
	}
	return 0;
}

void nupa_reserve_free(void)
{
	for (void *block; (block = take(0));)
		kfree(block);
}
