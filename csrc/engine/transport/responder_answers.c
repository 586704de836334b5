/* SPDX-License-Identifier: BSD-3-Clause
 * Acknowledgements and refusals that the responder owes, and when they are sent. */
#include "base/reserve.h"
#include "engine/channel/attention.h"
#include "engine/transport/responder.h"

#include <stdlib.h>

static void answer_later(struct nupa_qp *qp)
{
	if (nupa_list_empty(&qp->ack_link))
		nupa_list_add(&qp->engine->ack_pending, &qp->ack_link);
}

void nupa_responder_ack(struct nupa_qp *qp)
{
	qp->ack_pending = true;
	answer_later(qp);
}

void nupa_responder_nak(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	nupa_qp_unsettle(qp);
	nupa_count(&qp->engine->hw->send_rnr_err, syndrome == NUPA_NAK_RNR);
	qp->nak_sent = true;
	qp->nak_pending = true;
	qp->nak_syndrome = (uint8_t)syndrome;
	if (syndrome != NUPA_NAK_PSN) /* missing parts come again, and the message goes on */
		qp->recv_active = false;
	answer_later(qp);
}

/* An error that ends the connection: IBTA 9.7.5.2.4, responder class C. */
void nupa_responder_nak_fatal(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	nupa_responder_nak(qp, syndrome);
	nupa_responder_send_ack(
	    qp); /* before the QP is flushed; if there is no room it stays pending */
	nupa_qp_error(qp);
	nupa_event_raise_qp(qp, syndrome == NUPA_NAK_REMOTE_ACCESS ? IBV_EVENT_QP_ACCESS_ERR
								   : IBV_EVENT_QP_REQ_ERR);
}

struct nupa_msg *nupa_responder_reserve(struct nupa_engine *engine, struct nupa_channel *channel,
					uint32_t dma_bytes, uint8_t **payload)
{
	if (unlikely(dma_bytes && !channel->dma_backed) && nupa_channel_back_dma(engine, channel))
		return NULL;
	return nupa_tx_reserve(&channel->tx, dma_bytes, payload);
}

/* Sends what is owed; false: no room, still owed. */
bool nupa_responder_send_ack(struct nupa_qp *qp)
{
	struct nupa_msg *msg;

	if (!qp->channel || qp->channel->broken) {
		qp->ack_pending = qp->nak_pending = false;
		nupa_list_del(&qp->ack_link);
		return true;
	}
	if (qp->nak_pending && qp->jobs_head != qp->jobs_tail)
		return false; /* responses of earlier requests first */
	msg = nupa_responder_reserve(qp->engine, qp->channel, 0, NULL);
	if (!msg)
		return false;
	msg->op = qp->nak_pending ? NUPA_OP_NAK : NUPA_OP_ACK;
	msg->flags = NUPA_F_ACK;
	msg->syndrome = qp->nak_syndrome;
	msg->timer = qp->attr.min_rnr_timer;
	msg->dest_qpn = qp->dest_qpn;
	msg->src_qpn = qp->ibv.qp_num;
	msg->psn = nupa_psn_of(qp->peer_incarnation, qp->expected_psn);
	msg->ack_psn = nupa_ack_psn(qp);
	msg->length_bytes = 0;
	nupa_channel_publish(qp->channel, msg, 0);
	qp->ack_pending = qp->nak_pending = false;
	nupa_list_del(&qp->ack_link);
	return true;
}

/* A refusal says that all before it is answered: what a QP still owes goes first. */
static bool owes_nothing(struct nupa_engine *engine, const struct nupa_refusal *refusal)
{
	struct nupa_qp *qp = nupa_qp_find(engine, refusal->dest_qpn);

	if (!qp || qp->type == IBV_QPT_UD || qp->dest_qpn != refusal->src_qpn)
		return true;
	return qp->jobs_head == qp->jobs_tail &&
	       (nupa_list_empty(&qp->ack_link) || nupa_responder_send_ack(qp));
}

void nupa_responder_send_refusals(struct nupa_engine *engine, struct nupa_channel *channel)
{
	while (!nupa_list_empty(&channel->refusals)) {
		struct nupa_refusal *refusal =
		    container_of(channel->refusals.next, struct nupa_refusal, link);
		struct nupa_msg *msg = owes_nothing(engine, refusal)
					   ? nupa_responder_reserve(engine, channel, 0, NULL)
					   : NULL;

		if (!msg)
			return;
		msg->op = NUPA_OP_NAK;
		msg->flags = refusal->acknowledges ? NUPA_F_ACK : 0;
		msg->syndrome = NUPA_NAK_NOT_READY;
		msg->timer = 0;
		msg->dest_qpn = refusal->src_qpn;
		msg->src_qpn = refusal->dest_qpn;
		msg->psn = nupa_psn_of(refusal->incarnation, refusal->psn);
		msg->ack_psn = nupa_psn_of(refusal->incarnation, refusal->ack_psn);
		msg->length_bytes = 0;
		nupa_channel_publish(channel, msg, 0);
		nupa_list_del(&refusal->link);
		free(refusal);
	}
}

static struct nupa_refusal *refusal_of(struct nupa_engine *engine, struct nupa_channel *channel,
				       uint32_t src_qpn)
{
	struct nupa_refusal *refusal;

	for (struct nupa_list *at = channel->refusals.next; at != &channel->refusals;
	     at = at->next) {
		refusal = container_of(at, struct nupa_refusal, link);
		if (refusal->src_qpn == src_qpn)
			return refusal;
	}
	refusal = nupa_calloc_reserved(sizeof(*refusal)); /* a lost one would be a hung peer */
	refusal->src_qpn = src_qpn;
	nupa_list_add(&channel->refusals, &refusal->link);
	nupa_attention_give(engine, channel);
	return refusal;
}

/* The first request refused is enough: those behind it come again with it. */
void nupa_responder_refuse(struct nupa_engine *engine, struct nupa_channel *channel,
			   const struct nupa_msg *msg, uint32_t incarnation)
{
	struct nupa_refusal *refusal;

	if (nupa_qpn_slot(&channel->engine->fabric->geometry, msg->src_qpn) != channel->peer)
		return; /* I5: it awaits no answer */
	refusal = refusal_of(engine, channel, msg->src_qpn);
	/* New, or the requester has gone elsewhere? */
	if (refusal->dest_qpn != msg->dest_qpn || refusal->incarnation != incarnation) {
		refusal->dest_qpn = msg->dest_qpn;
		refusal->incarnation = incarnation;
		refusal->psn = msg->psn;
		refusal->acknowledges = false;
	}
	if (!refusal->acknowledges)
		refusal->ack_psn = msg->psn;
	nupa_responder_send_refusals(engine, channel);
}

/* A requester may ask again for an answer that this QP will no longer give. */
static void refuse_what_is_owed(struct nupa_qp *qp)
{
	bool reading = qp->jobs_head != qp->jobs_tail;
	struct nupa_refusal *refusal;

	if (!qp->channel || qp->channel->broken || qp->channel->wired ||
	    (nupa_list_empty(&qp->ack_link) && !reading))
		return;
	refusal = refusal_of(qp->engine, qp->channel, qp->dest_qpn);
	refusal->dest_qpn = qp->ibv.qp_num;
	refusal->incarnation = qp->peer_incarnation & 0xff;
	refusal->psn = reading ? nupa_responder_job(qp, qp->jobs_head)->psn : qp->expected_psn;
	refusal->ack_psn = nupa_psn_add(refusal->psn, 0xffffff);
	refusal->acknowledges = true;
}

void nupa_responder_reset(struct nupa_qp *qp)
{
	nupa_backlog_drop(qp);
	refuse_what_is_owed(qp);
	qp->nak_sent = qp->ack_pending = qp->nak_pending = false;
	qp->recv_active = qp->recv_kept = qp->drop_message = qp->uc_met = false;
	qp->jobs_head = qp->jobs_tail = qp->n_answers = 0;
	nupa_list_del(&qp->ack_link);
	nupa_list_del(&qp->job_link);
	qp->peer_incarnation = NUPA_PEER_UNKNOWN;
}
