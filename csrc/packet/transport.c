/* SPDX-License-Identifier: BSD-3-Clause
 * The InfiniBand transport of a packet: BTH, its extended headers (IBTA 9.2, 9.3) and the ICRC. */
#include "packet/icrc.h"
#include "packet/roce.h"
#include "packet/walk.h"

enum { OPCODE_UD = 0x60, OPCODE_TRANSPORT = 0xe0, QP1 = 1 };

#define MAD_BYTES 24u
/* The ICRC as it is shown: big endian. */
static uint32_t icrc_of(const struct walk *w, uint32_t bth)
{
	const enum nupa_icrc_first first = w->local                  ? NUPA_ICRC_LRH
					   : w->out->ip_version == 4 ? NUPA_ICRC_IPV4
								     : NUPA_ICRC_IPV6;

	return __builtin_bswap32(nupa_icrc_of_frame(first, w->data + w->routed,
						    w->udp ? w->udp - w->routed : 0,
						    bth - w->routed, w->end - w->routed));
}

static void extended_headers(struct nupa_headers *out, const uint8_t *at)
{
	struct nupa_roce_packet packet = { .opcode = out->opcode };

	nupa_roce_read_extended(at, out->headers, &packet);
	if (out->headers & NUPA_HEADER_RDETH)
		out->eecn = packet.srqn;
	else
		out->xrc_srqn = packet.srqn;
	out->qkey = packet.qkey;
	out->source_qpn = packet.source_qpn;
	out->va = packet.va;
	out->rkey = packet.rkey;
	out->dma_bytes = packet.dma_bytes;
	out->swap = packet.swap;
	out->compare = packet.compare;
	out->syndrome = packet.syndrome;
	out->msn = packet.msn;
	out->original = packet.original;
	out->imm = packet.imm;
}

void nupa_decode_transport(struct walk *w, uint32_t flags)
{
	struct nupa_headers *out = w->out;
	uint32_t bth = w->at;
	const uint8_t *p = take(w, NUPA_BTH_BYTES);
	struct nupa_opcode opcode;

	if (!p)
		return;
	out->layer = NUPA_LAYER_TRANSPORT;
	out->opcode = p[0];
	out->bth_flags = (uint8_t)(p[1] >> 7 | (p[1] >> 5 & 2) | (p[4] >> 5 & 4) | (p[4] >> 3 & 8) |
				   (p[8] >> 3 & 16));
	out->padcount = p[1] >> 4 & 3;
	out->pkey = nupa_get16(p + 2);
	out->dqpn = nupa_get24(p + 5);
	out->psn = nupa_get24(p + 9);
	if (!w->cut) {
		if (w->end - w->at < NUPA_ICRC_BYTES) {
			out->fault = NUPA_FAULT_LENGTH;
			return;
		}
		w->end -= NUPA_ICRC_BYTES;
		out->icrc = nupa_get32(w->data + w->end);
		out->icrc_state = NUPA_ICRC_UNCHECKED;
		/* IPv6 extensions may be more than that; such an ICRC stays unchecked. */
		if (flags & NUPA_DECODE_CHECK_ICRC &&
		    bth - w->routed <= NUPA_ICRC_HEADERS_MAX_BYTES)
			out->icrc_state =
			    icrc_of(w, bth) == out->icrc ? NUPA_ICRC_RIGHT : NUPA_ICRC_WRONG;
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
		out->mad_attribute = nupa_get16(w->data + w->at + 16);
	}
}
