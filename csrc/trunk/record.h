/* SPDX-License-Identifier: BSD-3-Clause
 * Packets between trunks: records, one behind the other, each a multiple of 8 bytes.  Words are
 * little-endian, as those of the segment are: both ends are machines that NUPA runs on.
 *
 *   HELLO, then the sender's slots, QPs, ports and bindings, then SYNCED: the sender's state is
 *   there.  From then on changes and messages, in the order in which they were made. */
#ifndef NUPA_TRUNK_RECORD_H
#define NUPA_TRUNK_RECORD_H

#include "segment/ring/wire.h"
#include "trunk/carrier.h"

#define NUPA_TRUNK_MAGIC UINT64_C(0x4b4e555254505521) /* "!UPTRUNK" */
#define NUPA_TRUNK_VERSION 2u

enum nupa_told_kind {
	NUPA_TOLD_HELLO = 1,
	NUPA_TOLD_SYNCED,
	NUPA_TOLD_SLOT,
	NUPA_TOLD_QP,
	NUPA_TOLD_OPEN,    /* the sender's slot opened its ring to one of the receiver's */
	NUPA_TOLD_CONTACT, /* its word to that slot */
	NUPA_TOLD_BULK,    /* bytes of a ring's DMA channel, before the lines that name them */
	NUPA_TOLD_LINES,   /* lines of a ring, in order */
	NUPA_TOLD_WINDOW,  /* bytes of the receiver's ring may be put from now on, in place of BULK
			    */
	NUPA_TOLD_HEADS,   /* how far the sender's slot has taken from the receiver's ring */
	NUPA_TOLD_BOUND,   /* a word of a host's table of ports */
	NUPA_TOLD_PORT,
	NUPA_TOLD_FENCE, /* all before it is to be confirmed */
	NUPA_TOLD_FENCED,
	NUPA_TOLD_PING,
	NUPA_TOLD_PONG,
	NUPA_TOLD_KINDS,
};

struct nupa_told {
	uint32_t bytes; /* with this header */
	uint16_t kind;
	uint16_t pad;
};

struct nupa_told_hello {
	struct nupa_told head;
	uint64_t magic;
	uint32_t version;
	uint32_t machine, machines;
	uint32_t pad;
	uint64_t generation;
	uint64_t shape; /* of hosts, ports, routes, slots and rings (nupa_trunk_shape) */
};

struct nupa_told_slot {
	struct nupa_told head;
	uint32_t slot, state, epoch, pid, host, uid, qp_limit, net_queue, left_epoch, pad;
	char comm[16];
};

struct nupa_told_qp {
	struct nupa_told head;
	uint32_t slot, index;
	struct nupa_qp_entry entry;
};

/* From a slot of the sender to one of the receiver; HEADS, WINDOW: the other way round. */
struct nupa_told_open {
	struct nupa_told head;
	uint32_t from, to;
	uint32_t from_epoch, to_epoch;
};

struct nupa_told_contact {
	struct nupa_told head;
	uint32_t from, to;
	uint32_t word, pad;
};

struct nupa_told_bulk {
	struct nupa_told head;
	uint32_t from, to;
	uint32_t offset; /* in the ring's DMA bytes */
	uint32_t bytes;  /* of data, which follow, padded to 8 */
};

struct nupa_told_lines {
	struct nupa_told head;
	uint32_t from, to;
	uint16_t n; /* struct nupa_msg, which follow */
	/* For the sender's trunk (put.c): whether payloads were put, and the life of the slot. */
	uint16_t has_put;
	uint32_t epoch;
};

struct nupa_told_window {
	struct nupa_told head;
	uint32_t from, to;
	uint32_t from_epoch, to_epoch;
	uint64_t address; /* of the ring's DMA bytes */
	uint32_t key_bytes, pad;
	uint8_t key[NUPA_KEY_BYTES];
};

struct nupa_told_heads {
	struct nupa_told head;
	uint32_t from, to;
	uint64_t lines, dma; /* the words of the ring's header */
};

struct nupa_told_bound {
	struct nupa_told head;
	uint32_t host, at; /* at: bucket * NUPA_CM_BUCKET_WORDS + word */
	uint64_t word;
};

struct nupa_told_port {
	struct nupa_told head;
	uint32_t port, state, link_downed, pad;
};

struct nupa_told_number { /* FENCE, FENCED, PING, PONG */
	struct nupa_told head;
	uint64_t number;
};

#endif
