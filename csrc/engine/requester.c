/* SPDX-License-Identifier: BSD-3-Clause
 * The requester: takes work requests from a send queue and executes them in order, directly in
 * the peer's memory or by messages; completes them.  Go-back-N: a NAK rewinds `issued`. */
#include "engine.h"

/* Up to here a SEND is staged in the DMA channel (two copies, no system call); beyond, the
 * receiver pulls it (one copy) where it can. */
#define SEND_STAGED_MAX_BYTES 8192u

/* How soon a peer QP that was not ready is asked again: doubled each time. */
#define PEER_RETRY_MIN_NS 20000u
#define PEER_RETRY_MAX_NS 2000000u

/* How often a peer that has not opened its direction is asked again, and for how long at least. */
#define CONTACT_RETRY_NS 1000000u
#define CONTACT_MIN_NS UINT64_C(500000000)

static const uint8_t wc_opcode_of[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
};

static bool is_response_op(uint8_t opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* --- completion ---------------------------------------------------------------------- */

static void complete(struct nupa_qp *qp, const struct nupa_wqe *wqe, enum ibv_wc_status status)
{
	struct nupa_cqe *cqe;

	if (status == IBV_WC_SUCCESS && !(wqe->flags & IBV_SEND_SIGNALED))
		return;
	cqe = nupa_cq_reserve(qp->send_cq, qp);
	if (!cqe)
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wqe->wr_id,
		.qp = qp,
		.status = status,
		.opcode = wc_opcode_of[wqe->opcode],
		.byte_len = wqe->length_bytes,
		.qp_num = qp->ibv.qp_num,
	};
	nupa_cq_commit(qp->send_cq, status != IBV_WC_SUCCESS);
}

/* Completes what is done, from the oldest on (I3). */
static void complete_done(struct nupa_qp *qp)
{
	while (qp->sq.acked != qp->sq.issued) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, qp->sq.acked);

		if (wqe->state != NUPA_WQE_DONE)
			break;
		qp->sq.acked++;
		complete(qp, wqe, IBV_WC_SUCCESS);
	}
	if (unlikely(qp->state == IBV_QPS_SQD && qp->sqd_notify && nupa_sq_drained(&qp->sq))) {
		qp->sqd_notify = false;
		nupa_event_raise_qp(qp, IBV_EVENT_SQ_DRAINED);
	}
}

void nupa_requester_flush(struct nupa_qp *qp)
{
	while (qp->sq.acked != qp->sq.posted) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, qp->sq.acked++);

		complete(qp, wqe, IBV_WC_WR_FLUSH_ERR);
	}
	qp->sq.issued = qp->sq.posted;
	qp->reads_outstanding = 0;
	nupa_requester_stop_waiting(qp);
}

/* The oldest request fails.  RC: the QP is in error; UC and UD: only its send queue (IBTA 10.3.1).
 */
void nupa_requester_fail(struct nupa_qp *qp, enum ibv_wc_status status)
{
	if (qp->sq.acked == qp->sq.posted)
		return;
	complete(qp, nupa_sq_wqe(&qp->sq, qp->sq.acked++), status);
	if (qp->type == IBV_QPT_RC) {
		nupa_qp_error(qp);
	} else {
		nupa_qp_set_state(qp, IBV_QPS_SQE);
		nupa_requester_flush(qp);
	}
}

/* --- waiting ------------------------------------------------------------------------- */

void nupa_requester_stop_waiting(struct nupa_qp *qp)
{
	qp->wait = NUPA_WAIT_NONE;
	qp->wait_deadline_ns = 0;
	qp->wait_until_ns = 0;
	nupa_list_del(&qp->wait_link);
}

static bool wait_for(struct nupa_qp *qp, enum nupa_wait why, uint64_t now_ns, uint64_t delay_ns)
{
	if (qp->wait == NUPA_WAIT_NONE)
		nupa_list_add(&qp->engine->waiting, &qp->wait_link);
	if ((why == NUPA_WAIT_PEER || why == NUPA_WAIT_PATH) && !qp->wait_deadline_ns &&
	    qp->timeout_ns)
		qp->wait_deadline_ns = now_ns + qp->timeout_ns;
	qp->wait = why;
	qp->wait_until_ns = now_ns + delay_ns;
	/* A port thread that sleeps did so by the timers of before (under the lock: port_sleep). */
	if (unlikely(nupa_load_relaxed(&qp->engine->slot->sleeping)))
		nupa_slot_ring(qp->engine->slot);
	return false;
}

static bool wait_for_peer(struct nupa_qp *qp)
{
	uint64_t now_ns = qp->engine->now_ns();
	uint64_t started_ns = qp->wait_deadline_ns ? qp->wait_deadline_ns - qp->timeout_ns : now_ns;
	uint64_t delay_ns = now_ns - started_ns; /* so far: the next pause doubles it */

	if (delay_ns < PEER_RETRY_MIN_NS)
		delay_ns = PEER_RETRY_MIN_NS;
	if (delay_ns > PEER_RETRY_MAX_NS)
		delay_ns = PEER_RETRY_MAX_NS;
	return wait_for(qp, NUPA_WAIT_PEER, now_ns, delay_ns);
}

/* Without its direction of the channel the peer cannot answer: its process has not looked yet, or
 * has no memory for it.  An adapter would have been there: short timeouts do not count. */
static void wait_for_contact(struct nupa_qp *qp)
{
	uint64_t now_ns = qp->engine->now_ns();

	if (!qp->wait_deadline_ns && qp->timeout_ns)
		qp->wait_deadline_ns =
		    now_ns + (qp->timeout_ns > CONTACT_MIN_NS ? qp->timeout_ns : CONTACT_MIN_NS);
	wait_for(qp, NUPA_WAIT_CONTACT, now_ns, CONTACT_RETRY_NS);
}

/* True when the wait is over, by its event or by its deadline (then the QP has failed). */
static bool wait_over(struct nupa_qp *qp)
{
	uint64_t now_ns;

	if (qp->wait == NUPA_WAIT_RING) {
		nupa_requester_stop_waiting(qp);
		return true;
	}
	now_ns = qp->engine->now_ns();
	if (qp->wait_deadline_ns && now_ns >= qp->wait_deadline_ns) {
		if (qp->wait == NUPA_WAIT_PATH && qp->channel)
			qp->channel->flow->xmit_discards++;
		nupa_requester_stop_waiting(qp);
		/* What was issued before has been acknowledged or will never be. */
		nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	if (qp->wait == NUPA_WAIT_PATH) {
		if (!nupa_channel_path_up(qp->engine, qp->channel))
			return false;
		nupa_requester_stop_waiting(qp);
		return true;
	}
	if (qp->wait == NUPA_WAIT_CONTACT && qp->channel->rx_open) {
		nupa_requester_stop_waiting(qp);
		return true;
	}
	if (now_ns < qp->wait_until_ns)
		return false;
	if (qp->wait == NUPA_WAIT_CONTACT) {
		nupa_channel_knock(qp->engine, qp->channel);
		wait_for_contact(qp);
		return false;
	}
	/* RNR, PEER: asked again, and the deadline stays for the next wait, until something
	 * succeeds. */
	qp->wait = NUPA_WAIT_NONE;
	nupa_list_del(&qp->wait_link);
	return true;
}

/* Something of this QP got through: retry counters start anew (IBTA 9.7.5.1.4). */
static void made_progress(struct nupa_qp *qp)
{
	qp->rnr_left = qp->attr.rnr_retry;
	qp->psn_retries_left = qp->attr.retry_cnt;
	if (unlikely(qp->wait != NUPA_WAIT_NONE || qp->wait_deadline_ns))
		nupa_requester_stop_waiting(qp);
}

/* --- local memory -------------------------------------------------------------------- */

static bool local_spans(struct nupa_qp *qp, struct nupa_wqe *wqe, struct nupa_span *spans,
			uint32_t *n_spans)
{
	int access = is_response_op(wqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (wqe->flags & IBV_SEND_INLINE) {
		spans[0] = (struct nupa_span){ wqe->inline_data, wqe->length_bytes };
		*n_spans = 1;
		return true;
	}
	return nupa_mr_resolve(qp->engine, qp->ibv.pd, wqe->sge, wqe->n_sge, access, spans,
			       n_spans) == IBV_WC_SUCCESS;
}

/* An error that is ours completes in its turn: when all before it has. */
static bool fail_in_turn(struct nupa_qp *qp, uint64_t index, enum ibv_wc_status status)
{
	if (qp->sq.acked == index)
		nupa_requester_fail(qp, status);
	return false;
}

/* --- messages ------------------------------------------------------------------------ */

static struct nupa_msg *reserve(struct nupa_qp *qp, uint32_t dma_bytes, uint8_t **payload)
{
	struct nupa_msg *msg;

	if (unlikely(!qp->channel->rx_open && qp->type == IBV_QPT_RC)) {
		wait_for_contact(qp);
		return NULL;
	}
	if (unlikely(dma_bytes && !qp->channel->dma_backed) &&
	    nupa_channel_back_dma(qp->engine, qp->channel)) {
		if (qp->type == IBV_QPT_RC)
			wait_for_peer(qp);
		else
			fail_in_turn(qp, qp->sq.issued, IBV_WC_LOC_QP_OP_ERR);
		return NULL;
	}
	msg = nupa_tx_reserve(&qp->channel->tx, dma_bytes, payload);
	if (unlikely(!msg))
		wait_for(qp, NUPA_WAIT_RING, 0, 0);
	return msg;
}

static void fill(struct nupa_qp *qp, struct nupa_msg *msg, uint8_t op, uint8_t flags,
		 uint32_t bytes)
{
	msg->op = op;
	msg->flags = flags;
	msg->dest_qpn = qp->dest_qpn;
	msg->src_qpn = qp->ibv.qp_num;
	msg->psn = nupa_psn_of(qp->incarnation, qp->next_psn);
	msg->length_bytes = bytes;
	if (qp->ack_pending && !qp->nak_pending) { /* piggyback */
		msg->flags |= NUPA_F_ACK;
		msg->ack_psn =
		    nupa_psn_of(qp->peer_incarnation, nupa_psn_add(qp->expected_psn, 0xffffff));
		qp->ack_pending = false;
		nupa_list_del(&qp->ack_link);
	}
}

static void publish(struct nupa_qp *qp, struct nupa_msg *msg, uint32_t dma_bytes)
{
	nupa_flow_xmit(qp->channel, msg->length_bytes);
	nupa_tx_publish(&qp->channel->tx, msg, dma_bytes);
	qp->next_psn = nupa_psn_add(qp->next_psn, 1);
	nupa_channel_bell(qp->channel);
}

static uint8_t message_flags(const struct nupa_wqe *wqe)
{
	uint8_t flags = 0;

	if (wqe->flags & IBV_SEND_SOLICITED)
		flags |= NUPA_F_SOLICITED;
	if (wqe->opcode == IBV_WR_SEND_WITH_IMM || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= NUPA_F_IMM;
	if (wqe->opcode == IBV_WR_SEND_WITH_INV)
		flags |= NUPA_F_INV;
	return flags;
}

static bool send_pull(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct nupa_span *spans,
		      uint32_t n_spans)
{
	uint8_t *payload;
	uint32_t n = 0, dma_bytes;
	struct nupa_msg *msg;

	for (uint32_t i = 0; i < n_spans; i++)
		n += spans[i].bytes != 0;
	dma_bytes = n * (uint32_t)sizeof(struct nupa_pull);
	msg = reserve(qp, dma_bytes, &payload);
	if (!msg)
		return false;
	for (uint32_t i = 0; i < n_spans; i++) {
		struct nupa_pull pull = { (uintptr_t)spans[i].va, spans[i].bytes };

		if (!spans[i].bytes)
			continue;
		memcpy(payload, &pull, sizeof(pull));
		payload += sizeof(pull);
	}
	fill(qp, msg, NUPA_OP_SEND,
	     message_flags(wqe) | NUPA_F_FIRST | NUPA_F_LAST | NUPA_F_DMA | NUPA_F_PULL, dma_bytes);
	msg->imm = wqe->imm;
	msg->total_bytes = wqe->length_bytes;
	msg->offset_bytes = 0;
	wqe->last_psn = qp->next_psn;
	publish(qp, msg, dma_bytes);
	nupa_flow_xmit(qp->channel, wqe->length_bytes);
	return true;
}

/* A SEND whose payload fits into the line itself. */
static bool send_line(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	const uint8_t *from = wqe->inline_data;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans = 1;
	struct nupa_msg *msg;

	if (!(wqe->flags & IBV_SEND_INLINE)) {
		if (nupa_mr_resolve(qp->engine, qp->ibv.pd, wqe->sge, wqe->n_sge, 0, spans,
				    &n_spans))
			return fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
		from = n_spans ? spans[0].va : NULL;
	}
	msg = reserve(qp, 0, NULL);
	if (unlikely(!msg))
		return false;
	fill(qp, msg, NUPA_OP_SEND, message_flags(wqe) | NUPA_F_FIRST | NUPA_F_LAST,
	     wqe->length_bytes);
	msg->imm = wqe->imm;
	if (likely(n_spans == 1))
		nupa_copy_small(msg->data, from, wqe->length_bytes);
	else
		nupa_spans_copy(spans, n_spans, 0, msg->data, wqe->length_bytes, false);
	wqe->first_psn = wqe->last_psn = qp->next_psn;
	wqe->moved_bytes = wqe->length_bytes;
	publish(qp, msg, 0);
	return true;
}

/* A SEND or relayed WRITE in as many messages as it takes; false: the channel is full, go on later.
 */
static bool send_parts(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct nupa_span *spans,
		       uint32_t n_spans, uint8_t op)
{
	uint32_t chunk_max = nupa_dma_payload_max(qp->channel->tx.dma_bytes);
	uint32_t total = wqe->data_placed ? 0 : wqe->length_bytes;

	do {
		uint32_t left = total - wqe->moved_bytes;
		bool in_line = op == NUPA_OP_WRITE && total <= NUPA_WRITE_INLINE_BYTES;
		uint32_t chunk = left < chunk_max ? left : chunk_max;
		uint32_t dma_bytes = in_line ? 0 : chunk;
		uint8_t *payload = NULL;
		struct nupa_msg *msg = reserve(qp, dma_bytes, &payload);
		uint8_t flags = 0;

		if (!msg)
			return false;
		if (!wqe->moved_bytes)
			flags |= NUPA_F_FIRST;
		if (chunk == left)
			flags |= NUPA_F_LAST | message_flags(wqe);
		if (dma_bytes)
			flags |= NUPA_F_DMA;
		fill(qp, msg, op, flags, chunk);
		msg->imm = wqe->imm;
		if (op == NUPA_OP_WRITE) {
			msg->reth = (struct nupa_reth){ wqe->raddr + wqe->moved_bytes, wqe->rkey,
							wqe->length_bytes };
			payload = in_line ? msg->write_data : payload;
		} else {
			msg->total_bytes = total;
			msg->offset_bytes = wqe->moved_bytes;
		}
		if (chunk)
			nupa_spans_copy(spans, n_spans, wqe->moved_bytes, payload, chunk, false);
		wqe->moved_bytes += chunk;
		wqe->last_psn = qp->next_psn;
		publish(qp, msg, dma_bytes);
	} while (wqe->moved_bytes < total);
	return true;
}

static void issued(struct nupa_qp *qp, struct nupa_wqe *wqe, uint8_t state)
{
	wqe->state = state;
	qp->sq.issued++;
}

/* The same, larger: staged, pulled by the receiver, or in parts. */
static bool send_bulk(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index, bool *pulled)
{
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;

	if (!local_spans(qp, wqe, spans, &n_spans))
		return fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	if (!wqe->moved_bytes)
		wqe->first_psn = qp->next_psn;
	if (wqe->length_bytes > SEND_STAGED_MAX_BYTES && !(wqe->flags & IBV_SEND_INLINE) &&
	    !wqe->moved_bytes && nupa_channel_can_pull(qp->channel)) {
		*pulled = true;
		return send_pull(qp, wqe, spans, n_spans);
	}
	return send_parts(qp, wqe, spans, n_spans, NUPA_OP_SEND);
}

static bool issue_send(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	bool pulled = false;

	if (qp->reads_outstanding)
		return false; /* keep the responder's order: see responder.c */
	if (wqe->length_bytes <= NUPA_SEND_INLINE_BYTES ? !send_line(qp, wqe, index)
							: !send_bulk(qp, wqe, index, &pulled))
		return false;
	/* UC: whatever is in the channel is out of our hands. */
	issued(qp, wqe, qp->type == IBV_QPT_UC && !pulled ? NUPA_WQE_DONE : NUPA_WQE_SENT);
	if (qp->type == IBV_QPT_UC)
		complete_done(qp);
	return true;
}

static bool ask_responder(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct nupa_span *spans,
			  uint32_t n_spans)
{
	struct nupa_msg *msg;

	if (!is_response_op(wqe->opcode)) {
		if (qp->reads_outstanding)
			return false;
		if (!wqe->moved_bytes)
			wqe->first_psn = qp->next_psn;
		if (!send_parts(qp, wqe, spans, n_spans, NUPA_OP_WRITE))
			return false;
		issued(qp, wqe, qp->type == IBV_QPT_UC ? NUPA_WQE_DONE : NUPA_WQE_SENT);
		if (qp->type == IBV_QPT_UC)
			complete_done(qp);
		return true;
	}
	if (qp->reads_outstanding >= (qp->attr.max_rd_atomic ? qp->attr.max_rd_atomic : 1u))
		return false;
	msg = reserve(qp, 0, NULL);
	if (!msg)
		return false;
	wqe->first_psn = wqe->last_psn = qp->next_psn;
	wqe->moved_bytes = 0;
	if (wqe->opcode == IBV_WR_RDMA_READ) {
		fill(qp, msg, NUPA_OP_READ, NUPA_F_FIRST | NUPA_F_LAST, 0);
		msg->reth = (struct nupa_reth){ wqe->raddr, wqe->rkey, wqe->length_bytes };
	} else {
		fill(qp, msg, NUPA_OP_ATOMIC, NUPA_F_FIRST | NUPA_F_LAST, 0);
		msg->atomic = (struct nupa_atomic_eth){
			.raddr = wqe->raddr,
			.rkey = wqe->rkey,
			.is_cas = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
			.compare_add = wqe->compare_add,
			.swap = wqe->swap,
		};
	}
	publish(qp, msg, 0);
	qp->reads_outstanding++;
	issued(qp, wqe, NUPA_WQE_SENT);
	return true;
}

static bool issue_one_sided(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	bool oldest = qp->sq.acked == index;
	bool started = wqe->moved_bytes != 0; /* in parts: has to go on so */
	bool with_imm = wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;
	enum nupa_direct result = NUPA_DIRECT_ASK;

	if (!local_spans(qp, wqe, spans, &n_spans))
		return fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	if (!started && !wqe->data_placed &&
	    nupa_channel_may_direct(qp->engine, qp->channel, wqe->opcode)) {
		/* IBTA 10.8.3: what stands before it has to be executed first. */
		if (!oldest)
			return false;
		/* A UC message counts as done once it is in the channel: go behind it, not past it.
		 */
		if (qp->type == IBV_QPT_UC && !nupa_tx_drained(&qp->channel->tx))
			return ask_responder(qp, wqe, spans, n_spans);
		result = nupa_mover_direct(qp->engine, qp, wqe, spans, n_spans);
	}
	switch (result) {
	case NUPA_DIRECT_DONE:
		if (with_imm) {
			wqe->data_placed = 1;
			return ask_responder(qp, wqe, spans, n_spans);
		}
		made_progress(qp);
		issued(qp, wqe, NUPA_WQE_DONE);
		complete_done(qp);
		return true;
	case NUPA_DIRECT_ASK:
		return ask_responder(qp, wqe, spans, n_spans);
	case NUPA_DIRECT_NOT_READY:
		if (qp->type == IBV_QPT_RC)
			return wait_for_peer(qp);
		issued(qp, wqe, NUPA_WQE_DONE);
		complete_done(qp);
		return true;
	case NUPA_DIRECT_LOCAL_FAULT:
		return fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	case NUPA_DIRECT_REMOTE_FAULT:
		return fail_in_turn(qp, index, IBV_WC_REM_OP_ERR);
	}
	return false;
}

static bool issue_connected(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	struct nupa_channel *channel = qp->channel;

	if (wqe->opcode == IBV_WR_LOCAL_INV) {
		if (qp->sq.acked != index)
			return false;
		if (nupa_mr_invalidate(qp, wqe->imm))
			return fail_in_turn(qp, index, IBV_WC_MW_BIND_ERR);
		issued(qp, wqe, NUPA_WQE_DONE);
		complete_done(qp);
		return true;
	}
	if (unlikely(!channel)) {
		channel = nupa_channel_get(qp->engine, qp->dest_qpn >> NUPA_QP_INDEX_BITS);
		if (channel && channel->peer_host != qp->dest_host)
			channel = NULL; /* the address and the number do not belong together */
		if (!channel && qp->type == IBV_QPT_RC)
			return wait_for_peer(qp);
		if (!channel) { /* UC: nobody is there to miss it */
			issued(qp, wqe, NUPA_WQE_DONE);
			complete_done(qp);
			return true;
		}
		qp->channel = channel;
	}
	if (unlikely(channel->broken)) {
		if (qp->type == IBV_QPT_RC)
			return fail_in_turn(qp, index, IBV_WC_RETRY_EXC_ERR);
		issued(qp, wqe, NUPA_WQE_DONE);
		complete_done(qp);
		return true;
	}
	if (unlikely(!nupa_channel_path_up(qp->engine, channel))) {
		channel->flow->xmit_wait++;
		if (qp->type == IBV_QPT_RC)
			return wait_for(qp, NUPA_WAIT_PATH, qp->engine->now_ns(), 0);
		channel->flow->xmit_discards++;
		issued(qp, wqe, NUPA_WQE_DONE);
		complete_done(qp);
		return true;
	}
	switch (wqe->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return issue_send(qp, wqe, index);
	default:
		return issue_one_sided(qp, wqe, index);
	}
}

static bool issue_datagram(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index)
{
	uint32_t peer = wqe->dest_qpn >> NUPA_QP_INDEX_BITS;
	struct nupa_channel *channel;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans, dma_bytes;
	struct nupa_msg *msg;
	uint8_t *payload = NULL;

	if (wqe->length_bytes > NUPA_MTU_BYTES)
		return fail_in_turn(qp, index, IBV_WC_LOC_LEN_ERR);
	if (!local_spans(qp, wqe, spans, &n_spans))
		return fail_in_turn(qp, index, IBV_WC_LOC_PROT_ERR);
	channel = nupa_channel_get(qp->engine, peer);
	/* Nobody there, another host's, or no path: a datagram is lost without a word. */
	if (!channel || channel->broken || channel->peer_host != wqe->ah->host)
		goto out;
	if (!nupa_channel_path_up(qp->engine, channel)) {
		channel->flow->xmit_discards++;
		goto out;
	}
	dma_bytes = wqe->length_bytes <= NUPA_UD_INLINE_BYTES ? 0 : wqe->length_bytes;
	qp->channel = channel;
	qp->dest_qpn = wqe->dest_qpn;
	msg = reserve(qp, dma_bytes, &payload);
	if (!msg)
		return false;
	fill(qp, msg, NUPA_OP_SEND,
	     message_flags(wqe) | NUPA_F_FIRST | NUPA_F_LAST | (dma_bytes ? NUPA_F_DMA : 0),
	     wqe->length_bytes);
	msg->imm = wqe->imm;
	msg->deth = wqe->ah->deth;
	msg->deth.qkey = wqe->qkey;
	nupa_spans_copy(spans, n_spans, 0, dma_bytes ? payload : msg->ud_data, wqe->length_bytes,
			false);
	publish(qp, msg, dma_bytes);
out:
	qp->channel = NULL;
	issued(qp, wqe, NUPA_WQE_DONE);
	complete_done(qp);
	return true;
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
		if (unlikely(qp->wait != NUPA_WAIT_NONE) && !wait_over(qp))
			return;
		if (qp->type == IBV_QPT_UD ? !issue_datagram(qp, wqe, index)
					   : !issue_connected(qp, wqe, index))
			return;
	}
}

/* --- answers ------------------------------------------------------------------------- */

/* All requests up to psn are executed. */
void nupa_requester_ack(struct nupa_qp *qp, uint32_t psn)
{
	bool any = false;

	for (uint64_t i = qp->sq.acked; i != qp->sq.issued; i++) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_DONE)
			continue;
		if (is_response_op(wqe->opcode) || nupa_psn_diff(wqe->last_psn, psn) > 0)
			break; /* I: acks are in order, and a READ ends with its data */
		wqe->state = NUPA_WQE_DONE;
		any = true;
	}
	if (!any)
		return;
	made_progress(qp);
	complete_done(qp);
	nupa_requester_run(qp);
}

/* The process at the other end is gone. */
void nupa_requester_lose_peer(struct nupa_qp *qp)
{
	if (qp->type == IBV_QPT_UC) { /* what was sent is sent, and so is what comes */
		for (uint64_t i = qp->sq.acked; i != qp->sq.issued; i++)
			nupa_sq_wqe(&qp->sq, i)->state = NUPA_WQE_DONE;
		complete_done(qp);
		nupa_requester_run(qp);
		return;
	}
	if (qp->sq.acked != qp->sq.posted)
		nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
	else
		nupa_qp_error(qp);
	nupa_event_raise_qp(qp, IBV_EVENT_QP_FATAL);
}

/* Takes everything from the request with this psn on back; false: there is none such. */
static bool rewind_to(struct nupa_qp *qp, uint32_t psn)
{
	uint64_t end = qp->sq.issued;

	/* The one being sent in parts counts too. */
	if (end != qp->sq.posted && nupa_sq_wqe(&qp->sq, end)->moved_bytes)
		end++;
	for (uint64_t i = qp->sq.acked; i != end; i++) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_DONE || nupa_psn_diff(psn, wqe->first_psn) < 0 ||
		    (i != qp->sq.issued && nupa_psn_diff(psn, wqe->last_psn) > 0))
			continue;
		qp->next_psn = wqe->first_psn;
		for (uint64_t j = i; j != end; j++) {
			struct nupa_wqe *later = nupa_sq_wqe(&qp->sq, j);

			if (later->state == NUPA_WQE_SENT && is_response_op(later->opcode))
				qp->reads_outstanding--;
			later->state = NUPA_WQE_POSTED;
			later->moved_bytes = 0;
		}
		if (qp->sq.begun < end)
			qp->sq.begun = end;
		qp->sq.issued = i;
		return true;
	}
	return false;
}

/* Whether psn belongs to the oldest request that is on its way.  A QP that is not ready refuses all
 * that comes: what it says of the requests behind the first is stale once that was sent again. */
static bool is_oldest(struct nupa_qp *qp, uint32_t psn)
{
	for (uint64_t i = qp->sq.acked; i != qp->sq.posted; i++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_DONE)
			continue;
		return nupa_psn_diff(psn, wqe->first_psn) >= 0 &&
		       (i == qp->sq.issued || nupa_psn_diff(psn, wqe->last_psn) <= 0);
	}
	return false;
}

/* IBTA table 45: RNR NAK timer field, in units of 10 us. */
static const uint16_t rnr_timer_10us[32] = {
	65536 - 1, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
	48,        64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
	2048,      3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

void nupa_requester_nak(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	static const uint8_t fatal_status[] = {
		[NUPA_NAK_INVALID_REQUEST] = IBV_WC_REM_INV_REQ_ERR,
		[NUPA_NAK_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[NUPA_NAK_REMOTE_OPERATION] = IBV_WC_REM_OP_ERR,
	};

	if (qp->type == IBV_QPT_UC) {
		nupa_requester_ack(qp, msg->ack_psn); /* pulls that came to nothing */
		return;
	}
	/* All before a request that was refused is executed; but where there was no QP to refuse
	 * it, nothing is known of the others. */
	if (msg->flags & NUPA_F_ACK)
		nupa_requester_ack(qp, nupa_psn_add(msg->psn, 0xffffff));
	if (qp->type != IBV_QPT_RC || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) ||
	    (msg->syndrome == NUPA_NAK_NOT_READY && !is_oldest(qp, msg->psn)) ||
	    !rewind_to(qp, msg->psn))
		return;
	switch (msg->syndrome) {
	case NUPA_NAK_RNR:
		if (qp->rnr_left == 0) {
			nupa_requester_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		} else {
			if (qp->rnr_left != 7) /* 7: for ever, IBTA 9.7.5.2.8 */
				qp->rnr_left--;
			qp->wait_deadline_ns = 0; /* the peer QP is there: no longer that wait */
			wait_for(qp, NUPA_WAIT_RNR, qp->engine->now_ns(),
				 rnr_timer_10us[msg->timer & 31] * UINT64_C(10000));
		}
		break;
	case NUPA_NAK_PSN:
		if (qp->psn_retries_left-- == 0)
			nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
		else
			nupa_requester_run(qp);
		break;
	case NUPA_NAK_INVALID_REQUEST:
	case NUPA_NAK_REMOTE_ACCESS:
	case NUPA_NAK_REMOTE_OPERATION:
		nupa_requester_fail(qp, fatal_status[msg->syndrome]);
		break;
	default: /* NOT_READY, or something that we do not know */
		wait_for_peer(qp);
		break;
	}
}

/* The response we wait for next: responses come in the order of their requests. */
static struct nupa_wqe *oldest_response_op(struct nupa_qp *qp, uint32_t psn)
{
	for (uint64_t i = qp->sq.acked; i != qp->sq.issued; i++) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_SENT && is_response_op(wqe->opcode))
			return nupa_psn_diff(wqe->first_psn, psn) == 0 ? wqe : NULL;
	}
	return NULL;
}

static void response_done(struct nupa_qp *qp, struct nupa_wqe *wqe)
{
	wqe->state = NUPA_WQE_DONE;
	qp->reads_outstanding--;
	made_progress(qp);
	/* A response acknowledges all before it (IBTA 9.7.5.1.2). */
	nupa_requester_ack(qp, nupa_psn_add(wqe->first_psn, 0xffffff));
	complete_done(qp);
	nupa_requester_run(qp);
}

void nupa_requester_read_resp(struct nupa_qp *qp, const struct nupa_msg *msg,
			      const uint8_t *payload)
{
	struct nupa_wqe *wqe = oldest_response_op(qp, msg->psn);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;

	/* I5: only what we asked for, and only where it belongs. */
	if (!wqe || wqe->opcode != IBV_WR_RDMA_READ || msg->offset_bytes != wqe->moved_bytes ||
	    msg->length_bytes > wqe->length_bytes - wqe->moved_bytes ||
	    (msg->length_bytes && !payload))
		return;
	if (!local_spans(qp, wqe, spans, &n_spans)) {
		/* Deregistered meanwhile. */
		nupa_requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (msg->length_bytes)
		nupa_spans_copy(spans, n_spans, wqe->moved_bytes, (void *)(uintptr_t)payload,
				msg->length_bytes, true);
	wqe->moved_bytes += msg->length_bytes;
	if (wqe->moved_bytes == wqe->length_bytes)
		response_done(qp, wqe);
}

void nupa_requester_atomic_resp(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_wqe *wqe = oldest_response_op(qp, msg->psn);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;
	uint64_t original = msg->original;

	if (!wqe || wqe->opcode == IBV_WR_RDMA_READ)
		return;
	if (!local_spans(qp, wqe, spans, &n_spans)) {
		nupa_requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	nupa_spans_copy(spans, n_spans, 0, &original, sizeof(original), true);
	response_done(qp, wqe);
}
