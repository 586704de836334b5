/* SPDX-License-Identifier: BSD-3-Clause
 * Mappings of a peer's memfd.  Regions that lie near each other in the file share one: the first of
 * a block is mapped alone, and with the second the whole block is.  A mapping makes no page
 * present, so it costs address space and an entry of the kernel's list alone.
 *
 *   I1  A process has room for vm.max_map_count mappings, and its program needs some.  So windows
 *       take a quarter; regions beyond that are reached by other movers.
 *   I2  Our own memfd is mapped for each region by itself.  Its places are given to other pages
 *       when pages become private, which may replace our second mapping of them
 *       (promote_slots.c). */
#define _GNU_SOURCE
#include "engine/channel/mapping.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_MASK ((uint64_t)NUPA_PAGE_BYTES - 1)
#define BLOCK_BYTES (UINT64_C(64) << 20)
#define BUCKETS 128u /* a power of two */

#define MAP_COUNT_DEFAULT 65530u /* of Linux */
#define FEW 64u                  /* to read the limit takes four calls */

uint32_t nupa_mappings_max;
static uint32_t n_mapped; /* of this process, by all attachments */

struct nupa_mapping {
	struct nupa_mapping *next; /* of its bucket */
	uint32_t file;             /* channel->shared_fd_seen; 0: not to be shared (I2) */
	uint32_t users;
	uint64_t offset, bytes; /* of the file */
	uint8_t *at;
};

static uint32_t read_limit(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	uint32_t limit;

	if (!file)
		return MAP_COUNT_DEFAULT / 4;
	if (fscanf(file, "%u", &limit) != 1)
		limit = MAP_COUNT_DEFAULT;
	fclose(file);
	return limit / 4;
}

/* I1.  All who read it find the same.  For the first few there is room anywhere. */
static bool is_room(void)
{
	uint32_t most = nupa_load_relaxed(&nupa_mappings_max);

	if (!most && nupa_load_relaxed(&n_mapped) < FEW)
		return true;
	if (!most) {
		most = read_limit();
		nupa_store_relaxed(&nupa_mappings_max, most);
	}
	return nupa_load_relaxed(&n_mapped) < most;
}

/* A file of the peer, by the same right that a debugger would need to read its memory.  -1: it is
 * not there.  A path in /proc costs some times as much when it is not in the kernel's caches. */
static int open_file(const struct nupa_channel *channel, struct stat *status)
{
	const uint32_t number = channel->shared_fd_seen - 1;
	char path[64];
	int fd = -1;

	if (channel->pidfd >= 0)
		fd = (int)syscall(SYS_pidfd_getfd, channel->pidfd, number, 0);
	if (fd < 0) {
		snprintf(path, sizeof(path), "/proc/%u/fd/%u", channel->peer_pid, number);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (fd < 0 || !fstat(fd, status))
		return fd;
	close(fd);
	return -1;
}

/* Whether it is the peer's memfd.  It can be sealed against shrinking alone: what we map of it can
 * never go away under us.  The pid by which it was opened is the peer's as long as that lives. */
static bool is_memfd(const struct nupa_channel *channel, int fd, const struct stat *status)
{
	return S_ISREG(status->st_mode) && status->st_size > 0 &&
	       fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK && nupa_channel_process_proven(channel);
}

/* Finds the memfd that the peer has now.  *fd: if that is another one than before, the file. */
static bool find(struct nupa_channel *channel, int *fd)
{
	uint32_t number = nupa_load_acquire(&channel->peer_slot->shared_fd);
	struct stat status;

	*fd = -1;
	if (channel->shared_fd_seen == number)
		return channel->shared_bytes > 0;
	channel->shared_fd_seen = number;
	channel->shared_bytes = 0;
	if (number == 0 || channel->foreign)
		return false;
	*fd = open_file(channel, &status);
	if (*fd < 0 || !is_memfd(channel, *fd, &status))
		return false;
	channel->shared_dev = status.st_dev;
	channel->shared_ino = status.st_ino;
	channel->shared_bytes = (uint64_t)status.st_size;
	return true;
}

bool nupa_mapping_find(struct nupa_channel *channel)
{
	int fd;
	const bool found = find(channel, &fd);

	if (fd >= 0)
		close(fd);
	return found;
}

static struct nupa_mapping **bucket_of(const struct nupa_channel *channel, uint64_t offset)
{
	/* Places of pieces that were promoted one after the other differ in high bits alone. */
	uint64_t hash = offset / BLOCK_BYTES * UINT64_C(0x9e3779b97f4a7c15);

	return &channel->mappings[hash >> 32 & (BUCKETS - 1)];
}

/* The file that was judged before is known by its number. */
static bool open_again(const struct nupa_channel *channel, int *fd)
{
	struct stat status;

	*fd = open_file(channel, &status);
	return *fd >= 0 && status.st_dev == channel->shared_dev &&
	       status.st_ino == channel->shared_ino;
}

static bool map(struct nupa_mapping *mapping, int fd, uint64_t from, uint64_t to)
{
	void *at;

	if (from >= to)
		return false;
	at = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
	if (at == MAP_FAILED)
		return false;
	madvise(at, to - from, MADV_DONTFORK);
	mapping->at = at;
	mapping->offset = from;
	mapping->bytes = to - from;
	return true;
}

static struct nupa_mapping *mapping_new(struct nupa_channel *channel, int *fd, uint64_t from,
					uint64_t to, bool crowded)
{
	struct nupa_mapping *mapping = is_room() ? calloc(1, sizeof(*mapping)) : NULL;
	struct nupa_mapping **bucket = bucket_of(channel, from);

	if (!mapping)
		return NULL;
	if ((*fd < 0 && !open_again(channel, fd)) ||
	    (!(crowded && map(mapping, *fd, from & ~(BLOCK_BYTES - 1),
			      (to + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1))) &&
	     !map(mapping, *fd, from, to))) {
		free(mapping);
		return NULL;
	}
	mapping->file = nupa_channel_same_process(channel) ? 0 : channel->shared_fd_seen; /* I2 */
	mapping->next = *bucket;
	*bucket = mapping;
	nupa_fetch_add_seq(&n_mapped, 1);
	return mapping;
}

static struct nupa_mapping *get(struct nupa_channel *channel, int *fd, uint64_t offset,
				uint64_t bytes, uint8_t **base)
{
	uint64_t from = offset & ~PAGE_MASK, to = (offset + bytes + PAGE_MASK) & ~PAGE_MASK;
	struct nupa_mapping *mapping;
	bool crowded = false;

	if (bytes == 0 || offset > channel->shared_bytes || bytes > channel->shared_bytes - offset)
		return NULL;
	if (!channel->mappings) {
		channel->mappings = calloc(BUCKETS, sizeof(struct nupa_mapping *));
		if (!channel->mappings)
			return NULL;
	}
	for (mapping = *bucket_of(channel, from); mapping; mapping = mapping->next) {
		if (mapping->file != channel->shared_fd_seen ||
		    mapping->offset / BLOCK_BYTES != from / BLOCK_BYTES)
			continue;
		if (mapping->offset <= from && mapping->offset + mapping->bytes >= to)
			break;
		crowded = true;
	}
	if (!mapping)
		mapping = mapping_new(channel, fd, from, to, crowded);
	if (!mapping)
		return NULL;
	mapping->users++;
	*base = mapping->at + (offset - mapping->offset);
	return mapping;
}

struct nupa_mapping *nupa_mapping_get(struct nupa_channel *channel, uint64_t offset, uint64_t bytes,
				      uint8_t **base)
{
	struct nupa_mapping *mapping = NULL;
	int fd;

	if (find(channel, &fd))
		mapping = get(channel, &fd, offset, bytes, base);
	if (fd >= 0) /* one for each peer would be one of the program's 1,024 */
		close(fd);
	return mapping;
}

void nupa_mapping_put(struct nupa_channel *channel, struct nupa_mapping *mapping)
{
	struct nupa_mapping **at = bucket_of(channel, mapping->offset);

	if (--mapping->users)
		return;
	while (*at != mapping)
		at = &(*at)->next;
	*at = mapping->next;
	munmap(mapping->at, mapping->bytes);
	free(mapping);
	nupa_fetch_add_seq(&n_mapped, -1u);
}

void nupa_mapping_close(struct nupa_channel *channel)
{
	free(channel->mappings);
	channel->mappings = NULL;
}
