/* SPDX-License-Identifier: BSD-3-Clause
 * How private memory and memory of the memfd take each other's place under running threads.
 *
 * A userfaultfd holds off whoever writes to a piece of memory (and, where it is private, whoever
 * touches a page of it for the first time); the piece is copied; one system call puts the copy in
 * its place; who waited is woken and finds it there.  Reads go on all the time.  An ordinary user
 * can hold off only what user code writes: a system call that writes there meanwhile fails with
 * EFAULT, so pieces are small then. */
#define _GNU_SOURCE
#include "promote_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(UFFDIO, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MOVE_PAGES (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)
#define PIECE_PAGES 256u
#define PIECE_PAGES_USER_MODE 64u
/* proc_pid_pagemap(5): present, swapped out. */
#define PAGE_IN_USE (UINT64_C(3) << 62)

/* All of this is guarded by the lock of promote.c. */
static int uffd = -1;
static bool user_mode_only;
static uint64_t pages[PIECE_PAGES];

/* System calls are made directly: the wrappers of sanitizers look at memory that is not ours. */
static long call_pread(int fd, uint64_t to, uint64_t bytes, uint64_t offset)
{
	return syscall(SYS_pread64, fd, to, bytes, offset);
}

static long call_pwrite(int fd, uint64_t from, uint64_t bytes, uint64_t offset)
{
	return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

static int open_uffd(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	user_mode_only = false;
	if (fd < 0) {
		int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

		if (device >= 0) {
			fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
			close(device);
		}
	}
	if (fd < 0) {
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
		user_mode_only = true;
	}
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool nupa_swap_possible(void)
{
	if (uffd < 0)
		uffd = open_uffd();
	return uffd >= 0;
}

void nupa_swap_forget_in_child(void)
{
	if (uffd >= 0)
		close(uffd);
	uffd = -1;
}

struct nupa_keep_out nupa_swap_scratch(void)
{
	uint64_t page = nupa_page_bytes();

	return (struct nupa_keep_out){
		.from = (uintptr_t)pages & ~(page - 1),
		.to = ((uintptr_t)pages + sizeof(pages) + page - 1) & ~(page - 1),
	};
}

static uint64_t piece_bytes(void)
{
	return nupa_page_bytes() * (user_mode_only ? PIECE_PAGES_USER_MODE : PIECE_PAGES);
}

/* --- holding off --------------------------------------------------------------------- */

struct hold {
	struct uffdio_range range;
	sigset_t signals;
};

/* A handler that ran in this thread and wrote there would wait for itself. */
static int hold_begin(struct hold *hold, uint64_t va, uint64_t bytes, uint64_t mode)
{
	struct uffdio_register reg = { .range = { va, bytes }, .mode = mode };
	struct uffdio_writeprotect protect = { .range = { va, bytes },
					       .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	sigset_t all;

	hold->range = reg.range;
	if (ioctl(uffd, UFFDIO_REGISTER, &reg))
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &hold->signals);
	if (ioctl(uffd, UFFDIO_WRITEPROTECT, &protect) == 0)
		return 0;
	pthread_sigmask(SIG_SETMASK, &hold->signals, NULL);
	ioctl(uffd, UFFDIO_UNREGISTER, &hold->range);
	return -EBUSY;
}

static void hold_end(struct hold *hold, bool replaced)
{
	/* A new mapping is not registered; those who waited for the old one must hear of it. */
	ioctl(uffd, replaced ? UFFDIO_WAKE : UFFDIO_UNREGISTER, &hold->range);
	pthread_sigmask(SIG_SETMASK, &hold->signals, NULL);
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

/* Pages that were never touched are holes in the memfd, too. */
static bool copy_in(int memfd, int pagemap, uint64_t va, uint64_t bytes, uint64_t offset)
{
	uint64_t page = nupa_page_bytes();
	uint32_t n = (uint32_t)(bytes / page), run;

	if (call_pread(pagemap, (uintptr_t)pages, n * sizeof(pages[0]),
		       va / page * sizeof(pages[0])) != (long)(n * sizeof(pages[0])))
		return false;
	for (uint32_t at = 0; (run = next_run(&at, n)) != 0; at += run)
		if (!write_all(memfd, va + at * page, run * page, offset + at * page))
			return false;
	return true;
}

/* The private pages go to *park*, the memfd's take their place. */
static bool exchange_in(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, uint64_t park)
{
	/* Between the two calls there is nothing at va, so whoever touches it waits. */
	if (syscall(SYS_mremap, va, bytes, bytes, MOVE_PAGES, park) != (long)park)
		return false;
	if (syscall(SYS_mmap, va, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd,
		    offset) == (long)va)
		return true;
	syscall(SYS_mremap, park, bytes, bytes, MOVE_PAGES, va);
	return false;
}

static bool piece_in(int memfd, int pagemap, uint64_t va, uint64_t bytes, uint64_t offset,
		     uint64_t park)
{
	uint64_t page = nupa_page_bytes();
	uint32_t n = (uint32_t)(bytes / page), run;
	struct hold hold;
	bool done;

	if (hold_begin(&hold, va, bytes, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP))
		return false;
	done = copy_in(memfd, pagemap, va, bytes, offset) &&
	       exchange_in(memfd, va, bytes, offset, park);
	hold_end(&hold, done);
	if (!done) {
		fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			  (off_t)bytes);
		return false;
	}
	(void)madvise((void *)(uintptr_t)park, bytes, MADV_DONTNEED);
	/* What was touched before shall not fault later. */
	for (uint32_t at = 0; (run = next_run(&at, n)) != 0; at += run)
		(void)madvise((void *)(uintptr_t)(va + at * page), run * page, MADV_POPULATE_WRITE);
	return true;
}

uint64_t nupa_swap_in(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, uint64_t park)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t done = 0;

	if (pagemap < 0)
		return 0;
	while (done < bytes) {
		uint64_t n = bytes - done < piece_bytes() ? bytes - done : piece_bytes();

		if (!piece_in(memfd, pagemap, va + done, n, offset + done, park + done))
			break;
		done += n;
	}
	close(pagemap);
	return done;
}

/* --- out ----------------------------------------------------------------------------- */

/* Where the memfd has pages: the last stretch of them that was found, since to look for its end is
 * to walk along all of it. */
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

static bool copy_out(int memfd, uint64_t to, uint64_t bytes, uint64_t offset,
		     struct extent *extent)
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

static bool piece_out(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, int prot,
		      uint64_t copy, struct extent *extent)
{
	struct hold hold;
	bool done = false;

	/* So that no page is to be found while writers wait. */
	if (find_extent(memfd, offset, extent) && extent->from == offset &&
	    extent->to >= offset + bytes)
		(void)madvise((void *)(uintptr_t)copy, bytes, MADV_POPULATE_WRITE);
	if (hold_begin(&hold, va, bytes, UFFDIO_REGISTER_MODE_WP) == 0) {
		done = copy_out(memfd, copy, bytes, offset, extent) &&
		       (prot == (PROT_READ | PROT_WRITE) ||
			mprotect((void *)(uintptr_t)copy, bytes, prot) == 0) &&
		       syscall(SYS_mremap, copy, bytes, bytes, MOVE_PAGES, va) == (long)va;
		hold_end(&hold, done);
	}
	if (done)
		fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			  (off_t)bytes);
	return done;
}

uint64_t nupa_swap_out(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, int prot,
		       uint64_t park)
{
	struct extent extent = { 0 };
	uint64_t done = 0;

	while (done < bytes) {
		uint64_t n = bytes - done < piece_bytes() ? bytes - done : piece_bytes();

		if (!piece_out(memfd, va + done, n, offset + done, prot, park + done, &extent))
			break;
		done += n;
	}
	return done;
}
