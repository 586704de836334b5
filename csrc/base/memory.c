/* SPDX-License-Identifier: BSD-3-Clause
 * Facts about the program's memory, from the kernel, without touching the memory. */
#define _GNU_SOURCE
#include "base/memory.h"

#include "base/atomics.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Of a page whose rest may belong to others: memory checkers must not report it. */
static bool page_mapped(uintptr_t page)
{
	unsigned char resident;

	/* man mincore: ENOMEM where it is not mapped. */
	return mincore((void *)page, 1, &resident) == 0 || errno != ENOMEM;
}

bool nupa_memory_mapped(const void *addr, size_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)addr + page - 1) & ~(page - 1); /* whole pages */
	uintptr_t to = ((uintptr_t)addr + length) & ~(page - 1);

	if (length == 0)
		return true;
	if (!page_mapped((uintptr_t)addr & ~(page - 1)) ||
	    !page_mapped(((uintptr_t)addr + length - 1) & ~(page - 1)))
		return false;
	/* man msync: ENOMEM where a part is not mapped; MS_ASYNC does nothing else. */
	return to <= from || msync((void *)from, to - from, MS_ASYNC) == 0 || errno != ENOMEM;
}

/* The first page decides; kernels before 5.14 cannot tell, and success is assumed. */
bool nupa_memory_writable(const void *addr)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *at = (void *)((uintptr_t)addr & ~(page - 1));

	return madvise(at, page, MADV_POPULATE_WRITE) == 0 || errno != EINVAL ||
	       madvise(at, page, MADV_POPULATE_READ) != 0;
}

/* Kernels before 5.14 cannot make pages present on demand. */
static bool can_populate(void)
{
	static uint8_t known; /* 1: yes, 2: no */
	uint8_t is = nupa_load_relaxed(&known);

	if (!is) {
		uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
		void *stack = (void *)((uintptr_t)&page & ~(page - 1));

		is = madvise(stack, page, MADV_POPULATE_READ) == 0 ? 1 : 2;
		nupa_store_relaxed(&known, is);
	}
	return is == 1;
}

bool nupa_memory_present(const void *at, size_t bytes, bool to_write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)at & ~(page - 1);
	uintptr_t to = ((uintptr_t)at + bytes + page - 1) & ~(page - 1);

	if (!bytes)
		return true;
	if (to <= from)
		return false;
	if (!can_populate())
		return nupa_memory_mapped(at, bytes);
	return madvise((void *)from, to - from,
		       to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
}
