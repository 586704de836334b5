/* SPDX-License-Identifier: BSD-3-Clause
 * The beginning and end of a stream, as the connection manager reports it.  Each socket has an
 * event channel of its own; a thread that calls into the socket takes its events. */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define RESOLVE_MS 2000
#define RETRIES 7 /* of RNR: for ever */

static int new_channel(struct rsocket *rs)
{
	rs->destroy_transport = rs_destroy_transport;
	rs->events = rdma_create_event_channel();
	if (!rs->events)
		return -1;
	if (fcntl(rs->events->fd, F_SETFL, O_NONBLOCK) ||
	    fcntl(rs->events->fd, F_SETFD, FD_CLOEXEC))
		return -1;
	return rs_watch(rs, rs->events->fd);
}

/* A socket that is neither bound nor connected.  -1 with errno. */
int rs_new_id(struct rsocket *rs)
{
	if (new_channel(rs))
		return -1;
	return rdma_create_id(rs->events, &rs->id, rs,
			      rs->type == SOCK_DGRAM ? RDMA_PS_UDP : RDMA_PS_TCP);
}

/* Those options that are the identifier's; before it is bound. */
int rs_apply_id_options(struct rsocket *rs)
{
	struct rs_options *options = &rs->options;
	uint8_t tos = (uint8_t)options->tos;

	if (options->reuse_address &&
	    rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
			    &options->reuse_address, sizeof(options->reuse_address)))
		return -1;
	if (options->v6_only && rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
						&options->v6_only, sizeof(options->v6_only)))
		return -1;
	if (tos && rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)))
		return -1;
	return 0;
}

int rs_start_connect(struct rsocket *rs, const struct sockaddr *addr)
{
	struct sockaddr_storage to = { 0 };

	memcpy(&to, addr,
	       addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6));
	if (!rs->is_bound && rs_apply_id_options(rs))
		return -1;
	nupa_store_release(&rs->state, RS_ADDRESS);
	if (rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)&to, RESOLVE_MS)) {
		nupa_store_release(&rs->state, RS_INIT);
		return -1;
	}
	return 0;
}

static int resolve_route(struct rsocket *rs)
{
	struct rs_options *options = &rs->options;

	nupa_store_release(&rs->state, RS_ROUTE);
	if (options->route)
		return rdma_set_option(rs->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, options->route,
				       options->route_bytes);
	return rdma_resolve_route(rs->id, RESOLVE_MS);
}

static struct rdma_conn_param parameters(const struct rs_wire_hello *hello)
{
	return (struct rdma_conn_param){
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = RETRIES,
	};
}

static int request(struct rsocket *rs)
{
	struct rs_wire_hello hello = { 0 };
	struct rdma_conn_param param = parameters(&hello);

	if (rs_create_transport(rs, rs->id))
		return -1;
	rs_say_hello(rs, &hello);
	nupa_store_release(&rs->state, RS_REQUESTED);
	return rdma_connect(rs->id, &param);
}

static int established(struct rsocket *rs, const struct rdma_cm_event *event)
{
	int state = nupa_load_relaxed(&rs->state);

	if (state == RS_REQUESTED &&
	    rs_hear_hello(rs, event->param.conn.private_data, event->param.conn.private_data_len))
		return RS_ERROR(EPROTO);
	if (state == RS_REQUESTED || state == RS_ACCEPTED)
		nupa_store_release(&rs->state, RS_CONNECTED);
	return 0;
}

/* The error of a failed connect: the manager's, or TCP's for the same cause. */
static int refusal(const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	if (event->status < 0)
		return -event->status;
	return event->event == RDMA_CM_EVENT_CONNECT_ERROR ? ECONNRESET : EHOSTUNREACH;
}

/* 0, or the reason why the connection is impossible. */
static int handle(struct rsocket *rs, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return resolve_route(rs) ? errno : 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return request(rs) ? errno : 0;
	case RDMA_CM_EVENT_ESTABLISHED:
		return established(rs, event) ? errno : 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		rs_progress(rs);
		if (!nupa_load_acquire(&rs->peer_shut)) /* it did not close, it was torn down */
			rs_break(rs, ECONNRESET);
		nupa_store_release(&rs->peer_gone, 1);
		return 0;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		return refusal(event);
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return ENODEV;
	default: /* address change, end of time-wait: ignored */
		return 0;
	}
}

/* A socket whose connect failed is unconnected, as with TCP; it may be used for another attempt. */
static void fail(struct rsocket *rs, int code)
{
	int state = nupa_load_relaxed(&rs->state);

	if (state == RS_ACCEPTED || state == RS_CONNECTED) {
		rs_break(rs, code);
		return;
	}
	pthread_mutex_lock(&rs->progress);
	rs_destroy_transport(rs);
	pthread_mutex_unlock(&rs->progress);
	rs->is_bound = 0;
	nupa_store_release(&rs->broken, 0); /* as the flushed queues said */
	nupa_store_relaxed(&rs->error, code);
	if (rs_new_id(rs)) /* then every further call on it fails */
		rs_break(rs, code);
	nupa_store_release(&rs->state, RS_INIT);
}

/* Takes the connection manager's events; never sleeps. */
void rs_take_cm_events(struct rsocket *rs)
{
	struct rdma_cm_event *event;
	bool any = false;

	pthread_mutex_lock(&rs->control);
	while (nupa_load_relaxed(&rs->state) != RS_LISTENING && rs->events && !rs->datagrams &&
	       rs_fd_readable(rs->events->fd) && rdma_get_cm_event(rs->events, &event) == 0) {
		int code = handle(rs, event);

		rdma_ack_cm_event(event);
		any = true;
		if (code)
			fail(rs, code);
	}
	pthread_mutex_unlock(&rs->control);
	if (any)
		rs_notify(rs);
}

/* rs->fd is readable. */
void rs_take_events(struct rsocket *rs)
{
	struct ibv_cq *cq;
	void *context;

	pthread_mutex_lock(&rs->progress);
	while (rs->cq && ibv_get_cq_event(rs->completions, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		rs->armed = 0;
	}
	pthread_mutex_unlock(&rs->progress);
	rs_progress(rs);
	rs_take_cm_events(rs);
}

static int take_over(struct rsocket *rs, const struct rsocket *listener, struct rdma_cm_id *id,
		     const struct rs_wire_hello *theirs)
{
	struct rs_wire_hello hello = { 0 };
	struct rdma_conn_param param = parameters(&hello);

	rs->options = listener->options;
	rs->options.route = NULL;
	rs->options.route_bytes = 0;
	if (new_channel(rs) || rdma_migrate_id(id, rs->events))
		return -1;
	id->context = rs;
	if (rs_hear_hello(rs, theirs, sizeof(*theirs)))
		return RS_ERROR(EPROTO);
	if (rs_create_transport(rs, id))
		return -1;
	rs_say_hello(rs, &hello);
	nupa_store_release(&rs->state, RS_ACCEPTED);
	return rdma_accept(id, &param);
}

/* The connection that *event* requests; NULL: it was refused.  Acknowledges the event. */
struct rsocket *rs_accept_request(struct rsocket *listener, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct rs_wire_hello theirs = { 0 };
	struct rsocket *rs;

	if (event->param.conn.private_data && event->param.conn.private_data_len >= sizeof(theirs))
		memcpy(&theirs, event->param.conn.private_data, sizeof(theirs));
	rdma_ack_cm_event(event);
	rs = rs_new(listener->domain, listener->type, listener->protocol);
	if (!rs) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return NULL;
	}
	rs->id = id;
	if (take_over(rs, listener, id, &theirs)) {
		rdma_reject(id, NULL, 0);
		rs_hide(rs);
		rs_put(rs);
		return NULL;
	}
	return rs;
}
