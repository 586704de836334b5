/* SPDX-License-Identifier: BSD-3-Clause
 * The memfd of promoted pages. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static int memfd NUPA_NOT_PROMOTED = -1;
static dev_t memfd_device NUPA_NOT_PROMOTED;
static uint64_t memfd_inode NUPA_NOT_PROMOTED;

bool nupa_memfd_is_there(void)
{
	struct stat status;

	return memfd >= 0 && fstat(memfd, &status) == 0 && status.st_dev == memfd_device &&
	       status.st_ino == memfd_inode;
}

/* NULL: no library was preloaded that has one. */
static struct nupa_promoted_file *promoted_table NUPA_NOT_PROMOTED;

/* At load, since dlsym waits for a thread that loads a library, which may wait for our locks. */
__attribute__((constructor)) static void find_table(void)
{
	promoted_table = dlsym(RTLD_DEFAULT, NUPA_PROMOTED_TABLE);
}

static void tell_preloaded(void)
{
	struct nupa_promoted_file *file = promoted_table;

	if (!file)
		return;
	for (uint32_t i = 1; i < NUPA_PROMOTED_FILES && file->inode; i++)
		file++;
	file->device = memfd_device;
	file->inode = memfd_inode;
}

/* With vm.overcommit_memory 2, a page that was promised to a private mapping may be missing for a
 * shared one: a touch would be SIGBUS. */
static bool is_overcommit_strict(void)
{
	int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
	char mode = 0;

	if (fd >= 0) {
		if (read(fd, &mode, 1) != 1)
			mode = 0;
		close(fd);
	}
	return mode == '2';
}

static int memfd_make(void)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	struct rlimit file_size;
	struct stat status;
	int fd;

	/* Beyond this limit a signal would end the program. */
	if (getrlimit(RLIMIT_FSIZE, &file_size) || file_size.rlim_cur != RLIM_INFINITY)
		return -EFBIG;
	if (is_overcommit_strict())
		return -ENOMEM;
	fd = memfd_create("nupa-promoted", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("nupa-promoted", flags);
	if (fd < 0)
		return -errno;
	/* Sealed against shrinking: what peers map of it is never taken away under them. */
	if (ftruncate(fd, (off_t)NUPA_MEMFD_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) ||
	    fstat(fd, &status)) {
		int error = -errno;

		close(fd);
		return error;
	}
	memfd = fd;
	memfd_device = status.st_dev;
	memfd_inode = status.st_ino;
	tell_preloaded();
	return 0;
}

/* One that was lost is not made again: its slots may still be mapped. */
bool nupa_memfd_ready(void)
{
	return memfd >= 0 ? nupa_memfd_is_there() : memfd_make() == 0;
}

int nupa_memfd(void)
{
	return memfd;
}

bool nupa_vma_is_memfd(const struct nupa_vma *vma)
{
	return vma->shared && vma->inode == memfd_inode && vma->device == memfd_device;
}

bool nupa_memfd_punch(uint64_t offset, uint64_t bytes)
{
	return fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)bytes) == 0;
}

void nupa_memfd_forget_in_child(void)
{
	close(memfd);
	memfd = -1;
}
