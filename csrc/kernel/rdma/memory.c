// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Protection domains, regions and address handles.
 */
#include "kernel/rdma/user/user.h"
#include "segment/gid.h"

#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/ib_umem.h>

/* --- protection domains ------------------------------------------------------------------ */

int rdma_alloc_pd_op(struct ib_pd *ib, struct ib_udata *udata)
{
	struct rdma_pd *pd = container_of(ib, struct rdma_pd, ib);

	if (rdma_is_halted())
		return -EIO;
	pd->own = nupa_alloc_pd(device_of(ib->device)->context);
	return pd->own ? 0 : why();
}

int rdma_dealloc_pd_op(struct ib_pd *ib, struct ib_udata *udata)
{
	if (rdma_is_halted())
		return 0;
	return -nupa_dealloc_pd(container_of(ib, struct rdma_pd, ib)->own);
}

/* --- regions --------------------------------------------------------------------------- */

static struct ib_mr *region(struct rdma_mr *mr, struct ibv_mr *own)
{
	if (!own) {
		if (mr && mr->pages.max)
			nupa_paged_del(&mr->pages);
		vfree(mr ? mr->pages.at : NULL);
		kfree(mr);
		return ERR_PTR(mr ? why() : -ENOMEM);
	}
	mr->own = own;
	mr->ib.lkey = own->lkey;
	mr->ib.rkey = own->rkey;
	return &mr->ib;
}

/* All of the kernel's memory, where addresses are what they are (virt_dma). */
struct ib_mr *rdma_dma_mr_op(struct ib_pd *ib, int access)
{
	struct rdma_mr *mr;

	if (rdma_is_halted())
		return ERR_PTR(-EIO);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	return region(
	    mr, mr ? nupa_kernel_reg_all(container_of(ib, struct rdma_pd, ib)->own, access) : NULL);
}

struct ib_mr *rdma_alloc_mr_op(struct ib_pd *ib, enum ib_mr_type type, u32 max)
{
	struct rdma_mr *mr;
	int error;

	if (rdma_is_halted())
		return ERR_PTR(-EIO);
	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max || max > ib->device->attrs.max_fast_reg_page_list_len)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pages.page_bytes = PAGE_SIZE;
	mr->pages.at = vcalloc(max, sizeof(*mr->pages.at));
	error = mr->pages.at ? nupa_paged_add(&mr->pages) : -ENOMEM;
	if (error) {
		vfree(mr->pages.at);
		kfree(mr);
		return ERR_PTR(error);
	}
	mr->pages.max = max;
	return region(mr, nupa_alloc_fast_mr(container_of(ib, struct rdma_pd, ib)->own,
					     nupa_paged_address(&mr->pages)));
}

static int set_page(struct ib_mr *ib, u64 address)
{
	struct nupa_pages *pages = &mr_of(ib)->pages;

	if (pages->n == pages->max)
		return -ENOMEM;
	pages->at[pages->n++] = address;
	return 0;
}

/* It is not registered now, so no copy looks at its pages. */
int rdma_map_mr_op(struct ib_mr *ib, struct scatterlist *list, int n, unsigned int *offset)
{
	struct nupa_pages *pages = &mr_of(ib)->pages;
	int mapped;

	pages->n = 0;
	mapped = ib_sg_to_pages(ib, list, n, offset, set_page);
	pages->page_bytes = ib->page_size;
	pages->first = ib->iova & (ib->page_size - 1);
	pages->length = ib->length;
	return mapped;
}

int rdma_dereg_mr_op(struct ib_mr *ib, struct ib_udata *udata)
{
	struct rdma_mr *mr = mr_of(ib);
	int error = rdma_is_halted() ? 0 : nupa_dereg_mr(mr->own);

	if (error)
		return -error;
	if (mr->pages.max)
		nupa_paged_del(&mr->pages);
	ib_umem_release(mr->umem);
	vfree(mr->pages.at);
	kfree(mr);
	return 0;
}

/* --- address handles --------------------------------------------------------------------- */

int rdma_address(struct rdma_device *device, const struct rdma_ah_attr *from,
		 struct ibv_ah_attr *attr, uint32_t *host)
{
	struct nupa_fabric *fabric = nupa_context_fabric(device->context);
	const struct ib_global_route *route = rdma_ah_read_grh(from);
	union ibv_gid gid;
	int found;

	memcpy(gid.raw, route->dgid.raw, sizeof(gid.raw));
	found = nupa_host_of_gid(fabric, &gid);
	if (found < 0)
		return -EHOSTUNREACH;
	/* The kernel's table of GIDs is the netdev's; of ours the one of the same kind is taken. */
	memset(attr, 0, sizeof(*attr));
	attr->is_global = 1;
	attr->port_num = 1;
	attr->sl = rdma_ah_get_sl(from);
	attr->grh.dgid = gid;
	attr->grh.sgid_index = ipv6_addr_v4mapped((const struct in6_addr *)gid.raw) ? NUPA_GID_IPV4
			       : nupa_gid_is_unique_local(gid.raw)                  ? NUPA_GID_IPV6
										    : NUPA_GID_LINK;
	attr->grh.hop_limit = route->hop_limit;
	attr->grh.traffic_class = route->traffic_class;
	attr->grh.flow_label = route->flow_label;
	*host = found;
	return 0;
}

int rdma_create_ah_op(struct ib_ah *ib, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	struct rdma_ah *ah = container_of(ib, struct rdma_ah, ib);
	struct rdma_pd *pd = container_of(ib->pd, struct rdma_pd, ib);
	struct ibv_ah_attr attr;
	int error = rdma_address(device_of(ib->device), init->ah_attr, &attr, &ah->host);

	if (rdma_is_halted())
		return -EIO;
	if (error)
		return error;
	ah->gid_index = attr.grh.sgid_index;
	ah->own = nupa_create_ah(pd->own, &attr);
	return ah->own ? 0 : why();
}

int rdma_destroy_ah_op(struct ib_ah *ib, u32 flags)
{
	struct rdma_ah *ah = container_of(ib, struct rdma_ah, ib);

	user_forget_ah(ah);
	return rdma_is_halted() ? 0 : -nupa_destroy_ah(ah->own);
}
