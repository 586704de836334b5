/* SPDX-License-Identifier: BSD-3-Clause
 * Messages out of the ring, as packets into the socket. */
#include "engine/wire/wire_internal.h"

#include <endian.h>
#include <errno.h>
#include <netinet/udp.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROUP_PACKETS 64u  /* UDP_MAX_SEGMENTS */
#define GROUP_BYTES 65000u /* an IP packet */

/* Puts the packet that is made next into the group of the one before it, if it goes with it;
 * returns its identification. */
static uint16_t join(struct nupa_wire *wire, uint32_t bytes)
{
	struct nupa_wire_group *group = wire->n_groups ? &wire->groups[wire->n_groups - 1] : NULL;

	if (wire->segments && group && group->n < GROUP_PACKETS &&
	    group->bytes == group->n * group->segment && bytes <= group->segment &&
	    group->bytes + bytes <= GROUP_BYTES) {
		group->bytes += bytes;
		return (uint16_t)group->n++;
	}
	group = &wire->groups[wire->n_groups++];
	group->first = wire->n_out;
	group->n = 1;
	group->segment = group->bytes = bytes;
	return 0;
}

static bool has_room(const struct nupa_wire *wire, uint32_t packets)
{
	return wire->n_out + packets <= NUPA_WIRE_BATCH &&
	       wire->n_bytes + packets * NUPA_WIRE_PACKET_MAX_BYTES <= NUPA_WIRE_BATCH_BYTES;
}

/* Makes a packet behind those of the batch. */
static void add(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
		const uint8_t *payload, bool repeated, struct nupa_trace_posted of)
{
	struct nupa_wire_out *out = &wire->outs[wire->n_out];
	uint8_t *bth = wire->batch + wire->n_bytes, *at = bth + nupa_roce_write(bth, packet);
	struct iovec covered = { .iov_base = bth };
	uint32_t icrc;

	if (payload)
		memcpy(at, payload, packet->payload_bytes);
	at += packet->payload_bytes;
	memset(at, 0, packet->pad_bytes);
	at += packet->pad_bytes;
	covered.iov_len = (size_t)(at - bth);
	out->at = wire->n_bytes;
	out->bytes = (uint32_t)(covered.iov_len + sizeof(icrc));
	out->repeated = repeated;
	out->of = of;
	icrc = htole32(
	    nupa_icrc_of(&wire->icrc_out, wire->out.src_port, join(wire, out->bytes), &covered, 1));
	memcpy(at, &icrc, sizeof(icrc));
	wire->n_bytes += out->bytes;
	wire->n_out++;
}

/* One message becomes none, one or two packets.  False: the ring is empty. */
static bool take(struct nupa_wire *wire)
{
	static const struct nupa_trace_posted nothing;
	struct nupa_rx *rx = &wire->rx;
	struct nupa_roce_packet packet;
	struct nupa_wire_out *out = &wire->outs[wire->n_out];
	const uint8_t *beside, *payload;
	struct nupa_msg msg;
	bool repeated;

	if (nupa_rx_take(rx, &msg, &beside) != NUPA_RX_MESSAGE)
		return false;
	out[0].head = out[1].head = rx->head;
	out[0].dma_head = out[1].dma_head = rx->dma_head;
	if (nupa_wire_packet(wire, &msg, beside, &packet, &payload, &repeated))
		add(wire, &packet, payload, repeated,
		    nupa_wire_is_traced(wire) ? nupa_trace_posted(wire->channel, rx->head)
					      : nothing);
	/* Behind it: so the kernel takes both at once. */
	if (nupa_wire_acknowledgement(wire, &msg, &packet))
		add(wire, &packet, NULL, false, nothing);
	rx->head++; /* published when the batch is sent: until then it may be put back */
	rx->dma_head += rx->dma_pending;
	return true;
}

static void count_sent(struct nupa_wire *wire, uint32_t groups)
{
	uint64_t bytes = 0, packets = 0, repeated = 0;

	for (uint32_t i = 0; i < groups; i++) {
		bytes += wire->groups[i].bytes;
		packets += wire->groups[i].n;
	}
	for (uint64_t i = 0; i < packets; i++)
		repeated += wire->outs[i].repeated;
	if (repeated)
		__atomic_fetch_add(&wire->entry->retransmitted, repeated, __ATOMIC_RELAXED);
	nupa_wire_measure(wire, bytes);
	__atomic_fetch_add(&wire->entry->sent_packets, packets, __ATOMIC_RELAXED);
	__atomic_fetch_add(&wire->entry->sent_bytes, bytes, __ATOMIC_RELAXED);
}

static void set_headers(struct nupa_wire *wire)
{
	for (uint32_t i = 0; i < wire->n_groups; i++) {
		struct nupa_wire_group *group = &wire->groups[i];
		struct msghdr *header = &wire->out_headers[i].msg_hdr;

		group->piece =
		    (struct iovec){ wire->batch + wire->outs[group->first].at, group->bytes };
		*header = (struct msghdr){
			.msg_name = &wire->to,
			.msg_namelen = wire->ipv4 ? sizeof(wire->to.v4) : sizeof(wire->to.v6),
			.msg_iov = &group->piece,
			.msg_iovlen = 1,
		};
		if (group->n == 1)
			continue;
		group->control.header = (struct cmsghdr){ .cmsg_level = SOL_UDP,
							  .cmsg_type = UDP_SEGMENT,
							  .cmsg_len = CMSG_LEN(sizeof(uint16_t)) };
		memcpy(CMSG_DATA(&group->control.header), &(uint16_t){ (uint16_t)group->segment },
		       sizeof(uint16_t));
		header->msg_control = &group->control;
		header->msg_controllen = sizeof(group->control);
	}
}

/* By the keeper, which puts them into frames: as sendmmsg. */
static int send_kept(struct nupa_wire *wire, uint32_t from)
{
	struct nupa_wire_envelope envelope = { .src_port = wire->out.src_port,
					       .tos = wire->out.tos,
					       .ttl = wire->out.ttl };
	uint32_t n = from;

	memcpy(envelope.src, wire->out.src, sizeof(envelope.src));
	memcpy(envelope.dst, wire->out.dst, sizeof(envelope.dst));
	for (; n < wire->n_groups; n++) {
		struct iovec pieces[] = { { &envelope, sizeof(envelope) }, wire->groups[n].piece };
		const struct msghdr msg = { .msg_iov = pieces, .msg_iovlen = 2 };

		envelope.bytes = wire->groups[n].bytes;
		if (sendmsg(wire->keeper, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	}
	return n > from ? (int)(n - from) : -1;
}

static int send_some(struct nupa_wire *wire, uint32_t from)
{
	if (wire->frames)
		return send_kept(wire, from);
	/* Not by libc: neither its cancellation nor our shim is for this socket. */
	return (int)syscall(SYS_sendmmsg, wire->udp, wire->out_headers + from,
			    wire->n_groups - from, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What is left of the batch goes back into the ring. */
static void put_back(struct nupa_wire *wire, uint32_t group)
{
	const struct nupa_wire_out *out = &wire->outs[wire->groups[group].first];

	wire->rx.head = out->head;
	wire->rx.dma_head = out->dma_head;
}

/* Where the kernel cannot segment: IPsec, or an interface that has no checksums of its own. */
static bool cannot_segment(const struct nupa_wire *wire, uint32_t group)
{
	return wire->groups[group].n > 1 &&
	       (errno == EIO || errno == EINVAL || errno == EMSGSIZE || errno == ENOPROTOOPT);
}

/* False: some of it went back into the ring. */
static bool send_batch(struct nupa_wire *wire)
{
	uint32_t done = 0, all = wire->n_groups;

	set_headers(wire);
	while (done < all) {
		const uint64_t now_ns = nupa_wire_is_traced(wire) ? wire->engine->now_ns() : 0;
		const int n = send_some(wire, done);

		if (n > 0) {
			if (now_ns)
				nupa_wire_trace_sent(wire, done, done + (uint32_t)n, now_ns);
			done += (uint32_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN || errno == EWOULDBLOCK || cannot_segment(wire, done)) {
			const bool full = errno == EAGAIN || errno == EWOULDBLOCK;

			nupa_store_relaxed(&wire->blocked, full); /* the thread looks */
			wire->segments &= full;
			put_back(wire, done);
			break;
		}
		/* The network's word: the packet is lost, and the timer tells. */
		__atomic_fetch_add(&wire->entry->refused, 1, __ATOMIC_RELAXED);
		done++;
	}
	count_sent(wire, done);
	wire->n_out = wire->n_groups = wire->n_bytes = 0;
	nupa_rx_publish(&wire->rx);
	return done == all;
}

void nupa_wire_flush(struct nupa_wire *wire)
{
	bool more = true;

	if (!wire->channel || !nupa_load_acquire(&wire->joined))
		return;
	nupa_store_relaxed(&wire->blocked, false);
	while (more && !wire->blocked) {
		while (more && has_room(wire, 2))
			more = take(wire);
		if (!send_batch(wire))
			more = true;
	}
}
