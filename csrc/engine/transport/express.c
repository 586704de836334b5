/* SPDX-License-Identifier: BSD-3-Clause
 * The express lane for what arrives (express.h): a SEND in one message into a receive of one piece.
 * The line is read in place, each word once: its producer may be hostile and still write to it. */
#include "engine/transport/express.h"
#include "engine/transport/responder.h"

/* Where the bytes beside a line are; NULL: the long way judges it. */
static inline const uint8_t *staged_payload(struct nupa_channel *channel, uint64_t total_bytes,
					    uint64_t offset_bytes, uint32_t bytes)
{
	struct nupa_rx *rx = &channel->rx;
	uint64_t start;

	if (total_bytes != bytes || offset_bytes || !bytes || bytes > NUPA_EXPRESS_STAGED_BYTES ||
	    bytes > nupa_dma_payload_max(rx->dma_bytes) || channel->distant)
		return NULL;
	rx->dma_pending = nupa_dma_span(rx->dma_head, rx->dma_bytes, bytes, &start);
	return rx->dma + start;
}

static inline uint64_t word_of(const struct nupa_msg *line, unsigned int index)
{
	return nupa_load_relaxed((const uint64_t *)(const void *)line + index);
}

bool nupa_express_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			  const struct nupa_msg *line)
{
	uint64_t head = word_of(line, 0); /* tag, op, flags, syndrome, timer */
	uint64_t ids = word_of(line, 1);  /* dest_qpn, src_qpn */
	uint64_t psns = word_of(line, 2); /* psn, ack_psn */
	uint32_t bytes = (uint32_t)word_of(line, 3);
	uint32_t flags = (uint32_t)(head >> 40) & 0xff;
	uint32_t op = (uint32_t)(head >> 32) & 0xff;
	struct nupa_qp *qp;
	struct nupa_rq *rq;
	struct nupa_rwqe *rwqe;
	struct nupa_cqe *cqe;
	const uint8_t *payload = line->data;
	uint8_t *target;

	if (op != NUPA_OP_SEND || (flags & ~(uint32_t)(NUPA_F_ACK | NUPA_F_SOLICITED |
						       NUPA_F_DMA)) != (NUPA_F_FIRST | NUPA_F_LAST))
		return false;
	channel->rx.dma_pending = 0;
	if (flags & NUPA_F_DMA)
		payload = staged_payload(channel, word_of(line, 5), word_of(line, 6), bytes);
	else if (bytes > NUPA_SEND_INLINE_BYTES)
		payload = NULL;
	if (!payload)
		return false;
	qp = nupa_qp_find(engine, (uint32_t)ids);
	if (!qp || !qp->steady_rx || qp->channel != channel ||
	    qp->dest_qpn != (uint32_t)(ids >> 32) ||
	    (uint32_t)psns != nupa_psn_of(qp->peer_incarnation, qp->expected_psn))
		return false;
	if (flags & NUPA_F_ACK && nupa_requester_awaits(qp, (uint32_t)(psns >> 32))) {
		if (unlikely(!nupa_rx_intact(&channel->rx)))
			return false;
		/* The long way may come to it again: it says the same. */
		nupa_requester_ack(qp, (uint32_t)(psns >> 32));
		if (unlikely(!qp->steady_rx))
			return false;
	}
	rq = qp->srq ? &qp->srq->rq : &qp->rq;
	rwqe = nupa_rq_peek(rq);
	if (unlikely(!rwqe || qp->recv_active || rwqe->n_sge != 1 || bytes > rwqe->sge[0].length ||
		     nupa_cq_full(qp->recv_cq)))
		return false;
	target = nupa_mr_local(engine, qp->srq ? qp->srq->ibv.pd : qp->ibv.pd, rwqe->sge,
			       IBV_ACCESS_LOCAL_WRITE);
	if (unlikely(!target))
		return false;
	if (unlikely(!(bytes <= NUPA_SEND_INLINE_BYTES
			   ? nupa_guard_copy_small(target, payload, bytes)
			   : nupa_guard_copy(target, payload, bytes))))
		return false;
	if (unlikely(!nupa_rx_intact(&channel->rx)))
		return false; /* cleared under us: its sender died */
	cqe = nupa_cq_reserve(qp->recv_cq, qp);
	*cqe = (struct nupa_cqe){
		.wr_id = rwqe->wr_id,
		.qp = qp,
		.opcode = IBV_WC_RECV,
		.byte_len = bytes,
		.qp_num = qp->ibv.qp_num,
		.src_qp = (uint32_t)(ids >> 32),
	};
	nupa_receive_taken(qp);
	nupa_cq_commit(qp->recv_cq, (flags & NUPA_F_SOLICITED) != 0);
	qp->expected_psn = nupa_psn_add(qp->expected_psn, 1);
	nupa_responder_ack(qp);
	if (qp->converses)
		nupa_prefetch_write(nupa_tx_next(&channel->tx));
	qp->heard = true;
	return true;
}
