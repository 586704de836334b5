/* SPDX-License-Identifier: BSD-3-Clause
 * Flits: their CRCs by other means, messages there and back, and that nothing damaged is taken. */
#include "cxl/flit.h"
#include "cxl/flit_crc.h"
#include "tests/support/runner.h"

#include <errno.h>
#include <string.h>

#define DAMAGE_ROUNDS 20000

static const uint8_t channels[] = { NUPA_CXL_M2S_REQ, NUPA_CXL_M2S_RWD, NUPA_CXL_S2M_NDR,
				    NUPA_CXL_S2M_DRS };

static bool is_up(const struct nupa_cxl_message *message)
{
	return message->channel >= NUPA_CXL_S2M_NDR;
}

static void fill(uint8_t *bytes, size_t n, uint64_t *seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(test_random(seed) >> 20);
}

static uint32_t pick(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(test_random(seed) >> 20) % n;
}

/* Any message that there can be. */
static struct nupa_cxl_message any_message(uint32_t format, uint64_t *seed)
{
	struct nupa_cxl_message message = { .channel = channels[pick(seed, 4)] };
	bool data = message.channel == NUPA_CXL_M2S_RWD || message.channel == NUPA_CXL_S2M_DRS;

	message.tag = (uint16_t)pick(seed, 65536);
	message.meta_field = (uint8_t)pick(seed, 4);
	message.meta_value = (uint8_t)pick(seed, 4);
	message.ld_id = (uint8_t)pick(seed, 16);
	message.opcode = (uint8_t)pick(seed, 2);
	if (is_up(&message)) {
		message.dev_load = (uint8_t)pick(seed, 4);
	} else {
		message.opcode++;
		message.snp_type = (uint8_t)pick(seed, 8);
		message.tc = (uint8_t)pick(seed, 4);
		message.address = test_random(seed) >> 12 << 6 >> 6 & ~UINT64_C(63);
	}
	if (format == NUPA_FLIT_PBR) {
		message.tc = message.ld_id = 0;
		message.spid = is_up(&message) ? 0 : (uint16_t)pick(seed, 4096);
		message.dpid = (uint16_t)pick(seed, 4096);
	}
	if (data) {
		message.poison = (uint8_t)pick(seed, 2);
		fill(message.data, sizeof(message.data), seed);
	}
	if (message.channel == NUPA_CXL_M2S_RWD && message.opcode == 2)
		message.byte_enables = test_random(seed);
	return message;
}

static int unpack(uint32_t format, bool up, const uint8_t *flits, int n,
		  struct nupa_cxl_message *message)
{
	uint32_t corrected = 0, bytes = nupa_flit_bytes(format) * (uint32_t)n;
	uint8_t *exact = malloc(bytes ? bytes : 1);
	int fault;

	CHECK(exact);
	memcpy(exact, flits, bytes);
	fault = nupa_flit_unpack(format, up, exact, (uint32_t)n, message, &corrected);
	free(exact);
	CHECK(corrected <= 2);
	return fault;
}

/* --- CRCs -------------------------------------------------------------------------- */

/* Long division, bit by bit: bit 511 of the flit is x^527. */
static uint16_t divided16(const uint8_t *payload)
{
	uint32_t rest = 0;

	for (int bit = 511; bit >= -16; bit--) {
		rest = rest << 1 | (bit >= 0 && payload[bit / 8] >> (bit % 8) & 1);
		if (rest & 0x10000)
			rest ^= 0x1F053;
	}
	return (uint16_t)rest;
}

/* CXL 3.1 4.2.8.7.2: which bits make up bit 15 of the CRC, from bit 511 down to 448, and from 63
 * down. */
#define MASK_15_HIGH UINT64_C(0xEF9CD9F9C4BBB83A)
#define MASK_15_LOW UINT64_C(0x9B0693D4746B2431)

static void test_the_crc_of_68_bytes_is_the_remainder_and_has_the_masks_of_the_specification(void)
{
	uint64_t seed = test_seed();
	uint8_t payload[64];

	for (int i = 0; i < 2000; i++) {
		fill(payload, sizeof(payload), &seed);
		CHECK_EQ(flit_crc16(payload), divided16(payload));
	}
	for (int bit = 0; bit < 64; bit++) {
		memset(payload, 0, sizeof(payload));
		payload[bit / 8] = (uint8_t)(1 << bit % 8);
		CHECK_EQ(flit_crc16(payload) >> 15, MASK_15_LOW >> bit & 1);
		memset(payload, 0, sizeof(payload));
		payload[56 + bit / 8] = (uint8_t)(1 << bit % 8);
		CHECK_EQ(flit_crc16(payload) >> 15, MASK_15_HIGH >> bit & 1);
	}
}

/* In GF(2^8) of x^8 + x^5 + x^3 + x + 1. */
static uint8_t alpha_to(uint32_t power)
{
	uint32_t value = 1;

	for (; power; power--) {
		value <<= 1;
		if (value & 0x100)
			value ^= 0x12B;
	}
	return (uint8_t)value;
}

static uint8_t times(uint8_t a, uint8_t b)
{
	for (uint32_t i = 0; i < 255; i++)
		if (alpha_to(i) == b)
			for (uint32_t k = 0; k < 255; k++)
				if (alpha_to(k) == a)
					return alpha_to((i + k) % 255);
	return 0;
}

/* CXL 3.1 6.2.3.1.2.1: division of 130 bytes by the generator, which is given there. */
static void test_the_crc_of_a_half_is_the_remainder(void)
{
	static const uint8_t powers[] = { 147, 107, 250, 114, 161, 21 };
	uint64_t seed = test_seed();
	uint8_t message[136], crc[6];

	for (int round = 0; round < 3; round++) {
		uint32_t bytes = round ? 122 : 116;

		memset(message, 0, sizeof(message));
		fill(message, bytes, &seed);
		flit_crc48(message, bytes, crc);
		for (uint32_t at = 0; at < 130; at++)
			for (uint32_t i = 0; i < 6; i++)
				if (message[at])
					message[at + 1 + i] ^=
					    times(message[at], alpha_to(powers[i]));
		CHECK(!memcmp(message + 130, crc, sizeof(crc)));
	}
}

/* CXL 3.1 6.2.3.1.2.1, table 6-8: the CRC of a half from that of a whole flit. */
static void test_the_crc_of_a_flit_gives_that_of_a_half(void)
{
	static const uint8_t sixth[] = { 147, 107, 250, 114, 161, 21 };
	static const uint8_t seventh[] = { 90, 202, 41, 63, 147, 168 };
	uint64_t seed = test_seed();
	uint8_t flit[242] = { 0 }, whole[8], half[6];

	for (int round = 0; round < 20; round++) {
		fill(flit + 114, 122, &seed);
		flit_crc64(flit, whole);
		flit_crc48(flit + 114, 122, half);
		for (uint32_t i = 0; i < 6; i++)
			CHECK_EQ(half[i], whole[2 + i] ^ times(whole[1], alpha_to(sixth[i])) ^
					      times(whole[0], alpha_to(seventh[i])));
	}
}

/* --- there and back ---------------------------------------------------------------- */

static void test_what_is_packed_is_unpacked(void)
{
	uint64_t seed = test_seed();

	for (int i = 0; i < DAMAGE_ROUNDS; i++) {
		uint32_t format = pick(&seed, 3);
		struct nupa_cxl_message message = any_message(format, &seed), found;
		uint8_t flits[NUPA_FLIT_MESSAGE_BYTES];
		int n = nupa_flit_pack(format, &message, flits);

		CHECK(n == (format == NUPA_FLIT_68 && message.channel % 4 == 2 ? 2 : 1));
		CHECK_EQ(unpack(format, is_up(&message), flits, n, &found), NUPA_FLIT_FINE);
		CHECK(!memcmp(&message, &found, sizeof(message)));
		CHECK(unpack(format, !is_up(&message), flits, n, &found) != NUPA_FLIT_FINE);
		CHECK(unpack(format, is_up(&message), flits, n - 1, &found) == NUPA_FLIT_SHORT);
	}
}

static void refused(struct nupa_cxl_message message)
{
	uint8_t flits[NUPA_FLIT_MESSAGE_BYTES];

	for (uint32_t format = 0; format < 3; format++)
		CHECK_EQ(nupa_flit_pack(format, &message, flits), -EINVAL);
}

static void test_what_no_flit_can_carry_is_refused(void)
{
	const struct nupa_cxl_message fine = { .channel = NUPA_CXL_M2S_REQ, .opcode = 1 };
	struct nupa_cxl_message message;
	uint8_t flits[NUPA_FLIT_MESSAGE_BYTES];

	for (int i = 0; i < 12; i++) {
		message = fine;
		switch (i) {
		case 0:
			message.channel = 3;
			break;
		case 1:
			message.channel = 7;
			break;
		case 2:
			message.opcode = 7;
			break;
		case 3:
			message.opcode = 200;
			break;
		case 4:
			message.snp_type = 8;
			break;
		case 5:
			message.address = UINT64_C(1) << 52;
			break;
		case 6:
			message.address = 16;
			break;
		case 7:
			message.ld_id = 16;
			break;
		case 8:
			message.poison = 1;
			break;
		case 9:
			message.dev_load = 1;
			break;
		case 10:
			message.byte_enables = 1;
			break;
		default:
			message.tc = 4;
			break;
		}
		refused(message);
	}
	message = (struct nupa_cxl_message){ .channel = NUPA_CXL_S2M_NDR, .address = 64 };
	refused(message);
	CHECK_EQ(nupa_flit_pack(3, &fine, flits), -EINVAL);
}

/* --- damage ------------------------------------------------------------------------ */

static void test_any_bit_that_flips_is_found(void)
{
	uint64_t seed = test_seed();

	for (int i = 0; i < 40; i++) {
		uint32_t format = (uint32_t)i % 3, bytes = nupa_flit_bytes(format);
		struct nupa_cxl_message message = any_message(format, &seed), found;
		uint8_t flits[NUPA_FLIT_MESSAGE_BYTES];
		int n = nupa_flit_pack(format, &message, flits), fault;

		for (uint32_t bit = 0; bit < bytes * (uint32_t)n * 8; bit++) {
			flits[bit / 8] ^= (uint8_t)(1 << bit % 8);
			fault = unpack(format, is_up(&message), flits, n, &found);
			flits[bit / 8] ^= (uint8_t)(1 << bit % 8);
			if (format != NUPA_FLIT_68 || bit / 8 % bytes > 1) {
				CHECK_EQ(fault, NUPA_FLIT_CRC);
				continue;
			}
			/* One half of a protocol ID is corrected by the other. */
			CHECK_EQ(fault, NUPA_FLIT_FINE);
			CHECK(!memcmp(&message, &found, sizeof(message)));
		}
	}
}

static void test_two_and_three_bits_that_flip_are_found(void)
{
	uint64_t seed = test_seed();

	for (int i = 0; i < DAMAGE_ROUNDS; i++) {
		uint32_t format = pick(&seed, 3), bytes = nupa_flit_bytes(format);
		struct nupa_cxl_message message = any_message(format, &seed), found;
		uint8_t flits[NUPA_FLIT_MESSAGE_BYTES], before[NUPA_FLIT_MESSAGE_BYTES];
		int n = nupa_flit_pack(format, &message, flits);
		uint32_t flips = 2 + pick(&seed, 2), end = bytes * (uint32_t)n;

		memcpy(before, flits, end);
		for (uint32_t k = 0; k < flips; k++) {
			uint32_t bit = pick(&seed, end * 8);

			flits[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		if (!unpack(format, is_up(&message), flits, n, &found)) {
			/* The same bit twice, or protocol IDs. */
			CHECK(!memcmp(&message, &found, sizeof(message)));
			for (uint32_t at = 0; at < end; at++)
				CHECK(flits[at] == before[at] ||
				      (format == NUPA_FLIT_68 && at % bytes < 2));
		}
	}
}

/* Noise whose CRC is right: refused, or a message that can be packed again. */
static void test_noise_with_a_right_crc_is_refused_or_makes_sense(void)
{
	uint64_t seed = test_seed();
	uint32_t taken = 0;

	for (int i = 0; i < DAMAGE_ROUNDS; i++) {
		uint32_t format = pick(&seed, 3), bytes = nupa_flit_bytes(format);
		struct nupa_cxl_message message = any_message(format, &seed), found;
		uint8_t flits[NUPA_FLIT_MESSAGE_BYTES], again[NUPA_FLIT_MESSAGE_BYTES];
		int n = nupa_flit_pack(format, &message, flits);

		/* In the headers, or anywhere. */
		for (uint32_t k = pick(&seed, 4) + 1; k; k--)
			flits[pick(&seed, k % 2 ? 18 : bytes * (uint32_t)n)] =
			    (uint8_t)pick(&seed, 256);
		if (format == NUPA_FLIT_68) {
			for (int k = 0; k < n; k++) {
				uint16_t crc = flit_crc16(flits + 68 * k + 2);

				flits[68 * k + 66] = (uint8_t)crc;
				flits[68 * k + 67] = (uint8_t)(crc >> 8);
			}
		} else if (format == NUPA_FLIT_PBR) {
			flit_crc64(flits, flits + 242);
		} else {
			flit_crc48(flits, 122, flits + 122);
			flit_crc48(flits + 128, 116, flits + 250);
		}
		if (unpack(format, is_up(&message), flits, n, &found))
			continue;
		taken++;
		CHECK_EQ(nupa_flit_pack(format, &found, again), n);
		CHECK_EQ(unpack(format, is_up(&found), again, n, &message), NUPA_FLIT_FINE);
		CHECK(!memcmp(&message, &found, sizeof(message)));
	}
	CHECK(taken > 100);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(
		    test_the_crc_of_68_bytes_is_the_remainder_and_has_the_masks_of_the_specification),
		CASE(test_the_crc_of_a_half_is_the_remainder),
		CASE(test_the_crc_of_a_flit_gives_that_of_a_half),
		CASE(test_what_is_packed_is_unpacked),
		CASE(test_what_no_flit_can_carry_is_refused),
		CASE(test_any_bit_that_flips_is_found),
		CASE(test_two_and_three_bits_that_flip_are_found),
		CASE(test_noise_with_a_right_crc_is_refused_or_makes_sense),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
