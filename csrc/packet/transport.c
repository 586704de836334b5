/* SPDX-License-Identifier: BSD-3-Clause
 * The InfiniBand transport of a packet: BTH, its extended headers (IBTA 9.2, 9.3) and the ICRC. */
#include "packet/crc.h"
#include "packet/walk.h"

#include <string.h>

enum { OPCODE_UD = 0x60, OPCODE_TRANSPORT = 0xe0, QP1 = 1 };

#define LRH_BYTES 8u
#define BTH_BYTES 12u
#define ICRC_BYTES 4u
#define MAD_BYTES 24u
/* Headers below BTH.  With IPv6 extensions there may be more; such an ICRC stays unchecked. */
#define COVERED_HEADERS_BYTES_MAX 200u

/* All bytes that the ICRC covers, with ones for variant fields (IBTA 7.8.1, A17.3.3). */
static uint32_t icrc_of(const struct walk *w, uint32_t bth, uint32_t icrc)
{
	static const uint8_t ones[LRH_BYTES] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	uint8_t head[COVERED_HEADERS_BYTES_MAX + BTH_BYTES];
	uint32_t head_bytes = bth + BTH_BYTES - w->routed;
	uint32_t crc = 0;

	memcpy(head, w->data + w->routed, head_bytes);
	if (w->local) {
		head[0] |= 0xf0; /* virtual lane */
	} else {
		crc = nupa_crc32(0, ones, sizeof(ones));
		if (w->out->ip_version == 4) {
			head[1] = 0xff; /* type of service */
			head[8] = 0xff; /* time to live */
			memset(head + 10, 0xff, 2);
		} else {
			head[0] |= 0x0f; /* traffic class and flow label */
			memset(head + 1, 0xff, 3);
			head[7] = 0xff; /* hop limit */
		}
	}
	if (w->udp)
		memset(head + (w->udp - w->routed) + 6, 0xff, 2);
	head[head_bytes - BTH_BYTES + 4] = 0xff; /* FECN, BECN, reserved */
	crc = nupa_crc32(crc, head, head_bytes);
	crc = nupa_crc32(crc, w->data + bth + BTH_BYTES, icrc - bth - BTH_BYTES);
	return __builtin_bswap32(crc);
}

static void extended_headers(struct nupa_headers *out, const uint8_t *p)
{
	uint16_t headers = out->headers;

	if (headers & NUPA_HEADER_RDETH) {
		out->eecn = get24(p + 1);
		p += 4;
	}
	if (headers & NUPA_HEADER_XRCETH) {
		out->xrc_srqn = get24(p + 1);
		p += 4;
	}
	if (headers & NUPA_HEADER_DETH) {
		out->qkey = get32(p);
		out->source_qpn = get24(p + 5);
		p += 8;
	}
	if (headers & NUPA_HEADER_FETH)
		p += 4;
	if (headers & (NUPA_HEADER_RETH | NUPA_HEADER_ATOMICETH)) {
		out->va = get64(p);
		out->rkey = get32(p + 8);
		p += 12;
	}
	if (headers & NUPA_HEADER_RETH) {
		out->dma_bytes = get32(p);
		p += 4;
	}
	if (headers & NUPA_HEADER_ATOMICETH) {
		out->swap = get64(p);
		out->compare = get64(p + 8);
		p += 16;
	}
	if (headers & NUPA_HEADER_AETH) {
		out->syndrome = p[0];
		out->msn = get24(p + 1);
		p += 4;
	}
	if (headers & NUPA_HEADER_ATOMICACKETH) {
		out->original = get64(p);
		p += 8;
	}
	if (headers & NUPA_HEADER_IMMDT) {
		out->imm = get32(p);
		p += 4;
	}
	if (headers & NUPA_HEADER_IETH)
		out->rkey = get32(p);
}

void nupa_decode_transport(struct walk *w, uint32_t flags)
{
	struct nupa_headers *out = w->out;
	uint32_t bth = w->at;
	const uint8_t *p = take(w, BTH_BYTES);
	struct nupa_opcode opcode;

	if (!p)
		return;
	out->layer = NUPA_LAYER_TRANSPORT;
	out->opcode = p[0];
	out->bth_flags = (uint8_t)(p[1] >> 7 | (p[1] >> 5 & 2) | (p[4] >> 5 & 4) | (p[4] >> 3 & 8) |
				   (p[8] >> 3 & 16));
	out->padcount = p[1] >> 4 & 3;
	out->pkey = get16(p + 2);
	out->dqpn = get24(p + 5);
	out->psn = get24(p + 9);
	if (!w->cut) {
		if (w->end - w->at < ICRC_BYTES) {
			out->fault = NUPA_FAULT_LENGTH;
			return;
		}
		w->end -= ICRC_BYTES;
		out->icrc = get32(w->data + w->end);
		out->icrc_state = NUPA_ICRC_UNCHECKED;
		if (flags & NUPA_DECODE_CHECK_ICRC && bth - w->routed <= COVERED_HEADERS_BYTES_MAX)
			out->icrc_state = icrc_of(w, bth, w->end) == out->icrc ? NUPA_ICRC_RIGHT
									       : NUPA_ICRC_WRONG;
	}
	opcode = nupa_opcode(out->opcode);
	if (!opcode.known)
		out->fault = NUPA_FAULT_OPCODE;
	p = take(w, opcode.bytes);
	if (!p)
		return;
	out->headers = opcode.headers;
	extended_headers(out, p);
	if (!w->cut && w->end - w->at < out->padcount)
		out->fault = NUPA_FAULT_LENGTH;
	else if (!w->cut)
		w->end -= out->padcount;
	if ((out->opcode & OPCODE_TRANSPORT) == OPCODE_UD && out->dqpn == QP1 &&
	    w->end - w->at >= MAD_BYTES) {
		out->mad_class = w->data[w->at + 1];
		out->mad_attribute = get16(w->data + w->at + 16);
	}
}
