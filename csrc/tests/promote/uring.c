/* SPDX-License-Identifier: BSD-3-Clause
 * An io_uring by its system calls: see uring.h. */
#define _GNU_SOURCE
#include "tests/promote/uring.h"

#include "base/atomics.h"
#include "tests/support/promoted.h"
#include "tests/support/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ENTRIES 8u

static int setup(struct io_uring_params *params)
{
	*params = (struct io_uring_params){ 0 };
	return (int)syscall(SYS_io_uring_setup, ENTRIES, params);
}

bool uring_works(void)
{
	struct io_uring_params params;
	int fd = setup(&params);

	if (fd >= 0) {
		close(fd);
		return true;
	}
	printf("  skipped: no io_uring here (%s; sysctl kernel.io_uring_disabled)\n",
	       strerror(errno));
	return false;
}

static void *map(int fd, size_t bytes, uint64_t what)
{
	void *at =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)what);

	CHECK(at != MAP_FAILED);
	return at;
}

static uint32_t *word(void *ring, uint32_t offset)
{
	return (uint32_t *)(void *)((char *)ring + offset);
}

bool pins_work(void)
{
	return promotion_works() && uring_works();
}

void uring_open(struct uring *ring)
{
	struct io_uring_params p;

	*ring = (struct uring){ .fd = setup(&p) };
	CHECK(ring->fd >= 0);
	ring->sq_bytes = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
	ring->cq_bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	ring->sqes_bytes = p.sq_entries * sizeof(struct io_uring_sqe);
	ring->sq = map(ring->fd, ring->sq_bytes, IORING_OFF_SQ_RING);
	ring->cq = map(ring->fd, ring->cq_bytes, IORING_OFF_CQ_RING);
	ring->sqes = map(ring->fd, ring->sqes_bytes, IORING_OFF_SQES);
	ring->sq_tail = word(ring->sq, p.sq_off.tail);
	ring->sq_array = word(ring->sq, p.sq_off.array);
	ring->sq_mask = *word(ring->sq, p.sq_off.ring_mask);
	ring->cq_head = word(ring->cq, p.cq_off.head);
	ring->cq_tail = word(ring->cq, p.cq_off.tail);
	ring->cq_mask = *word(ring->cq, p.cq_off.ring_mask);
	ring->cqes = word(ring->cq, p.cq_off.cqes);
}

void uring_close(struct uring *ring)
{
	/* Buffers that only the close releases are unpinned some time after it. */
	CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0 ||
	      errno == ENXIO);
	CHECK_EQ(munmap(ring->sq, ring->sq_bytes), 0);
	CHECK_EQ(munmap(ring->cq, ring->cq_bytes), 0);
	CHECK_EQ(munmap(ring->sqes, ring->sqes_bytes), 0);
	CHECK_EQ(close(ring->fd), 0);
}

void uring_pin(struct uring *ring, void *at, size_t bytes)
{
	struct iovec buffer = { at, bytes };

	CHECK_EQ(syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &buffer, 1), 0);
}

void uring_unpin(struct uring *ring)
{
	CHECK_EQ(syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0), 0);
}

void uring_read(struct uring *ring, int fd, void *at, uint32_t bytes)
{
	uint32_t index = *ring->sq_tail & ring->sq_mask;
	struct io_uring_sqe *sqe = (struct io_uring_sqe *)ring->sqes + index;

	*sqe = (struct io_uring_sqe){
		.opcode = IORING_OP_READ_FIXED,
		.fd = fd,
		.addr = (uintptr_t)at,
		.len = bytes,
		.off = UINT64_MAX, /* from where the file is */
	};
	ring->sq_array[index] = index;
	nupa_store_release(ring->sq_tail, *ring->sq_tail + 1);
	CHECK_EQ(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0), 1);
}

int32_t uring_wait(struct uring *ring)
{
	const struct io_uring_cqe *cqe;
	int32_t result;

	while (nupa_load_acquire(ring->cq_tail) == *ring->cq_head) {
		long n =
		    syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);

		CHECK(n >= 0 || errno == EINTR);
	}
	cqe = (const struct io_uring_cqe *)ring->cqes + (*ring->cq_head & ring->cq_mask);
	result = cqe->res;
	nupa_store_release(ring->cq_head, *ring->cq_head + 1);
	return result;
}

struct source source_open(void)
{
	struct source source;

	CHECK_EQ(pipe2(source.ends, O_CLOEXEC), 0);
	return source;
}

void source_close(struct source source)
{
	close(source.ends[0]);
	close(source.ends[1]);
}

void source_give(struct source source, uint8_t byte, size_t bytes)
{
	uint8_t data[512];

	memset(data, byte, sizeof(data));
	CHECK(bytes <= sizeof(data));
	CHECK_EQ(write(source.ends[1], data, bytes), bytes);
}

void uring_store(struct uring *ring, uint8_t *at, size_t bytes, uint8_t byte)
{
	struct source source = source_open();

	for (size_t i = 0; i < bytes; i += 512) {
		source_give(source, byte, 512);
		uring_read(ring, source.ends[0], at + i, 512);
		CHECK_EQ(uring_wait(ring), 512);
	}
	source_close(source);
}
