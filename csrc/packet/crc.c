/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32, eight bytes at a time by eight tables, which are made at first use. */
#include "packet/crc.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
		tables[0][byte] = crc;
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (int t = 1; t < 8; t++) {
			uint32_t crc = tables[t - 1][byte];

			tables[t][byte] = crc >> 8 ^ tables[0][crc & 0xff];
		}
}

uint32_t nupa_crc32(uint32_t crc, const uint8_t *data, size_t bytes)
{
	pthread_once(&tables_once, make_tables);
	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, data += 8) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		word = le64toh(word) ^ crc;
		crc = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^
		      tables[5][word >> 16 & 0xff] ^ tables[4][word >> 24 & 0xff] ^
		      tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff] ^
		      tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
	}
	for (; bytes; bytes--, data++)
		crc = crc >> 8 ^ tables[0][(crc ^ *data) & 0xff];
	return ~crc;
}
