/* SPDX-License-Identifier: BSD-3-Clause
 * Judges packets that come by injection, as the transport of an adapter does (IBTA 9.6, 9.7.4,
 * 9.8.2, 9.8.3): first what holds for all, then requests.  What is good is executed as any request
 * of the QP's partner is, who gets the answers.  The frame is another process's: copied first, then
 * looked at (I5). */
#include "inject_internal.h"
#include "responder.h"

#include <endian.h>

enum { TRANSPORT_RC = 0x00, TRANSPORT_UC = 0x20, TRANSPORT_UD = 0x60, TRANSPORT_XRC = 0xa0 };
#define TRANSPORT_MASK 0xe0u
#define OPCODE_CNP 0x81u

#define SYNDROME_RNR 0x20u /* IBTA 9.7.5.2.1 */
#define SYNDROME_NAK 0x60u

/* What a request is in the engine's words, by the lower bits of its opcode (IBTA table 38, A19). */
struct shape {
	uint8_t op; /* enum nupa_op; 0: no request */
	uint8_t flags;
};

#define ONLY (NUPA_F_FIRST | NUPA_F_LAST)

static const struct shape shapes[32] = {
	[0x00] = { NUPA_OP_SEND, NUPA_F_FIRST },
	[0x01] = { NUPA_OP_SEND, 0 },
	[0x02] = { NUPA_OP_SEND, NUPA_F_LAST },
	[0x03] = { NUPA_OP_SEND, NUPA_F_LAST | NUPA_F_IMM },
	[0x04] = { NUPA_OP_SEND, ONLY },
	[0x05] = { NUPA_OP_SEND, ONLY | NUPA_F_IMM },
	[0x06] = { NUPA_OP_WRITE, NUPA_F_FIRST },
	[0x07] = { NUPA_OP_WRITE, 0 },
	[0x08] = { NUPA_OP_WRITE, NUPA_F_LAST },
	[0x09] = { NUPA_OP_WRITE, NUPA_F_LAST | NUPA_F_IMM },
	[0x0a] = { NUPA_OP_WRITE, ONLY },
	[0x0b] = { NUPA_OP_WRITE, ONLY | NUPA_F_IMM },
	[0x0c] = { NUPA_OP_READ, ONLY },
	[0x13] = { NUPA_OP_ATOMIC, ONLY }, /* CMP AND SWP */
	[0x14] = { NUPA_OP_ATOMIC, ONLY }, /* FETCH AND ADD */
	[0x16] = { NUPA_OP_SEND, NUPA_F_LAST | NUPA_F_INV },
	[0x17] = { NUPA_OP_SEND, ONLY | NUPA_F_INV },
	[0x1c] = { NUPA_OP_ATOMIC, ONLY }, /* FLUSH */
	[0x1d] = { NUPA_OP_ATOMIC, ONLY }, /* ATOMIC WRITE */
};

static void drop_counted(struct nupa_judged *j, enum nupa_inject_reason reason, uint64_t *counter)
{
	nupa_judged_drop(j, reason);
	nupa_count(counter, 1);
}

/* --- the message that the packet is a part of ---------------------------------------- */

static void fill_atomic(struct nupa_msg *msg, const struct nupa_packet *packet)
{
	msg->atomic.raddr = packet->va;
	msg->atomic.rkey = packet->rkey;
	switch (packet->opcode & ~TRANSPORT_MASK) {
	case 0x13:
		msg->atomic.kind = NUPA_ATOMIC_CAS;
		msg->atomic.compare_add = packet->compare;
		msg->atomic.swap = packet->swap;
		break;
	case 0x14:
		msg->atomic.kind = NUPA_ATOMIC_ADD;
		msg->atomic.compare_add = packet->swap;
		break;
	case 0x1c:
		msg->atomic.kind = NUPA_ATOMIC_FLUSH;
		msg->atomic.compare_add = packet->dma_bytes;
		msg->atomic.swap = (packet->flush & 15u) | (uint64_t)(packet->flush >> 4) << 8;
		break;
	default:
		msg->atomic.kind = NUPA_ATOMIC_WRITE;
		if (packet->payload_bytes == sizeof(uint64_t))
			memcpy(&msg->atomic.compare_add, packet->payload, sizeof(uint64_t));
		break;
	}
}

static struct nupa_msg message_of(const struct nupa_judged *j, const struct shape *shape)
{
	const struct nupa_packet *packet = j->packet;
	const struct nupa_injected_write *write = &j->qp->injected;
	struct nupa_msg msg = {
		.op = shape->op,
		.flags = (uint8_t)(shape->flags | (packet->solicited ? NUPA_F_SOLICITED : 0)),
		.dest_qpn = packet->dqpn,
		.src_qpn = j->qp->dest_qpn,
		.psn = packet->psn,
		.length_bytes = packet->payload_bytes,
	};

	if (shape->flags & NUPA_F_IMM)
		msg.imm = htobe32(packet->imm);
	else if (shape->flags & NUPA_F_INV)
		msg.imm = packet->rkey;
	if (j->qp->xrc)
		msg.ack_psn = packet->srqn;
	switch (shape->op) {
	case NUPA_OP_WRITE:
		if (shape->flags & NUPA_F_FIRST)
			msg.reth =
			    (struct nupa_reth){ packet->va, packet->rkey, packet->dma_bytes };
		else /* its address stood in the first packet */
			msg.reth =
			    (struct nupa_reth){ write->raddr, write->rkey, write->total_bytes };
		break;
	case NUPA_OP_READ:
		msg.reth = (struct nupa_reth){ packet->va, packet->rkey, packet->dma_bytes };
		break;
	case NUPA_OP_ATOMIC:
		msg.length_bytes = 0;
		fill_atomic(&msg, packet);
		break;
	default:
		break;
	}
	return msg;
}

/* --- connected queue pairs ----------------------------------------------------------- */

/* IBTA 9.7.4.1.6, 9.8.2.2.3: payloads of the path's MTU but for the last, which has the rest. */
static bool length_fits(const struct nupa_qp *qp, const struct nupa_packet *packet,
			const struct shape *shape)
{
	uint32_t mtu_bytes = 128u << qp->attr.path_mtu, bytes = packet->payload_bytes;
	bool first = (shape->flags & NUPA_F_FIRST) != 0, last = (shape->flags & NUPA_F_LAST) != 0;
	uint32_t left_bytes = first ? packet->dma_bytes : qp->injected.left_bytes;

	if ((bytes + packet->pad_bytes) % 4 || packet->dma_bytes > NUPA_MSG_MAX_BYTES)
		return false;
	if (shape->op == NUPA_OP_ATOMIC && packet->payload_expected)
		return bytes == sizeof(uint64_t) && packet->dma_bytes == bytes;
	if (!packet->payload_expected)
		return bytes == 0;
	if (bytes > mtu_bytes || (!last && bytes != mtu_bytes) || (!first && !bytes))
		return false;
	return shape->op != NUPA_OP_WRITE || (last ? bytes == left_bytes : bytes < left_bytes);
}

/* Whether a WRITE has begun that this packet has to go on with.  What is counted of SENDs is the
 * responder's. */
static bool write_is_open(const struct nupa_qp *qp, uint32_t psn)
{
	return qp->injected.open && qp->injected.psn == psn &&
	       qp->injected.incarnation == qp->incarnation;
}

/* IBTA 9.7.4.1.5, 9.8.2.2.2: what may follow on what came before. */
static bool order_fits(const struct nupa_qp *qp, const struct nupa_packet *packet,
		       const struct shape *shape)
{
	bool goes_on = shape->op == NUPA_OP_WRITE && !(shape->flags & NUPA_F_FIRST);
	bool anew = qp->type == IBV_QPT_UC && shape->flags & NUPA_F_FIRST;

	return goes_on == write_is_open(qp, packet->psn) || anew;
}

/* After a packet that was executed. */
static void keep_write(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_injected_write *write = &qp->injected;

	if (msg->op != NUPA_OP_WRITE || msg->flags & NUPA_F_LAST) {
		write->open = false;
		return;
	}
	if (msg->flags & NUPA_F_FIRST)
		write->left_bytes = msg->reth.total_bytes;
	write->open = true;
	write->incarnation = qp->incarnation;
	write->psn = nupa_psn_add(msg->psn, 1);
	write->raddr = msg->reth.raddr + msg->length_bytes;
	write->rkey = msg->reth.rkey;
	write->total_bytes = msg->reth.total_bytes;
	write->left_bytes -= msg->length_bytes;
}

static uint32_t syndrome_of(const struct nupa_qp *qp)
{
	return qp->nak_syndrome == NUPA_NAK_RNR ? SYNDROME_RNR | (qp->attr.min_rnr_timer & 31u)
						: SYNDROME_NAK | qp->nak_syndrome;
}

static void judge_reliable(struct nupa_judged *j, const struct shape *shape, struct nupa_msg *msg)
{
	struct nupa_qp *qp = j->qp;
	int32_t ahead = nupa_psn_diff(msg->psn, qp->expected_psn);
	bool naked_before = qp->nak_sent, done = false;

	if (!ahead &&
	    (!shape->op || !order_fits(qp, j->packet, shape) || !length_fits(qp, j->packet, shape)))
		nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
	else
		done = nupa_responder_take(qp, msg, j->packet->payload);
	if (done) {
		if (!ahead)
			keep_write(qp, msg);
	} else if (ahead < 0) {
		nupa_judged_drop(j, NUPA_INJECT_DUPLICATE);
	} else if (ahead && naked_before) {
		nupa_judged_drop(j, NUPA_INJECT_PSN);
	} else if (qp->nak_sent) {
		nupa_judged_nak(j, syndrome_of(qp));
	} else {
		nupa_judged_drop(j, NUPA_INJECT_OPCODE); /* XRC: it only sends */
	}
}

/* A receive that this packet would have to find posted. */
static bool needs_receive(const struct nupa_qp *qp, const struct nupa_msg *msg)
{
	if (msg->op == NUPA_OP_WRITE)
		return (msg->flags & (NUPA_F_LAST | NUPA_F_IMM)) == (NUPA_F_LAST | NUPA_F_IMM);
	return msg->op == NUPA_OP_SEND && msg->flags & NUPA_F_FIRST && !qp->recv_active &&
	       !qp->recv_kept;
}

static bool has_receive(const struct nupa_qp *qp)
{
	const struct nupa_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;

	return rq->head != rq->tail;
}

/* The message is lost, and what may still come of it. */
static void break_off(struct nupa_judged *j, const struct nupa_msg *msg,
		      enum nupa_inject_reason reason)
{
	j->qp->drop_message = !(msg->flags & NUPA_F_LAST);
	j->qp->expected_psn = nupa_psn_add(msg->psn, 1);
	j->qp->injected.open = false;
	drop_counted(j, reason, &j->engine->hw->rx_invalid);
}

static void judge_unreliable(struct nupa_judged *j, const struct shape *shape, struct nupa_msg *msg)
{
	struct nupa_qp *qp = j->qp;
	bool gap = !(msg->flags & NUPA_F_FIRST) &&
		   (qp->drop_message || nupa_psn_diff(msg->psn, qp->expected_psn));
	bool lacks = needs_receive(qp, msg) && !has_receive(qp);

	if (!shape->op) {
		drop_counted(j, NUPA_INJECT_OPCODE, &j->engine->hw->rx_invalid);
	} else if (!gap && !order_fits(qp, j->packet, shape)) {
		break_off(j, msg, NUPA_INJECT_SEQUENCE);
	} else if (!gap && !length_fits(qp, j->packet, shape)) {
		break_off(j, msg, NUPA_INJECT_LENGTH);
	} else if (nupa_responder_take(qp, msg, j->packet->payload)) {
		keep_write(qp, msg);
	} else if (gap) {
		nupa_judged_drop(j, NUPA_INJECT_PSN);
	} else if (qp->state == IBV_QPS_ERR) {
		nupa_judged_drop(j, NUPA_INJECT_RECEIVE);
	} else if (msg->op == NUPA_OP_WRITE && !qp->recv_active) {
		nupa_judged_drop(j, lacks ? NUPA_INJECT_NO_RECEIVE : NUPA_INJECT_ACCESS);
	} else {
		nupa_judged_drop(j, lacks ? NUPA_INJECT_NO_RECEIVE : NUPA_INJECT_SEQUENCE);
	}
}

static void judge_connected(struct nupa_judged *j)
{
	static const struct shape none = { 0, ONLY };
	const struct shape *shape =
	    j->packet->opcode_known ? &shapes[j->packet->opcode & ~TRANSPORT_MASK] : &none;
	struct nupa_qp *qp = j->qp;
	struct nupa_msg msg = message_of(j, shape);

	if (qp->xrc && shape->op &&
	    j->packet->srqn >> NUPA_QP_INDEX_BITS != j->engine->slot_index) {
		nupa_judged_drop(j, NUPA_INJECT_UNSUPPORTED);
		return;
	}
	nupa_judged_record(j, &msg);
	nupa_responder_meet(qp);
	if (qp->type == IBV_QPT_RC)
		judge_reliable(j, shape, &msg);
	else
		judge_unreliable(j, shape, &msg);
	nupa_qp_unsettle(qp);
}

/* --- datagrams ----------------------------------------------------------------------- */

/* What the receiver finds before the payload, as receive.c gives it. */
static void fill_grh(const struct nupa_packet *packet, uint8_t grh[NUPA_GRH_BYTES])
{
	memset(grh, 0, NUPA_GRH_BYTES);
	grh[0] = (uint8_t)(6 << 4 | packet->traffic_class >> 4);
	grh[1] = (uint8_t)(packet->traffic_class << 4);
	grh[4] = (uint8_t)(packet->payload_bytes >> 8);
	grh[5] = (uint8_t)packet->payload_bytes;
	grh[6] = NUPA_GRH_NEXT_HEADER;
	grh[7] = packet->hop_limit;
	memcpy(grh + 8, packet->source, 16);
	memcpy(grh + 24, packet->destination, 16);
}

/* IBTA 9.8.3 */
static void judge_datagram(struct nupa_judged *j)
{
	const struct nupa_packet *packet = j->packet;
	const struct shape *shape = &shapes[packet->opcode & ~TRANSPORT_MASK];
	uint8_t grh[NUPA_GRH_BYTES];
	struct nupa_msg msg = {
		.op = NUPA_OP_SEND,
		.flags = (uint8_t)(shape->flags | (packet->solicited ? NUPA_F_SOLICITED : 0)),
		.dest_qpn = packet->dqpn,
		.src_qpn = packet->source_qpn,
		.psn = packet->psn,
		.length_bytes = packet->payload_bytes,
		.imm = htobe32(packet->imm),
		.deth = { .qkey = packet->qkey,
			  .hop_limit = packet->hop_limit,
			  .traffic_class = packet->traffic_class,
			  .is_global = 1 },
	};
	bool lacks = !has_receive(j->qp);

	nupa_judged_record(j, &msg);
	if (packet->qkey != j->qp->attr.qkey) {
		drop_counted(j, NUPA_INJECT_QKEY, &j->engine->hw->qkey_violations);
		return;
	}
	if (packet->payload_bytes > NUPA_MTU_BYTES ||
	    (packet->payload_bytes + packet->pad_bytes) % 4) {
		drop_counted(j, NUPA_INJECT_LENGTH, &j->engine->hw->rx_invalid);
		return;
	}
	fill_grh(packet, grh);
	if (!nupa_receive_deliver(j->qp, &msg, packet->payload, grh, NULL))
		nupa_judged_drop(j, lacks ? NUPA_INJECT_NO_RECEIVE : NUPA_INJECT_RECEIVE);
}

/* --- all packets --------------------------------------------------------------------- */

/* IBTA 9.6.1.1.2: the opcode's service has to be the QP's. */
static bool service_fits(const struct nupa_qp *qp, const struct nupa_packet *packet)
{
	switch (packet->opcode & TRANSPORT_MASK) {
	case TRANSPORT_RC:
		return qp->type == IBV_QPT_RC && !qp->xrc;
	case TRANSPORT_XRC:
		return qp->xrc != NUPA_XRC_NONE;
	case TRANSPORT_UC:
		return qp->type == IBV_QPT_UC;
	case TRANSPORT_UD:
		return qp->type == IBV_QPT_UD && packet->opcode_known;
	default:
		return false;
	}
}

static bool is_answer(const struct nupa_packet *packet)
{
	uint8_t code = packet->opcode & (uint8_t)~TRANSPORT_MASK;

	return packet->opcode_known && code >= 0x0d && code <= 0x12;
}

static int host_of(const struct nupa_judged *j, const uint8_t address[16])
{
	union ibv_gid gid;

	memcpy(gid.raw, address, sizeof(gid.raw));
	return nupa_host_of_gid(j->engine->fabric, &gid);
}

/* IBTA 9.6.1: what no packet gets past; in the order of that section. */
static bool headers_pass(struct nupa_judged *j)
{
	const struct nupa_packet *packet = j->packet;
	struct nupa_hw_counters *hw = j->engine->hw;
	const struct nupa_qp *qp = nupa_qp_find(j->engine, packet->dqpn);
	uint8_t lowest = is_answer(packet) ? IBV_QPS_RTS : IBV_QPS_RTR;

	if (qp && qp->type != IBV_QPT_UD)
		j->result->expected_psn = qp->expected_psn;
	if (!packet->icrc_right)
		drop_counted(j, NUPA_INJECT_ICRC, &hw->rx_icrc_errors);
	else if (packet->version != 0)
		drop_counted(j, NUPA_INJECT_VERSION, &hw->rx_invalid);
	else if (host_of(j, packet->destination) != (int)j->engine->host)
		drop_counted(j, NUPA_INJECT_NO_HOST, &hw->rx_invalid);
	else if (!qp || qp->state < lowest || qp->state > IBV_QPS_SQE)
		drop_counted(j, NUPA_INJECT_NO_QP, &hw->rx_invalid);
	else if (packet->opcode == OPCODE_CNP)
		nupa_judged_drop(j, NUPA_INJECT_UNSUPPORTED);
	else if (!service_fits(qp, packet))
		drop_counted(j, NUPA_INJECT_OPCODE, &hw->rx_invalid);
	else if ((packet->pkey & 0x7fff) != 0x7fff) /* IBTA 10.9.3: ours is 0xffff */
		drop_counted(j, NUPA_INJECT_PKEY, &hw->pkey_violations);
	else if (qp->type != IBV_QPT_UD && host_of(j, packet->source) != (int)qp->dest_host)
		drop_counted(j, NUPA_INJECT_SOURCE, &hw->rx_invalid);
	else
		return true;
	return false;
}

static void judge(struct nupa_judged *j)
{
	if (!headers_pass(j))
		return;
	j->qp = nupa_qp_find(j->engine, j->packet->dqpn);
	if (is_answer(j->packet))
		nupa_judge_answer(j);
	else if (j->qp->type == IBV_QPT_UD)
		judge_datagram(j);
	else
		judge_connected(j);
}

/* --- the message that brings it ------------------------------------------------------ */

static void give_verdict(struct nupa_channel *channel, const struct nupa_msg *msg,
			 const struct nupa_inject_result *result)
{
	struct nupa_msg *out;

	if (channel->broken)
		return;
	out = nupa_tx_reserve(&channel->tx, 0, NULL);
	if (!out)
		return; /* who sends so many without listening misses nothing */
	out->op = NUPA_OP_INJECTED;
	out->flags = 0;
	out->dest_qpn = out->src_qpn = 0;
	out->psn = msg->psn;
	out->length_bytes = 0;
	out->injected = (struct nupa_injected){
		.verdict = result->verdict,
		.reason = result->reason,
		.syndrome = result->syndrome,
		.expected_psn = result->expected_psn,
	};
	nupa_tx_publish(&channel->tx, out, 0); /* no packet: nothing of it is counted */
	nupa_channel_bell(channel);
}

void nupa_inject_drop(struct nupa_channel *channel, const struct nupa_msg *msg, uint32_t reason)
{
	const struct nupa_inject_result result = { .verdict = NUPA_INJECT_DROPPED,
						   .reason = reason,
						   .expected_psn = UINT32_MAX };

	give_verdict(channel, msg, &result);
}

static void tell_psn(const struct nupa_engine *engine, uint32_t qpn,
		     struct nupa_inject_result *result)
{
	const struct nupa_qp *qp = nupa_qp_find(engine, qpn);

	if (!qp || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE) {
		result->verdict = NUPA_INJECT_DROPPED;
		result->reason = NUPA_INJECT_NO_QP;
	} else if (qp->type != IBV_QPT_UD) {
		result->expected_psn = qp->expected_psn;
	}
}

bool nupa_inject_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			 const struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_inject_result result = { .expected_psn = UINT32_MAX };
	uint8_t frame[NUPA_INJECT_FRAME_MAX_BYTES];
	struct nupa_packet packet;
	struct nupa_judged j = {
		.engine = engine, .from = channel->peer, .packet = &packet, .result = &result
	};

	if (!payload) {
		tell_psn(engine, msg->dest_qpn, &result);
		give_verdict(channel, msg, &result);
		return true;
	}
	if (msg->length_bytes > sizeof(frame))
		return false;
	memcpy(frame, payload, msg->length_bytes);
	if (!nupa_channel_intact(channel))
		return true; /* not its bytes: the death watch will tell */
	nupa_count(&engine->hw->rx_injected, 1);
	if (nupa_packet_parse(frame, msg->length_bytes, true, &packet))
		judge(&j);
	else
		drop_counted(&j, NUPA_INJECT_MALFORMED, &engine->hw->rx_invalid);
	give_verdict(channel, msg, &result);
	return true;
}
