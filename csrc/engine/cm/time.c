/* SPDX-License-Identifier: BSD-3-Clause
 * Changes of identifiers that no call makes: timers expire, and peers end.
 *
 *   K5  A message that its peer has not taken out of the ring is not lost (I7 of retry.c): a peer
 *       that is stopped uses up no repetitions. */
#include "engine/cm/internal.h"

static uint64_t earlier(uint64_t ns, const struct nupa_list *waiting)
{
	uint64_t first_ns;

	if (nupa_list_empty(waiting))
		return ns;
	first_ns = container_of(waiting->next, struct nupa_cm_id, wait)->deadline_ns;
	return first_ns < ns ? first_ns : ns;
}

uint64_t nupa_cm_next_timer_ns(const struct nupa_engine *engine)
{
	const struct nupa_cm *cm = engine->cm;
	uint64_t next_ns;

	if (!cm)
		return UINT64_MAX;
	next_ns = cm->seek_at_ns ? cm->seek_at_ns : UINT64_MAX;
	next_ns = earlier(earlier(next_ns, &cm->waiting), &cm->extended);
	return earlier(next_ns, &cm->timewait);
}

/* K5.  A message without room waits for it in the ring; one without a path counts as lost. */
static bool in_ring(const struct nupa_cm_id *id)
{
	struct nupa_channel *channel = id->peer;

	if (!channel || id->unsent || channel->wired)
		return false;
	if (id->sent.owed)
		return nupa_channel_path_up(id->engine, channel);
	(void)nupa_tx_drained(&channel->tx);
	/* Or the answer in the ring of this end, where a fault keeps it. */
	return channel->tx.head_seen < id->sent.tail ||
	       (channel->gated && nupa_channel_ready(channel));
}

/* Whether it keeps waiting. */
static bool repeat(struct nupa_cm_id *id)
{
	if (!in_ring(id)) {
		if (!id->sent.tries)
			return false;
		id->sent.tries--;
		id->sent.extended = false;
		if (!id->unsent)
			cm_send_again(id);
	}
	cm_wait_again(id);
	return true;
}

static void expire_remnant(struct nupa_cm_id *id)
{
	if ((id->state == CM_DREQ_SENT || id->state == CM_REJ_SENT) && repeat(id))
		return;
	if (id->state == CM_CLOSED || nupa_list_empty(&id->by_remote))
		cm_free_remnant(id);
	else
		cm_linger(id);
}

static void expire(struct nupa_cm_id *id)
{
	enum cm_state state = id->state;

	if (id->remnant) {
		expire_remnant(id);
		return;
	}
	if (state != CM_TIMEWAIT && repeat(id))
		return;
	cm_stop_waiting(id);
	switch (state) {
	case CM_TIMEWAIT:
		cm_enter(id, CM_CLOSED);
		cm_event_report(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		break;
	case CM_DREQ_SENT:
		cm_timewait(id);
		cm_event_report(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
		break;
	default:
		if (state == CM_REQ_SENT || state == CM_REP_SENT)
			cm_send_id(id, CM_REJ, CM_REJ_TIMEOUT, NULL);
		cm_enter(id, CM_CLOSED);
		cm_event_report(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	}
}

/* This process may have been stopped itself, and the answer may have come meanwhile.  False: no id
 * has changed. */
static bool hears(const struct nupa_cm_id *id)
{
	struct nupa_channel *channel = id->peer;

	return channel && !channel->broken && channel->rx_open && !channel->wired &&
	       nupa_channel_ready(channel) &&
	       (id->engine->ops->drain(id->engine, channel, channel->rx.most_lines) > 0 ||
		channel->broken);
}

static void expire_list(struct nupa_list *list, uint64_t now_ns)
{
	uint32_t heard = 0;

	while (!nupa_list_empty(list)) {
		struct nupa_cm_id *id = container_of(list->next, struct nupa_cm_id, wait);

		if (id->deadline_ns > now_ns)
			break;
		if (heard != id->local) { /* once for each: others may send without end */
			heard = id->local;
			if (hears(id))
				continue;
		}
		expire(id);
	}
}

void nupa_cm_flush(struct nupa_engine *engine)
{
	struct nupa_cm *cm = engine->cm;
	struct nupa_list *at;

	if (!cm)
		return;
	cm_flush_owed(engine);
	if (!cm->unsent)
		return;
	at = cm->waiting.next;
	while (at != &cm->waiting) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, wait);

		at = at->next;
		if (id->unsent)
			cm_request(id);
	}
}

void nupa_cm_run_timers(struct nupa_engine *engine)
{
	struct nupa_cm *cm = engine->cm;
	uint64_t now_ns, next_ns;

	if (!cm)
		return;
	now_ns = engine->now_ns();
	if (cm->seek_at_ns && now_ns >= cm->seek_at_ns) {
		cm->seek_at_ns = 0;
		nupa_cm_flush(engine);
	}
	expire_list(&cm->waiting, now_ns);
	expire_list(&cm->extended, now_ns);
	expire_list(&cm->timewait, now_ns);
	next_ns = nupa_cm_next_timer_ns(engine);
	nupa_store_release(&engine->cm_timer_ns, next_ns == UINT64_MAX ? 0 : next_ns);
}

static void lose_peer(struct nupa_cm_id *id)
{
	enum cm_state state = id->state;

	if (id->remnant) {
		cm_free_remnant(id);
		return;
	}
	id->peer = NULL;
	nupa_list_del(&id->by_remote);
	switch (state) {
	case CM_REQ_SENT:
	case CM_REP_SENT:
	case CM_REP_RECEIVED:
	case CM_REQ_RECEIVED:
		cm_stop_waiting(id);
		cm_enter(id, CM_CLOSED);
		cm_event_report(id, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
		break;
	case CM_SIDR_SENT:
		cm_stop_waiting(id);
		cm_enter(id, CM_CLOSED);
		cm_event_report(id, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_REJECTED);
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		cm_timewait(id);
		cm_event_report(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	default:
		break;
	}
}

/* As the kernel cleans up after a process that died. */
void nupa_cm_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	struct nupa_cm *cm = engine->cm;
	struct nupa_list *at;

	if (!cm)
		return;
	at = cm->ids.next;
	while (at != &cm->ids) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, link);

		at = at->next;
		if (id->peer == channel)
			lose_peer(id);
	}
	cm_forget_owed(engine, channel);
}
