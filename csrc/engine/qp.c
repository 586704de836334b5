/* SPDX-License-Identifier: BSD-3-Clause
 * Queue pairs: made, moved through their states, queried, destroyed. */
#define _GNU_SOURCE
#include "xrc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct nupa_qp *qp_of(struct ibv_qp *ibv)
{
	return container_of(ibv, struct nupa_qp, ibv);
}

/* What peers may know (P5): they check `state` first and last. */
void nupa_qp_publish(struct nupa_qp *qp)
{
	struct nupa_qp_entry *entry = qp->entry;

	nupa_qp_unsettle(qp);
	nupa_store_release(&entry->state, (uint8_t)IBV_QPS_RESET);
	nupa_store_relaxed(&entry->qpn, qp->ibv.qp_num);
	nupa_store_relaxed(&entry->type, (uint8_t)qp->ibv.qp_type);
	nupa_store_relaxed(&entry->access, qp->attr.qp_access_flags);
	nupa_store_relaxed(&entry->dest_qpn, qp->dest_qpn);
	nupa_store_relaxed(&entry->pd, qp->ibv.pd ? qp->ibv.pd->handle : 0);
	if (qp->xrc == NUPA_XRC_TARGET)
		nupa_xrc_publish(qp);
	nupa_store_relaxed(&entry->qkey, qp->attr.qkey);
	nupa_store_relaxed(&entry->incarnation, qp->incarnation);
	nupa_store_release(&entry->state, qp->state);
}

void nupa_qp_set_state(struct nupa_qp *qp, enum ibv_qp_state state)
{
	qp->state = (uint8_t)state;
	qp->ibv.state = state;
	nupa_qp_unsettle(qp);
	nupa_store_release(&qp->entry->state, qp->state);
}

static void flush_receive(struct nupa_qp *qp, uint64_t wr_id)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->recv_cq, qp);

	if (!cqe)
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wr_id,
		.qp = qp,
		.status = IBV_WC_WR_FLUSH_ERR,
		.opcode = IBV_WC_RECV,
		.qp_num = qp->ibv.qp_num,
	};
	nupa_cq_commit(qp->recv_cq, true);
}

void nupa_qp_flush_rq(struct nupa_qp *qp)
{
	struct nupa_rwqe *rwqe;

	if (qp->recv_active || qp->recv_kept) {
		qp->recv_active = qp->recv_kept = false;
		flush_receive(qp, qp->recv_wqe->wr_id);
	}
	while (!qp->srq && (rwqe = nupa_rq_peek(&qp->rq))) {
		qp->rq.head++;
		flush_receive(qp, rwqe->wr_id);
	}
	if (qp->srq && !qp->xrc && !qp->last_wqe_event) {
		qp->last_wqe_event = true;
		nupa_event_raise_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

void nupa_qp_error(struct nupa_qp *qp)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	nupa_qp_set_state(qp, IBV_QPS_ERR);
	nupa_requester_flush(qp);
	nupa_qp_flush_rq(qp);
}

/* --- creation ------------------------------------------------------------------------ */

/* As in mr.c: indices go round, so a number is not used again at once. */
static int index_take(struct nupa_engine *engine, struct nupa_qp *qp)
{
	uint32_t limit = engine->qp_limit;
	uint32_t max = engine->fabric->geometry.qp_entries;
	uint32_t next;

	/* QPN 0xffffff stands for multicast groups, so it is nobody's. */
	if (engine->slot_index == NUPA_SLOTS_MAX - 1 && max == NUPA_QP_MAX)
		max--;
	if (engine->qps_used * 2 >= limit && limit < max) {
		uint32_t more = limit * 2 < max ? limit * 2 : max;
		uint64_t table_off = nupa_arena_offset(engine->fabric, engine->slot_index) +
				     (uint64_t)((uint8_t *)engine->qp_entries - engine->arena);

		if (!nupa_fabric_back(engine->fabric,
				      table_off + (uint64_t)limit * sizeof(struct nupa_qp_entry),
				      (uint64_t)(more - limit) * sizeof(struct nupa_qp_entry))) {
			nupa_store_release(&engine->slot->qp_limit, more);
			limit = engine->qp_limit = more;
		}
	}
	if (engine->qps_used >= limit)
		return ENOMEM;
	next = engine->slot->next_qp_index;
	while (engine->qps[next % limit])
		next++;
	qp->index = next % limit;
	engine->slot->next_qp_index = next + 1;
	qp->entry = &engine->qp_entries[qp->index];
	engine->qps[qp->index] = qp;
	engine->qps_used++;
	return 0;
}

static int check_init(const struct ibv_context *context, const struct ibv_qp_init_attr *init)
{
	const struct ibv_qp_cap *cap = &init->cap;

	bool sends = init->qp_type != IBV_QPT_XRC_RECV,
	     receives = init->qp_type != IBV_QPT_XRC_SEND;

	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UC &&
	    init->qp_type != IBV_QPT_UD && init->qp_type != IBV_QPT_XRC_SEND &&
	    init->qp_type != IBV_QPT_XRC_RECV)
		return EOPNOTSUPP;
	/* XRC: what one side has no use for may be missing. */
	if ((sends && !init->send_cq) || (sends && receives && !init->recv_cq) ||
	    (init->send_cq && init->send_cq->context != context) ||
	    (init->recv_cq && init->recv_cq->context != context) ||
	    (init->srq && (init->srq->context != context || !sends || !receives)))
		return EINVAL;
	if (cap->max_send_wr > NUPA_QP_WR_MAX || cap->max_recv_wr > NUPA_QP_WR_MAX ||
	    cap->max_send_sge > NUPA_SGE_MAX || cap->max_recv_sge > NUPA_SGE_MAX ||
	    cap->max_inline_data > NUPA_INLINE_MAX_BYTES)
		return EINVAL;
	return 0;
}

static int sq_init(struct nupa_sq *sq, const struct ibv_qp_cap *cap)
{
	uint32_t entries = nupa_pow2_at_least(cap->max_send_wr);
	uint32_t sges_bytes = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);
	uint32_t tail_bytes = sges_bytes > cap->max_inline_data ? sges_bytes : cap->max_inline_data;

	sq->stride = ((uint32_t)offsetof(struct nupa_wqe, sge) + tail_bytes + 63) & ~UINT32_C(63);
	sq->mask = entries - 1;
	sq->capacity = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline_bytes = cap->max_inline_data;
	sq->map_bytes = (size_t)entries * sq->stride;
	sq->ring = nupa_queue_map(sq->map_bytes);
	return sq->ring ? 0 : ENOMEM;
}

/* Gives the parent domain back what is its. */
static void release_rings(struct nupa_qp *qp)
{
	nupa_domain_release(qp->ibv.pd, NUPA_BUFFER_SQ, &qp->sq.ring, &qp->sq_custom);
	nupa_domain_release(qp->ibv.pd, NUPA_BUFFER_RQ, &qp->rq.ring, &qp->rq_custom);
}

static void qp_free(struct nupa_qp *qp)
{
	release_rings(qp);
	if (qp->sq.ring)
		munmap(qp->sq.ring, qp->sq.map_bytes);
	nupa_rq_free(&qp->rq);
	free(qp->recv_wqe);
	pthread_mutex_destroy(&qp->ibv.mutex);
	pthread_cond_destroy(&qp->ibv.cond);
	free(qp);
}

static void count_users(struct nupa_qp *qp, int delta)
{
	if (qp->xrc == NUPA_XRC_TARGET) {
		nupa_xrc_qp_users(qp, delta);
		return;
	}
	container_of(qp->ibv.pd, struct nupa_pd, ibv)->users += (uint32_t)delta;
	qp->send_cq->users += (uint32_t)delta;
	if (qp->recv_cq)
		qp->recv_cq->users += (uint32_t)delta;
	if (qp->srq)
		qp->srq->users += (uint32_t)delta;
}

/* Before it is made: what a side of XRC has not, and what costs nothing. */
static void settle_init(struct ibv_qp_init_attr *init)
{
	if (init->qp_type == IBV_QPT_XRC_RECV) {
		init->send_cq = NULL;
		init->cap.max_send_wr = init->cap.max_send_sge = init->cap.max_inline_data = 0;
	} else if (init->cap.max_inline_data < NUPA_SEND_INLINE_BYTES) {
		init->cap.max_inline_data = NUPA_SEND_INLINE_BYTES;
	}
	if (init->qp_type == IBV_QPT_XRC_RECV || init->qp_type == IBV_QPT_XRC_SEND)
		init->recv_cq = NULL;
	/* man ibv_create_qp: the RQ's sizes are ignored with an SRQ */
	if (init->srq || init->qp_type == IBV_QPT_XRC_RECV || init->qp_type == IBV_QPT_XRC_SEND)
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
}

static void fill_handle(struct ibv_qp *ibv, struct ibv_context *context, struct ibv_pd *pd,
			const struct ibv_qp_init_attr *init)
{
	ibv->context = context;
	ibv->qp_context = init->qp_context;
	ibv->pd = pd;
	ibv->send_cq = init->send_cq;
	ibv->recv_cq = init->recv_cq;
	ibv->srq = init->srq;
	ibv->qp_type = init->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
}

static struct nupa_qp *qp_alloc(struct ibv_context *context, struct ibv_pd *pd,
				struct ibv_xrcd *xrcd, const struct ibv_qp_init_attr *init)
{
	struct nupa_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->engine = nupa_engine_of(context);
	qp->type = (uint8_t)init->qp_type;
	if (init->qp_type == IBV_QPT_XRC_SEND || init->qp_type == IBV_QPT_XRC_RECV) {
		qp->type = IBV_QPT_RC;
		qp->xrc = xrcd ? NUPA_XRC_TARGET : NUPA_XRC_INITIATOR;
		qp->xrcd = xrcd ? container_of(xrcd, struct nupa_xrcd, ibv) : NULL;
	}
	qp->sq_sig_all = init->sq_sig_all;
	qp->send_cq = init->send_cq ? container_of(init->send_cq, struct nupa_cq, ibv) : NULL;
	qp->recv_cq = init->recv_cq ? container_of(init->recv_cq, struct nupa_cq, ibv) : NULL;
	qp->srq = init->srq ? container_of(init->srq, struct nupa_srq, ibv) : NULL;
	qp->init = *init;
	fill_handle(&qp->ibv, context, pd, init);
	nupa_list_init(&qp->wait_link);
	nupa_list_init(&qp->ack_link);
	nupa_list_init(&qp->job_link);
	qp->peer_incarnation = NUPA_PEER_UNKNOWN;
	qp->recv_wqe = calloc(1, NUPA_RECV_COPY_BYTES);
	if (!qp->recv_wqe || sq_init(&qp->sq, &init->cap) ||
	    (!init->srq && nupa_rq_init(&qp->rq, init->cap.max_recv_wr, init->cap.max_recv_sge)) ||
	    nupa_domain_buffer(pd, NUPA_BUFFER_SQ, &qp->sq.ring, qp->sq.map_bytes,
			       &qp->sq_custom) ||
	    (qp->rq.ring && nupa_domain_buffer(pd, NUPA_BUFFER_RQ, &qp->rq.ring, qp->rq.map_bytes,
					       &qp->rq_custom))) {
		qp_free(qp);
		return NULL;
	}
	return qp;
}

static struct ibv_qp *qp_make(struct ibv_context *context, struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			      struct ibv_qp_init_attr *init)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	int error = check_init(context, init);
	struct nupa_qp *qp;

	if (error) {
		errno = error;
		return NULL;
	}
	settle_init(init);
	qp = qp_alloc(context, pd, xrcd, init);
	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	nupa_engine_lock(engine);
	error = index_take(engine, qp);
	if (!error) {
		qp->ibv.qp_num = engine->slot_index << NUPA_QP_INDEX_BITS | qp->index;
		qp->ibv.handle = qp->ibv.qp_num;
		qp->incarnation = (qp->entry->incarnation + 1) & 0xff;
		count_users(qp, 1);
		nupa_qp_publish(qp);
	}
	nupa_engine_unlock(engine);
	if (error) {
		qp_free(qp);
		errno = error;
		return NULL;
	}
	return &qp->ibv;
}

struct ibv_qp *nupa_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (init->qp_type ==
	    IBV_QPT_XRC_RECV) { /* has an XRC domain, and no PD: ibv_create_qp_ex */
		errno = EINVAL;
		return NULL;
	}
	return qp_make(pd->context, pd, NULL, init);
}

struct ibv_qp *nupa_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *ex)
{
	struct ibv_qp_init_attr init = {
		.qp_context = ex->qp_context,
		.send_cq = ex->send_cq,
		.recv_cq = ex->recv_cq,
		.srq = ex->srq,
		.cap = ex->cap,
		.qp_type = ex->qp_type,
		.sq_sig_all = ex->sq_sig_all,
	};
	bool target = ex->qp_type == IBV_QPT_XRC_RECV;
	uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | (target ? IBV_QP_INIT_ATTR_XRCD : 0u);
	struct ibv_qp *qp;

	if (target
		? !(ex->comp_mask & IBV_QP_INIT_ATTR_XRCD) || ex->xrcd->context != context
		: !(ex->comp_mask & IBV_QP_INIT_ATTR_PD) || !ex->pd || ex->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (ex->comp_mask & ~known ||
	    (ex->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	     ex->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = target ? qp_make(context, NULL, ex->xrcd, &init)
		    : qp_make(context, ex->pd, NULL, &init);
	if (!qp)
		return NULL;
	ex->cap = init.cap;
	qp_of(qp)->block_self_mcast = ex->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
				      ex->create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	if (ex->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    (errno = nupa_qp_ex_init(qp_of(qp), ex->send_ops_flags))) {
		int error = errno;

		nupa_destroy_qp(qp);
		errno = error;
		return NULL;
	}
	return qp;
}

struct ibv_qp_ex *nupa_qp_to_qp_ex(struct ibv_qp *qp)
{
	return qp_of(qp)->is_ex ? &qp_of(qp)->ibv_ex : NULL;
}

/* --- destruction --------------------------------------------------------------------- */

/* A partner that waits for our last acknowledgement must get it. */
#define LAST_ACK_TRIES 10000

static void settle_answers(struct nupa_qp *qp)
{
	for (int i = 0; i < LAST_ACK_TRIES && !nupa_list_empty(&qp->ack_link); i++) {
		if (nupa_responder_send_ack(qp))
			return;
		nupa_engine_progress(qp->engine);
	}
}

static void qp_reset(struct nupa_qp *qp)
{
	nupa_requester_stop_waiting(qp);
	nupa_responder_reset(qp);
	if (qp->send_cq)
		nupa_cq_purge(qp->send_cq, qp);
	if (qp->recv_cq)
		nupa_cq_purge(qp->recv_cq, qp);
	qp->sq.acked = qp->sq.issued = qp->sq.posted = qp->sq.begun = 0;
	qp->rq.head = qp->rq.tail = 0;
	qp->reads_outstanding = 0;
	qp->channel = NULL;
	qp->xrc_away = qp->xrc_resync = false;
	qp->peer = NULL;
	qp->dest_qpn = 0;
	qp->last_wqe_event = qp->comm_est = qp->sqd_notify = false;
	qp->partner_gone = qp->partner_lost = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->incarnation = (qp->incarnation + 1) & 0xff;
	nupa_qp_set_state(qp, IBV_QPS_RESET);
	nupa_qp_publish(qp);
}

static void qp_leave(struct nupa_qp *qp)
{
	struct nupa_engine *engine = qp->engine;

	settle_answers(qp);
	nupa_partner_leave(qp);
	qp_reset(qp);
	if (unlikely(qp->windows))
		nupa_mw_forget_qp(qp);
	nupa_store_relaxed(&qp->entry->qpn, 0);
	engine->qps[qp->index] = NULL;
	engine->qps_used--;
}

int nupa_destroy_qp(struct ibv_qp *ibv)
{
	struct nupa_qp *qp = qp_of(ibv), *gone = qp;
	struct nupa_engine *engine = qp->engine;
	struct nupa_context *context = container_of(ibv->context, struct nupa_context, ibv.context);

	nupa_engine_lock(engine);
	if (qp->mcast_groups) { /* man ibv_destroy_qp */
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	if (qp->is_handle)
		gone = nupa_xrc_close_handle(qp);
	else
		nupa_event_drop(context, ibv);
	if (gone && gone->opens) { /* man ibv_open_qp: others have it open */
		gone->orphan = true;
		gone = NULL;
	}
	if (gone)
		qp_leave(gone);
	nupa_engine_unlock(engine);
	if (gone) {
		nupa_event_wait_acked(context, &gone->async_pending);
		release_rings(gone);
		nupa_engine_lock(engine);
		count_users(gone, -1);
		nupa_engine_unlock(engine);
		qp_free(gone);
	}
	return 0;
}

/* --- modification -------------------------------------------------------------------- */

static int check_attr(struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t host;
	int error;

	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT && attr->timeout > 31) ||
	    (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
	    (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7) ||
	    (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31))
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > NUPA_RD_ATOMIC_MAX) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > NUPA_RD_ATOMIC_MAX))
		return EINVAL;
	if (mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE))
		return EOPNOTSUPP; /* no automatic path migration */
	if (mask & IBV_QP_AV) {
		error = nupa_host_of_ah(qp->engine, &attr->ah_attr, &host);
		if (error)
			return error;
		qp->dest_host = host;
	}
	return 0;
}

static void take_attr(struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *own = &qp->attr;

#define TAKE(bit, field)                                                                           \
	do {                                                                                       \
		if (mask & (bit))                                                                  \
			own->field = attr->field;                                                  \
	} while (0)
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
	if (mask & IBV_QP_DEST_QPN)
		qp->dest_qpn = attr->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		qp->expected_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		qp->next_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_left = attr->rnr_retry;
	if (mask & IBV_QP_RETRY_CNT)
		qp->psn_retries_left = attr->retry_cnt;
	if (mask & (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT))
		qp->timeout_ns =
		    own->timeout ? (UINT64_C(4096) << own->timeout) * (own->retry_cnt + UINT64_C(1))
				 : 0;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->sqd_notify = attr->en_sqd_async_notify;
}

/* First contact is made here, so that the death of a silent peer is noticed as well. */
static void meet_peer(struct nupa_qp *qp)
{
	struct nupa_channel *channel =
	    nupa_channel_meet(qp->engine, qp->dest_qpn >> NUPA_QP_INDEX_BITS);

	if (channel && channel->peer_host == qp->dest_host)
		qp->channel = channel;
}

static void enter_state(struct nupa_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RESET) {
		settle_answers(qp);
		qp_reset(qp);
		return;
	}
	if (to == IBV_QPS_ERR) {
		nupa_qp_error(qp);
		return;
	}
	qp->state = (uint8_t)to;
	qp->ibv.state = to;
	nupa_qp_publish(qp);
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && qp->type != IBV_QPT_UD)
		meet_peer(qp);
	if (to == IBV_QPS_RTS)
		nupa_requester_run(qp);
	if (to == IBV_QPS_SQD && qp->sqd_notify && nupa_sq_drained(&qp->sq)) {
		qp->sqd_notify = false;
		nupa_event_raise_qp(qp, IBV_EVENT_SQ_DRAINED);
	}
}

int nupa_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_engine *engine = qp->engine;
	enum ibv_qp_state from, to;
	int error;

	if (qp->is_handle) {
		if (!qp->real)
			return EOPNOTSUPP; /* only its own process can */
		qp = qp->real;
	}
	mask = nupa_qp_own_mask(qp->ibv.qp_type, mask);
	nupa_engine_lock(engine);
	from = qp->state;
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	error = mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from ? EINVAL : 0;
	if (!error)
		error = nupa_qp_check_transition(qp->ibv.qp_type, from, to, mask);
	if (!error)
		error = check_attr(qp, attr, mask);
	if (!error) {
		take_attr(qp, attr, mask);
		enter_state(qp, from, to);
	}
	nupa_engine_unlock(engine);
	return error;
}

int nupa_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_engine *engine = qp->engine;

	(void)mask; /* man ibv_query_qp: more than asked for may be filled in */
	if (qp->is_handle && !qp->real) {
		nupa_xrc_query_handle(qp, attr, init);
		return 0;
	}
	qp = qp->is_handle ? qp->real : qp;
	nupa_engine_lock(engine);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->init.cap;
	attr->sq_draining = qp->state == IBV_QPS_SQD && !nupa_sq_drained(&qp->sq);
	*init = qp->init;
	nupa_engine_unlock(engine);
	return 0;
}
