/* SPDX-License-Identifier: BSD-3-Clause
 * ICRCs of packets whose IP identification is hidden.  The seed is printed. */
#include "packet/crc.h"
#include "packet/crc_internal.h"
#include "packet/icrc.h"
#include "tests/support/runner.h"

#include <string.h>

#define PACKET_BYTES_MAX 4200u
#define SRC_PORT 0xc123u

static uint64_t state;

static uint32_t any(uint32_t below)
{
	return (uint32_t)(test_random(&state) % below);
}

static void fill(uint8_t *to, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)test_random(&state);
}

static struct nupa_roce_path any_path(bool ipv4)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct nupa_roce_path path = { .src_port = SRC_PORT, .ttl = 64 };

	fill(path.src, sizeof(path.src));
	fill(path.dst, sizeof(path.dst));
	if (ipv4) {
		memcpy(path.src, mapped, sizeof(mapped));
		memcpy(path.dst, mapped, sizeof(mapped));
	}
	return path;
}

/* Returns the length with the ICRC. */
static uint32_t packet_of(const struct nupa_roce_path *path, uint8_t *packet, uint32_t bytes)
{
	const struct iovec covered = { packet, bytes };
	uint32_t icrc;

	fill(packet, bytes);
	icrc = nupa_icrc(path, &covered, 1);
	for (int i = 0; i < 4; i++)
		packet[bytes + (uint32_t)i] = (uint8_t)(icrc >> 8 * i);
	return bytes + 4;
}

static uint32_t any_packet(const struct nupa_roce_path *path, uint8_t *packet)
{
	return packet_of(path, packet, 12 + any(PACKET_BYTES_MAX / 4 - 4) * 4);
}

TEST(every_identification_is_found)
{
	static uint8_t packet[PACKET_BYTES_MAX];

	state = test_seed();
	for (int round = 0; round < 6; round++) {
		struct nupa_roce_path path = any_path(true);
		uint32_t length;

		for (uint32_t id = 0; id < 65536; id += round ? 1 + any(200) : 1) {
			struct nupa_icrc_base base;
			uint16_t found = (uint16_t)any(65536); /* a guess */

			path.identification = (uint16_t)id;
			length = round ? any_packet(&path, packet)
				       : packet_of(&path, packet, 12 + any(16) * 4);
			nupa_icrc_prepare(&base, path.src, path.dst);
			CHECK(nupa_icrc_find(&base, SRC_PORT, packet, length, &found));
			CHECK_EQ(found, id);
			CHECK(nupa_icrc_plausible(&path, packet, length));
			CHECK(nupa_icrc_right(&path, packet, length));
			path.identification ^= (uint16_t)(1 + any(65535));
			CHECK(!nupa_icrc_right(&path, packet, length));
		}
	}
}

/* The mean of a binomial distribution is 3.05 here; more than 16 have a probability of 1e-8. */
TEST(one_wrong_icrc_of_65536_passes)
{
	static uint8_t packet[PACKET_BYTES_MAX];
	const struct nupa_roce_path path = any_path(true);
	uint32_t length, passed = 0;

	state = test_seed();
	length = any_packet(&path, packet);
	for (int i = 0; i < 200000; i++) {
		fill(packet + length - 4, 4);
		passed += nupa_icrc_plausible(&path, packet, length);
	}
	printf("  %u of 200000 passed\n", passed);
	CHECK(passed <= 16);
}

TEST(without_an_identification_no_changed_bit_passes)
{
	static uint8_t packet[PACKET_BYTES_MAX];

	state = test_seed();
	for (int version = 0; version < 2; version++) {
		const struct nupa_roce_path path = any_path(version == 0);
		uint32_t length = any_packet(&path, packet);

		CHECK(nupa_icrc_plausible(&path, packet, length));
		for (uint32_t bit = 0; bit < length * 8; bit++) {
			const bool is_masked = bit / 8 == 4; /* FECN, BECN, reserved */

			packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CHECK_EQ(nupa_icrc_right(&path, packet, length), is_masked);
			if (version)
				CHECK_EQ(nupa_icrc_plausible(&path, packet, length), is_masked);
			packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
}

TEST(the_path_is_covered)
{
	static uint8_t packet[PACKET_BYTES_MAX];

	state = test_seed();
	for (int version = 0; version < 2; version++) {
		const struct nupa_roce_path path = any_path(version == 0);
		const uint32_t length = any_packet(&path, packet);
		struct nupa_roce_path other = path;

		other.src_port ^= 1;
		CHECK(!nupa_icrc_plausible(&other, packet, length));
		other = path;
		other.src[15] ^= 0x80;
		CHECK(!nupa_icrc_plausible(&other, packet, length));
		other = path;
		other.dst[12] ^= 1;
		CHECK(!nupa_icrc_plausible(&other, packet, length));
		other = path;
		other.tos = 3;
		other.ttl = 1;
		CHECK(nupa_icrc_right(&other, packet, length));
		CHECK(!nupa_icrc_plausible(&path, packet, length - 4));
	}
}

TEST(vectors_give_the_crc_that_tables_give)
{
	static uint8_t bytes[PACKET_BYTES_MAX];

	state = test_seed();
	fill(bytes, sizeof(bytes));
	for (uint32_t n = 0; n < sizeof(bytes) - 16; n += n < 1200 ? 1 : 61) {
		const uint8_t *from = bytes + any(16);
		const uint32_t crc = any(UINT32_MAX);

		CHECK_EQ(nupa_crc32(crc, from, n), ~nupa_crc_by_tables(~crc, from, n));
	}
}

TEST(a_packet_in_pieces_has_the_same_icrc)
{
	static uint8_t packet[PACKET_BYTES_MAX];

	state = test_seed();
	for (int i = 0; i < 200; i++) {
		const struct nupa_roce_path path = any_path(i % 2 == 0);
		const uint32_t bytes = any_packet(&path, packet) - 4;
		const uint32_t a = 12 + any(bytes - 11), b = any(bytes - a + 1);
		const struct iovec whole = { packet, bytes };
		const struct iovec pieces[] = {
			{ packet, a },
			{ packet + a, b },
			{ packet + a + b, bytes - a - b },
		};

		CHECK_EQ(nupa_icrc(&path, pieces, 3), nupa_icrc(&path, &whole, 1));
	}
}

TEST(lengths_out_of_bounds_are_refused)
{
	static uint8_t packet[NUPA_ICRC_PACKET_MAX_BYTES + 4];
	struct nupa_roce_path path = any_path(true);
	static const uint32_t right[] = { 16, 20, NUPA_ICRC_PACKET_MAX_BYTES };
	static const uint32_t wrong[] = { 0, 4, 12, 15, 17, NUPA_ICRC_PACKET_MAX_BYTES + 4 };

	for (int i = 0; i < 3; i++) {
		const struct iovec covered = { packet, right[i] - 4 };
		uint32_t icrc;

		path.identification = 0xffff;
		icrc = nupa_icrc(&path, &covered, 1);
		memcpy(packet + right[i] - 4, &icrc, sizeof(icrc)); /* little endian machines */
		CHECK(nupa_icrc_plausible(&path, packet, right[i]));
		memset(packet, 0, sizeof(packet));
	}
	for (int i = 0; i < 6; i++)
		CHECK(!nupa_icrc_plausible(&path, packet, wrong[i]));
}

TEST(differences_go_both_ways)
{
	state = test_seed();
	for (int i = 0; i < 1000; i++) {
		const uint32_t a = (uint32_t)test_random(&state), b = (uint32_t)test_random(&state);
		const uint32_t n = any(300);

		CHECK_EQ(nupa_crc32_earlier(nupa_crc32_later(a, n), n), a);
		CHECK_EQ(nupa_crc32_multiply(a, b), nupa_crc32_multiply(b, a));
		CHECK_EQ(nupa_crc32_multiply(a, nupa_crc32_later(1u << 31, n)),
			 nupa_crc32_later(a, n));
	}
}
