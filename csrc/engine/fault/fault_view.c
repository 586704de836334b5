/* SPDX-License-Identifier: BSD-3-Clause
 * An attachment's view of the faults: which lie on the way to and from each peer, and what is due
 * because of them.
 *
 *   I5  A channel is `faulty` from the first fault on its path, in either direction, until none is
 *       left, nothing is held, and the peer goes by the same table: until then it may hold
 *       something of ours, which nothing may overtake. */
#include "engine/fault/fault_internal.h"
#include "engine/net/net.h"

#include <stdlib.h>

/* How often a peer is asked whether it has taken over the table. */
#define PEER_POLL_NS 100000u

/* --- the table ----------------------------------------------------------------------- */

/* I5 of layout.h: each field once, and checked. */
static void read_entry(struct nupa_engine *engine, uint32_t place, uint64_t now_ns)
{
	struct nupa_fault_entry *entry = &engine->fabric->sb->faults[place];
	struct nupa_fault_view *view = &engine->faults->views[place];

	view->id = nupa_load_acquire(&entry->id);
	if (!view->id)
		return;
	*view = (struct nupa_fault_view){
		.id = view->id,
		.kind = nupa_load_relaxed(&entry->kind),
		.port = nupa_load_relaxed(&entry->port),
		.probability = nupa_load_relaxed(&entry->probability),
		.seed = nupa_load_relaxed(&entry->seed),
		.after = nupa_load_relaxed(&entry->after),
		.count = nupa_load_relaxed(&entry->count),
		.end_ns = nupa_fault_end_ns(entry),
		.duration_ns = nupa_load_relaxed(&entry->duration_ns),
		.bytes_per_s = nupa_load_relaxed(&entry->bytes_per_s),
		.entry = entry,
	};
	if (view->kind == 0 || view->kind >= NUPA_FAULT_KINDS ||
	    view->port >= engine->fabric->geometry.n_ports || !nupa_fault_lasts(entry, now_ns))
		view->id = 0;
}

/* Places in the table of the faults on the way between two hosts. */
static uint64_t faults_between(const struct nupa_engine *engine, uint32_t from, uint32_t to)
{
	const struct nupa_fabric *fabric = engine->fabric;
	const struct nupa_route *route = &fabric->routes[from * fabric->geometry.n_hosts + to];
	uint64_t found = 0;

	for (uint32_t place = 0; place < NUPA_FAULTS_MAX; place++) {
		const struct nupa_fault_view *view = &engine->faults->views[place];

		for (uint32_t i = 0; view->id && i < route->hops && i < NUPA_HOPS_MAX; i++)
			if (route->port[i] == view->port)
				found |= UINT64_C(1) << place;
	}
	return found;
}

static bool any_of_kind(const struct nupa_engine *engine, uint64_t places, uint32_t kind)
{
	for (; places; places &= places - 1)
		if (engine->faults->views[__builtin_ctzll(places)].kind == kind)
			return true;
	return false;
}

static void for_each_qp(struct nupa_engine *engine, const struct nupa_channel *channel,
			void (*what)(struct nupa_qp *qp))
{
	for (uint32_t i = 0; i < engine->qp_limit; i++)
		if (engine->qps[i] && engine->qps[i]->channel == channel)
			what(engine->qps[i]);
}

static void become_faulty(struct nupa_qp *qp)
{
	nupa_qp_unsettle(qp);
	nupa_retry_begin(qp);
}

void nupa_fault_look(struct nupa_engine *engine, struct nupa_channel *channel)
{
	uint64_t to_peer;

	if (!engine->faults || channel->wired)
		return;
	to_peer = faults_between(engine, engine->host, channel->peer_host);
	channel->rx_faults = faults_between(engine, channel->peer_host, engine->host);
	channel->closing = !channel->rx_faults && !to_peer;
	channel->timed = any_of_kind(engine, channel->rx_faults | to_peer, NUPA_FAULT_TIMEOUT);
	if (!channel->closing && !channel->faulty) {
		channel->faulty = channel->suspect = true;
		for_each_qp(engine, channel, become_faulty);
	}
	if (channel->faulty)
		nupa_fault_due(engine, 0);
}

static bool make_view(struct nupa_engine *engine)
{
	if (engine->faults)
		return true;
	engine->faults = calloc(1, sizeof(*engine->faults));
	if (!engine->faults)
		return false;
	engine->faults->next_ns = UINT64_MAX;
	nupa_list_init(&engine->faults->retries);
	nupa_list_init(&engine->faults->stuck);
	return true;
}

void nupa_fault_need(struct nupa_engine *engine)
{
	if (!make_view(engine))
		abort(); /* without timers what a wire loses would hang its QP */
}

void nupa_fault_follow(struct nupa_engine *engine)
{
	struct nupa_superblock *sb = engine->fabric->sb;
	uint32_t epoch = nupa_load_acquire(&sb->fault_epoch);
	bool any = engine->faults != NULL;
	uint64_t now_ns;

	engine->fault_epoch_seen = epoch;
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX && !any; i++)
		any = nupa_load_acquire(&sb->faults[i].id) != 0;
	if (!any) {
		nupa_store_release(&engine->slot->fault_seen, epoch);
		return;
	}
	if (!make_view(engine)) {
		engine->fault_epoch_seen = epoch - 1;
		return; /* no memory: those that wait for us wait in vain */
	}
	now_ns = engine->now_ns();
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++)
		read_entry(engine, i, now_ns);
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++)
		if (engine->channels[peer] && !engine->channels[peer]->broken)
			nupa_fault_look(engine, engine->channels[peer]);
	nupa_fault_due(engine, 0);
	nupa_fault_run(engine);
}

/* --- due work ------------------------------------------------------------------------ */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Faults that end, and ports that come up again. */
static uint64_t run_table(struct nupa_engine *engine, uint64_t now_ns)
{
	struct nupa_fabric *fabric = engine->fabric;
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		struct nupa_fault_entry *entry = &fabric->sb->faults[i];
		uint32_t id = nupa_load_acquire(&entry->id);
		uint64_t down_until_ns = nupa_load_relaxed(&entry->down_until_ns);

		if (down_until_ns && nupa_load_relaxed(&entry->port) < fabric->geometry.n_ports &&
		    !nupa_fault_heal(fabric, entry, now_ns))
			next_ns = earlier(next_ns, down_until_ns);
		if (!id || nupa_load_relaxed(&entry->ended))
			continue;
		if (now_ns < nupa_fault_end_ns(entry))
			next_ns = earlier(next_ns, nupa_fault_end_ns(entry));
		else if (!nupa_exchange_seq(&entry->ended, 1))
			nupa_fault_announce(fabric);
	}
	return next_ns;
}

/* I5: no fault, nothing held, and the peer knows. */
static bool is_clean(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	return nupa_list_empty(&channel->held) &&
	       (int32_t)(nupa_load_acquire(&channel->peer_slot->fault_seen) -
			 engine->fault_epoch_seen) >= 0;
}

static uint64_t run_channel(struct nupa_engine *engine, struct nupa_channel *channel,
			    uint64_t now_ns)
{
	uint64_t next_ns = nupa_fault_release_held(engine, channel, now_ns, channel->closing);

	/* The pump empties its ring after it has sent something, and may have no more. */
	if (channel->gated && nupa_net_runs(engine, channel))
		engine->ops->drain(engine, channel, channel->rx.most_lines);
	if (channel->broken)
		return UINT64_MAX;
	if (channel->gated && now_ns < channel->gated_until_ns)
		next_ns = earlier(next_ns, channel->gated_until_ns);
	if (!channel->closing)
		return next_ns;
	if (!is_clean(engine, channel))
		return earlier(next_ns, now_ns + PEER_POLL_NS);
	channel->faulty = channel->closing = channel->gated = false;
	for_each_qp(engine, channel, nupa_retry_end);
	return next_ns;
}

static uint64_t run_stuck(struct nupa_engine *engine, uint64_t now_ns)
{
	struct nupa_faults *faults = engine->faults;
	uint64_t next_ns = UINT64_MAX;
	struct nupa_list *at = faults->stuck.next;

	while (at != &faults->stuck) {
		const struct nupa_qp_faults *stuck =
		    container_of(at, struct nupa_qp_faults, stuck_link);

		if (now_ns >= stuck->stuck_until_ns ||
		    !nupa_fault_is_on(engine, stuck->stuck_by, now_ns)) {
			nupa_fault_unstick(stuck->qp);
			nupa_requester_run(stuck->qp);
			at = faults->stuck.next; /* it may have had others with it */
			next_ns = UINT64_MAX;
			continue;
		}
		next_ns = earlier(next_ns, stuck->stuck_until_ns);
		at = at->next;
	}
	return next_ns;
}

/* Peers may let pass us what we hold of them as soon as they read this (I5). */
static void say_seen(struct nupa_engine *engine)
{
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		const struct nupa_channel *channel = engine->channels[peer];

		if (channel && !channel->broken && channel->closing &&
		    !nupa_list_empty(&channel->held))
			return;
	}
	if (nupa_load_relaxed(&engine->slot->fault_seen) != engine->fault_epoch_seen)
		nupa_store_release(&engine->slot->fault_seen, engine->fault_epoch_seen);
}

void nupa_fault_run(struct nupa_engine *engine)
{
	struct nupa_faults *faults = engine->faults;
	uint64_t now_ns = engine->now_ns(), next_ns;

	if (now_ns < faults->next_ns)
		return;
	faults->next_ns = UINT64_MAX; /* the functions below may bring it forward */
	next_ns = run_table(engine, now_ns);
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		struct nupa_channel *channel = engine->channels[peer];

		if (channel && channel->faulty && !channel->broken)
			next_ns = earlier(next_ns, run_channel(engine, channel, now_ns));
	}
	say_seen(engine);
	next_ns = earlier(next_ns, nupa_retry_run(engine, now_ns));
	next_ns = earlier(next_ns, run_stuck(engine, now_ns));
	faults->next_ns = earlier(faults->next_ns, next_ns);
	engine->fault_duty = faults->next_ns != UINT64_MAX;
}

uint64_t nupa_fault_next_timer_ns(const struct nupa_engine *engine)
{
	return engine->faults ? engine->faults->next_ns : UINT64_MAX;
}

void nupa_fault_free(struct nupa_engine *engine)
{
	free(engine->faults);
	engine->faults = NULL;
}
