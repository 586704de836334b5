/* SPDX-License-Identifier: BSD-3-Clause
 * The injector: an attachment through which packets enter, and which waits for their verdicts. */
#include "engine/inject/inject.h"
#include "engine/inject/inject_engine.h"
#include "region/slot_life.h"

#include <errno.h>
#include <time.h>

#define QP1 1u                  /* IBTA 3.9.5: management */
#define QPN_MULTICAST 0xffffffu /* IBTA 3.5.10 */

uint32_t nupa_injector_max_bytes(const struct nupa_injector *injector)
{
	uint32_t max = nupa_dma_payload_max(injector->engine->fabric->geometry.dma_bytes) -
		       (uint32_t)sizeof(struct nupa_roce_packet);

	return max < NUPA_INJECT_FRAME_MAX_BYTES ? max : NUPA_INJECT_FRAME_MAX_BYTES;
}

/* --- verdicts that come -------------------------------------------------------------- */

static void answer(struct nupa_injector *injector, const struct nupa_inject_result *result)
{
	injector->result = *result;
	injector->slot = 0;
	pthread_cond_signal(&injector->answered);
}

bool nupa_inject_verdict(struct nupa_engine *engine, const struct nupa_channel *channel,
			 const struct nupa_msg *msg)
{
	struct nupa_injector *injector = engine->injector;
	struct nupa_inject_result result = {
		.verdict = msg->injected.verdict,
		.reason = msg->injected.reason,
		.syndrome = msg->injected.syndrome & 0xff,
		.expected_psn = msg->injected.expected_psn,
	};

	if (!injector || result.verdict > NUPA_INJECT_DROPPED ||
	    result.reason >= NUPA_INJECT_REASONS)
		return false;
	pthread_mutex_lock(&injector->mutex);
	if (injector->slot == channel->peer && injector->ticket == msg->psn)
		answer(injector, &result);
	pthread_mutex_unlock(&injector->mutex);
	return true;
}

void nupa_inject_lose_peer(struct nupa_injector *injector, uint32_t peer)
{
	const struct nupa_inject_result gone = { .verdict = NUPA_INJECT_DROPPED,
						 .reason = NUPA_INJECT_NO_QP,
						 .expected_psn = UINT32_MAX };

	pthread_mutex_lock(&injector->mutex);
	if (injector->slot == peer)
		answer(injector, &gone);
	pthread_mutex_unlock(&injector->mutex);
}

/* --- packets that go ----------------------------------------------------------------- */

static int drop(struct nupa_inject_result *result, enum nupa_inject_reason reason)
{
	result->verdict = NUPA_INJECT_DROPPED;
	result->reason = reason;
	return 0;
}

/* With the engine's lock.  packet NULL: only the question. */
static int send_packet(struct nupa_injector *injector, uint32_t qpn,
		       const struct nupa_roce_packet *packet, const void *payload)
{
	struct nupa_engine *engine = injector->engine;
	struct nupa_channel *channel =
	    nupa_channel_meet(engine, nupa_qpn_slot(&engine->fabric->geometry, qpn));
	uint32_t bytes = packet ? (uint32_t)sizeof(*packet) + packet->payload_bytes : 0;
	struct nupa_msg *msg;
	uint8_t *room = NULL;

	if (!channel)
		return -ENOTCONN;
	if (bytes && !channel->dma_backed) {
		int error = nupa_channel_back_dma(engine, channel);

		if (error)
			return error;
	}
	msg = nupa_tx_reserve(&channel->tx, bytes, &room);
	if (!msg)
		return -EAGAIN;
	pthread_mutex_lock(&injector->mutex);
	injector->ticket++;
	injector->slot = channel->peer;
	pthread_mutex_unlock(&injector->mutex);
	msg->op = NUPA_OP_INJECT;
	msg->flags = bytes ? NUPA_F_DMA : 0;
	msg->dest_qpn = qpn;
	msg->src_qpn = 0;
	msg->psn = injector->ticket;
	msg->length_bytes = bytes;
	if (packet) {
		memcpy(room, packet, sizeof(*packet));
		memcpy(room + sizeof(*packet), payload, packet->payload_bytes);
		nupa_flow_xmit(channel, packet->frame_bytes);
	}
	/* Watchers see the packet in it, recorded where it arrives. */
	nupa_channel_commit(channel, msg, bytes);
	nupa_channel_bell(channel);
	return 0;
}

static int await(struct nupa_injector *injector, uint64_t timeout_ns,
		 struct nupa_inject_result *result)
{
	uint64_t until_ns = nupa_clock_ns();
	struct timespec until;
	int error = 0;

	until_ns = timeout_ns < UINT64_MAX / 2 ? until_ns + timeout_ns : UINT64_MAX / 2;
	until.tv_sec = (time_t)(until_ns / UINT64_C(1000000000));
	until.tv_nsec = (long)(until_ns % UINT64_C(1000000000));
	pthread_mutex_lock(&injector->mutex);
	while (injector->slot && !error)
		error = pthread_cond_timedwait(&injector->answered, &injector->mutex, &until);
	error = injector->slot ? -ETIMEDOUT : 0;
	injector->slot = 0;
	*result = injector->result;
	pthread_mutex_unlock(&injector->mutex);
	return error;
}

/* Whether the process that owns the QP's number lives, on *host* (-1: on any). */
static bool owner_lives(const struct nupa_fabric *fabric, uint32_t qpn, int host)
{
	uint32_t slot = nupa_qpn_slot(&fabric->geometry, qpn);

	if (slot == 0 || slot >= fabric->geometry.n_slots ||
	    NUPA_CLAIM_STATE(nupa_slot_claim(&fabric->slots[slot])) != NUPA_SLOT_LIVE)
		return false;
	return host < 0 || nupa_load_relaxed(&fabric->slots[slot].host) == (uint32_t)host;
}

static int ask(struct nupa_injector *injector, uint32_t qpn, const struct nupa_roce_packet *packet,
	       const void *payload, uint64_t timeout_ns, struct nupa_inject_result *result)
{
	int error;

	pthread_mutex_lock(&injector->turn);
	nupa_engine_lock(injector->engine);
	error = send_packet(injector, qpn, packet, payload);
	nupa_engine_unlock(injector->engine);
	if (!error)
		error = await(injector, timeout_ns, result);
	pthread_mutex_unlock(&injector->turn);
	if (error != -ENOTCONN)
		return error;
	/* A process that has just died may have its slot still. */
	(void)nupa_fabric_reap(injector->engine->fabric);
	return owner_lives(injector->engine->fabric, qpn, -1) ? error
							      : drop(result, NUPA_INJECT_NO_QP);
}

int nupa_inject(struct nupa_injector *injector, const struct nupa_roce_packet *packet,
		const void *payload, uint64_t timeout_ns, struct nupa_inject_result *result)
{
	struct nupa_engine *engine = injector->engine;
	union ibv_gid gid;
	int host;

	*result = (struct nupa_inject_result){ .expected_psn = UINT32_MAX };
	if (packet->payload_bytes > nupa_injector_max_bytes(injector))
		return -EMSGSIZE;
	memcpy(gid.raw, packet->destination, sizeof(gid.raw));
	host = nupa_host_of_gid(engine->fabric, &gid);
	if (host < 0)
		return drop(result, NUPA_INJECT_NO_HOST);
	if (packet->dqpn == QP1 || packet->dqpn == QPN_MULTICAST)
		return drop(result, NUPA_INJECT_UNSUPPORTED);
	if (!nupa_path_up(engine, (uint32_t)host)) {
		nupa_engine_lock(engine);
		nupa_count(&engine->flows[host].xmit_discards, 1);
		nupa_engine_unlock(engine);
		return drop(result, NUPA_INJECT_PATH);
	}
	if (!owner_lives(engine->fabric, packet->dqpn, host))
		return drop(result, NUPA_INJECT_NO_QP);
	return ask(injector, packet->dqpn, packet, payload, timeout_ns, result);
}

int nupa_inject_ask(struct nupa_injector *injector, uint32_t qpn, uint64_t timeout_ns,
		    struct nupa_inject_result *result)
{
	*result = (struct nupa_inject_result){ .expected_psn = UINT32_MAX };
	if (!owner_lives(injector->engine->fabric, qpn & 0xffffff, -1))
		return drop(result, NUPA_INJECT_NO_QP);
	return ask(injector, qpn & 0xffffff, NULL, NULL, timeout_ns, result);
}
