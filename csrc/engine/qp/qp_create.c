/* SPDX-License-Identifier: BSD-3-Clause
 * Queue pairs made and destroyed: their numbers, their memory, and what they hold. */
#define _GNU_SOURCE
#include "engine/qp/verbs.h"
#include "segment/control/quota.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define WIRED_QPS 4096u /* with wires: numbers to choose from, which others shall not guess */

/* As in mr.c: indices go round, so a number is not used again at once.  With wires they are random.
 */
static int index_take(struct nupa_engine *engine, struct nupa_qp *qp)
{
	uint32_t limit = engine->qp_limit;
	uint32_t max = engine->fabric->geometry.qp_entries;
	uint32_t next;

	if ((engine->qpn_base | (max - 1)) == NUPA_QPN_MULTICAST)
		max--;
	if (limit < max &&
	    (engine->qps_used * 2 >= limit || (unlikely(engine->has_wires) && limit < WIRED_QPS))) {
		uint32_t more = engine->has_wires && limit * 2 < WIRED_QPS ? WIRED_QPS : limit * 2;
		uint64_t table_off = nupa_arena_offset(engine->fabric, engine->slot_index) +
				     (uint64_t)((uint8_t *)engine->qp_entries - engine->arena);

		more = more < max ? more : max;
		if (!nupa_fabric_back(engine->fabric,
				      table_off + (uint64_t)limit * sizeof(struct nupa_qp_entry),
				      (uint64_t)(more - limit) * sizeof(struct nupa_qp_entry))) {
			nupa_store_release(&engine->slot->qp_limit, more);
			nupa_slot_flush_claim(engine->fabric, engine->slot);
			limit = engine->qp_limit = more;
		}
	}
	if (engine->qps_used >= limit)
		return ENOMEM;
	if (nupa_quota_take(engine->fabric, engine->slot_index, NUPA_QUOTA_QPS, 1))
		return ENOMEM;
	next = unlikely(engine->has_wires) ? engine->random() : engine->slot->next_qp_index;
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
		return nupa_unsupported("ibv_create_qp of another type than RC, UC, UD and XRC");
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
	free(qp->builder);
	free(qp->xrc_part);
	free(qp->faults);
	free(qp->rate);
	free(qp->congestion);
	free(qp->answers);
	free(qp->injected);
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

/* False: no memory. */
static bool init_xrc(struct nupa_qp *qp, enum ibv_qp_type type, struct ibv_xrcd *xrcd)
{
	if (type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV)
		return true;
	qp->type = IBV_QPT_RC;
	qp->xrc = xrcd ? NUPA_XRC_TARGET : NUPA_XRC_INITIATOR;
	qp->xrc_part = calloc(1, sizeof(*qp->xrc_part));
	if (qp->xrc_part && xrcd)
		qp->xrc_part->xrcd = container_of(xrcd, struct nupa_xrcd, ibv);
	return qp->xrc_part != NULL;
}

static struct nupa_qp *qp_alloc(struct ibv_context *context, struct ibv_pd *pd,
				struct ibv_xrcd *xrcd, const struct ibv_qp_init_attr *init)
{
	struct nupa_qp *qp = nupa_qp_blank();

	if (!qp)
		return NULL;
	qp->engine = nupa_engine_of(context);
	qp->type = (uint8_t)init->qp_type;
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
	if (!qp->recv_wqe || !init_xrc(qp, init->qp_type, xrcd) || sq_init(&qp->sq, &init->cap) ||
	    (!init->srq && nupa_rq_init(&qp->rq, init->cap.max_recv_wr, init->cap.max_recv_sge)) ||
	    nupa_domain_buffer(pd, NUPA_BUFFER_SQ, &qp->sq.ring, qp->sq.map_bytes,
			       &qp->sq_custom) ||
	    (qp->rq.ring && nupa_domain_buffer(pd, NUPA_BUFFER_RQ, &qp->rq.ring,
					       nupa_rq_ring_bytes(&qp->rq), &qp->rq_custom))) {
		qp_free(qp);
		return NULL;
	}
	return qp;
}

static struct nupa_qp *qp_make(struct ibv_context *context, struct ibv_pd *pd,
			       struct ibv_xrcd *xrcd, struct ibv_qp_init_attr *init)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	int error = check_init(context, init);
	struct nupa_qp *qp;

	if (error) {
		errno = error;
		return NULL;
	}
	settle_init(init);
	nupa_guard_renew();
	qp = qp_alloc(context, pd, xrcd, init);
	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	nupa_engine_lock(engine);
	error = index_take(engine, qp);
	if (!error) {
		qp->ibv.qp_num = engine->qpn_base | qp->index;
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
	return qp;
}

/* --- destruction --------------------------------------------------------------------- */

static void qp_leave(struct nupa_qp *qp)
{
	struct nupa_engine *engine = qp->engine;

	nupa_qp_settle(qp);
	nupa_partner_leave(qp);
	nupa_qp_reset(qp);
	if (unlikely(qp->windows))
		nupa_mw_forget_qp(qp);
	nupa_resource_drop(&engine->resources, qp->resource, NUPA_RESOURCE_QP);
	nupa_store_relaxed(&qp->entry->qpn, 0);
	engine->qps[qp->index] = NULL;
	engine->qps_used--;
	nupa_quota_give(engine->fabric, engine->slot_index, NUPA_QUOTA_QPS, 1);
}

/* man ibv_open_qp: others have the QP open.  Its events end with its own handle: the
 * last of the others may be of another context.  True: they are all closed by now. */
static bool close_own_handle(struct nupa_qp *qp, struct nupa_context *context)
{
	qp->orphan = true; /* no event is raised from here on */
	qp->opens++;       /* ours, while the lock is let go */
	nupa_event_drop(context, &qp->ibv);
	nupa_engine_unlock(qp->engine);
	nupa_event_wait_acked(context, &qp->async_pending);
	nupa_engine_lock(qp->engine);
	return --qp->opens == 0;
}

static int qp_destroy(struct nupa_qp *qp)
{
	struct nupa_qp *gone = qp;
	struct nupa_engine *engine = qp->engine;
	struct nupa_context *context =
	    container_of(qp->ibv.context, struct nupa_context, ibv.context);

	nupa_engine_lock(engine);
	if (qp->mcast_groups) { /* man ibv_destroy_qp */
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	if (qp->is_handle)
		gone = nupa_xrc_close_handle(qp);
	else if (qp->opens && !close_own_handle(qp, context))
		gone = NULL;
	if (gone) {
		qp_leave(gone);
		if (!gone->orphan) /* leaving raises events, too */
			nupa_event_drop(context, &gone->ibv);
	}
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

/* --- verbs --------------------------------------------------------------------------- */

int nupa_destroy_qp(struct ibv_qp *ibv)
{
	return qp_destroy(nupa_qp_of(ibv));
}

struct ibv_qp *nupa_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct nupa_qp *qp;

	/* An XRC target has a domain, and no PD: ibv_create_qp_ex. */
	if (init->qp_type == IBV_QPT_XRC_RECV) {
		errno = EINVAL;
		return NULL;
	}
	qp = qp_make(pd->context, pd, NULL, init);
	return qp ? &qp->ibv : NULL;
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
	struct nupa_qp *qp;

	if (target
		? !(ex->comp_mask & IBV_QP_INIT_ATTR_XRCD) || ex->xrcd->context != context
		: !(ex->comp_mask & IBV_QP_INIT_ATTR_PD) || !ex->pd || ex->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (ex->comp_mask & ~known ||
	    (ex->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	     ex->create_flags & ~(uint32_t)IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)) {
		nupa_unsupported("ibv_create_qp_ex with flags or attributes of raw packets or RSS");
		return NULL;
	}
	qp = target ? qp_make(context, NULL, ex->xrcd, &init)
		    : qp_make(context, ex->pd, NULL, &init);
	if (!qp)
		return NULL;
	ex->cap = init.cap;
	qp->block_self_mcast = ex->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
			       ex->create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	if (ex->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    (errno = nupa_qp_ex_init(qp, ex->send_ops_flags))) {
		int error = errno;

		qp_destroy(qp);
		errno = error;
		return NULL;
	}
	return &qp->ibv;
}

struct ibv_qp_ex *nupa_qp_to_qp_ex(struct ibv_qp *qp)
{
	return nupa_qp_of(qp)->builder ? &nupa_qp_of(qp)->ibv_ex : NULL;
}
