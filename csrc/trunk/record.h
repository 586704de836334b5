/* SPDX-License-Identifier: BSD-3-Clause
 * Packets between trunks: records, one behind the other, each a multiple of 8 bytes.  Words are
 * little-endian, as those of the segment are: both ends are machines that NUPA runs on.
 *
 *   HELLO, then the sender's slots, QPs, ports and bindings, then SYNCED: the sender's state is
 *   there.  From then on changes and messages, in the order in which they were made. */
#ifndef NUPA_TRUNK_RECORD_H
#define NUPA_TRUNK_RECORD_H

#include "segment/ring/wire.h"

#define NUPA_TRUNK_MAGIC UINT64_C(0x4b4e555254505521) /* "!UPTRUNK" */
#define NUPA_TRUNK_VERSION 1u

enum nupa_record_kind {
	NUPA_RECORD_HELLO = 1,
	NUPA_RECORD_SYNCED,
	NUPA_RECORD_SLOT,
	NUPA_RECORD_QP,
	NUPA_RECORD_OPEN,    /* the sender's slot opened its ring to one of the receiver's */
	NUPA_RECORD_CONTACT, /* its word to that slot */
	NUPA_RECORD_BULK,    /* bytes of a ring's DMA channel, before the lines that name them */
	NUPA_RECORD_LINES,   /* lines of a ring, in order */
	NUPA_RECORD_HEADS,   /* how far the sender's slot has taken from the receiver's ring */
	NUPA_RECORD_BOUND,   /* a word of a host's table of ports */
	NUPA_RECORD_PORT,
	NUPA_RECORD_FENCE, /* all before it is to be confirmed */
	NUPA_RECORD_FENCED,
	NUPA_RECORD_PING,
	NUPA_RECORD_PONG,
	NUPA_RECORD_KINDS,
};

struct nupa_record {
	uint32_t bytes; /* with this header */
	uint16_t kind;
	uint16_t pad;
};

struct nupa_record_hello {
	struct nupa_record head;
	uint64_t magic;
	uint32_t version;
	uint32_t machine, machines;
	uint32_t pad;
	uint64_t generation;
	uint64_t shape; /* of hosts, ports, routes, slots and rings (nupa_trunk_shape) */
};

struct nupa_record_slot {
	struct nupa_record head;
	uint32_t slot, state, epoch, pid, host, uid, qp_limit, net_queue, left_epoch, pad;
	char comm[16];
};

struct nupa_record_qp {
	struct nupa_record head;
	uint32_t slot, index;
	struct nupa_qp_entry entry;
};

/* From a slot of the sender to one of the receiver; HEADS: the other way round. */
struct nupa_record_open {
	struct nupa_record head;
	uint32_t from, to;
	uint32_t from_epoch, to_epoch;
};

struct nupa_record_contact {
	struct nupa_record head;
	uint32_t from, to;
	uint32_t word, pad;
};

struct nupa_record_bulk {
	struct nupa_record head;
	uint32_t from, to;
	uint32_t offset; /* in the ring's DMA bytes */
	uint32_t bytes;  /* of data, which follow, padded to 8 */
};

struct nupa_record_lines {
	struct nupa_record head;
	uint32_t from, to;
	uint32_t n, pad; /* struct nupa_msg, which follow */
};

struct nupa_record_heads {
	struct nupa_record head;
	uint32_t from, to;
	uint64_t lines, dma; /* the words of the ring's header */
};

struct nupa_record_bound {
	struct nupa_record head;
	uint32_t host, at; /* at: bucket * NUPA_CM_BUCKET_WORDS + word */
	uint64_t word;
};

struct nupa_record_port {
	struct nupa_record head;
	uint32_t port, state, link_downed, pad;
};

struct nupa_record_counts {
	struct nupa_record head;
	uint32_t slot;
	uint32_t offset; /* behind the arena's flows */
	uint32_t bytes, pad;
};

struct nupa_record_number { /* FENCE, FENCED, PING, PONG */
	struct nupa_record head;
	uint64_t number;
};

#endif
