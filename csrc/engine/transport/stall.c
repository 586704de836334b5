/* SPDX-License-Identifier: BSD-3-Clause
 * A sender of UC or UD waits for room as long as its peer takes messages: a process that is slow or
 * without a CPU core loses nothing.  The wait ends if the kernel says that the peer is stopped, or
 * it takes nothing for PATIENCE_NS.  Until it takes a message again, messages without room are lost
 * at once.  An adapter would fill the receives of a stopped process, and lose later messages; here
 * the ring stands for the receives. */
#include "engine/transport/stall.h"

#include "engine/transport/sq.h"

#define PATIENCE_NS UINT64_C(1000000000)
/* Longer than a peer has patience with its program (backlog.c). */
#define BACKLOG_PATIENCE_NS UINT64_C(200000000)
/* No message waits longer than this, however slowly its peer goes on. */
#define WAIT_MAX_NS UINT64_C(2000000000)

#define LOOK_NS 1000000u

/* Asked of the kernel now and then: where the pid is one of this process's namespace. */
static bool is_stopped(struct nupa_channel *channel, uint64_t now_ns)
{
	if (channel->foreign ||
	    nupa_slot_elsewhere(channel->engine->fabric, nupa_slot_claim(channel->peer_slot)))
		return false;
	if (now_ns - channel->stop_looked_ns >= LOOK_NS) {
		channel->stop_looked_ns = now_ns;
		channel->stopped = nupa_process_stopped(channel->peer_pid);
	}
	return channel->stopped;
}

static bool moved_lately(struct nupa_channel *channel, struct nupa_stall *stall, uint64_t mark,
			 uint64_t now_ns, uint64_t patience_ns)
{
	if (!stall->since_ns || stall->mark != mark) {
		*stall = (struct nupa_stall){ .mark = mark, .since_ns = now_ns };
		channel->stopped = false; /* not just now */
		channel->stop_looked_ns = now_ns;
	}
	return now_ns - stall->since_ns < patience_ns;
}

/* How much longer a message may take than without faults: what holds it back on its way. */
static uint64_t slowest_ns(const struct nupa_engine *engine, uint64_t now_ns)
{
	uint64_t most_ns = 0;

	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		const struct nupa_fault_view *view = &engine->faults->views[i];
		uint64_t ns = 0, free_ns;

		if (view->id && view->kind >= NUPA_FAULT_REORDER &&
		    view->kind <= NUPA_FAULT_CORRUPT)
			ns = view->duration_ns;
		if (view->id && view->kind == NUPA_FAULT_BANDWIDTH) {
			free_ns = nupa_load_relaxed(&view->entry->free_at_ns);
			ns = free_ns > now_ns ? free_ns - now_ns : 0;
		}
		most_ns = ns > most_ns ? ns : most_ns;
	}
	return most_ns;
}

bool nupa_stall_waits(struct nupa_qp *qp, struct nupa_channel *channel, bool backlogged)
{
	struct nupa_engine *engine = qp->engine;
	uint64_t now_ns = engine->now_ns();
	uint64_t slow_ns = channel->faulty ? slowest_ns(engine, now_ns) : 0;
	bool moves;

	if (backlogged) {
		moves = moved_lately(channel, &channel->starved,
				     nupa_load_relaxed(&channel->peer_slot->backlog_moves), now_ns,
				     BACKLOG_PATIENCE_NS);
	} else {
		(void)nupa_tx_drained(&channel->tx);
		moves = moved_lately(channel, &channel->full, channel->tx.head_seen, now_ns,
				     PATIENCE_NS + slow_ns);
	}
	if (!qp->wait_deadline_ns)
		qp->wait_deadline_ns = now_ns + WAIT_MAX_NS + slow_ns;
	if (moves && now_ns < qp->wait_deadline_ns && !is_stopped(channel, now_ns)) {
		nupa_sq_wait(qp, NUPA_WAIT_RING, 0, 0);
		return true;
	}
	nupa_count(&engine->hw->tx_no_room, 1);
	return false;
}

bool nupa_stall_times_out(struct nupa_qp *qp)
{
	struct nupa_channel *channel = qp->channel;

	if (!qp->timeout_ns)
		return false;
	(void)nupa_tx_drained(&channel->tx);
	if (moved_lately(channel, &channel->full, channel->tx.head_seen, qp->engine->now_ns(),
			 qp->timeout_ns))
		return false;
	nupa_count(&qp->engine->hw->local_ack_timeout_err, 1);
	return true;
}
