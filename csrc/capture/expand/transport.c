/* SPDX-License-Identifier: BSD-3-Clause
 * Messages as packets of InfiniBand's transport. */
#include "capture/expand/expand.h"

/* AETH, IBTA 9.7.5.2: the upper bits of NAKs. */
#define RNR_SYNDROME 0x20
#define NAK_SYNDROME 0x60

/* Facts about a message that the record does not have. */
struct message {
	const struct nupa_trace_record *record;
	const struct nupa_trace_message *body;
	const struct nupa_msg *msg;
	uint32_t source, from, to; /* slot, hosts */
	uint16_t flags;
	uint8_t transport;
	bool received;
};

/* Its line; ends: the transfer with it. */
static void add_line(struct nupa_watch *watch, const struct message *m, uint64_t transfer,
		     bool ends)
{
	nupa_cache_message(watch, m->record, m->source, m->from, m->to, transfer, ends);
}

/* --- answers ------------------------------------------------------------------------- */

/* The transfer that it acknowledges; 0: none. */
static uint64_t add_ack(struct nupa_watch *watch, const struct message *m, uint32_t ack_psn)
{
	struct nupa_sent guess;
	const struct nupa_sent *sent =
	    nupa_requester_find(watch, m->msg->dest_qpn, ack_psn, &guess);
	struct nupa_run *run;

	if (m->transport == NUPA_TRANSPORT_UC || m->transport == NUPA_TRANSPORT_UD ||
	    sent->transport == NUPA_TRANSPORT_UC)
		return 0; /* the engine's own business */
	run = nupa_roce_add(watch, NUPA_ROCE_ACK, sent->transfer, m->flags);
	run->cast.ends_transfer = true;
	run->roce.transport = sent->transport ? sent->transport : m->transport;
	run->roce.syndrome = NUPA_ACK_SYNDROME;
	run->roce.pkey = m->body->pkey;
	run->roce.src_qpn = m->msg->src_qpn;
	run->roce.dest_qpn = m->msg->dest_qpn;
	run->roce.psn = sent->wire_last;
	run->roce.msn = sent->msn;
	nupa_roce_join(watch, run, m->from, m->to, m->received);
	return sent->transfer;
}

static void add_nak(struct nupa_watch *watch, const struct message *m)
{
	const struct nupa_msg *msg = m->msg;
	struct nupa_sent guess;
	const struct nupa_sent *sent = nupa_requester_find(watch, msg->dest_qpn, msg->psn, &guess);
	struct nupa_run *run;

	if (msg->syndrome >= NUPA_NAK_NOT_READY || m->transport == NUPA_TRANSPORT_UC) {
		add_line(watch, m, sent->transfer, false);
		return; /* silence */
	}
	run = nupa_roce_add(watch, NUPA_ROCE_ACK, sent->transfer, m->flags);
	run->cast.ends_transfer = msg->syndrome != NUPA_NAK_RNR && msg->syndrome != NUPA_NAK_PSN;
	run->roce.transport = sent->transport ? sent->transport : m->transport;
	run->roce.syndrome = msg->syndrome == NUPA_NAK_RNR
				 ? (uint8_t)(RNR_SYNDROME | (msg->timer & 31))
				 : (uint8_t)(NAK_SYNDROME | msg->syndrome);
	run->roce.pkey = m->body->pkey;
	run->roce.src_qpn = msg->src_qpn;
	run->roce.dest_qpn = msg->dest_qpn;
	run->roce.psn = sent->wire_psn;
	run->roce.msn = sent == &guess || !sent->msn ? sent->msn : sent->msn - 1;
	nupa_roce_join(watch, run, m->from, m->to, m->received);
	add_line(watch, m, sent->transfer, run->cast.ends_transfer);
}

static bool add_response(struct nupa_watch *watch, const struct message *m)
{
	const struct nupa_msg *msg = m->msg;
	const struct nupa_trace_data *data = &m->body->data;
	struct nupa_sent guess;
	const struct nupa_sent *sent = nupa_requester_find(watch, msg->dest_qpn, msg->psn, &guess);
	const bool atomic = msg->op == NUPA_OP_ATOMIC_RESP;
	/* A19.4.4: the answer to FLUSH and ATOMIC WRITE is that of a READ without data. */
	const bool fetches = atomic && sent->atomic < NUPA_ATOMIC_WRITE;
	struct nupa_run *run;

	if (!atomic &&
	    (msg->total_bytes > NUPA_MSG_MAX_BYTES || msg->offset_bytes > msg->total_bytes ||
	     data->total_bytes > msg->total_bytes - msg->offset_bytes))
		return false;
	run = nupa_roce_add(watch, fetches ? NUPA_ROCE_ATOMIC_ACK : NUPA_ROCE_READ_RESPONSE,
			    sent->transfer, m->flags);
	run->roce.transport = sent->transport ? sent->transport : m->transport;
	run->roce.syndrome = NUPA_ACK_SYNDROME;
	run->roce.pkey = m->body->pkey;
	run->roce.src_qpn = msg->src_qpn;
	run->roce.dest_qpn = msg->dest_qpn;
	run->roce.psn = sent->wire_psn;
	run->roce.msn = sent->msn;
	run->roce.original = msg->original;
	if (!atomic) {
		nupa_roce_set_data(&run->roce, data, m->record, m->body + 1);
		run->n = (uint32_t)nupa_packets_of(data->total_bytes, data->mtu_bytes);
		run->roce.psn += (uint32_t)(msg->offset_bytes / data->mtu_bytes);
		run->roce.begins = !msg->offset_bytes;
		run->roce.ends = msg->offset_bytes + data->total_bytes == msg->total_bytes;
	}
	run->cast.ends_transfer = run->roce.ends;
	nupa_roce_join(watch, run, m->from, m->to, m->received);
	nupa_tlp_response(watch, m->record, m->from, m->to, sent);
	add_line(watch, m, sent->transfer, run->cast.ends_transfer);
	return true;
}

/* --- requests ------------------------------------------------------------------------ */

/* A group's address, where it is one of IPv4, and its Ethernet address. */
static void address_group(struct nupa_run *run, const uint8_t mgid[16])
{
	uint8_t *head = run->roce.head;
	uint32_t old = (uint32_t)head[30] << 8 | head[31], now;
	uint8_t ip[4];

	old += (uint32_t)head[32] << 8 | head[33];
	memcpy(ip, mgid + 12, 4);
	ip[0] = 0xe0 | (ip[0] & 0x0f);
	now = ((uint32_t)ip[0] << 8 | ip[1]) + ((uint32_t)ip[2] << 8 | ip[3]);
	memcpy(head + 30, ip, 4);
	memcpy(head, (uint8_t[]){ 0x01, 0x00, 0x5e, ip[1] & 0x7f, ip[2], ip[3] }, 6);
	run->roce.ip_sum = run->roce.ip_sum - old + now;
	run->roce.dest_qpn = 0xffffff;
}

/* The engine sends a copy to each member; the source's port has seen the first one only. */
static bool is_copy(struct nupa_watch *watch, const struct nupa_msg *msg)
{
	bool copy = watch->group_qpn == msg->src_qpn && watch->group_psn == msg->psn;

	watch->group_qpn = msg->src_qpn;
	watch->group_psn = msg->psn;
	return copy;
}

static bool add_datagram(struct nupa_watch *watch, const struct message *m)
{
	const struct nupa_msg *msg = m->msg;
	struct nupa_run *run;

	if (msg->op != NUPA_OP_SEND || m->body->data.total_bytes > NUPA_MTU_BYTES)
		return false;
	run = nupa_roce_add(watch, NUPA_ROCE_SEND, m->record->transfer, m->flags);
	run->cast.ends_transfer = true;
	run->roce.transport = NUPA_TRANSPORT_UD;
	run->roce.solicited = msg->flags & NUPA_F_SOLICITED;
	run->roce.with_imm = msg->flags & NUPA_F_IMM;
	run->roce.imm = msg->imm;
	run->roce.pkey = m->body->pkey;
	run->roce.src_qpn = msg->src_qpn;
	run->roce.dest_qpn = msg->dest_qpn;
	run->roce.qkey = msg->deth.qkey;
	run->roce.psn = msg->psn & NUPA_PSN_MASK;
	nupa_roce_set_data(&run->roce, &m->body->data, m->record, m->body + 1);
	run->roce.mtu_bytes = NUPA_MTU_BYTES;
	nupa_roce_join(watch, run, m->from, m->to, m->received);
	if (msg->deth.is_global == NUPA_DETH_MULTICAST) {
		address_group(run, msg->ud_data);
		if (!m->received && is_copy(watch, msg))
			nupa_sights_drop_outbound(&run->cast);
	}
	nupa_tlp_request(watch, m->record, m->from, m->to, m->record->transfer);
	add_line(watch, m, m->record->transfer, true);
	return true;
}

static void fill_request(struct nupa_roce *roce, const struct message *m)
{
	const struct nupa_msg *msg = m->msg;

	roce->transport = m->transport;
	roce->begins = msg->flags & NUPA_F_FIRST;
	roce->ends = msg->flags & NUPA_F_LAST;
	roce->asks = m->transport != NUPA_TRANSPORT_UC;
	roce->solicited = msg->flags & NUPA_F_SOLICITED;
	roce->with_imm = msg->flags & NUPA_F_IMM;
	roce->with_inv = msg->flags & NUPA_F_INV;
	roce->imm = msg->imm;
	roce->pkey = m->body->pkey;
	roce->src_qpn = msg->src_qpn;
	roce->dest_qpn = msg->dest_qpn;
	roce->srqn = msg->ack_psn;
	if (msg->op == NUPA_OP_ATOMIC) {
		roce->atomic = (uint8_t)msg->atomic.kind & 3;
		roce->raddr = msg->atomic.raddr;
		roce->rkey = msg->atomic.rkey;
		roce->compare_add = msg->atomic.compare_add;
		roce->swap = msg->atomic.swap;
		if (roce->atomic == NUPA_ATOMIC_FLUSH)
			roce->total_bytes = (uint32_t)msg->atomic.compare_add;
		if (roce->atomic != NUPA_ATOMIC_WRITE)
			return;
		roce->total_bytes = 8;
		roce->bytes = roce->piece_bytes = roce->data_bytes = 8;
		roce->data = (const uint8_t *)&msg->atomic.compare_add;
		return;
	}
	if (msg->op != NUPA_OP_SEND) {
		roce->raddr = msg->reth.raddr;
		roce->rkey = msg->reth.rkey;
		roce->total_bytes = msg->reth.total_bytes;
	}
	if (msg->op != NUPA_OP_READ)
		nupa_roce_set_data(roce, &m->body->data, m->record, m->body + 1);
}

static bool add_request(struct nupa_watch *watch, const struct message *m)
{
	static const uint8_t what_of[] = {
		[NUPA_OP_SEND] = NUPA_ROCE_SEND,
		[NUPA_OP_WRITE] = NUPA_ROCE_WRITE,
		[NUPA_OP_READ] = NUPA_ROCE_READ,
		[NUPA_OP_ATOMIC] = NUPA_ROCE_ATOMIC,
	};
	const struct nupa_msg *msg = m->msg;
	const uint32_t bytes =
	    msg->op == NUPA_OP_READ ? msg->reth.total_bytes : m->body->data.total_bytes;
	const uint32_t n = (uint32_t)nupa_packets_of(bytes, m->body->data.mtu_bytes);
	struct nupa_sent guess;
	const struct nupa_sent *sent;
	struct nupa_run *run;

	if (bytes > NUPA_MSG_MAX_BYTES)
		return false;
	if (m->received) { /* judged at the receiver: it was sent before */
		sent = nupa_requester_find(watch, msg->src_qpn, msg->psn, &guess);
	} else {
		struct nupa_sent *now =
		    nupa_requester_sends(watch, msg->src_qpn, msg->psn, n, msg->flags & NUPA_F_LAST,
					 m->record->transfer);

		now->transport = m->transport;
		if (msg->op == NUPA_OP_READ)
			now->raddr = msg->reth.raddr;
		if (msg->op == NUPA_OP_ATOMIC) {
			now->atomic = (uint8_t)(msg->atomic.kind & 3);
			now->raddr = msg->atomic.raddr;
			now->compare_add = msg->atomic.compare_add;
			now->swap = msg->atomic.swap;
		}
		sent = now;
	}
	run = nupa_roce_add(watch, (enum nupa_roce_what)what_of[msg->op], sent->transfer, m->flags);
	fill_request(&run->roce, m);
	run->roce.psn = sent->wire_psn;
	run->n = msg->op == NUPA_OP_READ ? 1 : n;
	run->cast.ends_transfer = m->transport == NUPA_TRANSPORT_UC && run->roce.ends;
	nupa_roce_join(watch, run, m->from, m->to, m->received);
	if (msg->op < NUPA_OP_READ)
		nupa_tlp_request(watch, m->record, m->from, m->to, sent->transfer);
	add_line(watch, m, sent->transfer, run->cast.ends_transfer);
	return true;
}

bool nupa_expand_message(struct nupa_watch *watch, const struct nupa_trace_record *record,
			 uint32_t source)
{
	const struct nupa_trace_message *body = (const void *)(record + 1);
	const bool received = record->flags & NUPA_TRACE_BY_RECEIVER;
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts;
	const struct message m = {
		.record = record,
		.body = body,
		.msg = &body->msg,
		.source = source,
		.from = nupa_host_of(watch, received ? record->peer : source),
		.to = received ? nupa_host_of(watch, source) : body->dest_host,
		.flags = nupa_flags_of(record),
		.transport = nupa_transport_of(body->qp_type, body->is_xrc),
		.received = received,
	};
	uint64_t transfer;

	if (m.from >= n_hosts || m.to >= n_hosts || !nupa_data_makes_sense(&body->data))
		return false;
	switch (body->msg.op) {
	case NUPA_OP_SEND:
	case NUPA_OP_WRITE:
	case NUPA_OP_READ:
	case NUPA_OP_ATOMIC:
		if (m.transport == NUPA_TRANSPORT_UD)
			return add_datagram(watch, &m);
		if (body->msg.flags & NUPA_F_ACK && m.transport == NUPA_TRANSPORT_RC)
			(void)add_ack(watch, &m, body->msg.ack_psn);
		return add_request(watch, &m);
	case NUPA_OP_READ_RESP:
	case NUPA_OP_ATOMIC_RESP:
		return add_response(watch, &m);
	case NUPA_OP_ACK:
		transfer = add_ack(watch, &m, body->msg.ack_psn);
		add_line(watch, &m, transfer, transfer != 0);
		return true;
	case NUPA_OP_NAK:
		add_nak(watch, &m);
		return true;
	case NUPA_OP_CM:
		add_line(watch, &m, 0, false);
		return nupa_expand_cm(watch, record, m.from, m.to);
	default: /* the engine's own */
		if (!body->msg.op || body->msg.op >= NUPA_OP_MAX)
			return false;
		add_line(watch, &m, 0, false);
		return true;
	}
}
