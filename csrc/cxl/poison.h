/* SPDX-License-Identifier: BSD-3-Clause
 * Memory of devices: bytes, and their poisoned lines, as the buses of all hosts that reach them see
 * it. */
#ifndef NUPA_CXL_POISON_H
#define NUPA_CXL_POISON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
struct nupa_cxl_memory;

/* Of bytes that the caller keeps.  NULL, with errno: no memory, or EINVAL: not whole lines of 64
 * bytes. */
struct nupa_cxl_memory *nupa_cxl_memory_new(void *bytes, uint64_t size);
/* No bus has a part of it any longer. */
void nupa_cxl_memory_free(struct nupa_cxl_memory *memory);
/* Poisoned lines read as ones. 0, or -EINVAL: not inside, or not whole lines. */
int nupa_cxl_memory_set_poison(struct nupa_cxl_memory *memory, uint64_t offset, uint64_t size,
			       bool poisoned);
/* 1, 0, or -EINVAL. */
int nupa_cxl_memory_is_poisoned(struct nupa_cxl_memory *memory, uint64_t offset);
/* cffi: end */

#define CXL_LINE_BYTES 64u

struct nupa_cxl_memory {
	uint8_t *bytes;
	uint64_t size;
	/* A bit for each line.  Writes of hosts change it concurrently: atomics. */
	uint64_t *poison;
	uint64_t n_poisoned; /* so that memory without poison skips the check */
	/* Odd while a line becomes poisoned: concurrent reads and writes repeat. */
	uint64_t turns;
	struct nupa_cxl_snoop *snoop; /* snoop.h; NULL: no host caches lines of it */
};

/* Bytes of one line, which is inside.  Hosts read and write a line concurrently, as in real memory:
 * each aligned word is read or written whole. */

/* false: it is poisoned, and nothing was read. */
bool cxl_memory_read(const struct nupa_cxl_memory *memory, uint64_t offset, void *to, size_t bytes);
/* A written whole line is not poisoned. */
void cxl_memory_write(struct nupa_cxl_memory *memory, uint64_t offset, const void *from,
		      size_t bytes);
bool cxl_memory_has_poison(const struct nupa_cxl_memory *memory, uint64_t offset);
void cxl_memory_poison_line(struct nupa_cxl_memory *memory, uint64_t offset, bool poisoned);

#endif
