/* SPDX-License-Identifier: BSD-3-Clause
 * madvise(MADV_DONTNEED) makes private memory read as zeros, but not shared memory.  For the same
 * effect on memory that is promoted (promote.h) while it is registered, the pages are removed from
 * the memfd instead. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "engine/promote/promote_internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* The memfds of this process, named by the engine, of which there may be several copies. */
NUPA_SHIM_WRAPPER struct nupa_promoted_file nupa_shim_promoted[NUPA_PROMOTED_FILES];

static bool is_promoted(const struct nupa_vma *vma)
{
	for (uint32_t i = 0; i < NUPA_PROMOTED_FILES; i++)
		if (vma->shared && vma->inode && vma->inode == nupa_shim_promoted[i].inode &&
		    vma->device == nupa_shim_promoted[i].device)
			return true;
	return false;
}

static int advise(uint64_t from, uint64_t to, int advice)
{
	if (from >= to)
		return 0;
	return (int)syscall(SYS_madvise, from, to - from, advice);
}

/* Each promoted mapping separately; memory between them as it is. */
static int take_pages(uint64_t from, uint64_t to, int advice)
{
	uint64_t at = from;
	struct nupa_maps maps;
	struct nupa_vma vma;
	int failed = 0, error = 0;

	if (nupa_maps_open(&maps))
		return advise(from, to, advice);
	while (at < to && nupa_maps_find(&maps, at, &vma) && vma.start < to) {
		at = vma.end;
		if (!is_promoted(&vma))
			continue;
		failed |= advise(from, vma.start, advice);
		error = failed && !error ? errno : error;
		from = vma.start > from ? vma.start : from;
		failed |= advise(from, vma.end < to ? vma.end : to, MADV_REMOVE);
		error = failed && !error ? errno : error;
		from = vma.end;
	}
	nupa_maps_close(&maps);
	failed |= advise(from, to, advice);
	if (error)
		errno = error;
	return failed;
}

static int advise_promoted(void *addr, size_t bytes, int advice)
{
	uint64_t page = nupa_page_bytes();
	uint64_t from = (uintptr_t)addr, to = from + ((bytes + page - 1) & ~(page - 1));

	if ((advice != MADV_DONTNEED && advice != MADV_FREE && advice != MADV_DONTNEED_LOCKED) ||
	    !nupa_shim_promoted[0].inode || from % page || to <= from)
		return (int)syscall(SYS_madvise, addr, bytes, advice);
	return take_pages(from, to, advice);
}

NUPA_SHIM_ALIAS(madvise, advise_promoted);
