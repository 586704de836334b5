/* SPDX-License-Identifier: BSD-3-Clause
 * Fields of management datagrams: big-endian numbers at any bit, as IBTA's tables count them. */
#ifndef NUPA_FIELDS_H
#define NUPA_FIELDS_H

#include <stdint.h>
#include <string.h>

static inline uint64_t nupa_bits_get(const uint8_t *from, uint32_t at, uint32_t bits)
{
	uint64_t value = 0;

	for (uint32_t bit = at; bit < at + bits; bit++)
		value = value << 1 | ((uint32_t)from[bit / 8] >> (7 - bit % 8) & 1u);
	return value;
}

static inline void nupa_bits_put(uint8_t *to, uint32_t at, uint32_t bits, uint64_t value)
{
	for (uint32_t bit = at + bits; bit-- > at; value >>= 1) {
		const uint8_t mask = (uint8_t)(0x80u >> bit % 8);

		to[bit / 8] = (uint8_t)(value & 1 ? to[bit / 8] | mask : to[bit / 8] & ~mask);
	}
}

static inline uint16_t nupa_be16_get(const uint8_t *from)
{
	return (uint16_t)(from[0] << 8 | from[1]);
}

static inline uint32_t nupa_be32_get(const uint8_t *from)
{
	return (uint32_t)nupa_be16_get(from) << 16 | nupa_be16_get(from + 2);
}

static inline uint64_t nupa_be64_get(const uint8_t *from)
{
	return (uint64_t)nupa_be32_get(from) << 32 | nupa_be32_get(from + 4);
}

static inline void nupa_be16_put(uint8_t *to, uint64_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

static inline void nupa_be32_put(uint8_t *to, uint64_t value)
{
	nupa_be16_put(to, value >> 16);
	nupa_be16_put(to + 2, value);
}

static inline void nupa_be64_put(uint8_t *to, uint64_t value)
{
	nupa_be32_put(to, value >> 32);
	nupa_be32_put(to + 4, value);
}

#endif
