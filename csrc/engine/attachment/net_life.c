/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a queue of a network interface: an attachment that becomes known as such, and ends.
 */
#include "engine/attachment/attachment.h"
#include "base/explain.h"
#include "engine/net/net_internal.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <stdlib.h>

/* The process whose slot is this queue already; 0: none.  Each says that it is before it looks, so
 * of two that come at once one is refused, or both. */
static uint32_t taken_by(const struct nupa_fabric *fabric, uint32_t host, uint32_t queue,
			 uint32_t own)
{
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		uint32_t its_host, its_queue;

		if (slot != own && nupa_net_serves(fabric, slot, &its_host, &its_queue) &&
		    its_host == host && its_queue == queue + 1 &&
		    nupa_slot_alive(fabric, slot, nupa_slot_claim(&fabric->slots[slot])))
			return NUPA_CLAIM_PID(nupa_slot_claim(&fabric->slots[slot]));
	}
	return 0;
}

static int go_public(struct nupa_net *net, bool takes_coalesced, char *why, size_t why_bytes)
{
	struct nupa_engine *engine = net->engine;
	struct nupa_fabric *fabric = engine->fabric;
	uint64_t net_off = nupa_arena_map(&fabric->geometry).net_off;
	int error =
	    nupa_fabric_back(fabric, nupa_arena_offset(fabric, engine->slot_index) + net_off,
			     sizeof(*net->counters));
	uint32_t taker;

	if (error)
		return nupa_explain(error, why, why_bytes, "no memory for the counters of host %u",
				    engine->host);
	net->counters = (struct nupa_net_counters *)(void *)(engine->arena + net_off);
	nupa_engine_lock(engine);
	engine->net = net;
	nupa_engine_unlock(engine);
	nupa_exchange_seq(&engine->slot->net_queue,
			  (net->queue + 1) | (takes_coalesced ? NUPA_NET_COALESCED : 0));
	nupa_slot_flush_queue(fabric, engine->slot);
	taker = taken_by(fabric, engine->host, net->queue, engine->slot_index);
	if (taker)
		return nupa_explain(-EBUSY, why, why_bytes,
				    "queue %u of host %s's interface is served by pid %u",
				    net->queue, fabric->hosts[engine->host].name, taker);
	nupa_fabric_net_changed(fabric);
	net->epoch_seen = nupa_load_acquire(fabric->net_epoch) - 1;
	return 0;
}

struct nupa_net *nupa_net_open(struct nupa_fabric *fabric, uint32_t host, uint32_t queue,
			       bool takes_coalesced, struct nupa_net_siblings *siblings,
			       const struct nupa_net_ops *ops, void *arg, char *why,
			       size_t why_bytes)
{
	struct nupa_net *net;
	int error;

	if (host >= fabric->geometry.n_hosts || queue >= NUPA_NET_QUEUES_MAX) {
		errno = EINVAL;
		nupa_explain(0, why, why_bytes, "host %u, queue %u: there are %u hosts, %u queues",
			     host, queue, fabric->geometry.n_hosts, NUPA_NET_QUEUES_MAX);
		return NULL;
	}
	if (nupa_dma_payload_max(fabric->geometry.dma_bytes) < NUPA_NET_ROOM_BYTES) {
		errno = EMSGSIZE;
		nupa_explain(0, why, why_bytes,
			     "the fabric's DMA channels have %u bytes, frames need %u: make it "
			     "with a larger dma_bytes",
			     fabric->geometry.dma_bytes, 4 * NUPA_NET_ROOM_BYTES);
		return NULL;
	}
	net = calloc(1, sizeof(*net));
	if (!net || !(net->scratch = malloc(NUPA_NET_ROOM_BYTES)) ||
	    !(net->engine = nupa_engine_attach(fabric, host, why, why_bytes))) {
		error = errno;
		if (net)
			free(net->scratch);
		free(net);
		errno = error;
		return NULL;
	}
	net->queue = queue;
	net->siblings = siblings;
	net->ops = ops;
	net->arg = arg;
	error = go_public(net, takes_coalesced, why, why_bytes);
	if (error) {
		nupa_net_close(net);
		errno = -error;
		return NULL;
	}
	nupa_store_relaxed(&siblings->by_slot[net->engine->slot_index], net);
	return net;
}

void nupa_net_close(struct nupa_net *net)
{
	struct nupa_engine *engine = net->engine;

	if (nupa_net_sibling(net, engine->slot_index) == net)
		nupa_store_relaxed(&net->siblings->by_slot[engine->slot_index], NULL);
	nupa_engine_lock(engine);
	engine->net = NULL;
	nupa_engine_unlock(engine);
	nupa_engine_detach(engine);
	free(net->paces);
	free(net->scratch);
	free(net);
}

bool nupa_net_port_is_up(struct nupa_net *net)
{
	const struct nupa_fabric *fabric = net->engine->fabric;
	uint32_t port = fabric->hosts[net->engine->host].port;

	return nupa_load_relaxed(&fabric->ports[port].state) == NUPA_PORT_ACTIVE;
}

uint32_t nupa_net_host(const struct nupa_net *net)
{
	return net->engine->host;
}

struct nupa_net_counters *nupa_net_count(struct nupa_net *net)
{
	return net->counters;
}
