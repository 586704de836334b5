/* SPDX-License-Identifier: BSD-3-Clause
 * Packets that are not for the socket at which they came: connection management on QP 1, those of
 * sockets that have just changed places, and all of media without sockets. */
#include "engine/cm/wire/steer.h"
#include "wire/keeper_internal.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#define OPCODE_UD_SEND_ONLY 0x64u /* IBTA 9.2.1 */
#define TTL 64

static void count(uint64_t *counter, uint64_t by)
{
	__atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

/* --- sending ------------------------------------------------------------------------- */

void nupa_keeper_send_mad(struct nupa_kept *wire, uint16_t pkey, const uint8_t *mad, bool probe)
{
	struct nupa_keeper *keeper = wire->keeper;
	struct nupa_roce_packet packet = { .opcode = OPCODE_UD_SEND_ONLY,
					   .payload_bytes = NUPA_CM_MAD_BYTES,
					   .pkey = pkey,
					   .dqpn = NUPA_CM_GSI_QPN,
					   .psn = wire->psn++ & 0xffffff,
					   .qkey = NUPA_CM_GSI_QKEY,
					   .source_qpn = NUPA_CM_GSI_QPN };
	struct nupa_roce_path path = { .src_port = probe && keeper->errors_port
						       ? keeper->errors_port
						       : NUPA_WIRE_UDP_PORT,
				       .ttl = TTL };
	uint8_t headers[NUPA_ROCE_HEADERS_MAX_BYTES];
	struct iovec pieces[3] = { { headers, nupa_roce_write(headers, &packet) },
				   { (void *)(uintptr_t)mad, NUPA_CM_MAD_BYTES } };
	uint32_t icrc;
	int error;

	memcpy(path.src, keeper->local, 16);
	memcpy(path.dst, wire->remote, 16);
	icrc = htole32(nupa_icrc(&path, pieces, 2));
	pieces[2] = (struct iovec){ &icrc, sizeof(icrc) };
	error = wire->medium->send(keeper, wire, &path, pieces, 3);
	if (error && error != -EAGAIN && error != -ENOTCONN) {
		nupa_probe_refused(wire, -error, nupa_clock_ns());
		return;
	}
	if (!error)
		nupa_keeper_trace_sent(wire, &path, pieces, 3);
	count(&wire->entry->sent_packets, 1);
	count(&wire->entry->sent_bytes, pieces[0].iov_len + NUPA_CM_MAD_BYTES + sizeof(icrc));
}

static void pass_on(struct nupa_member *member, const struct nupa_keeper_packet *packet)
{
	struct nupa_wire_envelope envelope = { .identification = packet->path.identification,
					       .tos = packet->path.tos,
					       .ttl = packet->path.ttl,
					       .flags =
						   packet->identified ? NUPA_WIRE_IDENTIFIED : 0,
					       .bytes = packet->n,
					       .src_port = packet->path.src_port };
	struct iovec pieces[2] = { { &envelope, sizeof(envelope) },
				   { (void *)(uintptr_t)packet->bytes, packet->n } };
	struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = 2 };

	memcpy(envelope.src, packet->path.src, 16);
	memcpy(envelope.dst, packet->path.dst, 16);
	/* A process that does not read loses packets, as on a network. */
	(void)sendmsg(member->source.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- QP 1 ---------------------------------------------------------------------------- */

bool nupa_keeper_icrc(const struct nupa_keeper_packet *packet)
{
	/* IPv6 has no identification. */
	return packet->identified || !nupa_keeper_is_ipv4(packet->path.src)
		   ? nupa_icrc_right(&packet->path, packet->bytes, packet->n)
		   : nupa_icrc_plausible(&packet->path, packet->bytes, packet->n);
}

/* The process that a management datagram is for; NULL: none, and *refuse* says whether the other
 * end is to be told. */
static struct nupa_member *find_process(struct nupa_kept *wire, const uint8_t *mad, uint32_t bytes,
					bool *refuse)
{
	struct nupa_cm_target target;
	int slot;

	*refuse = true;
	switch (nupa_cm_steer(mad, bytes, &target)) {
	case NUPA_CM_TO_SLOT:
		return nupa_member_of_slot(wire->keeper, wire, target.slot);
	case NUPA_CM_TO_SERVICE:
		slot = nupa_cm_listener(wire->keeper->fabric, wire->host, &target);
		return slot < 0 ? NULL : nupa_member_of_slot(wire->keeper, wire, (uint32_t)slot);
	case NUPA_CM_TO_NOBODY:
		return NULL;
	default:
		*refuse = false;
		return NULL;
	}
}

static void manage(struct nupa_kept *wire, const struct nupa_keeper_packet *packet)
{
	struct nupa_roce_packet read;
	uint8_t answer[NUPA_CM_MAD_BYTES];
	const uint8_t *mad;
	struct nupa_member *member;
	bool refuse;

	if (!nupa_roce_read(packet->bytes, packet->n, &read, &mad) ||
	    read.opcode != OPCODE_UD_SEND_ONLY || read.qkey != NUPA_CM_GSI_QKEY ||
	    read.payload_bytes != NUPA_CM_MAD_BYTES) {
		count(&wire->entry->malformed, 1);
		nupa_keeper_trace_came(wire, packet, false);
		return;
	}
	if (!nupa_keeper_icrc(packet)) {
		count(&wire->entry->icrc_errors, 1);
		nupa_keeper_trace_came(wire, packet, false);
		nupa_probe_foreign(wire->keeper, packet);
		return;
	}
	if (nupa_probe_take(wire, packet, (uint16_t)read.pkey, mad, read.payload_bytes))
		return;
	member = find_process(wire, mad, read.payload_bytes, &refuse);
	nupa_notes_hear(wire, member, (uint16_t)read.pkey, mad, read.payload_bytes);
	nupa_keeper_trace_came(wire, packet, true);
	if (member)
		pass_on(member, packet);
	else if (refuse && nupa_cm_refuse(mad, read.payload_bytes, answer))
		nupa_keeper_send_mad(wire, (uint16_t)read.pkey, answer, false);
}

/* --- packets ------------------------------------------------------------------------- */

static uint32_t dqpn_of(const uint8_t *bth)
{
	return (uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7];
}

/* Of a process: out, where it has no socket. */
static void send_out(const struct nupa_member *by, const struct nupa_keeper_packet *packet)
{
	struct nupa_kept *wire = by->wire;
	const struct iovec piece = { (void *)(uintptr_t)packet->bytes, packet->n };
	struct nupa_roce_packet read;
	const uint8_t *payload;

	if (memcmp(packet->path.dst, wire->remote, 16) != 0 ||
	    packet->n < NUPA_WIRE_PACKET_MIN_BYTES)
		return;
	if (dqpn_of(packet->bytes) == NUPA_CM_GSI_QPN &&
	    nupa_roce_read(packet->bytes, packet->n, &read, &payload))
		nupa_notes_say(by, payload, read.payload_bytes);
	if (wire->medium->relays)
		(void)wire->medium->send(wire->keeper, wire, &packet->path, &piece, 1);
}

/* RAW: a packet socket has it as well. */
static bool comes_twice(struct nupa_kept *wire, const struct nupa_keeper_packet *packet)
{
	uint32_t dqpn, slot;

	if (!wire->medium->identifies || packet->identified ||
	    packet->n < NUPA_WIRE_PACKET_MIN_BYTES)
		return false;
	dqpn = dqpn_of(packet->bytes);
	slot = nupa_qpn_slot(&wire->keeper->fabric->geometry, dqpn);
	return slot == 0 || nupa_member_of_slot(wire->keeper, wire, slot);
}

void nupa_keeper_forward(struct nupa_keeper *keeper, const struct nupa_keeper_packet *packet,
			 const struct nupa_member *by)
{
	struct nupa_kept *wire = nupa_keeper_wire_to(keeper, packet->path.src);
	struct nupa_member *member;

	if (by && !memcmp(packet->path.src, keeper->local, 16)) {
		send_out(by, packet);
		return;
	}
	if (!wire || memcmp(packet->path.dst, keeper->local, 16) != 0) {
		if (!by)
			nupa_probe_foreign(keeper, packet);
		return;
	}
	if (!by && comes_twice(wire, packet))
		return;
	if (!by) {
		count(&wire->entry->received_packets, 1);
		count(&wire->entry->received_bytes, packet->n);
	}
	if (packet->n < NUPA_WIRE_PACKET_MIN_BYTES || packet->n > NUPA_WIRE_PACKET_MAX_BYTES) {
		count(&wire->entry->malformed, 1);
		nupa_keeper_trace_came(wire, packet, false);
		return;
	}
	if (dqpn_of(packet->bytes) == NUPA_CM_GSI_QPN) {
		manage(wire, packet);
		return;
	}
	member = nupa_member_of_slot(
	    keeper, wire, nupa_qpn_slot(&keeper->fabric->geometry, dqpn_of(packet->bytes)));
	if (!member) {
		count(&wire->entry->foreign, 1);
		nupa_keeper_trace_came(wire, packet, false);
	} else if (member != by) {
		pass_on(member, packet);
	}
}
