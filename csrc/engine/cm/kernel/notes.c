/* SPDX-License-Identifier: BSD-3-Clause
 * A kernel's notes of the connections of processes. */
#include "engine/cm/kernel/notes.h"
#include "base/list.h"
#include "engine/cm/wire/steer.h"

#include <stdlib.h>

struct note {
	struct nupa_list link; /* notes->all, oldest first */
	uint32_t slot;
	uint32_t number;    /* the process's; 0: not known yet */
	uint32_t kernel_id; /* likewise, the kernel's */
	uint32_t qpn;       /* of the kernel */
};

struct nupa_cm_notes {
	struct nupa_list all;
	uint32_t n;
};

struct nupa_cm_notes *nupa_cm_notes_new(void)
{
	struct nupa_cm_notes *notes = calloc(1, sizeof(*notes));

	if (notes)
		nupa_list_init(&notes->all);
	return notes;
}

static void discard(struct nupa_cm_notes *notes, struct note *note)
{
	nupa_list_del(&note->link);
	notes->n--;
	free(note);
}

static struct note *oldest(const struct nupa_cm_notes *notes)
{
	return nupa_list_empty(&notes->all) ? NULL
					    : container_of(notes->all.next, struct note, link);
}

void nupa_cm_notes_free(struct nupa_cm_notes *notes)
{
	for (struct note *note; notes && (note = oldest(notes));)
		discard(notes, note);
	free(notes);
}

/* By either id, of which one may be 0. */
static struct note *find(const struct nupa_cm_notes *notes, uint32_t slot, uint32_t number,
			 uint32_t kernel_id)
{
	/* The newest first: ids come again. */
	for (struct nupa_list *at = notes->all.prev; at != &notes->all; at = at->prev) {
		struct note *note = container_of(at, struct note, link);

		if (note->slot == slot && ((number && note->number == number) ||
					   (kernel_id && note->kernel_id == kernel_id)))
			return note;
	}
	return NULL;
}

static struct note *find_or_make(struct nupa_cm_notes *notes, uint32_t slot, uint32_t number,
				 uint32_t kernel_id)
{
	struct note *note = find(notes, slot, number, kernel_id);

	if (note)
		return note;
	note = calloc(1, sizeof(*note));
	if (!note)
		return NULL;
	if (notes->n == NUPA_CM_NOTES_MAX)
		discard(notes, oldest(notes));
	note->slot = slot;
	nupa_list_add(&notes->all, &note->link);
	notes->n++;
	return note;
}

static void forget(struct nupa_cm_notes *notes, uint32_t slot, uint32_t number, uint32_t kernel_id)
{
	struct note *note = find(notes, slot, number, kernel_id);

	if (note)
		discard(notes, note);
}

void nupa_cm_notes_heard(struct nupa_cm_notes *notes, uint32_t slot, const struct nupa_cm_mad *mad)
{
	struct note *note;

	switch (mad->attribute) {
	case NUPA_CM_REQ:
	case NUPA_CM_SIDR_REQ:
	case NUPA_CM_REP:
	case NUPA_CM_MRA:
		/* A process names only itself. */
		if (NUPA_CM_NUMBER_SLOT(mad->local_id) != slot)
			return;
		note = find_or_make(notes, slot, mad->local_id, mad->remote_id);
		if (!note)
			return;
		note->number = mad->local_id;
		if (mad->remote_id)
			note->kernel_id = mad->remote_id;
		break;
	case NUPA_CM_REJ:
	case NUPA_CM_DREP:
		forget(notes, slot, mad->local_id, mad->remote_id);
		break;
	default:
		break;
	}
}

void nupa_cm_notes_said(struct nupa_cm_notes *notes, uint32_t slot, const struct nupa_cm_mad *mad)
{
	struct note *note;

	switch (mad->attribute) {
	case NUPA_CM_REQ:
	case NUPA_CM_REP:
		note = find_or_make(notes, slot, mad->remote_id, mad->local_id);
		if (!note)
			return;
		note->kernel_id = mad->local_id;
		note->qpn = mad->qpn;
		if (mad->remote_id)
			note->number = mad->remote_id;
		break;
	case NUPA_CM_REJ:
	case NUPA_CM_DREP:
	case NUPA_CM_SIDR_REP:
		forget(notes, slot, mad->remote_id, mad->local_id);
		break;
	default:
		break;
	}
}

uint32_t nupa_cm_notes_slot(const struct nupa_cm_notes *notes, uint32_t number)
{
	const uint32_t slot = NUPA_CM_NUMBER_SLOT(number);

	return slot && find(notes, slot, number, 0) ? slot : 0;
}

bool nupa_cm_notes_orphan(struct nupa_cm_notes *notes, uint32_t slot,
			  uint8_t mad[NUPA_CM_MAD_BYTES])
{
	struct nupa_list *at = notes->all.next;
	bool told = false;

	while (at != &notes->all && !told) {
		struct note *note = container_of(at, struct note, link);
		const struct nupa_cm_mad dreq = { .attribute = NUPA_CM_DREQ,
						  .local_id = note->number,
						  .remote_id = note->kernel_id,
						  .qpn = note->qpn };

		at = at->next;
		if (note->slot != slot)
			continue;
		told = note->kernel_id != 0;
		if (note->number && note->kernel_id)
			nupa_cm_mad_write(&dreq, mad);
		else if (note->kernel_id)
			nupa_cm_reject_orphan(note->kernel_id, mad);
		discard(notes, note);
	}
	return told;
}
