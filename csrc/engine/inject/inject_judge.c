/* SPDX-License-Identifier: BSD-3-Clause
 * Judges packets that come by injection, as the transport of an adapter does (IBTA 9.6, 9.7.4,
 * 9.8): the checks of all packets, and datagrams.  The message is another process's: it is copied
 * first, and no field of the packet is trusted (I5). */
#include "engine/inject/inject_internal.h"
#include "engine/transport/responder.h"
#include "segment/control/pkey.h"

#include <endian.h>

/* --- datagrams ----------------------------------------------------------------------- */

/* IBTA 9.8.3 */
static void judge_datagram(struct nupa_judged *j)
{
	const struct nupa_roce_packet *packet = j->packet;
	bool imm = nupa_operation_of(packet) == OPERATION_SEND_ONLY_IMM;
	uint8_t grh[NUPA_GRH_BYTES];
	struct nupa_msg msg = {
		.op = NUPA_OP_SEND,
		.flags = (uint8_t)(NUPA_F_FIRST | NUPA_F_LAST | (imm ? NUPA_F_IMM : 0) |
				   (packet->flags & NUPA_ROCE_SOLICITED ? NUPA_F_SOLICITED : 0)),
		.dest_qpn = packet->dqpn,
		.src_qpn = packet->source_qpn,
		.psn = packet->psn,
		.length_bytes = packet->payload_bytes,
		.imm = htobe32(packet->imm),
		.deth = { .qkey = packet->qkey,
			  .pkey = (uint16_t)packet->pkey,
			  .hop_limit = packet->hop_limit,
			  .traffic_class = packet->traffic_class,
			  .is_global = 1 },
	};
	bool lacks = !nupa_has_receive(j->qp);

	nupa_judged_record(j, &msg);
	if (packet->qkey != j->qp->attr.qkey) {
		nupa_judged_count(j, NUPA_INJECT_QKEY, &j->engine->hw->qkey_violations);
		return;
	}
	if (packet->payload_bytes > NUPA_MTU_BYTES ||
	    (packet->payload_bytes + packet->pad_bytes) % 4) {
		nupa_judged_count(j, NUPA_INJECT_LENGTH, &j->engine->hw->rx_invalid);
		return;
	}
	nupa_grh_fill(grh, (uint32_t)packet->traffic_class << 20, packet->payload_bytes,
		      packet->hop_limit, packet->source, packet->destination);
	if (!nupa_receive_deliver(j->qp, &msg, j->payload, grh, NULL))
		nupa_judged_drop(j, lacks ? NUPA_INJECT_NO_RECEIVE : NUPA_INJECT_RECEIVE);
}

/* --- all packets --------------------------------------------------------------------- */

/* IBTA 9.6.1.1.2: the opcode's service has to be the QP's. */
static bool service_fits(const struct nupa_qp *qp, const struct nupa_roce_packet *packet)
{
	switch (packet->opcode & OPCODE_SERVICE) {
	case SERVICE_RC:
		return qp->type == IBV_QPT_RC && !qp->xrc;
	case SERVICE_XRC:
		return qp->xrc != NUPA_XRC_NONE;
	case SERVICE_UC:
		return qp->type == IBV_QPT_UC;
	case SERVICE_UD:
		return qp->type == IBV_QPT_UD && nupa_opcode(packet->opcode).known;
	default:
		return false;
	}
}

static bool is_answer(const struct nupa_roce_packet *packet)
{
	enum nupa_operation operation = nupa_operation_of(packet);

	return nupa_opcode(packet->opcode).known && operation >= OPERATION_READ_RESP_FIRST &&
	       operation <= OPERATION_ATOMIC_ACK;
}

static int host_of(const struct nupa_judged *j, const uint8_t address[16])
{
	union ibv_gid gid;

	memcpy(gid.raw, address, sizeof(gid.raw));
	return nupa_host_of_gid(j->engine->fabric, &gid);
}

/* IBTA 9.6.1: what no packet gets past; in the order of that section. */
static bool headers_pass(struct nupa_judged *j)
{
	const struct nupa_roce_packet *packet = j->packet;
	struct nupa_hw_counters *hw = j->engine->hw;
	const struct nupa_qp *qp = nupa_qp_find(j->engine, packet->dqpn);
	uint8_t lowest = is_answer(packet) ? IBV_QPS_RTS : IBV_QPS_RTR;

	if (qp && qp->type != IBV_QPT_UD)
		j->result->expected_psn = qp->expected_psn;
	if (!(packet->flags & NUPA_ROCE_ICRC_RIGHT))
		nupa_judged_count(j, NUPA_INJECT_ICRC, &hw->rx_icrc_errors);
	else if (packet->version != 0)
		nupa_judged_count(j, NUPA_INJECT_VERSION, &hw->rx_invalid);
	else if (j->wire_host < 0 && host_of(j, packet->destination) != (int)j->engine->host)
		nupa_judged_count(j, NUPA_INJECT_NO_HOST, &hw->rx_invalid);
	else if (!qp || qp->state < lowest || qp->state > IBV_QPS_SQE)
		nupa_judged_count(j, NUPA_INJECT_NO_QP, &hw->rx_invalid);
	else if (packet->opcode == OPCODE_CNP)
		nupa_judged_drop(j, NUPA_INJECT_UNSUPPORTED);
	else if (!service_fits(qp, packet))
		nupa_judged_count(j, NUPA_INJECT_OPCODE, &hw->rx_invalid);
	else if (!nupa_pkeys_match((uint16_t)packet->pkey, qp->pkey))
		nupa_judged_count(j, NUPA_INJECT_PKEY, &hw->pkey_violations);
	else if (qp->type != IBV_QPT_UD && (j->wire_host < 0 ? host_of(j, packet->source)
							     : j->wire_host) != (int)qp->dest_host)
		nupa_judged_count(j, NUPA_INJECT_SOURCE, &hw->rx_invalid);
	else
		return true;
	return false;
}

static void judge(struct nupa_judged *j)
{
	if (!headers_pass(j))
		return;
	j->qp = nupa_qp_find(j->engine, j->packet->dqpn);
	if (is_answer(j->packet))
		nupa_judge_answer(j);
	else if (j->qp->type == IBV_QPT_UD)
		judge_datagram(j);
	else
		nupa_judge_connected(j);
}

enum nupa_inject_verdict nupa_inject_by_wire(struct nupa_engine *engine, uint32_t host,
					     const struct nupa_roce_packet *packet,
					     const uint8_t *payload)
{
	struct nupa_inject_result result = { .expected_psn = UINT32_MAX };
	struct nupa_judged j = { .engine = engine,
				 .wire_host = (int)host,
				 .packet = packet,
				 .payload = payload,
				 .result = &result };

	judge(&j);
	return result.verdict;
}

/* --- the message that brings it ------------------------------------------------------ */

static void give_verdict(struct nupa_channel *channel, const struct nupa_msg *msg,
			 const struct nupa_inject_result *result)
{
	struct nupa_msg *out;

	if (channel->broken)
		return;
	out = nupa_tx_reserve(&channel->tx, 0, NULL);
	if (!out)
		return; /* an injector that leaves its ring full reads no verdicts */
	out->op = NUPA_OP_INJECTED;
	out->flags = 0;
	out->dest_qpn = out->src_qpn = 0;
	out->psn = msg->psn;
	out->length_bytes = 0;
	out->injected = (struct nupa_injected){
		.verdict = result->verdict,
		.reason = result->reason,
		.syndrome = result->syndrome,
		.expected_psn = result->expected_psn,
	};
	nupa_channel_commit(channel, out, 0); /* no packet: nothing of it is counted */
	nupa_channel_bell(channel);
}

void nupa_inject_drop(struct nupa_channel *channel, const struct nupa_msg *msg, uint32_t reason)
{
	const struct nupa_inject_result result = { .verdict = NUPA_INJECT_DROPPED,
						   .reason = reason,
						   .expected_psn = UINT32_MAX };

	give_verdict(channel, msg, &result);
}

static void tell_psn(const struct nupa_engine *engine, uint32_t qpn,
		     struct nupa_inject_result *result)
{
	const struct nupa_qp *qp = nupa_qp_find(engine, qpn);

	if (!qp || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE) {
		result->verdict = NUPA_INJECT_DROPPED;
		result->reason = NUPA_INJECT_NO_QP;
	} else if (qp->type != IBV_QPT_UD) {
		result->expected_psn = qp->expected_psn;
	}
}

/* Whether a decoder could have made it. */
static bool well_formed(const struct nupa_roce_packet *packet, uint32_t bytes)
{
	const uint32_t of_24_bits =
	    packet->dqpn | packet->psn | packet->source_qpn | packet->srqn | packet->msn;

	return bytes >= sizeof(*packet) && packet->payload_bytes == bytes - sizeof(*packet) &&
	       of_24_bits <= 0xffffff && packet->pkey <= 0xffff && packet->version <= 15 &&
	       packet->pad_bytes <= 3 && packet->flush <= 0x3f && packet->flags <= NUPA_ROCE_FLAGS;
}

bool nupa_inject_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			 const struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_inject_result result = { .expected_psn = UINT32_MAX };
	struct {
		struct nupa_roce_packet packet;
		uint8_t payload[NUPA_INJECT_FRAME_MAX_BYTES];
	} came;
	struct nupa_judged j = { .engine = engine,
				 .from = channel->peer,
				 .wire_host = -1,
				 .packet = &came.packet,
				 .payload = came.payload,
				 .result = &result };

	if (!payload) {
		tell_psn(engine, msg->dest_qpn, &result);
		give_verdict(channel, msg, &result);
		return true;
	}
	if (msg->length_bytes > sizeof(came))
		return false;
	memcpy(&came, payload, msg->length_bytes);
	if (!nupa_channel_intact(channel))
		return true; /* not its bytes: the death watch will tell */
	nupa_count(&engine->hw->rx_injected, 1);
	if (well_formed(&came.packet, msg->length_bytes))
		judge(&j);
	else
		nupa_judged_count(&j, NUPA_INJECT_MALFORMED, &engine->hw->rx_invalid);
	give_verdict(channel, msg, &result);
	return true;
}
