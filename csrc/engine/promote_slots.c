/* SPDX-License-Identifier: BSD-3-Clause
 * Where promoted pages are in the memfd.
 *
 * The memfd is cut into slots, each larger than an address space.  A slot belongs to pages that
 * were promoted together, and keeps their distances: a page at va is at slot + MIDDLE + (va -
 * anchor). So a mapping that the program moves or extends (mremap, as realloc does) finds zeros
 * behind it, never another one's pages (I3).  Which pages are promoted is not remembered: the
 * kernel knows which mappings are the memfd's, whatever the program has done with them. */
#define _GNU_SOURCE
#include "promote_internal.h"

#include "limits.h"

#include <errno.h>
#include <fcntl.h>
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

/* Pages that were promoted at once, and where the mapping waits that they had before. */
struct run {
	uint64_t va, bytes, park; /* 0 bytes: free */
	uint32_t next;            /* index + 1 of the slot's next one */
};

static int memfd = -1;
static dev_t memfd_device;
static uint64_t memfd_inode;
static struct nupa_promoted slots[NUPA_PROMOTED_MAX];
static struct run runs[NUPA_PROMOTED_MAX];
static uint32_t next_slot, next_run; /* where to look for a free one */
/* Slots that no range has, and whose pages may be pinned: they wait to be emptied. */
static struct nupa_list left = { &left, &left };

/* --- the memfd ----------------------------------------------------------------------- */

bool nupa_memfd_is_there(void)
{
	struct stat status;

	return memfd >= 0 && fstat(memfd, &status) == 0 && status.st_dev == memfd_device &&
	       status.st_ino == memfd_inode;
}

static void tell_shim(void)
{
	struct nupa_promoted_file *file = nupa_shim_promoted;

	if (!file)
		return;
	for (uint32_t i = 1; i < NUPA_PROMOTED_FILES && file->inode; i++)
		file++;
	file->device = memfd_device;
	file->inode = memfd_inode;
}

/* Where memory is promised strictly (vm.overcommit_memory 2), a page that was promised to a private
 * mapping may not be had for a shared one: touching it would be SIGBUS. */
static bool is_overcommit_strict(void)
{
	int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
	char mode = 0;

	if (fd >= 0) {
		if (read(fd, &mode, 1) != 1)
			mode = 0;
		close(fd);
	}
	return mode == '2';
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
	if (is_overcommit_strict())
		return -ENOMEM;
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
	tell_shim();
	return 0;
}

/* One that was lost is not made again: its slots may still be mapped. */
bool nupa_memfd_ready(void)
{
	return memfd >= 0 ? nupa_memfd_is_there() : memfd_make() == 0;
}

int nupa_memfd(void)
{
	return memfd;
}

bool nupa_vma_is_memfd(const struct nupa_vma *vma)
{
	return vma->shared && vma->inode == memfd_inode && vma->device == memfd_device;
}

static bool punch(uint64_t offset, uint64_t bytes)
{
	return fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)bytes) == 0;
}

/* --- slots --------------------------------------------------------------------------- */

struct nupa_promoted *nupa_promoted_of(uint64_t file_off)
{
	return &slots[file_off / SLOT_BYTES % NUPA_PROMOTED_MAX];
}

static uint64_t slot_start(const struct nupa_promoted *slot)
{
	return (uint64_t)(slot - slots) * SLOT_BYTES;
}

static uint64_t slot_place(const struct nupa_promoted *slot, uint64_t va)
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

/* The run that has the page at va; and it, or else the next one of the slot, ends at *end. */
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
	bool straight = vma->offset == slot_place(slot, vma->start);
	uint64_t at = vma->start;

	while (at < vma->end) {
		uint64_t end = vma->end, park, done;
		struct run *run = straight ? run_at(slot, at, &end) : NULL;

		park =
		    run ? run->park + (at - run->va) : park_make(end - at, PROT_READ | PROT_WRITE);
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

/* Of the slot's mappings those that are where they belong (*straight*), or those that the program
 * has moved; a second one of a page is a peer's window, in this process. */
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
		    (vma.offset == slot_place(slot, vma.start)) != straight ||
		    (!straight && is_at_home(slot, vma.offset)))
			continue;
		all &= vma_out(slot, &vma);
	}
	nupa_maps_close(&maps);
	return all;
}

/* The same when all of the slot is where it belongs, as it nearly always is: then nothing of it is
 * elsewhere, and only there has to be looked.  False: something is not, or could not be. */
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
		    !nupa_vma_is_memfd(&vma) || vma.offset != slot_place(slot, vma.start))
			all = false;
		else
			at = vma.end;
	maps.at = 0;
	for (at = slot->from; all && at < slot->to; at = vma.end)
		all = nupa_maps_find(&maps, at, &vma) && vma_out(slot, &vma);
	nupa_maps_close(&maps);
	return all;
}

static void unleave(struct nupa_promoted *slot)
{
	if (slot->left)
		nupa_list_del(&slot->link);
	slot->left = false;
}

void nupa_promoted_use(struct nupa_promoted *slot)
{
	slot->ranges++;
	unleave(slot);
}

static bool slot_free(struct nupa_promoted *slot)
{
	if (!punch(slot_start(slot), SLOT_BYTES))
		return false;
	while (slot->runs)
		run_free_first(slot);
	unleave(slot);
	slot->used = false;
	return true;
}

/* If not all could be, it stays until it is wanted again, or given back again.  What the program
 * unmapped goes, too. */
bool nupa_promoted_empty(struct nupa_promoted *slot)
{
	return (empty_home(slot) || (empty_those(slot, false) && empty_those(slot, true))) &&
	       slot_free(slot);
}

/* Where a slot is mapped. */
struct survey {
	bool elsewhere; /* than where its place says */
	uint32_t n;
};

static bool look(const struct nupa_promoted *slot, struct survey *survey)
{
	uint64_t at = 0;
	struct nupa_maps maps;
	struct nupa_vma vma;

	*survey = (struct survey){ 0 };
	if (nupa_maps_open(&maps))
		return false;
	while (!survey->elsewhere && nupa_maps_find(&maps, at, &vma)) {
		at = vma.end;
		if (!nupa_vma_is_memfd(&vma) || nupa_promoted_of(vma.offset) != slot)
			continue;
		survey->elsewhere = vma.offset != slot_place(slot, vma.start);
		survey->n++;
	}
	nupa_maps_close(&maps);
	return true;
}

bool nupa_promoted_is_straight(const struct nupa_promoted *slot)
{
	struct survey survey;

	return look(slot, &survey) && !survey.elsewhere;
}

bool nupa_promoted_add(struct nupa_promoted *slot, uint64_t va, uint64_t bytes)
{
	uint64_t place = slot_place(slot, va), done;
	struct run *run;

	/* Pages that the program unmapped may have left their contents there. */
	if (slot->runs && !punch(place, bytes))
		return false;
	run = run_take(slot, va, bytes);
	if (!run)
		return false;
	done = nupa_swap_in(memfd, va, bytes, place, run->park);
	if (!done) {
		run_free_first(slot);
		return false;
	}
	slot->from = va < slot->from ? va : slot->from;
	slot->to = va + done > slot->to ? va + done : slot->to;
	return done == bytes;
}

/* --- what may be pinned -------------------------------------------------------------- */

void nupa_promoted_leave(struct nupa_promoted *slot)
{
	if (!slot->left)
		nupa_list_add(&left, &slot->link);
	slot->left = true;
}

bool nupa_promoted_left(void)
{
	return !nupa_list_empty(&left);
}

/* The next stretch of the slot from *at* on where none of it is mapped; false: there is none. */
static bool find_unmapped(const struct nupa_promoted *slot, uint64_t at, uint64_t *from,
			  uint64_t *to)
{
	struct nupa_maps maps;
	struct nupa_vma vma;

	if (nupa_maps_open(&maps))
		return false;
	*from = *to = at;
	while (*to < slot->to && nupa_maps_find(&maps, *to, &vma)) {
		uint64_t start = vma.start < slot->to ? vma.start : slot->to;
		bool mapped = nupa_vma_is_memfd(&vma) && nupa_promoted_of(vma.offset) == slot;

		*to = start > *to ? start : *to;
		if (mapped && *to > *from)
			break;
		*to = vma.end < slot->to ? vma.end : slot->to;
		if (mapped)
			*from = *to;
	}
	nupa_maps_close(&maps);
	return *from < *to;
}

static bool has_pages(const struct nupa_promoted *slot, uint64_t from, uint64_t to)
{
	off_t data = lseek(memfd, (off_t)slot_place(slot, from), SEEK_DATA);

	return data >= 0 && (uint64_t)data < slot_place(slot, to);
}

/* What the program has unmapped, the kernel may still have pinned: but nobody sees it.  False: all
 * mappings had to be looked at. */
static bool free_unmapped(struct nupa_promoted *slot)
{
	struct survey survey;
	uint64_t from, to;
	bool quick = true;

	for (uint64_t at = slot->from; find_unmapped(slot, at, &from, &to); at = to) {
		if (to - from < slot->to - slot->from && !has_pages(slot, from, to))
			continue;
		if (quick && (!look(slot, &survey) || survey.elsewhere))
			return false;
		quick = false;
		if (!survey.n) {
			(void)slot_free(slot);
			return false;
		}
		(void)punch(slot_place(slot, from), to - from);
	}
	return quick;
}

/* As many as one call looks at. */
#define RETRIES 8u

void nupa_promoted_retry(bool unpinned)
{
	struct nupa_list *at = left.next, *next;

	if (unpinned) {
		for (; at != &left; at = next) {
			next = at->next;
			(void)nupa_promoted_empty(container_of(at, struct nupa_promoted, link));
		}
		return;
	}
	for (uint32_t i = 0; i < RETRIES && (at = nupa_list_pop(&left)) != NULL; i++) {
		struct nupa_promoted *slot = container_of(at, struct nupa_promoted, link);
		bool quick;

		nupa_list_add(&left, at); /* behind the others */
		quick = free_unmapped(slot);
		if (!quick)
			break;
	}
}

/* --- fork ---------------------------------------------------------------------------- */

/* What stays promoted over a fork, and a copy of it, which the child puts in its place. */
struct copy {
	uint64_t va, bytes, copy; /* 0: none could be made */
	int prot;
};

#define COPIES_MAX 65536u /* as many as there may be mappings (vm.max_map_count) */

static struct copy *copies;
static uint32_t n_copies;

static uint64_t copy_make(const struct nupa_vma *vma)
{
	uint64_t bytes = vma->end - vma->start;
	uint64_t to = park_make(bytes, PROT_READ | PROT_WRITE);

	if (to && nupa_swap_copy(memfd, to, bytes, vma->offset) &&
	    mprotect((void *)(uintptr_t)to, bytes, vma->prot) == 0)
		return to;
	if (to)
		munmap((void *)(uintptr_t)to, bytes);
	return 0;
}

static void copies_make(void)
{
	uint64_t at = 0;
	struct nupa_maps maps;
	struct nupa_vma vma;

	copies = mmap(NULL, COPIES_MAX * sizeof(*copies), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (copies == MAP_FAILED)
		copies = NULL;
	if (!copies || nupa_maps_open(&maps))
		return;
	while (n_copies < COPIES_MAX && nupa_maps_find(&maps, at, &vma)) {
		at = vma.end;
		if (nupa_vma_is_memfd(&vma))
			copies[n_copies++] = (struct copy){ vma.start, vma.end - vma.start,
							    copy_make(&vma), vma.prot };
	}
	nupa_maps_close(&maps);
}

static void copies_drop(void)
{
	for (uint32_t i = 0; i < n_copies; i++)
		if (copies[i].copy)
			munmap((void *)(uintptr_t)copies[i].copy, copies[i].bytes);
	if (copies)
		munmap(copies, COPIES_MAX * sizeof(*copies));
	copies = NULL;
	n_copies = 0;
}

bool nupa_promoted_empty_all(bool unpinned)
{
	bool all = true;

	for (uint32_t i = 0; i < NUPA_PROMOTED_MAX; i++)
		if (slots[i].used)
			all &= unpinned && nupa_promoted_empty(&slots[i]);
	if (!all)
		copies_make();
	return all;
}

void nupa_promoted_after_fork(void)
{
	copies_drop();
}

/* The copy as of the fork; else at least our writes are our own, from here on. */
static bool make_private_in_child(const struct nupa_vma *vma)
{
	uint64_t bytes = vma->end - vma->start;

	for (uint32_t i = 0; i < n_copies; i++) {
		struct copy *copy = &copies[i];

		if (copy->va == vma->start && copy->bytes == bytes && copy->copy &&
		    mremap((void *)(uintptr_t)copy->copy, bytes, bytes,
			   MREMAP_MAYMOVE | MREMAP_FIXED,
			   (void *)(uintptr_t)vma->start) != MAP_FAILED) {
			copy->copy = 0;
			return true;
		}
	}
	return mmap((void *)(uintptr_t)vma->start, bytes, vma->prot, MAP_PRIVATE | MAP_FIXED, memfd,
		    (off_t)vma->offset) != MAP_FAILED;
}

void nupa_promoted_forget_in_child(void)
{
	struct nupa_maps maps;
	struct nupa_vma vma;
	uint64_t at = 0;

	if (!nupa_memfd_is_there())
		return;
	if (nupa_maps_open(&maps) == 0) {
		while (nupa_maps_find(&maps, at, &vma)) {
			at = vma.end;
			if (nupa_vma_is_memfd(&vma) && !make_private_in_child(&vma))
				abort(); /* rather than write to the parent's memory */
		}
		nupa_maps_close(&maps);
	}
	copies_drop();
	close(memfd);
	memfd = -1;
	memset(slots, 0, sizeof(slots));
	memset(runs, 0, sizeof(runs));
	nupa_list_init(&left);
}
