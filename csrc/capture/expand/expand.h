/* SPDX-License-Identifier: BSD-3-Clause
 * A watch, and the expansion of a record into packets: runs, sights, the memory of requests that
 * gives wire PSNs.
 *
 *   W1  Input is not trusted: each length and index is checked where it is used.
 *   W2  A record is expanded into runs of packets; each packet of a run can be built again from
 *       the run and its number alone.  So a full buffer loses nothing: the same packet comes next.
 */
#ifndef NUPA_EXPAND_H
#define NUPA_EXPAND_H

#include "capture/expand/cache_line.h"
#include "capture/expand/split.h"
#include "capture/expand/packet.h"
#include "engine/trace/trace.h"
#include "segment/segment.h"

#include <string.h>

/* nupa/core/levels.py has the same; a test compares them. */
enum nupa_level {
	NUPA_LEVEL_TLP = 1,
	NUPA_LEVEL_QUEUE,
	NUPA_LEVEL_TRANSPORT,
	NUPA_LEVEL_NET,
	NUPA_LEVEL_CACHE,
};
#define NUPA_WATCH_CACHE (1u << (NUPA_LEVEL_CACHE - 1))
enum nupa_kind {
	NUPA_KIND_PCIE_TLP = 1,
	NUPA_KIND_CXL_MEM,
	NUPA_KIND_DOORBELL,
	NUPA_KIND_WQE,
	NUPA_KIND_CQE,
	NUPA_KIND_ETHERNET,
	NUPA_KIND_CXL_CACHE,
};
enum nupa_direction { NUPA_INBOUND = 1, NUPA_OUTBOUND };
enum nupa_record_flag {
	NUPA_FLAG_FIRST = 1,
	NUPA_FLAG_LAST = 2,
	NUPA_FLAG_RETRY = 4,
	NUPA_FLAG_CORRUPT = 8,
	NUPA_FLAG_POISON = 16,
	NUPA_FLAG_DROPPED = 32,
	NUPA_FLAG_DUPLICATE = 64,
	NUPA_FLAG_DELAYED = 128,
	NUPA_FLAG_INJECTED = 256,
};

#define NUPA_PSN_MASK 0xffffffu

/* --- rings --------------------------------------------------------------------------- */

/* The ring of one slot, copied piece by piece into memory of our own. */
struct nupa_reader {
	uint32_t slot, host;
	uint32_t epoch;    /* of the owner whose records these are */
	uint64_t position; /* in the ring, of buffer[end] */
	uint8_t *buffer;
	size_t room_bytes, begin, end; /* not yet expanded */
	uint32_t sequence;             /* of the record that comes next */
	bool drained;                  /* its owner is gone and left nothing more */
};

/* --- packets ------------------------------------------------------------------------- */

/* Where a packet is seen. */
struct nupa_sight {
	uint16_t port, host;
	uint8_t direction;
};

/* Properties that the packets of a run share. */
struct nupa_cast {
	uint64_t transfer;
	uint16_t flags; /* enum nupa_record_flag, FIRST and LAST left out */
	uint8_t level, kind;
	bool ends_transfer; /* with its last packet */
	uint8_t n_sights;
	struct nupa_sight sights[NUPA_HOPS_MAX + 1];
};

enum nupa_roce_what {
	NUPA_ROCE_SEND,
	NUPA_ROCE_WRITE,
	NUPA_ROCE_READ,
	NUPA_ROCE_READ_RESPONSE,
	NUPA_ROCE_ACK,
	NUPA_ROCE_ATOMIC, /* kind: enum nupa_atomic_kind */
	NUPA_ROCE_ATOMIC_ACK,
};

/* The upper bits of opcodes. */
#define NUPA_TRANSPORT_RC 0x00u
#define NUPA_TRANSPORT_UC 0x20u
#define NUPA_TRANSPORT_UD 0x60u
#define NUPA_TRANSPORT_XRC 0xa0u

#define NUPA_ACK_SYNDROME 0x1fu /* IBTA 9.7.5.2: an ACK without credits */

/* Packets of InfiniBand's transport, all of one message or of a part of one. */
struct nupa_roce {
	uint8_t what;      /* enum nupa_roce_what */
	uint8_t transport; /* the upper bits of its opcodes */
	uint8_t atomic;    /* enum nupa_atomic_kind */
	uint8_t syndrome;
	bool begins, ends, solicited, asks;
	bool with_imm, with_inv;
	uint32_t imm; /* as in struct nupa_msg */
	uint32_t src_qpn, dest_qpn, srqn, qkey;
	uint16_t pkey; /* 0: the default partition's */
	uint32_t psn, msn;
	uint32_t mtu_bytes, piece_bytes, data_bytes;
	uint64_t bytes; /* of payload */
	const uint8_t *data;
	uint64_t raddr;
	uint32_t rkey, total_bytes;
	uint64_t compare_add, swap, original;
	uint8_t head[42]; /* Ethernet, IPv4, UDP: lengths left out */
	uint32_t ip_sum;  /* of the 16 bit words of the IPv4 header */
};

#define NUPA_WHOLE_HEAD_BYTES 64u

struct nupa_whole { /* a packet that lies there as it is, or was built already */
	uint8_t head[NUPA_WHOLE_HEAD_BYTES]; /* in front of the data */
	uint32_t head_bytes;
	const uint8_t *data;
	uint32_t data_bytes, original_bytes;
	uint16_t ip_length; /* to be put into its IPv4 header; 0: as it is */
};

/* The recorded part of a payload: of each mtu_bytes the first piece_bytes, `bytes` in all. */
struct nupa_data {
	const uint8_t *at;
	uint64_t bytes;
	uint32_t mtu_bytes, piece_bytes;
};

struct nupa_piece {
	uint64_t address, bytes;
};
#define NUPA_PIECES_MAX 8u

/* The memory of a work request. */
struct nupa_memory {
	uint64_t transfer;
	uint32_t n;
	bool is_inline;
	struct nupa_piece pieces[NUPA_PIECES_MAX];
};
#define NUPA_MEMORIES 4096u

/* TLPs or CXL.mem messages of one access to memory at a host's port. */
struct nupa_tlp {
	struct nupa_split split;
	uint8_t access; /* enum nupa_access */
	bool poisoned;
	uint16_t host, requester, completer;
	uint32_t n_pieces, piece; /* the one after that which `split` is of */
	uint64_t before;          /* bytes of those before that */
	struct nupa_piece pieces[NUPA_PIECES_MAX];
	struct nupa_data data;
	uint64_t words[4]; /* of an atomic: compare or add, swap, old, new */
};

/* ENTRY: a whole packet that has NUPA's header in front, as TLPs have. */
enum nupa_run_how {
	NUPA_RUN_ROCE,
	NUPA_RUN_WHOLE,
	NUPA_RUN_ENTRY,
	NUPA_RUN_TLP,
	NUPA_RUN_CACHE,
};

struct nupa_run {
	struct nupa_cast cast;
	uint8_t how;      /* enum nupa_run_how */
	uint32_t n, next; /* packets; the next one */
	uint32_t sight;   /* the next one of that packet */
	uint32_t sequence;
	bool begun;
	bool numbered; /* the next packet has its `sequence` */
	union {
		struct nupa_roce roce;
		struct nupa_whole whole;
		struct nupa_tlp tlp;
		struct nupa_cache cache;
	};
};
#define NUPA_RUNS_MAX 8u

/* The reader's buffer. */
struct nupa_sink {
	uint8_t *at, *end;
	uint32_t packets;
};
#define NUPA_HEADERS_MAX_BYTES 192u /* of a packet, what stands behind its payload included */

/* --- requesters ---------------------------------------------------------------------- */

/* A QP that sends requests.  PSNs of the engine have the incarnation in their upper 8 bits. */
struct nupa_requester {
	uint32_t qpn; /* 0: none */
	uint32_t used;
	uint32_t engine_psn, wire_psn; /* of what it sends next */
	uint32_t messages;             /* sent so far: what a responder counts, too */
	uint64_t origin;               /* where its last WRITE began */
};

/* One request message of the engine, by its PSN. */
struct nupa_sent {
	uint64_t transfer;
	uint32_t qpn, engine_psn;
	uint32_t wire_psn, wire_last;
	uint32_t msn;
	uint8_t transport; /* the upper bits of its opcodes */
	uint8_t atomic;    /* enum nupa_atomic_kind */
	/* Of a READ or atomic. */
	uint64_t raddr, compare_add, swap;
};

#define NUPA_REQUESTER_WAYS 8u
#define NUPA_REQUESTER_SETS 2048u
#define NUPA_SENT_ENTRIES 65536u
#define NUPA_SENT_WINDOW 1024u /* of one QP: those that may be in flight */
#define NUPA_TRANSFER_ENTRIES 16384u

/* How many packets of a transfer there were at each level. */
struct nupa_transfer_count {
	uint64_t transfer;
	uint32_t packets[NUPA_LEVEL_CACHE];
};

/* The multicast frame shown last, and the hosts to which copies of it went. */
struct nupa_flood {
	uint32_t source, crc;
	uint64_t hosts[(NUPA_HOSTS_MAX + 1) / 64 + 1];
};

struct nupa_watch {
	struct nupa_fabric *fabric;
	uint32_t levels, snap_bytes;
	int place; /* in the superblock; -1: stopped */
	uint64_t stopped_ns;
	uint32_t n_ports;
	bool watched[NUPA_PORTS_MAX];
	struct nupa_watch_counts counts;
	uint64_t epoch_ns; /* CLOCK_REALTIME less CLOCK_MONOTONIC */
	uint64_t last_ns;  /* of the packet before */

	struct nupa_reader *readers; /* by slot */
	uint64_t horizon_ns;
	struct nupa_reader *current; /* the owner of the record being expanded */
	uint64_t others_ns;          /* the earliest record of all others */
	uint32_t record_bytes;       /* of that record */

	uint64_t ts_ns;
	uint32_t n_runs, run;
	struct nupa_run runs[NUPA_RUNS_MAX];
	struct nupa_run nowhere; /* of a level that is not watched */
	uint8_t entry[2048];     /* the current queue entry */

	struct nupa_requester *requesters;
	struct nupa_sent *sent;
	struct nupa_transfer_count *transfers;
	struct nupa_memory *memories;        /* NULL: TLPs are not watched */
	struct nupa_cache_ring *cache_rings; /* by producer's and consumer's slot */
	uint16_t cqids[NUPA_HOSTS_MAX], uqids[NUPA_HOSTS_MAX]; /* next: by host */
	uint16_t tags[2][2][NUPA_HOSTS_MAX + 1]; /* next: by host or engine, TLP or CXL, host */
	uint32_t ticks;
	struct nupa_flood flood;
	uint32_t group_qpn, group_psn;      /* the datagram to a group that was shown last */
	uint32_t mad_psns[NUPA_HOSTS_MAX];  /* of QP 1 of each host */
	uint16_t slot_host[NUPA_SLOTS_MAX]; /* + 1; 0: not known */
};

/* requesters.c */
int nupa_requesters_open(struct nupa_watch *watch);
void nupa_requesters_close(struct nupa_watch *watch);
/* The facts known of a message from now on.  It has a PSN of the engine and takes n packets on the
 * wire.  completes: it is the last part of its request. */
struct nupa_sent *nupa_requester_sends(struct nupa_watch *watch, uint32_t qpn, uint32_t engine_psn,
				       uint32_t n, bool completes, uint64_t transfer);
/* A direct access takes n packets and no PSN of the engine.  Returns the first packet's PSN. */
uint32_t nupa_requester_moves(struct nupa_watch *watch, uint32_t qpn, uint32_t engine_psn,
			      uint32_t n, bool completes, uint32_t *msn);
/* The request with that PSN; an unknown one is *guess, filled with likely values. */
const struct nupa_sent *nupa_requester_find(struct nupa_watch *watch, uint32_t qpn,
					    uint32_t engine_psn, struct nupa_sent *guess);
/* The number of the next packet of a transfer at a level. */
uint32_t nupa_transfer_next(struct nupa_watch *watch, uint64_t transfer, uint8_t level);

/* Where a transfer lies in tables of transfers: those of one QP side by side. */
static inline uint32_t nupa_transfer_place(uint64_t transfer)
{
	return ((uint32_t)(transfer >> 40) * 0x9e3779b1u >> 8) + (uint32_t)transfer;
}
/* The beginning of the WRITE that this part belongs to. */
uint64_t nupa_requester_origin(struct nupa_watch *watch, uint32_t qpn, bool first, uint64_t raddr);

/* sights.c */
/* A packet from host to host. */
void nupa_sights_route(const struct nupa_watch *watch, uint32_t from, uint32_t to,
		       struct nupa_cast *cast);
/* One that goes to all hosts. */
void nupa_sights_flood(const struct nupa_watch *watch, uint32_t from, struct nupa_cast *cast);
/* At the port of a host alone. */
void nupa_sights_port(const struct nupa_watch *watch, uint32_t host, enum nupa_direction direction,
		      struct nupa_cast *cast);

/* A copy of a packet that its source has sent already. */
void nupa_sights_drop_outbound(struct nupa_cast *cast);
/* Of a device: at its host's own port. */
void nupa_sights_device(const struct nupa_watch *watch, uint32_t host,
			enum nupa_direction direction, struct nupa_cast *cast);
/* The host of a slot, or n_hosts: not known. */
uint32_t nupa_host_of(const struct nupa_watch *watch, uint32_t slot);

/* run.c */
/* The next run, all zeros but for its cast's transfer and flags. */
struct nupa_run *nupa_run_add(struct nupa_watch *watch, uint8_t level, uint8_t kind,
			      uint64_t transfer, uint16_t flags);
/* A record's flags, as the reader gets them. */
uint16_t nupa_flags_of(const struct nupa_trace_record *record);
/* How many of its packets a payload takes. */
static inline uint64_t nupa_packets_of(uint64_t bytes, uint32_t mtu_bytes)
{
	return bytes ? (bytes + mtu_bytes - 1) / mtu_bytes : 1;
}
uint8_t nupa_transport_of(uint8_t qp_type, bool is_xrc);
bool nupa_data_makes_sense(const struct nupa_trace_data *data);
struct nupa_run *nupa_roce_add(struct nupa_watch *watch, enum nupa_roce_what what,
			       uint64_t transfer, uint16_t flags);
/* Facts about both ends, once the rest is there. */
void nupa_roce_join(struct nupa_watch *watch, struct nupa_run *run, uint32_t from, uint32_t to,
		    bool received);
void nupa_roce_set_data(struct nupa_roce *roce, const struct nupa_trace_data *data,
			const struct nupa_trace_record *record, const void *from);

/* Each of these appends runs; false: the record is invalid.  *source*: the owner of the ring. */
bool nupa_expand_message(struct nupa_watch *watch, const struct nupa_trace_record *record,
			 uint32_t source);
bool nupa_expand_direct(struct nupa_watch *watch, const struct nupa_trace_record *record,
			uint32_t source);
bool nupa_expand_wqe(struct nupa_watch *watch, const struct nupa_trace_record *record,
		     uint32_t source);
bool nupa_expand_doorbell(struct nupa_watch *watch, const struct nupa_trace_record *record,
			  uint32_t source);
bool nupa_expand_cqe(struct nupa_watch *watch, const struct nupa_trace_record *record,
		     uint32_t source);
bool nupa_expand_frame(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t source);
/* wire.c */
bool nupa_expand_packet(struct nupa_watch *watch, const struct nupa_trace_record *record,
			uint32_t source);

/* roce.c */
/* The beginning of its packets. */
void nupa_roce_head(const struct nupa_watch *watch, struct nupa_roce *roce, uint32_t from,
		    uint32_t to);
/* How much room packet i needs at most. */
uint32_t nupa_roce_room(const struct nupa_roce *roce, uint32_t i);
/* Packet i of n: how much of it was captured. */
uint32_t nupa_roce_build(const struct nupa_roce *roce, uint32_t i, uint32_t n, uint32_t snap_bytes,
			 uint8_t *out, uint32_t *original_bytes);

/* mad.c */
bool nupa_expand_cm(struct nupa_watch *watch, const struct nupa_trace_record *record, uint32_t from,
		    uint32_t to);

/* tlp.c: a record's runs. */
void nupa_tlp_remember(struct nupa_watch *watch, uint64_t transfer,
		       const struct nupa_trace_wqe *wqe);
void nupa_tlp_doorbell(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t host, const struct nupa_trace_doorbell *bell);
/* Its bytes stand in watch->entry. */
void nupa_tlp_cqe(struct nupa_watch *watch, const struct nupa_trace_record *record,
		  uint64_t transfer, uint32_t host, const struct nupa_trace_cqe *cqe);
/* A SEND or WRITE; a READ's or atomic's response; a direct access. */
void nupa_tlp_request(struct nupa_watch *watch, const struct nupa_trace_record *record,
		      uint32_t from, uint32_t to, uint64_t transfer);
void nupa_tlp_response(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t from, uint32_t to, const struct nupa_sent *sent);
void nupa_tlp_direct(struct nupa_watch *watch, const struct nupa_trace_record *record,
		     uint32_t from);
/* The first TLP of a run, the next one: false: there is none. */
bool nupa_tlp_begin(struct nupa_watch *watch, struct nupa_tlp *tlp);
bool nupa_tlp_next(struct nupa_watch *watch, struct nupa_tlp *tlp);
bool nupa_tlp_is_last(const struct nupa_tlp *tlp);
/* How much of the current one was captured. */
uint32_t nupa_tlp_build(const struct nupa_tlp *tlp, uint8_t *out, uint32_t *original_bytes);

/* expand.c */
/* Makes runs of a record; then copies packets until they end or the buffer is full (false). */
void nupa_expand_begin(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t source);
bool nupa_expand_go_on(struct nupa_watch *watch, struct nupa_sink *sink);

#endif
