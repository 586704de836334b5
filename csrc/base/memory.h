/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of this process, as the kernel knows it. */
#ifndef NUPA_MEMORY_H
#define NUPA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the program has this memory at all. */
bool nupa_memory_mapped(const void *addr, size_t length);
bool nupa_memory_writable(const void *addr);
/* Makes [at, +bytes) present, to be read or written; false: it cannot be. */
bool nupa_memory_present(const void *at, size_t bytes, bool to_write);

#endif
