/* SPDX-License-Identifier: BSD-3-Clause
 * The requester: takes work requests from a send queue and executes them in order, directly in
 * the peer's memory or by messages.  The peer's answers: requester_answers.c. */
#include "engine/transport/issue.h"
#include "engine/transport/responder.h"

/* The spans are those of its SGEs that have bytes. */
static uint32_t list_pulls(const struct nupa_wqe *wqe, const struct nupa_span *spans,
			   struct nupa_pull *pulls)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < wqe->n_sge; i++) {
		if (!wqe->sge[i].length)
			continue;
		pulls[n] = (struct nupa_pull){ (uintptr_t)spans[n].va, wqe->sge[i].length,
					       wqe->sge[i].lkey };
		n++;
	}
	return n;
}

static bool send_pull(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct nupa_span *spans)
{
	struct nupa_pull pulls[NUPA_SGE_MAX];
	const uint32_t n = list_pulls(wqe, spans, pulls);
	const uint32_t list_bytes = n * (uint32_t)sizeof(pulls[0]);
	const uint32_t dma_bytes = n > 1 ? list_bytes : 0;
	uint8_t *payload;
	struct nupa_msg *msg = nupa_issue_reserve(qp, wqe->length_bytes, dma_bytes, &payload);

	if (!msg)
		return false;
	nupa_request_fill(qp, msg, NUPA_OP_SEND,
			  nupa_issue_flags(wqe) | NUPA_F_FIRST | NUPA_F_LAST | NUPA_F_PULL |
			      (dma_bytes ? NUPA_F_DMA : 0),
			  list_bytes);
	msg->imm = wqe->imm;
	msg->total_bytes = wqe->length_bytes;
	if (dma_bytes)
		memcpy(payload, pulls, list_bytes);
	else
		msg->pull = pulls[0];
	wqe->last_psn = qp->next_psn;
	wqe->by_message = wqe->pulled = 1;
	nupa_request_publish(qp, msg, dma_bytes);
	nupa_flow_xmit(qp->channel, wqe->length_bytes);
	return true;
}

/* A SEND whose payload fits into the line itself. */
static bool send_line(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	const uint8_t *from = nupa_wqe_inline(wqe);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans = 1;
	struct nupa_msg *msg;

	if (!(wqe->flags & IBV_SEND_INLINE)) {
		if (nupa_mr_resolve(qp->engine, qp->ibv.pd, wqe->sge, wqe->n_sge, 0, spans,
				    &n_spans))
			return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
		from = n_spans ? spans[0].va : NULL;
	}
	msg = nupa_issue_reserve(qp, wqe->length_bytes, 0, NULL);
	if (unlikely(!msg))
		return false;
	if (likely(n_spans == 1)
		? nupa_copy(msg->data, from, wqe->length_bytes)
		: nupa_spans_copy(spans, n_spans, 0, msg->data, wqe->length_bytes, false))
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	nupa_request_fill(qp, msg, NUPA_OP_SEND, nupa_issue_flags(wqe) | NUPA_F_FIRST | NUPA_F_LAST,
			  wqe->length_bytes);
	msg->imm = wqe->imm;
	wqe->first_psn = wqe->last_psn = qp->next_psn;
	wqe->moved_bytes = wqe->length_bytes;
	nupa_request_publish(qp, msg, 0);
	return true;
}

/* A SEND or relayed WRITE in as many messages as it takes; false: the channel is full, go on later.
 */
static bool send_parts(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct nupa_span *spans,
		       uint32_t n_spans, uint8_t op)
{
	uint32_t total = wqe->data_placed ? 0 : wqe->length_bytes;

	if (!wqe->by_message) /* I6 of retry.c */
		wqe->part_bytes = nupa_part_bytes(qp);
	do {
		uint32_t left = total - wqe->moved_bytes;
		bool in_line = op == NUPA_OP_WRITE && total <= NUPA_WRITE_INLINE_BYTES;
		uint32_t chunk = left < wqe->part_bytes ? left : wqe->part_bytes;
		uint32_t dma_bytes = in_line ? 0 : chunk;
		uint8_t *payload = NULL;
		struct nupa_msg *msg = nupa_issue_reserve(qp, chunk, dma_bytes, &payload);
		uint8_t flags = 0;

		if (!msg)
			return false;
		if (!wqe->moved_bytes)
			flags |= NUPA_F_FIRST;
		if (chunk == left)
			flags |= NUPA_F_LAST | nupa_issue_flags(wqe);
		if (dma_bytes)
			flags |= NUPA_F_DMA;
		nupa_request_fill(qp, msg, op, flags, chunk);
		msg->imm = wqe->imm;
		if (op == NUPA_OP_WRITE) {
			msg->reth = (struct nupa_reth){ wqe->raddr + wqe->moved_bytes, wqe->rkey,
							wqe->length_bytes };
			payload = in_line ? msg->write_data : payload;
		} else {
			msg->total_bytes = total;
			msg->offset_bytes = wqe->moved_bytes;
		}
		if (chunk &&
		    nupa_spans_copy(spans, n_spans, wqe->moved_bytes, payload, chunk, false)) {
			if (msg->flags & NUPA_F_ACK)
				nupa_responder_ack(qp); /* it does not go with this one */
			return nupa_sq_fail_in_turn(qp, qp->sq.issued, IBV_WC_LOC_PROT_ERR);
		}
		wqe->moved_bytes += chunk;
		wqe->by_message = 1;
		wqe->last_psn = qp->next_psn;
		nupa_request_publish(qp, msg, dma_bytes);
	} while (wqe->moved_bytes < total);
	return true;
}

/* The kernel reads none of such memory for the receiver. */
static bool is_of_dmabuf(const struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	for (uint32_t i = 0; i < wqe->n_sge; i++) {
		const struct nupa_mr *mr = nupa_mr_find(qp->engine, wqe->sge[i].lkey);

		if (mr && mr->dmabuf)
			return true;
	}
	return false;
}

/* A SEND of more bytes is pulled. */
static uint32_t least_pulled(const struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	const uint32_t pulls = nupa_channel_pulls(qp->channel);
	uint32_t least = 0;

	if (pulls == NUPA_PULLS_NOTHING)
		return UINT32_MAX;
	if (pulls != NUPA_PULLS_MAPPED)
		return NUPA_STAGED_MAX_BYTES;
	for (uint32_t i = 0; i < wqe->n_sge; i++)
		if (wqe->sge[i].length && !nupa_mr_may_map(qp, &wqe->sge[i])) {
			const uint32_t staged = nupa_mr_sends(qp->engine, &wqe->sge[i])
						    ? UINT32_MAX
						    : NUPA_STAGED_MAX_BYTES;

			least = staged > least ? staged : least;
		}
	return least;
}

/* I6 of retry.c: as it went before, if it did. */
static bool goes_pulled(const struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	if (unlikely(wqe->by_message))
		return wqe->pulled;
	/* UC waits for no receiver, so its buffer cannot. */
	return !(wqe->flags & IBV_SEND_INLINE) && qp->type == IBV_QPT_RC && !qp->engine->trace &&
	       wqe->length_bytes > least_pulled(qp, wqe) &&
	       !(unlikely(qp->rated) && wqe->length_bytes > nupa_pace_piece_bytes(qp)) &&
	       !(unlikely(qp->engine->dmabufs) && is_of_dmabuf(qp, wqe));
}

/* The same, larger: staged, pulled by the receiver, or in parts. */
static bool send_bulk(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;

	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans))
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	if (!wqe->moved_bytes)
		wqe->first_psn = qp->next_psn;
	if (goes_pulled(qp, wqe))
		return send_pull(qp, wqe, spans);
	return send_parts(qp, wqe, spans, n_spans, NUPA_OP_SEND);
}

static bool issue_send(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	if (qp->reads_outstanding)
		return false; /* keep the responder's order: see responder.c */
	if (wqe->length_bytes <= NUPA_SEND_INLINE_BYTES ? !send_line(qp, wqe, index)
							: !send_bulk(qp, wqe, index))
		return false;
	/* UC: a message in the channel is not awaited. */
	nupa_issued(qp, wqe, qp->type == IBV_QPT_UC ? NUPA_WQE_DONE : NUPA_WQE_SENT);
	if (qp->type == IBV_QPT_UC)
		nupa_sq_complete_done(qp);
	return true;
}

static const uint8_t kind_of[] = {
	[IBV_WR_ATOMIC_CMP_AND_SWP] = NUPA_ATOMIC_CAS,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = NUPA_ATOMIC_ADD,
	[IBV_WR_ATOMIC_WRITE] = NUPA_ATOMIC_WRITE,
	[IBV_WR_FLUSH] = NUPA_ATOMIC_FLUSH,
};

/* IBTA 9.7.4.1.1: by a wire a READ takes as many PSNs as its response has packets, and what is
 * asked for again keeps those that it had. */
static void set_psns(const struct nupa_qp *qp, struct nupa_wqe *wqe)
{
	const uint32_t mtu_bytes = nupa_qp_mtu_bytes(qp);

	wqe->first_psn = wqe->last_psn = qp->next_psn;
	if (likely(!qp->channel->wired) || wqe->opcode != IBV_WR_RDMA_READ)
		return;
	wqe->first_psn = (qp->next_psn - wqe->moved_bytes / mtu_bytes) & 0xffffff;
	wqe->last_psn =
	    nupa_psn_add(wqe->first_psn, nupa_packets(wqe->length_bytes, mtu_bytes) - 1);
}

/* By a wire a READ is asked for in pieces with fixed ends.  What is asked for again lies so in one
 * that was asked for before, as responders want it (IBTA 9.7.5.1.5), and not in two. */
static uint32_t read_unit(const struct nupa_qp *qp)
{
	const uint32_t mtu_bytes = nupa_qp_mtu_bytes(qp);

	return mtu_bytes * (mtu_bytes < NUPA_MTU_BYTES ? 32 : 16);
}

static uint32_t piece_bytes(const struct nupa_qp *qp, const struct nupa_wqe *wqe, uint32_t from)
{
	const uint32_t left = wqe->length_bytes - from,
		       to_end = read_unit(qp) - from % read_unit(qp);

	return left < to_end ? left : to_end;
}

/* Requests that the responder has to keep, of which a READ by a wire is several. */
static uint32_t requests_outstanding(struct nupa_qp *qp)
{
	const uint32_t unit = read_unit(qp);
	uint32_t n = qp->reads_outstanding;

	if (likely(!qp->channel->wired))
		return n;
	for (uint64_t i = qp->sq.acked; n && i != qp->sq.issued; i++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->opcode == IBV_WR_RDMA_READ && wqe->state == NUPA_WQE_SENT &&
		    wqe->part_bytes > wqe->moved_bytes)
			n += nupa_packets(wqe->part_bytes, unit) - wqe->moved_bytes / unit - 1;
	}
	return n;
}

/* ibv_modify_qp(3), max_rd_atomic: the responder keeps no more. */
static bool may_ask(struct nupa_qp *qp)
{
	const uint32_t most = qp->attr.max_rd_atomic ? qp->attr.max_rd_atomic : 1;

	return qp->reads_outstanding < most && requests_outstanding(qp) < most;
}

/* Whether the window has room for a piece behind those that were asked for. */
static bool may_read_more(struct nupa_qp *qp, const struct nupa_wqe *wqe, uint32_t piece)
{
	const uint32_t asked = wqe->part_bytes - wqe->moved_bytes;

	return !asked || (may_ask(qp) && asked + piece <= nupa_flight_read_bytes(qp));
}

void nupa_requester_read_more(struct nupa_qp *qp, struct nupa_wqe *wqe)
{
	while (wqe->part_bytes < wqe->length_bytes) {
		const uint32_t piece = piece_bytes(qp, wqe, wqe->part_bytes);
		struct nupa_msg *msg = may_read_more(qp, wqe, piece)
					   ? nupa_tx_reserve(&qp->channel->tx, 0, NULL)
					   : NULL;

		if (!msg)
			return;
		nupa_request_fill(qp, msg, NUPA_OP_READ, NUPA_F_FIRST | NUPA_F_LAST, 0);
		msg->psn = nupa_psn_of(
		    qp->incarnation,
		    nupa_psn_add(wqe->first_psn, wqe->part_bytes / nupa_qp_mtu_bytes(qp)));
		msg->reth = (struct nupa_reth){ wqe->raddr + wqe->part_bytes, wqe->rkey, piece };
		wqe->part_bytes += piece;
		nupa_channel_publish(qp->channel, msg, 0);
	}
}

/* A READ or atomic by a wire: what was asked for comes first, as PSNs are in order. */
static bool is_reading(struct nupa_qp *qp)
{
	const struct nupa_wqe *last;

	if (!qp->reads_outstanding || qp->sq.issued == qp->sq.acked)
		return false;
	last = nupa_sq_wqe(&qp->sq, qp->sq.issued - 1);
	return last->opcode == IBV_WR_RDMA_READ && last->state == NUPA_WQE_SENT &&
	       last->part_bytes < last->length_bytes;
}

static bool ask_responder(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct nupa_span *spans,
			  uint32_t n_spans)
{
	uint64_t value = wqe->compare_add;
	struct nupa_msg *msg;

	if (!nupa_is_response_op(wqe->opcode)) {
		if (qp->reads_outstanding)
			return false;
		if (!wqe->moved_bytes ||
		    !wqe->by_message) { /* pieces that went directly do not count */
			wqe->moved_bytes = 0;
			wqe->first_psn = qp->next_psn;
		}
		if (!send_parts(qp, wqe, spans, n_spans, NUPA_OP_WRITE))
			return false;
		nupa_issued(qp, wqe, qp->type == IBV_QPT_UC ? NUPA_WQE_DONE : NUPA_WQE_SENT);
		if (qp->type == IBV_QPT_UC)
			nupa_sq_complete_done(qp);
		return true;
	}
	if (!may_ask(qp))
		return false;
	if (wqe->opcode == IBV_WR_ATOMIC_WRITE &&
	    nupa_spans_copy(spans, n_spans, 0, &value, sizeof(value), false))
		return nupa_sq_fail_in_turn(qp, qp->sq.issued, IBV_WC_LOC_PROT_ERR);
	if (unlikely(qp->channel->wired) && is_reading(qp))
		return false;
	msg = nupa_issue_reserve(qp, 0, 0, NULL);
	if (!msg)
		return false;
	set_psns(qp, wqe);
	wqe->by_message = 1;
	if (wqe->opcode == IBV_WR_RDMA_READ) { /* again: what has not come yet */
		uint32_t left = wqe->length_bytes - wqe->moved_bytes;

		if (unlikely(qp->channel->wired))
			left = piece_bytes(qp, wqe, wqe->moved_bytes);
		wqe->part_bytes = wqe->moved_bytes + left;
		nupa_request_fill(qp, msg, NUPA_OP_READ, NUPA_F_FIRST | NUPA_F_LAST, 0);
		msg->reth = (struct nupa_reth){ wqe->raddr + wqe->moved_bytes, wqe->rkey, left };
	} else {
		nupa_request_fill(qp, msg, NUPA_OP_ATOMIC, NUPA_F_FIRST | NUPA_F_LAST, 0);
		msg->atomic = (struct nupa_atomic_eth){
			.raddr = wqe->raddr,
			.rkey = wqe->rkey,
			.kind = kind_of[wqe->opcode],
			.compare_add = value,
			.swap = wqe->swap,
		};
	}
	nupa_request_publish(qp, msg, 0);
	qp->next_psn = nupa_psn_add(wqe->last_psn, 1);
	qp->reads_outstanding++;
	nupa_issued(qp, wqe, NUPA_WQE_SENT);
	if (unlikely(qp->channel->wired) && wqe->opcode == IBV_WR_RDMA_READ)
		nupa_requester_read_more(qp, wqe);
	return true;
}

static bool issue_one_sided(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	bool oldest = qp->sq.acked == index;
	bool with_imm = wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;
	enum nupa_direct result = NUPA_DIRECT_ASK;
	uint64_t begun_ns = 0;

	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans))
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	if (!wqe->data_placed && !wqe->by_message && !qp->xrc &&
	    nupa_channel_may_direct(qp->engine, qp->channel, wqe->opcode)) {
		/* IBTA 10.8.3: what stands before it has to be executed first. */
		if (!oldest)
			return false;
		/* A UC message counts as done once it is in the channel: go behind it, not past it.
		 */
		if (qp->type == IBV_QPT_UC && (!nupa_tx_drained(&qp->channel->tx) ||
					       nupa_stall_backlogged(qp->channel, qp->dest_qpn)))
			return ask_responder(qp, wqe, spans, n_spans);
		if (unlikely(qp->engine->trace & NUPA_TRACE_MOVES))
			begun_ns = qp->engine->now_ns();
		result = unlikely(qp->rated) && qp->rate
			     ? nupa_pace_direct(qp, wqe, spans, n_spans)
			     : nupa_mover_direct(qp->engine, qp, wqe, spans, n_spans, 0,
						 wqe->length_bytes);
	}
	switch (result) {
	case NUPA_DIRECT_DONE:
		if (unlikely(begun_ns))
			nupa_trace_direct(qp, wqe, spans, n_spans, begun_ns);
		if (with_imm) {
			wqe->data_placed = 1;
			return ask_responder(qp, wqe, spans, n_spans);
		}
		nupa_sq_made_progress(qp);
		nupa_issued(qp, wqe, NUPA_WQE_DONE);
		nupa_sq_complete_done(qp);
		return true;
	case NUPA_DIRECT_ASK:
		return ask_responder(qp, wqe, spans, n_spans);
	case NUPA_DIRECT_NOT_READY:
		if (qp->type == IBV_QPT_RC)
			return nupa_sq_wait_for_peer(qp);
		nupa_issued(qp, wqe, NUPA_WQE_DONE);
		nupa_sq_complete_done(qp);
		return true;
	case NUPA_DIRECT_LOCAL_FAULT:
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	case NUPA_DIRECT_WAITS:
		return false;
	case NUPA_DIRECT_REMOTE_FAULT:
		return nupa_sq_fail_in_turn(qp, index, IBV_WC_REM_OP_ERR);
	}
	return false;
}

/* UC: of this message no more is sent.  The gap tells the receiver, which drops what it has of it.
 */
static bool lose_rest(struct nupa_qp *qp, struct nupa_wqe *wqe)
{
	qp->gave_up = false;
	qp->next_psn = nupa_psn_add(qp->next_psn, 1);
	nupa_issued(qp, wqe, NUPA_WQE_DONE);
	nupa_sq_complete_done(qp);
	return true;
}

static bool issue_connected(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	struct nupa_channel *channel = qp->channel;
	bool done;

	if (unlikely(qp->xrc)) {
		if (!nupa_xrc_route(qp, wqe))
			return false;
		channel = qp->channel;
	}
	if (unlikely(nupa_is_local_op(wqe->opcode))) {
		enum ibv_wc_status status;

		if (wqe->opcode == NUPA_WR_FAST_REG) { /* a key that no earlier request has */
			status = nupa_mr_fast_execute(qp, wqe);
		} else {
			if (qp->sq.acked != index)
				return false;
			status = nupa_mw_execute(qp, wqe);
		}
		if (status != IBV_WC_SUCCESS)
			return nupa_sq_fail_in_turn(qp, index, status);
		nupa_issued(qp, wqe, NUPA_WQE_DONE);
		nupa_sq_complete_done(qp);
		return true;
	}
	if (unlikely(!channel)) {
		channel = nupa_channel_get(
		    qp->engine, nupa_channel_slot(qp->engine, qp->dest_host, qp->dest_qpn));
		if (channel && channel->peer_host != qp->dest_host)
			channel = NULL; /* the address and the number do not belong together */
		if (!channel && qp->type == IBV_QPT_RC)
			return nupa_sq_wait_for_peer(qp);
		if (!channel) { /* UC: lost without an error */
			nupa_issued(qp, wqe, NUPA_WQE_DONE);
			nupa_sq_complete_done(qp);
			return true;
		}
		qp->channel = channel;
	}
	if (unlikely(channel->broken)) {
		if (qp->type == IBV_QPT_RC)
			return nupa_partner_left(qp)
				   ? nupa_sq_wait_for_peer(qp)
				   : nupa_sq_fail_in_turn(qp, index, IBV_WC_RETRY_EXC_ERR);
		nupa_issued(qp, wqe, NUPA_WQE_DONE);
		nupa_sq_complete_done(qp);
		return true;
	}
	if (unlikely(!nupa_channel_path_up(qp->engine, channel))) {
		nupa_channel_count_closed(channel, qp->type == IBV_QPT_RC);
		if (qp->type == IBV_QPT_RC)
			return nupa_sq_wait(qp, NUPA_WAIT_PATH, qp->engine->now_ns(), 0);
		nupa_issued(qp, wqe, NUPA_WQE_DONE);
		nupa_sq_complete_done(qp);
		return true;
	}
	switch (wqe->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		done = issue_send(qp, wqe, index);
		break;
	default:
		done = issue_one_sided(qp, wqe, index);
		break;
	}
	return likely(!qp->gave_up) ? done : lose_rest(qp, wqe);
}

void nupa_requester_run(struct nupa_qp *qp)
{
	while (qp->sq.issued != qp->sq.posted) {
		uint64_t index = qp->sq.issued;
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);

		if (unlikely(qp->state != IBV_QPS_RTS) &&
		    (qp->state != IBV_QPS_SQD || !nupa_sq_has_begun(&qp->sq))) {
			nupa_requester_stop_waiting(qp);
			return;
		}
		if (unlikely(qp->wait != NUPA_WAIT_NONE) && !nupa_sq_wait_over(qp))
			return;
		if (qp->type == IBV_QPT_UD ? !nupa_datagram_issue(qp, wqe, index)
					   : !issue_connected(qp, wqe, index))
			return;
	}
}
