/* SPDX-License-Identifier: BSD-3-Clause
 * Packets of InfiniBand's transport, from the base transport header on: read and written. */
#ifndef NUPA_PACKET_ROCE_H
#define NUPA_PACKET_ROCE_H

#include "packet/icrc.h"
#include "packet/opcodes.h"

enum nupa_roce_flag {
	NUPA_ROCE_SOLICITED = 1,
	NUPA_ROCE_ICRC_RIGHT = 2,
	NUPA_ROCE_ACK_REQUEST = 4,
	NUPA_ROCE_BECN = 8,
	NUPA_ROCE_FLAGS = 15,
};

/* A packet, decoded.  Numbers are in the host's byte order; a field whose header the opcode lacks
 * is 0. */
struct nupa_roce_packet {
	uint8_t source[16], destination[16]; /* GIDs */
	uint8_t traffic_class, hop_limit;
	uint8_t opcode;
	uint8_t version;
	uint8_t pad_bytes;
	uint8_t syndrome; /* AETH */
	uint8_t flush;    /* FETH: selectivity << 4 | placement */
	uint8_t flags;    /* enum nupa_roce_flag */
	uint32_t frame_bytes;
	uint32_t payload_bytes; /* without padding and ICRC */
	uint32_t pkey;
	uint32_t dqpn, psn;
	uint32_t rkey, dma_bytes; /* RETH; rkey also AtomicETH, IETH */
	uint32_t imm;
	uint32_t qkey, source_qpn;  /* DETH */
	uint32_t srqn;              /* XRCETH */
	uint32_t msn;               /* AETH */
	uint64_t va, swap, compare; /* RETH, AtomicETH */
	uint64_t original;          /* AtomicAckETH */
};
_Static_assert(sizeof(struct nupa_roce_packet) == 120, "no holes");

#define NUPA_ROCE_HEADERS_MAX_BYTES 64u
#define NUPA_ROCE_ICRC_BYTES 4u

/* Reads a packet with its ICRC, which is not checked; addresses and classes are left alone.  False:
 * it is cut off, or its lengths contradict each other.  An unknown opcode has payload alone. */
bool nupa_roce_read(const uint8_t *packet, uint32_t bytes, struct nupa_roce_packet *out,
		    const uint8_t **payload);
/* BTH and extended headers; returns their length. */
uint32_t nupa_roce_write(uint8_t headers[NUPA_ROCE_HEADERS_MAX_BYTES],
			 const struct nupa_roce_packet *packet);

#endif
