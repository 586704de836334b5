/* SPDX-License-Identifier: BSD-3-Clause
 * Lanes: threads that share the engine's lock (lock.h L5), each with queue pairs and completion
 * queues that it alone uses.
 *
 *   T1  A thread in its lane executes WRITEs, READs and atomics on memory mapped here (express.h),
 *       and takes completions.  It changes its lane, its QPs, its CQs, and memory of programs.
 *   T2  Who needs more takes the lock, which waits for all lanes to be left.
 *   T3  Bytes and packets of a lane are told to the slot's flows by the port thread, within
 *       milliseconds. */
#ifndef NUPA_LANE_H
#define NUPA_LANE_H

#include "engine/core/engine.h"

struct nupa_lane_flow {
	uint64_t xmit_bytes, xmit_packets, rcv_bytes, rcv_packets;
};

struct nupa_lane {
	NUPA_LINE_ALIGNED const struct nupa_thread *thread;
	uint64_t *hazard;    /* in the slot */
	uint32_t idle_polls; /* its thread: empty ones in a row */
	NUPA_LINE_ALIGNED struct nupa_lane_flow flows[NUPA_HOSTS_MAX]; /* its thread, by host */
	struct nupa_lane_flow told[NUPA_HOSTS_MAX];                    /* of these; the teller */
};

/* A thread has executed requests of this QP that a lane may execute.  True: the lock is shared now,
 * and released. */
bool nupa_lane_vote(struct nupa_qp *qp);
/* Tells all that the lanes have moved.  With the lock, or as the port thread among its sharers. */
void nupa_lanes_tell(struct nupa_engine *engine);
/* In a child process: nobody has a place among the sharers there. */
void nupa_lanes_forget(struct nupa_engine *engine);
void nupa_lanes_free(struct nupa_engine *engine);

/* False: it is another thread's or of none, or the lock is not shared any more. */
static inline bool nupa_lane_enter(struct nupa_engine *engine, const struct nupa_lane *lane)
{
	return lane && nupa_load_relaxed(&lane->thread) == nupa_thread_self &&
	       nupa_lock_enter(&engine->lock);
}

#endif
