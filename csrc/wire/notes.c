/* SPDX-License-Identifier: BSD-3-Clause
 * Notes of the connections of processes, so that the other end is told of a death as the kernel's
 * CM tells it: by a DREQ (IBTA 12.9.6), which is repeated until a DREP comes.
 *
 * A process sends its datagrams itself, so notes are made of those that come.  A REP has all that a
 * DREQ needs.  A REQ lacks our communication id, which the REP has that the process shows us, and
 * a later datagram of the other end.
 *
 *   N1 Until the other end has said our id, the REP may have been lost, and an MRA of the dead may
 *      have told it to wait: the request is rejected (IBTA 12.6.7), too.  An end that has the REP
 *      ignores a rejection without our id.
 *   N2 A datagram changes a note only if it names the other end's id, and our id or its slot.
 *   N3 Notes are bounded for each process, and those of the dead for each wire; the oldest goes. */
#include "engine/cm/wire/steer.h"
#include "wire/keeper_internal.h"

#include <stdlib.h>

#define QPN_FIRST 2u /* 0 and 1 are of management */
#define STARTED_MAX 256u
#define WHOLE_MAX 1024u
#define ORPHANS_MAX 4096u
#define REPEAT_NS UINT64_C(2000000000)
#define TRIES 32u /* as long as a CM's 15 repetitions after 4.3 s */

struct note {
	struct nupa_list by_remote; /* of the wire: those with such an id of the other end */
	struct nupa_list in_order;  /* of its shelf */
	struct nupa_note_shelf *shelf;
	uint32_t slot;
	uint32_t local_id; /* 0: not known yet */
	uint32_t remote_id, remote_qpn;
	uint16_t pkey;
	bool is_met;     /* the other end has our id */
	uint32_t tries;  /* of one whose process has died */
	uint64_t due_ns; /* that one: the next */
};

/* --- shelves ------------------------------------------------------------------------- */

static void shelf_init(struct nupa_note_shelf *shelf, uint32_t most)
{
	*shelf = (struct nupa_note_shelf){ .most = most };
	nupa_list_init(&shelf->notes);
}

void nupa_notes_open(struct nupa_kept *wire)
{
	for (uint32_t i = 0; i < NUPA_NOTE_BUCKETS; i++)
		nupa_list_init(&wire->notes[i]);
	shelf_init(&wire->orphans, ORPHANS_MAX);
}

void nupa_notes_join(struct nupa_member *member)
{
	shelf_init(&member->started, STARTED_MAX);
	shelf_init(&member->whole, WHOLE_MAX);
}

static void take_off(struct note *note)
{
	nupa_list_del(&note->in_order);
	note->shelf->n--;
}

static void discard(struct note *note)
{
	take_off(note);
	nupa_list_del(&note->by_remote);
	free(note);
}

static struct note *oldest(const struct nupa_note_shelf *shelf)
{
	return nupa_list_empty(&shelf->notes)
		   ? NULL
		   : container_of(shelf->notes.next, struct note, in_order);
}

/* N3 */
static void put_on(struct nupa_note_shelf *shelf, struct note *note)
{
	if (shelf->n == shelf->most)
		discard(oldest(shelf));
	nupa_list_add(&shelf->notes, &note->in_order);
	note->shelf = shelf;
	shelf->n++;
}

static void move(struct note *note, struct nupa_note_shelf *shelf)
{
	take_off(note);
	put_on(shelf, note);
}

/* --- finding ------------------------------------------------------------------------- */

static struct nupa_list *bucket_of(struct nupa_kept *wire, uint32_t remote_id)
{
	return &wire->notes[remote_id * UINT32_C(2654435761) >> 24];
}
_Static_assert(NUPA_NOTE_BUCKETS == 1u << 8, "the hash has 8 bits");

static struct note *find(struct nupa_kept *wire, uint32_t remote_id)
{
	struct nupa_list *bucket = bucket_of(wire, remote_id);

	for (struct nupa_list *at = bucket->next; at != bucket; at = at->next) {
		struct note *note = container_of(at, struct note, by_remote);

		if (note->remote_id == remote_id)
			return note;
	}
	return NULL;
}

/* N2 */
static bool is_about(const struct note *note, uint32_t local_id)
{
	return note->local_id ? note->local_id == local_id
			      : NUPA_CM_NUMBER_SLOT(local_id) == note->slot;
}

/* --- orphans ------------------------------------------------------------------------- */

static void tell(struct nupa_kept *wire, const struct note *note)
{
	const struct nupa_cm_mad dreq = { .transaction =
					      (uint64_t)note->local_id << 32 | note->remote_id,
					  .attribute = NUPA_CM_DREQ,
					  .local_id = note->local_id,
					  .remote_id = note->remote_id,
					  .qpn = note->remote_qpn };
	uint8_t bytes[NUPA_CM_MAD_BYTES];

	if (!note->is_met) { /* N1 */
		nupa_cm_reject_orphan(note->remote_id, bytes);
		nupa_keeper_send_mad(wire, note->pkey, bytes, false);
	}
	if (note->local_id) {
		nupa_cm_mad_write(&dreq, bytes);
		nupa_keeper_send_mad(wire, note->pkey, bytes, false);
	}
}

static void orphan(struct nupa_kept *wire, struct note *note, uint64_t now_ns)
{
	note->tries = TRIES;
	note->due_ns = now_ns + REPEAT_NS;
	move(note, &wire->orphans);
	tell(wire, note);
}

void nupa_notes_leave(struct nupa_member *member)
{
	struct nupa_note_shelf *shelves[] = { &member->started, &member->whole };
	const uint64_t now_ns = nupa_clock_ns();

	for (uint32_t i = 0; i < 2; i++)
		for (struct note *note; (note = oldest(shelves[i]));)
			orphan(member->wire, note, now_ns);
}

uint64_t nupa_notes_tick(struct nupa_kept *wire, uint64_t now_ns)
{
	struct note *note;

	/* All wait equally long, so the oldest is due first. */
	while ((note = oldest(&wire->orphans)) && note->due_ns <= now_ns) {
		if (!--note->tries) {
			discard(note);
			continue;
		}
		note->due_ns = now_ns + REPEAT_NS;
		move(note, &wire->orphans);
		tell(wire, note);
	}
	return note ? note->due_ns : UINT64_MAX;
}

void nupa_notes_close(struct nupa_kept *wire)
{
	for (uint32_t i = 0; i < NUPA_NOTE_BUCKETS; i++)
		while (!nupa_list_empty(&wire->notes[i]))
			discard(container_of(wire->notes[i].next, struct note, by_remote));
}

/* --- datagrams ----------------------------------------------------------------------- */

/* An id of the other end is one connection's: the last one that it was seen of. */
static void start(struct nupa_member *member, uint16_t pkey, const struct nupa_cm_mad *mad,
		  uint32_t local_id)
{
	struct nupa_kept *wire = member->wire;
	const uint32_t qpn = mad->qpn ? mad->qpn : mad->eecn; /* of XRC's target, in a REP */
	struct note *note = find(wire, mad->local_id);

	if (qpn < QPN_FIRST)
		return;
	if (note && note->slot == member->slot && note->remote_qpn == qpn &&
	    note->shelf != &wire->orphans && (!local_id || note->local_id == local_id))
		return; /* a repetition */
	if (note)
		discard(note);
	note = malloc(sizeof(*note));
	if (!note)
		return;
	*note = (struct note){ .slot = member->slot,
			       .local_id = local_id,
			       .remote_id = mad->local_id,
			       .remote_qpn = qpn,
			       .pkey = pkey,
			       .is_met = local_id != 0 };
	nupa_list_add(bucket_of(wire, note->remote_id), &note->by_remote);
	put_on(local_id ? &member->whole : &member->started, note);
}

static void learn(struct nupa_kept *wire, struct note *note, uint32_t local_id, bool is_met)
{
	const bool is_known = note->local_id != 0;

	note->local_id = local_id;
	note->is_met |= is_met;
	if (note->shelf == &wire->orphans)
		tell(wire, note);
	else if (!is_known)
		move(note, &container_of(note->shelf, struct nupa_member, started)->whole);
}

void nupa_notes_say(const struct nupa_member *member, const uint8_t *bytes, uint32_t n)
{
	struct nupa_cm_mad mad;
	struct note *note;

	if (!nupa_cm_mad_read(bytes, n, &mad) || mad.attribute != NUPA_CM_REP ||
	    NUPA_CM_NUMBER_SLOT(mad.local_id) != member->slot)
		return;
	note = find(member->wire, mad.remote_id);
	if (note && note->slot == member->slot && note->shelf != &member->wire->orphans)
		learn(member->wire, note, mad.local_id, false);
}

void nupa_notes_hear(struct nupa_kept *wire, struct nupa_member *member, uint16_t pkey,
		     const uint8_t *bytes, uint32_t n)
{
	struct nupa_cm_mad mad;
	struct note *note;

	if (!nupa_cm_mad_read(bytes, n, &mad))
		return;
	if (mad.attribute == NUPA_CM_REQ || mad.attribute == NUPA_CM_REP) {
		if (member)
			start(member, pkey, &mad, mad.remote_id);
		return;
	}
	note = find(wire, mad.local_id);
	if (!note || !is_about(note, mad.remote_id))
		return;
	switch (mad.attribute) {
	case NUPA_CM_RTU:
	case NUPA_CM_MRA:
		learn(wire, note, mad.remote_id, true);
		break;
	case NUPA_CM_REJ:
	case NUPA_CM_DREQ:
	case NUPA_CM_DREP:
		discard(note);
		break;
	default: /* datagrams make no connections */
		break;
	}
}
