/* SPDX-License-Identifier: BSD-3-Clause
 * Datagrams: each has its own receiver, and none waits for an answer. */
#include "base/hint.h"
#include "engine/transport/issue.h"

static bool too_long(struct nupa_qp *qp, const struct nupa_wqe *wqe, uint64_t index, uint32_t most)
{
	nupa_hint("QP %u: a datagram of %u bytes is longer than the MTU of %u "
		  "(IBV_WC_LOC_LEN_ERR)",
		  qp->ibv.qp_num, wqe->length_bytes, most);
	return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_LEN_ERR);
}

bool nupa_datagram_issue(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	struct nupa_channel *channel;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans, dma_bytes;
	struct nupa_msg *msg;
	uint8_t *payload = NULL;

	if (unlikely(wqe->length_bytes > NUPA_MTU_BYTES))
		return too_long(qp, wqe, index, NUPA_MTU_BYTES);
	if (unlikely(wqe->ah_host == NUPA_AH_GROUP)) {
		if (unlikely(qp->rated) && !wqe->by_message &&
		    !nupa_pace_request(qp, wqe->length_bytes))
			return false;
		wqe->by_message = 1; /* it is booked, once for all members */
		if (!nupa_mcast_issue(qp, wqe))
			return false;
		nupa_stall_over(qp);
		goto out;
	}
	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans))
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	channel = nupa_channel_get(qp->engine,
				   nupa_channel_slot(qp->engine, wqe->ah_host, wqe->dest_qpn));
	/* No such QP, another host's, or no path: a datagram is lost without an error. */
	if (!channel || channel->broken || channel->peer_host != wqe->ah_host)
		goto out;
	if (unlikely(channel->wired) && wqe->length_bytes > channel->wire_mtu_bytes)
		return too_long(qp, wqe, index, channel->wire_mtu_bytes);
	if (!nupa_channel_path_up(qp->engine, channel)) {
		nupa_channel_count_closed(channel, false);
		goto out;
	}
	dma_bytes = wqe->length_bytes <= NUPA_UD_INLINE_BYTES ? 0 : wqe->length_bytes;
	qp->channel = channel;
	qp->dest_qpn = wqe->dest_qpn;
	msg = nupa_issue_reserve(qp, wqe->length_bytes, dma_bytes, &payload);
	if (unlikely(!msg)) {
		if (!qp->gave_up)
			return false;
		qp->gave_up = false;
		goto out;
	}
	if (nupa_spans_copy(spans, n_spans, 0, dma_bytes ? payload : msg->ud_data,
			    wqe->length_bytes, false)) {
		qp->channel = NULL;
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	}
	nupa_request_fill(qp, msg, NUPA_OP_SEND,
			  nupa_issue_flags(wqe) | NUPA_F_FIRST | NUPA_F_LAST |
			      (dma_bytes ? NUPA_F_DMA : 0),
			  wqe->length_bytes);
	msg->imm = wqe->imm;
	msg->deth = wqe->deth;
	msg->deth.qkey = wqe->qkey;
	msg->deth.pkey = qp->pkey;
	nupa_request_publish(qp, msg, dma_bytes);
out:
	qp->channel = NULL;
	nupa_issued(qp, wqe, NUPA_WQE_DONE);
	nupa_sq_complete_done(qp);
	return true;
}
