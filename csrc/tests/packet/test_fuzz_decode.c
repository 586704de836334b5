/* SPDX-License-Identifier: BSD-3-Clause
 * Packets that were damaged, cut off or never were any, each in memory of exactly its size. Decoded
 * layers lie in it, and intact packets are understood.  NUPA_FUZZ_SECONDS is the duration; the seed
 * is printed. */
#include "packet/crc.h"
#include "packet/decode.h"
#include "tests/support/runner.h"

#include <string.h>

#define PACKET_BYTES_MAX 400u
#define ROUNDS 40000

enum {
	ETHER = 14,
	IPV4 = 20,
	IPV6 = 40,
	UDP = 8,
	LRH = 8,
	BTH = 12,
	ICRC = 4,
};

static void put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

/* Makes a packet with a BTH of this opcode and so many bytes behind its headers.  Returns its
 * length and its link type. */
static uint32_t put_packet(uint8_t *p, uint8_t code, uint32_t load, uint32_t kind, uint32_t *link)
{
	uint32_t above = BTH + nupa_opcode(code).bytes + load + ICRC, at = 0;

	*link = NUPA_LINKTYPE_ETHERNET;
	memset(p, 0, PACKET_BYTES_MAX);
	switch (kind) {
	case 0: /* IPv4 */
		put16(p + 12, 0x0800);
		p[ETHER] = 0x45;
		put16(p + ETHER + 2, IPV4 + UDP + above);
		p[ETHER + 9] = 17;
		at = ETHER + IPV4;
		break;
	case 1: /* IPv6, tagged */
		put16(p + 12, 0x8100);
		put16(p + 16, 0x86dd);
		p[ETHER + 4] = 0x60;
		put16(p + ETHER + 4 + 4, UDP + above);
		p[ETHER + 4 + 6] = 17;
		at = ETHER + 4 + IPV6;
		break;
	case 2: /* GRH */
		put16(p + 12, 0x8915);
		p[ETHER] = 0x60;
		put16(p + ETHER + 4, above);
		p[ETHER + 6] = 0x1b;
		at = ETHER + IPV6;
		break;
	default: /* LRH */
		*link = NUPA_LINKTYPE_INFINIBAND;
		p[1] = 2;
		put16(p + 4, (LRH + above) / 4);
		at = LRH;
		break;
	}
	if (kind < 2) {
		put16(p + at + 2, 4791);
		put16(p + at + 4, UDP + above);
		at += UDP;
	}
	p[at] = code;
	return at + above;
}

/* Decodes a copy in memory of exactly its size. */
static struct nupa_headers decoded(const uint8_t *packet, uint32_t bytes, uint32_t link)
{
	struct nupa_span span = { .captured_bytes = bytes };
	struct nupa_headers headers;
	uint8_t *exact = malloc(bytes ? bytes : 1);

	CHECK(exact);
	memcpy(exact, packet, bytes);
	memset(&headers, 0xa5, sizeof(headers));
	nupa_decode(exact, bytes, &span, sizeof(span), 1, &link, 1, NUPA_DECODE_CHECK_ICRC,
		    &headers);
	free(exact);
	CHECK(headers.layer <= NUPA_LAYER_TRANSPORT);
	CHECK(headers.fault <= NUPA_FAULT_OPCODE);
	CHECK((uint64_t)headers.payload_offset + headers.payload_bytes <= bytes);
	return headers;
}

static void each_round(void (*round)(uint64_t *random))
{
	uint64_t random = test_seed();
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(0);
	uint64_t rounds = 0;

	do {
		for (int i = 0; i < ROUNDS; i++)
			round(&random);
		rounds += ROUNDS;
	} while (test_now_ns() < until_ns);
	printf("  %llu packets\n", (unsigned long long)rounds);
}

static void undamaged_round(uint64_t *random)
{
	uint8_t packet[PACKET_BYTES_MAX];
	uint8_t code = (uint8_t)(test_random(random) >> 20);
	uint32_t load = (uint32_t)(test_random(random) >> 20) % 60 * 4, link;
	uint32_t bytes =
	    put_packet(packet, code, load, (uint32_t)(test_random(random) >> 20) % 4, &link);
	struct nupa_headers headers = decoded(packet, bytes, link);

	CHECK_EQ(headers.layer, NUPA_LAYER_TRANSPORT);
	CHECK_EQ(headers.opcode, code);
	CHECK_EQ(headers.fault, nupa_opcode(code).known ? NUPA_FAULT_NONE : NUPA_FAULT_OPCODE);
	CHECK_EQ(headers.payload_bytes, load);
}

static void damaged_round(uint64_t *random)
{
	uint8_t packet[PACKET_BYTES_MAX];
	uint8_t code = (uint8_t)(test_random(random) >> 20);
	uint32_t link, bytes, changes = (uint32_t)(test_random(random) >> 20) % 8;

	bytes = put_packet(packet, code, (uint32_t)(test_random(random) >> 20) % 200,
			   (uint32_t)(test_random(random) >> 20) % 4, &link);
	for (uint32_t i = 0; i < changes; i++)
		packet[(test_random(random) >> 20) % bytes] = (uint8_t)(test_random(random) >> 20);
	decoded(packet, (uint32_t)(test_random(random) >> 20) % (bytes + 1), link);
	decoded(packet, bytes, NUPA_LINKTYPE_RAW);
	decoded(packet, bytes, NUPA_LINKTYPE_SLL);
	decoded(packet, bytes, NUPA_LINKTYPE_SLL2);
}

static void noise_round(uint64_t *random)
{
	static const uint32_t links[] = { NUPA_LINKTYPE_ETHERNET,   NUPA_LINKTYPE_RAW,
					  NUPA_LINKTYPE_INFINIBAND, NUPA_LINKTYPE_SLL,
					  NUPA_LINKTYPE_SLL2,       7 };
	uint8_t packet[PACKET_BYTES_MAX];

	for (uint32_t i = 0; i < sizeof(packet); i++)
		packet[i] = (uint8_t)(test_random(random) >> 20);
	decoded(packet, (uint32_t)(test_random(random) >> 20) % sizeof(packet),
		links[(test_random(random) >> 20) % (sizeof(links) / sizeof(links[0]))]);
}

TEST(undamaged_packets_are_understood)
{
	each_round(undamaged_round);
}

TEST(damaged_packets_are_decoded_within_their_bounds)
{
	each_round(damaged_round);
}

TEST(noise_is_decoded_within_its_bounds)
{
	each_round(noise_round);
}

/* IEEE 802.3: the check value of CRC-32, and that it goes on from a part's result. */
TEST(crc32_is_that_of_ethernet)
{
	static const uint8_t digits[] = "123456789";

	CHECK_EQ(nupa_crc32(0, digits, 9), 0xcbf43926);
	for (size_t at = 0; at <= 9; at++)
		CHECK_EQ(nupa_crc32(nupa_crc32(0, digits, at), digits + at, 9 - at), 0xcbf43926);
}
