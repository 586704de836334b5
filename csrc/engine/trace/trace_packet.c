/* SPDX-License-Identifier: BSD-3-Clause
 * Records of what is a packet already: frames of the netdev, packets of wires. */
#include "engine/trace/trace_internal.h"

/* --- frames -------------------------------------------------------------------------- */

#define VNET_BYTES 12u /* struct virtio_net_hdr_v1: flags, type, then 16 bits each */

void nupa_trace_frame(struct nupa_engine *engine, uint32_t dest_host, const uint8_t *frame,
		      uint32_t bytes)
{
	struct nupa_trace_frame body = { 0 };
	struct nupa_trace_record *record;
	struct nupa_span span;
	uint16_t words[5]; /* hdr_len, gso_size, csum_start, csum_offset, num_buffers */
	uint32_t kept;

	if (bytes <= VNET_BYTES)
		return;
	bytes -= VNET_BYTES;
	memcpy(words, frame + 2, sizeof(words));
	body.flags = frame[0];
	body.gso_type = frame[1];
	body.gso_bytes = words[1];
	body.csum_start = words[2];
	body.csum_offset = words[3];
	body.data = nupa_trace_plan(engine, bytes, bytes);
	kept = nupa_trace_kept_bytes(&body.data);
	span = (struct nupa_span){ (uint8_t *)(uintptr_t)frame + VNET_BYTES, bytes };
	record = nupa_trace_begin(engine, NUPA_TRACE_FRAME, (uint32_t)sizeof(body) + kept,
				  engine->now_ns());
	memcpy(record + 1, &body, sizeof(body));
	record->peer = (uint16_t)(dest_host + 1);
	record->data_bytes = kept;
	nupa_trace_keep((uint8_t *)(record + 1) + sizeof(body), &body.data, &span, 1, 0);
	nupa_trace_end(engine);
}

/* --- wires --------------------------------------------------------------------------- */

static struct nupa_trace_posted *place_of(const struct nupa_channel *channel, uint64_t line)
{
	return &channel->posted[line & (channel->tx.n_lines - 1)];
}

void nupa_trace_note(const struct nupa_channel *channel, const struct nupa_qp *qp)
{
	if (!channel->posted)
		return;
	*place_of(channel, channel->tx.tail) = (struct nupa_trace_posted){
		.transfer = NUPA_TRANSFER(qp->ibv.qp_num, qp->sq.issued),
		.line = (uint32_t)channel->tx.tail + 1,
		.flags = nupa_trace_is_again(qp),
	};
}

struct nupa_trace_posted nupa_trace_posted(const struct nupa_channel *channel, uint64_t line)
{
	static const struct nupa_trace_posted none;
	const struct nupa_trace_posted *found =
	    channel && channel->posted ? place_of(channel, line) : &none;

	return found->line == (uint32_t)line + 1 ? *found : none;
}

void nupa_trace_packet(struct nupa_engine *engine, const struct nupa_trace_packet *packet,
		       struct nupa_trace_posted of, uint64_t time_ns, const struct iovec *pieces,
		       uint32_t n_pieces)
{
	struct nupa_span spans[NUPA_TRACE_PIECES_MAX];
	struct nupa_trace_packet body = *packet;
	struct nupa_trace_record *record;
	uint32_t bytes = 0, kept;

	for (uint32_t i = 0; i < n_pieces; i++) {
		spans[i] = (struct nupa_span){ pieces[i].iov_base, (uint32_t)pieces[i].iov_len };
		bytes += (uint32_t)pieces[i].iov_len;
	}
	body.data = nupa_trace_plan(engine, bytes, bytes);
	kept = nupa_trace_kept_bytes(&body.data);
	record =
	    nupa_trace_begin(engine, NUPA_TRACE_PACKET, (uint32_t)sizeof(body) + kept, time_ns);
	memcpy(record + 1, &body, sizeof(body));
	record->flags = of.flags;
	record->transfer = of.transfer;
	record->data_bytes = kept;
	nupa_trace_keep((uint8_t *)(record + 1) + sizeof(body), &body.data, spans, n_pieces, 0);
	nupa_trace_end(engine);
}
