/* SPDX-License-Identifier: BSD-3-Clause
 * One packet of InfiniBand's transport, as RoCE v2 has it: Ethernet, IPv4, UDP, BTH, extended
 * headers, payload, padding, ICRC (IBTA 9.2, 9.3; A14, A17, A19). */
#include "base/bytes.h"
#include "packet/icrc.h"
#include "packet/roce.h"
#include "capture/expand/expand.h"

#define HEAD_BYTES 42u
#define IP_AT 14u
#define UDP_AT 34u

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
	at = nupa_put16(at, NUPA_ROCE_PORT);
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

static struct nupa_roce_packet packet_of(const struct nupa_roce *roce, uint8_t opcode)
{
	const bool invalidates = nupa_opcode(opcode).headers & NUPA_HEADER_IETH;
	const bool is_cas = roce->atomic == NUPA_ATOMIC_CAS;

	return (struct nupa_roce_packet){
		.opcode = opcode,
		.flags = NUPA_ROCE_MIGREQ, /* migrated */
		.pkey = roce->pkey ? roce->pkey : NUPA_PKEY_DEFAULT,
		.dqpn = roce->dest_qpn,
		.srqn = roce->srqn,
		.qkey = roce->qkey,
		.source_qpn = roce->src_qpn,
		/* level; placement: both as verbs have them */
		.flush = (uint8_t)((roce->swap >> 8 & 3) << 4 | (roce->swap & 15)),
		.va = roce->raddr,
		.rkey = invalidates ? roce->imm : roce->rkey,
		.dma_bytes = roce->total_bytes,
		.swap = is_cas ? roce->swap : roce->compare_add,
		.compare = is_cas ? roce->compare_add : 0,
		.syndrome = roce->syndrome,
		.msn = roce->msn,
		.original = roce->original,
		.imm = be32toh(roce->imm), /* as it lies in memory */
	};
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

static void put_icrc(uint8_t *packet, uint8_t *end)
{
	const uint32_t crc =
	    htole32(nupa_icrc_of_frame(NUPA_ICRC_IPV4, packet + IP_AT, UDP_AT - IP_AT,
				       HEAD_BYTES - IP_AT, (uint32_t)(end - packet) - IP_AT));

	memcpy(end, &crc, sizeof(crc));
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
	struct nupa_roce_packet packet = packet_of(roce, opcode);
	uint32_t total, captured;
	uint8_t *at = out;

	packet.pad_bytes = (uint8_t)pad;
	packet.psn = (roce->psn + i) & NUPA_PSN_MASK;
	if (last && roce->solicited)
		packet.flags |= NUPA_ROCE_SOLICITED;
	if (last && roce->asks)
		packet.flags |= NUPA_ROCE_ACK_REQUEST;
	memcpy(at, roce->head, HEAD_BYTES);
	at += HEAD_BYTES;
	at += nupa_roce_write(at, &packet);
	total = (uint32_t)(at - out) + bytes + pad + NUPA_ICRC_BYTES;
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
