// SPDX-License-Identifier: BSD-3-Clause
/* The end of automatic fabrics, as nupa/fabric/registry.py and nupa/base/holders.py have it. */
#include "launcher/launcher.h"

#include "base/clock.h"
#include "segment/owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS 1000000000u
#define LOOK_NS 1000000
#define FOLDERS_OPEN 8
#define PF_EXITING 0x4u /* linux/sched.h, field 9 of proc_pid_stat(5) */
#define KILLED (1ull << (SIGKILL - 1))

/* A thread has ended, or is about to: true as well if there is none. */
static bool thread_ends(long pid, const char *thread)
{
	char path[64 + NAME_MAX], line[1024] = "";
	unsigned long long mask;
	bool killed = false;
	const char *rest;
	unsigned int flags;
	FILE *file;
	char state;

	snprintf(path, sizeof(path), "/proc/%ld/task/%s/stat", pid, thread);
	file = fopen(path, "re");
	if (!file)
		return true;
	rest = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	fclose(file);
	if (!rest || sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %u", &state, &flags) != 2)
		return true;
	if (state == 'Z' || state == 'X' || flags & PF_EXITING)
		return true;
	snprintf(path, sizeof(path), "/proc/%ld/task/%s/status", pid, thread);
	file = fopen(path, "re");
	if (!file)
		return true;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "SigPnd: %llx", &mask) == 1 ||
		    sscanf(line, "ShdPnd: %llx", &mask) == 1)
			killed |= (mask & KILLED) != 0;
	fclose(file);
	return killed;
}

static bool process_ends(long pid)
{
	const struct dirent *entry;
	bool ends = true;
	char path[64];
	DIR *threads;

	if (pid <= 0) /* in another pid namespace */
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	threads = opendir(path);
	while (threads && ends && (entry = readdir(threads)))
		ends = entry->d_name[0] == '.' || thread_ends(pid, entry->d_name);
	if (threads)
		closedir(threads);
	return ends;
}

/* The holders of a flock on the file (proc_locks(5)): *count* of them, of which all end or not. */
static bool holders_end(const char *path, unsigned int *count)
{
	char line[256], kind[16], held[64], file[64];
	struct stat status;
	bool end = true;
	FILE *locks;
	long pid;

	*count = 0;
	locks = stat(path, &status) ? NULL : fopen("/proc/locks", "re");
	if (!locks)
		return false;
	snprintf(file, sizeof(file), "%02x:%02x:%lu", major(status.st_dev), minor(status.st_dev),
		 (unsigned long)status.st_ino);
	while (end && fgets(line, sizeof(line), locks)) {
		/* A waiter has an arrow before its kind. */
		if (sscanf(line, "%*s %15s %*s %*s %ld %63s", kind, &pid, held) != 3 ||
		    strcmp(kind, "FLOCK") != 0 || strcmp(held, file) != 0)
			continue;
		++*count;
		end = process_ends(pid);
	}
	fclose(locks);
	return end;
}

/* Waits while all holders are exiting: a killed process releases its locks last of all. */
static bool dying_are_gone(const char *path)
{
	const uint64_t until_ns = nupa_clock_ns() + PATIENCE_NS;
	const struct timespec pause = { 0, LOOK_NS };
	unsigned int count;

	while (holders_end(path, &count) && count) {
		if (nupa_clock_ns() > until_ns)
			return false;
		nanosleep(&pause, NULL);
	}
	return count == 0;
}

static bool is_in_use(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool used;

	if (fd < 0)
		return false;
	used = flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
	return used;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
	(void)status, (void)kind, (void)at;
	remove(path);
	return 0;
}

/* Files of wires, nupa/fabric/wires/place.py: wN, wNg, wires. */
static bool is_wire(const char *suffix)
{
	size_t digits;

	if (!strcmp(suffix, "wires"))
		return true;
	if (*suffix++ != 'w')
		return false;
	digits = strspn(suffix, "0123456789");
	suffix += digits;
	return digits >= 1 && digits <= 3 && (!*suffix || !strcmp(suffix, "g"));
}

static void remove_wires(const struct nupa_registry *registry, const char *name)
{
	const struct dirent *entry;
	char prefix[128];
	size_t length;
	DIR *folder;
	int fd;

	length = (size_t)snprintf(prefix, sizeof(prefix), ".nupa-%u-%s.", geteuid(), name);
	folder = opendir(registry->folder);
	if (!folder)
		return;
	fd = dirfd(folder);
	while (fd >= 0 && (entry = readdir(folder)))
		if (!strncmp(entry->d_name, prefix, length) && is_wire(entry->d_name + length))
			unlinkat(fd, entry->d_name, 0);
	closedir(folder);
}

void nupa_collect_beside(const struct nupa_registry *registry, const char *name)
{
	static const char *const suffixes[] = { ".fm", ".admission" };
	struct stat status;
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (nupa_registry_path(registry, ".", name, suffixes[i], path))
			unlink(path);
	remove_wires(registry, name);
	if (nupa_registry_path(registry, ".", name, ".files", path) && !lstat(path, &status) &&
	    S_ISDIR(status.st_mode))
		nftw(path, remove_one, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
}

/* An empty file of ours: its maker died. */
static bool is_empty(const char *path)
{
	struct stat status;

	return !lstat(path, &status) && S_ISREG(status.st_mode) && !status.st_size &&
	       nupa_owner_is_us(status.st_uid);
}

void nupa_collect(const struct nupa_registry *registry, const char *name)
{
	char path[PATH_MAX], why[512];
	struct nupa_fabric *fabric;
	bool automatic;
	int rc;

	if (!nupa_registry_path(registry, "", name, "", path))
		return;
	rc = nupa_fabric_open(path, &fabric, why, sizeof(why));
	if (!rc) {
		automatic = nupa_fabric_flags(fabric) & NUPA_SEGMENT_AUTO;
		nupa_fabric_put(fabric);
		if (!automatic)
			return;
	} else if (rc != -ENODATA && !is_empty(path)) {
		return;
	}
	if (is_in_use(path) && !dying_are_gone(path))
		return;
	unlink(path);
	nupa_collect_beside(registry, name);
}
