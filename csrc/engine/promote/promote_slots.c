/* SPDX-License-Identifier: BSD-3-Clause
 * Where promoted pages are in the memfd.
 *
 * The memfd is cut into slots, each larger than an address space.  A slot belongs to pages that
 * were promoted together, and keeps their distances: a page at va is at slot + MIDDLE + (va -
 * anchor). So a mapping that the program moves or extends (mremap, as realloc does) finds zeros
 * behind it, never another one's pages (I3).  There is no list of promoted pages: the kernel knows
 * which mappings are the memfd's, also after the program has moved them. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include "segment/layout/limits.h"

#include <string.h>
#include <sys/mman.h>

#define SLOT_BYTES (NUPA_MEMFD_BYTES / NUPA_PROMOTED_MAX)
#define MIDDLE (SLOT_BYTES / 2)

/* Pages that were promoted at once, and where the mapping waits that they had before. */
struct run {
	uint64_t va, bytes, park; /* 0 bytes: free */
	uint32_t next;            /* index + 1 of the slot's next one */
};

static struct nupa_promoted slots[NUPA_PROMOTED_MAX];
static struct run runs[NUPA_PROMOTED_MAX];
static uint32_t next_slot, next_run; /* where to look for a free one */

/* --- slots --------------------------------------------------------------------------- */

struct nupa_promoted *nupa_promoted_of(uint64_t file_off)
{
	return &slots[file_off / SLOT_BYTES % NUPA_PROMOTED_MAX];
}

static uint64_t slot_start(const struct nupa_promoted *slot)
{
	return (uint64_t)(slot - slots) * SLOT_BYTES;
}

uint64_t nupa_promoted_place(const struct nupa_promoted *slot, uint64_t va)
{
	return slot_start(slot) + MIDDLE + (va - slot->anchor);
}

struct nupa_promoted *nupa_promoted_take(uint64_t anchor)
{
	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++) {
		struct nupa_promoted *slot = &slots[next_slot++ % NUPA_PROMOTED_MAX];

		if (!slot->used && !slot->ranges) {
			*slot = (struct nupa_promoted){
				.anchor = anchor, .from = anchor, .to = anchor, .used = true
			};
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

static struct run *run_take(struct nupa_promoted *slot, uint64_t va, uint64_t bytes)
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

static void run_free_first(struct nupa_promoted *slot)
{
	struct run *run = &runs[slot->runs - 1];

	munmap((void *)(uintptr_t)run->park, run->bytes);
	slot->runs = run->next;
	*run = (struct run){ 0 };
}

/* The run that has the page at va, or NULL.  Lowers *end to its end, or to the next run's start. */
static struct run *run_at(const struct nupa_promoted *slot, uint64_t va, uint64_t *end)
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
static bool vma_out(const struct nupa_promoted *slot, const struct nupa_vma *vma)
{
	bool straight = vma->offset == nupa_promoted_place(slot, vma->start);
	uint64_t at = vma->start;

	while (at < vma->end) {
		uint64_t end = vma->end, park, done;
		struct run *run = straight ? run_at(slot, at, &end) : NULL;

		park =
		    run ? run->park + (at - run->va) : park_make(end - at, PROT_READ | PROT_WRITE);
		if (!park)
			return false;
		done = nupa_swap_out(nupa_memfd(), at, end - at, vma->offset + (at - vma->start),
				     vma->prot, park);
		if (!run)
			munmap((void *)(uintptr_t)park, end - at);
		if (done != end - at)
			return false;
		at = end;
	}
	return true;
}

/* Whether the page at this place of the slot is mapped where it belongs. */
static bool is_at_home(const struct nupa_promoted *slot, uint64_t offset)
{
	uint64_t va = slot->anchor + (offset - slot_start(slot) - MIDDLE);
	struct nupa_maps maps;
	struct nupa_vma vma;
	bool found;

	if (nupa_maps_open(&maps))
		return false;
	found = nupa_maps_find(&maps, va, &vma) && vma.start <= va && nupa_vma_is_memfd(&vma) &&
		vma.offset + (va - vma.start) == offset;
	nupa_maps_close(&maps);
	return found;
}

/* The slot's mappings at their own places (*straight*), or those that the program has moved.  A
 * second mapping of a page is a peer's window, in this process. */
static bool empty_those(const struct nupa_promoted *slot, bool straight)
{
	uint64_t at = 0;
	struct nupa_maps maps;
	struct nupa_vma vma;
	bool all = true;

	if (nupa_maps_open(&maps))
		return false;
	while (nupa_maps_find(&maps, at, &vma)) {
		at = vma.end;
		if (!nupa_vma_is_memfd(&vma) || nupa_promoted_of(vma.offset) != slot ||
		    (vma.offset == nupa_promoted_place(slot, vma.start)) != straight ||
		    (!straight && is_at_home(slot, vma.offset)))
			continue;
		all &= vma_out(slot, &vma);
	}
	nupa_maps_close(&maps);
	return all;
}

/* The same when all of the slot is at its own place, as it nearly always is: then no other place
 * has to be searched.  False: a part is not, or might not be. */
static bool empty_home(const struct nupa_promoted *slot)
{
	uint64_t at = slot->from;
	struct nupa_maps maps;
	struct nupa_vma vma;
	bool all = true;

	if (nupa_maps_open(&maps))
		return false;
	while (all && at < slot->to)
		if (!nupa_maps_find(&maps, at, &vma) || vma.start > at ||
		    !nupa_vma_is_memfd(&vma) || vma.offset != nupa_promoted_place(slot, vma.start))
			all = false;
		else
			at = vma.end;
	maps.at = 0;
	for (at = slot->from; all && at < slot->to; at = vma.end)
		all = nupa_maps_find(&maps, at, &vma) && vma_out(slot, &vma);
	nupa_maps_close(&maps);
	return all;
}

void nupa_promoted_unleave(struct nupa_promoted *slot)
{
	if (slot->left)
		nupa_list_del(&slot->link);
	slot->left = false;
}

bool nupa_promoted_free(struct nupa_promoted *slot)
{
	if (!nupa_memfd_punch(slot_start(slot), SLOT_BYTES))
		return false;
	while (slot->runs)
		run_free_first(slot);
	nupa_promoted_unleave(slot);
	slot->used = false;
	return true;
}

/* If not all could be, it stays until it is wanted again, or given back again.  Unmapped
 * pages are freed, too. */
bool nupa_promoted_empty(struct nupa_promoted *slot)
{
	return (empty_home(slot) || (empty_those(slot, false) && empty_those(slot, true))) &&
	       nupa_promoted_free(slot);
}

bool nupa_promoted_add(struct nupa_promoted *slot, uint64_t va, uint64_t bytes,
		       bool readers_may_fail)
{
	uint64_t place = nupa_promoted_place(slot, va), done;
	struct run *run;

	/* Pages that the program unmapped may have left their contents there. */
	if (slot->runs && !nupa_memfd_punch(place, bytes))
		return false;
	run = run_take(slot, va, bytes);
	if (!run)
		return false;
	done = nupa_swap_in(nupa_memfd(), va, bytes, place, run->park, readers_may_fail);
	if (!done) {
		run_free_first(slot);
		return false;
	}
	slot->from = va < slot->from ? va : slot->from;
	slot->to = va + done > slot->to ? va + done : slot->to;
	return done == bytes;
}

bool nupa_promoted_empty_all(void)
{
	bool all = true;

	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++)
		if (slots[i].used)
			all &= nupa_promoted_empty(&slots[i]);
	return all;
}

bool nupa_promoted_any(void)
{
	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++)
		if (slots[i].used)
			return true;
	return false;
}

void nupa_promoted_forget_in_child(void)
{
	memset(slots, 0, sizeof(slots));
	memset(runs, 0, sizeof(runs));
}
