/* SPDX-License-Identifier: BSD-3-Clause
 * Attachments of this process: which hosts of which fabrics it is on. */
#define _GNU_SOURCE
#include "base/explain.h"
#include "base/rlimit.h"
#include "engine/attachment/attachment.h"
#include "engine/fault/fault_internal.h"
#include "engine/rate/rate.h"
#include "engine/net/net.h"
#include "engine/qp/verbs.h"
#include "engine/cm/hooks.h"
#include "engine/core/lane.h"
#include "engine/wire/wire.h"
#include "segment/control/admit.h"
#include "segment/control/pkey.h"
#include "segment/control/quota.h"
#include "segment/layout/geometry.h"
#include "segment/slot/machine.h"
#include "segment/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define FIRST_QPS 256u /* table entries backed at attach: they grow by doubling */
#define FIRST_MRS 256u

/* --- slots --------------------------------------------------------------------------- */

static uint32_t attachments_of_host(const struct nupa_fabric *fabric, uint32_t host)
{
	uint32_t n = 0;

	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		uint64_t claim = nupa_slot_fetch(fabric, slot);

		n += NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
		     nupa_load_relaxed(&fabric->slots[slot].host) == host;
	}
	return n;
}

uint32_t nupa_quietest_host(const struct nupa_fabric *fabric)
{
	uint32_t best = 0, best_n = UINT32_MAX;

	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		uint32_t n = attachments_of_host(fabric, host);

		if (n < best_n && nupa_host_state_of(fabric, host) == NUPA_HOST_READY &&
		    nupa_wire_of_host(fabric, host) < 0 && !nupa_host_trunked(fabric, host)) {
			best = host;
			best_n = n;
		}
	}
	return best;
}

/* Fills the slot while it is ATTACHING: no other process looks at it. */
static int prepare_slot(struct nupa_engine *engine)
{
	struct nupa_fabric *fabric = engine->fabric;
	struct nupa_slot *slot = engine->slot;
	struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	uint64_t arena_off = nupa_arena_offset(fabric, engine->slot_index);
	uint32_t qps =
	    FIRST_QPS < fabric->geometry.qp_entries ? FIRST_QPS : fabric->geometry.qp_entries;
	uint32_t mrs =
	    FIRST_MRS < fabric->geometry.mr_entries ? FIRST_MRS : fabric->geometry.mr_entries;
	int error;

	nupa_store_relaxed(&slot->qp_limit, 0); /* a trunk looks at those of free slots, too */
	slot->mr_limit = 0;
	slot->pool_regions = 0;
	slot->needs_fence = 1; /* until nupa_port_start knows better */
	slot->shared_fd = 0;
	slot->trace_seen = slot->fault_seen = slot->rate_seen = 0;
	slot->sleeping = 0;
	nupa_store_relaxed(&slot->heartbeat, 0); /* others listen already */
	slot->doorbell = engine->rings ? nupa_bell_number(fabric) : 0;
	slot->asleep = 0;
	slot->hazard = 0;
	nupa_store_relaxed(&slot->gsi_qpn, 0);
	slot->n_lanes = 0;
	memset(slot->lanes, 0, sizeof(slot->lanes));
	nupa_contacts_clear(fabric, engine->slot_index);
	nupa_attention_begin(slot);
	slot->probe_addr = (uintptr_t)&engine->probe_value;
	slot->probe_value = engine->probe_value;
	/* The flows, and the hw counters behind them. */
	error = nupa_fabric_back(fabric, arena_off + map.flows_off, map.qps_off - map.flows_off);
	if (!error)
		error = nupa_fabric_back(fabric, arena_off + map.qps_off,
					 qps * sizeof(struct nupa_qp_entry));
	if (!error)
		error = nupa_fabric_back(fabric, arena_off + map.mrs_off,
					 mrs * sizeof(struct nupa_mr_entry));
	if (error)
		return error;
	engine->arena = nupa_fabric_arena(fabric, engine->slot_index);
	if (!engine->arena)
		return -errno;
	engine->flows = (struct nupa_flow *)(void *)(engine->arena + map.flows_off);
	engine->hw = (struct nupa_hw_counters *)(void *)(engine->arena + map.hw_off);
	engine->qp_entries = (struct nupa_qp_entry *)(void *)(engine->arena + map.qps_off);
	engine->mr_entries = (struct nupa_mr_entry *)(void *)(engine->arena + map.mrs_off);
	error = nupa_resource_begin(&engine->resources, fabric, engine->slot_index, engine->arena);
	if (error)
		return error;
	engine->qp_limit = qps;
	nupa_store_relaxed(&slot->qp_limit, qps);
	slot->mr_limit = engine->mr_limit = mrs;
	return 0;
}

/* --- engines ------------------------------------------------------------------------- */

static void channel_free(struct nupa_channel *channel)
{
	if (channel->pidfd >= 0)
		close(channel->pidfd);
	if (channel->life_fd >= 0)
		close(channel->life_fd);
	nupa_window_forget(channel);
	nupa_fault_free_held(channel);
	for (struct nupa_list *link; (link = nupa_list_pop(&channel->refusals));)
		free(container_of(link, struct nupa_refusal, link));
	free(channel);
}

void nupa_context_free(struct nupa_context *context)
{
	pthread_mutex_destroy(&context->events_mutex);
	pthread_cond_destroy(&context->events_acked);
	free(context);
}

static void engine_free(struct nupa_engine *engine)
{
	const struct nupa_superblock *geometry = &engine->fabric->geometry;

	for (uint32_t peer = 0; peer < NUPA_SLOTS_MAX; peer++) {
		struct nupa_channel *channel = engine->channels[peer];

		while (channel) {
			struct nupa_channel *older = channel->older;

			channel_free(channel);
			channel = older;
		}
	}
	nupa_cm_free(engine);
	nupa_fault_free(engine);
	nupa_rate_free(engine);
	nupa_lanes_free(engine);
	nupa_recorder_close(engine->recorder, true); /* an attachment that was not made */
	for (struct nupa_list *link; (link = nupa_list_pop(&engine->closed));)
		nupa_context_free(container_of(link, struct nupa_context, link));
	if (engine->qps)
		munmap(engine->qps, geometry->qp_entries * sizeof(*engine->qps));
	if (engine->mrs)
		munmap(engine->mrs, geometry->mr_entries * sizeof(*engine->mrs));
	nupa_xrc_free(engine);
	nupa_mcast_free(engine);
	nupa_bell_detach(engine);
	nupa_fabric_put(engine->fabric);
	free(engine);
}

static void channel_opened(struct nupa_engine *engine, struct nupa_channel *channel)
{
	nupa_fault_look(engine, channel);
	if (channel->wired)
		nupa_wire_opened(engine, channel);
	nupa_port_watch(engine, channel);
}

static void channel_grows(struct nupa_engine *engine, const struct nupa_channel *channel,
			  const struct nupa_msg *line)
{
	if (engine->trace & NUPA_TRACE_MOVES)
		nupa_trace_send(engine, channel, line);
}

static const struct nupa_engine_ops ops = {
	.progress = nupa_engine_progress,
	.drain = nupa_engine_drain,
	.dispatch = nupa_engine_dispatch,
	.opened = channel_opened,
	.fail = nupa_channel_fail,
	.grows = channel_grows,
	.net_runs = nupa_net_runs,
	.carries_wires = nupa_wires_carried,
	.wires_flush = nupa_wires_flush,
	.wires_posted = nupa_wires_posted,
	.wires_wake = nupa_wires_wake,
	.meet_wires = nupa_wires_meet,
	.send_mad = nupa_wire_send_mad,
};

static struct nupa_engine *free_failed(struct nupa_engine *engine, int error)
{
	engine_free(engine);
	errno = error;
	return NULL;
}

static uint32_t random_word(void)
{
	uint32_t word = 0;

	/* 4 bytes are never cut short; without the call the numbers go round as elsewhere. */
	return getrandom(&word, sizeof(word), 0) == (ssize_t)sizeof(word) ? word : 0;
}

static struct nupa_engine *engine_alloc(struct nupa_fabric *fabric, uint32_t host,
					enum nupa_mover mover)
{
	size_t bytes = (sizeof(struct nupa_engine) + 63) & ~(size_t)63;
	struct nupa_engine *engine = aligned_alloc(NUPA_CACHE_LINE_BYTES, bytes);

	if (!engine)
		return NULL;
	memset(engine, 0, bytes);
	engine->fabric = nupa_fabric_get(fabric);
	engine->host = host;
	engine->forced_mover = mover;
	engine->now_ns = nupa_clock_ns;
	engine->random = random_word;
	engine->ops = &ops;
	nupa_lock_init(&engine->lock);
	nupa_list_init(&engine->ack_pending);
	nupa_list_init(&engine->waiting);
	nupa_list_init(&engine->reading);
	nupa_list_init(&engine->backlogs);
	nupa_list_init(&engine->contexts);
	nupa_list_init(&engine->closed);
	nupa_list_init(&engine->moderated);
	nupa_list_init(&engine->pds);
	nupa_list_init(&engine->cqs);
	engine->port_epoch_seen = nupa_load_acquire(fabric->port_epoch);
	engine->link_downed_seen =
	    nupa_load_acquire(&fabric->ports[fabric->hosts[host].port].link_downed);
	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
		engine->pkeys_seen[i] = nupa_pkey_at(fabric, host, i);
	engine->port_state_seen =
	    (uint8_t)nupa_load_relaxed(&fabric->ports[fabric->hosts[host].port].state);
	engine->qps = nupa_queue_map(fabric->geometry.qp_entries * sizeof(*engine->qps));
	engine->mrs = nupa_queue_map(fabric->geometry.mr_entries * sizeof(*engine->mrs));
	if (!engine->qps || !engine->mrs)
		return free_failed(engine, ENOMEM);
	return engine;
}

/* A free slot, or one whose owner is dead.  Whether those of other kernels are takes
 * NUPA_BEATS_MISSED looks to tell. */
static int claim_slot(struct nupa_engine *engine)
{
	const struct timespec pause = { .tv_nsec = NUPA_BEAT_MS * 1000000L };
	struct nupa_fabric *fabric = engine->fabric;
	uint32_t looks = nupa_fabric_machines(fabric) ? NUPA_BEATS_MISSED + 2 : 0;

	for (;;) {
		int error = nupa_fabric_claim_slot(fabric, engine->host, &engine->slot_index);

		if (error != -EBUSY || (nupa_fabric_reap(fabric) == 0 && looks-- == 0))
			return error;
		if (nupa_fabric_machines(fabric)) {
			nupa_beat_look(fabric, nupa_clock_ns(), &engine->silences);
			nanosleep(&pause, NULL);
		}
	}
}

/* claim_slot() for a host that is ready; a positive errno otherwise, and why. */
static int enter_fabric(struct nupa_engine *engine, char *why, size_t why_bytes)
{
	struct nupa_fabric *fabric = engine->fabric;
	const uint32_t host = engine->host;
	char users[192];
	int error = nupa_host_admits(fabric, host, why, why_bytes);

	if (error)
		return -error;
	error = claim_slot(engine);
	if (error == -ESTALE) {
		snprintf(why, why_bytes,
			 "this process was stopped for so long that others on fabric %s "
			 "declared it dead: start it again",
			 nupa_fabric_name(fabric));
		return ENODEV;
	}
	if (error == -EXDEV || error == -EADDRINUSE) {
		snprintf(why, why_bytes,
			 error == -EXDEV
			     ? "fabric %s is in memory that is not coherent: a process is on one "
			       "host of it, and this one is on another than host %u already"
			     : "fabric %s: host %u is in use under another kernel, and memory that "
			       "is not coherent has room for one a host: choose another host",
			 nupa_fabric_name(fabric), host);
		return -error;
	}
	if (error) {
		snprintf(why, why_bytes,
			 "all %u attachments of fabric %s are in use, by %s: end a process%s",
			 fabric->geometry.n_slots - 1, nupa_fabric_name(fabric),
			 nupa_slots_named(fabric, users, sizeof(users)),
			 fabric->geometry.n_slots < NUPA_SLOTS_MAX ? ", or make it with more slots"
								   : "");
		return EUSERS;
	}
	if (nupa_quota_take(fabric, engine->slot_index, NUPA_QUOTA_ATTACHMENTS, 1)) {
		snprintf(why, why_bytes,
			 "host %s has no attachment left of its tenant's quota: end a process of "
			 "the tenant, or have the quota raised",
			 nupa_fabric_host(fabric, host)->name);
		nupa_fabric_free_slot(fabric, engine->slot_index);
		return EDQUOT;
	}
	/* Again: `nupa host drain --wait` stores the state, then looks for claims. */
	error = nupa_host_admits(fabric, host, why, why_bytes);
	if (error)
		nupa_fabric_free_slot(fabric, engine->slot_index);
	return -error;
}

static struct nupa_engine *engine_new(struct nupa_fabric *fabric, uint32_t host,
				      enum nupa_mover mover, char *why, size_t why_bytes)
{
	struct nupa_engine *engine = engine_alloc(fabric, host, mover);
	int error;

	if (!engine) {
		nupa_limit_address_space(2 * fabric->geometry.arena_bytes);
		snprintf(why, why_bytes, "no memory for an attachment");
		return NULL;
	}
	if (getrandom(&engine->probe_value, sizeof(engine->probe_value), 0) !=
	    (ssize_t)sizeof(engine->probe_value)) {
		error = errno;
		snprintf(why, why_bytes, "cannot attach to fabric %s: getrandom: %s%s",
			 nupa_fabric_name(fabric), strerror(error), nupa_remedy(error));
		return free_failed(engine, error);
	}
	error = enter_fabric(engine, why, why_bytes);
	if (error)
		return free_failed(engine, error);
	engine->slot = &fabric->slots[engine->slot_index];
	engine->qpn_base = nupa_qpn(&fabric->geometry, engine->slot_index, 0);
	engine->epoch = NUPA_CLAIM_EPOCH(nupa_slot_claim(engine->slot));
	engine->claim = NUPA_CLAIM(nupa_fabric_owner(fabric), engine->epoch, NUPA_SLOT_LIVE);
	engine->polls_bell = nupa_fabric_machines(fabric);
	engine->looks = nupa_fabric_incoherent(fabric);
	engine->bell = engine->polls_bell ? &engine->own_bell : &engine->slot->sleeping;
	if (!engine->looks) /* sleepers would have to be fetched with each message */
		nupa_bell_attach(engine);
	error = prepare_slot(engine);
	if (!error) {
		/* Yama's ptrace_scope 1 lets only parents in; peers of the same user are what CMA
		 * is for. */
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		nupa_trace_follow(engine); /* before anything happens */
		engine->recorder = nupa_recorder_open(engine);
		nupa_fault_follow(engine);
		nupa_wires_follow(engine);
		nupa_pace_follow(engine);
		nupa_store_release(&engine->slot->claim, engine->claim);
		nupa_slot_flush(fabric, engine->slot_index);
		error = nupa_port_start(engine);
	}
	if (!error)
		nupa_trunk_settle(fabric); /* peers may hear of our QPs by other ways */
	if (error) {
		snprintf(why, why_bytes, "cannot attach to fabric %s: %s%s",
			 nupa_fabric_name(fabric), strerror(-error),
			 error == -ENOSPC ? "; free some of /dev/shm" : nupa_remedy(-error));
		nupa_fabric_free_slot(fabric, engine->slot_index);
		errno = -error;
		nupa_limit_address_space(2 * fabric->geometry.arena_bytes);
		return free_failed(engine, -error);
	}
	return engine;
}

static void engine_unlink(struct nupa_engine *engine)
{
	struct nupa_engine **at = &nupa_engines;

	while (*at != engine)
		at = &(*at)->next;
	nupa_store_release(at, engine->next);
}

/* A program that ends without closing anything. */
__attribute__((destructor)) static void leave_at_exit(void)
{
	nupa_registry_lock();
	while (nupa_engines) {
		struct nupa_engine *engine = nupa_engines;

		engine_unlink(engine);
		nupa_engine_leave(engine); /* not freed: other threads may still be in it */
	}
	nupa_registry_unlock();
}

static void engine_link(struct nupa_engine *engine)
{
	engine->refs = 1;
	engine->next = nupa_engines;
	nupa_store_release(&nupa_engines, engine);
}

struct nupa_engine *nupa_engine_get(struct nupa_fabric *fabric, int host, enum nupa_mover mover,
				    char *why, size_t why_bytes)
{
	struct nupa_engine *engine;

	for (engine = nupa_engines; engine; engine = engine->next) {
		if (!engine->apart && !nupa_load_relaxed(&engine->fenced) &&
		    engine->fabric->geometry.generation == fabric->geometry.generation &&
		    (host < 0 || engine->host == (uint32_t)host) && engine->forced_mover == mover &&
		    nupa_host_keeps(fabric, engine->host)) {
			engine->refs++;
			return engine;
		}
	}
	engine = engine_new(fabric, host < 0 ? nupa_quietest_host(fabric) : (uint32_t)host, mover,
			    why, why_bytes);
	if (!engine)
		return NULL;
	engine_link(engine);
	return engine;
}

void nupa_engine_put(struct nupa_engine *engine)
{
	if (--engine->refs || nupa_engine_is_copy(engine))
		return;
	engine_unlink(engine);
	while (nupa_load_seq(&nupa_engines_readers))
		sched_yield();
	nupa_engine_leave(engine);
	engine_free(engine);
}

struct nupa_engine *nupa_engine_attach(struct nupa_fabric *fabric, uint32_t host, char *why,
				       size_t why_bytes)
{
	struct nupa_engine *engine;

	nupa_fork_prepare();
	nupa_guard_install();
	nupa_registry_lock();
	engine = engine_new(fabric, host, NUPA_MOVER_NONE, why, why_bytes);
	if (engine) {
		engine->apart = true;
		engine_link(engine);
	}
	nupa_registry_unlock();
	return engine;
}

void nupa_engine_detach(struct nupa_engine *engine)
{
	nupa_registry_lock();
	nupa_engine_put(engine);
	nupa_registry_unlock();
}
