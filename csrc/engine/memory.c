/* SPDX-License-Identifier: BSD-3-Clause
 * What the kernel knows of the program's memory, asked without touching it. */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

bool nupa_memory_mapped(const void *addr, size_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1);
	uintptr_t to = ((uintptr_t)addr + length + page - 1) & ~(page - 1);

	/* man msync: ENOMEM where a part is not mapped; MS_ASYNC does nothing else. */
	return msync((void *)from, to - from, MS_ASYNC) == 0 || errno != ENOMEM;
}

/* The first page decides; kernels before 5.14 cannot say and are believed. */
bool nupa_memory_writable(const void *addr)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *at = (void *)((uintptr_t)addr & ~(page - 1));

	return madvise(at, page, MADV_POPULATE_WRITE) == 0 || errno != EINVAL ||
	       madvise(at, page, MADV_POPULATE_READ) != 0;
}
