/* SPDX-License-Identifier: BSD-3-Clause
 * The express lane executes the commonest requests: small ones of an RC QP with nothing in their
 * way.  Each function here has the effects of the ordinary path (requester.c, responder.c), or
 * returns false and has changed nothing.
 *
 *   I4  qp->steady_tx: in RTS, the channel works in both directions, nothing waits, no retry has
 *       been used up, and no capture runs.  qp->steady_rx: the last request was executed.
 *       nupa_qp_unsettle() clears both when that ends; the next success sets them again. */
#ifndef NUPA_EXPRESS_H
#define NUPA_EXPRESS_H

#include "engine/core/lane.h"
#include "engine/transport/sq.h"

static inline bool nupa_express_path(const struct nupa_qp *qp)
{
	return likely(qp->steady_tx) && likely(nupa_channel_path_up(qp->engine, qp->channel));
}

/* In a stream of SENDs, the line that is taken from the peer's cache while those before it are
 * filled: a store to a line that is elsewhere holds up all stores behind it. */
#define NUPA_LINES_AHEAD 3u

/* A SEND has left by the express lane. */
static inline void nupa_express_sent(struct nupa_qp *qp)
{
	const struct nupa_tx *tx = &qp->channel->tx;

	qp->next_psn = nupa_psn_add(qp->next_psn, 1);
	qp->sq.posted++;
	qp->sq.issued++;
	qp->hot = nupa_tx_next(tx);
	qp->converses = qp->heard;
	if (!qp->converses)
		nupa_prefetch_write(nupa_tx_ahead(tx, NUPA_LINES_AHEAD));
	qp->heard = false;
}

/* A SEND that fits into a line.  Its WQE keeps a copy, for the case that it has to go again. */
static inline bool nupa_express_send(struct nupa_qp *qp, const struct nupa_express *request)
{
	uint32_t bytes = request->bytes, flags = request->flags;
	struct nupa_channel *channel = qp->channel;
	struct nupa_sq *sq = &qp->sq;
	struct nupa_wqe *wqe = nupa_sq_wqe(sq, sq->posted);
	struct nupa_msg *msg;

	if (sq->issued != sq->posted || sq->posted - sq->acked >= sq->capacity ||
	    qp->reads_outstanding || !nupa_express_path(qp))
		return false;
	msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	if (unlikely(!msg))
		return false;
	wqe->wr_id = request->wr_id;
	wqe->opcode = IBV_WR_SEND;
	wqe->flags = (uint8_t)(flags | IBV_SEND_INLINE | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u));
	wqe->state = NUPA_WQE_SENT;
	wqe->n_sge = 0;
	wqe->length_bytes = wqe->moved_bytes = bytes;
	wqe->first_psn = wqe->last_psn = qp->next_psn;
	wqe->data_placed = 0;
	if (unlikely(!nupa_guard_copy_small(nupa_wqe_inline(wqe), request->local, bytes) ||
		     !nupa_guard_copy_small(msg->data, request->local, bytes)))
		return false;
	nupa_request_fill(qp, msg, NUPA_OP_SEND,
			  NUPA_F_FIRST | NUPA_F_LAST |
			      (flags & IBV_SEND_SOLICITED ? NUPA_F_SOLICITED : 0),
			  bytes);
	msg->imm = 0;
	if (unlikely(qp->engine->trace)) {
		const struct nupa_express shown = *request; /* the original stays in registers */

		nupa_trace_express(qp, &shown, msg);
	}
	nupa_channel_put(channel, msg, 0);
	nupa_express_sent(qp);
	return true;
}

/* express_bulk.c: a SEND of more bytes. */
bool nupa_express_bulk(struct nupa_qp *qp, const struct nupa_express *request);

/* The same, without looking: in a lane. */
static inline bool nupa_express_path_known(const struct nupa_qp *qp)
{
	return likely(qp->steady_tx) && likely(qp->channel->path_up) &&
	       likely(qp->channel->path_epoch == nupa_load_acquire(qp->engine->fabric->port_epoch));
}

static inline void nupa_lane_count(struct nupa_lane *lane, const struct nupa_qp *qp,
				   const struct nupa_express *request)
{
	struct nupa_lane_flow *flow = &lane->flows[qp->channel->peer_host];
	const bool is_read = request->opcode == IBV_WR_RDMA_READ;
	uint64_t *bytes = is_read ? &flow->rcv_bytes : &flow->xmit_bytes;
	uint64_t *packets = is_read ? &flow->rcv_packets : &flow->xmit_packets;

	nupa_store_relaxed(bytes, *bytes + request->bytes);
	nupa_store_relaxed(packets, *packets + 1 + (request->bytes - 1) / NUPA_MTU_BYTES);
}

/* WRITE, READ and atomics on memory that is mapped here, when nothing stands before them.  lane:
 * of this thread, which is in it; NULL: it has the lock. */
static inline bool nupa_express_one_sided(struct nupa_qp *qp, const struct nupa_express *request,
					  struct nupa_lane *lane)
{
	struct nupa_engine *engine = qp->engine;
	struct nupa_channel *channel = qp->channel;
	uint64_t *hazard = lane ? lane->hazard : &engine->slot->hazard;
	uint32_t access = nupa_access_needed[request->opcode & 31];
	const struct nupa_window *window;
	uint8_t *target;
	bool good;

	/* Only the long way records direct accesses. */
	if (qp->sq.acked != qp->sq.posted || unlikely(engine->trace) ||
	    !(lane ? nupa_express_path_known(qp) : nupa_express_path(qp)) ||
	    !nupa_mover_knows_peer(qp) || !(qp->peer_access & access))
		return false;
	window = nupa_window_find(channel, request->rkey);
	if (unlikely(!window || !window->base))
		return false;
	good = nupa_window_enter(hazard, channel, window, request->rkey) &&
	       nupa_window_permits(window, qp->peer_pd, qp->dest_qpn, request->raddr,
				   request->bytes, access);
	target = window->base + (request->raddr - window->iova);
	if (likely(good))
		good = nupa_mover_copy(request->opcode, target, request->local, request->bytes,
				       request->compare_add, request->swap);
	nupa_window_leave(hazard);
	if (unlikely(!good))
		return false;
	qp->hot = target;
	if (lane)
		nupa_lane_count(lane, qp, request);
	else if (request->opcode == IBV_WR_RDMA_READ)
		nupa_flow_rcv(channel, request->bytes);
	else
		nupa_flow_xmit(channel, request->bytes);
	if ((request->flags & IBV_SEND_SIGNALED) | qp->sq_sig_all)
		nupa_sq_complete(qp, request->wr_id, request->opcode, request->bytes);
	return true;
}

#define NUPA_EXPRESS_OPCODES                                                                       \
	(1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |      \
	 1u << IBV_WR_ATOMIC_FETCH_AND_ADD)

/* Done on the spot; false: it takes the long way. */
static inline bool nupa_express(struct nupa_qp *qp, struct nupa_express *request,
				struct nupa_lane *lane)
{
	uint32_t opcode = request->opcode;
	bool is_send = opcode == IBV_WR_SEND;
	bool is_source = is_send || opcode == IBV_WR_RDMA_WRITE;

	if (!is_send && (opcode > 31 || !(NUPA_EXPRESS_OPCODES >> opcode & 1) || !request->bytes))
		return false;
	if (request->sge && request->bytes) {
		const int access = is_source ? 0 : IBV_ACCESS_LOCAL_WRITE;

		request->local =
		    lane ? nupa_mr_local_plain(qp->engine, qp->ibv.pd, request->sge, access)
			 : nupa_mr_local(qp->engine, qp->ibv.pd, request->sge, access);
		if (unlikely(!request->local))
			return false;
	}
	if (!is_send)
		return nupa_express_one_sided(qp, request, lane);
	if (lane)
		return false;
	if (request->bytes > NUPA_SEND_INLINE_BYTES) {
		const struct nupa_express bulk = *request;

		return nupa_express_bulk(qp, &bulk);
	}
	return nupa_express_send(qp, request);
}

#endif
