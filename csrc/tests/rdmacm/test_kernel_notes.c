/* SPDX-License-Identifier: BSD-3-Clause
 * A kernel's notes of the connections of processes: whose a number is, and what the dead owe. */
#include "engine/cm/kernel/notes.h"
#include "engine/cm/wire/steer.h"
#include "tests/support/runner.h"

#define SLOT 7u
#define NUMBER (UINT32_C(0x1234) << NUPA_SLOT_BITS | SLOT)
#define KERNEL_ID 0xabcdef01u
#define QPN 0x30005u

static struct nupa_cm_mad mad(uint16_t attribute, uint32_t local, uint32_t remote, uint32_t qpn)
{
	return (struct nupa_cm_mad){
		.attribute = attribute, .local_id = local, .remote_id = remote, .qpn = qpn
	};
}

static void heard(struct nupa_cm_notes *notes, uint16_t attribute, uint32_t remote)
{
	const struct nupa_cm_mad said = mad(attribute, NUMBER, remote, 0x70001);

	nupa_cm_notes_heard(notes, SLOT, &said);
}

static void said(struct nupa_cm_notes *notes, uint16_t attribute, uint32_t remote)
{
	const struct nupa_cm_mad to = mad(attribute, KERNEL_ID, remote, QPN);

	nupa_cm_notes_said(notes, SLOT, &to);
}

static struct nupa_cm_notes *notes_new(void)
{
	struct nupa_cm_notes *notes = nupa_cm_notes_new();

	CHECK(notes);
	return notes;
}

static void expect_orphan(struct nupa_cm_notes *notes, uint16_t attribute, uint32_t local)
{
	uint8_t bytes[NUPA_CM_MAD_BYTES];
	struct nupa_cm_mad read;

	CHECK(nupa_cm_notes_orphan(notes, SLOT, bytes));
	CHECK(nupa_cm_mad_read(bytes, sizeof(bytes), &read));
	CHECK_EQ(read.attribute, attribute);
	CHECK_EQ(read.local_id, local);
	CHECK_EQ(read.remote_id, KERNEL_ID);
	if (attribute == NUPA_CM_DREQ)
		CHECK_EQ(read.qpn, QPN);
	CHECK(!nupa_cm_notes_orphan(notes, SLOT, bytes));
}

TEST(a_number_is_a_process_s_from_its_request_to_the_end)
{
	struct nupa_cm_notes *notes = notes_new();

	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), 0);
	heard(notes, NUPA_CM_REQ, 0);
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), SLOT);
	said(notes, NUPA_CM_REP, NUMBER);
	heard(notes, NUPA_CM_RTU, KERNEL_ID);
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), SLOT);
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER + 1), 0);
	heard(notes, NUPA_CM_DREQ, KERNEL_ID);
	said(notes, NUPA_CM_DREP, NUMBER);
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), 0);
	nupa_cm_notes_free(notes);
}

TEST(a_number_of_another_slot_is_not_noted)
{
	const struct nupa_cm_mad lie = mad(NUPA_CM_REQ, NUMBER, 0, QPN);
	struct nupa_cm_notes *notes = notes_new();

	nupa_cm_notes_heard(notes, SLOT + 1, &lie);
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), 0);
	nupa_cm_notes_free(notes);
}

TEST(a_dead_requester_s_connection_ends_with_a_disconnect)
{
	struct nupa_cm_notes *notes = notes_new();

	heard(notes, NUPA_CM_REQ, 0);
	said(notes, NUPA_CM_REP, NUMBER);
	expect_orphan(notes, NUPA_CM_DREQ, NUMBER);
	nupa_cm_notes_free(notes);
}

TEST(a_dead_responder_s_connection_ends_with_a_disconnect)
{
	struct nupa_cm_notes *notes = notes_new();

	said(notes, NUPA_CM_REQ, 0);
	heard(notes, NUPA_CM_REP, KERNEL_ID);
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), SLOT);
	expect_orphan(notes, NUPA_CM_DREQ, NUMBER);
	nupa_cm_notes_free(notes);
}

TEST(a_request_that_the_dead_did_not_answer_is_rejected)
{
	struct nupa_cm_notes *notes = notes_new();

	said(notes, NUPA_CM_REQ, 0);
	expect_orphan(notes, NUPA_CM_REJ, 0);
	nupa_cm_notes_free(notes);
}

TEST(nothing_is_owed_to_a_kernel_that_had_not_answered)
{
	struct nupa_cm_notes *notes = notes_new();
	uint8_t bytes[NUPA_CM_MAD_BYTES];

	heard(notes, NUPA_CM_REQ, 0);
	CHECK(!nupa_cm_notes_orphan(notes, SLOT, bytes));
	CHECK_EQ(nupa_cm_notes_slot(notes, NUMBER), 0);
	nupa_cm_notes_free(notes);
}

TEST(one_note_more_than_there_may_be_drops_the_oldest)
{
	struct nupa_cm_notes *notes = notes_new();

	for (uint32_t i = 0; i <= NUPA_CM_NOTES_MAX; i++) {
		const struct nupa_cm_mad req =
		    mad(NUPA_CM_REQ, (i + 1) << NUPA_SLOT_BITS | SLOT, 0, QPN);

		nupa_cm_notes_heard(notes, SLOT, &req);
	}
	CHECK_EQ(nupa_cm_notes_slot(notes, 1u << NUPA_SLOT_BITS | SLOT), 0);
	CHECK_EQ(nupa_cm_notes_slot(notes, 2u << NUPA_SLOT_BITS | SLOT), SLOT);
	nupa_cm_notes_free(notes);
}
