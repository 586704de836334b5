/* SPDX-License-Identifier: BSD-3-Clause
 * The extended headers that follow a base transport header, by its opcode: the same table as
 * nupa/packet/tables/opcodes.py; a test compares the two. */
#ifndef NUPA_PACKET_OPCODES_H
#define NUPA_PACKET_OPCODES_H

#include <stdint.h>

/* cffi: begin */
/* Extended headers, in the order in which they lie in a packet (IBTA 9.3; A14, A17, A19). */
enum nupa_header {
	NUPA_HEADER_RDETH = 1,
	NUPA_HEADER_XRCETH = 2,
	NUPA_HEADER_DETH = 4,
	NUPA_HEADER_FETH = 8,
	NUPA_HEADER_RETH = 16,
	NUPA_HEADER_ATOMICETH = 32,
	NUPA_HEADER_AETH = 64,
	NUPA_HEADER_ATOMICACKETH = 128,
	NUPA_HEADER_IMMDT = 256,
	NUPA_HEADER_IETH = 512,
	NUPA_HEADER_CNP = 1024,
};

struct nupa_opcode {
	uint16_t headers; /* enum nupa_header, or-ed */
	uint8_t bytes;    /* of these headers */
	uint8_t known;
	uint8_t request;
	uint8_t payload; /* may follow */
};

struct nupa_opcode nupa_opcode(uint8_t code);
/* cffi: end */

#endif
