/* SPDX-License-Identifier: BSD-3-Clause
 * The peer's answers to our requests, and answers that do not come in time.  Go-back-N: a NAK
 * rewinds `issued`. */
#include "base/hint.h"
#include "engine/transport/sq.h"

/* The oldest request that waits for an answer, or was sent and has to go again; `posted`: none. */
static uint64_t oldest_begun(struct nupa_qp *qp)
{
	uint64_t i = qp->sq.acked;

	while (i != qp->sq.posted && nupa_sq_wqe(&qp->sq, i)->state == NUPA_WQE_DONE)
		i++;
	return i != qp->sq.issued || nupa_sq_has_begun(&qp->sq) ? i : qp->sq.posted;
}

/* All up to psn is executed, which is part of a request.  This is progress as well; otherwise a
 * long request would never complete where every hundredth message is lost. */
static void note_part(struct nupa_qp *qp, uint32_t psn)
{
	uint64_t index = oldest_begun(qp);
	const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);
	struct nupa_qp_faults *faults;

	if (index == qp->sq.posted || nupa_is_response_op(wqe->opcode) ||
	    nupa_psn_diff(psn, wqe->first_psn) < 0)
		return;
	faults = nupa_qp_faults(qp);
	if (faults->part_of == index + 1 && nupa_psn_diff(psn, faults->part_psn) <= 0)
		return;
	faults->part_of = index + 1;
	faults->part_psn = nupa_psn_add(psn, 0);
	nupa_sq_made_progress(qp);
	nupa_requester_run(qp);
}

/* All requests up to psn are executed. */
void nupa_requester_ack(struct nupa_qp *qp, uint32_t psn)
{
	bool any = false;

	if (unlikely(qp->channel && qp->channel->wired))
		nupa_flight_acked(qp, psn);
	for (uint64_t i = qp->sq.acked; i != qp->sq.issued; i++) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_DONE)
			continue;
		if (nupa_is_response_op(wqe->opcode) || nupa_psn_diff(wqe->last_psn, psn) > 0)
			break; /* I: acks are in order, and a READ ends with its data */
		wqe->state = NUPA_WQE_DONE;
		any = true;
	}
	if (unlikely(!any && qp->channel && qp->channel->suspect))
		note_part(qp, psn);
	if (!any)
		return;
	nupa_sq_made_progress(qp);
	nupa_sq_complete_done(qp);
	nupa_requester_run(qp);
}

/* Behind the last that has begun: the one being sent in parts counts too. */
static uint64_t begun_end(struct nupa_sq *sq)
{
	return sq->issued + (sq->issued != sq->posted && nupa_sq_wqe(sq, sq->issued)->moved_bytes);
}

/* Where in a request in parts the one with this psn begins; 0: from its start on. */
static uint32_t part_offset(const struct nupa_wqe *wqe, uint32_t psn)
{
	uint64_t parts = (psn - wqe->first_psn) & 0xffffff;
	uint64_t offset = parts * wqe->part_bytes;

	if (!wqe->by_message || wqe->pulled || wqe->data_placed ||
	    nupa_is_response_op(wqe->opcode) || offset >= wqe->length_bytes)
		return 0;
	return (uint32_t)offset;
}

/* Takes everything from this part of this request on back.  Data that a READ has got stays. */
static void rewind_from(struct nupa_qp *qp, uint64_t index, uint32_t psn)
{
	uint64_t end = begun_end(&qp->sq);
	struct nupa_wqe *first = nupa_sq_wqe(&qp->sq, index);
	uint32_t offset = part_offset(first, psn);
	const bool wired = qp->channel && qp->channel->wired;

	if (unlikely(wired))
		nupa_flight_rewind(qp);
	qp->next_psn = offset ? psn : first->first_psn;
	if (unlikely(wired) && first->opcode == IBV_WR_RDMA_READ)
		qp->next_psn =
		    nupa_psn_add(qp->next_psn, first->moved_bytes / nupa_qp_mtu_bytes(qp));
	for (uint64_t i = index; i != end; i++) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_SENT && nupa_is_response_op(wqe->opcode))
			qp->reads_outstanding--;
		wqe->state = NUPA_WQE_POSTED;
		/* By a wire the PSNs of a READ's data follow those of what goes before it. */
		if (wqe->opcode != IBV_WR_RDMA_READ || (wired && i != index))
			wqe->moved_bytes = 0;
	}
	if (offset)
		first->moved_bytes = offset;
	if (qp->sq.begun < end)
		qp->sq.begun = end;
	qp->sq.issued = index;
}

/* The same from the request with this psn on, or of that from this part on; false: there is none
 * such. */
static bool rewind_to(struct nupa_qp *qp, uint32_t psn, bool to_part)
{
	uint64_t end = begun_end(&qp->sq);

	for (uint64_t i = qp->sq.acked; i != end; i++) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_DONE || nupa_psn_diff(psn, wqe->first_psn) < 0 ||
		    (i != qp->sq.issued && nupa_psn_diff(psn, wqe->last_psn) > 0))
			continue;
		rewind_from(qp, i, to_part ? psn : wqe->first_psn);
		return true;
	}
	return false;
}

/* It had destroyed the QP: all that it executed is answered, and the rest waits until its time is
 * over, as on a network. */
static void miss_peer(struct nupa_qp *qp)
{
	uint64_t index = oldest_begun(qp);

	if (index != qp->sq.posted)
		rewind_from(qp, index, nupa_sq_wqe(&qp->sq, index)->first_psn);
	if (qp->wait != NUPA_WAIT_PEER) /* for what does not come any more */
		nupa_requester_stop_waiting(qp);
	nupa_requester_run(qp);
}

/* The process at the other end is gone. */
void nupa_requester_lose_peer(struct nupa_qp *qp)
{
	if (qp->type == IBV_QPT_UC) { /* its messages are sent, and so are the next */
		nupa_requester_run(qp);
		return;
	}
	if (nupa_partner_left(qp)) {
		miss_peer(qp);
		return;
	}
	qp->lost_in_rtr = qp->state == IBV_QPS_RTR;
	qp->partner_lost = qp->sq.acked == qp->sq.posted;
	if (!qp->partner_lost)
		nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
	else
		nupa_qp_error(qp);
	nupa_event_raise_qp(qp, IBV_EVENT_QP_FATAL);
}

/* XRC: a process that shadows the target counts PSNs from what goes again. */
static void resync(struct nupa_qp *qp)
{
	if (unlikely(qp->xrc))
		qp->xrc_part->resync = qp->xrc_part->away;
}

bool nupa_requester_go_back(struct nupa_qp *qp, uint64_t index)
{
	const struct nupa_qp_faults *faults = qp->faults;
	uint32_t psn;

	if (qp->psn_retries_left == 0) {
		nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	qp->psn_retries_left--;
	psn = faults && faults->part_of == index + 1 ? nupa_psn_add(faults->part_psn, 1)
						     : nupa_sq_wqe(&qp->sq, index)->first_psn;
	if (unlikely(qp->channel && qp->channel->wired))
		nupa_flight_lost(qp, false);
	rewind_from(qp, index, psn);
	resync(qp);
	nupa_qp_unsettle(qp);
	return true;
}

/* Whether a NAK of this psn, or what implies one, tells nothing new: it has come before, or may be
 * of an earlier pass than the last one, whose answers are under way.  Then the timer alone ends the
 * QP. */
static bool is_stale_nak(const struct nupa_qp *qp, uint32_t psn)
{
	return (qp->went_back && nupa_psn_diff(qp->went_back_psn, psn) == 0) ||
	       (!qp->psn_retries_left && qp->attr.retry_cnt && qp->retrying);
}

/* IBTA 9.7.6.2.2, an implied NAK: what comes shows that part of the response to this request got
 * lost.  All that comes behind it shows the same, so the first one counts. */
static void response_lost(struct nupa_qp *qp, uint64_t index)
{
	uint32_t psn = nupa_sq_wqe(&qp->sq, index)->first_psn;

	if (!qp->channel->suspect || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) ||
	    is_stale_nak(qp, psn))
		return;
	nupa_count(&qp->engine->hw->packet_seq_err, 1);
	qp->went_back = true;
	qp->went_back_psn = psn;
	if (nupa_requester_go_back(qp, index))
		nupa_requester_run(qp);
}

/* Whether psn belongs to the oldest outstanding request.  A QP that is not ready refuses all
 * requests.  Its answers to those behind the first are stale once the first was sent again. */
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

/* A refusal for good, of a request that was gone back to meanwhile: another answer came first. */
static bool refuses_begun(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	uint64_t index = oldest_begun(qp);
	const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);

	return msg->syndrome >= NUPA_NAK_INVALID_REQUEST &&
	       msg->syndrome <= NUPA_NAK_REMOTE_OPERATION && index != qp->sq.posted &&
	       nupa_psn_diff(msg->psn, wqe->first_psn) >= 0 &&
	       nupa_psn_diff(msg->psn, wqe->last_psn) <= 0;
}

/* A pull that came to nothing because our memory is gone, with this as its last PSN.  All before it
 * is complete. */
static bool lost_own_memory(struct nupa_qp *qp, uint32_t psn)
{
	struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, qp->sq.acked);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;

	if (qp->sq.acked == qp->sq.posted || !wqe->by_message || !wqe->pulled ||
	    nupa_psn_diff(psn, wqe->last_psn) != 0)
		return false;
	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans))
		return true;
	for (uint32_t i = 0; i < n_spans; i++)
		if (!nupa_reach_is_there(spans[i].va, spans[i].bytes))
			return true;
	return false;
}

void nupa_requester_nak(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	static const uint8_t fatal_status[] = {
		[NUPA_NAK_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[NUPA_NAK_REMOTE_OPERATION] = IBV_WC_REM_OP_ERR,
	};

	/* All before a request that was refused is executed; but where there was no QP to refuse
	 * it, nothing is known of the others. */
	if (msg->flags & NUPA_F_ACK)
		nupa_requester_ack(qp, nupa_psn_add(msg->psn, 0xffffff));
	if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) ||
	    (msg->syndrome == NUPA_NAK_NOT_READY && !is_oldest(qp, msg->psn)) ||
	    (msg->syndrome == NUPA_NAK_PSN && is_stale_nak(qp, msg->psn)) ||
	    (!rewind_to(qp, nupa_psn_add(msg->psn, 0), msg->syndrome == NUPA_NAK_PSN) &&
	     !refuses_begun(qp, msg)))
		return;
	resync(qp);
	nupa_qp_unsettle(qp);
	switch (msg->syndrome) {
	case NUPA_NAK_RNR:
		nupa_count(&qp->engine->hw->rcvd_rnr_err, 1);
		if (qp->rnr_left == 0) {
			nupa_hint("QP %u gives up, as no receive was posted at QP %u for %u tries "
				  "(IBV_WC_RNR_RETRY_EXC_ERR): post receives before this end "
				  "sends, or set "
				  "rnr_retry to 7, which is without an end",
				  qp->ibv.qp_num, qp->dest_qpn, qp->attr.rnr_retry + 1u);
			nupa_requester_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		} else {
			if (qp->rnr_left != 7) /* 7: for ever, IBTA 9.7.5.2.8 */
				qp->rnr_left--;
			qp->wait_deadline_ns = 0; /* the peer QP is there: no longer that wait */
			nupa_sq_wait(qp, NUPA_WAIT_RNR, qp->engine->now_ns(),
				     rnr_timer_10us[msg->timer & 31] * UINT64_C(10000));
		}
		break;
	case NUPA_NAK_PSN:
		nupa_count(&qp->engine->hw->packet_seq_err, 1);
		if (unlikely(qp->channel && qp->channel->wired))
			nupa_flight_lost(qp, false);
		qp->went_back = true;
		qp->went_back_psn = msg->psn;
		if (qp->psn_retries_left-- == 0)
			nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
		else
			nupa_requester_run(qp);
		break;
	case NUPA_NAK_INVALID_REQUEST:
		nupa_requester_fail(qp, lost_own_memory(qp, msg->psn) ? IBV_WC_LOC_PROT_ERR
								      : IBV_WC_REM_INV_REQ_ERR);
		break;
	case NUPA_NAK_REMOTE_ACCESS:
	case NUPA_NAK_REMOTE_OPERATION:
		nupa_requester_fail(qp, fatal_status[msg->syndrome]);
		break;
	default: /* NOT_READY, or something that we do not know */
		nupa_sq_wait_for_peer(qp);
		break;
	}
}

/* The request whose response we wait for next; `issued`: none. */
static uint64_t oldest_response_op(struct nupa_qp *qp)
{
	uint64_t i = qp->sq.acked;

	for (; i != qp->sq.issued; i++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_SENT && nupa_is_response_op(wqe->opcode))
			break;
	}
	return i;
}

struct nupa_wqe *nupa_requester_response_awaited(struct nupa_qp *qp)
{
	uint64_t index = oldest_response_op(qp);

	return index != qp->sq.issued ? nupa_sq_wqe(&qp->sq, index) : NULL;
}

/* The response we wait for next: responses come in the order of their requests. */
struct nupa_wqe *nupa_requester_awaited(struct nupa_qp *qp, uint32_t psn)
{
	uint64_t index = oldest_response_op(qp);
	struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);

	return index != qp->sq.issued && nupa_psn_diff(wqe->first_psn, psn) == 0 ? wqe : NULL;
}

/* The same for a response that has come.  One to a later request shows that its own got lost. */
static struct nupa_wqe *awaited(struct nupa_qp *qp, uint32_t psn)
{
	struct nupa_wqe *wqe = nupa_requester_awaited(qp, psn);

	if (unlikely(!wqe && qp->channel->suspect && nupa_psn_diff(psn, qp->next_psn) < 0)) {
		uint64_t index = oldest_response_op(qp);

		if (index != qp->sq.issued &&
		    nupa_psn_diff(psn, nupa_sq_wqe(&qp->sq, index)->first_psn) > 0)
			response_lost(qp, index);
	}
	return wqe;
}

static void response_done(struct nupa_qp *qp, struct nupa_wqe *wqe)
{
	wqe->state = NUPA_WQE_DONE;
	qp->reads_outstanding--;
	nupa_sq_made_progress(qp);
	/* A response acknowledges all before it (IBTA 9.7.5.1.2). */
	nupa_requester_ack(qp, nupa_psn_add(wqe->first_psn, 0xffffff));
	nupa_sq_complete_done(qp);
	nupa_requester_run(qp);
}

void nupa_requester_read_resp(struct nupa_qp *qp, const struct nupa_msg *msg,
			      const uint8_t *payload)
{
	struct nupa_wqe *wqe = awaited(qp, msg->psn);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;
	uint64_t at;

	/* I5: only what we asked for, and only where it belongs. */
	if (!wqe || wqe->opcode != IBV_WR_RDMA_READ || msg->total_bytes > wqe->length_bytes ||
	    msg->offset_bytes > msg->total_bytes)
		return;
	/* Its total is what was still to come when we asked. */
	at = wqe->length_bytes - msg->total_bytes + msg->offset_bytes;
	if (unlikely(at > wqe->moved_bytes))
		response_lost(qp, oldest_response_op(qp));
	if (unlikely(at != wqe->moved_bytes) ||
	    msg->length_bytes > wqe->length_bytes - wqe->moved_bytes ||
	    (msg->length_bytes && !payload))
		return;
	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans)) {
		/* Deregistered meanwhile. */
		nupa_requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (msg->length_bytes &&
	    nupa_spans_copy(spans, n_spans, wqe->moved_bytes, (void *)(uintptr_t)payload,
			    msg->length_bytes, true)) {
		nupa_requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (!nupa_channel_intact(qp->channel))
		return; /* not its bytes: the death watch will tell */
	wqe->moved_bytes += msg->length_bytes;
	if (unlikely(qp->channel->wired)) {
		nupa_flight_acked(qp, msg->psn + (wqe->moved_bytes - 1) / nupa_qp_mtu_bytes(qp));
		nupa_requester_read_more(qp, wqe);
	}
	if (wqe->moved_bytes == wqe->length_bytes) {
		response_done(qp, wqe);
	} else if (unlikely(qp->channel->suspect) && msg->length_bytes) {
		nupa_sq_made_progress(qp);
		nupa_requester_run(qp);
	}
}

void nupa_requester_atomic_resp(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_wqe *wqe = awaited(qp, msg->psn);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;
	uint64_t original = msg->original;

	if (!wqe || wqe->opcode == IBV_WR_RDMA_READ)
		return;
	if (!nupa_is_fetching_op(wqe->opcode)) {
		response_done(qp, wqe);
		return;
	}
	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans)) {
		nupa_requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (nupa_spans_copy(spans, n_spans, 0, &original, sizeof(original), true)) {
		nupa_requester_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	response_done(qp, wqe);
}

/* --- no answer: the timer of retry.c ------------------------------------------------- */

static bool in_ring(const struct nupa_qp *qp)
{
	struct nupa_channel *channel = qp->channel;

	(void)nupa_tx_drained(&channel->tx);
	/* Or the answer in its one, where a fault keeps it. */
	return channel->tx.head_seen < qp->faults->retry_tail ||
	       (channel->gated && nupa_channel_ready(channel));
}

/* By a wire: part of a request is sent, and the rest waits for the window. */
static bool is_being_sent(struct nupa_qp *qp)
{
	return qp->channel && qp->channel->wired && qp->type == IBV_QPT_RC &&
	       qp->sq.issued != qp->sq.posted && nupa_sq_has_begun(&qp->sq);
}

static void expire(struct nupa_qp *qp)
{
	uint64_t index = nupa_retry_oldest(qp);
	bool lies_in_ring;

	if ((index == qp->sq.issued && !is_being_sent(qp)) || !qp->channel || qp->channel->broken ||
	    (!qp->channel->faulty && index >= qp->faults->retry_end) ||
	    (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)) {
		nupa_retry_stop(qp);
		return;
	}
	lies_in_ring = in_ring(qp);
	if (lies_in_ring && !qp->channel->timed) { /* I7 */
		nupa_retry_start(qp);
		return;
	}
	nupa_count(&qp->engine->hw->local_ack_timeout_err, 1);
	if (lies_in_ring && qp->psn_retries_left) {
		qp->psn_retries_left--;
		nupa_retry_start(qp);
		return;
	}
	if (unlikely(qp->channel->wired))
		nupa_flight_lost(qp, true);
	if (!nupa_requester_go_back(qp, index))
		return;
	qp->went_back = false; /* a NAK of that pass is as good as the first one was */
	nupa_retry_start(qp);
	nupa_requester_run(qp);
}

uint64_t nupa_retry_run(struct nupa_engine *engine, uint64_t now_ns)
{
	struct nupa_list *list = &engine->faults->retries;
	struct nupa_list *at = list->next;
	uint64_t next_ns = UINT64_MAX;

	while (at != list) {
		const struct nupa_qp_faults *faults =
		    container_of(at, struct nupa_qp_faults, retry_link);

		if (now_ns >= faults->retry_at_ns) {
			expire(faults->qp); /* may take others off the list; none is due twice */
			at = list->next;
			next_ns = UINT64_MAX;
			continue;
		}
		next_ns = faults->retry_at_ns < next_ns ? faults->retry_at_ns : next_ns;
		at = at->next;
	}
	return next_ns;
}
