/* SPDX-License-Identifier: BSD-3-Clause
 * Transport packets between their bytes and a struct (IBTA 9.2, 9.3; A14, A17, A19). */
#include "packet/roce.h"

#include <endian.h>
#include <string.h>

#define BTH_BYTES 12u
#define CNP_BYTES 16u

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return be32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return be64toh(value);
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static uint8_t *put64(uint8_t *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static const uint8_t *read_addresses(uint32_t headers, const uint8_t *at,
				     struct nupa_roce_packet *out)
{
	if (headers & NUPA_HEADER_RDETH)
		at += 4;
	if (headers & NUPA_HEADER_XRCETH) {
		out->srqn = get32(at) & 0xffffff;
		at += 4;
	}
	if (headers & NUPA_HEADER_DETH) {
		out->qkey = get32(at);
		out->source_qpn = get32(at + 4) & 0xffffff;
		at += 8;
	}
	if (headers & NUPA_HEADER_FETH) {
		out->flush = at[3] & 0x3f;
		at += 4;
	}
	if (headers & NUPA_HEADER_RETH) {
		out->va = get64(at);
		out->rkey = get32(at + 8);
		out->dma_bytes = get32(at + 12);
		at += 16;
	}
	return at;
}

static void read_extended(uint32_t headers, const uint8_t *at, struct nupa_roce_packet *out)
{
	at = read_addresses(headers, at, out);
	if (headers & NUPA_HEADER_ATOMICETH) {
		out->va = get64(at);
		out->rkey = get32(at + 8);
		out->swap = get64(at + 12);
		out->compare = get64(at + 20);
		at += 28;
	}
	if (headers & NUPA_HEADER_AETH) {
		out->syndrome = at[0];
		out->msn = get32(at) & 0xffffff;
		at += 4;
	}
	if (headers & NUPA_HEADER_ATOMICACKETH) {
		out->original = get64(at);
		at += 8;
	}
	if (headers & NUPA_HEADER_IMMDT) {
		out->imm = get32(at);
		at += 4;
	}
	if (headers & NUPA_HEADER_IETH)
		out->rkey = get32(at);
}

bool nupa_roce_read(const uint8_t *packet, uint32_t bytes, struct nupa_roce_packet *out,
		    const uint8_t **payload)
{
	struct nupa_opcode opcode;
	uint32_t behind;

	if (bytes < BTH_BYTES + NUPA_ROCE_ICRC_BYTES)
		return false;
	opcode = nupa_opcode(packet[0]);
	behind = bytes - BTH_BYTES - NUPA_ROCE_ICRC_BYTES;
	memset(out, 0, sizeof(*out));
	out->opcode = packet[0];
	out->flags = (uint8_t)((packet[1] & 0x80 ? NUPA_ROCE_SOLICITED : 0) |
			       (packet[8] & 0x80 ? NUPA_ROCE_ACK_REQUEST : 0) |
			       (packet[4] & 0x40 ? NUPA_ROCE_BECN : 0));
	out->pad_bytes = packet[1] >> 4 & 3;
	out->version = packet[1] & 15;
	out->pkey = get32(packet) & 0xffff;
	out->dqpn = get32(packet + 4) & 0xffffff;
	out->psn = get32(packet + 8) & 0xffffff;
	if (behind < opcode.bytes || behind - opcode.bytes < out->pad_bytes)
		return false;
	read_extended(opcode.headers, packet + BTH_BYTES, out);
	out->frame_bytes = bytes;
	out->payload_bytes = behind - opcode.bytes - out->pad_bytes;
	*payload = packet + BTH_BYTES + opcode.bytes;
	return true;
}

static uint8_t *write_extended(uint32_t headers, uint8_t *at, const struct nupa_roce_packet *packet)
{
	if (headers & NUPA_HEADER_XRCETH)
		at = put32(at, packet->srqn & 0xffffff);
	if (headers & NUPA_HEADER_DETH)
		at = put32(put32(at, packet->qkey), packet->source_qpn & 0xffffff);
	if (headers & NUPA_HEADER_FETH)
		at = put32(at, packet->flush);
	if (headers & NUPA_HEADER_RETH)
		at = put32(put32(put64(at, packet->va), packet->rkey), packet->dma_bytes);
	if (headers & NUPA_HEADER_ATOMICETH) {
		at = put32(put64(at, packet->va), packet->rkey);
		at = put64(put64(at, packet->swap), packet->compare);
	}
	if (headers & NUPA_HEADER_AETH)
		at = put32(at, (uint32_t)packet->syndrome << 24 | (packet->msn & 0xffffff));
	if (headers & NUPA_HEADER_ATOMICACKETH)
		at = put64(at, packet->original);
	if (headers & NUPA_HEADER_IMMDT)
		at = put32(at, packet->imm);
	if (headers & NUPA_HEADER_IETH)
		at = put32(at, packet->rkey);
	if (headers & NUPA_HEADER_CNP) {
		memset(at, 0, CNP_BYTES);
		at += CNP_BYTES;
	}
	return at;
}

uint32_t nupa_roce_write(uint8_t headers[NUPA_ROCE_HEADERS_MAX_BYTES],
			 const struct nupa_roce_packet *packet)
{
	const struct nupa_opcode opcode = nupa_opcode(packet->opcode);

	headers[0] = packet->opcode;
	headers[1] = (uint8_t)((packet->flags & NUPA_ROCE_SOLICITED ? 0x80u : 0) | 0x40u |
			       (uint32_t)packet->pad_bytes << 4); /* MigReq: migrated */
	headers[2] = (uint8_t)(packet->pkey >> 8);
	headers[3] = (uint8_t)packet->pkey;
	put32(headers + 4,
	      (packet->dqpn & 0xffffff) | (packet->flags & NUPA_ROCE_BECN ? 0x40000000u : 0));
	put32(headers + 8,
	      (packet->psn & 0xffffff) | (packet->flags & NUPA_ROCE_ACK_REQUEST ? 0x80000000u : 0));
	return (uint32_t)(write_extended(opcode.headers, headers + BTH_BYTES, packet) - headers);
}
