/* SPDX-License-Identifier: BSD-3-Clause
 * One turn of the engine: answers that are due, what has arrived, what waits. */
#include "base/reserve.h"
#include "engine/attachment/attachment.h"
#include "engine/fault/fault_internal.h"
#include "engine/net/net.h"
#include "engine/qp/pkey.h"
#include "engine/transport/responder.h"
#include "engine/cm/hooks.h"
#include "engine/wire/wire.h"

/* Messages taken from one channel before the next has its turn. */
#define BUDGET_MESSAGES 64u

/* How often a port thread looks for room in a full ring. */
#define ROOM_POLL_NS 50000u

/* Its earlier messages count: those of a ring, as another process may write more all the time.
 * False: there is no memory for what they may need. */
static bool drain_dead(struct nupa_engine *engine, struct nupa_channel *channel)
{
	uint32_t left = channel->rx.most_lines, taken = 1;

	while (channel->rx_open && !channel->wired && !channel->broken && left && taken) {
		taken = nupa_engine_drain(engine, channel, left);
		left -= taken;
	}
	return nupa_reserve_has_room();
}

static void handle_deaths(struct nupa_engine *engine)
{
	bool reap = false;

	nupa_store_relaxed(&engine->deaths, false);
	if (unlikely(nupa_load_acquire(&engine->fenced)) && !engine->forked) {
		nupa_engine_fence(engine);
		return;
	}
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		struct nupa_channel *channel = engine->channels[peer];

		if (!channel || channel->broken)
			continue;
		if (nupa_channel_process_alive(channel))
			continue;
		if (!drain_dead(engine, channel)) {
			nupa_store_relaxed(&engine->deaths, true); /* again in the next turn */
			continue;
		}
		if (!channel->broken)
			nupa_channel_fail(engine, channel);
		reap = true;
	}
	if (reap)
		nupa_port_reap(engine);
}

static void tell_of_port(struct nupa_engine *engine, bool up)
{
	nupa_net_port_changed(engine, up);
	nupa_event_raise_port(engine, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

/* Its state is read after the count of times that it went down.  A change in between is found when
 * its own announcement is read. */
static void follow_port(struct nupa_engine *engine)
{
	const struct nupa_fabric *fabric = engine->fabric;
	const struct nupa_port *port = &fabric->ports[fabric->hosts[engine->host].port];
	uint32_t link_downed = nupa_load_acquire(&port->link_downed);
	uint32_t state = nupa_load_relaxed(&port->state);
	bool up = state == NUPA_PORT_ACTIVE;

	if (state != engine->port_state_seen) {
		tell_of_port(engine, up);
	} else if (up && link_downed != engine->link_downed_seen) { /* shorter than our sleep */
		tell_of_port(engine, false);
		tell_of_port(engine, true);
	}
	engine->port_state_seen = (uint8_t)state;
	engine->link_downed_seen = link_downed;
}

/* A port, P_Keys, who watches, which faults and rates there are. */
static void handle_change(struct nupa_engine *engine)
{
	engine->port_epoch_seen = nupa_load_acquire(engine->fabric->port_epoch);
	nupa_trace_follow(engine);
	nupa_fault_follow(engine);
	nupa_wires_follow(engine);
	nupa_qp_follow_pkeys(engine);
	nupa_pace_follow(engine);
	nupa_cm_flush(engine);
	follow_port(engine);
}

static void send_acks(struct nupa_engine *engine)
{
	struct nupa_list *at = engine->ack_pending.next;

	while (at != &engine->ack_pending) {
		struct nupa_list *next = at->next;

		nupa_responder_send_ack(container_of(at, struct nupa_qp, ack_link));
		at = next;
	}
}

void nupa_engine_flush(struct nupa_engine *engine)
{
	send_acks(engine);
	if (unlikely(engine->wire_dirty))
		nupa_wires_flush(engine);
}

static void run_waiting(struct nupa_engine *engine)
{
	struct nupa_list *at = engine->waiting.next;
	struct nupa_list *last = engine->waiting.prev;
	bool more = at != &engine->waiting;

	/* Those that wait anew go behind `last`: each has one turn. */
	while (more) {
		struct nupa_list *next = at->next;

		more = at != last && next != &engine->waiting;
		nupa_requester_run(container_of(at, struct nupa_qp, wait_link));
		at = next;
	}
}

static void run_jobs(struct nupa_engine *engine)
{
	struct nupa_list *at = engine->reading.next;

	while (at != &engine->reading) {
		struct nupa_list *next = at->next;

		nupa_responder_run_jobs(container_of(at, struct nupa_qp, job_link));
		at = next;
	}
}

/* Rates are to be kept. */
static bool looks_at_clock(struct nupa_engine *engine)
{
	return ++engine->turns >= engine->turns_a_look || engine->paced.top ||
	       !nupa_load_relaxed(&engine->app_drives);
}

static inline uint32_t drain_at(struct nupa_engine *engine, uint32_t i)
{
	struct nupa_channel *channel = engine->open[i];
	uint32_t handled;

	if (likely(!nupa_channel_has_news(channel)))
		return 0;
	handled = nupa_engine_drain(engine, channel, BUDGET_MESSAGES);
	if (unlikely(!nupa_list_empty(&channel->refusals)))
		nupa_responder_send_refusals(engine, channel);
	/* A channel that has failed is not there any more. */
	if (unlikely(handled && i >= engine->n_hot) && i < engine->n_channels &&
	    engine->open[i] == channel)
		nupa_attention_heat(engine, i);
	return handled;
}

/* The first *n, which may change meanwhile. */
static uint32_t drain_first(struct nupa_engine *engine, const uint32_t *n)
{
	uint32_t handled = 0;

	for (uint32_t i = 0; i < *n; i++)
		handled += drain_at(engine, i);
	return handled;
}

/* The hot ones, and some of the others that are attended: a program that spins comes to all of them
 * within microseconds. */
static uint32_t drain_some(struct nupa_engine *engine)
{
	uint32_t handled = 0;

	handled += drain_first(engine, &engine->n_hot);
	for (uint32_t k = 0; k < NUPA_COLD_LOOKS; k++) {
		if (engine->next_cold < engine->n_hot || engine->next_cold >= engine->n_attended)
			engine->next_cold = engine->n_hot;
		if (engine->next_cold < engine->n_attended)
			handled += drain_at(engine, engine->next_cold++);
	}
	return handled;
}

static uint32_t drain_attended(struct nupa_engine *engine)
{
	return nupa_engine_looks_at_some(engine) ? drain_some(engine)
						 : drain_first(engine, &engine->n_attended);
}

/* What peers wanted to be seen when `calls` was loaded, but for what they sent. */
static void heed(struct nupa_engine *engine, uint64_t calls)
{
	const bool contacts = (uint32_t)calls != (uint32_t)engine->calls_seen;

	engine->calls_seen = calls;
	if (contacts)
		nupa_channel_scan_contacts(engine);
}

static void do_duties(struct nupa_engine *engine)
{
	if (nupa_load_relaxed(&engine->deaths))
		handle_deaths(engine);
	if (engine->broken)
		nupa_channel_sweep(engine);
	if (engine->fault_duty)
		nupa_fault_run(engine);
	if (engine->cm_owes)
		nupa_cm_flush(engine);
	if (engine->cq_timers)
		nupa_cq_run_timers(engine);
}

static uint32_t run(struct nupa_engine *engine, bool all)
{
	const uint64_t calls = nupa_engine_calls(engine);
	uint32_t handled;

	if (!nupa_list_empty(&engine->ack_pending))
		send_acks(engine);
	if (unlikely(calls != engine->calls_seen))
		nupa_attention_hear(engine);
	handled = all ? drain_first(engine, &engine->n_channels) : drain_attended(engine);
	if (unlikely(engine->streams)) {
		engine->streams = false;
		send_acks(engine);
	}
	if (unlikely(engine->wires))
		handled += nupa_wires_run(engine);
	if (unlikely(calls != engine->calls_seen))
		heed(engine, calls);
	if (unlikely(nupa_load_relaxed(engine->fabric->port_epoch) != engine->port_epoch_seen))
		handle_change(engine);
	if (unlikely(nupa_load_relaxed(&engine->duties)))
		do_duties(engine);
	if (unlikely(!nupa_list_empty(&engine->reading)))
		run_jobs(engine);
	if (unlikely(!nupa_list_empty(&engine->backlogs)))
		nupa_backlog_run(engine, NULL);
	if (unlikely(!nupa_list_empty(&engine->waiting)))
		run_waiting(engine);
	if (unlikely(engine->timed.top || engine->paced.top) && looks_at_clock(engine))
		nupa_sq_run_timed(engine);
	if (unlikely(engine->wire_dirty))
		nupa_wires_flush(engine);
	return handled;
}

uint32_t nupa_engine_progress(struct nupa_engine *engine)
{
	return run(engine, true);
}

uint32_t nupa_engine_turn(struct nupa_engine *engine)
{
	return run(engine, false);
}

/* In the first n rings, or told to all. */
static bool news_of(const struct nupa_engine *engine, uint32_t n)
{
	return nupa_engine_lines_ready(engine, n) ||
	       nupa_engine_calls(engine) != engine->calls_seen ||
	       nupa_load_relaxed(engine->fabric->port_epoch) != engine->port_epoch_seen;
}

bool nupa_engine_is_idle(const struct nupa_engine *engine)
{
	return nupa_list_empty(&engine->ack_pending) && nupa_list_empty(&engine->reading) &&
	       nupa_list_empty(&engine->backlogs) && nupa_list_empty(&engine->waiting) &&
	       !engine->timed.top && !engine->paced.top && !engine->wires &&
	       !nupa_load_relaxed(&engine->duties) && nupa_load_relaxed(&nupa_engines) == engine &&
	       !nupa_load_relaxed(&engine->next) && !news_of(engine, engine->n_attended);
}

void nupa_engine_progress_siblings(struct nupa_engine *engine)
{
	/* An engine that is taken off the list is freed when no thread walks the list. */
	nupa_fetch_add_seq(&nupa_engines_readers, 1);
	for (struct nupa_engine *other = nupa_load_seq(&nupa_engines); other;
	     other = nupa_load_seq(&other->next)) {
		if (other == engine || !nupa_lock_try(&other->lock))
			continue;
		nupa_engine_progress(other);
		nupa_engine_unlock(other);
	}
	nupa_fetch_add_seq(&nupa_engines_readers, -1u);
}

bool nupa_engine_rings_ready(const struct nupa_engine *engine)
{
	return news_of(engine, engine->n_channels);
}

/* Whether answers wait for room in a ring. */
bool nupa_engine_owes(const struct nupa_engine *engine)
{
	if (!nupa_list_empty(&engine->ack_pending) || !nupa_list_empty(&engine->reading))
		return true;
	for (uint32_t i = 0; i < engine->n_channels; i++)
		if (!nupa_list_empty(&engine->open[i]->refusals))
			return true;
	return false;
}

/* When the engine has to run although nothing arrives; UINT64_MAX: never. */
uint64_t nupa_engine_next_timer_ns(const struct nupa_engine *engine)
{
	uint64_t now_ns = engine->now_ns();
	uint64_t soon_ns = now_ns + ROOM_POLL_NS;
	uint64_t next_ns = nupa_cm_next_timer_ns(engine);

	if (engine->cq_timers && nupa_cq_next_timer_ns(engine) < next_ns)
		next_ns = nupa_cq_next_timer_ns(engine);
	if (nupa_fault_next_timer_ns(engine) < next_ns)
		next_ns = nupa_fault_next_timer_ns(engine);
	if (nupa_backlog_next_timer_ns(engine, now_ns) < next_ns)
		next_ns = nupa_backlog_next_timer_ns(engine, now_ns);
	if (nupa_sq_next_timer_ns(engine) < next_ns)
		next_ns = nupa_sq_next_timer_ns(engine);
	for (struct nupa_list *at = engine->waiting.next; at != &engine->waiting; at = at->next) {
		const struct nupa_qp *qp = container_of(at, struct nupa_qp, wait_link);
		uint64_t at_ns = UINT64_MAX; /* an acknowledgement, port_epoch, or the deadline */

		if (qp->wait == NUPA_WAIT_RING) /* room is not announced */
			at_ns = soon_ns;
		else if (qp->wait == NUPA_WAIT_CONTACT)
			at_ns = qp->wait_until_ns;
		if (qp->wait != NUPA_WAIT_RING && qp->wait_deadline_ns &&
		    qp->wait_deadline_ns < at_ns)
			at_ns = qp->wait_deadline_ns;
		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return engine->cm_owes || nupa_engine_owes(engine) ? soon_ns : next_ns;
}
