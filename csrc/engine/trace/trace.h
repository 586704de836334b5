/* SPDX-License-Identifier: BSD-3-Clause
 * Traces: records that an attachment makes of its own actions while a capture runs.
 *
 * Each attachment has one ring in its arena (struct nupa_trace_header, then NUPA_TRACE_BYTES),
 * written over and over.  Any number of watchers read it.  The writer knows none, so none can delay
 * it.  A slow watcher finds that it was overtaken, and counts its losses by the records' sequence.
 *
 *   T1  Writer: `begun` moves first, then the bytes are stored, then `tail` (release).  A reader
 *       copies a record, then (acquire) looks at `begun`: what lies more than NUPA_TRACE_BYTES
 *       before it may have been overwritten.
 *   T2  Records begin at multiples of 8 and never wrap: NUPA_TRACE_PAD fills the ring's end.
 *   T3  A record is published before its effects reach any other process; its time is taken
 *       before that.  So a reader that reads the clock (T) and then all tails has all records with
 *       a time up to T, and can order causes before effects.  A packet to a wire is published when
 *       the kernel has taken it, as only then it is known.
 *   T4  Each message and each direct access is recorded once, by the side that causes it.  Where
 *       else it passes follows from the route.  Of a message to a wire the packet is recorded
 *       instead, by its sender, and a packet from there by the process that takes it.
 *
 * Structures are the engine's own and change with it; csrc/capture turns them into public formats.
 */
#ifndef NUPA_TRACE_H
#define NUPA_TRACE_H

#include "packet/icrc.h"
#include "segment/ring/wire.h"

/* Recorded at level QUEUE: WQE, DOORBELL, CQE; TRANSPORT: MESSAGE, DIRECT, PACKET; NET: FRAME; TLP:
 * all but FRAME and PACKET. */
#define NUPA_TRACE_ENTRIES (NUPA_TRACE_QUEUE | NUPA_TRACE_TLP)
#define NUPA_TRACE_MOVES (NUPA_TRACE_TRANSPORT | NUPA_TRACE_TLP)
enum nupa_trace_kind {
	NUPA_TRACE_PAD = 1,  /* nothing up to the end of the ring */
	NUPA_TRACE_WQE,      /* struct nupa_trace_wqe: a work request was posted */
	NUPA_TRACE_DOORBELL, /* struct nupa_trace_doorbell: and so the device was told */
	NUPA_TRACE_MESSAGE,  /* struct nupa_trace_message: a line of a channel, verbs' */
	NUPA_TRACE_DIRECT,   /* struct nupa_trace_direct: a requester moved the data by itself */
	NUPA_TRACE_CQE,      /* struct nupa_trace_cqe */
	NUPA_TRACE_FRAME,    /* struct nupa_trace_frame: of the netdev */
	NUPA_TRACE_PACKET,   /* struct nupa_trace_packet: of a wire */
};

/* In `flags`: why the record is there besides; recorded by the receiver, of what came to it. */
enum nupa_trace_flag {
	NUPA_TRACE_DROPPED = 1,
	NUPA_TRACE_DUPLICATE = 2,
	NUPA_TRACE_DELAYED = 4,
	NUPA_TRACE_CORRUPT = 8, /* the link sends it again */
	NUPA_TRACE_POISON = 16,
	NUPA_TRACE_INJECTED = 32,
	NUPA_TRACE_RETRY = 64, /* by the sender: it was sent before */
};
#define NUPA_TRACE_BY_RECEIVER                                                                     \
	(NUPA_TRACE_DROPPED | NUPA_TRACE_DUPLICATE | NUPA_TRACE_DELAYED | NUPA_TRACE_CORRUPT |     \
	 NUPA_TRACE_POISON | NUPA_TRACE_INJECTED)

/* The work request of a record: its QP's number << 40 | how many were posted there before it, + 1,
 * of 40 bits.  0: unknown to the record; QP and PSN identify it. */
#define NUPA_TRANSFER(qpn, index)                                                                  \
	((uint64_t)(qpn) << 40 | (((uint64_t)(index) + 1) & ((UINT64_C(1) << 40) - 1)))

struct nupa_trace_record {
	uint32_t bytes;    /* of all: this, the structure of its kind, data; a multiple of 8 */
	uint8_t kind;      /* enum nupa_trace_kind */
	uint8_t flags;     /* enum nupa_trace_flag */
	uint16_t peer;     /* the slot at the other end; 0: none.  FRAME: its host, + 1; 0: all */
	uint32_t sequence; /* how many records the attachment wrote before, PADs not counted */
	uint32_t data_bytes;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t transfer;
};
NUPA_ASSERT_SIZE(struct nupa_trace_record, 32);

/* How much of the data stands behind the structure: of each mtu_bytes the first piece_bytes (all,
 * where they are equal), one piece behind the other. */
struct nupa_trace_data {
	uint32_t total_bytes;
	uint32_t mtu_bytes; /* the path's: a transport packet's payload */
	uint32_t piece_bytes;
	uint32_t ahead; /* MESSAGE: lines before it that the producer has not seen taken */
};

/* Data: the message's payload, from any place.  While a capture runs, SENDs are not pulled. */
struct nupa_trace_message {
	struct nupa_msg msg; /* tag: as it is published; none in what came */
	struct nupa_trace_data data;
	uint8_t qp_type; /* enum ibv_qp_type of the sender */
	uint8_t is_xrc;
	uint16_t line; /* its place in the ring */
	uint32_t dest_host;
	uint16_t pkey;      /* of the sender's QP; 0: not known */
	uint8_t line_shift; /* log2 of the lines that the ring has there */
	uint8_t is_fresh;   /* nothing was written to the line before */
	uint16_t pad[2];
};
NUPA_ASSERT_SIZE(struct nupa_trace_message, 64 + 16 + 16);

/* Data: what was moved; of an atomic nothing.  A message longer than NUPA_TRACE_CHUNK_BYTES is
 * several records with different `offset`. */
struct nupa_trace_direct {
	uint32_t opcode; /* enum ibv_wr_opcode */
	uint32_t src_qpn, dest_qpn;
	uint32_t dest_host;
	uint32_t rkey;
	uint32_t imm;
	uint64_t raddr;    /* of all of it */
	uint64_t pool_off; /* where that is in the pool; ~0: not there */
	uint64_t message_bytes, offset_bytes;
	uint64_t compare_add, swap, original;
	struct nupa_trace_data data;
	uint8_t mover; /* enum nupa_mover */
	uint8_t qp_type;
	uint8_t is_xrc;
	uint8_t pad;
	/* As in nupa_msg, of the requester's next message.  WRITE_WITH_IMM: of the one that tells
	 * of it, which is not recorded; acknowledged is that.  Others have no answer: it is done.
	 */
	uint32_t psn;
	uint16_t pkey, peer_pkey; /* of both QPs */
	uint32_t pad2;
};
NUPA_ASSERT_SIZE(struct nupa_trace_direct, 24 + 56 + 16 + 16);
#define NUPA_TRACE_CHUNK_BYTES (256u << 10)

/* Data: n_sge times struct ibv_sge, or the inline data. */
struct nupa_trace_wqe {
	uint32_t qpn, dest_qpn; /* dest_qpn, UD: of this datagram */
	uint32_t dest_host;
	uint32_t index; /* in the send queue */
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;  /* enum ibv_send_flags */
	uint8_t n_sge;
	uint8_t qp_type;
	uint32_t length_bytes;
	uint32_t imm, rkey;
	uint64_t wr_id;
	uint64_t raddr;
	uint64_t compare_add, swap; /* BIND_MW: length; lkey | access << 32 */
	uint32_t qkey;              /* UD */
	uint32_t srqn;              /* XRC */
};
NUPA_ASSERT_SIZE(struct nupa_trace_wqe, 72);

enum nupa_trace_queue { NUPA_QUEUE_SQ, NUPA_QUEUE_RQ, NUPA_QUEUE_SRQ, NUPA_QUEUE_CQ };

struct nupa_trace_doorbell {
	uint32_t number; /* of the QP, the SRQ or the CQ */
	uint16_t queue;  /* enum nupa_trace_queue */
	uint16_t flags;  /* CQ: 1: of solicited completions alone */
	uint64_t index;  /* posted there so far; CQ, of which a notification is asked: polled */
};
NUPA_ASSERT_SIZE(struct nupa_trace_doorbell, 16);

/* The record's transfer: a send's own.  Of a receive it is 0, and src_qpn and psn say which. */
struct nupa_trace_cqe {
	uint64_t wr_id;
	uint32_t cq; /* the CQ's handle */
	uint32_t qpn, src_qpn;
	uint32_t psn; /* of a receive: of the message's last part; ~0: not known */
	uint32_t byte_len, imm;
	uint8_t status, opcode; /* enum ibv_wc_status, enum ibv_wc_opcode */
	uint8_t wc_flags;
	uint8_t is_receive;
	uint32_t vendor_err;
	uint32_t index; /* how many completions the CQ had before */
	uint32_t pad;
};
NUPA_ASSERT_SIZE(struct nupa_trace_cqe, 48);

/* Data: the frame, behind its vnet_hdr (12 bytes, left out). */
struct nupa_trace_frame {
	struct nupa_trace_data data;
	uint8_t gso_type; /* as in the vnet_hdr: one record may stand for many packets */
	uint8_t flags;
	uint16_t gso_bytes;
	uint16_t csum_start, csum_offset;
};
NUPA_ASSERT_SIZE(struct nupa_trace_frame, 24);

/* Data: the packet from the BTH to the ICRC. */
struct nupa_trace_packet {
	struct nupa_trace_data data;
	struct nupa_roce_path path;
	uint16_t host; /* the wire's */
	uint8_t came;  /* from there */
	uint8_t ends;  /* an answer: the last one to its request */
	uint8_t pad[2];
};
NUPA_ASSERT_SIZE(struct nupa_trace_packet, 16 + 38 + 6);

/* The request that a line of a wire's ring is of: a packet is made of it later. */
struct nupa_trace_posted {
	uint64_t transfer; /* 0: none, or not known */
	uint32_t line;     /* + 1 */
	uint8_t flags;     /* enum nupa_trace_flag */
};

/* The largest record: who finds a larger one reads nonsense. */
#define NUPA_TRACE_RECORD_MAX_BYTES (NUPA_TRACE_CHUNK_BYTES + 512u)

struct nupa_engine;
struct nupa_channel;
struct nupa_cq;
struct nupa_express;
struct nupa_qp;
struct nupa_span;
struct nupa_wqe;

/* All under the engine's lock, and only while engine->trace says so. */

/* Whether a place in the superblock's table belongs to a process that still runs. */
bool nupa_watcher_lives(const struct nupa_watcher *watcher);
/* Follows the levels of the superblock while a capture runs. */
void nupa_trace_follow(struct nupa_engine *engine);
/* A message about to be published; its payload is where nupa_tx_reserve said. */
void nupa_trace_send(struct nupa_engine *engine, const struct nupa_channel *channel,
		     const struct nupa_msg *line);
/* A message that has come, and what was done to it: flags of NUPA_TRACE_BY_RECEIVER.  peer: the
 * slot that sent it. */
void nupa_trace_received(struct nupa_engine *engine, uint32_t peer, const struct nupa_msg *msg,
			 const uint8_t *payload, uint8_t flags);
/* A request that was moved directly; begun_ns: when that began. */
void nupa_trace_direct(struct nupa_qp *qp, const struct nupa_wqe *wqe,
		       const struct nupa_span *spans, uint32_t n_spans, uint64_t begun_ns);
/* Requests of a send queue from *first* on, which were posted just now; then the bell. */
void nupa_trace_post(struct nupa_qp *qp, uint64_t first);
void nupa_trace_express(struct nupa_qp *qp, const struct nupa_express *request,
			const struct nupa_msg *msg);
void nupa_trace_doorbell(struct nupa_engine *engine, enum nupa_trace_queue queue, uint32_t number,
			 uint64_t index, uint16_t flags);
/* The completion that the queue has got last. */
void nupa_trace_completion(struct nupa_engine *engine, const struct nupa_cq *cq);
void nupa_trace_frame(struct nupa_engine *engine, uint32_t dest_host, const uint8_t *frame,
		      uint32_t bytes);
/* A packet of a wire that has just left, or came.  packet->data is ignored. */
#define NUPA_TRACE_PIECES_MAX 3u
void nupa_trace_packet(struct nupa_engine *engine, const struct nupa_trace_packet *packet,
		       struct nupa_trace_posted of, uint64_t time_ns, const struct iovec *pieces,
		       uint32_t n_pieces);
struct nupa_trace_posted nupa_trace_posted(const struct nupa_channel *channel, uint64_t line);

#endif
