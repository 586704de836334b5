/* SPDX-License-Identifier: BSD-3-Clause
 * Requests that come by injection to connected queue pairs (IBTA 9.7.4, 9.8.2).  Those that pass
 * are executed as requests of the QP's partner, which gets the answers. */
#include "engine/inject/inject_internal.h"
#include "engine/transport/responder.h"

#include <endian.h>
#include <stdlib.h>

#define SYNDROME_RNR 0x20u /* IBTA 9.7.5.2.1 */
#define SYNDROME_NAK 0x60u

/* The message that a request becomes. */
struct shape {
	uint8_t op; /* enum nupa_op; 0: no request */
	uint8_t flags;
};

#define ONLY (NUPA_F_FIRST | NUPA_F_LAST)

static const struct shape shapes[OPCODE_OPERATION + 1] = {
	[OPERATION_SEND_FIRST] = { NUPA_OP_SEND, NUPA_F_FIRST },
	[OPERATION_SEND_MIDDLE] = { NUPA_OP_SEND, 0 },
	[OPERATION_SEND_LAST] = { NUPA_OP_SEND, NUPA_F_LAST },
	[OPERATION_SEND_LAST_IMM] = { NUPA_OP_SEND, NUPA_F_LAST | NUPA_F_IMM },
	[OPERATION_SEND_ONLY] = { NUPA_OP_SEND, ONLY },
	[OPERATION_SEND_ONLY_IMM] = { NUPA_OP_SEND, ONLY | NUPA_F_IMM },
	[OPERATION_WRITE_FIRST] = { NUPA_OP_WRITE, NUPA_F_FIRST },
	[OPERATION_WRITE_MIDDLE] = { NUPA_OP_WRITE, 0 },
	[OPERATION_WRITE_LAST] = { NUPA_OP_WRITE, NUPA_F_LAST },
	[OPERATION_WRITE_LAST_IMM] = { NUPA_OP_WRITE, NUPA_F_LAST | NUPA_F_IMM },
	[OPERATION_WRITE_ONLY] = { NUPA_OP_WRITE, ONLY },
	[OPERATION_WRITE_ONLY_IMM] = { NUPA_OP_WRITE, ONLY | NUPA_F_IMM },
	[OPERATION_READ] = { NUPA_OP_READ, ONLY },
	[OPERATION_CMP_SWP] = { NUPA_OP_ATOMIC, ONLY },
	[OPERATION_FETCH_ADD] = { NUPA_OP_ATOMIC, ONLY },
	[OPERATION_SEND_LAST_INV] = { NUPA_OP_SEND, NUPA_F_LAST | NUPA_F_INV },
	[OPERATION_SEND_ONLY_INV] = { NUPA_OP_SEND, ONLY | NUPA_F_INV },
	[OPERATION_FLUSH] = { NUPA_OP_ATOMIC, ONLY },
	[OPERATION_ATOMIC_WRITE] = { NUPA_OP_ATOMIC, ONLY },
};

/* --- the message that the packet is a part of ---------------------------------------- */

static void fill_atomic(struct nupa_msg *msg, const struct nupa_judged *j)
{
	const struct nupa_roce_packet *packet = j->packet;

	msg->atomic.raddr = packet->va;
	msg->atomic.rkey = packet->rkey;
	switch (nupa_operation_of(packet)) {
	case OPERATION_CMP_SWP:
		msg->atomic.kind = NUPA_ATOMIC_CAS;
		msg->atomic.compare_add = packet->compare;
		msg->atomic.swap = packet->swap;
		break;
	case OPERATION_FETCH_ADD:
		msg->atomic.kind = NUPA_ATOMIC_ADD;
		msg->atomic.compare_add = packet->swap;
		break;
	case OPERATION_FLUSH:
		msg->atomic.kind = NUPA_ATOMIC_FLUSH;
		msg->atomic.compare_add = packet->dma_bytes;
		msg->atomic.swap = (packet->flush & 15u) | (uint64_t)(packet->flush >> 4) << 8;
		break;
	default:
		msg->atomic.kind = NUPA_ATOMIC_WRITE;
		if (packet->payload_bytes == sizeof(uint64_t))
			memcpy(&msg->atomic.compare_add, j->payload, sizeof(uint64_t));
		break;
	}
}

static struct nupa_msg message_of(const struct nupa_judged *j, const struct shape *shape)
{
	const struct nupa_roce_packet *packet = j->packet;
	const struct nupa_injected_write *write = j->qp->injected;
	struct nupa_msg msg = {
		.op = shape->op,
		.flags = (uint8_t)(shape->flags |
				   (packet->flags & NUPA_ROCE_SOLICITED ? NUPA_F_SOLICITED : 0)),
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
		else if (write) /* its address stood in the first packet */
			msg.reth =
			    (struct nupa_reth){ write->raddr, write->rkey, write->total_bytes };
		break;
	case NUPA_OP_READ:
		msg.reth = (struct nupa_reth){ packet->va, packet->rkey, packet->dma_bytes };
		break;
	case NUPA_OP_ATOMIC:
		msg.length_bytes = 0;
		fill_atomic(&msg, j);
		break;
	default:
		break;
	}
	return msg;
}

/* --- connected queue pairs ----------------------------------------------------------- */

/* IBTA 9.7.4.1.6, 9.8.2.2.3: payloads of the path's MTU but for the last, which has the rest. */
static bool length_fits(const struct nupa_qp *qp, const struct nupa_roce_packet *packet,
			const struct shape *shape)
{
	uint32_t mtu_bytes = 128u << qp->attr.path_mtu, bytes = packet->payload_bytes;
	bool first = (shape->flags & NUPA_F_FIRST) != 0, last = (shape->flags & NUPA_F_LAST) != 0;
	uint32_t left_bytes = first          ? packet->dma_bytes
			      : qp->injected ? qp->injected->left_bytes
					     : 0;

	if ((bytes + packet->pad_bytes) % 4 || packet->dma_bytes > NUPA_MSG_MAX_BYTES)
		return false;
	if (shape->op == NUPA_OP_ATOMIC && nupa_opcode(packet->opcode).payload)
		return bytes == sizeof(uint64_t) && packet->dma_bytes == bytes;
	if (!nupa_opcode(packet->opcode).payload)
		return bytes == 0;
	if (bytes > mtu_bytes || (!last && bytes != mtu_bytes) || (!first && !bytes))
		return false;
	return shape->op != NUPA_OP_WRITE || (last ? bytes == left_bytes : bytes < left_bytes);
}

/* Whether a WRITE has begun that this packet has to continue.  The responder counts SENDs. */
static bool write_is_open(const struct nupa_qp *qp, uint32_t psn)
{
	const struct nupa_injected_write *write = qp->injected;

	return write && write->open && write->psn == psn && write->incarnation == qp->incarnation;
}

/* IBTA 9.7.4.1.5, 9.8.2.2.2: what may follow on what came before. */
static bool order_fits(const struct nupa_qp *qp, const struct nupa_roce_packet *packet,
		       const struct shape *shape)
{
	bool goes_on = shape->op == NUPA_OP_WRITE && !(shape->flags & NUPA_F_FIRST);
	bool anew = qp->type == IBV_QPT_UC && shape->flags & NUPA_F_FIRST;

	return goes_on == write_is_open(qp, packet->psn) || anew;
}

/* After a packet that was executed. */
static void keep_write(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	bool ends = msg->op != NUPA_OP_WRITE || msg->flags & NUPA_F_LAST;
	struct nupa_injected_write *write = qp->injected;

	if (!write && !ends)
		write = qp->injected = calloc(1, sizeof(*write));
	if (!write)
		return; /* without memory for it the next packet does not fit */
	write->open = !ends;
	if (ends)
		return;
	if (msg->flags & NUPA_F_FIRST)
		write->left_bytes = msg->reth.total_bytes;
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
		done = nupa_responder_take(qp, msg, j->payload);
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

/* The message is lost, and what may still come of it. */
static void break_off(struct nupa_judged *j, const struct nupa_msg *msg,
		      enum nupa_inject_reason reason)
{
	j->qp->drop_message = !(msg->flags & NUPA_F_LAST);
	j->qp->expected_psn = nupa_psn_add(msg->psn, 1);
	if (j->qp->injected)
		j->qp->injected->open = false;
	nupa_judged_count(j, reason, &j->engine->hw->rx_invalid);
}

static void judge_unreliable(struct nupa_judged *j, const struct shape *shape, struct nupa_msg *msg)
{
	struct nupa_qp *qp = j->qp;
	bool gap = !(msg->flags & NUPA_F_FIRST) &&
		   (qp->drop_message || nupa_psn_diff(msg->psn, qp->expected_psn));
	bool lacks = needs_receive(qp, msg) && !nupa_has_receive(qp);

	if (!shape->op) {
		nupa_judged_count(j, NUPA_INJECT_OPCODE, &j->engine->hw->rx_invalid);
	} else if (!gap && !order_fits(qp, j->packet, shape)) {
		break_off(j, msg, NUPA_INJECT_SEQUENCE);
	} else if (!gap && !length_fits(qp, j->packet, shape)) {
		break_off(j, msg, NUPA_INJECT_LENGTH);
	} else if (nupa_responder_take(qp, msg, j->payload)) {
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

void nupa_judge_connected(struct nupa_judged *j)
{
	static const struct shape none = { 0, ONLY };
	const struct shape *shape =
	    nupa_opcode(j->packet->opcode).known ? &shapes[nupa_operation_of(j->packet)] : &none;
	struct nupa_qp *qp = j->qp;
	struct nupa_msg msg = message_of(j, shape);

	if (qp->xrc && shape->op &&
	    nupa_qpn_slot(&j->engine->fabric->geometry, j->packet->srqn) != j->engine->slot_index) {
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
