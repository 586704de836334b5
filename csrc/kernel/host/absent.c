// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Parts of the engine that a kernel attachment does not have: faults, rates, wires, injected
 * packets, records, doorbells, regions of the pool, memory that is not coherent.  docs/kernel.md
 * says what follows.
 */
#include "base/rlimit.h"
#include "engine/attachment/attachment.h"
#include "engine/cm/hooks.h"
#include "engine/fault/fault_internal.h"
#include "engine/inject/inject_engine.h"
#include "engine/net/net_internal.h"
#include "engine/qp/verbs.h"
#include "engine/rate/rate.h"
#include "engine/wire/wire.h"
#include "region/region_internal.h"

/* --- memory that is not coherent --------------------------------------------------------- */

const struct nupa_coherence *nupa_coherence;

bool nupa_coherence_possible(void)
{
	return false;
}

/* --- faults ------------------------------------------------------------------------------ */

void nupa_fault_look(struct nupa_engine *engine, struct nupa_channel *channel)
{
}

void nupa_fault_follow(struct nupa_engine *engine)
{
}

void nupa_fault_free(struct nupa_engine *engine)
{
}

void nupa_fault_free_held(struct nupa_channel *channel)
{
}

void nupa_fault_run(struct nupa_engine *engine)
{
}

uint64_t nupa_fault_next_timer_ns(const struct nupa_engine *engine)
{
	return UINT64_MAX;
}

bool nupa_fault_blocks(struct nupa_engine *engine, struct nupa_channel *channel)
{
	return false;
}

bool nupa_fault_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_msg *msg, const uint8_t *payload)
{
	return true;
}

/* --- rates ------------------------------------------------------------------------------- */

bool nupa_rate_follow(struct nupa_engine *engine)
{
	return false;
}

void nupa_rate_say_seen(struct nupa_engine *engine)
{
}

void nupa_rate_free(struct nupa_engine *engine)
{
}

void nupa_pace_find(const struct nupa_engine *engine, uint32_t host, uint16_t pkey,
		    struct nupa_pace *pace)
{
	pace->n = 0;
}

uint64_t nupa_pace_due_ns(struct nupa_pace *pace, uint64_t bytes, uint64_t now_ns)
{
	return 0;
}

void nupa_pace_keep(struct nupa_pace *pace, uint64_t bytes)
{
}

int nupa_rate_set(struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant, uint32_t host,
		  uint32_t pkey, uint64_t bytes_per_s, char *why, size_t why_bytes)
{
	return -EOPNOTSUPP;
}

/* --- wires ------------------------------------------------------------------------------- */

bool nupa_wires_carried(void)
{
	return false;
}

void nupa_wire_opened(struct nupa_engine *engine, struct nupa_channel *channel)
{
}

void nupa_wire_closed(struct nupa_engine *engine, const struct nupa_channel *channel)
{
}

void nupa_wires_follow(struct nupa_engine *engine)
{
}

void nupa_wires_meet(struct nupa_engine *engine)
{
}

uint32_t nupa_wires_run(struct nupa_engine *engine)
{
	return 0;
}

void nupa_wires_flush(struct nupa_engine *engine)
{
}

void nupa_wires_posted(struct nupa_engine *engine, struct nupa_qp *qp)
{
}

void nupa_wire_send_mad(struct nupa_engine *engine, uint32_t index, uint16_t pkey,
			const uint8_t *mad)
{
}

void nupa_wires_wake(struct nupa_engine *engine)
{
}

void nupa_wires_stop(struct nupa_engine *engine)
{
}

/* --- injected packets: dropped ------------------------------------------------------------- */

bool nupa_inject_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			 const struct nupa_msg *msg, const uint8_t *payload)
{
	return true;
}

bool nupa_inject_verdict(struct nupa_engine *engine, const struct nupa_channel *channel,
			 const struct nupa_msg *msg)
{
	return true;
}

void nupa_inject_lose_peer(struct nupa_injector *injector, uint32_t peer)
{
}

/* --- records ------------------------------------------------------------------------------- */

struct nupa_recorder *nupa_recorder_open(const struct nupa_engine *engine)
{
	return NULL;
}

void nupa_recorder_close(struct nupa_recorder *recorder, bool copy)
{
}

uint64_t nupa_record_posting(const struct nupa_qp *qp, uint32_t bytes)
{
	return 0;
}

void nupa_record_posted(struct nupa_qp *qp, uint64_t begun_ticks, const struct ibv_send_wr *wr,
			const struct ibv_send_wr *end)
{
}

void nupa_record_made(const struct nupa_recorder *recorder, struct nupa_cqe *cqe)
{
}

void nupa_record_taken(struct nupa_recorder *recorder, const struct nupa_cq *cq, uint64_t first)
{
}

void nupa_record_wait(struct nupa_recorder *recorder, bool polls)
{
}

void nupa_record_qp(const struct nupa_qp *qp)
{
}

/* --- doorbells: a kernel attachment polls -------------------------------------------------- */

void nupa_bell_attach(struct nupa_engine *engine)
{
}

void nupa_bell_detach(struct nupa_engine *engine)
{
}

void nupa_bell_call(struct nupa_engine *engine, const struct nupa_slot *slot, uint32_t *rung)
{
}

void nupa_bell_close(struct nupa_bell *bell)
{
}

uint32_t nupa_bell_number(const struct nupa_fabric *fabric)
{
	return 0;
}

void nupa_bell_ring_slot(struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
}

/* --- rates of frames -------------------------------------------------------------------- */

bool nupa_net_may_go(struct nupa_net *net, uint32_t host, uint32_t frame_bytes)
{
	return true;
}

void nupa_net_charge(struct nupa_net *net, uint32_t host, uint32_t frame_bytes)
{
}

bool nupa_net_is_rated(struct nupa_net *net, uint32_t host)
{
	return false;
}

/* --- windows on regions of the pool: of processes ------------------------------------------- */

uint32_t nupa_region_windows(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id)
{
	return 0;
}

void nupa_region_reap_windows(struct nupa_fabric *fabric, const struct nupa_regions *t)
{
}

/* --- extended QPs, and forks ----------------------------------------------------------------- */

int nupa_qp_ex_init(struct nupa_qp *qp, uint64_t send_ops_flags)
{
	return EOPNOTSUPP;
}

void nupa_fork_prepare(void)
{
}

void nupa_limit_address_space(uint64_t bytes)
{
}
