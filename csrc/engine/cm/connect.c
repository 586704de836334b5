/* SPDX-License-Identifier: BSD-3-Clause
 * Calls of programs on a connection: request, accept, reject, end. */
#include "engine/cm/kernel/kernel.h"
#include "engine/cm/wire/wire.h"
#include "segment/control/pkey.h"

/* Resolving an address and a route takes milliseconds on a network and none here, so that a
 * program's request may come before its partner listens.  A request without a listener looks for
 * one again before it is refused. */
#define SEEK_NS UINT64_C(100000000)
#define SEEK_AGAIN_NS UINT64_C(500000)
#define SEEK_FAR_NS UINT64_C(10000000) /* over a wire: ask the far side again */

/* --- connecting ---------------------------------------------------------------------- */

static bool datagrams(const struct nupa_cm_id *id)
{
	return id->qp_type == IBV_QPT_UD;
}

/* No listener there: the answer of that host's kernel. */
static void refused(struct nupa_cm_id *id)
{
	struct nupa_cm_event *event;

	cm_stop_waiting(id);
	cm_explain_refusal(id);
	cm_enter(id, CM_CLOSED);
	event = datagrams(id) ? cm_event_new(id, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_UNSUPPORTED)
			      : cm_event_new(id, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_SERVICE);
	if (!event)
		return;
	if (!datagrams(id))
		event->conn.private_bytes = CM_REJ_PRIVATE_BYTES;
	cm_event_post(event);
}

/* The listener at the id's destination; one that died there unnoticed does not count.  To a wire,
 * and where no process listens but a kernel may: the far side knows. */
static struct nupa_channel *find_peer(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	struct nupa_channel *wire = cm_way_channel(engine, id->dst_host);

	if (wire)
		return wire;
	for (;;) {
		int slot = cm_port_find(engine->fabric, id->dst_host, id->ps,
					cm_addr_port(&id->dst), id->dst_kind);

		if (slot < 0)
			return cm_kernel_channel(engine, id->dst_host);
		/* Processes to which there is a channel are watched. */
		if ((engine->channels[slot] && !engine->channels[slot]->broken) ||
		    nupa_slot_alive(engine->fabric, (uint32_t)slot,
				    nupa_slot_claim(&engine->fabric->slots[slot])))
			return nupa_channel_current(engine, (uint32_t)slot);
		if (nupa_fabric_reap(engine->fabric) == 0)
			return NULL; /* another process is at it */
	}
}

static bool seeks_on(struct nupa_cm_id *id, uint64_t again_ns)
{
	struct nupa_engine *engine = id->engine;
	uint64_t now_ns = engine->now_ns();

	if (!id->seek_until_ns)
		id->seek_until_ns = now_ns + SEEK_NS;
	if (now_ns >= id->seek_until_ns)
		return false;
	if (!engine->cm->seek_at_ns) {
		engine->cm->seek_at_ns = now_ns + again_ns;
		cm_timer_at(engine, engine->cm->seek_at_ns);
		nupa_port_wake(engine);
	}
	return true;
}

/* Sends the request of a waiting id, as soon as there is a path and a listener. */
void cm_request(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	struct cm_wire wire;
	bool path;

	if (id->unsent)
		engine->cm->unsent--;
	cm_machine_choose(id);
	path = nupa_path_up(engine, id->dst_host) &&
	       nupa_pkey_shared(engine->fabric, engine->host, id->dst_host) >= 0;
	id->peer = path ? find_peer(id) : NULL;
	id->unsent = !path || (!id->peer && seeks_on(id, SEEK_AGAIN_NS));
	if (id->unsent) {
		engine->cm->unsent++;
		return;
	}
	if (!id->peer) {
		refused(id);
		return;
	}
	cm_wire_of(id, &wire);
	cm_send_id(id, datagrams(id) ? CM_SIDR_REQ : CM_REQ, 0, &wire);
}

bool cm_request_later(struct nupa_cm_id *id)
{
	if (!id->peer || !(id->peer->wired || cm_is_kernel(id->peer)) || id->unsent ||
	    (id->state != CM_REQ_SENT && id->state != CM_SIDR_SENT) || !seeks_on(id, SEEK_FAR_NS))
		return false;
	id->unsent = true;
	id->engine->cm->unsent++;
	return true;
}

static int connect_locked(struct nupa_cm_id *id, const struct nupa_cm_param *param)
{
	uint32_t most = datagrams(id) ? CM_SIDR_REQ_PRIVATE_BYTES : CM_REQ_PRIVATE_BYTES;

	if (id->state != CM_ROUTE_RESOLVED || id->multicast_dst || param->private_bytes > most)
		return EINVAL;
	id->param = *param;
	id->qpn = param->qpn;
	id->param.private_bytes = (uint8_t)most; /* zeros behind the given data */
	memset(id->param.private_data + param->private_bytes, 0,
	       sizeof(id->param.private_data) - param->private_bytes);
	cm_wait(id, datagrams(id) ? CM_SIDR_SENT : CM_REQ_SENT);
	cm_request(id);
	return 0;
}

int nupa_cm_connect(struct nupa_cm_id *id, const struct nupa_cm_param *param)
{
	int error;

	nupa_engine_lock(id->engine);
	error = connect_locked(id, param);
	nupa_engine_unlock(id->engine);
	return error;
}

/* --- answering ----------------------------------------------------------------------- */

static void answer_of(struct nupa_cm_id *id, const struct nupa_cm_param *param, uint32_t most,
		      struct cm_wire *wire)
{
	cm_wire_of(id, wire);
	wire->param = *param;
	wire->param.private_bytes = (uint8_t)most;
	memset(wire->param.private_data + param->private_bytes, 0,
	       sizeof(wire->param.private_data) - param->private_bytes);
}

static int accept_locked(struct nupa_cm_id *id, void *user, const struct nupa_cm_param *param)
{
	struct cm_wire wire;

	id->qpn = param->qpn;
	if (id->state == CM_SIDR_RECEIVED && param->private_bytes <= CM_SIDR_REP_PRIVATE_BYTES) {
		id->user = user;
		answer_of(id, param, CM_SIDR_REP_PRIVATE_BYTES, &wire);
		wire.qkey = RDMA_UDP_QKEY;
		cm_send_id(id, CM_SIDR_REP, CM_SIDR_OK, &wire);
		cm_enter(id, CM_SIDR_DONE);
		return 0;
	}
	if (id->state != CM_REQ_RECEIVED || param->private_bytes > CM_REP_PRIVATE_BYTES)
		return EINVAL;
	id->user = user;
	answer_of(id, param, CM_REP_PRIVATE_BYTES, &wire);
	id->param.responder_resources = param->responder_resources;
	id->param.initiator_depth = param->initiator_depth;
	cm_wait(id, CM_REP_SENT);
	cm_send_id(id, CM_REP, 0, &wire);
	return 0;
}

int nupa_cm_accept(struct nupa_cm_id *id, void *user, const struct nupa_cm_param *param)
{
	int error;

	nupa_engine_lock(id->engine);
	error = accept_locked(id, user, param);
	nupa_engine_unlock(id->engine);
	return error;
}

int nupa_cm_ready(struct nupa_cm_id *id)
{
	int error = EINVAL;

	nupa_engine_lock(id->engine);
	if (id->state == CM_REP_RECEIVED) {
		cm_enter(id, CM_ESTABLISHED);
		cm_send_id(id, CM_RTU, 0, NULL);
		error = 0;
	}
	nupa_engine_unlock(id->engine);
	return error;
}

static int reject_locked(struct nupa_cm_id *id, bool for_ece, const struct nupa_cm_param *param)
{
	struct cm_wire wire;

	switch (id->state) {
	case CM_SIDR_RECEIVED:
		if (param->private_bytes > CM_SIDR_REP_PRIVATE_BYTES)
			return EINVAL;
		answer_of(id, param, CM_SIDR_REP_PRIVATE_BYTES, &wire);
		cm_send_id(id, CM_SIDR_REP, CM_SIDR_REJECTED, &wire);
		break;
	case CM_REQ_SENT:
	case CM_REQ_RECEIVED:
	case CM_REP_SENT:
	case CM_REP_RECEIVED:
		if (param->private_bytes > CM_REJ_PRIVATE_BYTES)
			return EINVAL;
		answer_of(id, param, CM_REJ_PRIVATE_BYTES, &wire);
		cm_send_id(id, CM_REJ, for_ece ? CM_REJ_ECE : CM_REJ_CONSUMER, &wire);
		break;
	default:
		return EINVAL;
	}
	cm_stop_waiting(id);
	cm_enter(id, CM_CLOSED);
	return 0;
}

int nupa_cm_reject(struct nupa_cm_id *id, bool for_ece, const void *data, uint8_t bytes)
{
	struct nupa_cm_param param = { .private_bytes = bytes };
	int error;

	if (bytes > sizeof(param.private_data) || (bytes && !data))
		return EINVAL;
	if (bytes)
		memcpy(param.private_data, data, bytes);
	nupa_engine_lock(id->engine);
	error = reject_locked(id, for_ece, &param);
	nupa_engine_unlock(id->engine);
	return error;
}

/* --- ending -------------------------------------------------------------------------- */

int nupa_cm_disconnect(struct nupa_cm_id *id)
{
	int error = 0;

	nupa_engine_lock(id->engine);
	if (id->state == CM_ESTABLISHED) {
		cm_wait(id, CM_DREQ_SENT);
		cm_send_id(id, CM_DREQ, 0, NULL);
	} else if (id->state < CM_REQ_SENT || id->state == CM_DESTROYED) {
		error = EINVAL;
	}
	nupa_engine_unlock(id->engine);
	return error;
}

int nupa_cm_notify(struct nupa_cm_id *id, enum ibv_event_type event)
{
	int error = EINVAL;

	nupa_engine_lock(id->engine);
	if (event == IBV_EVENT_COMM_EST && id->state == CM_ESTABLISHED) {
		error = EISCONN;
	} else if (event == IBV_EVENT_COMM_EST && id->state == CM_REP_SENT) {
		cm_stop_waiting(id);
		cm_enter(id, CM_ESTABLISHED);
		cm_event_report(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		error = 0;
	}
	nupa_engine_unlock(id->engine);
	return error;
}
