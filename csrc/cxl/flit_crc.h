/* SPDX-License-Identifier: BSD-3-Clause
 * The CRCs of flits: CXL 3.1 4.2.8.7 (68B flits), 6.2.3.1.2.1 (latency-optimised 256B flits), and
 * PCIe 6.0 4.2.3 (standard 256B flits). */
#ifndef NUPA_CXL_FLIT_CRC_H
#define NUPA_CXL_FLIT_CRC_H

#include <stdint.h>

#define FLIT_CRC16_BYTES 64u /* that it is of */
#define FLIT_CRC48_BYTES 6u  /* of its own */
#define FLIT_CRC64_BYTES 8u
#define FLIT_CRC64_OF 242u /* bytes */

/* Polynomial 1F053h.  Bit 7 of the last byte is the highest power. */
uint16_t flit_crc16(const uint8_t *payload);

/* Of one half of a flit: up to 122 bytes, to which zeros are added up to 130.  The first byte is
 * the highest power, of what is covered and of the CRC. */
void flit_crc48(const uint8_t *half, uint32_t bytes, uint8_t *crc);

/* Of a whole flit's first 242 bytes; as above. */
void flit_crc64(const uint8_t *flit, uint8_t *crc);

#endif
