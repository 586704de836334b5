/* SPDX-License-Identifier: BSD-3-Clause
 * Received messages of the CM protocol (IBTA 12.6 to 12.11).  They are another process's and may
 * have any content.  A message that does not fit the state of its id is ignored; one that comes by
 * another channel (K2) names no id. */
#include "engine/cm/kernel/kernel.h"
#include "segment/control/pkey.h"

static bool well_formed(const struct cm_wire *wire)
{
	return (wire->family == AF_INET || wire->family == AF_INET6) &&
	       wire->dst_kind < CM_ADDR_KINDS &&
	       wire->param.private_bytes <= sizeof(wire->param.private_data);
}

static struct nupa_cm_id *find_listener(const struct nupa_cm *cm, const struct cm_wire *wire)
{
	struct nupa_cm_id *best_id = NULL;
	int best = 0;

	for (struct nupa_list *at = cm->listeners.next; at != &cm->listeners; at = at->next) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, listener);
		int match;

		if ((uint16_t)id->ps != wire->ps || cm_addr_port(&id->src) != wire->dst_port)
			continue;
		match = cm_port_match(id->src_kind, id->afonly, (enum cm_addr_kind)wire->dst_kind);
		if (match > best) {
			best = match;
			best_id = id;
		}
	}
	return best_id;
}

/* Depths change sides: one end's reads are the other end's responses. */
static void swap_depths(struct nupa_cm_param *param)
{
	uint8_t depth = param->initiator_depth;

	param->initiator_depth = param->responder_resources;
	param->responder_resources = depth;
}

static struct nupa_cm_id *child_of(struct nupa_cm_id *listener, struct nupa_channel *channel,
				   uint32_t remote, const struct cm_wire *wire)
{
	struct nupa_engine *engine = listener->engine;
	struct nupa_cm_id *id;

	if (cm_id_new(engine, &id))
		return NULL;
	id->context = listener->context;
	id->events = listener->events;
	cm_channel_use(id->events);
	id->ps = listener->ps;
	id->qp_type = listener->qp_type;
	id->remote = remote;
	id->peer = channel;
	(void)cm_addr_from_wire(wire->family, wire->dst, wire->dst_port, &id->src);
	(void)cm_addr_from_wire(wire->family, wire->src, wire->src_port, &id->dst);
	id->src_kind = (enum cm_addr_kind)wire->dst_kind;
	id->dst_host = channel->peer_host;
	id->dst_kind = id->src_kind; /* both ends have addresses of one family */
	id->bound = true;
	id->tos = wire->tos;
	id->remote_qpn = wire->param.qpn;
	id->remote_psn = wire->psn & 0xffffff;
	id->far.transaction = wire->transaction;
	id->far.path_mtu = wire->path_mtu;
	id->far.ack_timeout = wire->ack_timeout;
	id->param = wire->param;
	swap_depths(&id->param);
	cm_remember(id);
	return id;
}

/* Refuses a request before a program sees it.  *reason*: of REJ. */
static void refuse(struct nupa_engine *engine, struct nupa_channel *channel,
		   const struct nupa_msg *msg, uint8_t reason)
{
	const bool nobody = reason == CM_REJ_INVALID_SERVICE;

	if (msg->syndrome == CM_REQ)
		cm_send(engine, channel, CM_REJ, reason, msg->src_qpn, 0, NULL);
	else
		cm_send(engine, channel, CM_SIDR_REP,
			nobody ? CM_SIDR_UNSUPPORTED : CM_SIDR_REJECTED, msg->src_qpn, 0, NULL);
}

static bool offers(const struct nupa_cm_id *listener, const struct nupa_msg *msg,
		   const struct cm_wire *wire)
{
	if (msg->syndrome == CM_SIDR_REQ)
		return listener->qp_type == IBV_QPT_UD;
	if (wire->qp_type == IBV_QPT_XRC_SEND)
		return listener->qp_type == IBV_QPT_XRC_RECV;
	return wire->qp_type == listener->qp_type && wire->qp_type != IBV_QPT_UD;
}

static bool take_backlog(struct nupa_cm_id *listener)
{
	if (__atomic_fetch_sub(&listener->backlog, 1, __ATOMIC_RELAXED) > 0)
		return true;
	__atomic_fetch_add(&listener->backlog, 1, __ATOMIC_RELAXED);
	return false;
}

static void handle_request(struct nupa_engine *engine, struct nupa_channel *channel,
			   const struct nupa_msg *msg, const struct cm_wire *wire)
{
	const uint32_t psn = wire->psn & 0xffffff;
	bool datagrams = msg->syndrome == CM_SIDR_REQ;
	struct nupa_cm_id *listener, *id;
	struct nupa_cm_event *event;
	int pkey_index;

	id = cm_find_remote(engine->cm, channel, msg->src_qpn, &psn);
	if (id) {
		cm_request_again(id, msg->syndrome);
		return;
	}
	pkey_index = nupa_pkey_find(engine->fabric, engine->host, wire->pkey);
	/* IBTA 9.6.1.1.1: of another partition, or of one that the sender's host has left. */
	if (pkey_index < 0 || !nupa_pkey_held(engine->fabric, channel->peer_host, wire->pkey)) {
		nupa_count(&engine->hw->pkey_violations, 1);
		return;
	}
	listener = find_listener(engine->cm, wire);
	if (listener && !cm_far_mtu_fits(channel, wire)) {
		refuse(engine, channel, msg, CM_REJ_INVALID_MTU);
		return;
	}
	if (!listener || !offers(listener, msg, wire) || !take_backlog(listener)) {
		refuse(engine, channel, msg, listener ? CM_REJ_CONSUMER : CM_REJ_INVALID_SERVICE);
		return;
	}
	event = cm_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	id = event ? child_of(listener, channel, msg->src_qpn, wire) : NULL;
	if (id)
		id->pkey_entry = (uint8_t)(pkey_index + 1);
	if (!id) {
		nupa_cm_free_event(event);
		__atomic_fetch_add(&listener->backlog, 1, __ATOMIC_RELAXED);
		refuse(engine, channel, msg, CM_REJ_CONSUMER);
		return;
	}
	cm_enter(id, datagrams ? CM_SIDR_RECEIVED : CM_REQ_RECEIVED);
	event->child = id;
	event->conn = id->param;
	event->conn.private_bytes = datagrams ? CM_SIDR_REQ_PRIVATE_BYTES : CM_REQ_PRIVATE_BYTES;
	cm_event_post(event);
}

static void handle_reply(struct nupa_cm_id *id, const struct nupa_msg *msg,
			 const struct cm_wire *wire)
{
	struct nupa_cm_event *event;

	if (id->state != CM_REQ_SENT) {
		if (id->remote)
			cm_reply_again(id);
		return;
	}
	cm_stop_waiting(id);
	cm_enter(id, CM_REP_RECEIVED);
	id->remote = msg->src_qpn;
	id->remote_qpn = wire->param.qpn;
	id->remote_psn = wire->psn & 0xffffff;
	id->param.responder_resources = wire->param.initiator_depth;
	id->param.initiator_depth = wire->param.responder_resources;
	id->param.rnr_retry_count = wire->param.rnr_retry_count;
	event = cm_event_new(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	if (!event)
		return;
	event->conn = wire->param;
	swap_depths(&event->conn);
	event->conn.private_bytes = CM_REP_PRIVATE_BYTES;
	cm_event_post(event);
}

static void handle_reject(struct nupa_cm_id *id, const struct nupa_msg *msg,
			  const struct cm_wire *wire)
{
	struct nupa_cm_event *event;

	if (id->state != CM_REQ_SENT && id->state != CM_REQ_RECEIVED && id->state != CM_REP_SENT &&
	    id->state != CM_REP_RECEIVED && id->state != CM_ESTABLISHED)
		return;
	if (msg->timer == CM_REJ_INVALID_SERVICE && cm_request_later(id))
		return;
	cm_stop_waiting(id);
	cm_enter(id, CM_CLOSED);
	event = id->user ? cm_event_new(id, RDMA_CM_EVENT_REJECTED, msg->timer) : NULL;
	if (!event)
		return;
	if (wire)
		event->conn = wire->param;
	event->conn.private_bytes = CM_REJ_PRIVATE_BYTES;
	cm_event_post(event);
}

/* The kernel's CM leaves the DREP to the program, which may take long; the answer is always the
 * same, so it is sent at once. */
static void handle_disconnect(struct nupa_cm_id *id, const struct nupa_msg *msg)
{
	const bool again = id->state == CM_TIMEWAIT || id->state == CM_CLOSED;

	if (id->state != CM_ESTABLISHED && id->state != CM_REP_SENT && id->state != CM_DREQ_SENT &&
	    !(again && !id->sent.owed))
		return;
	cm_send(id->engine, id->peer, CM_DREP, 0, msg->src_qpn, id->local, NULL);
	if (again)
		return;
	cm_timewait(id);
	cm_event_report(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

static void handle_datagram_reply(struct nupa_cm_id *id, const struct nupa_msg *msg,
				  const struct cm_wire *wire)
{
	struct nupa_cm_event *event;

	if (id->state != CM_SIDR_SENT || (msg->timer == CM_SIDR_OK && !wire))
		return;
	if (msg->timer == CM_SIDR_UNSUPPORTED && cm_request_later(id))
		return;
	cm_stop_waiting(id);
	cm_enter(id, msg->timer == CM_SIDR_OK ? CM_SIDR_DONE : CM_CLOSED);
	event = cm_event_new(
	    id, msg->timer == CM_SIDR_OK ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
	    msg->timer);
	if (!event)
		return;
	if (wire) {
		event->conn = wire->param;
		event->conn.private_bytes = CM_SIDR_REP_PRIVATE_BYTES;
		event->qkey = wire->qkey;
		cm_ah_of(id, &event->ah);
	}
	cm_event_post(event);
}

static void handle_answer(struct nupa_engine *engine, struct nupa_channel *channel,
			  const struct nupa_msg *msg, const struct cm_wire *wire)
{
	struct nupa_cm_id *id = cm_id_find(engine, msg->dest_qpn);

	/* A request that its sender gave up is named by the sender's number alone. */
	if (!id && msg->syndrome == CM_REJ && !msg->dest_qpn)
		id = cm_find_remote(engine->cm, channel, msg->src_qpn, NULL);
	if (!id || id->peer != channel ||
	    (id->remote && msg->src_qpn && id->remote != msg->src_qpn)) {
		cm_answer_unknown(engine, channel, msg);
		return;
	}
	switch (msg->syndrome) {
	case CM_REP:
		if (wire)
			handle_reply(id, msg, wire);
		break;
	case CM_RTU:
		if (id->state != CM_REP_SENT)
			break;
		cm_stop_waiting(id);
		cm_enter(id, CM_ESTABLISHED);
		cm_event_report(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		break;
	case CM_REJ:
		handle_reject(id, msg, wire);
		break;
	case CM_DREQ:
		handle_disconnect(id, msg);
		break;
	case CM_DREP:
		if (id->state != CM_DREQ_SENT)
			break;
		cm_timewait(id);
		cm_event_report(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	case CM_MRA:
		if (id->state == (msg->timer == CM_MRA_REP ? CM_REP_SENT : CM_REQ_SENT))
			cm_extend(id, wire && (channel->wired || cm_is_kernel(channel))
					  ? wire->service_timeout
					  : CM_SERVICE_TIMEOUT);
		break;
	default:
		handle_datagram_reply(id, msg, wire);
		break;
	}
}

void cm_handle(struct nupa_engine *engine, struct nupa_channel *channel, const struct nupa_msg *msg,
	       const struct cm_wire *wire)
{
	if (msg->syndrome == CM_REQ || msg->syndrome == CM_SIDR_REQ)
		handle_request(engine, channel, msg, wire);
	else
		handle_answer(engine, channel, msg, wire);
}

bool nupa_cm_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		     const struct nupa_msg *msg, const uint8_t *payload)
{
	struct cm_wire wire; /* a copy: the sender may still write to the other one */

	if (msg->syndrome == 0 || msg->syndrome >= CM_MESSAGE_MAX)
		return false;
	if (msg->syndrome == CM_MAD)
		return cm_kernel_receive(engine, channel, msg, payload);
	if (payload) {
		if (msg->length_bytes != sizeof(wire))
			return false;
		memcpy(&wire, payload, sizeof(wire));
		if (!well_formed(&wire))
			return false;
		wire.path_mtu = wire.ack_timeout = wire.service_timeout = 0; /* of datagrams */
	} else if (msg->syndrome == CM_REQ || msg->syndrome == CM_SIDR_REQ)
		return false;
	if (cm_of(engine)) /* no memory: lost, as on a network */
		cm_handle(engine, channel, msg, payload ? &wire : NULL);
	return true;
}
