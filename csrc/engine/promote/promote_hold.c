/* SPDX-License-Identifier: BSD-3-Clause
 * Holds off writers to a piece of memory while it is replaced, by a userfaultfd.  Where permitted
 * it is of the kind that sees all writers.  Otherwise it is of the kind for ordinary users, with
 * which a write by a system call fails with EFAULT. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
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

/* <linux/userfaultfd.h> since Linux 6.8: struct uffdio_move. */
struct page_move {
	uint64_t to, from, bytes, mode;
	int64_t moved; /* or -errno */
};
#define PAGE_MOVE _IOWR(UFFDIO, 0x05, struct page_move)
#define PAGE_MOVE_DONTWAKE 0x01
#define PAGE_MOVE_ALLOW_SRC_HOLES 0x02

#define PIECE_PAGES_USER_MODE 64u
/* EAGAIN is a folio that another part of the kernel has at this moment, or a pinned huge page. */
#define MOVE_TRIES 16u

static int uffd NUPA_NOT_PROMOTED = -1;
static bool user_mode_only NUPA_NOT_PROMOTED;
/* NUPA_PIECE_PAGES pages, empty but in a hold; 0: pages cannot be moved. */
static uint64_t aside NUPA_NOT_PROMOTED;

static int open_any(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	int device;

	user_mode_only = false;
	if (fd >= 0)
		return fd;
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device >= 0) {
		fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		close(device);
	}
	if (fd >= 0)
		return fd;
	user_mode_only = true;
	return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
}

static int move_pages(uint64_t to, uint64_t from, uint64_t bytes, uint64_t *moved)
{
	uint32_t tries = 0;

	*moved = 0;
	while (*moved < bytes) {
		struct page_move move = {
			.to = to + *moved,
			.from = from + *moved,
			.bytes = bytes - *moved,
			.mode = PAGE_MOVE_DONTWAKE | PAGE_MOVE_ALLOW_SRC_HOLES,
		};
		int error = ioctl(uffd, PAGE_MOVE, &move) ? errno : 0;

		if (!error)
			move.moved = (int64_t)move.bytes;
		if (move.moved > 0) {
			*moved += (uint64_t)move.moved;
			tries = 0;
		} else if (error != EAGAIN || ++tries == MOVE_TRIES) {
			return error;
		}
	}
	return 0;
}

/* Tried, as a kernel or a seccomp profile may refuse it. */
static bool can_move(uint64_t to)
{
	uint64_t page = nupa_page_bytes(), moved = 0;
	volatile char *from =
	    mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error;

	if (from == MAP_FAILED)
		return false;
	*from = 1;
	error = move_pages(to, (uintptr_t)from, page, &moved);
	munmap((void *)(uintptr_t)from, page);
	return !error || error == EEXIST;
}

static void make_aside(void)
{
	uint64_t bytes = NUPA_PIECE_PAGES * nupa_page_bytes();
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };

	if (at == MAP_FAILED)
		return;
	reg.range = (struct uffdio_range){ (uintptr_t)at, bytes };
	if (ioctl(uffd, UFFDIO_REGISTER, &reg) || !can_move((uintptr_t)at)) {
		munmap(at, bytes);
		return;
	}
	(void)madvise(at, bytes, MADV_DONTNEED);
	aside = (uintptr_t)at;
}

bool nupa_hold_possible(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		/* Of shared memory as well, to go back: since Linux 5.19. */
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};

	if (uffd >= 0)
		return true;
	uffd = open_any();
	if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api)) {
		close(uffd);
		uffd = -1;
	}
	if (uffd >= 0)
		make_aside();
	return uffd >= 0;
}

void nupa_hold_forget_in_child(void)
{
	if (uffd >= 0)
		close(uffd);
	uffd = -1;
	if (aside)
		munmap((void *)(uintptr_t)aside, NUPA_PIECE_PAGES * nupa_page_bytes());
	aside = 0;
}

bool nupa_hold_is_total(void)
{
	return !user_mode_only;
}

uint64_t nupa_hold_max_bytes(void)
{
	return nupa_page_bytes() * (user_mode_only ? PIECE_PAGES_USER_MODE : NUPA_PIECE_PAGES);
}

bool nupa_hold_begin(struct nupa_hold *hold, uint64_t va, uint64_t bytes, bool first_touch)
{
	struct uffdio_register reg = {
		.range = { va, bytes },
		.mode = UFFDIO_REGISTER_MODE_WP | (first_touch ? UFFDIO_REGISTER_MODE_MISSING : 0),
	};
	struct uffdio_writeprotect protect = { .range = { va, bytes },
					       .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	sigset_t all;

	hold->va = va;
	hold->bytes = bytes;
	/* A handler that ran in this thread and wrote there would wait for itself. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &hold->signals);
	if (ioctl(uffd, UFFDIO_REGISTER, &reg) == 0) {
		if (ioctl(uffd, UFFDIO_WRITEPROTECT, &protect) == 0)
			return true;
		nupa_hold_end(hold, false);
		return false;
	}
	pthread_sigmask(SIG_SETMASK, &hold->signals, NULL);
	return false;
}

void nupa_hold_end(struct nupa_hold *hold, bool replaced)
{
	struct uffdio_range range = { hold->va, hold->bytes };

	/* A new mapping is not registered. */
	if (!replaced)
		ioctl(uffd, UFFDIO_UNREGISTER, &range);
	/* The kernel wakes of itself only who waits for a page that is missing. */
	ioctl(uffd, UFFDIO_WAKE, &range);
	pthread_sigmask(SIG_SETMASK, &hold->signals, NULL);
}

/* --- pages that are not pinned ------------------------------------------------------- */

bool nupa_hold_can_take(void)
{
	return aside != 0;
}

/* The program changed the mapping meanwhile, in another thread, or it is not known which pages were
 * moved: page by page, where there is none.  What lies aside goes. */
static void copy_back(const struct nupa_hold *hold, uint64_t bytes)
{
	uint64_t page = nupa_page_bytes();

	for (uint64_t at = 0; at < bytes; at += page) {
		struct uffdio_copy copy = { .dst = hold->va + at,
					    .src = aside + at,
					    .len = page,
					    .mode = UFFDIO_COPY_MODE_DONTWAKE };

		while (ioctl(uffd, UFFDIO_COPY, &copy))
			if (errno == ENOMEM)
				abort(); /* rather than lose what is there */
			else if (errno != EAGAIN)
				break;
	}
	nupa_hold_drop_taken(hold);
}

static void put_back(const struct nupa_hold *hold, uint64_t bytes)
{
	uint64_t done = 0, more;
	int error;

	do { /* no other process has these pages: EAGAIN passes */
		error = move_pages(hold->va + done, aside + done, bytes - done, &more);
		done += more;
	} while (error == EAGAIN);
	if (error)
		copy_back(hold, bytes);
}

int nupa_hold_take(const struct nupa_hold *hold, uint64_t *at)
{
	uint64_t moved;
	int error = move_pages(aside, hold->va, hold->bytes, &moved);

	if (error)
		put_back(hold, moved);
	/* Linux 6.18 says so of pages that it has just moved, on a busy machine. */
	if (error == EEXIST)
		copy_back(hold, hold->bytes);
	*at = aside;
	return error;
}

void nupa_hold_put_back(const struct nupa_hold *hold)
{
	put_back(hold, hold->bytes);
}

void nupa_hold_drop_taken(const struct nupa_hold *hold)
{
	(void)madvise((void *)(uintptr_t)aside, hold->bytes, MADV_DONTNEED);
}
