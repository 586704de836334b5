/* SPDX-License-Identifier: BSD-3-Clause
 * The express lane for a SEND whose bytes lie beside its line (express.h). */
#include "engine/transport/express.h"

#include <string.h>

bool nupa_express_stage(struct nupa_qp *qp, const struct nupa_express *request)
{
	const uint32_t bytes = request->bytes, flags = request->flags;
	struct nupa_channel *channel = qp->channel;
	struct nupa_sq *sq = &qp->sq;
	struct nupa_wqe *wqe = nupa_sq_wqe(sq, sq->posted);
	struct nupa_msg *msg;
	uint8_t *payload = NULL;

	if (sq->issued != sq->posted || sq->posted - sq->acked >= sq->capacity ||
	    qp->reads_outstanding || !nupa_express_path(qp) || qp->rated || qp->engine->trace ||
	    !channel->dma_backed || channel->distant ||
	    bytes > nupa_dma_payload_max(channel->tx.dma_bytes))
		return false;
	msg = nupa_tx_reserve(&channel->tx, bytes, &payload);
	if (unlikely(!msg || !nupa_guard_copy(payload, request->local, bytes)))
		return false;
	/* As send_parts of requester.c leaves it, for the case that it has to go again. */
	wqe->wr_id = request->wr_id;
	wqe->opcode = IBV_WR_SEND;
	wqe->flags = (uint8_t)(flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u));
	wqe->state = NUPA_WQE_SENT;
	wqe->length_bytes = wqe->moved_bytes = wqe->part_bytes = bytes;
	wqe->first_psn = wqe->last_psn = qp->next_psn;
	wqe->data_placed = wqe->pulled = 0;
	wqe->by_message = 1;
	wqe->n_sge = !(flags & IBV_SEND_INLINE);
	if (wqe->n_sge)
		wqe->sge[0] = *request->sge;
	else
		memcpy(wqe->inline_data, request->local, bytes);
	nupa_request_fill(qp, msg, NUPA_OP_SEND,
			  NUPA_F_FIRST | NUPA_F_LAST | NUPA_F_DMA |
			      (flags & IBV_SEND_SOLICITED ? NUPA_F_SOLICITED : 0),
			  bytes);
	msg->imm = 0;
	msg->total_bytes = bytes;
	msg->offset_bytes = 0;
	nupa_channel_put(channel, msg, bytes);
	qp->next_psn = nupa_psn_add(qp->next_psn, 1);
	sq->posted++;
	sq->issued++;
	qp->hot = nupa_tx_next(&channel->tx);
	qp->converses = qp->heard;
	qp->heard = false;
	return true;
}
