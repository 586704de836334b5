/* SPDX-License-Identifier: BSD-3-Clause
 * The transport of the verbs, for the folders above and among its files: a QP's state, its
 * requester and its responder. */
#ifndef NUPA_TRANSPORT_H
#define NUPA_TRANSPORT_H

#include "engine/queue/queue.h"
#include "engine/trace/publish.h"

/* A SEND beyond its line is pulled by the receiver from memory that it can map (one copy).  From
 * other memory one of up to so many bytes is staged in the DMA channel (two copies), and a longer
 * one is pulled where it can be (a system call). */
#define NUPA_STAGED_MAX_BYTES 8192u

/* state.c */
void nupa_qp_publish(struct nupa_qp *qp);
void nupa_qp_set_state(struct nupa_qp *qp, enum ibv_qp_state state);

/* completion.c */
/* To ERR: flushes both queues in order. */
void nupa_qp_error(struct nupa_qp *qp);
void nupa_qp_flush_rq(struct nupa_qp *qp);
void nupa_requester_flush(struct nupa_qp *qp);
void nupa_requester_fail(struct nupa_qp *qp, enum ibv_wc_status status);
void nupa_cq_overrun(struct nupa_cq *cq, struct nupa_qp *qp);
/* Completions of the QP go on, after a fault held them back. */
void nupa_fault_unstick(struct nupa_qp *qp);

/* The express lane is closed until something succeeds again (express.h I4). */
static inline void nupa_qp_unsettle(struct nupa_qp *qp)
{
	qp->steady_tx = qp->steady_rx = false;
}

/* The place of the next completion, all of which the caller fills in.  Built in place: a copy of
 * what was just stored in smaller pieces stalls. */
static inline struct nupa_cqe *nupa_cq_next(const struct nupa_cq *cq)
{
	return &cq->ring[cq->tail & cq->mask];
}

/* The same where there may be no room; NULL: after an overrun. */
static inline struct nupa_cqe *nupa_cq_reserve(struct nupa_cq *cq, struct nupa_qp *qp)
{
	if (nupa_cq_full(cq)) {
		if (!cq->ignore_overrun) {
			nupa_cq_overrun(cq, qp);
			return NULL;
		}
		cq->head++;
	}
	return nupa_cq_next(cq);
}

/* pace.c: rates */
/* Takes over the table of rates, and looks up those of all QPs. */
void nupa_pace_follow(struct nupa_engine *engine);
/* Looks up the rates of a QP that has changed. */
void nupa_pace_look(struct nupa_qp *qp);
uint32_t nupa_pace_piece_bytes(const struct nupa_qp *qp);
/* Whether a request of so many bytes may go now; false: the QP waits until it may. */
bool nupa_pace_request(struct nupa_qp *qp, uint64_t bytes);
/* The same for part of a response; false: it is asked again. */
bool nupa_pace_answer(struct nupa_qp *qp, uint64_t bytes);
/* What is known of congestion on the way of a QP; NULL: no memory. */
struct nupa_congestion;
struct nupa_congestion *nupa_pace_congestion(struct nupa_qp *qp);
/* A notification of congestion came; first: its rate so far, in bytes a second, 0: unknown. */
void nupa_pace_slow_down(struct nupa_qp *qp, uint64_t first);
/* When the first of the QPs that wait may go on, if all that wait do so for their rates; else 0. */
uint64_t nupa_pace_idle_until_ns(const struct nupa_engine *engine);

/* How much of a message or response goes at once.  By a path with faults, where each packet has its
 * own fate, as much as a packet carries; with a rate, as much as that allows in half a millisecond.
 */
static inline uint32_t nupa_part_bytes(const struct nupa_qp *qp)
{
	uint32_t most = nupa_dma_payload_max(qp->channel->tx.dma_bytes);
	uint32_t mtu_bytes = nupa_qp_mtu_bytes(qp);

	if (unlikely(qp->rated) && nupa_pace_piece_bytes(qp) < most)
		most = nupa_pace_piece_bytes(qp);
	return unlikely(qp->channel->faulty) && mtu_bytes < most ? mtu_bytes : most;
}

/* IBTA 10.3.1.5: in SQD what has begun is finished, and nothing else begins. */
static inline bool nupa_sq_has_begun(struct nupa_sq *sq)
{
	return sq->issued < sq->begun ||
	       (sq->issued != sq->posted && nupa_sq_wqe(sq, sq->issued)->moved_bytes);
}

static inline bool nupa_sq_drained(struct nupa_sq *sq)
{
	return sq->acked == sq->issued && !nupa_sq_has_begun(sq);
}

/* The wait is over, but for its deadline. */
static inline void nupa_requester_end_wait(struct nupa_qp *qp)
{
	struct nupa_engine *engine = qp->engine;

	nupa_list_del(&qp->wait_link);
	nupa_heap_del(qp->wait == NUPA_WAIT_RATE ? &engine->paced : &engine->timed, &qp->wait_item);
	qp->wait = NUPA_WAIT_NONE;
}

static inline void nupa_requester_stop_waiting(struct nupa_qp *qp)
{
	nupa_requester_end_wait(qp);
	qp->wait_deadline_ns = 0;
	qp->wait_until_ns = 0;
}

/* Whether an answer to a request with this PSN is one to this connection, and awaited. */
static inline bool nupa_requester_awaits(const struct nupa_qp *qp, uint32_t psn)
{
	return qp->state >= IBV_QPS_RTS && qp->state <= IBV_QPS_SQE &&
	       nupa_psn_incarnation(psn) == qp->incarnation;
}

/* partner.c */
/* RC: this QP is about to be destroyed, its partner is told; and what the partner does. */
void nupa_partner_leave(struct nupa_qp *qp);
void nupa_partner_gone(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg);
/* Whether it was destroyed in order, by itself or with all others of its process. */
bool nupa_partner_left(const struct nupa_qp *qp);
/* P_Keys have changed: both directions check the partner before anything else goes. */
void nupa_partner_prove(struct nupa_qp *qp);
/* Requests found no answer: says so once, if P_Keys are the reason. */
void nupa_partner_explain(const struct nupa_qp *qp);

/* The last request that an acknowledgement names.  By a wire the responses to READs and atomics are
 * their acknowledgements (IBTA 9.7.5.1.2): another one would stand for data that was lost. */
static inline uint32_t nupa_ack_psn(const struct nupa_qp *qp)
{
	const uint32_t answered_psns = unlikely(qp->channel->wired) ? qp->answered_psns : 0;

	return nupa_psn_of(qp->peer_incarnation,
			   nupa_psn_add(qp->expected_psn, 0xffffff - answered_psns));
}

/* The next request has that PSN, and none before it was answered. */
static inline void nupa_responder_expect(struct nupa_qp *qp, uint32_t psn)
{
	qp->expected_psn = psn;
	qp->answered_psns = 0;
}

/* sq.c, requester.c, requester_answers.c */
void nupa_requester_run(struct nupa_qp *qp);
/* sq.c: runs those that have waited for long enough; when the first of the others has, UINT64_MAX:
 * there is none.  The QP waits for another time than was said. */
void nupa_sq_run_timed(struct nupa_engine *engine);
uint64_t nupa_sq_next_timer_ns(const struct nupa_engine *engine);
void nupa_sq_wait_anew(struct nupa_qp *qp);
void nupa_requester_ack(struct nupa_qp *qp, uint32_t psn);
void nupa_requester_nak(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_requester_read_resp(struct nupa_qp *qp, const struct nupa_msg *msg,
			      const uint8_t *payload);
void nupa_requester_atomic_resp(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_requester_lose_peer(struct nupa_qp *qp);
/* Sends everything from this request on again, one retry less; false: there was none left. */
bool nupa_requester_go_back(struct nupa_qp *qp, uint64_t index);

/* responder.c, responder_jobs.c, responder_answers.c */
void nupa_responder_request(struct nupa_engine *engine, struct nupa_channel *channel,
			    struct nupa_msg *msg, const uint8_t *payload);
bool nupa_responder_send_ack(struct nupa_qp *qp);
/* express.c: receives the SENDs that are next in the ring, as long as they are plain ones. */
uint32_t nupa_express_drain(struct nupa_engine *engine, struct nupa_channel *channel,
			    uint32_t most);
void nupa_responder_run_jobs(struct nupa_qp *qp);
void nupa_responder_send_refusals(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_responder_reset(struct nupa_qp *qp);
/* Backlogs: delivers messages for which there is a receive, and drops those that have waited for
 * too long.  `polled` is a CQ that the program has found empty, or NULL. */
void nupa_backlog_run(struct nupa_engine *engine, const struct nupa_cq *polled);

/* backlog.c */
/* The QP does not receive any more. */
void nupa_backlog_drop(struct nupa_qp *qp);
void nupa_backlog_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel);
/* When to run again; UINT64_MAX: there is none. */
uint64_t nupa_backlog_next_timer_ns(const struct nupa_engine *engine, uint64_t now_ns);

/* flight.c: what an RC QP may have on a wire at once.  False: it waits. */
bool nupa_flight_open(struct nupa_qp *qp);
/* All up to psn is acknowledged; something got lost; a connection begins. */
void nupa_flight_acked(struct nupa_qp *qp, uint32_t psn);
void nupa_flight_lost(struct nupa_qp *qp, bool all);
uint32_t nupa_flight_packets(struct nupa_qp *qp);
void nupa_flight_reset(struct nupa_qp *qp);
/* Requests go again: next_psn is about to be set back. */
void nupa_flight_rewind(struct nupa_qp *qp);
/* Whether a PSN that is answered was sent.  One that has to be sent again is set to the last that
 * was: the responder has all up to it. */
bool nupa_flight_was_sent(struct nupa_qp *qp, uint32_t *psn);
/* Whether the request with this PSN was sent before. */
bool nupa_flight_is_repeated(const struct nupa_qp *qp, uint32_t psn);
/* Whether the packet asks for an acknowledgement, though its message goes on. */
bool nupa_flight_asks(const struct nupa_qp *qp, uint32_t psn);
/* How much of a READ may be asked for at once. */
uint32_t nupa_flight_read_bytes(struct nupa_qp *qp);

/* mcast.c */
bool nupa_mcast_is_group(const union ibv_gid *gid);
/* Sends a datagram to all members; false: it waits, and is asked again. */
bool nupa_mcast_issue(struct nupa_qp *qp, struct nupa_wqe *wqe);
bool nupa_mcast_attached(const struct nupa_qp *qp, const uint8_t mgid[16]);
void nupa_mcast_free(struct nupa_engine *engine);

/* retry.c: a request went by a path with faults; an answer has come; no timer any more. */
void nupa_retry_sent(struct nupa_qp *qp);
void nupa_retry_progress(struct nupa_qp *qp);
void nupa_retry_stop(struct nupa_qp *qp);
/* The QP is reset: nothing of faults is left. */
void nupa_retry_reset(struct nupa_qp *qp);
/* Gives it qp->faults, if it has none; false: no memory.  A kernel does so when it makes a QP. */
bool nupa_qp_has_faults(struct nupa_qp *qp);
/* qp->faults, which it has from now on. */
struct nupa_qp_faults *nupa_qp_faults(struct nupa_qp *qp);
/* The path of this QP has a fault from now on; or none any more. */
void nupa_retry_begin(struct nupa_qp *qp);
void nupa_retry_end(struct nupa_qp *qp);
/* requester_answers.c: all timers that are due; when the next one is. */
uint64_t nupa_retry_run(struct nupa_engine *engine, uint64_t now_ns);
/* Something is due at this time because of faults. */
void nupa_fault_due(struct nupa_engine *engine, uint64_t at_ns);

#endif
