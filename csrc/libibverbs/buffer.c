/* SPDX-License-Identifier: BSD-3-Clause
 * libibverbs.so.1: buffers that the library allocates (man ibv_alloc_buf, since v64), and
 * ibv_reg_mr_ex, which takes one.  A buffer is ordinary memory here, never a dma-buf. */
#include "engine/core/nupa.h"
#include "libibverbs/access.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

struct ibv_buf {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
};

static void *fail(int error)
{
	errno = error;
	return NULL;
}

/* The kernel rounds the size up to pages. */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **out)
{
	struct ibv_buf *buf;

	if (!pd || !out || !size)
		return fail(EINVAL);
	buf = malloc(sizeof(*buf));
	if (!buf)
		return fail(ENOMEM);
	buf->pd = pd;
	buf->length = size;
	buf->addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf->addr == MAP_FAILED) {
		free(buf);
		return fail(ENOMEM);
	}
	*out = buf;
	return buf->addr;
}

void ibv_free_buf(struct ibv_buf *buf)
{
	if (!buf)
		return;
	munmap(buf->addr, buf->length);
	free(buf);
}

int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	(void)buf;
	errno = ENODATA;
	return -1;
}

static bool is_inside(const struct ibv_buf *buf, const void *addr, size_t length)
{
	uintptr_t offset = (uintptr_t)addr - (uintptr_t)buf->addr;

	return offset <= buf->length && length <= buf->length - offset;
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access)
{
	if (!pd || !buf || pd != buf->pd || !is_inside(buf, addr, length))
		return fail(EINVAL);
	return nupa_reg_mr(pd, addr, length, (uintptr_t)addr, required_access(access));
}

/* Memory at an address, or a dma-buf; DMA handles are not offered. */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	const uint64_t mask = attr->comp_mask;
	const uint64_t dmabuf = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
	const uint64_t memory = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
	int access = required_access(attr->access);

	/* attr->buf is there only where the mask says so: before v64 the structure ended earlier.
	 */
	if (mask & IBV_REG_MR_MASK_BUF && (mask & dmabuf || !attr->buf || attr->buf->pd != pd ||
					   !is_inside(attr->buf, attr->addr, attr->length)))
		return fail(EINVAL);
	if (mask & ~(memory | dmabuf | IBV_REG_MR_MASK_IOVA))
		return fail(nupa_unsupported("ibv_reg_mr_ex with a DMA handle"));
	if (mask == (dmabuf | IBV_REG_MR_MASK_IOVA))
		return nupa_reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd,
					  access);
	if (mask & dmabuf || !(mask & IBV_REG_MR_MASK_ADDR))
		return fail(EINVAL);
	return nupa_reg_mr(pd, attr->addr, attr->length,
			   mask & IBV_REG_MR_MASK_IOVA ? attr->iova : (uintptr_t)attr->addr,
			   access);
}
