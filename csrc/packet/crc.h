/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32 as Ethernet has it, which is also that of the ICRC (IBTA 7.8.1). */
#ifndef NUPA_PACKET_CRC_H
#define NUPA_PACKET_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, the result of the bytes before; 0 at the start. */
uint32_t nupa_crc32(uint32_t crc, const uint8_t *data, size_t bytes);

/* A CRC is linear: a changed bit of a message changes its CRC by a value that depends on nothing
 * but the number of bytes behind it.  These are for such differences. */

/* The difference after one byte that differs by `byte`, from a difference of 0. */
uint32_t nupa_crc32_of_byte(uint8_t byte);
/* A difference, so many equal bytes later or earlier. */
uint32_t nupa_crc32_later(uint32_t difference, size_t bytes);
uint32_t nupa_crc32_earlier(uint32_t difference, size_t bytes);
/* The product of two polynomials modulo the CRC's.  Bit 31 is the coefficient of 1. */
uint32_t nupa_crc32_multiply(uint32_t a, uint32_t b);

#endif
