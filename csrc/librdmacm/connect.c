/* SPDX-License-Identifier: BSD-3-Clause
 * Connections: requested, accepted, rejected, ended. */
#include "librdmacm/internal.h"

#define RETRIES_MAX 7 /* 3 bits; of RNR: for ever */

/* --- parameters ---------------------------------------------------------------------- */

/* man rdma_connect: no more than the device has. */
static int check(const struct rdma_private *id, const struct rdma_conn_param *param)
{
	if (id->id.ps != RDMA_PS_TCP)
		return 0;
	if (!param)
		return id->id.qp ? 0 : EINVAL;
	if (!id->device)
		return EINVAL;
	if (param->responder_resources != RDMA_MAX_RESP_RES &&
	    param->responder_resources > id->device->max_responder_resources)
		return EINVAL;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    param->initiator_depth > id->device->max_initiator_depth)
		return EINVAL;
	return 0;
}

static uint8_t lower(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* The caller's parameters, or else these. */
static int choose_depths(struct rdma_private *id, const struct rdma_conn_param *asked,
			 uint8_t initiator, uint8_t responder)
{
	int error = check(id, asked);

	if (error || !id->device)
		return error ? error : EINVAL;
	id->initiator_depth = asked && asked->initiator_depth != RDMA_MAX_INIT_DEPTH
				  ? asked->initiator_depth
				  : lower(initiator, id->device->max_initiator_depth);
	id->responder_resources = asked && asked->responder_resources != RDMA_MAX_RESP_RES
				      ? asked->responder_resources
				      : lower(responder, id->device->max_responder_resources);
	return 0;
}

/* The parameters sent to the other side; the QP's own values override the caller's. */
static int fill(struct rdma_private *id, struct nupa_cm_param *to,
		const struct rdma_conn_param *from)
{
	const struct ibv_qp *qp = id->id.qp;
	size_t bytes = 0;

	memset(to, 0, sizeof(*to));
	to->responder_resources = id->responder_resources;
	to->initiator_depth = id->initiator_depth;
	to->retry_count = to->rnr_retry_count = RETRIES_MAX;
	to->ece = id->local_ece;
	if (qp) {
		to->qpn = qp->qp_num;
		to->srq = qp->srq != NULL;
	} else if (from) {
		to->qpn = from->qp_num;
		to->srq = from->srq;
	}
	if (id->connect_len) { /* man rdma_getaddrinfo: before the caller's own */
		bytes = id->connect_len;
		if (bytes > sizeof(to->private_data))
			return EINVAL;
		memcpy(to->private_data, id->connect, bytes);
	}
	if (from) {
		to->flow_control = from->flow_control;
		to->retry_count = lower(from->retry_count, RETRIES_MAX);
		to->rnr_retry_count = lower(from->rnr_retry_count, RETRIES_MAX);
		if (from->private_data && from->private_data_len) {
			if (bytes + from->private_data_len > sizeof(to->private_data))
				return EINVAL;
			memcpy(to->private_data + bytes, from->private_data,
			       from->private_data_len);
			bytes += from->private_data_len;
		}
	}
	to->private_bytes = (uint8_t)bytes;
	return 0;
}

/* --- the active side ----------------------------------------------------------------- */

int rdma_connect(struct rdma_cm_id *ibv, struct rdma_conn_param *conn_param)
{
	struct rdma_private *id = rdma_private_of(ibv);
	struct nupa_cm_param param;
	int error = choose_depths(id, conn_param, UINT8_MAX, UINT8_MAX);

	if (error)
		return rdma_result(error);
	error = fill(id, &param, conn_param);
	if (!error)
		error = nupa_cm_connect(id->cm, &param);
	return error ? rdma_result(error) : rdma_complete(id);
}

int rdma_establish(struct rdma_cm_id *id)
{
	if (id->qp)
		return rdma_result(EINVAL);
	return rdma_result(nupa_cm_ready(rdma_private_of(id)->cm));
}

/* --- the passive side ---------------------------------------------------------------- */

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rdma_private *listener = rdma_private_of(listen);
	struct rdma_cm_event *event;
	int error = 0;

	if (!listener->sync)
		return rdma_result(EINVAL);
	rdma_drop_event(listener);
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status)
		error = event->status < 0 ? -event->status : event->status;
	else if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		error = EINVAL;
	if (!error && listener->qp_init_attr) {
		struct ibv_qp_init_attr attr = *listener->qp_init_attr;

		if (rdma_create_qp(event->id, listen->pd, &attr)) {
			error = errno;
			rdma_reject(event->id, NULL, 0);
			rdma_destroy_id(event->id);
		}
	}
	if (error) {
		listen->event = event;
		return rdma_result(error);
	}
	*id = event->id;
	(*id)->event = event;
	return 0;
}

int rdma_accept(struct rdma_cm_id *ibv, struct rdma_conn_param *conn_param)
{
	struct rdma_private *id = rdma_private_of(ibv);
	struct nupa_cm_param param;
	int error = choose_depths(id, conn_param, id->initiator_depth, id->responder_resources);

	if (error)
		return rdma_result(error);
	if (ibv->qp && !rdma_is_ud(ibv->qp_type) &&
	    (rdma_qp_to_rtr(id, id->responder_resources) ||
	     rdma_qp_to_rts(id, id->initiator_depth)))
		return -1;
	error = fill(id, &param, conn_param);
	if (!error)
		error = nupa_cm_accept(id->cm, id, &param);
	if (error) {
		rdma_qp_to_error(id);
		return rdma_result(error);
	}
	if (!rdma_is_ud(ibv->qp_type))
		return rdma_complete(id);
	if (id->sync)
		rdma_drop_event(id);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return rdma_result(
	    nupa_cm_reject(rdma_private_of(id)->cm, false, private_data, private_data_len));
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return rdma_result(
	    nupa_cm_reject(rdma_private_of(id)->cm, true, private_data, private_data_len));
}

/* --- both ---------------------------------------------------------------------------- */

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return rdma_result(nupa_cm_notify(rdma_private_of(id)->cm, event));
}

int rdma_disconnect(struct rdma_cm_id *ibv)
{
	struct rdma_private *id = rdma_private_of(ibv);
	int error;

	if (rdma_is_ud(ibv->qp_type))
		return rdma_result(EINVAL);
	rdma_qp_to_error(id);
	error = nupa_cm_disconnect(id->cm);
	return error ? rdma_result(error) : rdma_complete(id);
}
