/* SPDX-License-Identifier: BSD-3-Clause
 * The table of wires, in the superblock: hosts of this fabric that are reached by RoCE v2 at an
 * address.  A wire's keeper is an attachment to its host; processes send and receive the packets
 * themselves (docs/design.md, "Wires").
 *
 *   W1  An entry's words up to `socket` are written before `host`, by the holder of the control
 *       lock, except `state`, `mtu_bytes` and `error`, which the keeper stores.
 *   W2  An entry holds while its slot has its epoch.  Others take an entry of a dead keeper away.
 *   W3  All of it is read by other processes: each field is checked before its use.
 *   W6  A keeper's host has an entry from before the keeper attaches.  Without one, a number of the
 *       other end's QP would be taken for one of this fabric, and a channel to the keeper opened
 *       that is no wire's. */
#ifndef NUPA_WIRE_LAYOUT_H
#define NUPA_WIRE_LAYOUT_H

#include "segment/layout/limits.h"

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum nupa_wire_state {
	NUPA_WIRE_NONE,
	NUPA_WIRE_STARTING, /* nothing has come from there yet */
	NUPA_WIRE_UP,
	NUPA_WIRE_DOWN, /* the network or the far side does not answer */
	NUPA_WIRE_STATES,
};

enum nupa_wire_medium {
	NUPA_WIRE_UDP,    /* identifications are hidden: 1 of 65,536 wrong packets passes */
	NUPA_WIRE_RAW,    /* UDP, and a raw socket that shows them: the ICRC is exact */
	NUPA_WIRE_FRAMES, /* frames of a guest's network: the ICRC is exact */
	NUPA_WIRE_MEDIA,
};
/* cffi: end */

/* The keeper's socket by its path; a sockaddr_un holds no longer one. */
#define NUPA_WIRE_SOCKET_BYTES 108u

struct nupa_wire_entry {
	_Alignas(NUPA_CACHE_LINE_BYTES) uint32_t host; /* index + 1; 0: free.  Stored last */
	uint32_t slot;                                 /* the keeper's attachment */
	uint32_t state;                                /* enum nupa_wire_state */
	uint32_t medium;                               /* enum nupa_wire_medium */
	uint8_t remote[16], local[16];                 /* GIDs; IPv4 addresses are mapped */
	uint32_t mtu_bytes; /* the largest RoCE MTU that the network carries: 256 to 4096 */
	uint32_t flags;     /* 0 */
	char socket[NUPA_WIRE_SOCKET_BYTES];
	uint32_t epoch; /* of the slot's claim */
	int32_t error;  /* the last errno that the network gave; 0: none */
	/* fetch_add (relaxed) by any attached process, but for the first three. */
	_Alignas(NUPA_CACHE_LINE_BYTES) uint64_t heard_ns; /* CLOCK_MONOTONIC of a packet from
							    * there, a second old at most */
	uint64_t rtt_ns;                                   /* smoothed; 0: not known */
	uint64_t other[2]; /* a source whose packets came instead of `remote`: NAT; 0: none */
	uint64_t sent_packets, sent_bytes;
	uint64_t received_packets, received_bytes;
	uint64_t retransmitted; /* packets sent again */
	uint64_t lost;          /* packets that the other end missed: NAKs and time-outs */
	uint64_t icrc_errors;
	uint64_t malformed;
	uint64_t foreign; /* from another address, or to nobody: dropped */
	uint64_t refused; /* ICMP errors: the network or the other end refused a packet */
	uint64_t ecn_marked, cnp_sent, cnp_handled;
	uint64_t reserved[7];
};
_Static_assert(sizeof(struct nupa_wire_entry) == 384, "struct nupa_wire_entry");
_Static_assert(offsetof(struct nupa_wire_entry, heard_ns) == 192, "heard_ns");

#endif
