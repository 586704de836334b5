/* SPDX-License-Identifier: BSD-3-Clause
 * CRCs of flits, eight bytes at a time by eight tables, which are made when they are first needed.
 */
#include "flit_crc.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0xF053u
#define FIELD 0x12Bu /* x^8 + x^5 + x^3 + x + 1 */
#define MESSAGE_BYTES 130u

/* [k][b]: what byte b becomes when k more bytes have followed.  The second has its six bytes in the
 * upper part of a word. */
static uint16_t tables16[8][256];
static uint64_t tables48[8][256];
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

/* The product of (x + alpha^i) for i from 1 to 6, from x^5 down. */
static void make_generator(uint8_t generator[FLIT_CRC48_BYTES])
{
	uint8_t root = 1;

	memset(generator, 0, FLIT_CRC48_BYTES);
	for (uint32_t degree = 0; degree < FLIT_CRC48_BYTES; degree++) {
		uint8_t above = 1;

		/* Coefficients of the powers below `degree` lie at the front: times (x + root). */
		root = field_times(root, 2);
		for (uint32_t i = 0; i <= degree; i++) {
			uint8_t now = i < degree ? generator[i] : 0;

			generator[i] = now ^ field_times(above, root);
			above = now;
		}
	}
}

static void make_tables(void)
{
	uint8_t generator[FLIT_CRC48_BYTES];

	make_generator(generator);
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte << 8;

		for (int bit = 0; bit < 8; bit++)
			crc = crc << 1 ^ (crc & 0x8000 ? POLYNOMIAL : 0);
		tables16[0][byte] = (uint16_t)crc;
		for (uint32_t i = 0; i < FLIT_CRC48_BYTES; i++)
			tables48[0][byte] |= (uint64_t)field_times(byte, generator[i])
					     << (56 - 8 * i);
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (int k = 1; k < 8; k++) {
			uint16_t crc16 = tables16[k - 1][byte];
			uint64_t crc48 = tables48[k - 1][byte];

			tables16[k][byte] = (uint16_t)(crc16 << 8 ^ tables16[0][crc16 >> 8]);
			tables48[k][byte] = crc48 << 8 ^ tables48[0][crc48 >> 56];
		}
}

uint16_t flit_crc16(const uint8_t *payload)
{
	uint16_t crc = 0;

	pthread_once(&tables_once, make_tables);
	for (uint32_t at = FLIT_CRC16_BYTES; at; at -= 8) {
		uint64_t word;

		memcpy(&word, payload + at - 8, sizeof(word));
		word = le64toh(word) ^ (uint64_t)crc << 48;
		crc = (uint16_t)(tables16[7][word >> 56] ^ tables16[6][word >> 48 & 0xFF] ^
				 tables16[5][word >> 40 & 0xFF] ^ tables16[4][word >> 32 & 0xFF] ^
				 tables16[3][word >> 24 & 0xFF] ^ tables16[2][word >> 16 & 0xFF] ^
				 tables16[1][word >> 8 & 0xFF] ^ tables16[0][word & 0xFF]);
	}
	return crc;
}

void flit_crc48(const uint8_t *half, uint32_t bytes, uint8_t *crc)
{
	/* Zeros in front change nothing, and make it whole words. */
	uint8_t message[136] = { 0 };
	uint64_t state = 0;

	pthread_once(&tables_once, make_tables);
	memcpy(message + sizeof(message) - MESSAGE_BYTES, half, bytes);
	for (uint32_t at = 0; at < sizeof(message); at += 8) {
		uint64_t word;

		memcpy(&word, message + at, sizeof(word));
		word = be64toh(word) ^ state;
		state = tables48[7][word >> 56] ^ tables48[6][word >> 48 & 0xFF] ^
			tables48[5][word >> 40 & 0xFF] ^ tables48[4][word >> 32 & 0xFF] ^
			tables48[3][word >> 24 & 0xFF] ^ tables48[2][word >> 16 & 0xFF] ^
			tables48[1][word >> 8 & 0xFF] ^ tables48[0][word & 0xFF];
	}
	state = htobe64(state);
	memcpy(crc, &state, FLIT_CRC48_BYTES);
}
