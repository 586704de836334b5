/* SPDX-License-Identifier: BSD-3-Clause
 * ICRCs of packets whose identifications are hidden. */
#include "packet/icrc.h"
#include "tests/support/runner.h"

#include <endian.h>
#include <string.h>

#define BYTES 64u /* BTH, payload, ICRC */

static const struct nupa_roce_path path = {
	.src = { [10] = 0xff, 0xff, 192, 0, 2, 1 },
	.dst = { [10] = 0xff, 0xff, 192, 0, 2, 2 },
	.src_port = 0xc123,
};

/* A packet as it comes with that identification; change: a wrong ICRC that is plausible. */
static void make(uint8_t packet[BYTES], uint16_t identification)
{
	struct nupa_roce_path sent = path;
	const struct iovec covered = { packet, BYTES - 4 };
	uint32_t icrc;

	for (uint32_t i = 0; i < BYTES; i++)
		packet[i] = (uint8_t)(i * 7);
	sent.identification = identification;
	icrc = htole32(nupa_icrc(&sent, &covered, 1));
	memcpy(packet + BYTES - 4, &icrc, sizeof(icrc));
}

static bool expected(struct nupa_icrc_sender *sender, uint16_t identification)
{
	struct nupa_icrc_base base;
	uint8_t packet[BYTES];

	make(packet, identification);
	CHECK(nupa_icrc_plausible(&path, packet, BYTES));
	nupa_icrc_prepare(&base, path.src, path.dst);
	return nupa_icrc_expected(sender, &base, path.src_port, 0, packet, BYTES);
}

TEST(any_identification_is_taken_of_a_sender_that_is_not_known)
{
	struct nupa_icrc_sender sender = { 0 };

	for (uint32_t i = 0; i < 40; i++)
		CHECK(expected(&sender, (uint16_t)(i * 1000 + 1)));
}

TEST(fifteen_low_identifications_make_no_rule)
{
	struct nupa_icrc_sender sender = { 0 };

	for (uint32_t i = 0; i < 15; i++)
		CHECK(expected(&sender, 0));
	CHECK(expected(&sender, 777));
}

TEST(a_sender_of_low_identifications_sends_no_others)
{
	struct nupa_icrc_sender sender = { 0 };

	for (uint32_t i = 0; i < 16; i++)
		CHECK(expected(&sender, 0));
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(!expected(&sender, 128));
		CHECK(!expected(&sender, 0xff00));
		CHECK(expected(&sender, 127));
	}
}

TEST(another_sender_at_the_address_is_believed_at_its_third_packet)
{
	struct nupa_icrc_sender sender = { 0 };

	for (uint32_t i = 0; i < 300; i++)
		CHECK(expected(&sender, 0));
	CHECK(!expected(&sender, 777));
	CHECK(!expected(&sender, 778));
	for (uint32_t i = 0; i < 10; i++)
		CHECK(expected(&sender, (uint16_t)(779 + i)));
}

TEST(a_sender_that_counts_is_believed_behind_the_low_identifications)
{
	struct nupa_icrc_sender sender = { 0 };

	for (uint32_t i = 0xff00; i < 0x30000; i++)
		if (i % 5 != 0) /* it has other receivers, and the network loses some */
			CHECK(expected(&sender, (uint16_t)i));
	for (uint32_t i = 0x30000; i < 0x30020; i++)
		CHECK(expected(&sender, (uint16_t)i));
	CHECK(!expected(&sender, 0x8000));
}

TEST(a_changed_packet_is_not_taken)
{
	struct nupa_icrc_sender sender = { 0 };
	struct nupa_icrc_base base;
	uint8_t packet[BYTES];

	nupa_icrc_prepare(&base, path.src, path.dst);
	for (uint32_t bit = 0; bit < 8 * BYTES; bit++) {
		if (bit / 8 == 4) /* it is not covered */
			continue;
		make(packet, 0);
		packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK(!nupa_icrc_expected(&sender, &base, path.src_port, 0, packet, BYTES));
	}
}
