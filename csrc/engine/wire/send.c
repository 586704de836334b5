/* SPDX-License-Identifier: BSD-3-Clause
 * Messages out of the ring, as packets into the socket. */
#include "engine/wire/wire_internal.h"

#include <errno.h>

/* Puts a packet into the batch; its payload stays where it is until the batch is sent. */
static void add(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
		const uint8_t *payload)
{
	struct nupa_wire_out *out = &wire->outs[wire->n_out];
	struct mmsghdr *header = &wire->out_headers[wire->n_out++];
	uint32_t icrc, n = 1;

	out->pieces[0] = (struct iovec){ out->headers, nupa_roce_write(out->headers, packet) };
	if (packet->payload_bytes)
		out->pieces[n++] =
		    (struct iovec){ (void *)(uintptr_t)payload, packet->payload_bytes };
	out->pieces[n] = (struct iovec){ out->tail, packet->pad_bytes };
	memset(out->tail, 0, sizeof(out->tail));
	icrc =
	    htole32(nupa_icrc_of(&wire->icrc_out, wire->out.src_port, 0, out->pieces, (int)n + 1));
	memcpy(out->tail + packet->pad_bytes, &icrc, sizeof(icrc));
	out->pieces[n++].iov_len += sizeof(icrc);
	out->bytes = 0;
	for (uint32_t i = 0; i < n; i++)
		out->bytes += (uint32_t)out->pieces[i].iov_len;
	header->msg_hdr = (struct msghdr){
		.msg_name = &wire->to,
		.msg_namelen = wire->ipv4 ? sizeof(wire->to.v4) : sizeof(wire->to.v6),
		.msg_iov = out->pieces,
		.msg_iovlen = n,
	};
}

/* One message becomes none, one or two packets.  False: the ring is empty. */
static bool take(struct nupa_wire *wire)
{
	struct nupa_rx *rx = &wire->rx;
	struct nupa_roce_packet packet;
	struct nupa_wire_out *out = &wire->outs[wire->n_out];
	const uint8_t *beside, *payload;
	const uint64_t head = rx->head, dma_head = rx->dma_head;

	if (nupa_rx_take(rx, &out->msg, &beside) != NUPA_RX_MESSAGE)
		return false;
	out->head = head;
	out->dma_head = dma_head;
	if (nupa_wire_acknowledgement(wire, &out->msg, &packet)) {
		struct nupa_wire_out *next = out + 1;

		next->msg = out->msg;
		next->head = head;
		next->dma_head = dma_head;
		add(wire, &packet, NULL);
		out = next;
	}
	if (nupa_wire_packet(wire, &out->msg, beside, &packet, &payload))
		add(wire, &packet, payload);
	rx->head++; /* published when the batch is sent: until then the payloads are ours */
	rx->dma_head += rx->dma_pending;
	return true;
}

static void count_sent(struct nupa_wire *wire, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += wire->outs[i].bytes;
	nupa_wire_measure(wire, bytes);
	__atomic_fetch_add(&wire->entry->sent_packets, n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&wire->entry->sent_bytes, bytes, __ATOMIC_RELAXED);
}

/* By the keeper, which puts them into frames: as sendmmsg. */
static int send_kept(struct nupa_wire *wire, uint32_t from)
{
	struct nupa_wire_envelope envelope = { .src_port = NUPA_WIRE_UDP_PORT,
					       .tos = NUPA_WIRE_ECN_CAPABLE,
					       .ttl = NUPA_WIRE_TTL };
	uint32_t n = from;

	memcpy(envelope.src, wire->out.src, sizeof(envelope.src));
	memcpy(envelope.dst, wire->out.dst, sizeof(envelope.dst));
	for (; n < wire->n_out; n++) {
		const struct msghdr *packet = &wire->out_headers[n].msg_hdr;
		struct iovec pieces[NUPA_WIRE_PIECES + 1] = { { &envelope, sizeof(envelope) } };
		const struct msghdr msg = { .msg_iov = pieces,
					    .msg_iovlen = packet->msg_iovlen + 1 };

		memcpy(pieces + 1, packet->msg_iov, packet->msg_iovlen * sizeof(pieces[0]));
		envelope.bytes = wire->outs[n].bytes;
		if (sendmsg(wire->keeper, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	}
	return n > from ? (int)(n - from) : -1;
}

static int send_some(struct nupa_wire *wire, uint32_t from)
{
	if (wire->frames)
		return send_kept(wire, from);
	return sendmmsg(wire->udp, wire->out_headers + from, wire->n_out - from,
			MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* False: the socket is full, and what is left goes back into the ring. */
static bool send_batch(struct nupa_wire *wire)
{
	uint32_t done = 0;

	while (done < wire->n_out) {
		const int n = send_some(wire, done);

		if (n > 0) {
			done += (uint32_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
			wire->rx.head = wire->outs[done].head;
			wire->rx.dma_head = wire->outs[done].dma_head;
			wire->blocked = true;
			break;
		}
		/* The network's word: the packet is lost, and the timer tells. */
		__atomic_fetch_add(&wire->entry->refused, 1, __ATOMIC_RELAXED);
		done++;
	}
	count_sent(wire, done);
	wire->n_out = 0;
	nupa_rx_publish(&wire->rx);
	return !wire->blocked;
}

void nupa_wire_flush(struct nupa_wire *wire)
{
	bool more = true;

	if (!wire->channel)
		return;
	wire->blocked = false;
	while (more) {
		while (more && wire->n_out + 2 <= NUPA_WIRE_BATCH)
			more = take(wire);
		if (!send_batch(wire))
			return;
	}
}
