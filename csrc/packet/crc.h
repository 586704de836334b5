/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32 as Ethernet has it, which is also that of the ICRC (IBTA 7.8.1). */
#ifndef NUPA_PACKET_CRC_H
#define NUPA_PACKET_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, the result of the bytes before; 0 at the start. */
uint32_t nupa_crc32(uint32_t crc, const uint8_t *data, size_t bytes);

#endif
