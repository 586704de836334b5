/* SPDX-License-Identifier: BSD-3-Clause
 * The end of a channel: its peer died, left, or wrote nonsense.  Partners of its QPs complete with
 * errors, and what was held for it is given back. */
#include "engine/channel/apart.h"
#include "engine/attachment/attachment.h"
#include "engine/fault/fault_internal.h"
#include "engine/inject/inject_engine.h"
#include "engine/net/net.h"
#include "engine/transport/xrc.h"
#include "engine/cm/hooks.h"
#include "engine/wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static bool uses_channel(const struct nupa_qp *qp, const struct nupa_channel *channel)
{
	/* To an SRQ of that process, and waiting for it. */
	if (qp->xrc && qp->channel == channel && qp->sq.acked != qp->sq.posted)
		return true;
	if (qp->type == IBV_QPT_UD || qp->state < IBV_QPS_RTR || qp->state == IBV_QPS_ERR)
		return false;
	if (channel->wired) /* a QP without one meets the next keeper */
		return qp->channel == channel;
	return nupa_qpn_slot(&qp->engine->fabric->geometry, qp->dest_qpn) == channel->peer &&
	       (qp->channel ? qp->channel == channel : !channel->left);
}

static void stop_traffic(struct nupa_engine *engine, struct nupa_channel *channel)
{
	channel->broken = true;
	nupa_attention_drop(engine, channel);
	for (struct nupa_list *link; (link = nupa_list_pop(&channel->refusals));)
		free(container_of(link, struct nupa_refusal, link));
	nupa_fault_free_held(channel);
	nupa_backlog_lose_peer(engine, channel);
	nupa_store_release(&channel->tx.header->pair, 0);
	nupa_channel_flush_pair(channel, channel->tx.header);
	/* One that lives has to know as well that nothing comes or goes any more. */
	if (nupa_channel_peer_alive(channel) && !channel->wired)
		nupa_channel_say(engine, channel, NUPA_CONTACT_CLOSED);
}

/* Releases what the channel holds beside itself. */
static void give_back(struct nupa_engine *engine, struct nupa_channel *channel)
{
	int *fds[] = { &channel->pidfd, &channel->life_fd };

	nupa_window_forget(channel);
	if (channel->pidfd >= 0 && !channel->trunked)
		engine->n_watched--;
	for (int i = 0; i < 2; i++) {
		if (*fds[i] < 0)
			continue;
		epoll_ctl(engine->watch_epoll, EPOLL_CTL_DEL, *fds[i], NULL);
		close(*fds[i]);
		*fds[i] = -1;
	}
}

/* The peer is gone: its QPs' partners complete with errors (design.md, death). */
void nupa_channel_fail(struct nupa_engine *engine, struct nupa_channel *channel)
{
	/* A peer that destroyed its QPs and then left is an error only for requests to it. */
	channel->left = nupa_channel_left(channel);
	stop_traffic(engine, channel);
	for (uint32_t i = 0; i < engine->qp_limit; i++) {
		struct nupa_qp *qp = engine->qps[i];

		if (!qp || !uses_channel(qp, channel))
			continue;
		nupa_qp_unsettle(qp);
		nupa_requester_lose_peer(qp);
	}
	nupa_cm_lose_peer(engine, channel);
	if (channel->wired)
		nupa_wire_closed(engine, channel);
	if (engine->injector)
		nupa_inject_lose_peer(engine->injector, channel->peer);
	if (unlikely(engine->foreign_regions))
		nupa_import_lose(engine, channel->peer);
	if (engine->xrc)
		nupa_xrc_channel_failed(engine, channel);
	give_back(engine, channel);
	engine->broken = true;
}

/* All attachments by one mapping go together: those that still have their slots leave.  No thread
 * with the lock of one waits for that of another. */
static void fence_fabric(struct nupa_engine *engine)
{
	struct nupa_engine *others = NULL;
	struct nupa_fabric *fabric = engine->fabric;
	bool fenced = false;

	if (!nupa_cas_seq(&fabric->fenced, &fenced, true))
		return;
	nupa_fetch_add_seq(&nupa_engines_readers, 1);
	for (struct nupa_engine *other = nupa_load_seq(&nupa_engines); other;
	     other = nupa_load_seq(&other->next)) {
		if (other == engine || other->fabric != fabric)
			continue;
		nupa_engine_lock(other);
		if (nupa_slot_claim(other->slot) == other->claim)
			nupa_fabric_free_slot(fabric, other->slot_index);
		other->fenced_next = others;
		others = other;
	}
	nupa_fabric_detach_copy(fabric);
	while (others) {
		struct nupa_engine *other = others;

		others = other->fenced_next;
		nupa_store_release(&other->fenced, true);
		nupa_store_release(&other->deaths, true);
		nupa_engine_unlock(other);
		nupa_port_wake(other);
	}
	nupa_fetch_add_seq(&nupa_engines_readers, -1u);
}

void nupa_engine_fence(struct nupa_engine *engine)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_DEVICE_FATAL };

	nupa_hint("this process was stopped for so long that others declared it dead; its "
		  "connections are closed: start it again");
	fence_fabric(engine);
	engine->forked = true;
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++)
		if (engine->channels[peer] && !engine->channels[peer]->broken)
			nupa_channel_fail(engine, engine->channels[peer]);
	for (struct nupa_list *at = engine->contexts.next; at != &engine->contexts; at = at->next)
		nupa_event_raise(container_of(at, struct nupa_context, link), &event);
	nupa_net_fenced(engine);
}

static bool is_used(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	for (uint32_t i = 0; i < engine->qp_limit; i++)
		if (engine->qps[i] && engine->qps[i]->channel == channel)
			return true;
	return false;
}

/* Frees broken channels without QPs; the others follow at the next death.  The channel to a living
 * peer stays, as none may be opened to it again.  No caller on the stack uses a freed one. */
void nupa_channel_sweep(struct nupa_engine *engine)
{
	engine->broken = false;
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		struct nupa_channel **at = &engine->channels[peer];

		while (*at) {
			struct nupa_channel *channel = *at;

			if (!channel->broken || nupa_channel_peer_alive(channel) ||
			    is_used(engine, channel)) {
				at = &channel->older;
			} else {
				*at = channel->older;
				free(channel);
			}
		}
	}
}
