/* SPDX-License-Identifier: BSD-3-Clause
 * Queues and QPs, their requesters and responders, for the folders above and among themselves. */
#ifndef NUPA_QUEUE_H
#define NUPA_QUEUE_H

#include "engine/memory/memory.h"
#include "engine/trace/trace.h"

/* rq.c */
int nupa_rq_init(struct nupa_rq *rq, uint32_t capacity, uint32_t max_sge);
void nupa_rq_free(struct nupa_rq *rq);
static inline int nupa_rq_post(struct nupa_rq *rq, const struct ibv_recv_wr *wr)
{
	struct nupa_rwqe *rwqe;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;
	if (unlikely(rq->tail - rq->head >= rq->capacity))
		return ENOMEM;
	rwqe = (struct nupa_rwqe *)(void *)(rq->ring + (size_t)(rq->tail & rq->mask) * rq->stride);
	rwqe->wr_id = wr->wr_id;
	rwqe->n_sge = (uint32_t)wr->num_sge;
	if (likely(wr->num_sge == 1))
		rwqe->sge[0] = wr->sg_list[0];
	else
		for (int i = 0; i < wr->num_sge; i++)
			rwqe->sge[i] = wr->sg_list[i];
	rq->tail++;
	return 0;
}
static inline struct nupa_rwqe *nupa_rq_peek(struct nupa_rq *rq)
{
	if (rq->head == rq->tail)
		return NULL;
	return (struct nupa_rwqe *)(rq->ring + (size_t)(rq->head & rq->mask) * rq->stride);
}
uint32_t nupa_pow2_at_least(uint32_t n);
void *nupa_queue_map(size_t bytes);

/* cq.c */
void nupa_cq_overrun(struct nupa_cq *cq, struct nupa_qp *qp);
void nupa_cq_tell(struct nupa_cq *cq, bool solicited);

static inline bool nupa_cq_full(const struct nupa_cq *cq)
{
	return unlikely(cq->overrun || cq->tail - cq->head >= cq->capacity);
}

/* The place of the next completion, all of which the caller fills in, or NULL after an overrun.
 * Built in place: a copy of what was just stored in smaller pieces stalls. */
static inline struct nupa_cqe *nupa_cq_reserve(struct nupa_cq *cq, struct nupa_qp *qp)
{
	if (nupa_cq_full(cq)) {
		if (!cq->ignore_overrun) {
			nupa_cq_overrun(cq, qp);
			return NULL;
		}
		cq->head++;
	}
	return &cq->ring[cq->tail & cq->mask];
}

static inline void nupa_cq_commit(struct nupa_cq *cq, bool solicited)
{
	cq->tail++;
	if (unlikely(cq->notes || cq->arm != NUPA_ARM_NONE))
		nupa_cq_tell(cq, solicited);
}
struct nupa_cq *nupa_cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context,
			    struct ibv_comp_channel *channel, uint32_t comp_vector,
			    struct ibv_pd *parent_domain);
void nupa_cq_purge(struct nupa_cq *cq, struct nupa_qp *qp);

/* event.c */
void nupa_event_raise(struct nupa_context *context, const struct ibv_async_event *event);
void nupa_event_raise_qp(struct nupa_qp *qp, enum ibv_event_type type);
void nupa_event_raise_port(struct nupa_engine *engine, bool up);
void nupa_event_drop(struct nupa_context *context, void *element);
void nupa_event_wait_acked(struct nupa_context *context, const uint32_t *pending);

/* qp_create.c: aligned, and all zeros; NULL: no memory. */
struct nupa_qp *nupa_qp_blank(void);

/* qp.c, qp_state.c */
int nupa_qp_own_mask(enum ibv_qp_type type, int mask);
int nupa_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask);
void nupa_qp_publish(struct nupa_qp *qp);
/* The express lane is closed until something succeeds again (express.h I4). */
static inline void nupa_qp_unsettle(struct nupa_qp *qp)
{
	qp->steady_tx = qp->steady_rx = false;
}

void nupa_qp_set_state(struct nupa_qp *qp, enum ibv_qp_state state);
/* To ERR: flushes both queues in order. */
void nupa_qp_error(struct nupa_qp *qp);
void nupa_qp_flush_rq(struct nupa_qp *qp);
void nupa_qp_settle(struct nupa_qp *qp); /* sends what is owed */
void nupa_qp_reset(struct nupa_qp *qp);

/* How much of a message or response goes at once.  By a path with faults, where each packet has its
 * own fate, as much as a packet carries. */
static inline uint32_t nupa_part_bytes(const struct nupa_qp *qp)
{
	uint32_t most = nupa_dma_payload_max(qp->channel->tx.dma_bytes);
	uint32_t mtu_bytes = nupa_qp_mtu_bytes(qp);

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

static inline void nupa_channel_publish(struct nupa_channel *channel, struct nupa_msg *msg,
					uint32_t dma_bytes)
{
	if (unlikely(channel->engine->trace & NUPA_TRACE_MOVES))
		nupa_trace_send(channel->engine, channel, msg);
	nupa_channel_put(channel, msg, dma_bytes);
}

/* post.c */
int nupa_wqe_set_ud(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_ah *ah, uint32_t qpn,
		    uint32_t qkey);

/* qp_ex.c: gives a QP the wr_ calls; EOPNOTSUPP for an operation of send_ops_flags that we lack. */
int nupa_qp_ex_init(struct nupa_qp *qp, uint64_t send_ops_flags);

/* sq.c, requester.c, requester_answers.c */
void nupa_requester_run(struct nupa_qp *qp);
void nupa_requester_ack(struct nupa_qp *qp, uint32_t psn);
void nupa_requester_nak(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_requester_read_resp(struct nupa_qp *qp, const struct nupa_msg *msg,
			      const uint8_t *payload);
void nupa_requester_atomic_resp(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_requester_fail(struct nupa_qp *qp, enum ibv_wc_status status);
void nupa_requester_lose_peer(struct nupa_qp *qp);
void nupa_requester_flush(struct nupa_qp *qp);
void nupa_requester_stop_waiting(struct nupa_qp *qp);
/* Sends everything from this request on again, one retry less; false: there was none left. */
bool nupa_requester_go_back(struct nupa_qp *qp, uint64_t index);

/* responder.c, responder_answers.c, receive.c */
void nupa_responder_request(struct nupa_engine *engine, struct nupa_channel *channel,
			    struct nupa_msg *msg, const uint8_t *payload);
bool nupa_responder_send_ack(struct nupa_qp *qp);
/* express.c: true: the line was a small SEND, and has been received. */
bool nupa_express_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			  const struct nupa_msg *line);
void nupa_responder_run_jobs(struct nupa_qp *qp);
void nupa_responder_send_refusals(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_responder_reset(struct nupa_qp *qp);

/* ah.c */
int nupa_host_of_ah(struct nupa_engine *engine, const struct ibv_ah_attr *attr, uint32_t *host);

/* moderation.c */
bool nupa_cq_moderate(struct nupa_cq *cq);
void nupa_cq_run_timers(struct nupa_engine *engine);
uint64_t nupa_cq_next_timer_ns(const struct nupa_engine *engine);
void nupa_cq_raise(struct nupa_cq *cq); /* cq.c: if it is armed */

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
/* qp->faults, which it has from now on. */
struct nupa_qp_faults *nupa_qp_faults(struct nupa_qp *qp);
/* All timers that are due; when the next one is. */
uint64_t nupa_retry_run(struct nupa_engine *engine, uint64_t now_ns);
/* The path of this QP has a fault from now on; or none any more. */
void nupa_retry_begin(struct nupa_qp *qp);
void nupa_retry_end(struct nupa_qp *qp);
/* Something is due at this time because of faults. */
void nupa_fault_due(struct nupa_engine *engine, uint64_t at_ns);

/* xrc.c: where the request goes, which is qp->channel then; false: what was sent before has to be
 * answered first. */
bool nupa_xrc_route(struct nupa_qp *qp, const struct nupa_wqe *wqe);
void nupa_xrc_mark(struct nupa_qp *qp, struct nupa_msg *msg);
/* The responder for a QP that is not ours, but whose SRQ may be; NULL: refuse. */
struct nupa_qp *nupa_xrc_shadow(struct nupa_engine *engine, const struct nupa_channel *channel,
				const struct nupa_msg *msg);
void nupa_xrc_resync(struct nupa_qp *qp, const struct nupa_msg *msg);
/* Makes the message's SRQ the QP's, while it lasts; false: refused. */
bool nupa_xrc_bind(struct nupa_qp *qp, const struct nupa_msg *msg);
/* The same for one that was executed before; false: its SRQ is gone. */
bool nupa_xrc_bind_again(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_xrc_channel_failed(struct nupa_engine *engine, const struct nupa_channel *channel);

/* xrcd.c */
int nupa_xrc_srq_add(struct nupa_srq *srq, struct ibv_xrcd *xrcd, struct ibv_cq *cq);
void nupa_xrc_srq_remove(struct nupa_srq *srq);
void nupa_xrc_qp_users(struct nupa_qp *qp, int delta);
void nupa_xrc_publish(const struct nupa_qp *qp);
struct nupa_qp *nupa_xrc_close_handle(struct nupa_qp *handle);
void nupa_xrc_query_handle(const struct nupa_qp *handle, struct ibv_qp_attr *attr,
			   struct ibv_qp_init_attr *init);
void nupa_xrc_free(struct nupa_engine *engine);

/* sq.c: completions of the QP go on, after a fault held them back. */
void nupa_fault_unstick(struct nupa_qp *qp);

#endif
