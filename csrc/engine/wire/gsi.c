/* SPDX-License-Identifier: BSD-3-Clause
 * QP 1, the general services interface (IBTA 13.5.1): datagrams of connection management.  Those
 * that come have been steered by the keeper, which has the socket of QP 1; those that leave go by
 * the socket of this process. */
#include "engine/cm/hooks.h"
#include "engine/cm/wire/mad.h"
#include "engine/inject/inject_internal.h"
#include "engine/wire/wire_internal.h"
#include "segment/control/pkey.h"

#define UD_SEND_ONLY (SERVICE_UD | OPERATION_SEND_ONLY)

/* A packet behind an envelope, to the keeper; a full socket loses it, as a network does.  A keeper
 * whose medium does not relay packets does not send it, but reads it. */
static void envelop(struct nupa_wire *wire, const struct nupa_roce_path *path, uint32_t flags,
		    const struct iovec *pieces, uint32_t n)
{
	struct nupa_wire_envelope envelope = {
		.identification = path->identification,
		.tos = path->tos,
		.ttl = path->ttl,
		.flags = flags,
		.src_port = path->src_port,
	};
	struct iovec all[1 + NUPA_WIRE_PIECES] = { { &envelope, sizeof(envelope) } };
	const struct msghdr msg = { .msg_iov = all, .msg_iovlen = 1 + n };

	memcpy(envelope.src, path->src, sizeof(envelope.src));
	memcpy(envelope.dst, path->dst, sizeof(envelope.dst));
	for (uint32_t i = 0; i < n; i++) {
		all[1 + i] = pieces[i];
		envelope.bytes += (uint32_t)pieces[i].iov_len;
	}
	(void)!sendmsg(wire->keeper, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void nupa_wire_hand_over(struct nupa_wire *wire, const struct nupa_roce_path *path, bool identified,
			 const uint8_t *bytes, uint32_t n)
{
	const struct iovec piece = { (void *)(uintptr_t)bytes, n };

	envelop(wire, path, identified ? NUPA_WIRE_IDENTIFIED : 0, &piece, 1);
}

static struct nupa_wire *find(const struct nupa_engine *engine, uint32_t index)
{
	const struct nupa_wire_entry *entry = nupa_wire_at(engine->fabric, index);
	struct nupa_wire *wire = engine->wires;

	while (wire && (!entry || wire->entry != entry || !wire->channel))
		wire = wire->next;
	return wire;
}

/* False: it is lost.  An error of a packet before it (IP_RECVERR) is told once. */
static bool leave(int udp, const struct msghdr *msg)
{
	return sendmsg(udp, msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
	       (errno != EAGAIN && sendmsg(udp, msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0);
}

static void send_alone(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
		       const uint8_t *payload, bool shows_keeper)
{
	uint8_t headers[NUPA_ROCE_HEADERS_MAX_BYTES];
	struct iovec pieces[NUPA_WIRE_PIECES] = {
		{ headers, nupa_roce_write(headers, packet) },
		{ (void *)(uintptr_t)payload, packet->payload_bytes },
	};
	const struct msghdr msg = { .msg_name = &wire->to,
				    .msg_namelen =
					wire->ipv4 ? sizeof(wire->to.v4) : sizeof(wire->to.v6),
				    .msg_iov = pieces,
				    .msg_iovlen = NUPA_WIRE_PIECES };
	uint32_t icrc = htole32(nupa_icrc_of(&wire->icrc_out, wire->out.src_port, 0, pieces, 2));
	const uint64_t now_ns = nupa_wire_is_traced(wire) ? wire->engine->now_ns() : 0;

	if (!nupa_load_acquire(&wire->joined))
		return; /* lost, as in a network: its sender's timer tells */
	pieces[2] = (struct iovec){ &icrc, sizeof(icrc) };
	if (wire->udp < 0 || shows_keeper)
		envelop(wire, &wire->out, 0, pieces, NUPA_WIRE_PIECES);
	if (wire->udp >= 0 && !leave(wire->udp, &msg))
		return;
	if (now_ns)
		nupa_wire_trace_alone(wire, now_ns, pieces);
	if (wire->udp < 0)
		return; /* the keeper counts it */
	__atomic_fetch_add(&wire->entry->sent_packets, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&wire->entry->sent_bytes,
			   pieces[0].iov_len + pieces[1].iov_len + pieces[2].iov_len,
			   __ATOMIC_RELAXED);
}

void nupa_wire_send_alone(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
			  const uint8_t *payload)
{
	send_alone(wire, packet, payload, false);
}

void nupa_wire_send_mad(struct nupa_engine *engine, uint32_t index, uint16_t pkey,
			const uint8_t *mad)
{
	struct nupa_wire *wire = find(engine, index);
	struct nupa_cm_mad read;
	struct nupa_roce_packet packet = {
		.opcode = UD_SEND_ONLY,
		.flags = NUPA_ROCE_MIGREQ,
		.pkey = pkey,
		.dqpn = NUPA_CM_GSI_QPN,
		.source_qpn = NUPA_CM_GSI_QPN,
		.qkey = NUPA_CM_GSI_QKEY,
		.payload_bytes = NUPA_CM_MAD_BYTES,
	};

	if (!wire)
		return;
	packet.psn = wire->gsi_psn++ & 0xffffff;
	/* A REP has our id of the connection, which the keeper needs should this process die. */
	send_alone(wire, &packet, mad,
		   nupa_cm_mad_read(mad, NUPA_CM_MAD_BYTES, &read) &&
		       read.attribute == NUPA_CM_REP);
}

void nupa_wire_receive_mad(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
			   const uint8_t *payload)
{
	struct nupa_engine *engine = wire->engine;
	const int index = nupa_wire_of_host(engine->fabric, wire->host);

	if (packet->opcode != UD_SEND_ONLY || packet->qkey != NUPA_CM_GSI_QKEY || index < 0 ||
	    nupa_wire_at(engine->fabric, (uint32_t)index) != wire->entry)
		return;
	/* IBTA 9.6.1.1.1 */
	if (nupa_pkey_find(engine->fabric, engine->host, (uint16_t)packet->pkey) < 0) {
		nupa_count(&engine->hw->pkey_violations, 1);
		return;
	}
	nupa_cm_receive_mad(engine, (uint32_t)index, payload, packet->payload_bytes,
			    packet->source);
}
