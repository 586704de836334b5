/* SPDX-License-Identifier: BSD-3-Clause
 * The packet of a message (IBTA 9.2, 9.3). */
#include "engine/inject/inject_internal.h"
#include "engine/wire/wire_internal.h"

#include <endian.h>

#define ACK_UNLIMITED 0x1fu /* IBTA 9.7.5.1.2: no end-to-end credits */
#define SYNDROME_RNR 0x20u
#define SYNDROME_NAK 0x60u

static uint8_t service_of(const struct nupa_qp *qp)
{
	if (qp->xrc)
		return SERVICE_XRC;
	return qp->type == IBV_QPT_UC   ? SERVICE_UC
	       : qp->type == IBV_QPT_UD ? SERVICE_UD
					: SERVICE_RC;
}

static void begin(const struct nupa_wire *wire, const struct nupa_qp *qp,
		  const struct nupa_msg *msg, uint32_t psn, enum nupa_operation operation,
		  struct nupa_roce_packet *packet)
{
	(void)wire;
	memset(packet, 0, sizeof(*packet));
	packet->opcode = (uint8_t)(service_of(qp) | operation);
	packet->flags = NUPA_ROCE_MIGREQ; /* migrated */
	packet->pkey = qp->pkey ? qp->pkey : NUPA_PKEY_DEFAULT;
	packet->dqpn = msg->dest_qpn;
	packet->psn = psn & 0xffffff;
	packet->msn = qp->msn;
	packet->syndrome = ACK_UNLIMITED;
}

static enum nupa_operation send_operation(uint8_t flags)
{
	bool imm = flags & NUPA_F_IMM;

	if (!(flags & NUPA_F_LAST))
		return flags & NUPA_F_FIRST ? OPERATION_SEND_FIRST : OPERATION_SEND_MIDDLE;
	if (flags & NUPA_F_INV)
		return flags & NUPA_F_FIRST ? OPERATION_SEND_ONLY_INV : OPERATION_SEND_LAST_INV;
	if (flags & NUPA_F_FIRST)
		return imm ? OPERATION_SEND_ONLY_IMM : OPERATION_SEND_ONLY;
	return imm ? OPERATION_SEND_LAST_IMM : OPERATION_SEND_LAST;
}

static enum nupa_operation write_operation(uint8_t flags)
{
	bool imm = flags & NUPA_F_IMM;

	if (!(flags & NUPA_F_LAST))
		return flags & NUPA_F_FIRST ? OPERATION_WRITE_FIRST : OPERATION_WRITE_MIDDLE;
	if (flags & NUPA_F_FIRST)
		return imm ? OPERATION_WRITE_ONLY_IMM : OPERATION_WRITE_ONLY;
	return imm ? OPERATION_WRITE_LAST_IMM : OPERATION_WRITE_LAST;
}

static enum nupa_operation response_operation(const struct nupa_msg *msg)
{
	bool first = !msg->offset_bytes;
	bool last = msg->offset_bytes + msg->length_bytes >= msg->total_bytes;

	if (first)
		return last ? OPERATION_READ_RESP_ONLY : OPERATION_READ_RESP_FIRST;
	return last ? OPERATION_READ_RESP_LAST : OPERATION_READ_RESP_MIDDLE;
}

static enum nupa_operation atomic_operation(const struct nupa_msg *msg)
{
	switch (msg->atomic.kind) {
	case NUPA_ATOMIC_CAS:
		return OPERATION_CMP_SWP;
	case NUPA_ATOMIC_WRITE:
		return OPERATION_ATOMIC_WRITE;
	case NUPA_ATOMIC_FLUSH:
		return OPERATION_FLUSH;
	default:
		return OPERATION_FETCH_ADD;
	}
}

static void fill_atomic(const struct nupa_msg *msg, struct nupa_roce_packet *packet,
			const uint8_t **payload)
{
	const struct nupa_atomic_eth *atomic = &msg->atomic;

	packet->va = atomic->raddr;
	packet->rkey = atomic->rkey;
	switch (atomic->kind) {
	case NUPA_ATOMIC_CAS:
		packet->swap = atomic->swap;
		packet->compare = atomic->compare_add;
		break;
	case NUPA_ATOMIC_WRITE:
		packet->dma_bytes = packet->payload_bytes = sizeof(uint64_t);
		*payload = (const uint8_t *)&atomic->compare_add;
		break;
	case NUPA_ATOMIC_FLUSH:
		packet->dma_bytes = (uint32_t)atomic->compare_add;
		packet->flush = (uint8_t)((atomic->swap >> 8 & 3) << 4 | (atomic->swap & 15));
		break;
	default:
		packet->swap = atomic->compare_add;
		break;
	}
}

static void fill_send(const struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *beside,
		      struct nupa_roce_packet *packet, const uint8_t **payload)
{
	packet->payload_bytes = msg->length_bytes;
	if (msg->flags & NUPA_F_INV)
		packet->rkey = msg->imm;
	else
		packet->imm = be32toh(msg->imm);
	if (qp->type == IBV_QPT_UD) {
		packet->pkey = msg->deth.pkey ? msg->deth.pkey : NUPA_PKEY_DEFAULT;
		packet->qkey = msg->deth.qkey;
		packet->source_qpn = msg->src_qpn;
		*payload = beside ? beside : msg->ud_data;
	} else {
		*payload = beside ? beside : msg->data;
	}
}

static void fill_write(const struct nupa_msg *msg, const uint8_t *beside,
		       struct nupa_roce_packet *packet, const uint8_t **payload)
{
	packet->payload_bytes = msg->length_bytes;
	packet->va = msg->reth.raddr;
	packet->rkey = msg->reth.rkey;
	packet->dma_bytes = msg->reth.total_bytes;
	packet->imm = be32toh(msg->imm);
	*payload = beside ? beside : msg->write_data;
}

static bool fill_request(const struct nupa_wire *wire, const struct nupa_qp *qp,
			 const struct nupa_msg *msg, const uint8_t *beside,
			 struct nupa_roce_packet *packet, const uint8_t **payload)
{
	switch (msg->op) {
	case NUPA_OP_SEND:
		begin(wire, qp, msg, msg->psn, send_operation(msg->flags), packet);
		fill_send(qp, msg, beside, packet, payload);
		break;
	case NUPA_OP_WRITE:
		begin(wire, qp, msg, msg->psn, write_operation(msg->flags), packet);
		fill_write(msg, beside, packet, payload);
		break;
	case NUPA_OP_READ:
		begin(wire, qp, msg, msg->psn, OPERATION_READ, packet);
		packet->va = msg->reth.raddr;
		packet->rkey = msg->reth.rkey;
		packet->dma_bytes = msg->reth.total_bytes;
		break;
	case NUPA_OP_ATOMIC:
		begin(wire, qp, msg, msg->psn, atomic_operation(msg), packet);
		fill_atomic(msg, packet, payload);
		break;
	default:
		return false;
	}
	if (qp->xrc)
		packet->srqn = msg->ack_psn;
	if (qp->type == IBV_QPT_RC &&
	    (msg->flags & NUPA_F_LAST || nupa_flight_asks(qp, packet->psn)))
		packet->flags |= NUPA_ROCE_ACK_REQUEST;
	if (msg->flags & NUPA_F_SOLICITED)
		packet->flags |= NUPA_ROCE_SOLICITED;
	return true;
}

bool nupa_wire_packet(const struct nupa_wire *wire, const struct nupa_msg *msg,
		      const uint8_t *beside, struct nupa_roce_packet *packet,
		      const uint8_t **payload, bool *repeated)
{
	const struct nupa_qp *qp = nupa_qp_find(wire->engine, msg->src_qpn);

	*payload = NULL;
	*repeated = false;
	if (!qp)
		return false;
	switch (msg->op) {
	case NUPA_OP_READ_RESP:
		begin(wire, qp, msg, msg->psn, response_operation(msg), packet);
		packet->payload_bytes = msg->length_bytes;
		*payload = beside;
		break;
	case NUPA_OP_ATOMIC_RESP:
		/* A19: what gives no value back is answered as a READ of no bytes. */
		begin(wire, qp, msg, msg->psn,
		      msg->syndrome == NUPA_ATOMIC_BARE ? OPERATION_READ_RESP_ONLY
							: OPERATION_ATOMIC_ACK,
		      packet);
		packet->original = msg->original;
		break;
	case NUPA_OP_ACK:
		begin(wire, qp, msg, msg->ack_psn, OPERATION_ACK, packet);
		break;
	case NUPA_OP_NAK:
		begin(wire, qp, msg, msg->psn, OPERATION_ACK, packet);
		packet->syndrome =
		    (uint8_t)(msg->syndrome == NUPA_NAK_RNR ? SYNDROME_RNR | (msg->timer & 31u)
							    : SYNDROME_NAK | msg->syndrome);
		break;
	default:
		if (!fill_request(wire, qp, msg, beside, packet, payload))
			return false;
		*repeated = qp->type == IBV_QPT_RC && nupa_flight_is_repeated(qp, packet->psn);
		break;
	}
	packet->pad_bytes = -packet->payload_bytes & 3;
	return true;
}

bool nupa_wire_acknowledgement(const struct nupa_wire *wire, const struct nupa_msg *msg,
			       struct nupa_roce_packet *packet)
{
	const struct nupa_qp *qp = nupa_qp_find(wire->engine, msg->src_qpn);
	bool is_request = msg->op >= NUPA_OP_SEND && msg->op <= NUPA_OP_ATOMIC;

	if (!qp || !is_request || !(msg->flags & NUPA_F_ACK))
		return false;
	begin(wire, qp, msg, msg->ack_psn, OPERATION_ACK, packet);
	return true;
}
