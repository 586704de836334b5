// SPDX-License-Identifier: BSD-3-Clause
/* The folder of fabrics and its control lock: nupa/fabric/registry.py explains them. */
#include "launcher/launcher.h"

#include "base/clock.h"
#include "segment/owner.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PAUSE_NS 500000
#define LONGEST_PAUSE_NS 10000000

bool nupa_name_is_valid(const char *name)
{
	const size_t length = strlen(name);

	if (length < 1 || length > 32 || !(isalnum((unsigned char)name[0]) || name[0] == '_'))
		return false;
	return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
	       length;
}

bool nupa_exists(const char *path)
{
	struct stat status;

	return !lstat(path, &status);
}

/* Our number in the parent of our user namespace (user_namespaces(7)); false: it has none. */
static bool outer_user(unsigned long *outer)
{
	const unsigned long user = geteuid();
	unsigned long first, there, count;
	bool mapped = false;
	FILE *file = fopen("/proc/self/uid_map", "re");

	if (!file)
		return false;
	while (!mapped && fscanf(file, "%lu %lu %lu", &first, &there, &count) == 3)
		mapped = user >= first && user - first < count;
	fclose(file);
	*outer = mapped ? there + user - first : 0;
	return mapped;
}

bool nupa_registry_find(struct nupa_registry *registry)
{
	const char *named = getenv("NUPA_DIR"), *user = getenv("NUPA_UID");
	unsigned long outer;
	int length;

	if ((user && *user) || !outer_user(&outer))
		return false;
	registry->named = named && *named;
	length = registry->named ? snprintf(registry->folder, sizeof(registry->folder), "%s", named)
				 : snprintf(registry->folder, sizeof(registry->folder),
					    "/dev/shm/nupa-%lu", outer);
	return length < (int)sizeof(registry->folder);
}

bool nupa_registry_path(const struct nupa_registry *registry, const char *prefix, const char *name,
			const char *suffix, char path[PATH_MAX])
{
	const size_t length = strlen(registry->folder);
	const char *slash = registry->folder[length - 1] == '/' ? "" : "/";

	return snprintf(path, PATH_MAX, "%s%s%snupa-%u-%s%s", registry->folder, slash, prefix,
			geteuid(), name, suffix) < PATH_MAX;
}

/* The folder is one in which others cannot replace our files. */
static bool is_safe(const struct nupa_registry *registry, int fd)
{
	struct stat status;

	if (fstat(fd, &status))
		return false;
	if (registry->named)
		return !(status.st_mode & S_IWOTH) || status.st_mode & S_ISVTX;
	return nupa_owner_is_us(status.st_uid) && !(status.st_mode & 077);
}

/* Opens the folder, which is made unless NUPA_DIR names it: -1 with errno. */
static int open_folder(const struct nupa_registry *registry)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd;

	if (!registry->named && mkdir(registry->folder, 0700) && errno != EEXIST)
		return -1;
	fd = open(registry->folder, registry->named ? flags : flags | O_NOFOLLOW);
	if (fd >= 0 && !is_safe(registry, fd)) {
		close(fd);
		errno = EPERM;
		return -1;
	}
	return fd;
}

static bool lock_path(const struct nupa_registry *registry, char path[PATH_MAX])
{
	const size_t length = strlen(registry->folder);

	return snprintf(path, PATH_MAX, "%s%snupa-%u.lock", registry->folder,
			registry->folder[length - 1] == '/' ? "" : "/", geteuid()) < PATH_MAX;
}

/* Opens the lock's file in the folder as it is now: -1 with errno. */
static int open_lock(const struct nupa_registry *registry)
{
	const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int folder = open_folder(registry), fd, error;
	struct stat status;
	char name[64];

	if (folder < 0)
		return -1;
	snprintf(name, sizeof(name), "nupa-%u.lock", geteuid());
	fd = openat(folder, name, flags, 0600);
	error = errno;
	close(folder);
	errno = error;
	if (fd < 0)
		return -1;
	if (!fstat(fd, &status) && S_ISREG(status.st_mode) &&
	    !nupa_owner_check(&status, false, name, name, sizeof(name)))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* Whether the file is still the one at the path: its last holder removes it. */
static bool is_at(int fd, const char *path)
{
	struct stat here, there;

	return !fstat(fd, &here) && !lstat(path, &there) && here.st_dev == there.st_dev &&
	       here.st_ino == there.st_ino;
}

/* flock(2) has no time limit. */
static bool hold(int fd, uint64_t until_ns)
{
	struct timespec pause = { 0, FIRST_PAUSE_NS };

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || nupa_clock_ns() >= until_ns)
			return false;
		nanosleep(&pause, NULL);
		pause.tv_nsec *= 2;
		if (pause.tv_nsec > LONGEST_PAUSE_NS)
			pause.tv_nsec = LONGEST_PAUSE_NS;
	}
	return true;
}

bool nupa_registry_lock(struct nupa_registry *registry, unsigned int wait_ms)
{
	const uint64_t until_ns = nupa_clock_ns() + (uint64_t)wait_ms * 1000000u;
	char path[PATH_MAX];

	if (!lock_path(registry, path))
		return false;
	do {
		registry->lock = open_lock(registry);
		if (registry->lock < 0) {
			if (errno == ENOENT && !registry->named)
				continue; /* the last holder has removed the folder */
			return false;
		}
		if (!hold(registry->lock, until_ns)) {
			close(registry->lock);
			return false;
		}
		if (is_at(registry->lock, path))
			return true;
		close(registry->lock);
	} while (nupa_clock_ns() < until_ns);
	return false;
}

void nupa_registry_unlock(struct nupa_registry *registry)
{
	char path[PATH_MAX];

	if (lock_path(registry, path))
		unlink(path);
	close(registry->lock);
	if (!registry->named)
		rmdir(registry->folder); /* usually ENOTEMPTY */
}
