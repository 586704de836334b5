/* SPDX-License-Identifier: BSD-3-Clause
 * One packet of the InfiniBand transport, read and written: BTH and its extended headers (IBTA 9.2,
 * 9.3; A14, A17, A19).  These functions keep nothing and use no socket. */
#ifndef NUPA_PACKET_ROCE_H
#define NUPA_PACKET_ROCE_H

#include "packet/icrc.h"
#include "packet/opcodes.h"

#include <stdbool.h>
#include <stdint.h>

#define NUPA_ROCE_PORT 4791u
#define NUPA_BTH_BYTES 12u
#define NUPA_ICRC_BYTES 4u
#define NUPA_ROCE_HEADERS_MAX_BYTES 64u
#define NUPA_ROCE_QPN_MULTICAST 0xffffffu

enum nupa_roce_flag {
	NUPA_ROCE_SOLICITED = 1,
	NUPA_ROCE_ICRC_RIGHT = 2, /* by the receiver; the packet has no such bit */
	NUPA_ROCE_MIGREQ = 4,
	NUPA_ROCE_FECN = 8,
	NUPA_ROCE_BECN = 16,
	NUPA_ROCE_ACK_REQUEST = 32,
	NUPA_ROCE_FLAGS = 63,
};

/* A packet, decoded, as it travels in a message in front of its payload.  Numbers are in the host's
 * byte order; a field whose header the opcode lacks is 0. */
struct nupa_roce_packet {
	uint8_t source[16],
	    destination[16];              /* GIDs; not of these headers: their reader sets them */
	uint8_t traffic_class, hop_limit; /* likewise */
	uint8_t opcode;
	uint8_t version;
	uint8_t pad_bytes;
	uint8_t syndrome;       /* AETH */
	uint8_t flush;          /* FETH: selectivity << 4 | placement */
	uint8_t flags;          /* enum nupa_roce_flag */
	uint32_t frame_bytes;   /* of the packet; of an injected one, of its frame */
	uint32_t payload_bytes; /* without padding and ICRC */
	uint32_t pkey;
	uint32_t dqpn, psn;
	uint32_t rkey, dma_bytes; /* RETH; rkey also AtomicETH, IETH */
	uint32_t imm;
	uint32_t qkey, source_qpn;  /* DETH */
	uint32_t srqn;              /* XRCETH; RDETH: the EE context */
	uint32_t msn;               /* AETH */
	uint64_t va, swap, compare; /* RETH, AtomicETH */
	uint64_t original;          /* AtomicAckETH */
};
_Static_assert(sizeof(struct nupa_roce_packet) == 120, "no holes");

/* Reads `bytes` from a BTH to the end of the ICRC; *payload lies among them.  The payload of an
 * unknown opcode is all behind the BTH.  False: a header, the padding or the ICRC is cut off. */
bool nupa_roce_read(const uint8_t *packet, uint32_t bytes, struct nupa_roce_packet *out,
		    const uint8_t **payload);

/* Whether a requester or responder may send it (IBTA 9.6.1): version, opcode, padding to a multiple
 * of four, no payload where the opcode has none, no reserved queue pair. */
bool nupa_roce_valid(const struct nupa_roce_packet *packet);

/* Writes BTH and extended headers; returns their bytes.  pad_bytes is the caller's, and
 * -payload_bytes & 3 in valid packets. */
uint32_t nupa_roce_write(uint8_t headers[NUPA_ROCE_HEADERS_MAX_BYTES],
			 const struct nupa_roce_packet *packet);

/* Reads the extended headers (enum nupa_header, or-ed) of a packet: its fields from rkey on, and
 * syndrome and flush. */
void nupa_roce_read_extended(const uint8_t *at, uint32_t headers, struct nupa_roce_packet *out);

#endif
