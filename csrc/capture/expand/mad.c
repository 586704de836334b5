/* SPDX-License-Identifier: BSD-3-Clause
 * Connection management as datagrams on QP 1 (IBTA 12.6, 12.11, annex A11), as far as the engine's
 * messages carry the fields.  Other fields, such as timeouts and LIDs, are Linux's defaults or 0.
 */
#include "capture/expand/bytes.h"
#include "engine/cm/internal.h"
#include "capture/expand/expand.h"
#include "segment/control/pkey.h"

#define MAD_BYTES 256u
#define QP1 1u
#define QP1_QKEY 0x80010000u
#define COMM_MGT 7
#define PRIVATE_END MAD_BYTES
#define HOP_LIMIT 64

struct mad {
	uint8_t *at; /* of MAD_BYTES, zeros; the message begins behind 24 of them */
	const struct nupa_msg *msg;
	struct cm_wire wire;
	const struct nupa_host *from, *to;
};

static uint64_t guid_of(const struct nupa_host *host)
{
	const uint8_t *mac = host->mac;
	uint8_t eui[8] = { mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5] };
	uint64_t guid;

	memcpy(&guid, eui, sizeof(guid));
	return __builtin_bswap64(guid);
}

static void put_gid(uint8_t *at, const struct nupa_host *host)
{
	nupa_put(at + 10, 0xffff, 2);
	nupa_put(at + 12, host->ipv4, 4);
}

static void put_private(const struct mad *mad, uint32_t at, uint32_t bytes)
{
	const uint32_t room = PRIVATE_END - at;
	uint32_t n = mad->wire.param.private_bytes;

	if (n > bytes)
		n = bytes;
	memcpy(mad->at + at, mad->wire.param.private_data, n < room ? n : room);
}

/* A11.4: IPv4 addresses in the last four bytes. */
static void put_addresses(const struct mad *mad, uint32_t at)
{
	const struct cm_wire *wire = &mad->wire;
	const bool ipv6 = wire->family == AF_INET6;
	const uint32_t skip = ipv6 ? 0 : 12, bytes = ipv6 ? 16 : 4;

	nupa_put(mad->at + at + 1, ipv6 ? 0x60 : 0x40, 1);
	nupa_put(mad->at + at + 2, wire->src_port, 2);
	memcpy(mad->at + at + 4 + skip, wire->src, bytes);
	memcpy(mad->at + at + 20 + skip, wire->dst, bytes);
}

static uint64_t service_of(const struct cm_wire *wire)
{
	return (uint64_t)wire->ps << 16 | wire->dst_port;
}

static void put_req(const struct mad *mad)
{
	const struct nupa_cm_param *param = &mad->wire.param;
	uint8_t *at = mad->at + 24;

	nupa_put(at, mad->msg->src_qpn, 4);
	nupa_put(at + 8, service_of(&mad->wire), 8);
	nupa_put(at + 16, guid_of(mad->from), 8);
	nupa_put(at + 28, mad->wire.qkey, 4);
	nupa_put(at + 32, (uint64_t)param->qpn << 8 | param->responder_resources, 4);
	nupa_put(at + 36, param->initiator_depth, 4);
	nupa_put(at + 40,
		 CM_RESPONSE_TIMEOUT << 3 | (mad->wire.qp_type == IBV_QPT_UC ? 1u : 0) << 1 |
		     (param->flow_control & 1u),
		 4);
	nupa_put(at + 44,
		 (mad->wire.psn & NUPA_PSN_MASK) << 8 | CM_RESPONSE_TIMEOUT << 3 |
		     (param->retry_count & 7u),
		 4);
	nupa_put(at + 48, mad->wire.pkey, 2);
	nupa_put(at + 50, IBV_MTU_4096 << 4 | (param->rnr_retry_count & 7u), 1);
	nupa_put(at + 51, CM_RETRIES << 4 | (param->srq & 1u) << 3, 1);
	nupa_put(at + 52, 0xffffffff, 4); /* LIDs: permissive, as with RoCE */
	put_gid(at + 56, mad->from);
	put_gid(at + 72, mad->to);
	nupa_put(at + 92, mad->wire.tos, 1);
	nupa_put(at + 93, HOP_LIMIT, 1);
	nupa_put(at + 95, CM_QP_TIMEOUT << 3, 1);
	put_addresses(mad, 24 + 140);
	put_private(mad, 24 + 176, CM_REQ_PRIVATE_BYTES);
}

static void put_rep(const struct mad *mad)
{
	const struct nupa_cm_param *param = &mad->wire.param;
	uint8_t *at = mad->at + 24;

	nupa_put(at + 8, mad->wire.qkey, 4);
	nupa_put(at + 12, (uint64_t)param->qpn << 8, 4);
	nupa_put(at + 20, (mad->wire.psn & NUPA_PSN_MASK) << 8, 4);
	nupa_put(at + 24, param->responder_resources, 1);
	nupa_put(at + 25, param->initiator_depth, 1);
	nupa_put(at + 26, param->flow_control & 1u, 1);
	nupa_put(at + 27, (param->rnr_retry_count & 7u) << 5 | (param->srq & 1u) << 4, 1);
	nupa_put(at + 28, guid_of(mad->from), 8);
	put_private(mad, 24 + 36, CM_REP_PRIVATE_BYTES);
}

static void put_sidr_rep(const struct mad *mad)
{
	uint8_t *at = mad->at + 24;

	nupa_put(at, mad->msg->dest_qpn, 4);
	nupa_put(at + 4, mad->msg->timer, 1);
	nupa_put(at + 8, (uint64_t)mad->wire.param.qpn << 8, 4);
	nupa_put(at + 12, service_of(&mad->wire), 8);
	nupa_put(at + 20, mad->wire.qkey, 4);
	put_private(mad, 24 + 96, CM_SIDR_REP_PRIVATE_BYTES);
}

/* IBTA 12.6.3: the name of each message, and the end whose number its transaction has. */
static const struct {
	uint8_t attribute;
	bool answers;
} messages[CM_MESSAGE_MAX] = {
	[CM_REQ] = { 0x10, false },      [CM_REP] = { 0x13, true },      [CM_RTU] = { 0x14, false },
	[CM_REJ] = { 0x12, true },       [CM_DREQ] = { 0x15, false },    [CM_DREP] = { 0x16, true },
	[CM_SIDR_REQ] = { 0x17, false }, [CM_SIDR_REP] = { 0x18, true }, [CM_MRA] = { 0x11, true },
};

static void put_message(const struct mad *mad)
{
	const struct nupa_msg *msg = mad->msg;
	uint8_t *at = mad->at;

	nupa_put(at, 1u << 24 | COMM_MGT << 16 | 2u << 8 | 3u, 4); /* class version 2; SEND */
	nupa_put(at + 8, messages[msg->syndrome].answers ? msg->dest_qpn : msg->src_qpn, 8);
	nupa_put(at + 16, messages[msg->syndrome].attribute, 2);
	nupa_put(at + 24, msg->src_qpn, 4);
	nupa_put(at + 28, msg->dest_qpn, 4);
	switch (msg->syndrome) {
	case CM_REQ:
		nupa_put(at + 28, 0, 4);
		put_req(mad);
		break;
	case CM_REP:
		put_rep(mad);
		break;
	case CM_REJ:
		nupa_put(at + 34, msg->timer, 2);
		put_private(mad, 24 + 84, CM_REJ_PRIVATE_BYTES);
		break;
	case CM_MRA:
		nupa_put(at + 32, (msg->timer & 3u) << 6, 1);
		nupa_put(at + 33, CM_SERVICE_TIMEOUT << 3, 1);
		break;
	case CM_SIDR_REQ:
		nupa_put(at + 28, (uint32_t)mad->wire.pkey << 16, 4);
		nupa_put(at + 32, service_of(&mad->wire), 8);
		put_addresses(mad, 24 + 16);
		put_private(mad, 24 + 52, CM_SIDR_REQ_PRIVATE_BYTES);
		break;
	case CM_SIDR_REP:
		put_sidr_rep(mad);
		break;
	default: /* RTU, DREQ, DREP: the ids are all */
		break;
	}
}

/* Of both hosts' QP 1: the path's. */
static uint16_t pkey_between(const struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	const int index = nupa_pkey_shared(fabric, from, to);

	return index < 0 ? 0 : nupa_pkey_at(fabric, from, (uint32_t)index);
}

bool nupa_expand_cm(struct nupa_watch *watch, const struct nupa_trace_record *record, uint32_t from,
		    uint32_t to)
{
	const struct nupa_trace_message *body = (const void *)(record + 1);
	struct mad mad = {
		.at = watch->entry,
		.msg = &body->msg,
		.from = &watch->fabric->hosts[from],
		.to = &watch->fabric->hosts[to],
	};
	const size_t bytes =
	    record->data_bytes < sizeof(mad.wire) ? record->data_bytes : sizeof(mad.wire);
	struct nupa_run *run;

	if (!body->msg.syndrome || body->msg.syndrome >= CM_MESSAGE_MAX)
		return false;
	/* Data cut off here would be missing from the packet, too. */
	memcpy(&mad.wire, body + 1, bytes);
	memset(mad.at, 0, MAD_BYTES);
	put_message(&mad);
	run = nupa_roce_add(watch, NUPA_ROCE_SEND, 0, nupa_flags_of(record));
	run->roce.transport = NUPA_TRANSPORT_UD;
	run->roce.pkey = pkey_between(watch->fabric, from, to);
	run->roce.src_qpn = run->roce.dest_qpn = QP1;
	run->roce.qkey = QP1_QKEY;
	run->roce.psn = watch->mad_psns[from]++ & NUPA_PSN_MASK;
	run->roce.data = mad.at;
	run->roce.bytes = run->roce.data_bytes = run->roce.piece_bytes = MAD_BYTES;
	nupa_roce_join(watch, run, from, to, record->flags & NUPA_TRACE_BY_RECEIVER);
	return true;
}
