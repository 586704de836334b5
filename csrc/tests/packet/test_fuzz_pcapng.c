/* SPDX-License-Identifier: BSD-3-Clause
 * Files that were damaged, in memory of exactly their size.  Packets found in them lie in them, and
 * every intact packet is found.  Found packets are written and found again.  The seed is printed.
 */
#include "packet/pcapng.h"
#include "tests/support/runner.h"

#include <string.h>

#define PIECE_BYTES 2048u
#define RECORDS 40u
#define ROUNDS 20000

static const struct nupa_pcapng_interface interfaces[] = {
	{ .ns_mul = 1, .ns_div = 1 },
	{ .ns_mul = 1000000000, .ns_div = 1ull << 63, .offset_s = -5, .snaplen = 20 },
};

static void put32(uint8_t *to, uint32_t value, bool swapped)
{
	value = swapped ? __builtin_bswap32(value) : value;
	memcpy(to, &value, sizeof(value));
}

/* A packet block of any of the three types, some with options; its length. */
static uint32_t put_block(uint8_t *to, uint64_t *random, bool swapped)
{
	static const uint32_t types[] = { 6, 6, 6, 3, 2 };
	uint32_t type = types[test_random(random) % 5], data = (uint32_t)(test_random(random) % 48);
	uint32_t fixed = type == 3 ? 4 : 20, padded = (data + 3) & ~3u;
	uint32_t tail = type == 3 || test_random(random) % 2 ? 0 : 12;
	uint32_t total = 12 + fixed + padded + tail;

	memset(to, 0, total);
	put32(to, type, swapped);
	put32(to + 4, total, swapped);
	if (type == 3) {
		put32(to + 8, data, swapped);
	} else {
		put32(to + 16, (uint32_t)test_random(random), swapped);
		put32(to + 20, data, swapped);
		put32(to + 24, data, swapped);
	}
	if (tail) { /* epb_flags, and its end */
		uint16_t option[] = { 2, 4 };

		for (int i = 0; swapped && i < 2; i++)
			option[i] = __builtin_bswap16(option[i]);
		memcpy(to + 8 + fixed + padded, option, sizeof(option));
		put32(to + 8 + fixed + padded + 4, 0x12345678, swapped);
	}
	put32(to + total - 4, total, swapped);
	return total;
}

static void check_found(const struct nupa_pcapng_record *r, uint32_t n, size_t place)
{
	for (uint32_t i = 0; i < n; i++) {
		CHECK(r[i].interface < 2);
		CHECK((uint64_t)r[i].offset + r[i].captured_bytes <= place);
		CHECK((uint64_t)r[i].options_offset + r[i].options_bytes <= place);
	}
}

/* Found records are written; so are invented ones. */
static void write_again(uint64_t *random, const uint8_t *data, size_t bytes, bool swapped,
			struct nupa_pcapng_record *records, uint32_t n)
{
	static const uint32_t numbers[] = { 0, 0 }, snaplens[] = { 0, 10 };
	struct nupa_pcapng_record again[RECORDS];
	size_t room = test_random(random) % 3 ? 2 * PIECE_BYTES : test_random(random) % PIECE_BYTES;
	uint8_t *out = malloc(room + 1);
	size_t used, place = 0;
	const char *why;
	uint32_t written;

	CHECK(out);
	written = nupa_pcapng_format(data, bytes, swapped, records, n, NULL, n, numbers, snaplens,
				     2, out, room, &used, &why);
	CHECK(written <= n && used <= room && !why);
	CHECK(nupa_pcapng_scan(out, used, false, interfaces, 2, again, RECORDS, &place, &why) ==
	      written);
	CHECK(place == used && !why);
	for (uint32_t i = 0; i < written; i++)
		CHECK(again[i].flags == records[i].flags &&
		      again[i].packet_id == records[i].packet_id &&
		      again[i].original_bytes == records[i].original_bytes);

	for (uint32_t i = 0; i < n; i++)
		((uint32_t *)&records[i])[test_random(random) % (sizeof(records[i]) / 4)] =
		    (uint32_t)test_random(random) >> test_random(random) % 32;
	nupa_pcapng_format(data, bytes, swapped, records, n, NULL, n, numbers, snaplens, 2, out,
			   room, &used, &why);
	CHECK(used <= room);
	free(out);
}

static void scan_damaged(uint64_t *random)
{
	uint8_t piece[PIECE_BYTES], *copy;
	bool swapped = test_random(random) % 2;
	struct nupa_pcapng_record records[RECORDS];
	size_t bytes = 0, place = 0;
	const char *why;
	uint32_t n = 0, found;

	while (n < RECORDS && bytes + 256 < sizeof(piece)) {
		bytes += put_block(piece + bytes, random, swapped);
		n++;
	}
	found =
	    nupa_pcapng_scan(piece, bytes, swapped, interfaces, 2, records, RECORDS, &place, &why);
	CHECK(found == n && place == bytes && !why);
	check_found(records, found, place);

	for (uint32_t i = 0; i < 1 + test_random(random) % 4; i++)
		piece[test_random(random) % bytes] = (uint8_t)test_random(random);
	bytes -= test_random(random) % 3 ? 0 : test_random(random) % bytes;
	copy = malloc(bytes); /* a sanitizer knows where this ends */
	CHECK(copy);
	memcpy(copy, piece, bytes);
	place = 0;
	found =
	    nupa_pcapng_scan(copy, bytes, swapped, interfaces, 2, records, RECORDS, &place, &why);
	CHECK(found <= RECORDS && place <= bytes);
	check_found(records, found, place);
	write_again(random, copy, bytes, swapped, records, found);
	free(copy);
}

/* Packets of a classic pcap file; their length. */
static uint32_t put_classic(uint8_t *to, uint32_t n, uint64_t *random, bool swapped)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t data = (uint32_t)(test_random(random) % 32);

		put32(to + bytes, (uint32_t)test_random(random), swapped);
		put32(to + bytes + 4, (uint32_t)(test_random(random) % 1000000), swapped);
		put32(to + bytes + 8, data, swapped);
		put32(to + bytes + 12, data + (uint32_t)(test_random(random) % 3), swapped);
		memset(to + bytes + 16, 0x5a, data);
		bytes += 16 + data;
	}
	return bytes;
}

static void scan_damaged_classic(uint64_t *random)
{
	static const struct nupa_pcapng_interface micro = { .ns_mul = 1000, .ns_div = 1 };
	uint8_t piece[PIECE_BYTES], *copy;
	bool swapped = test_random(random) % 2;
	struct nupa_pcapng_record records[RECORDS];
	size_t bytes = put_classic(piece, RECORDS, random, swapped), place = 0;
	const char *why;
	uint32_t found;

	found = nupa_pcap_scan(piece, bytes, swapped, &micro, 1, records, RECORDS, &place, &why);
	CHECK(found == RECORDS && place == bytes && !why);
	check_found(records, found, place);

	for (uint32_t i = 0; i < 1 + test_random(random) % 4; i++)
		piece[test_random(random) % bytes] = (uint8_t)test_random(random);
	bytes -= test_random(random) % 3 ? 0 : test_random(random) % bytes;
	copy = malloc(bytes);
	CHECK(copy);
	memcpy(copy, piece, bytes);
	place = 0;
	found = nupa_pcap_scan(copy, bytes, swapped, &micro, 1, records, RECORDS, &place, &why);
	CHECK(found <= RECORDS && place <= bytes);
	check_found(records, found, place);
	write_again(random, copy, bytes, swapped, records, found);
	free(copy);
}

TEST(damaged_classic_files_are_read_within_their_bounds)
{
	uint64_t random = test_seed();

	for (int i = 0; i < ROUNDS; i++)
		scan_damaged_classic(&random);
}

TEST(damaged_files_are_read_within_their_bounds)
{
	uint64_t random = test_seed();

	for (int i = 0; i < ROUNDS; i++)
		scan_damaged(&random);
}
