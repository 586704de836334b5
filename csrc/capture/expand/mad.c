/* SPDX-License-Identifier: BSD-3-Clause
 * Connection management as datagrams on QP 1 (IBTA 12.6, 12.11, annex A11), as far as the engine's
 * messages carry the fields.  Other fields, such as timeouts and LIDs, are Linux's defaults or 0.
 */
#include "engine/cm/wire/message.h"
#include "capture/expand/expand.h"
#include "segment/control/pkey.h"

/* The number whose end begins a dialogue: all its messages are one transaction. */
static uint64_t transaction_of(const struct nupa_msg *msg)
{
	switch (msg->syndrome) {
	case CM_REP:
	case CM_REJ:
	case CM_DREP:
	case CM_SIDR_REP:
	case CM_MRA:
		return msg->dest_qpn;
	default:
		return msg->src_qpn;
	}
}

static void gid_of(const struct nupa_fabric *fabric, uint32_t host, uint8_t bytes[16])
{
	union ibv_gid gid;

	nupa_host_gid(fabric, host, NUPA_GID_IPV4, &gid);
	memcpy(bytes, gid.raw, sizeof(gid.raw));
}

/* Of both hosts' QP 1: the path's. */
static uint16_t pkey_between(const struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	const int index = nupa_pkey_shared(fabric, from, to);

	return index < 0 ? 0 : nupa_pkey_at(fabric, from, (uint32_t)index);
}

/* Data cut off here would be missing from the packet, too. */
static void make_datagram(struct nupa_watch *watch, const struct nupa_trace_record *record,
			  const struct nupa_trace_message *body, uint32_t from, uint32_t to)
{
	const struct nupa_msg *msg = &body->msg;
	struct cm_ends ends = {
		.transaction = transaction_of(msg),
		.ca_guid = be64toh(nupa_host_guid_be(watch->fabric, from)),
		.local_id = msg->src_qpn,
		.remote_id = msg->dest_qpn,
		.path_mtu = IBV_MTU_4096,
		.ack_timeout = CM_QP_TIMEOUT,
	};
	struct cm_wire wire = { 0 };
	struct nupa_cm_mad mad;

	memcpy(&wire, body + 1,
	       record->data_bytes < sizeof(wire) ? record->data_bytes : sizeof(wire));
	gid_of(watch->fabric, from, ends.local_gid);
	gid_of(watch->fabric, to, ends.remote_gid);
	cm_mad_of((enum cm_message)msg->syndrome, msg->timer, &wire, &ends, &mad);
	nupa_cm_mad_write(&mad, watch->entry);
}

/* To or from a kernel: it is one. */
static void take_datagram(struct nupa_watch *watch, const struct nupa_trace_record *record,
			  const struct nupa_trace_message *body)
{
	const uint32_t bytes =
	    record->data_bytes < NUPA_CM_MAD_BYTES ? record->data_bytes : NUPA_CM_MAD_BYTES;

	memset(watch->entry, 0, NUPA_CM_MAD_BYTES);
	memcpy(watch->entry, body + 1, bytes);
}

bool nupa_expand_cm(struct nupa_watch *watch, const struct nupa_trace_record *record, uint32_t from,
		    uint32_t to)
{
	const struct nupa_trace_message *body = (const void *)(record + 1);
	const struct nupa_msg *msg = &body->msg;
	struct nupa_run *run;

	if (!msg->syndrome || msg->syndrome >= CM_MESSAGE_MAX)
		return false;
	if (msg->syndrome == CM_MAD)
		take_datagram(watch, record, body);
	else
		make_datagram(watch, record, body, from, to);
	run = nupa_roce_add(watch, NUPA_ROCE_SEND, 0, nupa_flags_of(record));
	run->roce.transport = NUPA_TRANSPORT_UD;
	run->roce.pkey = pkey_between(watch->fabric, from, to);
	run->roce.src_qpn = run->roce.dest_qpn = NUPA_CM_GSI_QPN;
	run->roce.qkey = NUPA_CM_GSI_QKEY;
	run->roce.psn = watch->mad_psns[from]++ & NUPA_PSN_MASK;
	run->roce.data = watch->entry;
	run->roce.bytes = run->roce.data_bytes = run->roce.piece_bytes = NUPA_CM_MAD_BYTES;
	nupa_roce_join(watch, run, from, to, record->flags & NUPA_TRACE_BY_RECEIVER);
	return true;
}
