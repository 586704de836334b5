/* SPDX-License-Identifier: BSD-3-Clause
 * Events got from a channel: each is completed with changes in the program itself. */
#include "librdmacm/internal.h"

#include <stdlib.h>

/* --- effects of an event on the program's objects ------------------------------------ */

static void fill_conn(struct rdma_event *event)
{
	const struct nupa_cm_param *from = &event->cm->conn;
	struct rdma_conn_param *to = &event->event.param.conn;

	to->private_data = from->private_bytes ? from->private_data : NULL;
	to->private_data_len = from->private_bytes;
	to->responder_resources = from->responder_resources;
	to->initiator_depth = from->initiator_depth;
	to->flow_control = from->flow_control;
	to->retry_count = from->retry_count;
	to->rnr_retry_count = from->rnr_retry_count;
	to->srq = from->srq;
	to->qp_num = from->qpn;
}

static void fill_ud(struct rdma_event *event)
{
	const struct nupa_cm_event *from = event->cm;
	struct rdma_ud_param *to = &event->event.param.ud;

	to->private_data = from->conn.private_bytes ? from->conn.private_data : NULL;
	to->private_data_len = from->conn.private_bytes;
	to->ah_attr = from->ah;
	to->qp_num = from->conn.qpn;
	to->qkey = from->qkey;
}

/* A new id, of the listener's kind, on the channel that the event came by: the listener may be
 * about to move to another. */
static int conn_request(struct rdma_event *event, struct rdma_event_channel *channel)
{
	struct rdma_private *listener = event->owner, *id;
	const struct nupa_cm_event *from = event->cm;
	int error;

	id = rdma_private_new(channel, listener->id.context, listener->id.ps, listener->id.qp_type);
	if (!id) {
		nupa_cm_destroy_id(from->child);
		nupa_cm_free_id(from->child);
		return ENOMEM;
	}
	id->cm = from->child;
	id->initiator_depth = from->conn.initiator_depth;
	id->responder_resources = from->conn.responder_resources;
	id->remote_ece = from->conn.ece;
	error = rdma_refresh(id);
	if (!error && listener->sync && rdma_migrate_id(&id->id, NULL))
		error = errno;
	if (error) {
		rdma_destroy_id(&id->id);
		return error;
	}
	event->event.listen_id = &listener->id;
	event->event.id = &id->id;
	return 0;
}

/* A program with a QP of its own finishes by rdma_establish. */
static void conn_response(struct rdma_event *event)
{
	struct rdma_private *id = event->owner;

	id->remote_ece = event->cm->conn.ece;
	if (!id->id.qp)
		return;
	if (rdma_connection_ready(id) == 0) {
		event->event.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	event->event.status = -errno;
	event->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
	id->connect_error = true;
}

/* False: the program does not see it. */
static bool process(struct rdma_event *event, struct rdma_event_channel *channel)
{
	struct rdma_private *id = event->owner;

	if (rdma_is_ud(id->id.qp_type))
		fill_ud(event);
	else
		fill_conn(event);
	switch (event->event.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		event->event.status = -rdma_refresh(id);
		if (event->event.status)
			event->event.event = event->event.event == RDMA_CM_EVENT_ADDR_RESOLVED
						 ? RDMA_CM_EVENT_ADDR_ERROR
						 : RDMA_CM_EVENT_ROUTE_ERROR;
		return true;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return conn_request(event, channel) == 0;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		(void)rdma_refresh(id); /* loopback led to the host that listened just now */
		conn_response(event);
		return true;
	case RDMA_CM_EVENT_ESTABLISHED:
		(void)rdma_refresh(id);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		if (id->connect_error)
			return false;
		rdma_qp_to_error(id);
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		return !id->connect_error;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		event->group = container_of(event->cm->group, struct rdma_group, cm);
		event->event.param.ud.private_data = event->group->context;
		event->event.status = rdma_group_joined(event->group, event->cm);
		if (event->event.status)
			event->event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
		return true;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		event->group = container_of(event->cm->group, struct rdma_group, cm);
		event->event.param.ud.private_data = event->group->context;
		return true;
	case RDMA_CM_EVENT_USER:
		event->event.param.arg = event->cm->arg;
		return true;
	default:
		return true;
	}
}

/* --- getting ------------------------------------------------------------------------- */

int rdma_get_cm_event(struct rdma_event_channel *ibv, struct rdma_cm_event **out)
{
	struct rdma_event *event;
	int error;

	if (!ibv || !out)
		return rdma_result(EINVAL);
	for (;;) {
		event = calloc(1, sizeof(*event));
		if (!event)
			return rdma_result(ENOMEM);
		error = nupa_cm_get_event(container_of(ibv, struct rdma_channel, channel)->cm,
					  &event->cm);
		if (error) {
			free(event);
			return rdma_result(error);
		}
		event->owner = event->cm->user;
		event->event.id = &event->owner->id;
		event->event.event = event->cm->type;
		event->event.status = event->cm->status;
		if (process(event, ibv))
			break;
		rdma_release_event(event);
	}
	*out = &event->event;
	return 0;
}

int rdma_complete(struct rdma_private *id)
{
	int status;

	if (!id->sync)
		return 0;
	rdma_drop_event(id);
	if (rdma_get_cm_event(id->id.channel, &id->id.event))
		return -1;
	status = id->id.event->status;
	if (!status)
		return 0;
	if (id->id.event->event == RDMA_CM_EVENT_REJECTED)
		return rdma_result(ECONNREFUSED);
	return rdma_result(status < 0 ? -status : status);
}
