/* SPDX-License-Identifier: BSD-3-Clause
 * Slots that no range has, and whose pages may be pinned: they wait to be emptied. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <unistd.h>

static struct nupa_list left = { &left, &left };

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

void nupa_promoted_use(struct nupa_promoted *slot)
{
	slot->ranges++;
	nupa_promoted_unleave(slot);
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
		survey->elsewhere = vma.offset != nupa_promoted_place(slot, vma.start);
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
	off_t data = lseek(nupa_memfd(), (off_t)nupa_promoted_place(slot, from), SEEK_DATA);

	return data >= 0 && (uint64_t)data < nupa_promoted_place(slot, to);
}

/* Unmapped pages may still be pinned, but no program sees them.  False: all mappings had to be
 * looked at. */
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
			(void)nupa_promoted_free(slot);
			return false;
		}
		(void)nupa_memfd_punch(nupa_promoted_place(slot, from), to - from);
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

void nupa_promoted_forget_left_in_child(void)
{
	nupa_list_init(&left);
}
