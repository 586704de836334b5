/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32: the choice of a way at first use, and eight bytes at a time by eight tables. */
#include "packet/crc.h"
#include "packet/crc_internal.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define POLYNOMIAL 0xedb88320u /* IEEE 802.3, 3.2.9; the lowest degree is the highest bit */

static uint32_t tables[8][256];
static uint8_t indexes[256]; /* of the first table, by the highest byte of the entry */

static nupa_crc_step step_first;
/* A reader of another way than the first one sees the tables: acquire, release. */
static nupa_crc_step *_Atomic step = step_first;

static void choose(void)
{
	nupa_crc_step *chosen = nupa_crc_accelerated();

	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		tables[0][byte] = crc;
		indexes[crc >> 24] = (uint8_t)byte;
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (int t = 1; t < 8; t++) {
			uint32_t crc = tables[t - 1][byte];

			tables[t][byte] = crc >> 8 ^ tables[0][crc & 0xff];
		}
	atomic_store_explicit(&step, chosen ? chosen : nupa_crc_by_tables, memory_order_release);
}

static nupa_crc_step *chosen_step(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	nupa_crc_step *now = atomic_load_explicit(&step, memory_order_acquire);

	if (__builtin_expect(now == step_first, 0)) {
		pthread_once(&once, choose);
		now = atomic_load_explicit(&step, memory_order_acquire);
	}
	return now;
}

static uint32_t step_first(uint32_t state, const uint8_t *data, size_t bytes)
{
	return chosen_step()(state, data, bytes);
}

uint32_t nupa_crc_by_tables(uint32_t state, const uint8_t *data, size_t bytes)
{
	for (; bytes >= 8; bytes -= 8, data += 8) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		word = le64toh(word) ^ state;
		state = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^
			tables[5][word >> 16 & 0xff] ^ tables[4][word >> 24 & 0xff] ^
			tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff] ^
			tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
	}
	if (bytes >= 4) {
		uint32_t word;

		memcpy(&word, data, sizeof(word));
		state ^= le32toh(word);
		state = tables[3][state & 0xff] ^ tables[2][state >> 8 & 0xff] ^
			tables[1][state >> 16 & 0xff] ^ tables[0][state >> 24];
		bytes -= 4;
		data += 4;
	}
	for (; bytes; bytes--, data++)
		state = state >> 8 ^ tables[0][(state ^ *data) & 0xff];
	return state;
}

uint32_t nupa_crc32(uint32_t crc, const uint8_t *data, size_t bytes)
{
	return ~atomic_load_explicit(&step, memory_order_acquire)(~crc, data, bytes);
}

/* --- differences --------------------------------------------------------------------- */

uint32_t nupa_crc32_of_byte(uint8_t byte)
{
	chosen_step();
	return tables[0][byte];
}

uint32_t nupa_crc32_later(uint32_t difference, size_t bytes)
{
	chosen_step();
	for (; bytes; bytes--)
		difference = difference >> 8 ^ tables[0][difference & 0xff];
	return difference;
}

uint32_t nupa_crc32_earlier(uint32_t difference, size_t bytes)
{
	chosen_step();
	for (; bytes; bytes--) {
		uint8_t index = indexes[difference >> 24];

		difference = (difference ^ tables[0][index]) << 8 | index;
	}
	return difference;
}

uint32_t nupa_crc32_multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int degree = 0; degree < 32; degree++) {
		product ^= b & (0u - (a >> 31));
		a <<= 1;
		b = b >> 1 ^ (POLYNOMIAL & (0u - (b & 1)));
	}
	return product;
}
