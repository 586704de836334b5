/* SPDX-License-Identifier: BSD-3-Clause
 * Packets of wires for captures (engine/trace), as they leave and as they come. */
#include "engine/inject/inject_internal.h"
#include "engine/wire/wire_internal.h"

#define SYNDROME_KIND(syndrome) ((syndrome) >> 5 & 3u) /* IBTA 9.7.5.2.1 */
#define SYNDROME_VALUE(syndrome) ((syndrome)&31u)

enum { KIND_ACK, KIND_RNR, KIND_NAK = 3 };

static const struct nupa_trace_posted none;

static struct nupa_trace_packet passage(const struct nupa_wire *wire,
					const struct nupa_roce_path *path, bool came)
{
	return (
	    struct nupa_trace_packet){ .path = *path, .host = (uint16_t)wire->host, .came = came };
}

void nupa_wire_trace_sent(struct nupa_wire *wire, uint32_t from, uint32_t to, uint64_t time_ns)
{
	struct nupa_trace_packet packet = passage(wire, &wire->out, false);

	for (uint32_t group = from; group < to; group++) {
		const uint32_t first = wire->groups[group].first;

		for (uint32_t i = 0; i < wire->groups[group].n; i++) {
			const struct nupa_wire_out *out = &wire->outs[first + i];
			const struct iovec piece = { wire->batch + out->at, out->bytes };

			packet.path.identification = (uint16_t)i;
			nupa_trace_packet(wire->engine, &packet, out->of, time_ns, &piece, 1);
		}
	}
}

void nupa_wire_trace_alone(struct nupa_wire *wire, uint64_t time_ns, const struct iovec *pieces)
{
	const struct nupa_trace_packet packet = passage(wire, &wire->out, false);

	nupa_trace_packet(wire->engine, &packet, none, time_ns, pieces, NUPA_WIRE_PIECES);
}

/* --- what comes ---------------------------------------------------------------------- */

/* Whether an answer is the last one to this request. */
static bool ends(const struct nupa_roce_packet *packet, const struct nupa_wqe *wqe)
{
	const bool is_last = packet->psn == wqe->last_psn;

	switch (nupa_operation_of(packet)) {
	case OPERATION_ACK:
		if (SYNDROME_KIND(packet->syndrome) == KIND_ACK)
			return is_last;
		return SYNDROME_KIND(packet->syndrome) == KIND_NAK &&
		       SYNDROME_VALUE(packet->syndrome) != NUPA_NAK_PSN;
	case OPERATION_ATOMIC_ACK:
		return true;
	default:
		return is_last;
	}
}

/* The request that the packet answers. */
static struct nupa_trace_posted answered(const struct nupa_wire *wire,
					 const struct nupa_roce_packet *packet, uint8_t *is_end)
{
	struct nupa_qp *qp = nupa_qp_find(wire->engine, packet->dqpn);
	const enum nupa_operation operation = nupa_operation_of(packet);

	if (!qp || qp->type != IBV_QPT_RC || operation < OPERATION_READ_RESP_FIRST ||
	    operation > OPERATION_ATOMIC_ACK)
		return none;
	for (uint64_t i = qp->sq.acked; i != qp->sq.posted && i <= qp->sq.issued; i++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, i);

		if (wqe->state == NUPA_WQE_DONE || nupa_psn_diff(packet->psn, wqe->first_psn) < 0 ||
		    (i != qp->sq.issued && nupa_psn_diff(packet->psn, wqe->last_psn) > 0))
			continue;
		*is_end = ends(packet, wqe);
		return (struct nupa_trace_posted){ .transfer = NUPA_TRANSFER(packet->dqpn, i) };
	}
	return none;
}

void nupa_wire_trace_came(struct nupa_wire *wire, const struct nupa_roce_path *path,
			  bool identified, const struct nupa_roce_packet *packet,
			  const uint8_t *bytes, uint32_t n)
{
	struct nupa_trace_packet body = passage(wire, path, true);
	const struct iovec piece = { (void *)(uintptr_t)bytes, n };
	struct nupa_trace_posted of = none;

	if (!identified) /* where the ICRC is wrong, nothing shows it */
		(void)nupa_icrc_find(&wire->icrc_in, path->src_port, bytes, n,
				     &body.path.identification);
	if (packet)
		of = answered(wire, packet, &body.ends);
	else
		of.flags = NUPA_TRACE_DROPPED;
	nupa_trace_packet(wire->engine, &body, of, wire->engine->now_ns(), &piece, 1);
}
