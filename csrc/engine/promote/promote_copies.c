/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that stays promoted over a fork, as it may be pinned: the parent keeps the pages, the
 * child gets copies as of the fork. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

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
	void *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (to == MAP_FAILED)
		return 0;
	if (nupa_swap_copy(nupa_memfd(), (uintptr_t)to, bytes, vma->offset) &&
	    mprotect(to, bytes, vma->prot) == 0)
		return (uintptr_t)to;
	munmap(to, bytes);
	return 0;
}

void nupa_copies_make(void)
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

void nupa_copies_drop(void)
{
	for (uint32_t i = 0; i < n_copies; i++)
		if (copies[i].copy)
			munmap((void *)(uintptr_t)copies[i].copy, copies[i].bytes);
	if (copies)
		munmap(copies, COPIES_MAX * sizeof(*copies));
	copies = NULL;
	n_copies = 0;
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
	return mmap((void *)(uintptr_t)vma->start, bytes, vma->prot, MAP_PRIVATE | MAP_FIXED,
		    nupa_memfd(), (off_t)vma->offset) != MAP_FAILED;
}

void nupa_copies_take_in_child(void)
{
	struct nupa_maps maps;
	struct nupa_vma vma;
	uint64_t at = 0;

	if (nupa_maps_open(&maps) == 0) {
		while (nupa_maps_find(&maps, at, &vma)) {
			at = vma.end;
			if (nupa_vma_is_memfd(&vma) && !make_private_in_child(&vma))
				abort(); /* rather than write to the parent's memory */
		}
		nupa_maps_close(&maps);
	}
	nupa_copies_drop();
}
