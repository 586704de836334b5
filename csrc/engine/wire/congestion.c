/* SPDX-License-Identifier: BSD-3-Clause
 * Congestion on the way (IBTA A17.9, RFC 3168): our packets say that they may be marked, marked
 * ones are answered by notifications, and notified QPs slow down. */
#include "engine/transport/congestion.h"
#include "engine/wire/wire_internal.h"

#define OPCODE_CNP 0x81u
#define ECN_BITS 3u
#define MEASURED_BYTES 262144u
#define PAUSE_NS 10000000u /* behind one, what was sent before tells nothing of the rate */

void nupa_wire_say_capable(int fd, bool ipv4)
{
	const int on = 1, capable = NUPA_WIRE_ECN_CAPABLE;

	/* Without these there are no marks, and losses tell of congestion. */
	if (ipv4) {
		(void)setsockopt(fd, IPPROTO_IP, IP_TOS, &capable, sizeof(capable));
		(void)setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on));
	} else {
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &capable, sizeof(capable));
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof(on));
	}
}

uint8_t nupa_wire_tos(struct msghdr *msg)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(msg); at; at = CMSG_NXTHDR(msg, at)) {
		int class;

		if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS)
			return *CMSG_DATA(at);
		if (at->cmsg_level != IPPROTO_IPV6 || at->cmsg_type != IPV6_TCLASS)
			continue;
		memcpy(&class, CMSG_DATA(at), sizeof(class));
		return (uint8_t) class;
	}
	return 0;
}

void nupa_wire_measure(struct nupa_wire *wire, uint64_t bytes)
{
	const uint64_t now_ns = wire->engine->now_ns();

	if (now_ns - wire->sent_ns > PAUSE_NS) {
		wire->measured_ns = now_ns;
		wire->measured_bytes = 0;
	}
	wire->sent_ns = now_ns;
	wire->measured_bytes += bytes;
	if (wire->measured_bytes < MEASURED_BYTES)
		return;
	if (now_ns > wire->measured_ns)
		wire->bytes_per_s =
		    wire->measured_bytes * 1000000000ull / (now_ns - wire->measured_ns);
	wire->measured_ns = now_ns;
	wire->measured_bytes = 0;
}

/* Bytes a second that leave; before enough of them have left, of those that have; 0: not known. */
static uint64_t rate(const struct nupa_wire *wire)
{
	const uint64_t now_ns = wire->engine->now_ns();

	if (wire->bytes_per_s || now_ns <= wire->measured_ns)
		return wire->bytes_per_s;
	return wire->measured_bytes * 1000000000ull / (now_ns - wire->measured_ns);
}

/* The QP of a packet that is the other end's business; NULL: there is none. */
static struct nupa_qp *qp_of(const struct nupa_wire *wire, const struct nupa_roce_packet *packet)
{
	struct nupa_qp *qp = nupa_qp_find(wire->engine, packet->dqpn);

	if (!qp || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE)
		return NULL;
	return qp->type == IBV_QPT_UD || qp->dest_host == wire->host ? qp : NULL;
}

static void answer_mark(struct nupa_wire *wire, const struct nupa_roce_packet *packet)
{
	struct nupa_qp *qp = qp_of(wire, packet);
	struct nupa_congestion *congestion = qp ? nupa_pace_congestion(qp) : NULL;
	const struct nupa_roce_packet cnp = {
		.opcode = OPCODE_CNP,
		.flags = NUPA_ROCE_MIGREQ | NUPA_ROCE_BECN,
		.pkey = (uint16_t)packet->pkey,
		.dqpn = qp && qp->type != IBV_QPT_UD ? qp->dest_qpn : packet->source_qpn,
	};

	__atomic_fetch_add(&wire->entry->ecn_marked, 1, __ATOMIC_RELAXED);
	if (!congestion || !nupa_congestion_marked(congestion, wire->engine->now_ns()))
		return;
	nupa_wire_send_alone(wire, &cnp, NULL);
	__atomic_fetch_add(&wire->entry->cnp_sent, 1, __ATOMIC_RELAXED);
}

bool nupa_wire_congested(struct nupa_wire *wire, const struct nupa_roce_packet *packet)
{
	struct nupa_qp *qp;

	if (packet->opcode != OPCODE_CNP) {
		if ((packet->traffic_class & ECN_BITS) == ECN_BITS)
			answer_mark(wire, packet);
		return false;
	}
	qp = qp_of(wire, packet);
	if (qp) {
		nupa_pace_slow_down(qp, rate(wire));
		__atomic_fetch_add(&wire->entry->cnp_handled, 1, __ATOMIC_RELAXED);
	}
	return true;
}
