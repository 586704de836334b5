/* SPDX-License-Identifier: BSD-3-Clause
 * Injected acknowledgements and responses.  They are accepted as those of the partner are, if they
 * answer a request (IBTA 9.7.5.1, 9.7.5.2). */
#include "engine/inject/inject_internal.h"
#include "engine/transport/sq.h"

#define NAK_CODES 4u /* those that end a request of RC: enum nupa_nak */

enum { KIND_ACK = 0, KIND_RNR = 1, KIND_NAK = 3 }; /* IBTA 9.7.5.2.1: syndrome bits 6, 5 */

/* The oldest request that is on its way; NULL: nothing is. */
static const struct nupa_wqe *oldest(struct nupa_qp *qp)
{
	for (uint64_t i = qp->sq.acked; i != qp->sq.issued; i++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_SENT)
			return wqe;
	}
	return NULL;
}

/* A PSN from that of the oldest request to the last that was sent. */
static bool was_sent(struct nupa_qp *qp, uint32_t psn)
{
	const struct nupa_wqe *wqe = oldest(qp);

	return wqe && nupa_psn_diff(psn, wqe->first_psn) >= 0 &&
	       nupa_psn_diff(psn, qp->next_psn) < 0;
}

static void judge_ack(struct nupa_judged *j, struct nupa_msg *msg)
{
	uint8_t kind = j->packet->syndrome >> 5 & 3, value = j->packet->syndrome & 31;
	uint32_t psn = j->packet->psn;
	uint64_t acked;

	if (!(j->wire_host < 0 ? was_sent(j->qp, j->packet->psn)
			       : nupa_flight_was_sent(j->qp, &psn)) ||
	    kind == 2 || (kind == KIND_NAK && value >= NAK_CODES)) {
		nupa_judged_drop(j, NUPA_INJECT_UNASKED);
		return;
	}
	if (psn != j->packet->psn) { /* what it refuses comes again by itself */
		msg->psn = nupa_psn_of(j->qp->incarnation, psn);
		kind = KIND_ACK;
	}
	msg->op = kind == KIND_ACK ? NUPA_OP_ACK : NUPA_OP_NAK;
	msg->flags = NUPA_F_ACK;
	msg->ack_psn = msg->psn;
	if (kind == KIND_RNR) {
		msg->syndrome = NUPA_NAK_RNR;
		msg->timer = value;
	} else if (kind == KIND_NAK) {
		msg->syndrome = value;
	}
	nupa_judged_record(j, msg);
	if (kind != KIND_ACK) {
		nupa_requester_nak(j->qp, msg);
		return;
	}
	acked = j->qp->sq.acked;
	nupa_requester_ack(j->qp, msg->psn);
	if (j->qp->sq.acked == acked) /* the oldest is answered by data */
		nupa_judged_drop(j, NUPA_INJECT_UNASKED);
}

/* A READ's answer is one packet, or a first and a last and what is between; whole ones but for the
 * last. */
static bool fits_read(const struct nupa_judged *j, const struct nupa_wqe *wqe)
{
	const struct nupa_roce_packet *packet = j->packet;
	enum nupa_operation operation = nupa_operation_of(packet);
	bool first =
	    operation == OPERATION_READ_RESP_FIRST || operation == OPERATION_READ_RESP_ONLY;
	bool last = operation == OPERATION_READ_RESP_LAST || operation == OPERATION_READ_RESP_ONLY;
	uint32_t left_bytes = wqe->length_bytes - wqe->moved_bytes;

	if (wqe->opcode != IBV_WR_RDMA_READ || first != !wqe->moved_bytes ||
	    (packet->payload_bytes + packet->pad_bytes) % 4)
		return false;
	return last ? packet->payload_bytes == left_bytes
		    : packet->payload_bytes == 128u << j->qp->attr.path_mtu &&
			  packet->payload_bytes < left_bytes;
}

/* By a wire the PSN says which part of a READ's data it is. */
static void judge_read_response(struct nupa_judged *j, struct nupa_msg *msg)
{
	struct nupa_qp *qp = j->qp;
	const struct nupa_roce_packet *packet = j->packet;
	const struct nupa_wqe *wqe = nupa_requester_response_awaited(qp);
	uint32_t mtu_bytes = nupa_qp_mtu_bytes(qp);
	uint64_t offset, left;

	msg->op = NUPA_OP_READ_RESP;
	msg->length_bytes = packet->payload_bytes;
	if (wqe && !nupa_is_fetching_op(wqe->opcode) && !packet->payload_bytes &&
	    packet->psn == wqe->first_psn) { /* A19: an ATOMIC WRITE or FLUSH */
		msg->op = NUPA_OP_ATOMIC_RESP;
		msg->syndrome = NUPA_ATOMIC_BARE;
		nupa_judged_record(j, msg);
		nupa_requester_atomic_resp(qp, msg);
		return;
	}
	if (!wqe || wqe->opcode != IBV_WR_RDMA_READ ||
	    nupa_psn_diff(packet->psn, wqe->first_psn) < 0 ||
	    nupa_psn_diff(packet->psn, qp->next_psn) >= 0) {
		nupa_judged_drop(j, NUPA_INJECT_UNASKED);
		return;
	}
	offset = (uint64_t)nupa_psn_diff(packet->psn, wqe->first_psn) * mtu_bytes;
	left = offset < wqe->length_bytes ? wqe->length_bytes - offset : 0;
	if (nupa_psn_diff(packet->psn, wqe->last_psn) <= 0) {
		if (packet->payload_bytes != (left < mtu_bytes ? left : mtu_bytes)) {
			nupa_judged_count(j, NUPA_INJECT_LENGTH, &j->engine->hw->rx_invalid);
			return;
		}
		msg->psn = nupa_psn_of(qp->incarnation, wqe->first_psn);
	} /* else: the response to a later request, so this one's is lost */
	msg->total_bytes = wqe->length_bytes;
	msg->offset_bytes = offset;
	nupa_judged_record(j, msg);
	nupa_requester_read_resp(qp, msg, j->payload);
}

static void judge_response(struct nupa_judged *j, struct nupa_msg *msg)
{
	const struct nupa_wqe *wqe = nupa_requester_awaited(j->qp, j->packet->psn);
	bool is_atomic = nupa_operation_of(j->packet) == OPERATION_ATOMIC_ACK;

	if (!wqe ||
	    (is_atomic ? !nupa_is_fetching_op(wqe->opcode) || wqe->opcode == IBV_WR_RDMA_READ
		       : !fits_read(j, wqe))) {
		nupa_judged_drop(j, NUPA_INJECT_UNASKED);
		return;
	}
	msg->op = is_atomic ? NUPA_OP_ATOMIC_RESP : NUPA_OP_READ_RESP;
	msg->original = j->packet->original;
	msg->total_bytes = wqe->length_bytes;
	msg->offset_bytes = is_atomic ? 0 : wqe->moved_bytes;
	msg->length_bytes = is_atomic ? 0 : j->packet->payload_bytes;
	nupa_judged_record(j, msg);
	if (is_atomic)
		nupa_requester_atomic_resp(j->qp, msg);
	else
		nupa_requester_read_resp(j->qp, msg, j->payload);
}

void nupa_judge_answer(struct nupa_judged *j)
{
	struct nupa_qp *qp = j->qp;
	struct nupa_msg msg = {
		.dest_qpn = j->packet->dqpn,
		.src_qpn = qp->dest_qpn,
		.psn = nupa_psn_of(qp->incarnation, j->packet->psn),
	};

	if (!qp->channel || qp->channel->broken)
		nupa_judged_drop(j, NUPA_INJECT_UNASKED); /* it never asked */
	else if (nupa_operation_of(j->packet) == OPERATION_ACK)
		judge_ack(j, &msg);
	else if (j->wire_host >= 0 && nupa_operation_of(j->packet) != OPERATION_ATOMIC_ACK)
		judge_read_response(j, &msg);
	else
		judge_response(j, &msg);
}
