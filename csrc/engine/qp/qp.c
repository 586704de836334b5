/* SPDX-License-Identifier: BSD-3-Clause
 * Queue pairs: moved through their states, and queried. */
#include "engine/qp/pkey.h"
#include "engine/qp/verbs.h"
#include "base/hint.h"
#include "segment/wire.h"

#include <errno.h>

/* --- reset --------------------------------------------------------------------------- */

/* A partner that waits for our last answer must get it. */
#define LAST_ACK_TRIES 10000

void nupa_qp_settle(struct nupa_qp *qp)
{
	for (int i = 0; i < LAST_ACK_TRIES; i++) {
		if (!nupa_list_empty(&qp->job_link))
			nupa_responder_run_jobs(qp);
		if (nupa_list_empty(&qp->job_link) &&
		    (nupa_list_empty(&qp->ack_link) || nupa_responder_send_ack(qp)))
			return;
		(void)qp->engine->ops->progress(qp->engine);
	}
}

void nupa_qp_reset(struct nupa_qp *qp)
{
	if (unlikely(qp->engine->wire_dirty)) /* packets are made of messages and their QPs */
		qp->engine->ops->wires_flush(qp->engine);
	nupa_requester_stop_waiting(qp);
	nupa_responder_reset(qp);
	if (qp->send_cq)
		nupa_cq_purge(qp->send_cq, qp);
	if (qp->recv_cq)
		nupa_cq_purge(qp->recv_cq, qp);
	qp->sq.acked = qp->sq.issued = qp->sq.posted = qp->sq.begun = 0;
	nupa_retry_reset(qp);
	qp->rq.head = qp->rq.tail = 0;
	qp->reads_outstanding = 0;
	qp->channel = NULL;
	if (qp->xrc)
		qp->xrc_part->away = qp->xrc_part->resync = false;
	qp->peer = NULL;
	qp->dest_qpn = 0;
	qp->msn = 0;
	qp->last_wqe_event = qp->comm_est = qp->sqd_notify = false;
	qp->partner_gone = qp->partner_lost = qp->lost_in_rtr = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->pkey = 0;
	nupa_qp_renew(qp);
	nupa_qp_set_state(qp, IBV_QPS_RESET);
	nupa_qp_publish(qp);
}

/* --- modification -------------------------------------------------------------------- */

/* Both paths are by the one port, to the host that the connection leads to. */
static int check_alternate(struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask,
			   uint32_t dest_host)
{
	bool has_alternate = mask & IBV_QP_ALT_PATH || qp->attr.alt_port_num;
	uint32_t host;
	int error;

	if (mask & IBV_QP_ALT_PATH) {
		if (attr->alt_port_num != 1 || attr->alt_timeout > 31)
			return EINVAL;
		error = nupa_host_of_ah(qp->engine, &attr->alt_ah_attr, &host);
		if (error || host != dest_host)
			return error ? error : EINVAL;
	}
	/* IBTA 17.2.8: a program rearms or migrates; armed is what the QP says. */
	if (mask & IBV_QP_PATH_MIG_STATE &&
	    (attr->path_mig_state == IBV_MIG_REARM ? !has_alternate
						   : attr->path_mig_state != IBV_MIG_MIGRATED))
		return EINVAL;
	return 0;
}

/* The other end of a wire cuts packets by the same path MTU, so it is not for us to choose less. */
static int check_wire_mtu(const struct nupa_fabric *fabric, uint32_t host, enum ibv_mtu mtu)
{
	const int wire = nupa_wire_of_host(fabric, host);
	const struct nupa_wire_entry *entry =
	    wire < 0 ? NULL : nupa_wire_at(fabric, (uint32_t)wire);

	if (!entry || 128u << mtu <= nupa_wire_mtu_bytes(entry))
		return 0;
	nupa_hint("a path MTU of %u bytes is asked for, and the network to %s carries %u: set both "
		  "ends to that (perftest: -m %u)",
		  128u << mtu, fabric->hosts[host].name, nupa_wire_mtu_bytes(entry),
		  nupa_wire_mtu_bytes(entry));
	return EINVAL;
}

static bool wire_carries(const struct nupa_engine *engine, uint32_t host, uint32_t mtu_bytes)
{
	const int index = nupa_wire_of_host(engine->fabric, host);
	const struct nupa_wire_entry *entry =
	    index < 0 ? NULL : nupa_wire_at(engine->fabric, (uint32_t)index);
	const uint32_t most = entry ? nupa_wire_mtu_bytes(entry) : NUPA_MTU_BYTES;

	if (mtu_bytes <= most)
		return true;
	nupa_hint(
	    "the wire to host %s carries an MTU of %u bytes at most, and a path_mtu of %u was "
	    "asked for: take the port's active_mtu, or raise the MTU of the network",
	    engine->fabric->hosts[host].name, most, mtu_bytes);
	return false;
}

static int check_attr(struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t host = qp->dest_host;
	int error;

	if (mask & IBV_QP_PORT && attr->port_num != 1)
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
	if (mask & IBV_QP_AV) {
		error = nupa_host_of_ah(qp->engine, &attr->ah_attr, &host);
		if (error)
			return error;
	}
	if (mask & IBV_QP_PATH_MTU && unlikely(qp->engine->has_wires) &&
	    !wire_carries(qp->engine, host, 128u << attr->path_mtu))
		return EINVAL;
	error =
	    mask & IBV_QP_PATH_MTU ? check_wire_mtu(qp->engine->fabric, host, attr->path_mtu) : 0;
	if (!error)
		error = check_alternate(qp, attr, mask, host);
	if (!error)
		qp->dest_host = host;
	return error;
}

/* An armed QP that is told to migrate does so; traffic goes the same way as before. */
static void take_path(struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *own = &qp->attr;

	if (mask & IBV_QP_ALT_PATH) {
		own->alt_ah_attr = attr->alt_ah_attr;
		own->alt_pkey_index = attr->alt_pkey_index;
		own->alt_port_num = attr->alt_port_num;
		own->alt_timeout = attr->alt_timeout;
	}
	if (!(mask & IBV_QP_PATH_MIG_STATE))
		return;
	if (attr->path_mig_state == IBV_MIG_REARM) {
		own->path_mig_state = IBV_MIG_ARMED;
	} else if (own->path_mig_state == IBV_MIG_ARMED) {
		own->ah_attr = own->alt_ah_attr;
		own->pkey_index = own->alt_pkey_index;
		own->path_mig_state = IBV_MIG_MIGRATED;
		nupa_event_raise_qp(qp, IBV_EVENT_PATH_MIG);
	}
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
	take_path(qp, attr, mask);
	if (mask & IBV_QP_DEST_QPN)
		qp->dest_qpn = attr->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		nupa_responder_expect(qp, attr->rq_psn & 0xffffff);
	if (mask & IBV_QP_SQ_PSN) {
		qp->next_psn = attr->sq_psn & 0xffffff;
		nupa_flight_reset(qp);
	}
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

/* Looks at the pages of tables that the first request needs: it would wait for a page fault of
 * each.  They have memory already. */
static void look_at_tables(const struct nupa_channel *channel, uint32_t qpn)
{
	const uint32_t index = qpn & (NUPA_QP_MAX - 1);
	uint64_t *count = &channel->flow->xmit_bytes;

	if (channel->distant || channel->wired)
		return;
	if (index < nupa_load_acquire(&channel->peer_slot->qp_limit) &&
	    index < channel->engine->fabric->geometry.qp_entries)
		(void)nupa_load_relaxed(&channel->peer_qps[index].qpn);
	(void)nupa_load_relaxed(&channel->peer_mrs->key);
	nupa_store_relaxed(count, nupa_load_relaxed(count));
}

static uint32_t peer_slot(const struct nupa_qp *qp)
{
	return nupa_channel_slot(qp->engine, qp->dest_host, qp->dest_qpn);
}

/* First contact is made here, so that the death of a silent peer is noticed as well. */
static void meet_peer(struct nupa_qp *qp)
{
	struct nupa_channel *channel = nupa_channel_meet(qp->engine, peer_slot(qp));

	if (channel && channel->peer_host == qp->dest_host)
		qp->channel = channel;
	if (channel)
		look_at_tables(channel, qp->dest_qpn);
}

static void enter_state(struct nupa_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RESET) {
		nupa_qp_settle(qp);
		nupa_qp_reset(qp);
		return;
	}
	if (to == IBV_QPS_ERR) {
		qp->lost_in_rtr = false;
		nupa_qp_error(qp);
		return;
	}
	/* As on hardware, the first request tells that the partner died in RTR (partner_lost). */
	if (qp->lost_in_rtr) {
		qp->lost_in_rtr = false;
		return;
	}
	/* While the QP is none of those that the end of a slot's previous owner concerns. */
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && qp->type != IBV_QPT_UD)
		nupa_channel_bury(qp->engine, peer_slot(qp));
	qp->state = (uint8_t)to;
	nupa_store_relaxed(&qp->ibv.state, to); /* programs look at it */
	nupa_qp_publish(qp);
	if (unlikely(qp->engine->recorder) && to == IBV_QPS_RTR)
		nupa_record_qp(qp);
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && qp->type != IBV_QPT_UD)
		meet_peer(qp);
	if (to == IBV_QPS_RTR && qp->type == IBV_QPT_UD && qp->engine->has_wires)
		qp->engine->ops->meet_wires(qp->engine);
	if (to == IBV_QPS_RTS)
		nupa_requester_run(qp);
	if (to == IBV_QPS_SQD && qp->sqd_notify && nupa_sq_drained(&qp->sq)) {
		qp->sqd_notify = false;
		nupa_event_raise_qp(qp, IBV_EVENT_SQ_DRAINED);
	}
}

int nupa_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct nupa_qp *qp = nupa_qp_of(ibv);
	struct nupa_engine *engine = qp->engine;
	enum ibv_qp_state from, to;
	int error;

	if (qp->is_handle) {
		if (!qp->xrc_part->real)
			return nupa_unsupported(
			    "ibv_modify_qp of an XRC queue pair of another process");
		qp = qp->xrc_part->real;
	}
	mask = nupa_qp_own_mask(qp->ibv.qp_type, mask);
	nupa_engine_lock(engine);
	to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	from = qp->lost_in_rtr && to == IBV_QPS_RTS ? IBV_QPS_RTR : qp->state;
	error = mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from ? EINVAL : 0;
	if (!error)
		error = nupa_qp_check_transition(qp->ibv.qp_type, from, to, mask);
	if (!error)
		error = nupa_qp_check_pkey(qp, attr, mask, to);
	if (!error)
		error = check_attr(qp, attr, mask);
	if (!error) {
		take_attr(qp, attr, mask);
		nupa_qp_take_pkey(qp, mask, to);
		enter_state(qp, from, to);
	}
	nupa_engine_unlock(engine);
	return error;
}

int nupa_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init)
{
	struct nupa_qp *qp = nupa_qp_of(ibv);
	struct nupa_engine *engine = qp->engine;

	(void)mask; /* man ibv_query_qp: more than asked for may be filled in */
	if (qp->is_handle && !qp->xrc_part->real) {
		nupa_xrc_query_handle(qp, attr, init);
		return 0;
	}
	qp = qp->is_handle ? qp->xrc_part->real : qp;
	nupa_engine_lock(engine);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->init.cap;
	attr->sq_draining = qp->state == IBV_QPS_SQD && !nupa_sq_drained(&qp->sq);
	*init = qp->init;
	nupa_engine_unlock(engine);
	return 0;
}
