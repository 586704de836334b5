/* SPDX-License-Identifier: BSD-3-Clause
 * Decides which pages of a region are promoted, and which ranges it then has. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include "segment/layout/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_OUTS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nupa_keep_out keep_outs[KEEP_OUTS];
static uint32_t own_threads;
/* It was found last that memory may be pinned.  As long as it is so nothing more is promoted, so
 * that what cannot be made private again does not grow. */
static bool may_be_pinned;

/* Opening and reading files are points at which a thread may be cancelled: not in here. */
static int enter(void)
{
	int cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_mutex_lock(&lock);
	return cancel_state;
}

static void leave(int cancel_state)
{
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancel_state, NULL);
}

/* Under the lock. */
static bool ready(void)
{
	static enum { UNKNOWN, WANTED, UNWANTED } wanted;

	if (wanted == UNKNOWN) {
		const char *text = getenv("NUPA_PROMOTE");

		wanted = text && strcmp(text, "0") == 0 ? UNWANTED : WANTED;
	}
	return wanted == WANTED && nupa_hold_possible() && nupa_memfd_ready();
}

bool nupa_promote_possible(void)
{
	int cancel_state = enter();
	bool possible = ready();

	leave(cancel_state);
	return possible;
}

bool nupa_promote_unnoticed(void)
{
	int cancel_state = enter();
	bool unnoticed = ready() && nupa_hold_is_total();

	leave(cancel_state);
	return unnoticed;
}

void nupa_promote_count_own_threads(int more)
{
	int cancel_state = enter();

	own_threads += (uint32_t)more;
	leave(cancel_state);
}

static bool nothing_is_pinned(void)
{
	if (may_be_pinned)
		may_be_pinned = !nupa_pins_excluded();
	return !may_be_pinned;
}

/* A slot without ranges. */
static void empty(struct nupa_promoted *slot)
{
	bool has_pages = slot->from < slot->to;

	if ((!has_pages || nothing_is_pinned()) && nupa_promoted_empty(slot))
		return;
	nupa_promoted_leave(slot);
	may_be_pinned = !nupa_pins_excluded();
}

static void retry(void)
{
	if (nupa_promoted_left())
		nupa_promoted_retry(nothing_is_pinned());
}

int nupa_promote_fd(void)
{
	return nupa_memfd();
}

/* --- regions ------------------------------------------------------------------------ */

struct region {
	uint64_t from, to; /* whole pages */
	uint64_t promote_from, promote_to;
	struct nupa_promoted *slot; /* where new pages of it go */
	int n_keep_outs;            /* -1: not asked for */
	bool readers_may_fail;
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

/* The first page from *at* on that need not be kept, and where such pages end. */
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

static void promote_vma(struct region *region, const struct nupa_vma *vma)
{
	uint64_t at = vma->start > region->promote_from ? vma->start : region->promote_from;
	uint64_t end = vma->end < region->promote_to ? vma->end : region->promote_to;
	uint64_t run_end;

	if (at >= end || !may_promote(vma, at))
		return;
	if (!region->slot)
		region->slot = nupa_promoted_take(at);
	if (!region->slot)
		return;
	if (region->n_keep_outs < 0)
		region->n_keep_outs = nupa_keep_outs(keep_outs, KEEP_OUTS);
	if (region->n_keep_outs < 0)
		return;
	while ((at = next_allowed(region, at, end, &run_end)) < end) {
		if (!nupa_promoted_add(region->slot, at, run_end - at, region->readers_may_fail))
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
		if (nupa_vma_is_memfd(&vma) &&
		    nupa_promoted_is_straight(nupa_promoted_of(vma.offset))) {
			region->slot = nupa_promoted_of(vma.offset);
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
		if (!nupa_vma_is_memfd(&vma))
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

/* The links of /proc/self/task are its threads', its own, and its parent's. */
static bool others_run(void)
{
	struct stat status;

	return stat("/proc/self/task", &status) || status.st_nlink != 3 + own_threads;
}

static void choose_pages(struct region *region, uint64_t va, uint64_t bytes)
{
	uint64_t page = nupa_page_bytes();

	region->promote_from = region->from;
	region->promote_to = region->to;
	if (nupa_hold_is_total() || !others_run())
		return;
	region->readers_may_fail = true;
	region->promote_from = (va + page - 1) & ~(page - 1);
	region->promote_to = (va + bytes) & ~(page - 1);
}

static int get_ranges(void *addr, size_t bytes, struct nupa_shared_range *out, int n_max,
		      bool promote)
{
	uint64_t page = nupa_page_bytes();
	uint64_t va = (uintptr_t)addr;
	struct region region = { .from = va & ~(page - 1), .n_keep_outs = -1 };
	int n = 0, cancel_state;
	bool whole;

	if (va + bytes < va || va + bytes > UINT64_MAX - page)
		return -EINVAL;
	region.to = (va + bytes + page - 1) & ~(page - 1);
	if (bytes == 0 || n_max <= 0 || region.to - region.from > NUPA_PROMOTE_MAX_BYTES)
		return 0;
	cancel_state = enter();
	if (promote ? ready() : nupa_memfd_is_there()) {
		n = find_ranges(&region, out, n_max, &whole);
		promote = promote && !whole && nothing_is_pinned();
		if (promote)
			choose_pages(&region, va, bytes);
		if (promote && promote_all(&region))
			n = find_ranges(&region, out, n_max, &whole);
		for (int i = 0; i < n; i++)
			nupa_promoted_use(nupa_promoted_of(out[i].file_off));
		if (region.slot && !region.slot->ranges) /* taken in vain */
			empty(region.slot);
		retry();
	}
	leave(cancel_state);
	return n;
}

int nupa_promote(void *addr, size_t bytes, struct nupa_shared_range *out, int n_max)
{
	return get_ranges(addr, bytes, out, n_max, true);
}

int nupa_promote_find(void *addr, size_t bytes, struct nupa_shared_range *out, int n_max)
{
	return get_ranges(addr, bytes, out, n_max, false);
}

void nupa_promote_release(const struct nupa_shared_range *ranges, int n)
{
	int cancel_state = enter();

	if (nupa_memfd_is_there())
		retry();
	for (int i = 0; i < n; i++) {
		struct nupa_promoted *slot = nupa_promoted_of(ranges[i].file_off);

		if (!slot->ranges)
			continue; /* of a memfd before a fork */
		slot->ranges--;
		if (slot->ranges == 0 && slot->used && nupa_memfd_is_there())
			empty(slot);
	}
	leave(cancel_state);
}

/* --- fork ---------------------------------------------------------------------------- */

static int cancel_state_of_fork;

void nupa_promote_before_fork(void)
{
	cancel_state_of_fork = enter();
	if (!nupa_memfd_is_there() || !nupa_promoted_any() ||
	    (nothing_is_pinned() && nupa_promoted_empty_all()))
		return;
	may_be_pinned = !nupa_pins_excluded();
	nupa_copies_make();
}

void nupa_promote_after_fork(void)
{
	nupa_copies_drop();
	leave(cancel_state_of_fork);
}

void nupa_promote_forget_in_child(void)
{
	nupa_hold_forget_in_child();
	if (nupa_memfd_is_there()) {
		nupa_copies_take_in_child();
		nupa_memfd_forget_in_child();
		nupa_promoted_forget_in_child();
		nupa_promoted_forget_left_in_child();
	}
	own_threads = 0;
	leave(cancel_state_of_fork);
}
