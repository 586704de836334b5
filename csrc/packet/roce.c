/* SPDX-License-Identifier: BSD-3-Clause
 * The headers of one packet, both ways.  What is read comes from a wire: lengths are checked before
 * use. */
#include "packet/roce.h"
#include "base/bytes.h"

#include <string.h>

enum { OPCODE_UD = 0x60, OPCODE_TRANSPORT = 0xe0 };

/* BTH: byte 1, byte 4 and byte 8 (IBTA 9.2; A17.4.1 for FECN and BECN) */
#define SOLICITED 0x80u
#define MIGREQ 0x40u
#define PAD_SHIFT 4
#define VERSION 0x0fu
#define FECN 0x80u
#define BECN 0x40u
#define ACKREQ 0x80u
#define FLUSH_BITS 0x3fu

void nupa_roce_read_extended(const uint8_t *at, uint32_t headers, struct nupa_roce_packet *out)
{
	if (headers & (NUPA_HEADER_RDETH | NUPA_HEADER_XRCETH)) {
		out->srqn = nupa_get24(at + 1);
		at += 4;
	}
	if (headers & NUPA_HEADER_DETH) {
		out->qkey = nupa_get32(at);
		out->source_qpn = nupa_get24(at + 5);
		at += 8;
	}
	if (headers & NUPA_HEADER_FETH) {
		out->flush = at[3] & FLUSH_BITS;
		at += 4;
	}
	if (headers & (NUPA_HEADER_RETH | NUPA_HEADER_ATOMICETH)) {
		out->va = nupa_get64(at);
		out->rkey = nupa_get32(at + 8);
		at += 12;
	}
	if (headers & NUPA_HEADER_RETH) {
		out->dma_bytes = nupa_get32(at);
		at += 4;
	}
	if (headers & NUPA_HEADER_ATOMICETH) {
		out->swap = nupa_get64(at);
		out->compare = nupa_get64(at + 8);
		at += 16;
	}
	if (headers & NUPA_HEADER_AETH) {
		out->syndrome = at[0];
		out->msn = nupa_get24(at + 1);
		at += 4;
	}
	if (headers & NUPA_HEADER_ATOMICACKETH) {
		out->original = nupa_get64(at);
		at += 8;
	}
	if (headers & NUPA_HEADER_IMMDT) {
		out->imm = nupa_get32(at);
		at += 4;
	}
	if (headers & NUPA_HEADER_IETH)
		out->rkey = nupa_get32(at);
}

static uint8_t *write_extended(uint8_t *at, uint32_t headers, const struct nupa_roce_packet *packet)
{
	if (headers & (NUPA_HEADER_RDETH | NUPA_HEADER_XRCETH))
		at = nupa_put32(at, packet->srqn & 0xffffff);
	if (headers & NUPA_HEADER_DETH)
		at = nupa_put32(nupa_put32(at, packet->qkey), packet->source_qpn & 0xffffff);
	if (headers & NUPA_HEADER_FETH)
		at = nupa_put32(at, packet->flush & FLUSH_BITS);
	if (headers & (NUPA_HEADER_RETH | NUPA_HEADER_ATOMICETH))
		at = nupa_put32(nupa_put64(at, packet->va), packet->rkey);
	if (headers & NUPA_HEADER_RETH)
		at = nupa_put32(at, packet->dma_bytes);
	if (headers & NUPA_HEADER_ATOMICETH)
		at = nupa_put64(nupa_put64(at, packet->swap), packet->compare);
	if (headers & NUPA_HEADER_AETH)
		at = nupa_put32(at, (uint32_t)packet->syndrome << 24 | (packet->msn & 0xffffff));
	if (headers & NUPA_HEADER_ATOMICACKETH)
		at = nupa_put64(at, packet->original);
	if (headers & NUPA_HEADER_IMMDT)
		at = nupa_put32(at, packet->imm);
	if (headers & NUPA_HEADER_IETH)
		at = nupa_put32(at, packet->rkey);
	if (headers & NUPA_HEADER_CNP) { /* A17.9.2: reserved */
		memset(at, 0, 16);
		at += 16;
	}
	return at;
}

bool nupa_roce_read(const uint8_t *packet, uint32_t bytes, struct nupa_roce_packet *out,
		    const uint8_t **payload)
{
	struct nupa_opcode opcode;
	uint32_t behind;

	memset(out, 0, sizeof(*out));
	if (bytes < NUPA_BTH_BYTES + NUPA_ICRC_BYTES)
		return false;
	opcode = nupa_opcode(packet[0]);
	out->opcode = packet[0];
	out->version = packet[1] & VERSION;
	out->pad_bytes = packet[1] >> PAD_SHIFT & 3;
	out->flags = (uint8_t)((packet[1] & SOLICITED ? NUPA_ROCE_SOLICITED : 0) |
			       (packet[1] & MIGREQ ? NUPA_ROCE_MIGREQ : 0) |
			       (packet[4] & FECN ? NUPA_ROCE_FECN : 0) |
			       (packet[4] & BECN ? NUPA_ROCE_BECN : 0) |
			       (packet[8] & ACKREQ ? NUPA_ROCE_ACK_REQUEST : 0));
	out->pkey = nupa_get16(packet + 2);
	out->dqpn = nupa_get24(packet + 5);
	out->psn = nupa_get24(packet + 9);
	behind = bytes - NUPA_BTH_BYTES - NUPA_ICRC_BYTES;
	if (behind < (uint32_t)opcode.bytes + out->pad_bytes)
		return false;
	nupa_roce_read_extended(packet + NUPA_BTH_BYTES, opcode.headers, out);
	out->frame_bytes = bytes;
	out->payload_bytes = behind - opcode.bytes - out->pad_bytes;
	*payload = packet + NUPA_BTH_BYTES + opcode.bytes;
	return true;
}

bool nupa_roce_valid(const struct nupa_roce_packet *packet)
{
	const struct nupa_opcode opcode = nupa_opcode(packet->opcode);
	const bool is_datagram = (packet->opcode & OPCODE_TRANSPORT) == OPCODE_UD;

	return packet->version == 0 && opcode.known &&
	       (packet->payload_bytes + packet->pad_bytes) % 4 == 0 &&
	       (opcode.payload || !(packet->payload_bytes + packet->pad_bytes)) &&
	       packet->dqpn != 0 && /* A17.4.4: RoCE has no QP0 */
	       (is_datagram || (packet->dqpn != 1 && packet->dqpn != NUPA_ROCE_QPN_MULTICAST));
}

uint32_t nupa_roce_write(uint8_t headers[NUPA_ROCE_HEADERS_MAX_BYTES],
			 const struct nupa_roce_packet *packet)
{
	const uint8_t flags = packet->flags;
	uint8_t *at = headers;

	at[0] = packet->opcode;
	at[1] = (uint8_t)((flags & NUPA_ROCE_SOLICITED ? SOLICITED : 0) |
			  (flags & NUPA_ROCE_MIGREQ ? MIGREQ : 0) |
			  (packet->pad_bytes & 3u) << PAD_SHIFT | (packet->version & VERSION));
	at = nupa_put16(at + 2, packet->pkey);
	at = nupa_put32(at, packet->dqpn & 0xffffff);
	headers[4] =
	    (uint8_t)((flags & NUPA_ROCE_FECN ? FECN : 0) | (flags & NUPA_ROCE_BECN ? BECN : 0));
	at = nupa_put32(at, (flags & NUPA_ROCE_ACK_REQUEST ? ACKREQ << 24 : 0) |
				(packet->psn & 0xffffff));
	at = write_extended(at, nupa_opcode(packet->opcode).headers, packet);
	return (uint32_t)(at - headers);
}
