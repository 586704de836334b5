/* SPDX-License-Identifier: BSD-3-Clause
 * For the keeper of a wire: the process that a datagram on QP 1 is for, and refusals for those that
 * are for none. */
#include "engine/cm/wire/steer.h"
#include "engine/cm/internal.h"
#include "segment/control/pkey.h"

int nupa_cm_steer(const uint8_t *mad, uint32_t bytes, struct nupa_cm_target *target)
{
	struct nupa_cm_mad read;

	memset(target, 0, sizeof(*target));
	if (!nupa_cm_mad_read(mad, bytes, &read))
		return NUPA_CM_DROP;
	if (read.attribute != NUPA_CM_REQ && read.attribute != NUPA_CM_SIDR_REQ) {
		target->slot = NUPA_CM_NUMBER_SLOT(read.remote_id);
		return target->slot ? NUPA_CM_TO_SLOT : NUPA_CM_DROP;
	}
	if (!read.ip_version)
		return NUPA_CM_TO_NOBODY;
	target->space = (uint16_t)(read.service >> 16);
	target->port = (uint16_t)read.service;
	target->pkey = read.pkey;
	target->ipv6 = read.ip_version == 6;
	return NUPA_CM_TO_SERVICE;
}

int nupa_cm_listener(struct nupa_fabric *fabric, uint32_t wire_host,
		     const struct nupa_cm_target *target)
{
	const enum cm_addr_kind kind = target->ipv6 ? CM_ADDR_WIRE6 : CM_ADDR_WIRE4;

	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		int slot;

		if (host == wire_host || nupa_pkey_find(fabric, host, target->pkey) < 0)
			continue;
		slot = cm_port_find(fabric, host, (enum rdma_port_space)target->space, target->port,
				    kind);
		if (slot >= 0)
			return slot;
	}
	return -ENOENT;
}

bool nupa_cm_refuse(const uint8_t *mad, uint32_t bytes, uint8_t answer[NUPA_CM_MAD_BYTES])
{
	struct nupa_cm_mad read, reply = { 0 };

	if (!nupa_cm_mad_read(mad, bytes, &read))
		return false;
	reply.transaction = read.transaction;
	reply.local_id = read.remote_id;
	reply.remote_id = read.local_id;
	switch (read.attribute) {
	case NUPA_CM_REQ:
		reply.attribute = NUPA_CM_REJ;
		reply.about = NUPA_CM_ABOUT_REQ;
		reply.reason = CM_REJ_INVALID_SERVICE;
		break;
	case NUPA_CM_REP: /* IBTA 12.9.8.1 */
		reply.attribute = NUPA_CM_REJ;
		reply.about = NUPA_CM_ABOUT_REP;
		reply.reason = CM_REJ_INVALID_ID;
		break;
	case NUPA_CM_DREQ:
		reply.attribute = NUPA_CM_DREP;
		break;
	case NUPA_CM_SIDR_REQ:
		reply.attribute = NUPA_CM_SIDR_REP;
		reply.status = CM_SIDR_UNSUPPORTED;
		reply.service = read.service;
		break;
	default:
		return false;
	}
	nupa_cm_mad_write(&reply, answer);
	return true;
}

void nupa_cm_reject_orphan(uint32_t remote_id, uint8_t mad[NUPA_CM_MAD_BYTES])
{
	const struct nupa_cm_mad rej = { .attribute = NUPA_CM_REJ,
					 .remote_id = remote_id,
					 .about = NUPA_CM_ABOUT_REQ,
					 .reason = CM_REJ_CONSUMER };

	nupa_cm_mad_write(&rej, mad);
}
