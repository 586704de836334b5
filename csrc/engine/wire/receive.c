/* SPDX-License-Identifier: BSD-3-Clause
 * Packets out of the sockets, to the judges.  All of it is hostile until it is checked. */
#include "engine/inject/inject_engine.h"
#include "engine/cm/wire/mad.h"
#include "engine/wire/wire_internal.h"

#include <netinet/udp.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DATAGRAMS_MOST 8u /* taken in one turn */

/* IBTA A17.9.3: only what the other end of the wire sends. */
static bool is_from_there(const struct nupa_wire *wire, const struct nupa_wire_in *in)
{
	if (wire->ipv4)
		return in->from.v4.sin_family == AF_INET &&
		       in->from.v4.sin_addr.s_addr == wire->to.v4.sin_addr.s_addr;
	return in->from.v6.sin6_family == AF_INET6 &&
	       !memcmp(&in->from.v6.sin6_addr, &wire->to.v6.sin6_addr, 16);
}

/* A packet of another process that came by our socket, as the kernel knew no better. */
static bool is_ours(const struct nupa_wire *wire, const struct nupa_roce_packet *packet)
{
	return nupa_qpn_slot(&wire->engine->fabric->geometry, packet->dqpn) ==
	       wire->engine->slot_index;
}

/* As the sender of a fabric counts: all but acknowledgements. */
static void count_received(struct nupa_wire *wire, const struct nupa_roce_packet *packet)
{
	const struct nupa_opcode opcode = nupa_opcode(packet->opcode);

	if (opcode.request || opcode.payload || opcode.headers != NUPA_HEADER_AETH)
		nupa_flow_rcv(wire->channel, packet->payload_bytes);
}

/* Whether the n-th of the packets that came in one ends with its ICRC (packet/raw.h); *path*, that
 * of the first, gets its identification. */
static bool is_right(const struct nupa_wire *wire, struct nupa_roce_path *path, uint32_t nth,
		     const uint8_t *bytes, uint32_t n)
{
	const uint16_t first = path->identification;

	path->identification = (uint16_t)(first + nth);
	return nupa_icrc_find(&wire->icrc_in, path->src_port, bytes, n, &path->identification) &&
	       (!wire->ipv4 || path->identification == first ||
		path->identification == (uint16_t)(first + nth));
}

/* *nth*: its place among those that came in one. */
static void judge(struct nupa_wire *wire, struct nupa_roce_path *path, bool kept, bool identified,
		  uint32_t nth, const uint8_t *bytes, uint32_t n)
{
	struct nupa_roce_packet packet;
	const uint8_t *payload;
	bool valid;

	if (!nupa_roce_read(bytes, n, &packet, &payload)) {
		__atomic_fetch_add(&wire->entry->malformed, 1, __ATOMIC_RELAXED);
		if (nupa_wire_is_traced(wire))
			nupa_wire_trace_came(wire, path, identified, NULL, bytes, n);
		return;
	}
	memcpy(packet.source, path->src, sizeof(packet.source));
	memcpy(packet.destination, path->dst, sizeof(packet.destination));
	packet.traffic_class = path->tos;
	packet.hop_limit = path->ttl;
	if (identified ? is_right(wire, path, nth, bytes, n)
		       : nupa_icrc_expected(&wire->sender, &wire->icrc_in, path->src_port,
					    (uint16_t)nth, bytes, n))
		packet.flags |= NUPA_ROCE_ICRC_RIGHT;
	else
		__atomic_fetch_add(&wire->entry->icrc_errors, 1, __ATOMIC_RELAXED);
	/* An invalid request is answered by a NAK; nothing answers an invalid answer. */
	valid = nupa_opcode(packet.opcode).request || nupa_roce_valid(&packet);
	/* The keeper records what comes for QP 1: we may end before we read it. */
	if (nupa_wire_is_traced(wire) && !(kept && packet.dqpn == NUPA_CM_GSI_QPN) &&
	    (kept || !valid || is_ours(wire, &packet)))
		nupa_wire_trace_came(wire, path, identified,
				     valid && packet.flags & NUPA_ROCE_ICRC_RIGHT ? &packet : NULL,
				     bytes, n);
	if (!valid) {
		__atomic_fetch_add(&wire->entry->malformed, 1, __ATOMIC_RELAXED);
		return;
	}
	if (is_ours(wire, &packet)) {
		count_received(wire, &packet);
		if (!(packet.flags & NUPA_ROCE_ICRC_RIGHT) || !nupa_wire_congested(wire, &packet))
			(void)nupa_inject_by_wire(wire->engine, wire->host, &packet, payload);
	} else if (!kept) {
		nupa_wire_hand_over(wire, path, identified, bytes, n);
	} else if (packet.dqpn == NUPA_CM_GSI_QPN && packet.flags & NUPA_ROCE_ICRC_RIGHT) {
		nupa_wire_receive_mad(wire, &packet, payload);
	}
}

/* How long the packets are of which the kernel has made one datagram; the last one may be shorter.
 */
static uint32_t segment_bytes(struct msghdr *header, uint32_t bytes)
{
	int segment = 0;

	for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at))
		if (at->cmsg_level == SOL_UDP && at->cmsg_type == UDP_GRO &&
		    at->cmsg_len == CMSG_LEN(sizeof(segment)))
			memcpy(&segment, CMSG_DATA(at), sizeof(segment));
	return segment > 0 && (uint32_t)segment < bytes ? (uint32_t)segment : bytes;
}

static bool read_udp(const struct nupa_wire *wire, const struct nupa_wire_in *in,
		     struct msghdr *header, uint32_t n, struct nupa_packets *came)
{
	*came = (struct nupa_packets){ wire->in, in->bytes, n, segment_bytes(header, n) };
	came->path.tos = nupa_wire_tos(header);
	came->path.src_port = ntohs(wire->ipv4 ? in->from.v4.sin_port : in->from.v6.sin6_port);
	return n && !(header->msg_flags & MSG_TRUNC);
}

/* Returns how many packets it was, and adds up their bytes. */
static uint32_t take_datagram(struct nupa_wire *wire, struct msghdr *header, uint32_t length,
			      uint64_t *bytes)
{
	const struct nupa_wire_in *in = &wire->in_datagram;
	const bool identified = wire->raw >= 0; /* and from there: it has a filter */
	struct nupa_packets came;
	uint32_t n = 0;

	if (!identified && !is_from_there(wire, in)) {
		__atomic_fetch_add(&wire->entry->foreign, 1, __ATOMIC_RELAXED);
		return 1;
	}
	if (identified ? !nupa_raw_read(header, length, &came)
		       : !read_udp(wire, in, header, length, &came)) {
		__atomic_fetch_add(&wire->entry->malformed, 1, __ATOMIC_RELAXED);
		return 1;
	}
	*bytes += came.n;
	for (uint32_t at = 0; at < came.n && wire->channel; at += came.segment, n++) {
		struct nupa_roce_path path = came.path;

		judge(wire, &path, false, identified, n, came.bytes + at,
		      came.segment < came.n - at ? came.segment : came.n - at);
	}
	return n;
}

/* More than one datagram only where the last turns have found one each: to see that there is no
 * other costs as much as to take it. */
uint32_t nupa_wire_receive(struct nupa_wire *wire)
{
	const int fd = wire->raw < 0 ? wire->udp : wire->raw;
	const uint32_t most = wire->came ? DATAGRAMS_MOST : 1;
	struct nupa_wire_in *in = &wire->in_datagram;
	uint32_t packets = 0, n = 0;
	uint64_t bytes = 0;

	for (; n < most && fd >= 0 && wire->channel; n++) {
		struct iovec piece = { in->bytes, sizeof(in->bytes) };
		struct msghdr header = { .msg_name = &in->from,
					 .msg_namelen = sizeof(in->from),
					 .msg_control = &in->control,
					 .msg_controllen = sizeof(in->control),
					 .msg_iov = &piece,
					 .msg_iovlen = 1 };
		/* As in send.c, not by libc. */
		const long length = syscall(SYS_recvmsg, fd, &header, MSG_DONTWAIT);

		if (length < 0)
			break;
		packets += take_datagram(wire, &header, (uint32_t)length, &bytes);
	}
	wire->came = n;
	if (!n)
		return 0;
	__atomic_fetch_add(&wire->entry->received_packets, packets, __ATOMIC_RELAXED);
	__atomic_fetch_add(&wire->entry->received_bytes, bytes, __ATOMIC_RELAXED);
	return packets;
}

uint32_t nupa_wire_receive_kept(struct nupa_wire *wire)
{
	struct {
		struct nupa_wire_envelope envelope;
		uint8_t bytes[NUPA_WIRE_PACKET_MAX_BYTES];
	} came;
	uint32_t taken = 0;

	while (taken < NUPA_WIRE_BATCH && wire->channel) {
		const ssize_t n = recv(wire->keeper, &came, sizeof(came), MSG_DONTWAIT);
		struct nupa_roce_path path = wire->in;

		if (n <= 0)
			break;
		taken++;
		if ((size_t)n < sizeof(came.envelope) ||
		    came.envelope.bytes != (size_t)n - sizeof(came.envelope))
			continue;
		memcpy(path.src, came.envelope.src, sizeof(path.src));
		memcpy(path.dst, came.envelope.dst, sizeof(path.dst));
		if (memcmp(path.src, wire->in.src, sizeof(path.src)) != 0)
			continue;
		path.src_port = came.envelope.src_port;
		path.identification = came.envelope.identification;
		path.tos = came.envelope.tos;
		path.ttl = came.envelope.ttl;
		judge(wire, &path, true, came.envelope.flags & NUPA_WIRE_IDENTIFIED, 0, came.bytes,
		      came.envelope.bytes);
	}
	return taken;
}
