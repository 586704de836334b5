/* SPDX-License-Identifier: BSD-3-Clause
 * Numbers in a packet's byte order, big endian, by width.  Those that write return the address
 * behind the number. */
#ifndef NUPA_BYTES_H
#define NUPA_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t nupa_get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t nupa_get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static inline uint32_t nupa_get32(const uint8_t *p)
{
	return (uint32_t)nupa_get16(p) << 16 | nupa_get16(p + 2);
}

static inline uint64_t nupa_get64(const uint8_t *p)
{
	return (uint64_t)nupa_get32(p) << 32 | nupa_get32(p + 4);
}

static inline uint8_t *nupa_put16(uint8_t *at, uint32_t value)
{
	const uint16_t word = htobe16((uint16_t)value);

	memcpy(at, &word, sizeof(word));
	return at + sizeof(word);
}

static inline uint8_t *nupa_put32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint8_t *nupa_put64(uint8_t *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint8_t *nupa_put(uint8_t *at, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
	return at + bytes;
}

#endif
