/* SPDX-License-Identifier: BSD-3-Clause
 * A packet that came by injection, taken apart by csrc/packet's decoder, whose names and the
 * engine's do not go into one file. */
#ifndef NUPA_INJECT_PACKET_H
#define NUPA_INJECT_PACKET_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers in the host's byte order.  What the opcode has no header for is 0. */
struct nupa_packet {
	uint8_t source[16], destination[16]; /* as GIDs */
	uint8_t traffic_class, hop_limit;
	uint8_t opcode;
	uint8_t version;
	uint8_t pad_bytes;
	uint8_t syndrome;      /* AETH */
	uint8_t flush;         /* FETH: selectivity << 4 | placement */
	bool opcode_known;     /* else what follows its BTH is payload */
	bool payload_expected; /* by the opcode */
	bool solicited;
	bool icrc_right;
	uint16_t pkey;
	uint32_t dqpn, psn;
	uint32_t rkey, dma_bytes; /* RETH; rkey also AtomicETH, IETH */
	uint64_t va, swap, compare;
	uint64_t original; /* AtomicAckETH */
	uint32_t imm;
	uint32_t qkey, source_qpn; /* DETH */
	uint32_t srqn;             /* XRCETH */
	const uint8_t *payload;    /* in the frame */
	uint32_t payload_bytes;    /* without padding and ICRC */
};

/* Takes an Ethernet frame apart; icrc_right is only looked for on demand.  False: it is no RoCE v2,
 * or not all there. */
bool nupa_packet_parse(const uint8_t *frame, uint32_t bytes, bool check_icrc,
		       struct nupa_packet *out);

#endif
