/* SPDX-License-Identifier: BSD-3-Clause
 * The engine: one attachment of this process to one host of a fabric, with all its verbs objects.
 *
 *   I1  Everything in here is guarded by engine->lock, unless its comment says otherwise.  The lock
 *       is private to the process: no process can die and leave another one waiting.
 *   I2  The holder of the lock may run the engine (nupa_engine_progress): the thread that polls, or
 *       the port thread when no thread does. */
#ifndef NUPA_ENGINE_H
#define NUPA_ENGINE_H

#include "base/clock.h"
#include "base/hint.h"
#include "base/likely.h"
#include "base/lock.h"
#include "engine/core/objects.h"
#include "engine/promote/reach.h"
#include "segment/bell.h"
#include "segment/coherence.h"
#include "segment/gid.h"
#include "segment/resource/table.h"
#include "segment/slot/slot.h"
#include "region/pool.h"
#include "region/slot_life.h"

#include <linux/futex.h>
#include <sched.h>
#include <unistd.h>

/* Calls from a folder to one above it, with the engine's lock; attach.c sets them.  None is on the
 * data path without faults. */
struct nupa_engine_ops {
	/* Runs the engine once; returns how many messages were handled. */
	uint32_t (*progress)(struct nupa_engine *engine);
	/* Takes up to *budget* messages from one channel; returns how many. */
	uint32_t (*drain)(struct nupa_engine *engine, struct nupa_channel *channel,
			  uint32_t budget);
	/* Has one message handled; false: nonsense. */
	bool (*dispatch)(struct nupa_engine *engine, struct nupa_channel *channel,
			 struct nupa_msg *msg, const uint8_t *payload);
	/* A channel has been made: its faults are looked up, its peer's death is watched for. */
	void (*opened)(struct nupa_engine *engine, struct nupa_channel *channel);
	/* Ends a channel whose peer is dead, has left, or wrote nonsense. */
	void (*fail)(struct nupa_engine *engine, struct nupa_channel *channel);
	/* Whether there are wires at all. */
	bool (*carries_wires)(void);
	/* Sends what lies in rings to wires; the same if it is time to, after a post; the program
	 * does not poll any more; opens the ports of all wires, now and when there are more. */
	void (*wires_flush)(struct nupa_engine *engine);
	void (*wires_posted)(struct nupa_engine *engine, struct nupa_qp *qp);
	void (*wires_wake)(struct nupa_engine *engine);
	void (*meet_wires)(struct nupa_engine *engine);
	/* Sends a datagram of 256 bytes from QP 1 to the host of a wire, by its index; one that
	 * cannot leave is lost. */
	void (*send_mad)(struct nupa_engine *engine, uint32_t wire, uint16_t pkey,
			 const uint8_t *mad);
	/* A line tells the peer that the ring to it grows. */
	void (*grows)(struct nupa_engine *engine, const struct nupa_channel *channel,
		      const struct nupa_msg *line);
	/* Whether the producer's thread itself takes from this channel (nupa_net_runs). */
	bool (*net_runs)(const struct nupa_engine *engine, const struct nupa_channel *channel);
};

struct nupa_engine {
	/* Line 0: the lock and what every poll looks at. */
	NUPA_LINE_ALIGNED struct nupa_lock lock;
	uint32_t n_channels; /* entries of open[] */
	uint32_t n_hot;      /* the first of them, from which something came last: attention.h */
	uint32_t n_attended; /* those that a spinning program looks at */
	uint32_t next_cold;  /* where it looks next among those that are not hot */
	uint32_t next_cooled;
	uint64_t calls_seen;   /* nupa_engine_calls() */
	uint32_t polls;        /* counts polls: the port thread sees that a program polls */
	uint32_t polls_in_row; /* since a notification was asked for: a spinning program */
	bool streams;          /* this turn took many SENDs: they are acknowledged at its end */
	uint32_t idle_polls;   /* empty ones in a row */
	uint32_t turns;        /* since it was looked whether times have come, if any are awaited */
	uint32_t turns_a_look; /* so many until the next look (sq.c) */
	union {
		uint64_t duties; /* 0: a turn has none of these */
		struct {
			bool deaths;     /* set by the death watch, without the lock */
			bool broken;     /* there are broken channels to be swept */
			bool fault_duty; /* something is due because of faults: nupa_fault_run */
			bool cm_owes;    /* messages of the CM that found no room */
			bool cq_timers;  /* there are moderated CQs */
			bool wire_dirty; /* messages lie in rings to wires: ops->wires_flush */
		};
	};
	bool app_drives;     /* the port thread only supervises */
	bool spins;          /* the program polled often in the last millisecond */
	uint32_t late_key;   /* of a region that the port thread shares (mr_late.c); 0: none */
	uint32_t late_tries; /* left for that */
	bool held_back;      /* messages wait in their ring, because of a fault */
	bool membarrier;     /* this process takes part in global expedited barriers */
	bool polls_bell;  /* MACHINES: no futex wakes us; nor anything else, if it does not ring */
	bool rings;       /* it has a doorbell (bell.h), for itself and for ringing others */
	bool looks;       /* SOFTWARE: no notices of changes arrive; it looks (look.c) */
	bool fenced;      /* MACHINES: others declared us dead; the slot is not ours any more */
	bool apart;       /* nupa_engine_attach made it */
	bool keeps_wire;  /* of a keeper (csrc/wire): processes read what they write for its slot */
	bool forked;      /* a copy in a child process: nothing of it reaches the fabric */
	bool poisoned;    /* the message that is being handled is */
	bool has_wires;   /* as the table was when we looked */
	bool meets_wires; /* packets may come from any of them */
	struct nupa_wire *wires;        /* engine/wire; NULL: no port to one is open */
	uint32_t trace;                 /* NUPA_TRACE_WORD: what is recorded; 0: nothing */
	struct nupa_recorder *recorder; /* record.h; NULL: the program is not recorded */
	struct nupa_list ack_pending;   /* struct nupa_qp.ack_link */
	struct nupa_list waiting;       /* for events: struct nupa_qp.wait_link */
	struct nupa_heap timed, paced;  /* for times, and for rates: struct nupa_qp.wait_item */
	struct nupa_list reading;       /* struct nupa_qp.job_link */
	struct nupa_list backlogs;      /* struct nupa_backlog.link */
	uint64_t backlog_bytes;
	struct nupa_lane *lanes[NUPA_LANES_MAX]; /* lane.h; by the place of their thread */
	bool lanes_untold;                       /* they may have moved something */
	bool port_shares;                        /* the port thread has a place among them */

	struct nupa_fabric *fabric;
	uint32_t qpn_base; /* qpn.h: of our QPs */
	struct nupa_slot *slot;
	uint32_t *bell; /* the port thread waits here: slot->sleeping, or own_bell */
	uint32_t own_bell;
	uint32_t bell_fence; /* P3, rings: a word for a read-modify-write */
	uint32_t sleeps;     /* rings: how often the port thread slept */
	int bell_epoll;      /* rings: it sleeps here */
	int bell_wake;       /* rings: an eventfd by which this process wakes it */
	uint32_t slot_index;
	uint32_t epoch;
	uint64_t claim; /* of the slot, while it is ours */
	uint32_t host;
	uint32_t refs; /* open contexts; guarded by the registry's lock */
	enum nupa_mover forced_mover;
	uint32_t port_epoch_seen;
	uint64_t looked_at_ns; /* when `turns` was 0 */
	uint64_t looked_ns;    /* SOFTWARE: when it looked around last (look.c) */
	uint8_t port_state_seen;
	uint16_t pkeys_seen[NUPA_PKEYS_MAX]; /* the host's P_Key table */
	uint32_t link_downed_seen;
	uint8_t *arena;
	struct nupa_qp_entry *qp_entries;
	struct nupa_mr_entry *mr_entries;
	struct nupa_resource_table resources;
	struct nupa_flow *flows;
	struct nupa_hw_counters *hw; /* with the lock: nupa_count(&engine->hw->rx_invalid, 1) */
	struct nupa_faults *faults;  /* fault_view.c; NULL: there never was one */
	uint32_t fault_epoch_seen;
	struct nupa_rates *rates; /* engine/rate; NULL: there never was one */
	uint32_t rate_epoch_seen;
	struct nupa_channel *open[NUPA_SLOTS_MAX];     /* those with traffic, n_channels of them */
	struct nupa_channel *channels[NUPA_SLOTS_MAX]; /* by peer slot */
	struct nupa_qp **qps; /* by index; qp_entries of them, mapped lazily */
	struct nupa_mr **mrs; /* by index */
	uint32_t qps_used, mrs_used;
	uint32_t qp_limit,
	    mr_limit; /* entries that are backed; the slot's are for others to read */
	struct nupa_list contexts;
	struct nupa_list closed; /* struct nupa_context.link: objects of theirs are left */
	struct nupa_list pds;
	struct nupa_list cqs;
	struct nupa_trace_header *tracer; /* our ring of records; NULL: it has no memory yet */
	uint32_t trace_records;           /* how many were written */
	uint32_t foreign_regions;         /* over pool memory of exporters */
	uint32_t dmabufs;                 /* regions of dma-bufs */
	uint32_t pds_made, pd_rounds;     /* numbers given out; how often they began anew */
	struct nupa_cm *cm;               /* connection management; NULL until it is used */
	uint64_t cm_timer_ns; /* when its timers run, 0: never; set with the lock, read without */
	struct nupa_xrc *xrc; /* NULL until an XRC object is made */
	struct nupa_list moderated; /* struct nupa_cq.moderate_link */
	struct nupa_mcast *mcast;   /* NULL until a QP attaches or sends to a group */
	struct nupa_net *net;       /* a queue of a network interface; NULL: it is none */
	uint64_t probe_value;       /* slot->probe_addr points at it */
	uint32_t objects;           /* handles given out */

	struct nupa_injector *injector; /* its packets enter here; NULL: none */

	/* Threads. */
	pthread_t port_thread, watch_thread;
	bool stop;
	bool watch_polls; /* no pidfds here: the watch looks by time */
	bool watch_lives; /* at the peers' proofs of life alone: there are more than it watches */
	uint32_t n_watched;
	uint32_t silences; /* nupa_beat_look(): of the thread that beats */
	int watch_epoll;   /* pidfds of the peers */
	int watch_wake;    /* eventfd */
	int life_fd;       /* closes with this process, or when it runs another program */
	struct robust_list_head life_head; /* of the watch thread */
	struct robust_list life_entry;
	bool life_begun;
	uint64_t (*now_ns)(void);
	uint32_t (*random)(void); /* where numbers must not be guessed: of fabrics with wires */

	const struct nupa_engine_ops *ops;
	struct nupa_engine *next;        /* registry of this process */
	struct nupa_engine *fenced_next; /* of one mapping, while they are fenced (death.c) */
};

static inline struct nupa_engine *nupa_engine_of(const struct ibv_context *context)
{
	return container_of(context, const struct nupa_context, ibv.context)->engine;
}

/* Numbers that resources show; 0: none. */
static inline uint32_t nupa_context_number(const struct ibv_context *context)
{
	return nupa_resource_number(
	    &nupa_engine_of(context)->resources,
	    container_of(context, const struct nupa_context, ibv.context)->resource);
}

static inline uint32_t nupa_cq_number(const struct nupa_cq *cq)
{
	return cq ? nupa_resource_number(&nupa_engine_of(cq->ibv.context)->resources, cq->resource)
		  : 0;
}

/* A child's, of what its parent had when it forked. */
static inline bool nupa_engine_is_copy(const struct nupa_engine *engine)
{
	return engine->forked && !nupa_load_relaxed(&engine->fenced);
}

static inline void nupa_engine_lock(struct nupa_engine *engine)
{
	nupa_lock_acquire(&engine->lock);
}

static inline void nupa_engine_unlock(struct nupa_engine *engine)
{
	nupa_lock_release(&engine->lock);
}

/* Others declared us dead and gave our slot away: what it published may be gone, keys too. */
static inline bool nupa_engine_disowned(const struct nupa_engine *engine)
{
	return engine->polls_bell && nupa_slot_claim(engine->slot) != engine->claim;
}

/* GIDs that are there: the first ones of the table. */
static inline int nupa_gid_count(const struct nupa_engine *engine)
{
	return (int)nupa_host_gids(engine->fabric, engine->host);
}

#endif
