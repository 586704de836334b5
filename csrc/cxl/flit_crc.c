/* SPDX-License-Identifier: BSD-3-Clause
 * CRCs of flits, by a table for each byte of one or two words; made when they are first needed.
 */
#include "cxl/flit_crc.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0xF053u
#define FIELD 0x12Bu /* x^8 + x^5 + x^3 + x + 1 */
#define MESSAGE_BYTES 130u

/* [k][b]: what byte b becomes when k more bytes have followed.  The longer ones begin in the
 * highest byte of a word. */
typedef uint64_t long_tables[8][256];
static uint16_t tables16[16][256];
static long_tables tables48, tables64;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint8_t field_times(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; b; b >>= 1) {
		if (b & 1)
			product ^= a;
		a <<= 1;
		if (a & 0x100)
			a ^= FIELD;
	}
	return (uint8_t)product;
}

/* The product of (x + alpha^i) for i from 1 to `degree`, from the second highest power down. */
static void make_generator(uint8_t *generator, uint32_t degree)
{
	uint8_t root = 1;

	memset(generator, 0, degree);
	for (uint32_t done = 0; done < degree; done++) {
		uint8_t above = 1;

		/* Coefficients of the powers below `done` lie at the front: times (x + root). */
		root = field_times(root, 2);
		for (uint32_t i = 0; i <= done; i++) {
			uint8_t now = i < done ? generator[i] : 0;

			generator[i] = now ^ field_times(above, root);
			above = now;
		}
	}
}

static void make_long_tables(long_tables tables, uint32_t degree)
{
	uint8_t generator[FLIT_CRC64_BYTES];

	make_generator(generator, degree);
	for (uint32_t byte = 0; byte < 256; byte++)
		for (uint32_t i = 0; i < degree; i++)
			tables[0][byte] |= (uint64_t)field_times(byte, generator[i])
					   << (56 - 8 * i);
	for (int k = 1; k < 8; k++)
		for (uint32_t byte = 0; byte < 256; byte++) {
			uint64_t crc = tables[k - 1][byte];

			tables[k][byte] = crc << 8 ^ tables[0][crc >> 56];
		}
}

static void make_tables(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte << 8;

		for (int bit = 0; bit < 8; bit++)
			crc = crc << 1 ^ (crc & 0x8000 ? POLYNOMIAL : 0);
		tables16[0][byte] = (uint16_t)crc;
	}
	for (int k = 1; k < 16; k++)
		for (uint32_t byte = 0; byte < 256; byte++) {
			uint16_t crc = tables16[k - 1][byte];

			tables16[k][byte] = (uint16_t)(crc << 8 ^ tables16[0][crc >> 8]);
		}
	make_long_tables(tables48, FLIT_CRC48_BYTES);
	make_long_tables(tables64, FLIT_CRC64_BYTES);
}

/* What the bytes of a word become when `more` bytes have followed. */
static uint16_t word_crc16(uint64_t word, uint32_t more)
{
	return (uint16_t)(tables16[more + 7][word >> 56] ^ tables16[more + 6][word >> 48 & 0xFF] ^
			  tables16[more + 5][word >> 40 & 0xFF] ^
			  tables16[more + 4][word >> 32 & 0xFF] ^
			  tables16[more + 3][word >> 24 & 0xFF] ^
			  tables16[more + 2][word >> 16 & 0xFF] ^
			  tables16[more + 1][word >> 8 & 0xFF] ^ tables16[more][word & 0xFF]);
}

uint16_t flit_crc16(const uint8_t *payload)
{
	uint16_t crc = 0;

	pthread_once(&tables_once, make_tables);
	for (uint32_t at = FLIT_CRC16_BYTES; at; at -= 16) {
		uint64_t words[2];

		memcpy(words, payload + at - 16, sizeof(words));
		crc = word_crc16(le64toh(words[1]) ^ (uint64_t)crc << 48, 8) ^
		      word_crc16(le64toh(words[0]), 0);
	}
	return crc;
}

/* Whole words; zeros in front of a message change nothing. */
static uint64_t long_crc(long_tables tables, const uint8_t *message, uint32_t bytes)
{
	uint64_t state = 0;

	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word;

		memcpy(&word, message + at, sizeof(word));
		word = be64toh(word) ^ state;
		state = tables[7][word >> 56] ^ tables[6][word >> 48 & 0xFF] ^
			tables[5][word >> 40 & 0xFF] ^ tables[4][word >> 32 & 0xFF] ^
			tables[3][word >> 24 & 0xFF] ^ tables[2][word >> 16 & 0xFF] ^
			tables[1][word >> 8 & 0xFF] ^ tables[0][word & 0xFF];
	}
	return htobe64(state);
}

void flit_crc48(const uint8_t *half, uint32_t bytes, uint8_t *crc)
{
	uint8_t message[136] = { 0 };
	uint64_t state;

	pthread_once(&tables_once, make_tables);
	memcpy(message + sizeof(message) - MESSAGE_BYTES, half, bytes);
	state = long_crc(tables48, message, sizeof(message));
	memcpy(crc, &state, FLIT_CRC48_BYTES);
}

void flit_crc64(const uint8_t *flit, uint8_t *crc)
{
	uint8_t message[248] = { 0 };
	uint64_t state;

	pthread_once(&tables_once, make_tables);
	memcpy(message + sizeof(message) - FLIT_CRC64_OF, flit, FLIT_CRC64_OF);
	state = long_crc(tables64, message, sizeof(message));
	memcpy(crc, &state, FLIT_CRC64_BYTES);
}
