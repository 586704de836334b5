// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Memory of kernel users: there as long as it is registered, and reached by messages alone.
 */
#include "kernel/host/host.h"
#include "engine/channel/mapping.h"

uint32_t nupa_forks;

bool nupa_memory_mapped(const void *addr, size_t length)
{
	return true;
}

bool nupa_memory_writable(const void *addr)
{
	return true;
}

bool nupa_memory_present(const void *at, size_t bytes, bool to_write)
{
	return true;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *at, uint64_t length, uint64_t iova, int access)
{
	struct nupa_mr *mr = calloc(1, sizeof(*mr));
	int error = mr ? 0 : ENOMEM;

	if (!error) {
		mr->ibv = (struct ibv_mr){ pd->context, pd, at, length, 0, 0, 0 };
		mr->va = at;
		mr->length = length;
		mr->iova = iova;
		mr->kind = NUPA_MR_MEMORY;
		mr->access = nupa_mr_access(NUPA_MR_MEMORY, access & NUPA_MR_SUPPORTED_ACCESS);
		error = nupa_mr_register(mr);
	}
	if (!error)
		return &mr->ibv;
	free(mr);
	nupa_errno = error;
	return NULL;
}

struct ibv_mr *nupa_kernel_reg_all(struct ibv_pd *pd, int access)
{
	return reg(pd, NULL, UINT64_MAX, 0, access);
}

struct ibv_mr *nupa_kernel_reg_paged(struct ibv_pd *pd, const struct nupa_pages *pages,
				     uint64_t iova, int access)
{
	return reg(pd, nupa_paged_address(pages), pages->length, iova, access);
}

/* What a copy could not reach is beyond a paged region. */
enum nupa_reach nupa_reach_copy(pid_t to_pid, uint64_t to, pid_t from_pid, uint64_t from,
				uint64_t bytes)
{
	return nupa_is_paged((void *)(uintptr_t)from) ? NUPA_REACH_NO_SOURCE : NUPA_REACH_NO_TARGET;
}

bool nupa_reach_is_there(const void *at, uint64_t bytes)
{
	return true;
}

bool nupa_reach_from_outside(void)
{
	return false;
}

bool nupa_promote_unnoticed(void)
{
	return false;
}

int nupa_mr_share_and_lock(struct nupa_engine *engine, struct nupa_mr *mr)
{
	nupa_engine_lock(engine);
	return 0;
}

void nupa_mr_unshare(struct nupa_mr_pages *pages)
{
}

uint64_t nupa_mr_shared_offset(struct nupa_mr *mr)
{
	return UINT64_MAX;
}

void nupa_dmabuf_release(struct nupa_dmabuf *buf)
{
}

uint8_t *nupa_mr_void(bool to_write)
{
	return NULL;
}

bool nupa_mapping_find(struct nupa_channel *channel)
{
	return false;
}

struct nupa_mapping *nupa_mapping_get(struct nupa_channel *channel, uint64_t offset, uint64_t bytes,
				      uint8_t **base)
{
	return NULL;
}

void nupa_mapping_put(struct nupa_channel *channel, struct nupa_mapping *mapping)
{
}

void nupa_mapping_close(struct nupa_channel *channel)
{
}
