/* SPDX-License-Identifier: BSD-3-Clause
 * Regions of dma-bufs (man 3 ibv_reg_dmabuf_mr), mapped as long as they are registered.  The kernel
 * copies nothing between such a mapping and another process: their owner moves all of it. */
#define _GNU_SOURCE
#include "engine/memory/mr.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* As the kernel has it for UVERBS_METHOD_REG_DMABUF_MR. */
#define SUPPORTED_ACCESS                                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE)
#define WRITING_REMOTELY (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct nupa_dmabuf {
	uint8_t *base;
	size_t bytes;
	uint64_t sync; /* DMA_BUF_SYNC_READ, DMA_BUF_SYNC_WRITE */
	int fd;        /* a copy of the program's */
	dev_t dev;     /* and its file: programs close descriptors that are not theirs */
	ino_t ino;
};

static bool is_well_formed(uint64_t offset, size_t length, uint64_t iova, int access)
{
	uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	if (access & ~SUPPORTED_ACCESS)
		return false;
	if (access & WRITING_REMOTELY && !(access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return length && offset + length > offset && iova + length >= iova &&
	       (offset & in_page) == (iova & in_page);
}

/* 0; EBADF, or EINVAL: another kind of file.  Its exporter's name is in proc_pid_fdinfo(5). */
static int check_is_dmabuf(int fd)
{
	char text[1024], path[40];
	ssize_t n;
	int info;

	if (fcntl(fd, F_GETFD) < 0)
		return EBADF;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return errno;
	n = read(info, text, sizeof(text) - 1);
	close(info);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "\nexp_name:") ? 0 : EINVAL;
}

/* Begins or ends the time in which the processor uses the mapping: 0 or an errno. */
static int sync_cpu(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags };

	while (ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync))
		if (errno != EINTR && errno != EAGAIN)
			return errno;
	return 0;
}

static int map(struct nupa_dmabuf *buf, uint64_t offset, size_t length, int access)
{
	uint64_t skip = offset & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
	off_t end = lseek(buf->fd, 0, SEEK_END);
	int error;

	if (end < 0)
		return errno;
	if (offset + length > (uint64_t)end)
		return EINVAL;
	buf->bytes = skip + length;
	buf->base = mmap(NULL, buf->bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
			 buf->fd, (off_t)(offset - skip));
	if (buf->base == MAP_FAILED)
		/* The sizes are right: its exporter does not let processors use it. */
		return errno == EINVAL ? nupa_unsupported("ibv_reg_dmabuf_mr of memory of a device")
				       : errno;
	buf->sync = writes ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ;
	error = sync_cpu(buf->fd, DMA_BUF_SYNC_START | buf->sync);
	if (error)
		munmap(buf->base, buf->bytes);
	return error;
}

static bool copy_descriptor(struct nupa_dmabuf *buf, int fd)
{
	struct stat status = { 0 };

	if (fstat(fd, &status))
		return false;
	buf->dev = status.st_dev;
	buf->ino = status.st_ino;
	buf->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return buf->fd >= 0;
}

/* NULL: errno says why. */
static struct nupa_dmabuf *import(int fd, uint64_t offset, size_t length, int access)
{
	struct nupa_dmabuf *buf = NULL;
	int error = check_is_dmabuf(fd);

	if (!error) {
		buf = calloc(1, sizeof(*buf));
		error = buf ? 0 : ENOMEM;
	}
	if (!buf)
		goto fail;
	if (!copy_descriptor(buf, fd)) {
		error = errno;
		goto fail;
	}
	error = map(buf, offset, length, access);
	if (!error)
		return buf;
	close(buf->fd);
fail:
	free(buf);
	errno = error;
	return NULL;
}

void nupa_dmabuf_release(struct nupa_dmabuf *buf)
{
	struct stat status;

	if (!buf)
		return;
	if (!fstat(buf->fd, &status) && status.st_dev == buf->dev && status.st_ino == buf->ino) {
		(void)sync_cpu(buf->fd, DMA_BUF_SYNC_END | buf->sync);
		close(buf->fd);
	}
	munmap(buf->base, buf->bytes);
	free(buf);
}

struct ibv_mr *nupa_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				  int fd, int access)
{
	/* As ibv_reg_dmabuf_mr of rdma-core: the address is the offset. */
	void *addr = (void *)(uintptr_t)offset;
	struct nupa_dmabuf *buf;
	struct nupa_mr *mr;
	int error = ENOMEM;

	if (!is_well_formed(offset, length, iova, access)) {
		errno = EINVAL;
		return NULL;
	}
	buf = import(fd, offset, length, access);
	if (!buf)
		return NULL;
	mr = calloc(1, sizeof(*mr));
	if (mr) {
		mr->ibv = (struct ibv_mr){ pd->context, pd, addr, length, 0, 0, 0 };
		mr->va = buf->base + (buf->bytes - length);
		mr->length = length;
		mr->iova = iova;
		mr->kind = NUPA_MR_MEMORY;
		mr->access = nupa_mr_access(NUPA_MR_MEMORY, access);
		mr->dmabuf = buf;
		error = nupa_mr_register(mr);
		if (!error)
			return &mr->ibv;
	}
	free(mr);
	nupa_dmabuf_release(buf);
	errno = error;
	return NULL;
}
