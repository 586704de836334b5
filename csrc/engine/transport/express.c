/* SPDX-License-Identifier: BSD-3-Clause
 * The express lane for what arrives (express.h): a SEND in one message into a receive of one piece.
 * The line is read in place, each word once: its producer may be hostile and still write to it. */
#include "engine/transport/express.h"
#include "engine/transport/responder.h"

/* The line that is fetched while the one so far before it is handled.  Nearer ones are still being
 * written, and would be taken from their producer. */
#define LINES_AHEAD 8u

/* Where the bytes of a message are. */
struct source {
	const uint8_t *payload; /* NULL: the sender keeps them */
	struct nupa_pull pull;
	uint32_t bytes;
};

static inline uint64_t word_of(const struct nupa_msg *line, unsigned int index)
{
	return nupa_load_relaxed((const uint64_t *)(const void *)line + index);
}

static inline bool find_beside(struct nupa_channel *channel, const struct nupa_msg *line,
			       struct source *source)
{
	const uint64_t total_bytes = word_of(line, 5), offset_bytes = word_of(line, 6);
	struct nupa_rx *rx = &channel->rx;
	const uint32_t bytes = source->bytes;
	uint64_t start;

	if (total_bytes != bytes || offset_bytes || !bytes || bytes > NUPA_STAGED_MAX_BYTES ||
	    bytes > nupa_dma_payload_max(rx->dma_bytes) || channel->distant)
		return false;
	rx->dma_pending = nupa_dma_span(rx->dma_head, rx->dma_bytes, bytes, &start);
	source->payload = rx->dma + start;
	return true;
}

static inline bool find_kept(const struct nupa_msg *line, struct source *source)
{
	const uint64_t total_bytes = word_of(line, 5), last = word_of(line, 7);

	if (source->bytes != sizeof(source->pull) || !total_bytes ||
	    total_bytes > NUPA_MSG_MAX_BYTES || total_bytes != (uint32_t)last)
		return false;
	source->payload = NULL;
	source->bytes = (uint32_t)total_bytes;
	source->pull =
	    (struct nupa_pull){ word_of(line, 6), (uint32_t)last, (uint32_t)(last >> 32) };
	return true;
}

/* False: the long way judges it. */
static inline bool find_source(struct nupa_channel *channel, const struct nupa_msg *line,
			       uint32_t flags, struct source *source)
{
	source->bytes = (uint32_t)word_of(line, 3);
	source->payload = line->data;
	channel->rx.dma_pending = 0;
	switch (flags & (NUPA_F_DMA | NUPA_F_PULL)) {
	case 0:
		return source->bytes <= NUPA_SEND_INLINE_BYTES;
	case NUPA_F_DMA:
		return find_beside(channel, line, source);
	case NUPA_F_PULL:
		return find_kept(line, source);
	default:
		return false;
	}
}

static inline bool place_line(struct nupa_qp *qp, const struct source *source, uint8_t *target)
{
	if (unlikely(!source->payload))
		return nupa_mover_fetch(qp->engine, qp->channel, &source->pull, target) &&
		       nupa_responder_awaited(qp);
	if (source->bytes <= NUPA_SEND_INLINE_BYTES)
		return nupa_guard_copy_small(target, source->payload, source->bytes);
	return nupa_guard_copy(target, source->payload, source->bytes);
}

/* False: the line is there, and goes the long way. */
static inline bool receive(struct nupa_engine *engine, struct nupa_channel *channel,
			   const struct nupa_msg *line)
{
	uint64_t head = word_of(line, 0); /* tag, op, flags, syndrome, timer */
	uint64_t ids = word_of(line, 1);  /* dest_qpn, src_qpn */
	uint64_t psns = word_of(line, 2); /* psn, ack_psn */
	uint32_t flags = (uint32_t)(head >> 40) & 0xff;
	uint32_t op = (uint32_t)(head >> 32) & 0xff;
	struct nupa_qp *qp;
	struct nupa_rq *rq;
	struct nupa_rwqe *rwqe;
	struct nupa_cqe *cqe;
	struct source source;
	uint8_t *target;

	if (op != NUPA_OP_SEND ||
	    (flags & ~(uint32_t)(NUPA_F_ACK | NUPA_F_SOLICITED | NUPA_F_DMA | NUPA_F_PULL)) !=
		(NUPA_F_FIRST | NUPA_F_LAST))
		return false;
	if (!find_source(channel, line, flags, &source))
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
	if (unlikely(!rwqe || qp->recv_active || rwqe->n_sge != 1 ||
		     source.bytes > rwqe->sge[0].length || nupa_cq_full(qp->recv_cq)))
		return false;
	target = nupa_mr_local(engine, qp->srq ? qp->srq->ibv.pd : qp->ibv.pd, rwqe->sge,
			       IBV_ACCESS_LOCAL_WRITE);
	if (unlikely(!target))
		return false;
	if (unlikely(!place_line(qp, &source, target)))
		return false;
	if (unlikely(!nupa_rx_intact(&channel->rx)))
		return false; /* cleared under us: its sender died */
	cqe = nupa_cq_next(qp->recv_cq);
	*cqe = (struct nupa_cqe){
		.wr_id = rwqe->wr_id,
		.qp = qp,
		.opcode = IBV_WC_RECV,
		.byte_len = source.bytes,
		.qp_num = qp->ibv.qp_num,
		.src_qp = (uint32_t)(ids >> 32),
	};
	if (likely(!qp->srq))
		rq->head++;
	else
		nupa_receive_taken(qp);
	nupa_cq_commit(qp->recv_cq, (flags & NUPA_F_SOLICITED) != 0);
	qp->expected_psn = nupa_psn_add(qp->expected_psn, 1);
	if (!qp->ack_pending)
		nupa_responder_ack(qp);
	if (qp->converses)
		nupa_prefetch_write(nupa_tx_next(&channel->tx));
	qp->heard = true;
	return true;
}

uint32_t nupa_express_drain(struct nupa_engine *engine, struct nupa_channel *channel, uint32_t most)
{
	struct nupa_rx *rx = &channel->rx;
	uint32_t n = 0;

	while (n < most && nupa_rx_ready(rx) && receive(engine, channel, nupa_rx_line(rx))) {
		nupa_rx_release(rx);
		if (n++) /* not the first: its sender may be about to write the next */
			nupa_rx_prefetch(rx, LINES_AHEAD);
	}
	return n;
}
