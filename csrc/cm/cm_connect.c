/* SPDX-License-Identifier: BSD-3-Clause
 * What programs do to a connection: ask for it, accept it, reject it, end it. */
#include "cm_internal.h"

/* The kernel's CMA_CM_RESPONSE_TIMEOUT, 4.096 us * 2^20, for a request and its 15 repetitions. */
#define ANSWER_NS (UINT64_C(4096) << 24)
/* As cm.c waits after a disconnection, for a packet life time of 16: 4.096 us * 2^17. */
#define TIMEWAIT_NS (UINT64_C(4096) << 17)
/* Resolving an address and a route takes milliseconds on a network and none here, so that programs
 * get to where their partner is about to listen.  Who finds nobody looks again before it is
 * refused. */
#define SEEK_NS UINT64_C(100000000)
#define SEEK_AGAIN_NS UINT64_C(500000)

/* --- waiting ------------------------------------------------------------------------- */

void cm_stop_waiting(struct nupa_cm_id *id)
{
	nupa_list_del(&id->wait);
	if (id->unsent)
		id->engine->cm->unsent--;
	id->unsent = false;
}

/* The port thread may sleep on an earlier idea of what comes next. */
static void wait_on(struct nupa_cm_id *id, struct nupa_list *list, uint64_t ns)
{
	bool first = nupa_list_empty(list);

	cm_stop_waiting(id);
	id->deadline_ns = id->engine->now_ns() + ns;
	nupa_list_add(list, &id->wait);
	nupa_store_relaxed(&id->engine->cm_timers, true);
	if (first)
		nupa_slot_ring(id->engine->slot);
}

void cm_wait(struct nupa_cm_id *id, enum cm_state state)
{
	id->state = state;
	wait_on(id, &id->engine->cm->waiting, ANSWER_NS);
}

void cm_timewait(struct nupa_cm_id *id)
{
	id->state = CM_TIMEWAIT;
	wait_on(id, &id->engine->cm->timewait, TIMEWAIT_NS);
}

/* --- connecting ---------------------------------------------------------------------- */

static bool datagrams(const struct nupa_cm_id *id)
{
	return id->qp_type == IBV_QPT_UD;
}

/* Nobody listens there: what the kernel of that host answers. */
static void refused(struct nupa_cm_id *id)
{
	struct nupa_cm_event *event;

	cm_stop_waiting(id);
	id->state = CM_CLOSED;
	event = datagrams(id) ? cm_event_new(id, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_UNSUPPORTED)
			      : cm_event_new(id, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_SERVICE);
	if (!event)
		return;
	if (!datagrams(id))
		event->conn.private_bytes = CM_REJ_PRIVATE_BYTES;
	cm_event_post(event);
}

/* Who listens where the id wants to go; a process that died there unnoticed does not. */
static struct nupa_channel *find_peer(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;

	for (;;) {
		int slot = cm_port_find(engine, id->dst_host, id->ps, cm_addr_port(&id->dst),
					id->dst_kind);

		if (slot < 0)
			return NULL;
		/* Those that we have a channel to are watched. */
		if ((engine->channels[slot] && !engine->channels[slot]->broken) ||
		    nupa_slot_alive(&engine->fabric->slots[slot],
				    nupa_slot_claim(&engine->fabric->slots[slot])))
			return nupa_channel_get(engine, (uint32_t)slot);
		if (nupa_fabric_reap(engine->fabric) == 0)
			return NULL; /* another process is at it */
	}
}

static bool seeks_on(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	uint64_t now_ns = engine->now_ns();

	if (!id->seek_until_ns)
		id->seek_until_ns = now_ns + SEEK_NS;
	if (now_ns >= id->seek_until_ns)
		return false;
	if (!engine->cm->seek_at_ns) {
		engine->cm->seek_at_ns = now_ns + SEEK_AGAIN_NS;
		nupa_store_relaxed(&engine->cm_timers, true);
		nupa_slot_ring(engine->slot);
	}
	return true;
}

/* Sends the request of an id that waits, as soon as there is a path and a listener. */
void cm_request(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	struct cm_wire wire;
	bool path = nupa_path_up(engine, id->dst_host);

	if (id->unsent)
		engine->cm->unsent--;
	id->peer = path ? find_peer(id) : NULL;
	id->unsent = !path || (!id->peer && seeks_on(id));
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

static int connect_locked(struct nupa_cm_id *id, const struct nupa_cm_param *param)
{
	uint32_t most = datagrams(id) ? CM_SIDR_REQ_PRIVATE_BYTES : CM_REQ_PRIVATE_BYTES;

	if (id->state != CM_ROUTE_RESOLVED || id->multicast_dst || param->private_bytes > most)
		return EINVAL;
	id->param = *param;
	id->param.private_bytes = (uint8_t)most; /* zeros behind what was given */
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

	if (id->state == CM_SIDR_RECEIVED && param->private_bytes <= CM_SIDR_REP_PRIVATE_BYTES) {
		id->user = user;
		answer_of(id, param, CM_SIDR_REP_PRIVATE_BYTES, &wire);
		wire.qkey = RDMA_UDP_QKEY;
		cm_send_id(id, CM_SIDR_REP, CM_SIDR_OK, &wire);
		id->state = CM_SIDR_DONE;
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
		id->state = CM_ESTABLISHED;
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
	id->state = CM_CLOSED;
	return 0;
}

int nupa_cm_reject(struct nupa_cm_id *id, bool for_ece, const void *data, uint8_t bytes)
{
	struct nupa_cm_param param = { .private_bytes = bytes };
	int error;

	if (bytes > sizeof(param.private_data))
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
		id->state = CM_ESTABLISHED;
		cm_event_report(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		error = 0;
	}
	nupa_engine_unlock(id->engine);
	return error;
}

/* --- time and death ------------------------------------------------------------------ */

static uint64_t earlier(uint64_t ns, const struct nupa_list *waiting)
{
	uint64_t first_ns;

	if (nupa_list_empty(waiting))
		return ns;
	first_ns = container_of(waiting->next, struct nupa_cm_id, wait)->deadline_ns;
	return first_ns < ns ? first_ns : ns;
}

uint64_t nupa_cm_next_timer_ns(const struct nupa_engine *engine)
{
	const struct nupa_cm *cm = engine->cm;
	uint64_t next_ns;

	if (!cm)
		return UINT64_MAX;
	next_ns = cm->seek_at_ns ? cm->seek_at_ns : UINT64_MAX;
	return earlier(earlier(next_ns, &cm->waiting), &cm->timewait);
}

static void expire(struct nupa_cm_id *id)
{
	enum cm_state state = id->state;

	cm_stop_waiting(id);
	switch (state) {
	case CM_TIMEWAIT:
		id->state = CM_CLOSED;
		cm_event_report(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		break;
	case CM_DREQ_SENT:
		cm_timewait(id);
		cm_event_report(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
		break;
	default:
		if (state == CM_REQ_SENT || state == CM_REP_SENT)
			cm_send_id(id, CM_REJ, CM_REJ_TIMEOUT, NULL);
		id->state = CM_CLOSED;
		cm_event_report(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	}
}

static void expire_list(struct nupa_list *list, uint64_t now_ns)
{
	while (!nupa_list_empty(list)) {
		struct nupa_cm_id *id = container_of(list->next, struct nupa_cm_id, wait);

		if (id->deadline_ns > now_ns)
			break;
		expire(id);
	}
}

void nupa_cm_run_timers(struct nupa_engine *engine)
{
	struct nupa_cm *cm = engine->cm;
	uint64_t now_ns;

	if (!cm)
		return;
	now_ns = engine->now_ns();
	if (cm->seek_at_ns && now_ns >= cm->seek_at_ns) {
		cm->seek_at_ns = 0;
		nupa_cm_flush(engine);
	}
	expire_list(&cm->waiting, now_ns);
	expire_list(&cm->timewait, now_ns);
	if (nupa_cm_next_timer_ns(engine) == UINT64_MAX)
		nupa_store_relaxed(&engine->cm_timers, false);
}

static void lose_peer(struct nupa_cm_id *id)
{
	enum cm_state state = id->state;

	id->peer = NULL;
	switch (state) {
	case CM_REQ_SENT:
	case CM_REP_SENT:
	case CM_REP_RECEIVED:
	case CM_REQ_RECEIVED:
		cm_stop_waiting(id);
		id->state = CM_CLOSED;
		cm_event_report(id, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
		break;
	case CM_SIDR_SENT:
		cm_stop_waiting(id);
		id->state = CM_CLOSED;
		cm_event_report(id, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_REJECTED);
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		cm_timewait(id);
		cm_event_report(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	default:
		break;
	}
}

/* As when its kernel cleans up behind a process that died. */
void nupa_cm_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	struct nupa_cm *cm = engine->cm;
	struct nupa_list *at;

	if (!cm)
		return;
	at = cm->ids.next;
	while (at != &cm->ids) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, link);

		at = at->next;
		if (id->peer == channel)
			lose_peer(id);
	}
}
