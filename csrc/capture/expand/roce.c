/* SPDX-License-Identifier: BSD-3-Clause
 * One packet of InfiniBand's transport, as RoCE v2 has it: Ethernet, IPv4, UDP, BTH, extended
 * headers, payload, padding, ICRC (IBTA 9.2, 9.3; A14, A17, A19). */
#include "capture/expand/bytes.h"
#include "packet/crc.h"
#include "packet/opcodes.h"
#include "capture/expand/expand.h"

#define UDP_PORT 4791u
#define HEAD_BYTES 42u
#define IP_AT 14u
#define UDP_AT 34u
#define BTH_BYTES 12u
#define ICRC_BYTES 4u

/* As drivers of Linux choose it: the pair of QP numbers distinguishes flows. */
static uint32_t source_port(uint32_t a, uint32_t b)
{
	uint64_t v = (uint64_t)a * b;
	uint32_t label;

	v ^= v >> 20;
	v ^= v >> 40;
	label = (uint32_t)v & 0xfffff;
	return 0xc000 | ((label & 0x3fff) ^ label >> 14);
}

void nupa_roce_head(const struct nupa_watch *watch, struct nupa_roce *roce, uint32_t from,
		    uint32_t to)
{
	const struct nupa_host *source = &watch->fabric->hosts[from];
	const struct nupa_host *target = &watch->fabric->hosts[to];
	uint8_t *at = roce->head;

	memcpy(at, target->mac, 6);
	memcpy(at + 6, source->mac, 6);
	at = nupa_put16(at + 12, 0x0800);
	at = nupa_put32(at, 0x45000000); /* version, header length; length */
	at = nupa_put32(at, 0x00004000); /* not to be fragmented */
	at = nupa_put32(at, 0x40110000); /* TTL 64, UDP */
	at = nupa_put32(at, source->ipv4);
	at = nupa_put32(at, target->ipv4);
	at = nupa_put16(at, source_port(roce->src_qpn, roce->dest_qpn));
	at = nupa_put16(at, UDP_PORT);
	nupa_put32(at, 0);
	roce->ip_sum = 0x4500 + 0x4000 + 0x4011 + (source->ipv4 >> 16) + (source->ipv4 & 0xffff) +
		       (target->ipv4 >> 16) + (target->ipv4 & 0xffff);
}

static uint8_t opcode_of(const struct nupa_roce *roce, bool first, bool last)
{
	static const uint8_t sends[2][2] = { { 0x01, 0x02 }, { 0x00, 0x04 } };
	static const uint8_t writes[2][2] = { { 0x07, 0x08 }, { 0x06, 0x0a } };
	static const uint8_t responses[2][2] = { { 0x0e, 0x0f }, { 0x0d, 0x10 } };
	static const uint8_t atomics[] = {
		[NUPA_ATOMIC_ADD] = 0x14,
		[NUPA_ATOMIC_CAS] = 0x13,
		[NUPA_ATOMIC_WRITE] = 0x1d,
		[NUPA_ATOMIC_FLUSH] = 0x1c,
	};
	bool imm = last && roce->with_imm;

	switch (roce->what) {
	case NUPA_ROCE_SEND:
		if (last && roce->with_inv)
			return first ? 0x17 : 0x16;
		return (uint8_t)(sends[first][last] + imm);
	case NUPA_ROCE_WRITE:
		return (uint8_t)(writes[first][last] + imm);
	case NUPA_ROCE_READ:
		return 0x0c;
	case NUPA_ROCE_READ_RESPONSE:
		return responses[first][last];
	case NUPA_ROCE_ATOMIC:
		return atomics[roce->atomic & 3];
	case NUPA_ROCE_ATOMIC_ACK:
		return 0x12;
	default:
		return 0x11;
	}
}

static uint8_t *put_headers(const struct nupa_roce *roce, uint32_t headers, uint8_t *at)
{
	if (headers & NUPA_HEADER_XRCETH)
		at = nupa_put32(at, roce->srqn & 0xffffff);
	if (headers & NUPA_HEADER_DETH)
		at = nupa_put32(nupa_put32(at, roce->qkey), roce->src_qpn & 0xffffff);
	if (headers & NUPA_HEADER_FETH) /* level; placement: both as verbs have them */
		at = nupa_put32(at,
				(uint32_t)(roce->swap >> 8 & 3) << 4 | (uint32_t)(roce->swap & 15));
	if (headers & NUPA_HEADER_RETH)
		at = nupa_put32(nupa_put32(nupa_put64(at, roce->raddr), roce->rkey),
				roce->total_bytes);
	if (headers & NUPA_HEADER_ATOMICETH) {
		bool cas = roce->atomic == NUPA_ATOMIC_CAS;

		at = nupa_put32(nupa_put64(at, roce->raddr), roce->rkey);
		at = nupa_put64(at, cas ? roce->swap : roce->compare_add);
		at = nupa_put64(at, cas ? roce->compare_add : 0);
	}
	if (headers & NUPA_HEADER_AETH)
		at = nupa_put32(at, (uint32_t)roce->syndrome << 24 | (roce->msn & 0xffffff));
	if (headers & NUPA_HEADER_ATOMICACKETH)
		at = nupa_put64(at, roce->original);
	if (headers & NUPA_HEADER_IMMDT) { /* as it lies in memory */
		memcpy(at, &roce->imm, sizeof(roce->imm));
		at += sizeof(roce->imm);
	}
	if (headers & NUPA_HEADER_IETH)
		at = nupa_put32(at, roce->imm);
	return at;
}

/* The payload of packet i. */
static uint32_t payload_bytes(const struct nupa_roce *roce, uint32_t i, uint32_t n)
{
	if (i + 1 < n)
		return roce->mtu_bytes;
	return (uint32_t)(roce->bytes - (uint64_t)i * roce->mtu_bytes);
}

/* How much of it was recorded. */
static uint32_t recorded_bytes(const struct nupa_roce *roce, uint32_t i, uint32_t bytes)
{
	uint64_t at = (uint64_t)i * roce->piece_bytes;
	uint32_t n = bytes < roce->piece_bytes ? bytes : roce->piece_bytes;

	if (at >= roce->data_bytes)
		return 0;
	return n < roce->data_bytes - at ? n : (uint32_t)(roce->data_bytes - at);
}

uint32_t nupa_roce_room(const struct nupa_roce *roce, uint32_t i)
{
	return NUPA_HEADERS_MAX_BYTES + recorded_bytes(roce, i, roce->piece_bytes);
}

/* A16.5.1, A17.3.3: over all fields that routers leave unchanged; variant fields count as ones. */
static void put_icrc(uint8_t *packet, uint8_t *end)
{
	uint8_t masked[8 + 28 + BTH_BYTES];
	uint32_t crc;

	memset(masked, 0xff, 8);
	memcpy(masked + 8, packet + IP_AT, sizeof(masked) - 8);
	masked[8 + 1] = 0xff;                           /* type of service */
	masked[8 + 8] = 0xff;                           /* time to live */
	masked[8 + 10] = masked[8 + 11] = 0xff;         /* header checksum */
	masked[8 + 20 + 6] = masked[8 + 20 + 7] = 0xff; /* UDP checksum */
	masked[8 + 28 + 4] = 0xff;                      /* FECN, BECN */
	crc = nupa_crc32(0, masked, sizeof(masked));
	packet += HEAD_BYTES + BTH_BYTES;
	crc = nupa_crc32(crc, packet, (size_t)(end - packet));
	end[0] = (uint8_t)crc;
	end[1] = (uint8_t)(crc >> 8);
	end[2] = (uint8_t)(crc >> 16);
	end[3] = (uint8_t)(crc >> 24);
}

static void put_lengths(const struct nupa_roce *roce, uint8_t *packet, uint32_t bytes)
{
	uint32_t ip_bytes = bytes - IP_AT;
	uint32_t sum = roce->ip_sum + ip_bytes;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	nupa_put16(packet + IP_AT + 2, ip_bytes);
	nupa_put16(packet + IP_AT + 10, ~sum & 0xffff);
	nupa_put16(packet + UDP_AT + 4, ip_bytes - 20);
}

uint32_t nupa_roce_build(const struct nupa_roce *roce, uint32_t i, uint32_t n, uint32_t snap_bytes,
			 uint8_t *out, uint32_t *original_bytes)
{
	const bool first = roce->begins && i == 0, last = roce->ends && i + 1 == n;
	const uint8_t opcode = (uint8_t)(roce->transport | opcode_of(roce, first, last));
	const uint32_t bytes = payload_bytes(roce, i, n), pad = -bytes & 3;
	const uint32_t recorded = recorded_bytes(roce, i, bytes);
	uint32_t total, captured;
	uint8_t *at = out;

	memcpy(at, roce->head, HEAD_BYTES);
	at += HEAD_BYTES;
	at[0] = opcode;
	at[1] = (uint8_t)((last && roce->solicited ? 0x80u : 0) | 0x40u |
			  pad << 4); /* MigReq: migrated */
	nupa_put16(at + 2, roce->pkey ? roce->pkey : NUPA_PKEY_DEFAULT);
	nupa_put32(at + 4, roce->dest_qpn & 0xffffff);
	nupa_put32(at + 8, (last && roce->asks ? 1u << 31 : 0) | ((roce->psn + i) & NUPA_PSN_MASK));
	at = put_headers(roce, nupa_opcode(opcode).headers, at + BTH_BYTES);
	total = (uint32_t)(at - out) + bytes + pad + ICRC_BYTES;
	captured = (uint32_t)(at - out) + recorded;
	*original_bytes = total;
	put_lengths(roce, out, total);
	if (recorded)
		memcpy(at, roce->data + (size_t)i * roce->piece_bytes, recorded);
	if (recorded == bytes && snap_bytes >= total) {
		memset(at + bytes, 0, pad);
		put_icrc(out, at + bytes + pad);
		return total;
	}
	return captured < snap_bytes ? captured : snap_bytes;
}
