/* SPDX-License-Identifier: BSD-3-Clause
 * What a subnet manager has set: a table with open addresses in a file of its own. */
#define _GNU_SOURCE
#include "mad/subnet.h"

#include "base/atomics.h"
#include "segment/backing.h"
#include "segment/owner.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TABLE_BYTES ((uint64_t)NUPA_SUBNET_ROWS * sizeof(struct nupa_subnet_row))
#define READ_TRIES 1000u
#define LOCK_TRIES 5000u /* of a millisecond */
#define PATH_BYTES 320u
#define MEMORY_ONLY "(" /* "(memfd)": the fabric of one process */

uint64_t nupa_subnet_key(uint16_t attribute, bool is_switch, uint32_t node, uint32_t modifier)
{
	/* Never 0, which means free. */
	return UINT64_C(1) << 63 | (uint64_t)(attribute & 0x3fffu) << 49 |
	       (uint64_t)is_switch << 48 | (uint64_t)(node & 0xffffu) << 32 | modifier;
}

static const char *base_of(const struct nupa_fabric *fabric)
{
	const char *slash = strrchr(fabric->path, '/');

	return slash ? slash + 1 : fabric->path;
}

int nupa_subnet_folder(const struct nupa_fabric *fabric, char *path, size_t bytes)
{
	const char *base = base_of(fabric);
	struct stat st;

	if (!strncmp(fabric->path, MEMORY_ONLY, 1))
		return -ENOENT;
	if (snprintf(path, bytes, "%.*s.%s.files", (int)(base - fabric->path), fabric->path,
		     base) >= (int)bytes)
		return -ENAMETOOLONG;
	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	if (lstat(path, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && !(st.st_mode & 077) && nupa_owner_is_us(st.st_uid) ? 0
											 : -EPERM;
}

/* "nupa-UID.lock" beside "nupa-UID-NAME". */
static bool name_lock(const struct nupa_fabric *fabric, char path[PATH_BYTES])
{
	static const char prefix[] = "nupa-";
	const char *base = base_of(fabric);
	size_t length = sizeof(prefix) - 1;

	if (strncmp(base, prefix, length) != 0)
		return false;
	while (isdigit((unsigned char)base[length]))
		length++;
	return base[length] == '-' &&
	       snprintf(path, PATH_BYTES, "%.*s%.*s.lock", (int)(base - fabric->path), fabric->path,
			(int)length, base) < (int)PATH_BYTES;
}

/* The folder may be one in which others make files, too. */
static bool is_own_file(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && nupa_owner_is_us(st.st_uid);
}

static bool is_file_at(int fd, const char *path)
{
	struct stat here, there;

	return !fstat(fd, &here) && !lstat(path, &there) && here.st_ino == there.st_ino &&
	       here.st_dev == there.st_dev;
}

int nupa_subnet_lock(const struct nupa_fabric *fabric)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	char path[PATH_BYTES];

	if (!name_lock(fabric, path))
		return NUPA_SUBNET_NO_LOCK;
	for (uint32_t i = 0; i < LOCK_TRIES; i++) {
		const int fd =
		    open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

		if (fd < 0)
			return -errno;
		if (!is_own_file(fd)) {
			close(fd);
			return -EPERM;
		}
		if (!flock(fd, LOCK_EX | LOCK_NB)) {
			/* Its last holder removed it: this lock is on a file without a name. */
			if (is_file_at(fd, path))
				return fd;
		} else if (errno != EWOULDBLOCK) {
			const int error = errno;

			close(fd);
			return -error;
		}
		close(fd);
		nanosleep(&pause, NULL);
	}
	return -EBUSY;
}

void nupa_subnet_unlock(const struct nupa_fabric *fabric, int lock)
{
	char path[PATH_BYTES];

	if (lock < 0 || !name_lock(fabric, path))
		return;
	unlink(path);
	close(lock);
}

static int map(struct nupa_subnet *subnet, int fd)
{
	void *rows = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE,
			  fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	if (rows == MAP_FAILED)
		return -errno;
	subnet->rows = rows;
	return 0;
}

static int back(int fd, bool make)
{
	struct stat st;

	if (!is_own_file(fd))
		return -EPERM;
	if (fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_size == TABLE_BYTES)
		return 0;
	return make ? nupa_back_file(fd, 0, TABLE_BYTES) : -ENOENT;
}

/* Opens the table; make: where it is not there yet. */
static int open_table(struct nupa_subnet *subnet, bool make)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 16];
	int rc, fd;

	if (subnet->rows)
		return 0;
	rc = nupa_subnet_folder(subnet->fabric, folder, sizeof(folder));
	if (rc == -ENOENT)
		return make ? map(subnet, -1) : rc;
	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/.subnet", folder);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
	if (fd < 0)
		return -errno;
	rc = back(fd, make);
	if (!rc)
		rc = map(subnet, fd);
	close(fd);
	return rc;
}

static uint32_t place_of(uint64_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 48) % NUPA_SUBNET_ROWS;
}

/* The key's row, or the free one for it; NULL: all are in use. */
static struct nupa_subnet_row *find(const struct nupa_subnet *subnet, uint64_t key)
{
	for (uint32_t i = 0; i < NUPA_SUBNET_ROWS; i++) {
		struct nupa_subnet_row *row = &subnet->rows[(place_of(key) + i) % NUPA_SUBNET_ROWS];
		const uint64_t found = nupa_load_acquire(&row->key);

		if (!found || found == key)
			return row;
	}
	return NULL;
}

bool nupa_subnet_get(struct nupa_subnet *subnet, uint64_t key,
		     uint8_t value[NUPA_SUBNET_VALUE_BYTES])
{
	const struct nupa_subnet_row *row;
	uint64_t words[NUPA_SUBNET_VALUE_BYTES / 8];

	if (open_table(subnet, false))
		return false;
	row = find(subnet, key);
	if (!row || !nupa_load_acquire(&row->key))
		return false;
	for (uint32_t tries = 0; tries < READ_TRIES; tries++) {
		const uint32_t before = nupa_load_acquire(&row->changes);

		for (uint32_t i = 0; i < sizeof(words) / 8; i++)
			words[i] =
			    nupa_load_acquire((const uint64_t *)(const void *)row->value + i);
		if (!(before & 1) && nupa_load_acquire(&row->changes) == before)
			break;
	}
	memcpy(value, words, sizeof(words));
	return true;
}

int nupa_subnet_set(struct nupa_subnet *subnet, uint64_t key,
		    const uint8_t value[NUPA_SUBNET_VALUE_BYTES])
{
	uint64_t words[NUPA_SUBNET_VALUE_BYTES / 8];
	struct nupa_subnet_row *row;
	int rc = open_table(subnet, true);

	if (rc)
		return rc;
	row = find(subnet, key);
	if (!row)
		return -ENOSPC;
	memcpy(words, value, sizeof(words));
	/* U1: odd meanwhile, also where a writer died in between. */
	nupa_store_release(&row->changes, row->changes | 1u);
	for (uint32_t i = 0; i < sizeof(words) / 8; i++)
		nupa_store_release((uint64_t *)(void *)row->value + i, words[i]);
	nupa_store_release(&row->changes, row->changes + 1u);
	nupa_store_release(&row->key, key);
	return 0;
}

void nupa_subnet_close(struct nupa_subnet *subnet)
{
	if (subnet->rows)
		munmap(subnet->rows, TABLE_BYTES);
	subnet->rows = NULL;
}
