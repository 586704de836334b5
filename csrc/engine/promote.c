/* SPDX-License-Identifier: BSD-3-Clause
 * What is promoted, and where it is in the memfd.
 *
 * The memfd is cut into slots, each larger than an address space.  A slot belongs to pages that were
 * promoted together, and keeps their distances: a page at va is at slot + MIDDLE + (va - anchor).
 * So a mapping that the program moves or extends (mremap, as realloc does) finds zeros behind it,
 * never another one's pages (I3).  Which pages are promoted is not remembered: the kernel knows which
 * mappings are the memfd's, whatever the program has done with them. */
#define _GNU_SOURCE
#include "promote_internal.h"

#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define FILE_BYTES (UINT64_C(1) << 62)
#define SLOT_BYTES (FILE_BYTES / NUPA_PROMOTED_MAX)
#define MIDDLE (SLOT_BYTES / 2)
#define KEEP_OUTS 4096

struct slot {
	uint64_t anchor; /* va of the page in the middle */
	uint32_t ranges; /* that were handed out */
	uint32_t runs;   /* index + 1 of its first */
	bool used;       /* has or may have pages */
};

/* Pages that were promoted at once, and where the mapping waits that they had before. */
struct run {
	uint64_t va, bytes, park;
	uint32_t next; /* index + 1 of the slot's next one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int memfd = -1;
static dev_t memfd_device;
static uint64_t memfd_inode;
static struct slot slots[NUPA_PROMOTED_MAX];
static struct run runs[NUPA_PROMOTED_MAX]; /* free: bytes is 0 */
static uint32_t next_slot, next_run; /* where to look for a free one */
static struct nupa_keep_out keep_outs[KEEP_OUTS];

uint64_t nupa_page_bytes(void)
{
	static uint64_t bytes;

	if (!bytes)
		bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	return bytes;
}

/* --- the memfd ----------------------------------------------------------------------- */

/* Programs close descriptors that they did not open; the number may be another file's by now. */
static bool memfd_is_ours(void)
{
	struct stat status;

	return memfd >= 0 && fstat(memfd, &status) == 0 && status.st_dev == memfd_device &&
	       status.st_ino == memfd_inode;
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
	fd = memfd_create("nupa-promoted", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("nupa-promoted", flags);
	if (fd < 0)
		return -errno;
	/* Sealed against shrinking: what peers map of it is never taken away under them. */
	if (ftruncate(fd, (off_t)FILE_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) ||
	    fstat(fd, &status)) {
		int error = -errno;

		close(fd);
		return error;
	}
	memfd = fd;
	memfd_device = status.st_dev;
	memfd_inode = status.st_ino;
	return 0;
}

/* Under the lock.  A memfd that was lost is not made again: its slots may still be mapped. */
static bool ready(void)
{
	const char *wanted = getenv("NUPA_PROMOTE");

	if (wanted && strcmp(wanted, "0") == 0)
		return false;
	if (!nupa_swap_possible())
		return false;
	return memfd >= 0 ? memfd_is_ours() : memfd_make() == 0;
}

bool nupa_promote_possible(void)
{
	bool possible;

	pthread_mutex_lock(&lock);
	possible = ready();
	pthread_mutex_unlock(&lock);
	return possible;
}

int nupa_promote_fd(void)
{
	return memfd;
}

static bool is_ours(const struct nupa_vma *vma)
{
	return vma->shared && vma->inode == memfd_inode && vma->device == memfd_device;
}

/* --- slots --------------------------------------------------------------------------- */

static struct slot *slot_of(uint64_t file_off)
{
	return file_off < FILE_BYTES ? &slots[file_off / SLOT_BYTES] : NULL;
}

static uint64_t slot_start(const struct slot *slot)
{
	return (uint64_t)(slot - slots) * SLOT_BYTES;
}

static uint64_t slot_place(const struct slot *slot, uint64_t va)
{
	return slot_start(slot) + MIDDLE + (va - slot->anchor);
}

static struct slot *slot_take(uint64_t anchor)
{
	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++) {
		struct slot *slot = &slots[next_slot++ % NUPA_PROMOTED_MAX];

		if (!slot->used) {
			*slot = (struct slot){ .anchor = anchor, .used = true };
			return slot;
		}
	}
	return NULL;
}

/* --- runs ---------------------------------------------------------------------------- */

static uint64_t park_make(uint64_t bytes, int prot)
{
	void *at = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? 0 : (uintptr_t)at;
}

static struct run *run_take(struct slot *slot, uint64_t va, uint64_t bytes)
{
	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++) {
		uint32_t index = next_run++ % NUPA_PROMOTED_MAX;
		struct run *run = &runs[index];
		uint64_t park;

		if (run->bytes)
			continue;
		park = park_make(bytes, PROT_NONE);
		if (!park)
			return NULL;
		*run = (struct run){ va, bytes, park, slot->runs };
		slot->runs = index + 1;
		return run;
	}
	return NULL;
}

static void runs_free(struct slot *slot)
{
	while (slot->runs) {
		struct run *run = &runs[slot->runs - 1];

		munmap((void *)(uintptr_t)run->park, run->bytes);
		slot->runs = run->next;
		*run = (struct run){ 0 };
	}
}

/* The run that has the page at va; and it, or else the next one of the slot, ends at *end. */
static struct run *run_at(const struct slot *slot, uint64_t va, uint64_t *end)
{
	for (uint32_t next = slot->runs; next; next = runs[next - 1].next) {
		struct run *run = &runs[next - 1];

		if (va >= run->va && va < run->va + run->bytes) {
			if (run->va + run->bytes < *end)
				*end = run->va + run->bytes;
			return run;
		}
		if (run->va > va && run->va < *end)
			*end = run->va;
	}
	return NULL;
}

/* --- back to private ----------------------------------------------------------------- */

/* A mapping of the slot, to where it was; what the program moved or extended gets a new one. */
static bool vma_out(const struct slot *slot, const struct nupa_vma *vma)
{
	bool straight = vma->offset == slot_place(slot, vma->start);
	uint64_t at = vma->start;

	while (at < vma->end) {
		uint64_t end = vma->end, park, done;
		struct run *run = straight ? run_at(slot, at, &end) : NULL;

		park = run ? run->park + (at - run->va) :
			     park_make(end - at, PROT_READ | PROT_WRITE);
		if (!park)
			return false;
		done = nupa_swap_out(memfd, at, end - at, vma->offset + (at - vma->start),
				     vma->prot, park);
		if (!run)
			munmap((void *)(uintptr_t)park, end - at);
		if (done != end - at)
			return false;
		at = end;
	}
	return true;
}

/* Makes what is mapped of the slot private again, and the slot free. */
static void slot_empty(struct slot *slot)
{
	uint64_t from = slot_start(slot), at = 0;
	struct nupa_maps maps;
	struct nupa_vma vma;
	bool all = true;

	if (nupa_maps_open(&maps))
		return;
	while (nupa_maps_find(&maps, at, &vma)) {
		at = vma.end;
		if (is_ours(&vma) && vma.offset - from < SLOT_BYTES)
			all &= vma_out(slot, &vma);
	}
	nupa_maps_close(&maps);
	if (!all)
		return; /* it stays as it is until it is wanted again, or given back again */
	/* What the program unmapped, too. */
	if (fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
		      (off_t)SLOT_BYTES) == 0) {
		runs_free(slot);
		slot->used = false;
	}
}

/* Whether each page of the slot that is mapped is where its place says: no other page can then
 * have the place of one that is not. */
static bool slot_is_straight(const struct slot *slot)
{
	uint64_t at = 0;
	struct nupa_maps maps;
	struct nupa_vma vma;
	bool straight = true;

	if (nupa_maps_open(&maps))
		return false;
	while (straight && nupa_maps_find(&maps, at, &vma)) {
		at = vma.end;
		if (is_ours(&vma) && slot_of(vma.offset) == slot)
			straight = vma.offset == slot_place(slot, vma.start);
	}
	nupa_maps_close(&maps);
	return straight;
}

/* --- promotion ----------------------------------------------------------------------- */

struct region {
	uint64_t from, to; /* whole pages */
	struct slot *slot; /* where new pages of it go */
	bool fresh;        /* nothing was ever in that slot */
	int n_keep_outs;   /* -1: not asked for */
};

/* man madvise: MADV_COLD, a hint, is EINVAL for memory that is locked. */
static bool is_locked(uint64_t va)
{
	return madvise((void *)(uintptr_t)va, nupa_page_bytes(), MADV_COLD) && errno == EINVAL;
}

static bool may_promote(const struct nupa_vma *vma, uint64_t at)
{
	return !vma->shared && !vma->inode && !vma->stack &&
	       vma->prot == (PROT_READ | PROT_WRITE) && !is_locked(at);
}

/* The first page from *at* on that nobody wants to keep, and where such pages end. */
static uint64_t next_allowed(struct region *region, uint64_t at, uint64_t end, uint64_t *run_end)
{
	bool moved = true;

	while (moved && at < end) {
		moved = false;
		for (int i = 0; i < region->n_keep_outs; i++)
			if (at >= keep_outs[i].from && at < keep_outs[i].to) {
				at = keep_outs[i].to;
				moved = true;
			}
	}
	for (int i = 0; i < region->n_keep_outs; i++)
		if (keep_outs[i].from > at && keep_outs[i].from < end)
			end = keep_outs[i].from;
	*run_end = end;
	return at;
}

static bool promote_run(struct region *region, uint64_t va, uint64_t bytes)
{
	struct run *run;

	if (!region->slot) {
		region->slot = slot_take(va);
		region->fresh = true;
	}
	if (!region->slot)
		return false;
	/* Pages that the program unmapped may have left their contents there. */
	if (!region->fresh &&
	    fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)slot_place(region->slot, va), (off_t)bytes))
		return false;
	run = run_take(region->slot, va, bytes);
	return run && nupa_swap_in(memfd, va, bytes, slot_place(region->slot, va), run->park) ==
			  bytes;
}

static void promote_vma(struct region *region, const struct nupa_vma *vma)
{
	uint64_t at = vma->start > region->from ? vma->start : region->from;
	uint64_t end = vma->end < region->to ? vma->end : region->to;
	uint64_t run_end;

	if (!may_promote(vma, at))
		return;
	if (region->n_keep_outs < 0)
		region->n_keep_outs = nupa_keep_outs(keep_outs, KEEP_OUTS);
	if (region->n_keep_outs < 0)
		return;
	while ((at = next_allowed(region, at, end, &run_end)) < end) {
		if (!promote_run(region, at, run_end - at))
			return;
		at = run_end;
	}
}

/* Regions that overlap share a slot, so that each is one range. */
static void choose_slot(struct region *region, struct nupa_maps *maps)
{
	uint64_t at = region->from;
	struct nupa_vma vma;

	while (at < region->to && nupa_maps_find(maps, at, &vma) && vma.start < region->to) {
		at = vma.end;
		if (is_ours(&vma) && slot_is_straight(slot_of(vma.offset))) {
			region->slot = slot_of(vma.offset);
			return;
		}
	}
}

static int promote_all(struct region *region)
{
	uint64_t at = region->from;
	struct nupa_maps maps;
	struct nupa_vma vma;

	if (nupa_maps_open(&maps))
		return 0;
	choose_slot(region, &maps);
	maps.at = 0;
	while (at < region->to && nupa_maps_find(&maps, at, &vma) && vma.start < region->to) {
		at = vma.end;
		promote_vma(region, &vma);
	}
	nupa_maps_close(&maps);
	/* None of it was promoted, or some other thread has unmapped it already. */
	return region->slot != NULL;
}

/* The ranges of the region as they are now; *whole: it is nothing else. */
static int find_ranges(const struct region *region, struct nupa_shared_range *out, int n_max,
		       bool *whole)
{
	uint64_t at = region->from, covered = 0;
	struct nupa_maps maps;
	struct nupa_vma vma;
	int n = 0;

	*whole = false;
	if (nupa_maps_open(&maps))
		return 0;
	while (at < region->to && nupa_maps_find(&maps, at, &vma) && vma.start < region->to) {
		uint64_t from = vma.start > at ? vma.start : at;
		uint64_t to = vma.end < region->to ? vma.end : region->to;
		uint64_t file_off = vma.offset + (from - vma.start);

		at = vma.end;
		if (!is_ours(&vma))
			continue;
		covered += to - from;
		if (n && out[n - 1].va + out[n - 1].bytes == from &&
		    out[n - 1].file_off + out[n - 1].bytes == file_off) {
			out[n - 1].bytes += to - from;
			continue;
		}
		if (n == n_max)
			break;
		out[n++] = (struct nupa_shared_range){ from, to - from, file_off };
	}
	nupa_maps_close(&maps);
	*whole = covered == region->to - region->from;
	return n;
}

int nupa_promote(void *addr, size_t bytes, struct nupa_shared_range *out, int n_max)
{
	uint64_t page = nupa_page_bytes();
	uint64_t va = (uintptr_t)addr;
	struct region region = { .from = va & ~(page - 1), .n_keep_outs = -1 };
	bool whole;
	int n = 0;

	if (va + bytes < va || va + bytes > UINT64_MAX - page)
		return -EINVAL;
	region.to = (va + bytes + page - 1) & ~(page - 1);
	if (bytes == 0 || n_max <= 0 || region.to - region.from > NUPA_PROMOTE_MAX_BYTES)
		return 0;
	pthread_mutex_lock(&lock);
	if (ready()) {
		n = find_ranges(&region, out, n_max, &whole);
		if (!whole && promote_all(&region)) {
			n = find_ranges(&region, out, n_max, &whole);
			/* Taken, and nothing of it was promoted. */
			if (n == 0 && region.fresh)
				slot_empty(region.slot);
		}
		for (int i = 0; i < n; i++)
			slot_of(out[i].file_off)->ranges++;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

void nupa_promote_release(const struct nupa_shared_range *ranges, int n)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n; i++) {
		struct slot *slot = slot_of(ranges[i].file_off);

		if (slot && slot->ranges && --slot->ranges == 0 && memfd_is_ours())
			slot_empty(slot);
	}
	pthread_mutex_unlock(&lock);
}

void nupa_promote_forget_in_child(void)
{
	struct nupa_maps maps;
	struct nupa_vma vma;
	uint64_t at = 0;

	pthread_mutex_init(&lock, NULL);
	nupa_swap_forget_in_child();
	if (!memfd_is_ours())
		return;
	/* What could not be made private before: at least our writes are, from here on. */
	if (nupa_maps_open(&maps) == 0) {
		while (nupa_maps_find(&maps, at, &vma)) {
			at = vma.end;
			if (is_ours(&vma))
				(void)mmap((void *)(uintptr_t)vma.start, vma.end - vma.start,
					   vma.prot, MAP_PRIVATE | MAP_FIXED, memfd,
					   (off_t)vma.offset);
		}
		nupa_maps_close(&maps);
	}
	close(memfd);
	memfd = -1;
	memset(slots, 0, sizeof(slots));
	memset(runs, 0, sizeof(runs));
}
