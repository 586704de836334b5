/* SPDX-License-Identifier: BSD-3-Clause
 * The engine: one attachment of this process to one host of a fabric, with all its verbs objects.
 *
 *   I1  Everything in here is guarded by engine->lock, but for what says otherwise.  The lock is
 *       private to the process: no process can die and leave another one waiting.
 *   I2  Whoever holds the lock may run the engine (nupa_engine_progress): the thread that polls,
 *       or the port thread when nobody does. */
#ifndef NUPA_ENGINE_H
#define NUPA_ENGINE_H

#include "engine/segment/bell.h"
#include "engine/device/cm_hooks.h"
#include "engine/segment/coherence.h"
#include "base/lock.h"
#include "engine/core/objects.h"
#include "engine/promote/reach.h"
#include "engine/segment/segment_internal.h"
#include "engine/trace/trace.h"

#include <linux/futex.h>
#include <sched.h>
#include <unistd.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* --- the engine ---------------------------------------------------------------------- */
struct nupa_engine {
	/* Line 0: the lock and what every poll looks at. */
	NUPA_LINE_ALIGNED struct nupa_lock lock;
	uint32_t n_channels; /* entries of open[] */
	uint32_t contact_epoch_seen;
	uint32_t polls;        /* counts polls: the port thread sees that somebody drives */
	uint32_t polls_in_row; /* since a notification was asked for: a spinning program */
	uint32_t idle_polls;   /* empty ones in a row */
	bool app_drives;       /* the port thread only supervises */
	bool held_back;        /* what comes waits in its ring, because of a fault */
	bool deaths;           /* set by the death watch, without the lock */
	bool broken;           /* there are broken channels to be swept */
	bool membarrier;       /* this process takes part in global expedited barriers */
	bool polls_bell; /* MACHINES: no futex wakes us; nor anything else, if it does not ring */
	bool rings;      /* it has a doorbell (bell.h), for itself and for ringing others */
	bool looks;      /* SOFTWARE: nobody tells it of changes, it looks (look.c) */
	bool fenced;     /* MACHINES: others took us for dead; the slot is not ours any more */
	bool apart;      /* nupa_engine_attach made it */
	bool forked;     /* a copy in a child process: nothing of it reaches the fabric */
	bool fault_duty; /* something is due because of faults: nupa_fault_run */
	bool poisoned;   /* the message that is being handled is */
	uint32_t trace;  /* NUPA_TRACE_WORD: what is recorded; 0: nothing */
	struct nupa_list ack_pending; /* struct nupa_qp.ack_link */
	struct nupa_list waiting;     /* struct nupa_qp.wait_link */
	struct nupa_list reading;     /* struct nupa_qp.job_link */
	struct nupa_list backlogs;    /* struct nupa_backlog.link */
	uint64_t backlog_bytes;

	struct nupa_fabric *fabric;
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
	uint64_t looked_ns; /* SOFTWARE: when it looked around last (look.c) */
	uint8_t port_state_seen;
	uint32_t link_downed_seen;
	uint8_t *arena;
	struct nupa_qp_entry *qp_entries;
	struct nupa_mr_entry *mr_entries;
	struct nupa_flow *flows;
	struct nupa_hw_counters *hw; /* with the lock: nupa_count(&engine->hw->rx_invalid, 1) */
	struct nupa_faults *faults;  /* fault_view.c; NULL: there never was one */
	uint32_t fault_epoch_seen;
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
	uint32_t pds_made, pd_rounds;     /* numbers given out; how often they began anew */
	struct nupa_cm *cm;               /* connection management; NULL until it is used */
	uint64_t cm_timer_ns; /* when its timers run, 0: never; set with the lock, read without */
	struct nupa_xrc *xrc; /* NULL until an XRC object is made */
	struct nupa_list moderated; /* struct nupa_cq.moderate_link */
	bool cq_timers;             /* there are such */
	bool cm_owes;               /* messages that found no room */
	struct nupa_mcast *mcast;   /* NULL until somebody attaches or sends to a group */
	struct nupa_net *net;       /* a queue of a network interface; NULL: it is none */
	uint64_t probe_value;       /* what slot->probe_addr points at */
	uint32_t objects;           /* handles given out */

	struct nupa_injector *injector; /* whose packets enter here; NULL: nobody's */

	/* Threads. */
	pthread_t port_thread, watch_thread;
	bool stop;
	bool watch_polls; /* no pidfds here: the watch looks by time */
	int watch_epoll;  /* pidfds of the peers */
	int watch_wake;   /* eventfd */
	int life_fd;      /* closes with this process, or when it runs another program */
	struct robust_list_head life_head; /* of the watch thread */
	struct robust_list life_entry;
	bool life_begun;
	uint64_t (*now_ns)(void);

	struct nupa_engine *next; /* registry of this process */
};

static inline struct nupa_engine *nupa_engine_of(const struct ibv_context *context)
{
	return container_of(context, const struct nupa_context, ibv.context)->engine;
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

/* attach.c */
extern struct nupa_engine *nupa_engines; /* of this process; changes under the registry's lock */
extern uint32_t nupa_engines_readers;    /* threads that walk the list without it */
void nupa_registry_lock(void);
void nupa_registry_unlock(void);
void nupa_registry_init(void);
void nupa_device_list_forget(void);
/* The device of an imported context: the one of the list, which it becomes where that is empty. */
struct ibv_device *nupa_device_adopt(struct nupa_fabric *fabric, uint32_t host);
uint32_t nupa_quietest_host(const struct nupa_fabric *fabric); /* fewest live attachments */

/* An attachment of its own, in which no device is opened, and its end. */
struct nupa_engine *nupa_engine_attach(struct nupa_fabric *fabric, uint32_t host, char *why,
				       size_t why_bytes);
void nupa_engine_detach(struct nupa_engine *engine);

/* fork.c: from now on forks are noticed, and counted. */
extern uint32_t nupa_forks;
void nupa_fork_prepare(void);

/* life.c */
int nupa_life_open(struct nupa_engine *engine);   /* 0 or -errno */
void nupa_life_begin(struct nupa_engine *engine); /* in the thread that answers for the process */
void nupa_life_end(struct nupa_engine *engine);   /* in the same */
void nupa_life_await(const struct nupa_engine *engine); /* until it has begun */
bool nupa_life_watch(struct nupa_engine *engine, struct nupa_channel *channel);

/* port.c */
int nupa_port_start(struct nupa_engine *engine);
void nupa_port_stop(struct nupa_engine *engine);
void nupa_port_wake(struct nupa_engine *engine); /* our own port thread, if it sleeps */
/* A peer's, whatever its doorbell says. */
void nupa_port_knock(struct nupa_engine *engine, struct nupa_slot *slot);
void nupa_port_watch(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_port_app_drives(struct nupa_engine *engine); /* the program spins on poll_cq */
void nupa_port_takes_over(struct nupa_engine *engine); /* it waits for events instead */
void nupa_port_barrier(struct nupa_engine *engine);    /* P3, P4: the fence of all producers */
uint64_t nupa_clock_ns(void);

/* look.c: with the lock; SOFTWARE: sees what others have changed, if the last look is old. */
void nupa_engine_look(struct nupa_engine *engine, uint64_t now_ns);

/* What others only look at now and then: counters, the heartbeat. */
void nupa_engine_show(const struct nupa_engine *engine);

/* progress.c: runs the engine once; returns how many messages were handled. */
uint32_t nupa_engine_progress(struct nupa_engine *engine);
/* Takes up to *budget* messages from one channel; how many. */
uint32_t nupa_engine_drain(struct nupa_engine *engine, struct nupa_channel *channel,
			   uint32_t budget);
/* Has one message handled; false: nonsense. */
bool nupa_engine_dispatch(struct nupa_engine *engine, struct nupa_channel *channel,
			  struct nupa_msg *msg, const uint8_t *payload);
/* The other attachments of this process, which one polling thread drives along. */
void nupa_engine_progress_siblings(struct nupa_engine *engine);
void nupa_engine_poll_idle(struct nupa_engine *engine);
void nupa_engine_flush(struct nupa_engine *engine); /* acks that are due */
bool nupa_engine_owes(const struct nupa_engine *engine);
bool nupa_engine_rings_ready(const struct nupa_engine *engine);

/* Whether a message of the peer lies in its ring. */
static inline bool nupa_channel_ready(const struct nupa_channel *channel)
{
	if (unlikely(channel->apart))
		nupa_rx_fetch(&channel->rx);
	return nupa_rx_ready(&channel->rx);
}

static inline bool nupa_engine_lines_ready(const struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->n_channels; i++)
		if (nupa_channel_ready(engine->open[i]))
			return true;
	return false;
}

uint64_t nupa_engine_next_timer_ns(const struct nupa_engine *engine);

/* channel.c */
struct nupa_channel *nupa_channel_get(struct nupa_engine *engine, uint32_t peer);
/* The same for a connection that is made now: what was open to a former owner of the slot, whose
 * death nobody here has noticed yet, does not do. */
struct nupa_channel *nupa_channel_meet(struct nupa_engine *engine, uint32_t peer);
void nupa_channel_scan_contacts(struct nupa_engine *engine);
void nupa_channel_close_all(struct nupa_engine *engine, uint64_t deadline_ns);
bool nupa_path_up(const struct nupa_engine *engine, uint32_t host);

static inline bool nupa_channel_path_up(const struct nupa_engine *engine,
					struct nupa_channel *channel)
{
	uint32_t epoch = nupa_load_acquire(engine->fabric->port_epoch);

	if (unlikely(channel->path_epoch != epoch)) {
		channel->path_up = nupa_path_up(engine, channel->peer_host);
		channel->path_epoch = epoch;
	}
	return channel->path_up;
}

bool nupa_channel_peer_alive(const struct nupa_channel *channel);    /* as the slot says */
bool nupa_channel_process_alive(const struct nupa_channel *channel); /* as the kernel says */

static inline bool nupa_channel_same_process(const struct nupa_channel *channel)
{
	return !channel->foreign && channel->peer_pid == (uint32_t)getpid();
}

void nupa_channel_knock(struct nupa_engine *engine, struct nupa_channel *channel);
/* Leaves a word for the peer: see struct nupa_slot.contact. */
void nupa_channel_say(struct nupa_engine *engine, struct nupa_channel *channel, uint32_t closed);
/* C7: whether what was read of the peer's ring just now was the peer's.  Who takes a slot back
 * changes its claim first, then gives the arena's memory back, which reads as zeros. */
static inline bool nupa_channel_intact(const struct nupa_channel *channel)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return likely(nupa_channel_peer_alive(channel));
}

/* Backs the DMA bytes of our direction with memory: 0 or -ENOSPC. */
int nupa_channel_back_dma(struct nupa_engine *engine, struct nupa_channel *channel);
/* Whether it is worth trying this operation without the peer's engine. */
bool nupa_channel_may_direct(const struct nupa_engine *engine, const struct nupa_channel *channel,
			     uint8_t opcode);
bool nupa_channel_can_pull(const struct nupa_channel *channel);
void nupa_channel_bell(struct nupa_channel *channel);

static inline void nupa_flow_xmit(struct nupa_channel *channel, uint64_t bytes)
{
	struct nupa_flow *flow = channel->flow;

	nupa_store_relaxed(&flow->xmit_bytes, flow->xmit_bytes + bytes);
	nupa_store_relaxed(&flow->xmit_packets,
			   flow->xmit_packets + 1 + (bytes ? (bytes - 1) / NUPA_MTU_BYTES : 0));
}

/* Makes a filled line the peer's. */
static inline void nupa_channel_commit(struct nupa_channel *channel, struct nupa_msg *msg,
				       uint32_t dma_bytes)
{
	if (unlikely(channel->tx.apart))
		nupa_tx_publish_apart(&channel->tx, msg, dma_bytes);
	else
		nupa_tx_publish(&channel->tx, msg, dma_bytes);
}

/* Counts, publishes and rings: what sending a filled line takes while nobody watches. */
static inline void nupa_channel_put(struct nupa_channel *channel, struct nupa_msg *msg,
				    uint32_t dma_bytes)
{
	nupa_flow_xmit(channel, msg->length_bytes);
	nupa_channel_commit(channel, msg, dma_bytes);
	nupa_channel_bell(channel);
}

static inline void nupa_channel_publish(struct nupa_channel *channel, struct nupa_msg *msg,
					uint32_t dma_bytes)
{
	if (unlikely(channel->engine->trace & NUPA_TRACE_MOVES))
		nupa_trace_send(channel->engine, channel, msg);
	nupa_channel_put(channel, msg, dma_bytes);
}

static inline void nupa_flow_rcv(struct nupa_channel *channel, uint64_t bytes)
{
	struct nupa_flow *flow = channel->flow;

	nupa_store_relaxed(&flow->rcv_bytes, flow->rcv_bytes + bytes);
	nupa_store_relaxed(&flow->rcv_packets,
			   flow->rcv_packets + 1 + (bytes ? (bytes - 1) / NUPA_MTU_BYTES : 0));
}

/* window.c: the peer's region as rkey names it, announced (P4) until nupa_window_leave; NULL: ask
 * the responder. */
struct nupa_window *nupa_window_open(struct nupa_engine *engine, struct nupa_channel *channel,
				     uint32_t rkey);
void nupa_window_forget(struct nupa_channel *channel);
/* Whether the peer has memory in a memfd that we can open, and we may. */
bool nupa_window_may_share(const struct nupa_engine *engine, struct nupa_channel *channel);

/* P4: what of the peer's is used from now on, until nupa_window_leave; what shows that it may be is
 * to be loaded after this. */
static inline void nupa_hazard_announce(struct nupa_engine *engine,
					const struct nupa_channel *channel, uint32_t what)
{
	uint64_t hazard = (uint64_t)channel->peer << 32 | what;

	if (unlikely(channel->fence) ||
	    unlikely(nupa_load_relaxed(&channel->peer_slot->needs_fence)))
		(void)nupa_exchange_seq(&engine->slot->hazard, hazard);
	else
		nupa_store_relaxed(&engine->slot->hazard, hazard);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* P4: announce, then look.  If the key is there, the owner's dereg, which clears it and then looks
 * for us, waits until we are done: the region and its memory stay. */
static inline bool nupa_window_enter(struct nupa_engine *engine, const struct nupa_channel *channel,
				     const struct nupa_window *window, uint32_t rkey)
{
	nupa_hazard_announce(engine, channel, (rkey >> NUPA_KEY_VARIANT_BITS) + 1);
	return nupa_load_acquire((const uint64_t *)(const void *)window->entry) == window->word;
}

static inline void nupa_window_leave(struct nupa_engine *engine)
{
	nupa_store_release(&engine->slot->hazard, 0);
}

/* pd and qpn are those of the QP at the other end. */
static inline bool nupa_window_permits(const struct nupa_window *window, uint32_t pd, uint32_t qpn,
				       uint64_t raddr, uint64_t bytes, uint32_t access)
{
	uint64_t offset = raddr - window->iova;

	if (unlikely(window->pd != pd || !pd) && (window->pd || window->qpn != qpn))
		return false;
	return (window->access & access) == access && raddr >= window->iova &&
	       offset <= window->length && bytes <= window->length - offset;
}

/* death.c */
void nupa_channel_fail(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_channel_sweep(struct nupa_engine *engine);
/* Others took us for dead and gave our slot away: what is stored from now on stays here. */
void nupa_engine_fence(struct nupa_engine *engine);
/* They did: what our slot published may be gone, keys too. */
bool nupa_engine_disowned(const struct nupa_engine *engine);
/* RC: this QP is about to be destroyed, its partner is told; and what the partner does. */
void nupa_partner_leave(struct nupa_qp *qp);
void nupa_partner_gone(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg);
/* Whether it was destroyed in order, by itself or with all others of its process. */
bool nupa_partner_left(const struct nupa_qp *qp);

/* mover.c */
struct nupa_span { /* a piece of local memory, checked */
	uint8_t *va;
	size_t bytes;
};
extern const uint32_t nupa_access_needed[32]; /* bits of access, by opcode */
int nupa_mover_probe(struct nupa_engine *engine, struct nupa_channel *channel);
enum nupa_direct {
	NUPA_DIRECT_DONE,
	NUPA_DIRECT_NOT_READY, /* the peer QP cannot take it now */
	NUPA_DIRECT_ASK,       /* not possible from here: ask the responder */
	NUPA_DIRECT_LOCAL_FAULT,
	NUPA_DIRECT_REMOTE_FAULT, /* the region's memory is gone */
};
enum nupa_direct nupa_mover_direct(struct nupa_engine *engine, struct nupa_qp *qp,
				   struct nupa_wqe *wqe, const struct nupa_span *spans,
				   uint32_t n_spans);
/* Whether it could fetch from the peer. */
bool nupa_mover_pulls(const struct nupa_channel *channel);
/* Fetches n_from pieces of the peer's private memory into local spans: 0 or -errno. */
int nupa_mover_pull(struct nupa_channel *channel, const struct nupa_span *to, uint32_t n_to,
		    const struct nupa_pull *from, uint32_t n_from, uint64_t bytes);

/* memory.c: whether the program has this memory at all. */
bool nupa_memory_mapped(const void *addr, size_t length);
bool nupa_memory_writable(const void *addr);
/* Makes [at, +bytes) present, to be read or written; false: it cannot be. */
bool nupa_memory_present(const void *at, size_t bytes, bool to_write);
/* memcpy that fails where a byte of either side is not there. */
bool nupa_memory_copy(void *to, const void *from, size_t bytes);

/* mr.c */
static inline struct nupa_mr *nupa_mr_find(const struct nupa_engine *engine, uint32_t key)
{
	uint32_t index = key >> NUPA_KEY_VARIANT_BITS;
	struct nupa_mr *mr;

	if (index >= engine->fabric->geometry.mr_entries)
		return NULL;
	mr = engine->mrs[index];
	return mr && mr->ibv.lkey == key && engine->mr_entries[index].key == key ? mr : NULL;
}

/* Where [addr, +bytes) of a region is, in the region's own addressing; NULL: beyond it.  No sum
 * here can overflow. */
static inline uint8_t *nupa_mr_at(const struct nupa_mr *mr, uint64_t addr, uint64_t bytes)
{
	uint64_t offset = addr - mr->iova;

	if (addr < mr->iova || offset > mr->length || bytes > mr->length - offset)
		return NULL;
	return (uint8_t *)((uintptr_t)mr->va + offset);
}

/* odp.c: what is not plain memory of just this PD; mr may be NULL. */
uint8_t *nupa_mr_local_rare(const struct nupa_mr *mr, const struct ibv_pd *pd,
			    const struct ibv_sge *sge, int access);

/* Local memory by its lkey; NULL: protection error. */
static inline uint8_t *nupa_mr_local(const struct nupa_engine *engine, const struct ibv_pd *pd,
				     const struct ibv_sge *sge, int access)
{
	const struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);
	int needed = access | NUPA_ACCESS_PLAIN;

	if (unlikely(!mr || mr->ibv.pd != pd || (mr->access & needed) != needed))
		return nupa_mr_local_rare(mr, pd, sge, access);
	return nupa_mr_at(mr, sge->addr, sge->length);
}

/* Resolves a local scatter/gather list to memory: IBV_WC_SUCCESS or LOC_PROT_ERR. */
enum ibv_wc_status nupa_mr_resolve(struct nupa_engine *engine, struct ibv_pd *pd,
				   const struct ibv_sge *sge, uint32_t n_sge, int access,
				   struct nupa_span *spans, uint32_t *n_spans);
/* Resolves a remote request against our own regions and windows, for the responder; NULL: access
 * error.  *on_demand: the memory may not be there, use nupa_memory_copy. */
uint8_t *nupa_mr_remote(struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			int access, bool *on_demand);
/* What nupa_mr_entry.check has to be. */
uint32_t nupa_mr_entry_check(const struct nupa_mr_entry *entry);

/* Each word once: its owner may change it meanwhile, which the key and the check tell. */
static inline void nupa_mr_entry_copy(struct nupa_mr_entry *to, const struct nupa_mr_entry *from)
{
	const uint64_t *words = (const uint64_t *)(const void *)from;
	uint64_t copy[sizeof(*to) / sizeof(*words)];

	for (unsigned int i = 0; i < sizeof(*to) / sizeof(*words); i++)
		copy[i] = nupa_load_relaxed(&words[i]);
	memcpy(to, copy, sizeof(*to));
}
/* Makes an entry, filled in, known under this key; takes it back, and waits for those who use it.
 */
void nupa_mr_publish(struct nupa_mr_entry *entry, uint32_t key);
/* Around a fork, under the locks of all engines: peers are kept from all regions; these are shared
 * again; and shown to peers again, when all are. */
void nupa_mr_hide_all(struct nupa_engine *engine);
void nupa_mr_share_all(struct nupa_engine *engine);
void nupa_mr_show_all(struct nupa_engine *engine);
void nupa_mr_forget_in_child(struct nupa_engine *engine);
bool nupa_mr_withdraw(struct nupa_engine *engine, uint32_t index); /* hazard.c; false: a limit */
int nupa_mr_invalidate(struct nupa_qp *qp, uint32_t rkey);

/* Copies bytes between a flat buffer and a list of spans, from offset of the list on; what does not
 * fit is left out. */
static inline enum nupa_reach nupa_spans_copy(const struct nupa_span *spans, uint32_t n_spans,
					      uint64_t offset, void *flat, uint64_t bytes,
					      bool to_spans)
{
	enum nupa_reach result = NUPA_REACH_DONE;
	uint8_t *at = flat;

	for (uint32_t i = 0; i < n_spans && bytes && result == NUPA_REACH_DONE; i++) {
		uint64_t n = spans[i].bytes;

		if (offset >= n) {
			offset -= n;
			continue;
		}
		n -= offset;
		n = n < bytes ? n : bytes;
		result = to_spans ? nupa_copy(spans[i].va + offset, at, n)
				  : nupa_copy(at, spans[i].va + offset, n);
		offset = 0;
		at += n;
		bytes -= n;
	}
	return result;
}

/* rq.c */
int nupa_rq_init(struct nupa_rq *rq, uint32_t capacity, uint32_t max_sge);
void nupa_rq_free(struct nupa_rq *rq);
static inline int nupa_rq_post(struct nupa_rq *rq, const struct ibv_recv_wr *wr)
{
	struct nupa_rwqe *rwqe;

	if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge))
		return EINVAL;
	if (unlikely(rq->tail - rq->head >= rq->capacity))
		return ENOMEM;
	rwqe = (struct nupa_rwqe *)(void *)(rq->ring + (size_t)(rq->tail & rq->mask) * rq->stride);
	rwqe->wr_id = wr->wr_id;
	rwqe->n_sge = (uint32_t)wr->num_sge;
	if (likely(wr->num_sge == 1))
		rwqe->sge[0] = wr->sg_list[0];
	else
		for (int i = 0; i < wr->num_sge; i++)
			rwqe->sge[i] = wr->sg_list[i];
	rq->tail++;
	return 0;
}
static inline struct nupa_rwqe *nupa_rq_peek(struct nupa_rq *rq)
{
	if (rq->head == rq->tail)
		return NULL;
	return (struct nupa_rwqe *)(rq->ring + (size_t)(rq->head & rq->mask) * rq->stride);
}
uint32_t nupa_pow2_at_least(uint32_t n);
void *nupa_queue_map(size_t bytes);

/* cq.c */
void nupa_cq_overrun(struct nupa_cq *cq, struct nupa_qp *qp);
void nupa_cq_tell(struct nupa_cq *cq, bool solicited);

static inline bool nupa_cq_full(const struct nupa_cq *cq)
{
	return unlikely(cq->overrun || cq->tail - cq->head >= cq->capacity);
}

/* The place of the next completion, all of which the caller fills in, or NULL after an overrun.
 * Built in place: a copy of what was just stored in smaller pieces stalls. */
static inline struct nupa_cqe *nupa_cq_reserve(struct nupa_cq *cq, struct nupa_qp *qp)
{
	if (nupa_cq_full(cq)) {
		if (!cq->ignore_overrun) {
			nupa_cq_overrun(cq, qp);
			return NULL;
		}
		cq->head++;
	}
	return &cq->ring[cq->tail & cq->mask];
}

static inline void nupa_cq_commit(struct nupa_cq *cq, bool solicited)
{
	cq->tail++;
	if (unlikely(cq->notes || cq->arm != NUPA_ARM_NONE))
		nupa_cq_tell(cq, solicited);
}
struct nupa_cq *nupa_cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context,
			    struct ibv_comp_channel *channel, uint32_t comp_vector,
			    struct ibv_pd *parent_domain);
void nupa_cq_drive(struct nupa_engine *engine, struct nupa_cq *cq);
void nupa_cq_purge(struct nupa_cq *cq, struct nupa_qp *qp);

/* event.c */
void nupa_event_raise(struct nupa_context *context, const struct ibv_async_event *event);
void nupa_event_raise_qp(struct nupa_qp *qp, enum ibv_event_type type);
void nupa_event_raise_port(struct nupa_engine *engine, bool up);
void nupa_event_drop(struct nupa_context *context, void *element);
void nupa_event_wait_acked(struct nupa_context *context, const uint32_t *pending);

/* qp_create.c: aligned, and all zeros; NULL: no memory. */
struct nupa_qp *nupa_qp_blank(void);

/* qp.c, qp_state.c */
int nupa_qp_own_mask(enum ibv_qp_type type, int mask);
int nupa_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask);
void nupa_qp_publish(struct nupa_qp *qp);
/* The express lane is closed until something succeeds again (express.h I4). */
static inline void nupa_qp_unsettle(struct nupa_qp *qp)
{
	qp->steady_tx = qp->steady_rx = false;
}

void nupa_qp_set_state(struct nupa_qp *qp, enum ibv_qp_state state);
/* To ERR: flushes both queues in order. */
void nupa_qp_error(struct nupa_qp *qp);
void nupa_qp_flush_rq(struct nupa_qp *qp);
void nupa_qp_settle(struct nupa_qp *qp); /* sends what is owed */
void nupa_qp_reset(struct nupa_qp *qp);

static inline struct nupa_qp *nupa_qp_find(const struct nupa_engine *engine, uint32_t qpn)
{
	uint32_t index = qpn & (NUPA_QP_MAX - 1);

	if (unlikely(qpn >> NUPA_QP_INDEX_BITS != engine->slot_index ||
		     index >= engine->fabric->geometry.qp_entries))
		return NULL;
	return engine->qps[index];
}

/* The path's: what a packet carries. */
static inline uint32_t nupa_qp_mtu_bytes(const struct nupa_qp *qp)
{
	if (qp->type == IBV_QPT_UD || qp->attr.path_mtu < IBV_MTU_256 ||
	    qp->attr.path_mtu > IBV_MTU_4096)
		return NUPA_MTU_BYTES;
	return 128u << qp->attr.path_mtu;
}

/* How much of a message or response goes at once.  By a path with faults, where each packet has its
 * own fate, as much as a packet carries. */
static inline uint32_t nupa_part_bytes(const struct nupa_qp *qp)
{
	uint32_t most = nupa_dma_payload_max(qp->channel->tx.dma_bytes);
	uint32_t mtu_bytes = nupa_qp_mtu_bytes(qp);

	return unlikely(qp->channel->faulty) && mtu_bytes < most ? mtu_bytes : most;
}

static inline struct nupa_wqe *nupa_sq_wqe(struct nupa_sq *sq, uint64_t index)
{
	return (struct nupa_wqe *)(sq->ring + (size_t)(index & sq->mask) * sq->stride);
}

/* IBTA 10.3.1.5: in SQD what has begun is finished, and nothing else begins. */
static inline bool nupa_sq_has_begun(struct nupa_sq *sq)
{
	return sq->issued < sq->begun ||
	       (sq->issued != sq->posted && nupa_sq_wqe(sq, sq->issued)->moved_bytes);
}

static inline bool nupa_sq_drained(struct nupa_sq *sq)
{
	return sq->acked == sq->issued && !nupa_sq_has_begun(sq);
}

static inline uint32_t nupa_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & 0xffffff;
}

/* A PSN means something in one incarnation of a connection alone: what was sent before a QP was
 * reset may arrive, or be answered, when it is connected again. */
#define NUPA_PEER_UNKNOWN 0x100u

static inline uint32_t nupa_psn_of(uint32_t incarnation, uint32_t psn)
{
	return incarnation << 24 | psn;
}

static inline uint32_t nupa_psn_incarnation(uint32_t psn)
{
	return psn >> 24;
}

/* Whether an answer to a request with this PSN is one to this connection, and awaited. */
static inline bool nupa_requester_awaits(const struct nupa_qp *qp, uint32_t psn)
{
	return qp->state >= IBV_QPS_RTS && qp->state <= IBV_QPS_SQE &&
	       nupa_psn_incarnation(psn) == qp->incarnation;
}

/* a - b of 24-bit PSNs, IBTA 9.7.1 */
static inline int32_t nupa_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* post.c */
int nupa_wqe_set_ud(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_ah *ah, uint32_t qpn,
		    uint32_t qkey);

/* qp_ex.c: gives a QP the wr_ calls; EOPNOTSUPP for an operation of send_ops_flags that we lack. */
int nupa_qp_ex_init(struct nupa_qp *qp, uint64_t send_ops_flags);

/* sq.c, requester.c, requester_answers.c */
void nupa_requester_run(struct nupa_qp *qp);
void nupa_requester_ack(struct nupa_qp *qp, uint32_t psn);
void nupa_requester_nak(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_requester_read_resp(struct nupa_qp *qp, const struct nupa_msg *msg,
			      const uint8_t *payload);
void nupa_requester_atomic_resp(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_requester_fail(struct nupa_qp *qp, enum ibv_wc_status status);
void nupa_requester_lose_peer(struct nupa_qp *qp);
void nupa_requester_flush(struct nupa_qp *qp);
void nupa_requester_stop_waiting(struct nupa_qp *qp);
/* Sends everything from this request on again, one retry less; false: there was none left. */
bool nupa_requester_go_back(struct nupa_qp *qp, uint64_t index);

/* responder.c, responder_answers.c, receive.c */
void nupa_responder_request(struct nupa_engine *engine, struct nupa_channel *channel,
			    struct nupa_msg *msg, const uint8_t *payload);
bool nupa_responder_send_ack(struct nupa_qp *qp);
/* express.c: true: the line was a small SEND, and has been received. */
bool nupa_express_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			  const struct nupa_msg *line);
void nupa_responder_run_jobs(struct nupa_qp *qp);
void nupa_responder_send_refusals(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_responder_reset(struct nupa_qp *qp);

/* gid.c: a host by its name or number, or -ENOENT. */
int nupa_host_of_name(const struct nupa_fabric *fabric, const char *name);
enum nupa_gid_index {
	NUPA_GID_LINK,
	NUPA_GID_IPV4,
	NUPA_GID_IPV6,
};
_Static_assert(NUPA_GID_IPV6 == NUPA_GIDS - 1, "the last");
void nupa_host_gid(const struct nupa_fabric *fabric, uint32_t host, int index, union ibv_gid *gid);
int nupa_host_of_gid(const struct nupa_fabric *fabric, const union ibv_gid *gid);
bool nupa_gid_is_unique_local(const uint8_t gid[16]);
uint64_t nupa_host_guid_be(const struct nupa_fabric *fabric, uint32_t host);

/* mw.c: windows bound on a QP that is destroyed are free again. */
void nupa_mw_forget_qp(struct nupa_qp *qp);
/* A BIND_MW or LOCAL_INV whose turn it is. */
enum ibv_wc_status nupa_mw_execute(struct nupa_qp *qp, const struct nupa_wqe *wqe);
/* Fills in the bind: 0 or the errno that posting it gives. */
int nupa_mw_fill_wqe(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_mw *mw, uint32_t rkey,
		     const struct ibv_mw_bind_info *info);

/* import.c */
int nupa_context_cmd_fd(const struct nupa_engine *engine);
bool nupa_context_exporter_lives(const struct nupa_context *context);
/* The process in *slot* is gone, and its pool memory soon somebody else's: regions over it end. */
void nupa_import_lose(struct nupa_engine *engine, uint32_t slot);

/* device.c */
extern const struct ibv_device_attr nupa_device_attr;
int nupa_gid_count(const struct nupa_engine *engine);
int nupa_host_of_ah(struct nupa_engine *engine, const struct ibv_ah_attr *attr, uint32_t *host);

/* inject.c, inject_judge.c: a packet that was injected, the verdict on one; false: nonsense. */
bool nupa_inject_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			 const struct nupa_msg *msg, const uint8_t *payload);
bool nupa_inject_verdict(struct nupa_engine *engine, const struct nupa_channel *channel,
			 const struct nupa_msg *msg);
/* The verdict on a packet that does not get here: enum nupa_inject_reason. */
void nupa_inject_drop(struct nupa_channel *channel, const struct nupa_msg *msg, uint32_t reason);
void nupa_inject_lose_peer(struct nupa_injector *injector, uint32_t peer);

/* moderation.c */
bool nupa_cq_moderate(struct nupa_cq *cq);
void nupa_cq_run_timers(struct nupa_engine *engine);
uint64_t nupa_cq_next_timer_ns(const struct nupa_engine *engine);
void nupa_cq_raise(struct nupa_cq *cq); /* cq.c: if it is armed */

/* domain.c: puts memory of the parent domain's own in the place of a ring that was mapped, if it
 * has an allocator: 0 or ENOMEM. */
enum nupa_buffer_type { NUPA_BUFFER_CQ = 1, NUPA_BUFFER_SQ, NUPA_BUFFER_RQ, NUPA_BUFFER_SRQ };
int nupa_domain_buffer(struct ibv_pd *pd, enum nupa_buffer_type type, uint8_t **ring, size_t bytes,
		       bool *custom);
void nupa_domain_release(struct ibv_pd *pd, enum nupa_buffer_type type, uint8_t **ring,
			 bool *custom);
int nupa_parent_dealloc(struct nupa_pd *pd);

/* mcast.c */
bool nupa_mcast_is_group(const union ibv_gid *gid);
/* Sends a datagram to all members; false: it waits, and is asked again. */
bool nupa_mcast_issue(struct nupa_qp *qp, struct nupa_wqe *wqe);
bool nupa_mcast_attached(const struct nupa_qp *qp, const uint8_t mgid[16]);
void nupa_mcast_free(struct nupa_engine *engine);

/* net.c; false: nonsense. */
bool nupa_net_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		      const struct nupa_msg *msg, const uint8_t *payload);
/* Whether the producer's thread itself takes from this channel, so that nobody else looks. */
bool nupa_net_runs(const struct nupa_engine *engine, const struct nupa_channel *channel);
void nupa_net_port_changed(struct nupa_engine *engine, bool up);
void nupa_net_fenced(struct nupa_engine *engine);

/* fault_view.c: goes by the table of faults as it is now; does what is due. */
void nupa_fault_follow(struct nupa_engine *engine);
void nupa_fault_run(struct nupa_engine *engine);
uint64_t nupa_fault_next_timer_ns(const struct nupa_engine *engine);
/* Which faults lie on the way to and from this peer. */
void nupa_fault_look(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_fault_free(struct nupa_engine *engine);
/* fault_hold.c: true: what comes next stays in the ring. */
bool nupa_fault_blocks(struct nupa_engine *engine, struct nupa_channel *channel);
/* Judges a message and does with it what it finds; false: nonsense. */
bool nupa_fault_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_msg *msg, const uint8_t *payload);
void nupa_fault_free_held(struct nupa_channel *channel);
/* Completions of the QP go on. */
void nupa_fault_unstick(struct nupa_qp *qp);

/* retry.c: a request went by a path with faults; an answer has come; no timer any more. */
void nupa_retry_sent(struct nupa_qp *qp);
void nupa_retry_progress(struct nupa_qp *qp);
void nupa_retry_stop(struct nupa_qp *qp);
/* The QP is reset: nothing of faults is left. */
void nupa_retry_reset(struct nupa_qp *qp);
/* qp->faults, which it has from now on. */
struct nupa_qp_faults *nupa_qp_faults(struct nupa_qp *qp);

/* xrc.c: where the request goes, which is qp->channel then; false: what was sent before has to be
 * answered first. */
bool nupa_xrc_route(struct nupa_qp *qp, const struct nupa_wqe *wqe);
void nupa_xrc_mark(struct nupa_qp *qp, struct nupa_msg *msg);
/* The responder for a QP that is not ours, but whose SRQ may be; NULL: refuse. */
struct nupa_qp *nupa_xrc_shadow(struct nupa_engine *engine, const struct nupa_channel *channel,
				const struct nupa_msg *msg);
void nupa_xrc_resync(struct nupa_qp *qp, const struct nupa_msg *msg);
/* Makes the message's SRQ the QP's, while it lasts; false: refused. */
bool nupa_xrc_bind(struct nupa_qp *qp, const struct nupa_msg *msg);
/* The same for one that was executed before; false: its SRQ is gone. */
bool nupa_xrc_bind_again(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_xrc_channel_failed(struct nupa_engine *engine, const struct nupa_channel *channel);

/* xrcd.c */
int nupa_xrc_srq_add(struct nupa_srq *srq, struct ibv_xrcd *xrcd, struct ibv_cq *cq);
void nupa_xrc_srq_remove(struct nupa_srq *srq);
void nupa_xrc_qp_users(struct nupa_qp *qp, int delta);
void nupa_xrc_publish(const struct nupa_qp *qp);
struct nupa_qp *nupa_xrc_close_handle(struct nupa_qp *handle);
void nupa_xrc_query_handle(const struct nupa_qp *handle, struct ibv_qp_attr *attr,
			   struct ibv_qp_init_attr *init);
void nupa_xrc_free(struct nupa_engine *engine);

/* ops.c */
void nupa_fill_ops(struct verbs_context *context);

/* Says once on stderr what the caller should do; silent with NUPA_QUIET=1. */
void nupa_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
