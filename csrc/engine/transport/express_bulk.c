/* SPDX-License-Identifier: BSD-3-Clause
 * The express lane for a SEND whose bytes do not fit into its line (express.h): they lie beside it,
 * or the receiver fetches them from a region that it has mapped. */
#include "engine/transport/express.h"

#include <string.h>

/* As requester.c leaves it, for the case that it has to go again. */
static void fill_wqe(struct nupa_qp *qp, const struct nupa_express *request, struct nupa_wqe *wqe)
{
	const uint32_t bytes = request->bytes;

	wqe->wr_id = request->wr_id;
	wqe->opcode = IBV_WR_SEND;
	wqe->flags = (uint8_t)(request->flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u));
	wqe->state = NUPA_WQE_SENT;
	wqe->length_bytes = bytes;
	wqe->moved_bytes = 0;
	wqe->first_psn = wqe->last_psn = qp->next_psn;
	wqe->data_placed = wqe->pulled = 0;
	wqe->by_message = 1;
	wqe->n_sge = request->sge != NULL;
	if (wqe->n_sge)
		wqe->sge[0] = *request->sge;
}

static void fill_line(struct nupa_qp *qp, const struct nupa_express *request, struct nupa_msg *msg,
		      uint8_t flags, uint32_t payload_bytes)
{
	nupa_request_fill(qp, msg, NUPA_OP_SEND,
			  NUPA_F_FIRST | NUPA_F_LAST | flags |
			      (request->flags & IBV_SEND_SOLICITED ? NUPA_F_SOLICITED : 0),
			  payload_bytes);
	msg->imm = 0;
	msg->total_bytes = request->bytes;
}

static bool stage(struct nupa_qp *qp, const struct nupa_express *request, struct nupa_wqe *wqe)
{
	const uint32_t bytes = request->bytes;
	struct nupa_channel *channel = qp->channel;
	uint8_t *payload = NULL;
	struct nupa_msg *msg;

	if (bytes > NUPA_STAGED_MAX_BYTES || !channel->dma_backed ||
	    bytes > nupa_dma_payload_max(channel->tx.dma_bytes))
		return false;
	msg = nupa_tx_reserve(&channel->tx, bytes, &payload);
	if (unlikely(!msg || !nupa_guard_copy(payload, request->local, bytes)))
		return false;
	fill_wqe(qp, request, wqe);
	wqe->moved_bytes = wqe->part_bytes = bytes;
	if (!request->sge)
		memcpy(nupa_wqe_inline(wqe), request->local, bytes);
	fill_line(qp, request, msg, NUPA_F_DMA, bytes);
	msg->offset_bytes = 0;
	nupa_channel_put(channel, msg, bytes);
	nupa_express_sent(qp);
	return true;
}

/* Whether the receiver may fetch it by a mapping. */
static bool is_pulled(const struct nupa_qp *qp, const struct nupa_express *request)
{
	if (!request->sge || nupa_channel_pulls(qp->channel) != NUPA_PULLS_MAPPED)
		return false;
	if (nupa_mr_may_map(qp, request->sge))
		return true;
	if (request->bytes <= NUPA_STAGED_MAX_BYTES) /* others are counted by requester.c */
		(void)nupa_mr_sends(qp->engine, request->sge);
	return false;
}

static bool pull(struct nupa_qp *qp, const struct nupa_express *request, struct nupa_wqe *wqe)
{
	struct nupa_channel *channel = qp->channel;
	struct nupa_msg *msg = nupa_tx_reserve(&channel->tx, 0, NULL);

	if (unlikely(!msg))
		return false;
	fill_wqe(qp, request, wqe);
	wqe->pulled = 1;
	fill_line(qp, request, msg, NUPA_F_PULL, sizeof(msg->pull));
	msg->pull =
	    (struct nupa_pull){ (uintptr_t)request->local, request->bytes, request->sge->lkey };
	nupa_flow_xmit(channel, request->bytes);
	nupa_channel_commit(channel, msg, 0);
	nupa_channel_bell(channel);
	nupa_express_sent(qp);
	return true;
}

bool nupa_express_bulk(struct nupa_qp *qp, const struct nupa_express *request)
{
	struct nupa_sq *sq = &qp->sq;
	struct nupa_wqe *wqe = nupa_sq_wqe(sq, sq->posted);

	if (sq->issued != sq->posted || sq->posted - sq->acked >= sq->capacity ||
	    qp->reads_outstanding || !nupa_express_path(qp) || qp->rated || qp->engine->trace ||
	    qp->channel->distant)
		return false;
	return is_pulled(qp, request) ? pull(qp, request, wqe) : stage(qp, request, wqe);
}
