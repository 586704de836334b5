/* SPDX-License-Identifier: BSD-3-Clause
 * Memory regions: registered, used by local and remote keys, and deregistered. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_implicit(const void *addr, size_t length, int access)
{
	return access & IBV_ACCESS_ON_DEMAND && !addr && length == SIZE_MAX;
}

int nupa_mr_check(const struct nupa_engine *engine, void *addr, size_t length, uint64_t iova,
		  int access, enum nupa_mr_kind *kind)
{
	const struct nupa_mr memory = { .va = addr, .length = length };

	/* man ibv_reg_mr: remote write and atomic need local write. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		return EINVAL;
	if (access & ~NUPA_MR_SUPPORTED_ACCESS) {
		nupa_unsupported("ibv_reg_mr with access flags as of persistent memory");
		return EOPNOTSUPP;
	}
	*kind = NUPA_MR_MEMORY;
	if (access & IBV_ACCESS_ON_DEMAND && nupa_mr_pool_offset(engine, &memory) == UINT64_MAX) {
		*kind = NUPA_MR_ON_DEMAND;
		/* The whole address space: addresses are what they are. */
		return is_implicit(addr, length, access) && iova ? EINVAL : 0;
	}
	if (length && (!nupa_memory_mapped(addr, length) ||
		       (access & IBV_ACCESS_LOCAL_WRITE && !nupa_memory_writable(addr))))
		return EFAULT;
	return 0;
}

int nupa_mr_access(enum nupa_mr_kind kind, int access)
{
	if (kind == NUPA_MR_MEMORY)
		return (access & ~IBV_ACCESS_ON_DEMAND) | NUPA_ACCESS_PLAIN;
	return access;
}

int nupa_mr_register(struct nupa_mr *mr)
{
	struct nupa_engine *engine = nupa_engine_of(mr->ibv.context);
	int error;

	nupa_guard_renew();
	error = nupa_mr_share_and_lock(engine, mr);
	if (error)
		return error;
	error = nupa_mr_place(engine, mr);
	if (!error) {
		engine->dmabufs += mr->dmabuf != NULL;
		nupa_mr_expose(engine, mr);
		container_of(mr->ibv.pd, struct nupa_pd, ibv)->users++;
	}
	nupa_engine_unlock(engine);
	if (error)
		nupa_mr_unshare(mr->pages);
	return error;
}

struct ibv_mr *nupa_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_mr *mr = NULL;
	enum nupa_mr_kind kind;
	int error;

	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	error = nupa_mr_check(engine, addr, length, iova, access, &kind);
	if (!error) {
		mr = calloc(1, sizeof(*mr));
		error = mr ? 0 : ENOMEM;
	}
	if (error)
		goto fail;
	mr->ibv = (struct ibv_mr){ pd->context, pd, addr, length, 0, 0, 0 };
	mr->va = addr;
	mr->length = length;
	mr->iova = iova;
	mr->kind = (uint8_t)kind;
	mr->access = nupa_mr_access(kind, access);
	error = nupa_mr_register(mr);
	if (!error)
		return &mr->ibv;
fail:
	free(mr);
	errno = error;
	return NULL;
}

/* The end of a region's life but for its memory: EBUSY while windows are bound to it. */
static int end(struct nupa_engine *engine, struct nupa_mr *mr)
{
	if (mr->users)
		return EBUSY;
	nupa_mr_retract(engine, mr);
	nupa_mr_unplace(engine, mr);
	if (mr->dm)
		mr->dm->users--;
	engine->foreign_regions -= mr->exporter != 0;
	engine->dmabufs -= mr->dmabuf != NULL;
	container_of(mr->ibv.pd, struct nupa_pd, ibv)->users--;
	return 0;
}

/* Through any handle: the region itself ends; other handles can only be unimported then. */
int nupa_dereg_mr(struct ibv_mr *ibv)
{
	struct nupa_mr *mr = nupa_mr_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct nupa_mr_pages *pages = NULL;
	struct nupa_dmabuf *dmabuf = NULL;
	struct nupa_mr *region;
	int error;

	nupa_guard_renew();
	nupa_engine_lock(engine);
	region = mr->imported ? engine->mrs[mr->index] : mr;
	if (mr->gone || !region || region->ibv.lkey != ibv->lkey)
		error = EINVAL;
	else if (!region->users && !nupa_mr_settle(engine, region->index))
		error = EBUSY;
	else
		error = end(engine, region);
	if (!error) {
		region->gone = true;
		pages = region->pages;
		region->pages = NULL;
		dmabuf = region->dmabuf;
		region->dmabuf = NULL;
	}
	nupa_engine_unlock(engine);
	if (error)
		return error;
	nupa_mr_unshare(pages);
	nupa_dmabuf_release(dmabuf);
	free(mr);
	return 0;
}

/* --- use ----------------------------------------------------------------------------- */

enum ibv_wc_status nupa_mr_resolve(struct nupa_engine *engine, struct ibv_pd *pd,
				   const struct ibv_sge *sge, uint32_t n_sge, int access,
				   struct nupa_span *spans, uint32_t *n_spans)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_sge; i++) {
		uint8_t *va;

		if (sge[i].length == 0)
			continue;
		va = nupa_mr_local(engine, pd, &sge[i], access);
		if (unlikely(!va)) {
			nupa_mr_explain_local(engine, pd, &sge[i], access);
			return IBV_WC_LOC_PROT_ERR;
		}
		spans[n++] = (struct nupa_span){ va, sge[i].length };
	}
	*n_spans = n;
	return IBV_WC_SUCCESS;
}

uint8_t *nupa_mr_remote(struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			int access, bool *on_demand)
{
	const struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);

	if (!mr || (mr->access & access) != access ||
	    (mr->qpn ? mr->qpn != qp->ibv.qp_num : !nupa_mr_same_pd(mr, qp)))
		return NULL;
	*on_demand = (mr->access & IBV_ACCESS_ON_DEMAND) != 0;
	return nupa_mr_at(mr, raddr, bytes);
}
