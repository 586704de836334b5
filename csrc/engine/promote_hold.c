/* SPDX-License-Identifier: BSD-3-Clause
 * Holds off whoever writes to a piece of memory while it is replaced: by a userfaultfd, of the kind
 * that sees all writers where we may have one, else of the kind for ordinary users, to which what a
 * system call writes is an error (EFAULT). */
#define _GNU_SOURCE
#include "promote_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
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

#define PIECE_PAGES_USER_MODE 64u

static int uffd = -1;
static bool user_mode_only;

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
	return uffd >= 0;
}

void nupa_hold_forget_in_child(void)
{
	if (uffd >= 0)
		close(uffd);
	uffd = -1;
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
		ioctl(uffd, UFFDIO_UNREGISTER, &reg.range);
	}
	pthread_sigmask(SIG_SETMASK, &hold->signals, NULL);
	return false;
}

void nupa_hold_end(struct nupa_hold *hold, bool replaced)
{
	struct uffdio_range range = { hold->va, hold->bytes };

	/* A new mapping is not registered; those who waited for the old one must hear of it. */
	ioctl(uffd, replaced ? UFFDIO_WAKE : UFFDIO_UNREGISTER, &range);
	pthread_sigmask(SIG_SETMASK, &hold->signals, NULL);
}
