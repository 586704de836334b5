/* SPDX-License-Identifier: BSD-3-Clause
 * Identifiers: created, destroyed, moved to another channel, given options. */
#include "engine/cm/internal.h"

#include <stdlib.h>

int nupa_cm_create_id(struct ibv_context *context, struct nupa_cm_channel *channel,
		      enum rdma_port_space ps, enum ibv_qp_type qp_type, void *user,
		      struct nupa_cm_id **out)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_cm_id *id;
	int error;

	if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IB && ps != RDMA_PS_IPOIB)
		return EINVAL;
	nupa_engine_lock(engine);
	error = cm_id_new(engine, &id);
	if (!error) {
		id->context = context;
		id->events = channel;
		id->ps = ps;
		id->qp_type = qp_type;
		id->user = user;
		cm_channel_use(channel);
		*out = id;
	}
	nupa_engine_unlock(engine);
	return error;
}

/* Tells the peer, as the kernel's cm_destroy_id does; reason: of a rejection. */
static void end(struct nupa_cm_id *id, int reason)
{
	switch (id->state) {
	case CM_REQ_SENT:
		cm_send_id(id, CM_REJ, CM_REJ_TIMEOUT, NULL);
		break;
	case CM_REQ_RECEIVED:
	case CM_REP_SENT:
	case CM_REP_RECEIVED:
		cm_send_id(id, CM_REJ, (uint8_t)reason, NULL);
		break;
	case CM_ESTABLISHED:
		cm_send_id(id, CM_DREQ, 0, NULL);
		break;
	case CM_SIDR_RECEIVED:
		cm_send_id(id, CM_SIDR_REP, CM_SIDR_REJECTED, NULL);
		break;
	default:
		break;
	}
	cm_leave_remnant(id);
	cm_unlink_id(id);
}

/* Requests that the program never got are rejected. */
static void drop_events(struct nupa_list *events)
{
	struct nupa_list *link;

	while ((link = nupa_list_pop(events))) {
		struct nupa_cm_event *event = container_of(link, struct nupa_cm_event, link);

		if (event->child) {
			end(event->child, CM_REJ_CONSUMER);
			nupa_cm_free_id(event->child);
		}
		free(event);
	}
}

uint32_t nupa_cm_destroy_id(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	struct nupa_list events;
	uint32_t got;

	nupa_list_init(&events);
	nupa_engine_lock(engine);
	end(id, CM_REJ_CONSUMER);
	got = cm_events_take(id, NULL, &events);
	drop_events(&events);
	nupa_engine_unlock(engine);
	return got;
}

void nupa_cm_free_id(struct nupa_cm_id *id)
{
	if (id->events)
		cm_channel_unuse(id->events);
	free(id);
}

/* The ids of requests that were not got yet end with their listener. */
static void move_children(const struct nupa_list *events, struct nupa_cm_channel *channel)
{
	for (struct nupa_list *at = events->next; at != events; at = at->next) {
		struct nupa_cm_id *child = container_of(at, struct nupa_cm_event, link)->child;

		if (!child)
			continue;
		cm_channel_use(channel);
		cm_channel_unuse(child->events);
		child->events = channel;
	}
}

int nupa_cm_migrate_id(struct nupa_cm_id *id, struct nupa_cm_channel *channel, uint32_t *got)
{
	struct nupa_cm_channel *old;
	struct nupa_list events;

	nupa_list_init(&events);
	nupa_engine_lock(id->engine);
	if (id->state == CM_DESTROYED) {
		nupa_engine_unlock(id->engine);
		return EINVAL;
	}
	/* New events come with the engine's lock: none falls between the channels. */
	*got = cm_events_take(id, NULL, &events);
	old = id->events;
	id->events = channel;
	cm_channel_use(channel);
	move_children(&events, channel);
	cm_events_put(channel, &events);
	nupa_engine_unlock(id->engine);
	cm_channel_unuse(old);
	return 0;
}

struct ibv_context *nupa_cm_context(const struct nupa_cm_id *id)
{
	return id->context;
}

/* --- options ------------------------------------------------------------------------- */

static int set_flag(bool *flag, const void *value, size_t bytes, bool allowed)
{
	int number;

	if (bytes != sizeof(number) || !allowed)
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	*flag = number != 0;
	return 0;
}

static int set_option(struct nupa_cm_id *id, int name, const void *value, size_t bytes)
{
	bool unbound = id->state == CM_IDLE;

	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (bytes != sizeof(id->tos))
			return EINVAL;
		memcpy(&id->tos, value, sizeof(id->tos));
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		return set_flag(&id->reuse, value, bytes, unbound || id->state == CM_BOUND);
	case RDMA_OPTION_ID_AFONLY:
		return set_flag(&id->afonly, value, bytes, unbound || id->state == CM_BOUND);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (bytes != sizeof(id->ack_timeout) || *(const uint8_t *)value > 31)
			return EINVAL;
		id->ack_timeout = *(const uint8_t *)value;
		id->ack_timeout_set = true;
		return 0;
	default:
		return ENOSYS;
	}
}

int nupa_cm_set_option(struct nupa_cm_id *id, int level, int name, const void *value, size_t bytes)
{
	int error;

	nupa_engine_lock(id->engine);
	if (id->state == CM_DESTROYED)
		error = EINVAL;
	else if (level == RDMA_OPTION_ID)
		error = set_option(id, name, value, bytes);
	else if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH)
		/* A path that the program resolved itself: there is one to each host. */
		error = bytes ? id->state == CM_ADDR_RESOLVED ? 0 : EINVAL : EINVAL;
	else
		error = ENOSYS;
	if (!error && level == RDMA_OPTION_IB) {
		cm_enter(id, CM_ROUTE_RESOLVED);
		cm_event_report(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	}
	nupa_engine_unlock(id->engine);
	return error;
}
