/* SPDX-License-Identifier: BSD-3-Clause
 * Datagrams as the messages that connection management's states understand, and the reverse. */
#include "engine/cm/wire/message.h"
#include "base/fields.h"

static const uint16_t attributes[CM_MESSAGE_MAX] = {
	[CM_REQ] = NUPA_CM_REQ,           [CM_REP] = NUPA_CM_REP,
	[CM_RTU] = NUPA_CM_RTU,           [CM_REJ] = NUPA_CM_REJ,
	[CM_DREQ] = NUPA_CM_DREQ,         [CM_DREP] = NUPA_CM_DREP,
	[CM_SIDR_REQ] = NUPA_CM_SIDR_REQ, [CM_SIDR_REP] = NUPA_CM_SIDR_REP,
	[CM_MRA] = NUPA_CM_MRA,
};

/* --- out ----------------------------------------------------------------------------- */

/* A11.4: IPv4 addresses are in the last four bytes; in struct cm_wire in the first four. */
static uint32_t skipped(uint16_t family)
{
	return family == AF_INET6 ? 0 : 12;
}

static void put_service(const struct cm_wire *wire, struct nupa_cm_mad *mad)
{
	const uint32_t skip = skipped(wire->family);

	mad->service = (uint64_t)wire->ps << 16 | wire->dst_port;
	mad->ip_version = wire->family == AF_INET6 ? 6 : 4;
	mad->source_port = wire->src_port;
	memcpy(mad->source + skip, wire->src, 16 - skip);
	memcpy(mad->destination + skip, wire->dst, 16 - skip);
	mad->pkey = wire->pkey;
}

/* As the kernel's cm.c: the target's end of XRC names its QP as an EE context. */
static void put_qp(const struct cm_wire *wire, struct nupa_cm_mad *mad)
{
	const struct nupa_cm_param *param = &wire->param;

	mad->psn = wire->psn & 0xffffff;
	mad->responder_resources = param->responder_resources;
	mad->initiator_depth = param->initiator_depth;
	mad->flow_control = param->flow_control & 1;
	mad->rnr_retry_count = param->rnr_retry_count & 7;
	mad->srq = param->srq & 1;
	if (wire->qp_type == IBV_QPT_XRC_RECV)
		mad->eecn = param->qpn;
	else
		mad->qpn = param->qpn;
}

static void put_req(const struct cm_wire *wire, const struct cm_ends *ends, struct nupa_cm_mad *mad)
{
	put_qp(wire, mad);
	put_service(wire, mad);
	mad->transport = wire->qp_type == IBV_QPT_RC   ? NUPA_CM_RC
			 : wire->qp_type == IBV_QPT_UC ? NUPA_CM_UC
						       : NUPA_CM_EXTENDED;
	mad->extended_transport = mad->transport == NUPA_CM_EXTENDED ? NUPA_CM_XRC : 0;
	mad->remote_timeout = mad->local_timeout = CM_RESPONSE_TIMEOUT;
	mad->retries = CM_RETRIES;
	mad->retry_count = wire->param.retry_count & 7;
	mad->path_mtu = ends->path_mtu;
	mad->local_lid = mad->remote_lid = NUPA_CM_PERMISSIVE_LID;
	memcpy(mad->local_gid, ends->local_gid, sizeof(mad->local_gid));
	memcpy(mad->remote_gid, ends->remote_gid, sizeof(mad->remote_gid));
	mad->rate = IBV_RATE_100_GBPS;
	mad->traffic_class = wire->tos;
	mad->hop_limit = CM_HOP_LIMIT;
	mad->ack_timeout = ends->ack_timeout;
}

void cm_mad_of(enum cm_message message, uint8_t reason, const struct cm_wire *wire,
	       const struct cm_ends *ends, struct nupa_cm_mad *mad)
{
	static const struct cm_wire none;

	memset(mad, 0, sizeof(*mad));
	mad->transaction = ends->transaction;
	mad->attribute = attributes[message];
	mad->local_id = ends->local_id;
	mad->remote_id = ends->remote_id;
	mad->ca_guid = ends->ca_guid;
	if (!wire)
		wire = &none;
	mad->qkey = wire->qkey;
	switch (message) {
	case CM_REQ:
		put_req(wire, ends, mad);
		break;
	case CM_REP:
		put_qp(wire, mad);
		break;
	case CM_REJ:
		mad->reason = reason;
		mad->about = ends->about;
		/* IBTA 12.6.7.2: a request that is given up is named by its sender's GUID as well.
		 */
		if (reason == CM_REJ_TIMEOUT) {
			mad->information_bytes = sizeof(ends->ca_guid);
			nupa_be64_put(mad->information, ends->ca_guid);
		}
		break;
	case CM_DREQ:
		mad->qpn = ends->remote_qpn;
		break;
	case CM_MRA:
		mad->about = reason;
		mad->service_timeout = CM_SERVICE_TIMEOUT;
		break;
	case CM_SIDR_REQ:
		put_service(wire, mad);
		break;
	case CM_SIDR_REP:
		mad->status = reason;
		mad->qpn = wire->param.qpn;
		mad->service = (uint64_t)wire->ps << 16 | wire->src_port;
		break;
	default: /* RTU, DREP: the ids are all */
		break;
	}
	memcpy(mad->data, wire->param.private_data,
	       wire->param.private_bytes < sizeof(mad->data) ? wire->param.private_bytes
							     : sizeof(mad->data));
}

/* --- in ------------------------------------------------------------------------------ */

static bool take_service(const struct nupa_cm_mad *mad, struct cm_wire *wire)
{
	uint32_t skip;

	if (!mad->ip_version)
		return false;
	wire->ps = (uint16_t)(mad->service >> 16);
	wire->dst_port = (uint16_t)mad->service;
	wire->src_port = mad->source_port;
	wire->family = mad->ip_version == 6 ? AF_INET6 : AF_INET;
	wire->dst_kind = mad->ip_version == 6 ? CM_ADDR_WIRE6 : CM_ADDR_WIRE4;
	skip = skipped(wire->family);
	memcpy(wire->src, mad->source + skip, 16 - skip);
	memcpy(wire->dst, mad->destination + skip, 16 - skip);
	wire->pkey = mad->pkey;
	return true;
}

static bool take_req(const struct nupa_cm_mad *mad, struct cm_wire *wire)
{
	switch (mad->transport) {
	case NUPA_CM_RC:
		wire->qp_type = IBV_QPT_RC;
		break;
	case NUPA_CM_UC:
		wire->qp_type = IBV_QPT_UC;
		break;
	case NUPA_CM_EXTENDED:
		wire->qp_type = IBV_QPT_XRC_SEND;
		break;
	default: /* reliable datagrams, which verbs do not have */
		return false;
	}
	if (mad->transport == NUPA_CM_EXTENDED && mad->extended_transport != NUPA_CM_XRC)
		return false;
	wire->tos = mad->traffic_class;
	wire->path_mtu = mad->path_mtu;
	wire->ack_timeout = mad->ack_timeout;
	return take_service(mad, wire);
}

static void take_param(const struct nupa_cm_mad *mad, struct nupa_cm_param *param)
{
	param->qpn = mad->qpn ? mad->qpn : mad->eecn;
	param->responder_resources = mad->responder_resources;
	param->initiator_depth = mad->initiator_depth;
	param->flow_control = mad->flow_control;
	param->retry_count = mad->retry_count;
	param->rnr_retry_count = mad->rnr_retry_count;
	param->srq = mad->srq;
	param->private_bytes = (uint8_t)nupa_cm_data_bytes(mad->attribute);
	if (param->private_bytes > sizeof(param->private_data))
		param->private_bytes = sizeof(param->private_data);
	memcpy(param->private_data, mad->data, param->private_bytes);
}

/* A reason that does not fit is still a refusal. */
static uint8_t reason_of(const struct nupa_cm_mad *mad)
{
	switch (mad->attribute) {
	case NUPA_CM_REJ:
		return mad->reason <= UINT8_MAX ? (uint8_t)mad->reason : CM_REJ_CONSUMER;
	case NUPA_CM_SIDR_REP:
		return mad->status;
	default:
		return mad->about;
	}
}

enum cm_message cm_message_of(const struct nupa_cm_mad *mad, uint8_t *reason, struct cm_wire *wire)
{
	enum cm_message message = CM_REQ;

	while (message < CM_MESSAGE_MAX && attributes[message] != mad->attribute)
		message++;
	memset(wire, 0, sizeof(*wire));
	*reason = reason_of(mad);
	wire->transaction = mad->transaction;
	wire->psn = mad->psn;
	wire->qkey = mad->qkey;
	wire->service_timeout = mad->service_timeout;
	take_param(mad, &wire->param);
	if ((message == CM_REQ && !take_req(mad, wire)) ||
	    (message == CM_SIDR_REQ && !take_service(mad, wire)) || message == CM_MESSAGE_MAX)
		return CM_NONE;
	return message;
}
