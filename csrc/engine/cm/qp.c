/* SPDX-License-Identifier: BSD-3-Clause
 * The effects of a connection on its QP (the kernel's ib_cm_init_qp_attr), multicast, and the end
 * of connection management. */
#include "engine/cm/internal.h"
#include "segment/control/pkey.h"

#include <errno.h>
#include <stdlib.h>

#define HOP_LIMIT 64u
/* 655 ms (IBTA table 45), the kernel's value: programs that ask for few RNR retries rely on it for
 * a receive that comes late.  With 0.64 ms, 5 of them are over in 3 ms. */
#define MIN_RNR_TIMER 0u
#define IPOIB_QKEY 0x0b1bu
#define MULTICAST_QPN 0xffffffu

static uint32_t qkey_of(const struct nupa_cm_id *id)
{
	return id->ps == RDMA_PS_IPOIB ? IPOIB_QKEY : RDMA_UDP_QKEY;
}

static void ah_to(const struct nupa_cm_id *id, const union ibv_gid *dgid, struct ibv_ah_attr *ah)
{
	const struct nupa_fabric *fabric = id->engine->fabric;
	bool ethernet = cm_is_ethernet(id->engine);
	union ibv_gid sgid;

	memset(ah, 0, sizeof(*ah));
	ah->port_num = 1;
	ah->is_global = ethernet;
	ah->grh.dgid = *dgid;
	ah->grh.sgid_index = cm_id_sgid(id, &sgid);
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = id->tos;
	if (!ethernet)
		ah->dlid = fabric->hosts[id->dst_host].lid;
}

void cm_ah_of(const struct nupa_cm_id *id, struct ibv_ah_attr *ah)
{
	union ibv_gid dgid;

	cm_id_dgid(id, &dgid);
	ah_to(id, &dgid, ah);
}

int cm_pkey_index(const struct nupa_cm_id *id)
{
	const struct nupa_engine *engine = id->engine;

	if (id->pkey_entry)
		return id->pkey_entry - 1;
	if (!id->dst.ss_family || id->multicast_dst)
		return nupa_pkey_first(engine->fabric, engine->host);
	return nupa_pkey_shared(engine->fabric, engine->host, id->dst_host);
}

uint16_t cm_pkey(const struct nupa_cm_id *id)
{
	const int index = cm_pkey_index(id);

	return index < 0 ? 0 : nupa_pkey_at(id->engine->fabric, id->engine->host, (uint32_t)index);
}

static void init_attr(const struct nupa_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	const int index = cm_pkey_index(id);

	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	/* Without a shared partition the route is what fails. */
	attr->pkey_index = index < 0 ? 0 : (uint16_t)index;
	attr->port_num = 1;
	if (id->qp_type == IBV_QPT_UD) {
		*mask |= IBV_QP_QKEY;
		attr->qkey = qkey_of(id);
		return;
	}
	*mask |= IBV_QP_ACCESS_FLAGS;
	attr->qp_access_flags = 0;
	if (id->state >= CM_REQ_SENT) { /* the agreed value, or the one being negotiated */
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (id->param.responder_resources)
			attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
}

static void rtr_attr(const struct nupa_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	cm_ah_of(id, &attr->ah_attr);
	attr->path_mtu = (enum ibv_mtu)cm_id_mtu(id);
	attr->dest_qp_num = id->remote_qpn;
	attr->rq_psn = id->psn;
	if (id->qp_type != IBV_QPT_RC && id->qp_type != IBV_QPT_XRC_RECV)
		return;
	*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	attr->max_dest_rd_atomic = id->param.responder_resources;
	attr->min_rnr_timer = MIN_RNR_TIMER;
}

static void rts_attr(const struct nupa_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	attr->sq_psn = id->remote_psn;
	attr->timeout = id->ack_timeout_set   ? id->ack_timeout
			: id->far.ack_timeout ? id->far.ack_timeout
					      : CM_QP_TIMEOUT;
	if (id->qp_type == IBV_QPT_XRC_RECV)
		*mask |= IBV_QP_TIMEOUT;
	if (id->qp_type != IBV_QPT_RC && id->qp_type != IBV_QPT_XRC_SEND)
		return;
	*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->retry_cnt = id->param.retry_count & 7;
	attr->rnr_retry = id->param.rnr_retry_count & 7;
	attr->max_rd_atomic = id->param.initiator_depth;
}

int nupa_cm_init_qp_attr(struct nupa_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	int error = 0;

	nupa_engine_lock(id->engine);
	if (id->state == CM_DESTROYED || !id->bound)
		error = EINVAL;
	else if (attr->qp_state == IBV_QPS_INIT || id->qp_type == IBV_QPT_UD)
		init_attr(id, attr, mask);
	else if (id->state < CM_REQ_RECEIVED || id->state == CM_CLOSED)
		error = EINVAL; /* the other end is not known */
	else if (attr->qp_state == IBV_QPS_RTR)
		rtr_attr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS)
		rts_attr(id, attr, mask);
	else
		error = EINVAL;
	nupa_engine_unlock(id->engine);
	return error;
}

/* --- multicast ----------------------------------------------------------------------- */

static int join_locked(struct nupa_cm_id *id, const struct sockaddr_storage *addr,
		       struct nupa_cm_group *group)
{
	struct nupa_cm_event *event;
	union ibv_gid mgid;

	if (!id->bound || (id->state != CM_BOUND && id->state != CM_ADDR_RESOLVED) ||
	    id->qp_type != IBV_QPT_UD || !cm_addr_is_multicast(addr))
		return EINVAL;
	if (cm_pkey_index(id) < 0) { /* as a subnet manager's refusal */
		event = cm_event_new(id, RDMA_CM_EVENT_MULTICAST_ERROR, -EINVAL);
		if (!event)
			return ENOMEM;
		event->group = group;
		cm_event_post(event);
		return 0;
	}
	event = cm_event_new(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	if (!event)
		return ENOMEM;
	cm_addr_mgid(id, addr, &mgid);
	event->group = group;
	event->conn.qpn = MULTICAST_QPN;
	event->qkey = qkey_of(id);
	ah_to(id, &mgid, &event->ah);
	event->ah.is_global = 1;
	if (!cm_is_ethernet(id->engine))
		event->ah.dlid = cm_addr_mlid(&mgid);
	cm_event_post(event);
	return 0;
}

int nupa_cm_join(struct nupa_cm_id *id, const struct sockaddr *addr, struct nupa_cm_group *group)
{
	struct sockaddr_storage copy;
	int error = cm_addr_copy(addr, &copy);

	if (error)
		return error;
	nupa_engine_lock(id->engine);
	error = join_locked(id, &copy, group);
	nupa_engine_unlock(id->engine);
	return error;
}

uint32_t nupa_cm_leave(struct nupa_cm_id *id, struct nupa_cm_group *group)
{
	struct nupa_list events, *link;
	uint32_t got;

	nupa_list_init(&events);
	nupa_engine_lock(id->engine);
	got = cm_events_take(id, group, &events);
	nupa_engine_unlock(id->engine);
	while ((link = nupa_list_pop(&events)))
		free(container_of(link, struct nupa_cm_event, link));
	return got;
}

/* --- the end ------------------------------------------------------------------------- */

static void free_events(struct nupa_cm_id *id)
{
	struct nupa_list events, *link;

	nupa_list_init(&events);
	(void)cm_events_take(id, NULL, &events);
	while ((link = nupa_list_pop(&events)))
		free(container_of(link, struct nupa_cm_event, link));
}

/* Called with the engine: its ids should be gone by then; the remaining ones are ended.  The
 * channel of their events stays. */
void nupa_cm_free(struct nupa_engine *engine)
{
	struct nupa_cm *cm = engine->cm;
	struct nupa_list *link;

	if (!cm)
		return;
	while ((link = nupa_list_pop(&cm->owed)))
		free(container_of(link, struct cm_owed, link));
	while ((link = nupa_list_pop(&cm->ids))) {
		struct nupa_cm_id *id = container_of(link, struct nupa_cm_id, link);

		if (id->events)
			free_events(id);
		nupa_cm_free_id(id);
	}
	free(cm->table);
	free(cm->free_entries);
	free(cm);
}
