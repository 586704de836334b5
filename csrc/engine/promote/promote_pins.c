/* SPDX-License-Identifier: BSD-3-Clause
 * Whether the kernel may have pinned memory of this process.
 *
 * The kernel does not tell which pages of a memfd are pinned.  But a pin that outlasts a system
 * call belongs to a file.  The file is an io_uring, a device (VFIO, GPUs, adapters), or one opened
 * with O_DIRECT for asynchronous reads.  So nothing is pinned where every open file is of a kind
 * that pins nothing.  The caller holds off writers, as a new pin begins with a write fault.
 *
 * Called while memory is held: writes nothing but the stack. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Of this thread: the first one may have ended. */
#define STATUS "/proc/thread-self/status"
#define FILES "/proc/thread-self/fd"
#define STATUS_BYTES 4096u
#define NAME_BYTES 4096u

/* <linux/magic.h> since Linux 6.9. */
#define MAGIC_PIDFS 0x50494446

/* System calls are made directly: the preloaded shim answers for some files, and the wrappers of
 * sanitizers look at memory that is held. */
static ssize_t read_file(const char *path, char *to, size_t bytes)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n;

	if (fd < 0)
		return -1;
	n = syscall(SYS_read, fd, to, bytes - 1);
	syscall(SYS_close, fd);
	if (n >= 0)
		to[n] = 0;
	return n;
}

/* proc_pid_status(5): the number behind *key*; UINT64_MAX: it is not there. */
static uint64_t status_value(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
}

/* --- descriptors --------------------------------------------------------------------- */

/* All whose reads are copies out of the page cache, unless O_DIRECT asks otherwise.  FUSE, 9p and
 * CIFS read into pinned pages without being asked. */
static bool is_cached_filesystem(int fd)
{
	struct statfs fs;

	if (syscall(SYS_fstatfs, fd, &fs))
		return false;
	switch ((uint32_t)fs.f_type) {
	case BPF_FS_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case CGROUP_SUPER_MAGIC:
	case DEBUGFS_MAGIC:
	case DEVPTS_SUPER_MAGIC:
	case EXT4_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case HUGETLBFS_MAGIC:
	case ISOFS_SUPER_MAGIC:
	case EROFS_SUPER_MAGIC_V1:
	case MAGIC_PIDFS:
	case XFS_SUPER_MAGIC:
	case MSDOS_SUPER_MAGIC:
	case NFS_SUPER_MAGIC:
	case NSFS_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case PROC_SUPER_MAGIC:
	case RAMFS_MAGIC:
	case SECURITYFS_MAGIC:
	case SQUASHFS_MAGIC:
	case SYSFS_MAGIC:
	case TMPFS_MAGIC:
	case TRACEFS_MAGIC:
		return true;
	default:
		return false;
	}
}

static bool is_harmless_device(uint32_t major, uint32_t minor)
{
	switch (major) {
	case 1: /* mem: null, zero, full, random, urandom, kmsg */
		return minor == 3 || minor == 5 || (minor >= 7 && minor <= 9) || minor == 11;
	case 4: /* terminals */
	case 5:
		return true;
	case 10: /* misc: tun, userfaultfd */
		return minor == 200 || minor == 126;
	default:
		return major >= 136 && major <= 143; /* pseudoterminals */
	}
}

/* Device DAX, which a guest's fabric lies in, is mapped and does no I/O. */
static bool is_dax(uint32_t major, uint32_t minor)
{
	static const char subsystem[] = "/dax";
	char path[64], name[128];
	long n;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major, minor);
	n = syscall(SYS_readlinkat, AT_FDCWD, path, name, sizeof(name));
	return n >= (long)sizeof(subsystem) - 1 && n < (long)sizeof(name) &&
	       memcmp(name + n - (sizeof(subsystem) - 1), subsystem, sizeof(subsystem) - 1) == 0;
}

static bool is_harmless_socket(int fd)
{
	int domain = 0;
	socklen_t bytes = sizeof(domain);

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes))
		return false;
	return domain == AF_UNIX || domain == AF_INET || domain == AF_INET6 ||
	       domain == AF_NETLINK || domain == AF_PACKET;
}

static bool is_harmless_anon_inode(int files, const char *number)
{
	static const char *const harmless[] = {
		"[eventfd]", "[eventpoll]", "[fanotify]",  "inotify",       "[perf_event]",
		"[pidfd]",   "[signalfd]",  "[timerfd]",   "[userfaultfd]", "bpf-map",
		"bpf-prog",  "bpf_link",    "[fscontext]", "[mount]",
	};
	static const char prefix[] = "anon_inode:";
	char name[64];
	long n;

	n = syscall(SYS_readlinkat, files, number, name, sizeof(name) - 1);
	if (n < (long)sizeof(prefix) || memcmp(name, prefix, sizeof(prefix) - 1) != 0)
		return false;
	name[n] = 0;
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (strcmp(name + sizeof(prefix) - 1, harmless[i]) == 0)
			return true;
	return false;
}

/* Data only leaves memory by a file that is open for writing alone. */
static bool is_harmless_file(int fd, bool cached)
{
	long flags = syscall(SYS_fcntl, fd, F_GETFL);

	if (flags < 0)
		return false;
	return (flags & O_ACCMODE) == O_WRONLY || (cached && !(flags & O_DIRECT));
}

/* One that /proc lists in *files* by that number. */
static bool is_harmless(int files, const char *number)
{
	struct statx status;
	int fd = atoi(number);

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &status))
		return errno == EBADF;
	switch (status.stx_mode & S_IFMT) {
	case S_IFDIR:
	case S_IFIFO:
	case S_IFLNK:
		return true;
	case S_IFSOCK:
		return is_harmless_socket(fd);
	case S_IFREG:
		return is_harmless_file(fd, is_cached_filesystem(fd));
	case S_IFBLK:
		return is_harmless_file(fd, true);
	case S_IFCHR:
		return is_harmless_device(status.stx_rdev_major, status.stx_rdev_minor) ||
		       is_dax(status.stx_rdev_major, status.stx_rdev_minor) ||
		       syscall(SYS_fcntl, fd, F_GETFL) & O_PATH;
	case 0:
		return is_harmless_anon_inode(files, number);
	default:
		return false;
	}
}

/* The first two are the directory's own. */
static bool are_harmless(int files, const char *entries, long bytes)
{
	for (long at = 0; at < bytes;) {
		const struct dirent64 *entry = (const void *)(entries + at);

		at += entry->d_reclen;
		if (entry->d_name[0] != '.' && !is_harmless(files, entry->d_name))
			return false;
	}
	return true;
}

static bool files_are_harmless(void)
{
	_Alignas(struct dirent64) char entries[4096];
	int files = (int)syscall(SYS_openat, AT_FDCWD, FILES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool harmless;
	long n;

	if (files < 0)
		return false;
	do {
		n = syscall(SYS_getdents64, files, entries, sizeof(entries));
		harmless = n >= 0 && are_harmless(files, entries, n);
	} while (harmless && n > 0);
	syscall(SYS_close, files);
	return harmless;
}

/* --- mappings ------------------------------------------------------------------------ */

static bool starts_with(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

/* A mapping keeps its file open: asynchronous I/O, devices. */
static bool is_harmless_mapping(const char *name)
{
	if (starts_with(name, "/dev/"))
		return starts_with(name, "/dev/shm/") || starts_with(name, "/dev/zero") ||
		       starts_with(name, "/dev/hugepages/") || starts_with(name, "/dev/dax");
	return name[0] == '/' && name[1] != '[' && !starts_with(name, "/dmabuf:");
}

static bool mappings_are_harmless(void)
{
	char name[NAME_BYTES];
	struct nupa_maps maps;
	struct nupa_vma vma;
	uint64_t at = 0;
	bool harmless = true;

	if (nupa_maps_open(&maps))
		return false;
	while (harmless && nupa_maps_find_shared(&maps, at, &vma, name, sizeof(name))) {
		at = vma.end;
		harmless = nupa_vma_is_memfd(&vma) || is_harmless_mapping(name);
	}
	nupa_maps_close(&maps);
	return harmless;
}

/* Asynchronous I/O continues after its file was closed, and shows as a mapping.  So does a device,
 * which then accounts pinned memory as locked.  Reading many mappings takes long, so this is done
 * only where such a mapping may exist. */
static bool has_hidden_files(const char *status)
{
	char aio_contexts[32]; /* of the machine */

	return status_value(status, "\nVmLck:") != 0 ||
	       read_file("/proc/sys/fs/aio-nr", aio_contexts, sizeof(aio_contexts)) <= 0 ||
	       strtoull(aio_contexts, NULL, 10) != 0;
}

bool nupa_pins_excluded(void)
{
	char status[STATUS_BYTES];

	return read_file(STATUS, status, sizeof(status)) > 0 &&
	       status_value(status, "\nVmPin:") == 0 && files_are_harmless() &&
	       (!has_hidden_files(status) || mappings_are_harmless());
}
