// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Queues in memory that a process maps, and contexts of processes.
 */
#include "kernel/rdma/user/user.h"

#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

static struct user_queue *queue_of(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct user_queue, entry);
}

struct user_queue *user_queue_new(struct ib_udata *udata, uint32_t entries, size_t entry_bytes,
				  struct mminfo *info)
{
	struct ib_ucontext *context = rdma_udata_to_uverbs_attr_bundle(udata)->context;
	/* One is always empty, or a full queue would look like an empty one. */
	const uint32_t n = roundup_pow_of_two(entries + 1);
	const uint32_t bits = order_base_2(entry_bytes);
	const size_t bytes = PAGE_ALIGN(sizeof(struct rxe_queue_buf) + ((size_t)n << bits));
	struct user_queue *queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	int error;

	if (!queue)
		return ERR_PTR(-ENOMEM);
	queue->shared = vmalloc_user(bytes);
	if (!queue->shared) {
		kfree(queue);
		return ERR_PTR(-ENOMEM);
	}
	queue->element_bits = queue->shared->log2_elem_size = bits;
	queue->mask = queue->shared->index_mask = n - 1;
	error = rdma_user_mmap_entry_insert(context, &queue->entry, bytes);
	if (error) {
		vfree(queue->shared);
		kfree(queue);
		return ERR_PTR(error);
	}
	*info = (struct mminfo){
		.offset = rdma_user_mmap_get_offset(&queue->entry),
		.size = bytes,
	};
	return queue;
}

void user_queue_free(struct user_queue *queue)
{
	if (queue)
		rdma_user_mmap_entry_remove(&queue->entry);
}

/* A mapping has references of its own to the pages. */
void user_mmap_free_op(struct rdma_user_mmap_entry *entry)
{
	vfree(queue_of(entry)->shared);
	kfree(queue_of(entry));
}

int user_mmap_op(struct ib_ucontext *context, struct vm_area_struct *area)
{
	struct rdma_user_mmap_entry *entry = rdma_user_mmap_entry_get(context, area);
	int error;

	if (!entry)
		return -EINVAL;
	error = remap_vmalloc_range(area, queue_of(entry)->shared, 0);
	rdma_user_mmap_entry_put(entry);
	return error;
}

/* --- contexts ------------------------------------------------------------------------------ */

int user_alloc_context_op(struct ib_ucontext *context, struct ib_udata *udata)
{
	return 0;
}

void user_dealloc_context_op(struct ib_ucontext *context)
{
}

/* The device goes, and the process stays: its mappings are of memory that nobody else uses. */
void user_disassociate_op(struct ib_ucontext *context)
{
}
