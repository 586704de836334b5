/* SPDX-License-Identifier: BSD-3-Clause
 * Channels between attachments, windows on peers' regions, and the movers of bulk data. */
#ifndef NUPA_CHANNEL_H
#define NUPA_CHANNEL_H

#include "engine/core/wake.h"
#include "segment/ring/ring.h"

/* --- windows ------------------------------------------------------------------------- */

/* A region of a peer as we found it: its place, and the access that its owner grants.  Valid as
 * long as the entry's first word is the same. */
struct nupa_window {
	uint64_t word; /* key | changes << 32; 0: nothing here */
	uint64_t iova;
	uint64_t length;
	uint8_t *base; /* where iova is in our memory; NULL: only `va`, for process_vm_... */
	uint64_t va;   /* where iova is in the owner's */
	struct nupa_mapping *mapping; /* of the owner's memfd, where base is; NULL: of none */
	uint32_t access;
	uint32_t pd;
	uint32_t qpn; /* where pd is 0: the only QP it works on */
	uint32_t pad;
};
NUPA_ASSERT_SIZE(struct nupa_window, 64);

/* --- channels ------------------------------------------------------------------------ */

/* Something of a peer that does not move: what it is now, and since when (sq.c). */
struct nupa_stall {
	uint64_t mark;
	uint64_t since_ns; /* 0: never looked at */
};

struct nupa_channel {
	struct nupa_tx tx;
	struct nupa_rx rx;
	struct nupa_engine *engine;
	uint32_t peer;  /* slot */
	uint32_t place; /* in engine->open[], if it is there */
	uint64_t peer_claim;
	uint32_t peer_epoch;
	uint32_t peer_pid;
	uint32_t peer_host;
	int pidfd;    /* -1: none */
	int life_fd;  /* the other end of the peer's pipe; -1: none */
	bool foreign; /* the peer's pid is one of another pid namespace: it means nothing here */
	bool apart;   /* it is in a kernel that sees stores by flush and fetch alone */
	bool wired;   /* to the keeper of a wire: messages become packets (engine/wire) */
	uint32_t wire_mtu_bytes;          /* wired: what it carries */
	struct nupa_trace_posted *posted; /* wired: by line, the port's; NULL: there is none */
	bool trunked;                     /* it is on another machine */
	bool distant;                     /* apart or trunked: nothing reaches it but messages */
	bool rx_open;
	bool dma_backed; /* our DMA bytes are backed by memory */
	bool broken;     /* the peer died, left, or wrote nonsense */
	bool left;       /* broken: it had destroyed its QPs before */
	bool faulty;     /* messages are judged, and nothing moves but by messages: fault.h */
	bool timed;      /* faulty: requesters count what the peer does not take as lost */
	bool closing;    /* faulty, but for the last time: no fault is left */
	bool suspect;    /* it was faulty once: messages may have come twice */
	bool gated;      /* messages stay in their ring, until then or until less is held */
	uint64_t gated_until_ns;
	uint64_t rx_faults;    /* on the way from the peer to us: places in the table */
	struct nupa_list held; /* struct nupa_held */
	uint32_t held_messages, held_bytes;
	enum nupa_mover mover;     /* ours, for private memory of the peer */
	int cma_errno;             /* why CMA does not work */
	struct nupa_stall full;    /* at which head our ring was found full */
	struct nupa_stall starved; /* at which count of the peer a QP of its had a backlog */
	uint64_t stop_looked_ns;   /* when it was looked whether the peer is stopped */
	bool stopped;              /* it was */
	struct nupa_slot *peer_slot;
	struct nupa_qp_entry *peer_qps;
	struct nupa_mr_entry *peer_mrs;
	struct nupa_flow *flow;
	const struct nupa_ring_header *rx_header;
	uint64_t head_reviewed; /* rx.head at the last review (attention.h) */
	bool path_up;
	bool parted;         /* path_up is false since the hosts share no partition */
	uint32_t path_epoch; /* port_epoch that both belong to */
	uint64_t pkeys_seen; /* nupa_pkey_sum of the peer's host; engine/qp/pkey.c */
	bool
	    fence; /* the owner of the peer slot cannot membarrier, or we cannot be reached by it */
	uint32_t rung; /* MACHINES: for which of the peer's sleeps we rang last (bell.h) */
	struct nupa_window *windows;    /* by the index of their keys; NULL: none yet */
	uint32_t n_windows;             /* room there; a power of two, or 0 */
	uint32_t windows_swept;         /* how many were looked at whether their region is there */
	struct nupa_mapping **mappings; /* mapping.c */
	uint32_t shared_fd_seen;        /* slot.shared_fd when we looked last */
	dev_t shared_dev;               /* the peer's memfd */
	ino_t shared_ino;
	uint64_t shared_bytes;      /* its size; 0: it has none, or not for us */
	struct nupa_list refusals;  /* struct nupa_refusal */
	struct nupa_channel *older; /* broken ones to the same slot */
};

/* --- calls --------------------------------------------------------------------------- */

/* contact.c */
struct nupa_channel *nupa_channel_get(struct nupa_engine *engine, uint32_t peer);
/* The slot of the process that has this QP on this host: where that is a wire, its keeper's. */
uint32_t nupa_channel_slot(const struct nupa_engine *engine, uint32_t host, uint32_t qpn);
/* Ends a channel to a previous owner of the slot, whose death is not yet noticed here.  QPs that
 * are connected to a QP of that slot, and have no channel, end with it. */
void nupa_channel_bury(struct nupa_engine *engine, uint32_t peer);
/* nupa_channel_get without such a channel: NULL until its end, which is near.  No QP or id ends. */
struct nupa_channel *nupa_channel_current(struct nupa_engine *engine, uint32_t peer);
/* nupa_channel_get for a connection that is made now: no channel to a previous owner counts. */
struct nupa_channel *nupa_channel_meet(struct nupa_engine *engine, uint32_t peer);
void nupa_channel_scan_contacts(struct nupa_engine *engine);
void nupa_channel_knock(struct nupa_engine *engine, struct nupa_channel *channel);
/* The peer's word to our slot: see struct nupa_slot.contact. */
uint32_t nupa_channel_contact(const struct nupa_engine *engine, uint32_t peer);
/* Leaves such a word for the peer. */
void nupa_channel_say(struct nupa_engine *engine, struct nupa_channel *channel, uint32_t closed);
/* Backs the DMA bytes of our direction with memory: 0 or -ENOSPC. */
int nupa_channel_back_dma(struct nupa_engine *engine, struct nupa_channel *channel);

/* channel.c */
bool nupa_path_up(const struct nupa_engine *engine, uint32_t host);
/* Looks at the ports and partitions on the way anew. */
void nupa_channel_look(const struct nupa_engine *engine, struct nupa_channel *channel,
		       uint32_t epoch);
/* A message finds the path closed, and waits or is dropped. */
void nupa_channel_count_closed(struct nupa_channel *channel, bool waits);

static inline bool nupa_channel_path_up(const struct nupa_engine *engine,
					struct nupa_channel *channel)
{
	uint32_t epoch = nupa_load_acquire(engine->fabric->port_epoch);

	if (unlikely(channel->path_epoch != epoch))
		nupa_channel_look(engine, channel, epoch);
	return channel->path_up;
}

bool nupa_channel_peer_alive(const struct nupa_channel *channel);    /* as the slot says */
bool nupa_channel_process_alive(const struct nupa_channel *channel); /* as the kernel says */
/* The same of a process of this kernel, without a call where its proof of life is there. */
bool nupa_channel_process_proven(const struct nupa_channel *channel);

static inline bool nupa_channel_same_process(const struct nupa_channel *channel)
{
	return !channel->foreign && channel->peer_pid == (uint32_t)getpid();
}

/* Whether the peer has left in order: it had destroyed its QPs before. */
bool nupa_channel_left(const struct nupa_channel *channel);

/* Whether a message of the peer lies in its ring. */
static inline bool nupa_channel_ready(const struct nupa_channel *channel)
{
	return unlikely(channel->apart) ? nupa_rx_fetch(&channel->rx) : nupa_rx_ready(&channel->rx);
}

/* C7: whether the bytes just read of the peer's ring were the peer's.  A reaper changes a slot's
 * claim first, then gives the arena's memory back, which reads as zeros. */
static inline bool nupa_channel_intact(const struct nupa_channel *channel)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return likely(nupa_channel_peer_alive(channel));
}

/* Whether it is worth trying this operation without the peer's engine. */
bool nupa_channel_may_direct(const struct nupa_engine *engine, const struct nupa_channel *channel,
			     uint8_t opcode);
/* How the peer fetches what we SEND: enum nupa_pulls, as it says. */
uint32_t nupa_channel_pulls(const struct nupa_channel *channel);
void nupa_channel_bell(struct nupa_channel *channel);

static inline void nupa_flow_xmit(struct nupa_channel *channel, uint64_t bytes)
{
	struct nupa_flow *flow = channel->flow;

	nupa_store_relaxed(&flow->xmit_bytes, flow->xmit_bytes + bytes);
	nupa_store_relaxed(&flow->xmit_packets,
			   flow->xmit_packets + 1 + (bytes ? (bytes - 1) / NUPA_MTU_BYTES : 0));
}

/* Publishes a filled line. */
static inline void nupa_channel_commit(struct nupa_channel *channel, struct nupa_msg *msg,
				       uint32_t dma_bytes)
{
	if (unlikely(channel->tx.apart))
		nupa_tx_publish_apart(&channel->tx, msg, dma_bytes);
	else
		nupa_tx_publish(&channel->tx, msg, dma_bytes);
}

/* Counts, publishes and rings: sends a filled line while no capture runs. */
static inline void nupa_channel_put(struct nupa_channel *channel, struct nupa_msg *msg,
				    uint32_t dma_bytes)
{
	nupa_flow_xmit(channel, msg->length_bytes);
	nupa_channel_commit(channel, msg, dma_bytes);
	nupa_channel_bell(channel);
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

/* P4: announces the use of a peer's region, until nupa_window_leave.  Words that permit the use are
 * to be loaded after this. */
static inline void nupa_hazard_announce(uint64_t *word, const struct nupa_channel *channel,
					uint32_t what)
{
	uint64_t hazard = (uint64_t)channel->peer << 32 | what;

	if (unlikely(channel->fence) ||
	    unlikely(nupa_load_relaxed(&channel->peer_slot->needs_fence)))
		(void)nupa_exchange_seq(word, hazard);
	else
		nupa_store_relaxed(word, hazard);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Its key, and what has changed with it. */
static inline uint64_t nupa_mr_entry_word(const struct nupa_mr_entry *entry)
{
	return nupa_load_acquire((const uint64_t *)(const void *)entry);
}

/* P4: announce, then look.  The owner's dereg clears the key and then looks for us.  So if the key
 * is there, dereg waits until we are done: the region and its memory stay. */
static inline bool nupa_window_enter(uint64_t *word, const struct nupa_channel *channel,
				     const struct nupa_window *window, uint32_t rkey)
{
	uint32_t index = rkey >> NUPA_KEY_VARIANT_BITS;

	nupa_hazard_announce(word, channel, index + 1);
	return nupa_mr_entry_word(&channel->peer_mrs[index]) == window->word;
}

/* The window of this key, if there is one: valid or not. */
static inline struct nupa_window *nupa_window_find(const struct nupa_channel *channel,
						   uint32_t rkey)
{
	uint32_t index = rkey >> NUPA_KEY_VARIANT_BITS;
	struct nupa_window *window;

	if (unlikely(index >= channel->n_windows))
		return NULL;
	window = &channel->windows[index];
	return likely((uint32_t)window->word == rkey) ? window : NULL;
}

static inline void nupa_window_leave(uint64_t *word)
{
	nupa_store_release(word, 0);
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

/* The value that nupa_mr_entry.check has to have. */
uint32_t nupa_mr_entry_check(const struct nupa_mr_entry *entry);

/* Loads each word once: its owner may change it meanwhile, which key and check detect. */
static inline void nupa_mr_entry_copy(struct nupa_mr_entry *to, const struct nupa_mr_entry *from)
{
	const uint64_t *words = (const uint64_t *)(const void *)from;
	uint64_t copy[sizeof(*to) / sizeof(*words)];

	for (unsigned int i = 0; i < sizeof(*to) / sizeof(*words); i++)
		copy[i] = nupa_load_relaxed(&words[i]);
	memcpy(to, copy, sizeof(*to));
}

/* mover.c */
extern const uint32_t nupa_access_needed[32]; /* bits of access, by opcode */
int nupa_mover_probe(struct nupa_engine *engine, struct nupa_channel *channel);
enum nupa_direct {
	NUPA_DIRECT_DONE,
	NUPA_DIRECT_NOT_READY, /* the peer QP cannot take it now */
	NUPA_DIRECT_ASK,       /* not possible from here: ask the responder */
	NUPA_DIRECT_LOCAL_FAULT,
	NUPA_DIRECT_REMOTE_FAULT, /* the region's memory is gone */
	NUPA_DIRECT_WAITS,        /* for its rate (pace.c) */
};
/* Moves the bytes of a request from *from* on, as many as the spans have; the request is permitted
 * as a whole or not at all. */
enum nupa_direct nupa_mover_direct(struct nupa_engine *engine, struct nupa_qp *qp,
				   const struct nupa_wqe *wqe, const struct nupa_span *spans,
				   uint32_t n_spans, uint32_t from, uint32_t bytes);

/* pull.c: how this end could fetch from the peer. */
enum nupa_pulls nupa_mover_pulls(const struct nupa_engine *engine,
				 const struct nupa_channel *channel);
/* Fetches one piece into memory here, if it is mapped. */
bool nupa_mover_fetch(struct nupa_engine *engine, struct nupa_channel *channel,
		      const struct nupa_pull *from, uint8_t *to);
/* Fetches n_from pieces of the peer's memory into local spans: 0 or -errno. */
int nupa_mover_pull(struct nupa_engine *engine, struct nupa_channel *channel,
		    const struct nupa_span *to, uint32_t n_to, const struct nupa_pull *from,
		    uint32_t n_from, uint64_t bytes);

#endif
