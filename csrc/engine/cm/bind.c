/* SPDX-License-Identifier: BSD-3-Clause
 * Identifiers: bound to addresses, resolved, listening; and the facts known by then. */
#include "engine/cm/internal.h"
#include "segment/control/pkey.h"

#include <errno.h>

#define BACKLOG_MAX 1024 /* as the kernel's */

static int bind_locked(struct nupa_cm_id *id, const struct sockaddr *addr)
{
	int error, kind;

	if (id->state != CM_IDLE)
		return EINVAL;
	error = cm_addr_copy(addr, &id->src);
	if (error)
		return error;
	kind = cm_addr_kind_of(id->engine, id->engine->host, &id->src);
	if (kind < 0) {
		memset(&id->src, 0, sizeof(id->src));
		return -kind;
	}
	id->src_kind = (enum cm_addr_kind)kind;
	error = cm_port_bind(id, cm_addr_port(&id->src));
	if (error) {
		memset(&id->src, 0, sizeof(id->src));
		return error;
	}
	id->bound = !cm_addr_is_wildcard(id->src_kind);
	cm_enter(id, CM_BOUND);
	return 0;
}

int nupa_cm_bind(struct nupa_cm_id *id, const struct sockaddr *addr)
{
	int error;

	nupa_engine_lock(id->engine);
	error = bind_locked(id, addr);
	nupa_engine_unlock(id->engine);
	return error;
}

/* The addresses of both ends; 0 or the errno of ADDR_ERROR. */
static int resolve(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	uint16_t port = cm_addr_port(&id->src);
	int error;

	id->multicast_dst = cm_addr_is_multicast(&id->dst);
	if (id->multicast_dst) {
		id->dst_host = engine->host;
		id->dst_kind = id->dst.ss_family == AF_INET6 ? CM_ADDR_LINK6 : CM_ADDR_HOST4;
	} else {
		error = cm_addr_resolve(engine, &id->dst, &id->dst_host, &id->dst_kind);
		if (error)
			return error;
		if (cm_addr_is_any(id->dst_kind))
			cm_addr_loopback(&id->dst, &id->dst_kind);
		cm_machine_choose(id);
	}
	if (cm_addr_is_any(id->src_kind) ||
	    (cm_addr_is_loopback(id->src_kind) && !cm_addr_is_loopback(id->dst_kind))) {
		cm_addr_source_for(id, &id->src, &id->src_kind);
		cm_addr_set_port(&id->src, port);
	}
	return 0;
}

int nupa_cm_resolve_addr(struct nupa_cm_id *id, const struct sockaddr *src,
			 const struct sockaddr *dst)
{
	struct sockaddr_storage any = { .ss_family = dst->sa_family }, to;
	int error;

	nupa_engine_lock(id->engine);
	error = cm_addr_copy(dst, &to);
	if (!error && id->state == CM_IDLE)
		error = bind_locked(id, src ? src : (struct sockaddr *)(void *)&any);
	if (!error && (id->state != CM_BOUND || id->src.ss_family != to.ss_family))
		error = EINVAL;
	if (!error) {
		id->dst = to;
		error = resolve(id);
		if (error) {
			cm_event_report(id, RDMA_CM_EVENT_ADDR_ERROR, -error);
		} else {
			id->bound = true;
			cm_enter(id, CM_ADDR_RESOLVED);
			cm_event_report(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		}
		error = 0;
	}
	nupa_engine_unlock(id->engine);
	return error;
}

int nupa_cm_resolve_route(struct nupa_cm_id *id)
{
	int error = EINVAL;

	nupa_engine_lock(id->engine);
	if (id->state == CM_ADDR_RESOLVED) {
		const int index = cm_pkey_index(id);

		if (index < 0) { /* a path query finds no record: the kernel's sa_query.c */
			cm_explain_partition(id);
			cm_event_report(id, RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL);
		} else {
			id->pkey_entry = (uint8_t)(index + 1);
			cm_enter(id, CM_ROUTE_RESOLVED);
			cm_event_report(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		}
		error = 0;
	}
	nupa_engine_unlock(id->engine);
	return error;
}

int nupa_cm_listen(struct nupa_cm_id *id, int backlog)
{
	static const struct sockaddr_in any = { .sin_family = AF_INET };
	int error = 0;

	nupa_engine_lock(id->engine);
	if (id->state == CM_IDLE)
		error = bind_locked(id, (const struct sockaddr *)(const void *)&any);
	if (!error)
		error = id->state == CM_BOUND ? cm_port_listen(id) : EINVAL;
	if (!error) {
		__atomic_store_n(&id->backlog,
				 backlog > 0 && backlog < BACKLOG_MAX ? backlog : BACKLOG_MAX,
				 __ATOMIC_RELAXED);
		cm_enter(id, CM_LISTEN);
		nupa_list_add(&id->engine->cm->listeners, &id->listener);
		id->engine->ops->meet_wires(id->engine);
	}
	nupa_engine_unlock(id->engine);
	return error;
}

/* --- facts of an id ------------------------------------------------------------------ */

void nupa_cm_query(struct nupa_cm_id *id, struct nupa_cm_route *route)
{
	struct nupa_engine *engine = id->engine;
	struct ibv_sa_path_rec *path = &route->path;

	memset(route, 0, sizeof(*route));
	nupa_engine_lock(engine);
	route->src = id->src;
	route->dst = id->dst;
	route->bound = id->bound;
	route->pkey = cm_pkey(id);
	if (id->bound)
		cm_id_sgid(id, &route->sgid);
	if (id->dst.ss_family && id->bound) {
		if (id->multicast_dst)
			cm_addr_mgid(id, &id->dst, &route->dgid);
		else
			cm_id_dgid(id, &route->dgid);
	}
	if (id->state >= CM_ROUTE_RESOLVED && id->state != CM_DESTROYED) {
		struct ibv_ah_attr ah;

		cm_ah_of(id, &ah);
		route->n_paths = 1;
		path->sgid = route->sgid;
		path->dgid = route->dgid;
		path->dlid = __builtin_bswap16(ah.dlid);
		path->slid = __builtin_bswap16(engine->fabric->hosts[engine->host].lid);
		path->hop_limit = ah.grh.hop_limit;
		path->traffic_class = ah.grh.traffic_class;
		path->reversible = 1;
		path->numb_path = 1;
		path->pkey = __builtin_bswap16(route->pkey);
		path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2;
		path->mtu = cm_id_mtu(id);
		path->rate = IBV_RATE_100_GBPS;
		path->packet_life_time = id->ack_timeout_set && id->ack_timeout
					     ? (uint8_t)(id->ack_timeout - 1)
					     : CM_QP_TIMEOUT - 1;
	}
	nupa_engine_unlock(engine);
}
