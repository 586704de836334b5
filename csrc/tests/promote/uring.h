/* SPDX-License-Identifier: BSD-3-Clause
 * An io_uring by its system calls: buffers that the kernel pins, and reads into them. */
#ifndef NUPA_TESTS_URING_H
#define NUPA_TESTS_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uring {
	int fd;
	void *sq, *cq, *sqes;
	size_t sq_bytes, cq_bytes, sqes_bytes;
	uint32_t *sq_tail, *sq_array, *cq_head, *cq_tail;
	uint32_t sq_mask, cq_mask;
	void *cqes;
};

/* Whether this machine lets us have one; says so if not. */
bool uring_works(void);
/* Whether memory can be both promoted and pinned here; says so if not. */
bool pins_work(void);
void uring_open(struct uring *ring);
/* Nothing of it is in flight; nothing is pinned after that. */
void uring_close(struct uring *ring);
/* Pins [at, +bytes) as buffer 0. */
void uring_pin(struct uring *ring, void *at, size_t bytes);
void uring_unpin(struct uring *ring);
/* READ_FIXED from fd into buffer 0 at *at*; it is in flight when this returns. */
void uring_read(struct uring *ring, int fd, void *at, uint32_t bytes);
/* Waits until it has ended: how many bytes. */
int32_t uring_wait(struct uring *ring);

/* An empty pipe: what is read from it is in flight for as long as we like. */
struct source {
	int ends[2];
};

struct source source_open(void);
void source_close(struct source source);
/* At most 512 bytes of that value. */
void source_give(struct source source, uint8_t byte, size_t bytes);

/* The kernel stores *byte* into [at, +bytes) of the pinned buffer. */
void uring_store(struct uring *ring, uint8_t *at, size_t bytes, uint8_t byte);

#endif
