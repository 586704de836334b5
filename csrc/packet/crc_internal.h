/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32 of many bytes by instructions made for it.  States are those of the register: without the
 * inversions at start and end. */
#ifndef NUPA_PACKET_CRC_INTERNAL_H
#define NUPA_PACKET_CRC_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t nupa_crc_step(uint32_t state, const uint8_t *data, size_t bytes);

/* By tables, everywhere. */
nupa_crc_step nupa_crc_by_tables;

/* The processor's own way; NULL: it has none. */
nupa_crc_step *nupa_crc_accelerated(void);

#endif
