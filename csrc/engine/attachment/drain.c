/* SPDX-License-Identifier: BSD-3-Clause
 * What has arrived in a ring is taken, judged by its operation, and given back. */
#include "base/reserve.h"
#include "engine/attachment/attachment.h"
#include "engine/cm/hooks.h"
#include "engine/fault/fault_internal.h"
#include "engine/inject/inject_engine.h"
#include "engine/net/net.h"
#include "engine/transport/responder.h"
#include "segment/slot/machine.h"

/* So many SENDs in a row are a stream: they are acknowledged by the turn that took them, as no
 * request that carries an ACK follows soon, and the sender may wait for it. */
#define SENDS_OF_A_STREAM 8u
/* More stay for the next turn: completions and receives of these are in the nearest cache. */
#define SENDS_OF_A_TURN 32u

static void handle_ack(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg, uint32_t psn)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	/* I5: only the connected QP, by its own channel, and only while there is something to
	 * answer. */
	if (!qp || qp->type != IBV_QPT_RC || qp->dest_qpn != msg->src_qpn ||
	    qp->channel != channel || !nupa_requester_awaits(qp, psn))
		return;
	if (msg->op == NUPA_OP_NAK)
		nupa_requester_nak(qp, msg);
	else
		nupa_requester_ack(qp, psn);
}

static void handle_response(struct nupa_engine *engine, struct nupa_channel *channel,
			    const struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	if (!qp || qp->type != IBV_QPT_RC || qp->dest_qpn != msg->src_qpn ||
	    qp->channel != channel || !nupa_requester_awaits(qp, msg->psn))
		return;
	if (msg->op == NUPA_OP_READ_RESP)
		nupa_requester_read_resp(qp, msg, payload);
	else
		nupa_requester_atomic_resp(qp, msg);
}

bool nupa_engine_dispatch(struct nupa_engine *engine, struct nupa_channel *channel,
			  struct nupa_msg *msg, const uint8_t *payload)
{
	switch (msg->op) {
	case NUPA_OP_SEND:
	case NUPA_OP_WRITE:
	case NUPA_OP_READ:
	case NUPA_OP_ATOMIC:
		if (msg->flags & NUPA_F_ACK)
			handle_ack(engine, channel, msg, msg->ack_psn);
		nupa_responder_request(engine, channel, msg, payload);
		return true;
	case NUPA_OP_ACK:
	case NUPA_OP_NAK:
		handle_ack(engine, channel, msg, msg->ack_psn);
		return true;
	case NUPA_OP_READ_RESP:
	case NUPA_OP_ATOMIC_RESP:
		handle_response(engine, channel, msg, payload);
		return true;
	case NUPA_OP_GONE:
		nupa_partner_gone(engine, channel, msg);
		return true;
	case NUPA_OP_NET:
		return nupa_net_receive(engine, channel, msg, payload);
	case NUPA_OP_CM:
		return nupa_cm_receive(engine, channel, msg, payload);
	case NUPA_OP_INJECT:
		return nupa_inject_receive(engine, channel, msg, payload);
	case NUPA_OP_INJECTED:
		return nupa_inject_verdict(engine, channel, msg);
	default:
		return false;
	}
}

static bool handle(struct nupa_engine *engine, struct nupa_channel *channel, struct nupa_msg *msg,
		   const uint8_t *payload)
{
	if (unlikely(channel->faulty))
		return nupa_fault_receive(engine, channel, msg, payload);
	return nupa_engine_dispatch(engine, channel, msg, payload);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Takes what has arrived; a channel that carries nonsense is closed like a dead one. */
static uint32_t drain(struct nupa_engine *engine, struct nupa_channel *channel, uint32_t budget)
{
	uint32_t n = 0, sends = 0;

	while (n < budget) {
		struct nupa_msg msg;
		const uint8_t *payload;
		enum nupa_rx_result result;
		const uint32_t taken =
		    nupa_express_drain(engine, channel, least(budget - n, SENDS_OF_A_TURN - sends));

		n += taken;
		sends += taken;
		if (sends >= SENDS_OF_A_STREAM)
			engine->streams = true;
		if (n == budget || sends == SENDS_OF_A_TURN)
			break;
		if (unlikely(!nupa_reserve_has_room())) /* for a refusal: it stays in the ring */
			break;
		result = nupa_rx_take(&channel->rx, &msg, &payload);
		if (result == NUPA_RX_EMPTY) {
			nupa_rx_publish(&channel->rx);
			break;
		}
		if (unlikely(channel->faulty) && result == NUPA_RX_MESSAGE &&
		    nupa_fault_blocks(engine, channel))
			break;
		if (unlikely(result == NUPA_RX_CORRUPT ||
			     !handle(engine, channel, &msg, payload))) {
			nupa_hint("slot %u (pid %u) sent nonsense; its connections are closed",
				  channel->peer, channel->peer_pid);
			nupa_channel_fail(engine, channel);
			break;
		}
		if (unlikely(channel->broken))
			break;
		nupa_rx_release(&channel->rx);
		n++;
	}
	return n;
}

/* The same from a kernel that is not coherent with ours: message by message. */
static uint32_t drain_apart(struct nupa_engine *engine, struct nupa_channel *channel,
			    uint32_t budget)
{
	uint32_t n = 0, taken = 1;

	while (n < budget && taken) {
		taken = 0;
		if (nupa_rx_fetch(&channel->rx))
			taken = drain(engine, channel, 1);
		else
			nupa_rx_publish(&channel->rx);
		nupa_rx_flush_heads(&channel->rx);
		n += taken;
	}
	return n;
}

/* The same from another machine: our trunk waits for us to take from a ring that was full. */
static uint32_t drain_trunked(struct nupa_engine *engine, struct nupa_channel *channel,
			      uint32_t budget)
{
	const uint64_t lines = channel->rx.head_published, dma = channel->rx.dma_head_published;
	const uint32_t n = drain(engine, channel, budget);

	if (channel->rx.head_published - lines >= channel->rx.n_lines / 8 ||
	    channel->rx.dma_head_published - dma >= channel->rx.dma_bytes / 8)
		nupa_trunk_ring(engine->fabric);
	return n;
}

uint32_t nupa_engine_drain(struct nupa_engine *engine, struct nupa_channel *channel,
			   uint32_t budget)
{
	if (unlikely(channel->trunked))
		return drain_trunked(engine, channel, budget);
	if (unlikely(channel->apart))
		return drain_apart(engine, channel, budget);
	return drain(engine, channel, budget);
}
