/* SPDX-License-Identifier: BSD-3-Clause
 * How private memory and memory of the memfd take each other's place under running threads, piece
 * by piece.  Writers are held off.  It is proven that the kernel has no page of the piece pinned
 * (it would go on storing to the old one).  The piece is copied, after the proof: what had been
 * pinned may have been stored to until then.  One system call puts the copy in its place, where
 * writers find it. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define EXIST_TRIES 8u /* of a piece whose pages were not known to be moved */
#define MOVE_PAGES (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)
/* proc_pid_pagemap(5): present, swapped out. */
#define PAGE_IN_USE (UINT64_C(3) << 62)

/* The kernel's word on each page of the piece. */
static uint64_t pages[NUPA_PIECE_PAGES] NUPA_NOT_PROMOTED;

/* System calls are made directly: the wrappers of sanitizers look at memory that is not ours. */
static long call_pread(int fd, uint64_t to, uint64_t bytes, uint64_t offset)
{
	return syscall(SYS_pread64, fd, to, bytes, offset);
}

static long call_pwrite(int fd, uint64_t from, uint64_t bytes, uint64_t offset)
{
	return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

/* --- in ------------------------------------------------------------------------------ */

static bool write_all(int fd, uint64_t from, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		long n = call_pwrite(fd, from, bytes, offset);

		if (n <= 0)
			return false;
		from += (uint64_t)n;
		offset += (uint64_t)n;
		bytes -= (uint64_t)n;
	}
	return true;
}

/* The next run of pages in use from *at* on; its length, 0 at the end. */
static uint32_t next_run(uint32_t *at, uint32_t n)
{
	uint32_t end;

	while (*at < n && !(pages[*at] & PAGE_IN_USE))
		++*at;
	for (end = *at; end < n && pages[end] & PAGE_IN_USE; end++)
		;
	return end - *at;
}

static bool find_pages_in_use(int pagemap, uint64_t va, uint32_t n)
{
	long bytes = (long)(n * sizeof(pages[0]));

	return call_pread(pagemap, (uintptr_t)pages, (uint64_t)bytes,
			  va / nupa_page_bytes() * sizeof(pages[0])) == bytes;
}

/* Pages that were never touched are holes in the memfd, too. */
static bool copy_in(int memfd, uint64_t from, uint32_t n, uint64_t offset)
{
	uint64_t page = nupa_page_bytes();
	uint32_t run;

	for (uint32_t at = 0; (run = next_run(&at, n)) != 0; at += run)
		if (!write_all(memfd, from + at * page, run * page, offset + at * page))
			return false;
	return true;
}

static void populate(uint64_t va, uint32_t n)
{
	uint64_t page = nupa_page_bytes();
	uint32_t run;

	for (uint32_t at = 0; (run = next_run(&at, n)) != 0; at += run)
		(void)madvise((void *)(uintptr_t)(va + at * page), run * page, MADV_POPULATE_WRITE);
}

/* The mapping goes to *park*, with what pages it still has; the memfd's takes its place. */
static bool exchange_in(int memfd, const struct nupa_hold *hold, uint64_t offset, uint64_t park)
{
	uint64_t va = hold->va, bytes = hold->bytes;

	/* Between the two calls there is nothing at va, so a thread that touches it waits. */
	if (syscall(SYS_mremap, va, bytes, bytes, MOVE_PAGES, park) != (long)park)
		return false;
	if (syscall(SYS_mmap, va, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd,
		    offset) == (long)va)
		return true;
	if (!nupa_hold_can_take())
		syscall(SYS_mremap, park, bytes, bytes, MOVE_PAGES, va);
	return false;
}

/* While the piece is held: 0 or errno. */
static int replace(int memfd, int pagemap, const struct nupa_hold *hold, uint64_t offset,
		   uint64_t park, bool readers_may_fail)
{
	uint32_t n = (uint32_t)(hold->bytes / nupa_page_bytes());
	bool take = nupa_hold_can_take(), unpinned = false, done;
	uint64_t from = hold->va;
	int error = 0;

	if (!find_pages_in_use(pagemap, hold->va, n))
		return EIO;
	if (!take || readers_may_fail)
		unpinned = nupa_pins_excluded();
	if (!take && !unpinned)
		return EPERM;
	if (unpinned && !copy_in(memfd, from, n, offset))
		return ENOMEM;
	if (take)
		error = nupa_hold_take(hold, &from);
	if (error)
		return error;
	done =
	    (unpinned || copy_in(memfd, from, n, offset)) && exchange_in(memfd, hold, offset, park);
	if (take && !done)
		nupa_hold_put_back(hold);
	return done ? 0 : ENOMEM;
}

static bool piece_in(int memfd, int pagemap, uint64_t va, uint64_t bytes, uint64_t offset,
		     uint64_t park, bool readers_may_fail)
{
	uint32_t n = (uint32_t)(bytes / nupa_page_bytes());
	uint32_t vain = 0;
	bool alone = false;
	struct nupa_hold hold;
	int error;

	for (;;) {
		if (!nupa_hold_begin(&hold, va, bytes, true))
			return false;
		error = replace(memfd, pagemap, &hold, offset, park, readers_may_fail);
		nupa_hold_end(&hold, error == 0);
		if (error == EEXIST && ++vain < EXIST_TRIES)
			continue;
		if (error != EBUSY || alone)
			break;
		populate(va, n); /* no page is shared with another process now */
		alone = true;
	}
	if (error) {
		(void)nupa_memfd_punch(offset, bytes);
		return false;
	}
	if (nupa_hold_can_take())
		nupa_hold_drop_taken(&hold);
	else
		(void)madvise((void *)(uintptr_t)park, bytes, MADV_DONTNEED);
	populate(va, n); /* pages touched before shall not fault later */
	return true;
}

uint64_t nupa_swap_in(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, uint64_t park,
		      bool readers_may_fail)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t max = nupa_hold_max_bytes(), done = 0;

	if (pagemap < 0)
		return 0;
	while (done < bytes) {
		uint64_t n = bytes - done < max ? bytes - done : max;

		if (!piece_in(memfd, pagemap, va + done, n, offset + done, park + done,
			      readers_may_fail))
			break;
		done += n;
	}
	close(pagemap);
	return done;
}

/* --- out ----------------------------------------------------------------------------- */

/* Where the memfd has pages: the last range that was found, since finding its end means walking all
 * of it. */
struct extent {
	uint64_t from, to;
};

/* The next stretch from *at* on that has pages; false: an error. */
static bool find_extent(int memfd, uint64_t at, struct extent *extent)
{
	off_t data = lseek(memfd, (off_t)at, SEEK_DATA);

	if (data < 0) {
		*extent = (struct extent){ UINT64_MAX, UINT64_MAX };
		return errno == ENXIO; /* none to the end of the file */
	}
	if ((uint64_t)data < extent->from || (uint64_t)data >= extent->to) {
		off_t hole = lseek(memfd, data, SEEK_HOLE);

		if (hole <= data)
			return false;
		extent->to = (uint64_t)hole;
	}
	extent->from = (uint64_t)data;
	return true;
}

static bool copy_out(int memfd, uint64_t to, uint64_t bytes, uint64_t offset, struct extent *extent)
{
	uint64_t at = offset, end = offset + bytes;

	while (at < end) {
		uint64_t n;

		if (!find_extent(memfd, at, extent))
			return false;
		if (extent->from >= end)
			break;
		n = (extent->to < end ? extent->to : end) - extent->from;
		if (call_pread(memfd, to + (extent->from - offset), n, extent->from) != (long)n)
			return false;
		at = extent->from + n;
	}
	return true;
}

bool nupa_swap_copy(int memfd, uint64_t to, uint64_t bytes, uint64_t offset)
{
	struct extent extent = { 0 };

	return copy_out(memfd, to, bytes, offset, &extent);
}

static bool piece_out(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, int prot,
		      uint64_t copy, struct extent *extent)
{
	struct nupa_hold hold;
	bool done = false;

	/* So that no page is to be found while writers wait. */
	if (find_extent(memfd, offset, extent) && extent->from == offset &&
	    extent->to >= offset + bytes)
		(void)madvise((void *)(uintptr_t)copy, bytes, MADV_POPULATE_WRITE);
	if (nupa_hold_begin(&hold, va, bytes, false)) {
		done = nupa_pins_excluded() && copy_out(memfd, copy, bytes, offset, extent) &&
		       (prot == (PROT_READ | PROT_WRITE) ||
			mprotect((void *)(uintptr_t)copy, bytes, prot) == 0) &&
		       syscall(SYS_mremap, copy, bytes, bytes, MOVE_PAGES, va) == (long)va;
		nupa_hold_end(&hold, done);
	}
	if (done)
		(void)nupa_memfd_punch(offset, bytes);
	else
		(void)madvise((void *)(uintptr_t)copy, bytes, MADV_DONTNEED);
	return done;
}

uint64_t nupa_swap_out(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, int prot,
		       uint64_t park)
{
	struct extent extent = { 0 };
	uint64_t max = nupa_hold_max_bytes(), done = 0;

	while (done < bytes) {
		uint64_t n = bytes - done < max ? bytes - done : max;

		if (!piece_out(memfd, va + done, n, offset + done, prot, park + done, &extent))
			break;
		done += n;
	}
	return done;
}
