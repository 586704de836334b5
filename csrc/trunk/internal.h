/* SPDX-License-Identifier: BSD-3-Clause
 * The trunk, for the files that make it.  One thread runs all of it.
 *
 *   out.c        packets to a machine
 *   tell.c       the state of this machine, as records
 *   news.c       what of it has changed
 *   obey.c       records of other machines, checked, into this copy of the segment
 *   pair_out.c   rings from a slot here to one elsewhere
 *   pair_in.c    rings from there to here
 *   put.c        payloads without packets
 *   peer.c       machines: met, known, lost */
#ifndef NUPA_TRUNK_INTERNAL_H
#define NUPA_TRUNK_INTERNAL_H

#include "base/atomics.h"
#include "base/clock.h"
#include "base/hint.h"
#include "segment/layout/geometry.h"
#include "segment/ring/ring.h"
#include "segment/slot/slot.h"
#include "trunk/carrier.h"
#include "trunk/record.h"
#include "trunk/trunk.h"

#define NUPA_RELAY_IN_HEADER 5u    /* enum nupa_mover, which lies above this folder */
#define NUPA_PACKETS_DATA 24u      /* of one machine, on their way, before messages wait */
#define NUPA_PACKETS_CONTROL 48u   /* before changes wait, too */
#define NUPA_PUT_LEAST (16u << 10) /* a smaller payload goes in packets */

/* A ring from a slot here to one elsewhere: a consumer that does not publish. */
struct nupa_pair_out {
	struct nupa_pair_out *next;
	uint32_t from, to, to_epoch;
	struct nupa_rx rx;
	uint32_t bulk_sent; /* bytes of the next message's payload that have gone */
	void *window;       /* the ring's DMA bytes there, unlocked; NULL: payloads go in packets */
	uint64_t window_at;
	bool has_put;            /* a payload of the lines that are being taken */
	const uint8_t *put_from; /* what is to be put, so far */
	uint32_t put_bytes;
	bool deaf;   /* its producer broke the rules */
	bool closed; /* to be freed at the end of the turn */
};

/* A ring from a slot elsewhere to one here: a producer. */
struct nupa_pair_in {
	struct nupa_pair_in *next;
	uint32_t from, to;
	struct nupa_tx tx;
	uint64_t lines_told, dma_told; /* the words that the producer's machine has */
	uint64_t due_ns;  /* when it has to be told of what has changed; 0: nothing has */
	uint64_t look_ns; /* after how long to look at the consumer again */
	uint32_t to_epoch;
	uint32_t bulk_bytes; /* that came in packets, for the lines to come */
	void *window;        /* NULL: none */
	bool offered;        /* the window, or there can be none */
	bool dma_backed;
	bool deaf;   /* no memory for it, or its producer broke the rules */
	bool closed; /* to be freed at the end of the turn */
};

struct nupa_peer {
	uint32_t machine;
	void *link;    /* NULL: none */
	bool met;      /* the link stands */
	bool known;    /* its HELLO was right */
	bool up;       /* its state is here */
	bool stale;    /* something could not be sent: all is sent anew */
	uint32_t sync; /* what of all this is sent now (tell.c); 0: nothing */
	uint32_t sync_place, sync_at;
	uint32_t incarnation; /* of the connection: 0 to 14, in the claims of its slots */
	uint64_t retry_ns;    /* when to connect again */
	uint64_t wait_ns;     /* until then, after the next failure */
	uint64_t ping_ns, heard_ns;
	uint32_t fence_sent, fence_done;
	uint64_t fence_owed; /* to be confirmed once there is room; 0: nothing */
	struct nupa_packet *filling;
	uint32_t on_way;     /* packets that the carrier has */
	uint64_t put_on_way; /* bytes */
	uint32_t put_bytes;  /* of these, since the last packet */
	struct nupa_pair_out *outs;
	struct nupa_pair_in *ins;
};

/* A slot of ours, as it was told. */
struct nupa_own_slot {
	uint64_t claim; /* LIVE, or 0 */
	int pidfd;      /* -1: none */
	/* Of the life whose lines go no further, as the payloads of some were lost (put.c). */
	uint32_t lost_epoch;
};

struct nupa_trunk {
	struct nupa_fabric *fabric;
	struct nupa_trunk_area *area;
	struct nupa_arena_map map;
	struct nupa_carrier *carrier;
	uint32_t machine, machines;
	uint32_t first, end; /* our slots */
	uint64_t shape;
	uint64_t now_ns;
	int epoll, bell[2];
	uint32_t fence; /* P3: a word for a read-modify-write */
	bool stop, placed;
	uint32_t wanted_seen;
	uint64_t news_head, news_stuck_ns;
	bool announce; /* the ports of another machine have changed */
	uint32_t port_epoch;
	uint32_t *ports_told; /* states, by port */
	bool deaths;          /* a process of ours has ended */
	uint64_t reap_ns;     /* when to look for such by time */
	struct nupa_packet *spare;
	uint32_t spares;
	struct nupa_peer peers[NUPA_MACHINES_MAX];
	struct nupa_own_slot own[NUPA_SLOTS_MAX];
};

/* out.c.  Room for a record of that many bytes in a packet to the machine; NULL: not now.  Data:
 * with the smaller limit. */
void *nupa_out_room(struct nupa_trunk *trunk, struct nupa_peer *peer, enum nupa_told_kind kind,
		    size_t bytes, bool data);
/* Whether messages may go now; the lines of those that were begun have room. */
bool nupa_out_is_open(const struct nupa_peer *peer);
/* Bytes that a record of data may have in the packet that is being filled, or a new one. */
size_t nupa_out_left(const struct nupa_peer *peer);
void nupa_out_flush(struct nupa_trunk *trunk, struct nupa_peer *peer);
void nupa_out_sent(struct nupa_trunk *trunk, struct nupa_packet *packet);
void nupa_out_free(struct nupa_trunk *trunk);

/* tell.c.  One record; false: there is no room for it now. */
bool nupa_tell_slot(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t slot);
bool nupa_tell_qp(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t slot, uint32_t index);
bool nupa_tell_contact(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t from,
		       uint32_t to);
bool nupa_tell_bound(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t host, uint32_t at);
bool nupa_tell_port(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t port);
/* All that a machine has to know, from the beginning; as much of it as there is room for. */
void nupa_tell_begin(struct nupa_peer *peer);
bool nupa_tell_more(struct nupa_trunk *trunk, struct nupa_peer *peer);

/* news.c.  What has changed since; true: something had. */
bool nupa_tell_news(struct nupa_trunk *trunk);
bool nupa_tell_ports(struct nupa_trunk *trunk);
/* Our slots, as the trunk begins and ends. */
void nupa_tell_start(struct nupa_trunk *trunk);
void nupa_tell_end(struct nupa_trunk *trunk);

/* obey.c.  False: nonsense, or not that machine's to say. */
bool nupa_obey(struct nupa_trunk *trunk, struct nupa_peer *peer, const struct nupa_told *record);

/* pair_out.c.  Those between two slots; 0: any. */
void nupa_pair_open_out(struct nupa_trunk *trunk, uint32_t from, uint32_t to);
struct nupa_pair_out *nupa_pair_find_out(const struct nupa_peer *peer, uint32_t from, uint32_t to);
void nupa_pair_close_out(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t from,
			 uint32_t to);
/* Frees what was closed. */
void nupa_pairs_sweep_out(struct nupa_peer *peer);
/* True: messages went. */
bool nupa_pairs_send(struct nupa_trunk *trunk, struct nupa_peer *peer);
bool nupa_pairs_ready(const struct nupa_trunk *trunk, const struct nupa_peer *peer);
bool nupa_pair_heads(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_heads *record);

/* pair_in.c */
bool nupa_pair_open_in(struct nupa_trunk *trunk, struct nupa_peer *peer,
		       const struct nupa_told_open *record);
void nupa_pair_close_in(struct nupa_peer *peer, uint32_t from, uint32_t to);
void nupa_pairs_sweep_in(struct nupa_trunk *trunk, struct nupa_peer *peer);
bool nupa_pair_bulk(struct nupa_trunk *trunk, struct nupa_peer *peer,
		    const struct nupa_told_bulk *record);
bool nupa_pair_lines(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_lines *record);
/* Tells of heads that are due, all of them if a packet goes anyway; when the next is due. */
uint64_t nupa_pairs_tell_heads(struct nupa_trunk *trunk, struct nupa_peer *peer);
/* Nothing happened for that long: consumers are looked at less often. */
void nupa_pairs_slept(struct nupa_peer *peer);

/* put.c.  Sends a payload by the carrier's put, with those beside it; false: not now. */
bool nupa_put(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_out *pair,
	      const uint8_t *payload, uint32_t bytes);
/* After the last of them, before their lines. */
void nupa_put_end(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_out *pair);
/* More is on its way than may be. */
bool nupa_put_is_full(const struct nupa_peer *peer);
/* A ring whose DMA bytes are backed: payloads are large there. */
void nupa_put_offer(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_in *pair);
bool nupa_put_window(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_window *record);
/* Takes out of a packet what the death of its sender has spoilt. */
void nupa_put_check(struct nupa_trunk *trunk, struct nupa_packet *packet);
void nupa_put_close_out(struct nupa_trunk *trunk, const struct nupa_peer *peer,
			struct nupa_pair_out *pair);
void nupa_put_close_in(struct nupa_trunk *trunk, struct nupa_pair_in *pair);

/* peer.c */
extern const struct nupa_carrier_events nupa_peer_events;
void nupa_peers_begin(struct nupa_trunk *trunk);
/* Connects, pings, gives up; when it has to be called again. */
uint64_t nupa_peers_tick(struct nupa_trunk *trunk);
/* Confirms what processes wait for, up to *wanted*, as read before their news were told. */
void nupa_peers_settle(struct nupa_trunk *trunk, uint32_t wanted);
void nupa_peer_lose(struct nupa_trunk *trunk, struct nupa_peer *peer, const char *reason,
		    uint32_t state);
void nupa_peers_end(struct nupa_trunk *trunk);
bool nupa_peer_hello(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_hello *record);
void nupa_peer_synced(struct nupa_trunk *trunk, struct nupa_peer *peer);

/* trunk.c.  With a carrier that is there; the trunk owns it then. */
int nupa_trunk_new(struct nupa_fabric *fabric, struct nupa_carrier *carrier,
		   struct nupa_trunk **out, char *why, size_t why_bytes);
/* One turn; returns whether anything happened, and when the next is due. */
bool nupa_trunk_turn(struct nupa_trunk *trunk, uint64_t *due_ns);

static inline struct nupa_machine *nupa_peer_seen(const struct nupa_trunk *trunk,
						  const struct nupa_peer *peer)
{
	return &trunk->area->seen[peer->machine];
}

static inline struct nupa_peer *nupa_peer_of_slot(struct nupa_trunk *trunk, uint32_t slot)
{
	return &trunk->peers[nupa_slot_machine(trunk->fabric, slot)];
}

/* Whether the slot is ours, or that machine's. */
static inline bool nupa_slot_ours(const struct nupa_trunk *trunk, uint32_t slot)
{
	return slot >= trunk->first && slot < trunk->end;
}

static inline bool nupa_slot_theirs(const struct nupa_trunk *trunk, const struct nupa_peer *peer,
				    uint32_t slot)
{
	return slot && slot < trunk->fabric->geometry.n_slots &&
	       nupa_slot_machine(trunk->fabric, slot) == peer->machine;
}

/* Whether what was read of a slot's arena is what its owner stored: nobody clears it before the
 * claim says so. */
static inline bool nupa_slot_lives(const struct nupa_trunk *trunk, uint32_t slot, uint32_t epoch)
{
	uint64_t claim;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	claim = nupa_slot_claim(&trunk->fabric->slots[slot]);
	return NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE && NUPA_CLAIM_EPOCH(claim) == epoch;
}

static inline struct nupa_ring_header *nupa_trunk_ring_of(struct nupa_trunk *trunk, uint32_t from,
							  uint32_t to)
{
	uint8_t *arena = nupa_fabric_arena(trunk->fabric, from);

	return arena ? (struct nupa_ring_header *)(void *)(arena + trunk->map.rings_off +
							   (uint64_t)to * trunk->map.ring_stride)
		     : NULL;
}

#endif
