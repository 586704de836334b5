/* SPDX-License-Identifier: BSD-3-Clause
 * Ownership of files: owner.h. */
#define _GNU_SOURCE
#include "segment/owner.h"

#include "base/explain.h"
#include "segment/backing.h"
#include "segment/segment_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* user_namespaces(7), uid_map: lines of first, first outside, count. */
static bool is_mapped(uid_t user)
{
	unsigned long first, outer, count;
	bool mapped = false;
	FILE *file;

	file = fopen("/proc/self/uid_map", "re");
	if (!file)
		return true; /* no /proc, or a kernel without user namespaces */
	while (!mapped && fscanf(file, "%lu %lu %lu", &first, &outer, &count) == 3)
		mapped = user >= first && user - first < count;
	fclose(file);
	return mapped;
}

bool nupa_owner_is_us(uid_t user)
{
	/* Only the mapped root has number 0; unmapped users have another one. */
	return user == geteuid() && (user == 0 || is_mapped(user));
}

const char *nupa_owner_say(const char *path, char *text, size_t text_bytes)
{
	struct stat status;

	text[0] = '\0';
	if (!lstat(path, &status))
		snprintf(text, text_bytes, ", which belongs to user %u", status.st_uid);
	return text;
}

/* Follows a link of this user or the system to a file that no user can plant.  Such a file is a
 * device (a guest's /dev/nupa0), or that of a descriptor in /proc. */
static int open_linked(const char *path, int flags)
{
	struct stat link;
	int fd = -1;

	if (!lstat(path, &link) && (link.st_uid == 0 || nupa_owner_is_us(link.st_uid)))
		fd = open(path, flags);
	if (fd >= 0 && (!strncmp(path, "/proc/", strlen("/proc/")) || nupa_device_bytes(fd)))
		return fd;
	if (fd >= 0)
		close(fd);
	errno = ELOOP;
	return -1;
}

int nupa_owner_open(const char *path, char *why, size_t why_bytes)
{
	/* O_NONBLOCK: opening a FIFO or a device must not block before its type is known. */
	const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK;
	int fd = open(path, flags | O_NOFOLLOW);
	char owner[64];
	int error;

	if (fd < 0 && errno == ELOOP)
		fd = open_linked(path, flags);
	if (fd >= 0)
		return fd;
	error = errno;
	if (error == ENOENT)
		return nupa_explain(
		    -ENOENT, why, why_bytes,
		    "no fabric at %s: make one with `nupa up`, `nupa ls` lists them", path);
	nupa_owner_say(path, owner, sizeof(owner));
	switch (error) {
	case EISDIR:
	case ENXIO: /* a socket */
		return nupa_explain(-EINVAL, why, why_bytes,
				    "%s%s, is not a regular file, so it is not a fabric", path,
				    owner);
	case ELOOP:
		return nupa_explain(-EPERM, why, why_bytes,
				    "%s%s, is a symbolic link: it is refused; name the fabric's "
				    "own path",
				    path, owner);
	case EACCES:
	case EPERM:
		return nupa_explain(
		    -EACCES, why, why_bytes,
		    "no permission to open %s%s: a fabric belongs to the user who made it", path,
		    owner);
	default:
		return nupa_explain(-error, why, why_bytes, "cannot open %s%s: %s", path, owner,
				    strerror(error));
	}
}

int nupa_owner_check(const struct stat *status, bool device, const char *path, char *why,
		     size_t why_bytes)
{
	const unsigned int mode = status->st_mode & 07777;
	const bool ours = nupa_owner_is_us(status->st_uid);

	/* Only the system makes devices, so the device's owner decides who may use one.  In a user
	 * namespace that does not map the system's user, the owner has the number of all unmapped
	 * users. */
	if (device && (ours || status->st_uid == 0 || !is_mapped(status->st_uid)))
		return 0;
	if (!ours)
		return nupa_explain(-EPERM, why, why_bytes,
				    "%s belongs to user %u, and this process is user %u's: it is "
				    "refused; a fabric belongs to the user who made it",
				    path, status->st_uid, geteuid());
	if (mode & 077)
		return nupa_explain(-EPERM, why, why_bytes,
				    "%s of user %u is open to other users (mode %04o): it is "
				    "refused; `chmod go=` it",
				    path, status->st_uid, mode);
	/* None: a memfd, or a file that was removed since it was opened. */
	if (status->st_nlink > 1)
		return nupa_explain(-EPERM, why, why_bytes,
				    "%s of user %u has %lu hard links: it is refused; remove the "
				    "others",
				    path, status->st_uid, (unsigned long)status->st_nlink);
	return 0;
}
