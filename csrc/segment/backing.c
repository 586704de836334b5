/* SPDX-License-Identifier: BSD-3-Clause
 * The memory behind a segment, of two sorts.  A sparse file: arenas and the pool are mapped at
 * first use, and pages are backed before that (I4).  Memory that several kernels share (MACHINES):
 * a device's, or the file that is the device to others; mapped whole, always there. */
#include "segment/backing.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/coherence.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int nupa_back_file(int fd, uint64_t offset, uint64_t bytes)
{
	int rc;

	do
		rc = fallocate(fd, 0, (off_t)offset, (off_t)bytes) ? -errno : 0;
	while (rc == -EINTR);
	return rc;
}

int nupa_explain_backing(int rc, const char *path, uint64_t bytes, char *why, size_t why_bytes)
{
	if (rc == -ENOSPC)
		return nupa_explain(rc, why, why_bytes,
				    "no room for %" PRIu64 " bytes of %s: its file system is full; "
				    "remove files there or make it larger",
				    bytes, path);
	if (rc == -EOPNOTSUPP)
		return nupa_explain(rc, why, why_bytes,
				    "the file system of %s cannot preallocate: use /dev/shm", path);
	return nupa_explain(rc, why, why_bytes, "cannot back %" PRIu64 " bytes of %s: %s", bytes,
			    path, strerror(-rc));
}

void *nupa_map_shared(int fd, uint64_t offset, uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	return at == MAP_FAILED ? NULL : at;
}

/* The size of a character device's memory (Documentation/ABI/testing/sysfs-bus-dax). */
static uint64_t character_device_bytes(dev_t device)
{
	char path[64], text[32] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(device), minor(device));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 ? strtoull(text, NULL, 0) : 0;
}

uint64_t nupa_device_bytes(int fd)
{
	struct stat status;
	char byte;

	if (fstat(fd, &status))
		return 0;
	if (S_ISCHR(status.st_mode))
		return character_device_bytes(status.st_rdev);
	/* A PCI resource in sysfs looks like a file, but can only be mapped. */
	if (S_ISREG(status.st_mode) && status.st_size > 0 && pread(fd, &byte, 1, 0) < 0)
		return (uint64_t)status.st_size;
	return 0;
}

/* --- parts ----------------------------------------------------------------------------- */

/* Maps a part at its first use.  The pointer is stored once: when two threads map, one stays. */
static uint8_t *map_once(struct nupa_fabric *fabric, uint8_t **part, uint64_t offset,
			 uint64_t bytes)
{
	uint8_t *seen = nupa_load_acquire(part);
	uint8_t *mapped;

	if (seen)
		return seen;
	mapped =
	    fabric->whole ? fabric->whole + offset : nupa_map_shared(fabric->fd, offset, bytes);
	if (!mapped || nupa_cas_seq(part, &seen, mapped))
		return mapped;
	if (!fabric->whole)
		munmap(mapped, bytes);
	return seen;
}

uint8_t *nupa_fabric_arena(struct nupa_fabric *fabric, uint32_t slot)
{
	if (slot == 0 || slot >= fabric->geometry.n_slots) {
		errno = EINVAL;
		return NULL;
	}
	return map_once(fabric, &fabric->arena[slot], nupa_arena_offset(fabric, slot),
			fabric->geometry.arena_bytes);
}

uint8_t *nupa_fabric_pool(struct nupa_fabric *fabric)
{
	return map_once(fabric, &fabric->pool, fabric->geometry.pool_off,
			fabric->geometry.pool_bytes);
}

struct nupa_cm_bucket *nupa_fabric_cm_table(struct nupa_fabric *fabric, uint32_t host, bool back)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint64_t offset = nupa_cm_table_off(sb, host);
	uint32_t *backed = (uint32_t *)(void *)((uint8_t *)fabric->sb + nupa_cm_backed_off(sb));
	uint8_t *tables;
	int error;

	if (!fabric->whole && !nupa_load_acquire(&backed[host])) {
		error = back ? nupa_fabric_back(fabric, offset, NUPA_CM_TABLE_BYTES) : -ENOENT;
		if (error) {
			errno = -error;
			return NULL;
		}
		nupa_store_release(&backed[host], 1);
	}
	tables = map_once(fabric, &fabric->cm_tables, nupa_cm_table_off(sb, 0),
			  sb->n_hosts * NUPA_CM_TABLE_BYTES);
	return tables ? (struct nupa_cm_bucket *)(void *)(tables + host * NUPA_CM_TABLE_BYTES)
		      : NULL;
}

/* A table that *backed* says is there; back: makes it.  NULL with errno. */
static uint8_t *back_once(struct nupa_fabric *fabric, uint32_t *backed, bool back, uint8_t **part,
			  uint64_t offset, uint64_t bytes)
{
	int error;

	if (!nupa_load_acquire(backed)) {
		error = back ? nupa_fabric_back(fabric, offset, bytes) : -ENOENT;
		if (error) {
			errno = -error;
			return NULL;
		}
		nupa_store_release(backed, 1);
	}
	return map_once(fabric, part, offset, bytes);
}

uint8_t *nupa_fabric_regions(struct nupa_fabric *fabric, bool back)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	return back_once(fabric, &fabric->sb->regions_backed, back, &fabric->regions,
			 nupa_regions_off(sb), nupa_regions_bytes(sb));
}

uint8_t *nupa_fabric_control(struct nupa_fabric *fabric, bool back)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	return back_once(fabric, &fabric->sb->control_backed, back, &fabric->control,
			 nupa_control_off(sb), nupa_control_map(sb).bytes);
}

void nupa_fabric_unmap(struct nupa_fabric *fabric)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	if (fabric->whole) {
		munmap(fabric->whole, fabric->whole_bytes);
		return;
	}
	for (uint32_t slot = 0; slot < NUPA_SLOTS_MAX; slot++)
		if (fabric->arena[slot])
			munmap(fabric->arena[slot], sb->arena_bytes);
	if (fabric->pool)
		munmap(fabric->pool, sb->pool_bytes);
	if (fabric->cm_tables)
		munmap(fabric->cm_tables, sb->n_hosts * NUPA_CM_TABLE_BYTES);
	if (fabric->regions)
		munmap(fabric->regions, nupa_regions_bytes(sb));
	if (fabric->control)
		munmap(fabric->control, nupa_control_map(sb).bytes);
	if (fabric->sb)
		munmap(fabric->sb, sb->arenas_off);
}

/* --- a child's picture ------------------------------------------------------------------- */

static void make_private(const struct nupa_fabric *fabric, void *at, uint64_t offset,
			 uint64_t bytes)
{
	if (at && mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
		       fabric->fd, (off_t)offset) == MAP_FAILED)
		abort(); /* going on would write into the parent's attachment */
}

/* Devices have no private mappings: what is in use is copied, the rest reads as zeros. */
static void copy_device(struct nupa_fabric *fabric)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint8_t *copy = mmap(NULL, fabric->whole_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (copy == MAP_FAILED)
		abort();
	memcpy(copy, fabric->whole, sb->arenas_off);
	for (uint32_t slot = 1; slot < sb->n_slots; slot++)
		if (fabric->arena[slot])
			memcpy(copy + nupa_arena_offset(fabric, slot), fabric->arena[slot],
			       sb->arena_bytes);
	for (uint32_t i = 0; i < sb->n_extents; i++) {
		const uint64_t at = sb->pool_off + (uint64_t)i * sb->extent_bytes;

		if (nupa_load_relaxed(&fabric->extents[i]))
			memcpy(copy + at, fabric->whole + at, sb->extent_bytes);
	}
	if (nupa_load_relaxed(&fabric->sb->regions_backed))
		memcpy(copy + nupa_regions_off(sb), fabric->whole + nupa_regions_off(sb),
		       nupa_regions_bytes(sb));
	if (nupa_load_relaxed(&fabric->sb->control_backed))
		memcpy(copy + nupa_control_off(sb), fabric->whole + nupa_control_off(sb),
		       nupa_control_map(sb).bytes);
	if (mremap(copy, fabric->whole_bytes, fabric->whole_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		   fabric->whole) == MAP_FAILED)
		abort();
}

void nupa_fabric_detach_copy(struct nupa_fabric *fabric)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	nupa_store_release(&fabric->picture, true);
	if (fabric->device) {
		copy_device(fabric);
		return;
	}
	if (fabric->whole) {
		make_private(fabric, fabric->whole, 0, fabric->whole_bytes);
		return;
	}
	make_private(fabric, fabric->sb, 0, sb->arenas_off);
	for (uint32_t slot = 1; slot < sb->n_slots; slot++)
		make_private(fabric, fabric->arena[slot], nupa_arena_offset(fabric, slot),
			     sb->arena_bytes);
	make_private(fabric, fabric->pool, sb->pool_off, sb->pool_bytes);
	make_private(fabric, fabric->cm_tables, nupa_cm_table_off(sb, 0),
		     sb->n_hosts * NUPA_CM_TABLE_BYTES);
	make_private(fabric, fabric->regions, nupa_regions_off(sb), nupa_regions_bytes(sb));
	make_private(fabric, fabric->control, nupa_control_off(sb), nupa_control_map(sb).bytes);
}

/* --- taken and given back ---------------------------------------------------------------- */

int nupa_fabric_back(struct nupa_fabric *fabric, uint64_t offset, uint64_t bytes)
{
	const uint64_t end = fabric->geometry.segment_bytes;

	if (bytes == 0 || bytes > end || offset > end - bytes)
		return -EINVAL;
	return fabric->whole ? 0 : nupa_back_file(fabric->fd, offset, bytes);
}

void nupa_fabric_clear_arena(struct nupa_fabric *fabric, uint32_t slot)
{
	const uint64_t from = nupa_arena_offset(fabric, slot);
	const uint64_t trace = from + nupa_arena_map(&fabric->geometry).trace_off;
	const uint64_t behind = trace + sizeof(struct nupa_trace_header) + NUPA_TRACE_BYTES;
	const uint64_t end = from + fabric->geometry.arena_bytes;

	/* Its last records are still to be read; once no capture runs, the next reaper discards
	 * them, too. */
	if (nupa_load_relaxed(&fabric->sb->trace)) {
		nupa_fabric_release(fabric, from, trace - from);
		nupa_fabric_release(fabric, behind, end - behind);
		return;
	}
	nupa_fabric_release(fabric, from, end - from);
}

/* Word by word, as others may be reading. */
static void clear_words(uint8_t *at, uint64_t bytes)
{
	uint64_t *words = (uint64_t *)(void *)at;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		nupa_store_relaxed(&words[i], 0);
}

void nupa_fabric_release(struct nupa_fabric *fabric, uint64_t offset, uint64_t bytes)
{
	if (fabric->whole) {
		clear_words(fabric->whole + offset, bytes);
		return;
	}
	/* EINTR is the only failure: the file was able to allocate, so it is able to punch. */
	while (fallocate(fabric->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)bytes) &&
	       errno == EINTR)
		continue;
}

bool nupa_fabric_arena_held(const struct nupa_fabric *fabric, uint32_t slot)
{
	const off_t from = (off_t)nupa_arena_offset(fabric, slot);
	off_t data;

	if (fabric->whole)
		return false; /* there is nothing to give back */
	data = lseek(fabric->fd, from, SEEK_DATA);
	return data >= from && (uint64_t)(data - from) < fabric->geometry.arena_bytes;
}

/* Whether it lies in the arena of another kernel's slot. */
static bool is_apart(const struct nupa_fabric *fabric, uint64_t offset)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint64_t slot = (offset - sb->arenas_off) / sb->arena_bytes + 1;

	return offset >= sb->arenas_off && slot < sb->n_slots &&
	       nupa_slot_apart(fabric, (uint32_t)slot);
}

static int copy_words(const struct nupa_fabric *fabric, uint64_t offset, void *to, size_t bytes)
{
	const uint64_t end = fabric->geometry.segment_bytes;
	const uint64_t *words = (const uint64_t *)(const void *)(fabric->whole + offset);
	uint64_t *out = to;

	if (bytes > end || offset > end - bytes)
		return -EIO;
	nupa_fetch(is_apart(fabric, offset), NUPA_POINT_COUNTERS, words, bytes);
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		out[i] = nupa_load_relaxed(&words[i]);
	if (bytes & sizeof(uint32_t)) { /* a tag (lines.c) */
		const uint32_t half = nupa_load_relaxed((const uint32_t *)&words[bytes / 8]);

		memcpy(&out[bytes / 8], &half, sizeof(half));
	}
	return 0;
}

int nupa_fabric_read(const struct nupa_fabric *fabric, uint64_t offset, void *to, size_t bytes)
{
	ssize_t got;

	if (fabric->whole)
		return copy_words(fabric, offset, to, bytes);
	do
		got = pread(fabric->fd, to, bytes, (off_t)offset);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	return (size_t)got == bytes ? 0 : -EIO;
}
