// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Regions of processes: pinned pages, which the engine reaches as those of fast registrations.
 */
#include "kernel/rdma/user/user.h"

#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/ib_umem.h>

#define ACCESS                                                                                     \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |                  \
	 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ACCESS_OPTIONAL)

static int list_pages(struct nupa_pages *pages, struct ib_umem *umem)
{
	struct sg_page_iter at;

	pages->page_bytes = PAGE_SIZE;
	pages->first = ib_umem_offset(umem);
	pages->length = umem->length;
	pages->max = PFN_UP(pages->first + umem->length);
	pages->at = vcalloc(pages->max, sizeof(*pages->at));
	if (!pages->at)
		return -ENOMEM;
	for_each_sgtable_page(&umem->sgt_append.sgt, &at, 0)
	{
		if (pages->n == pages->max)
			break;
		pages->at[pages->n++] = (uintptr_t)page_address(sg_page_iter_page(&at));
	}
	return pages->n == pages->max ? nupa_paged_add(pages) : -EFAULT;
}

static int make(struct rdma_mr *mr, struct ib_pd *ib, u64 iova, int access)
{
	int error = list_pages(&mr->pages, mr->umem);

	if (error)
		return error;
	mr->own = nupa_kernel_reg_paged(container_of(ib, struct rdma_pd, ib)->own, &mr->pages, iova,
					access & ~IB_ACCESS_OPTIONAL);
	if (mr->own)
		return 0;
	error = why();
	nupa_paged_del(&mr->pages);
	return error;
}

struct ib_mr *user_reg_mr_op(struct ib_pd *ib, u64 start, u64 length, u64 iova, int access,
			     struct ib_udata *udata)
{
	struct rdma_mr *mr;
	int error;

	if (rdma_is_halted())
		return ERR_PTR(-EIO);
	if (access & ~ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
	if (iova + length < iova || length >> NUPA_PAGED_OFFSET_BITS)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->umem = ib_umem_get(ib->device, start, length, access);
	if (IS_ERR(mr->umem)) {
		error = PTR_ERR(mr->umem);
		kfree(mr);
		return ERR_PTR(error);
	}
	error = make(mr, ib, iova, access);
	if (error) {
		ib_umem_release(mr->umem);
		vfree(mr->pages.at);
		kfree(mr);
		return ERR_PTR(error);
	}
	mr->ib.lkey = mr->own->lkey;
	mr->ib.rkey = mr->own->rkey;
	return &mr->ib;
}
