/* SPDX-License-Identifier: BSD-3-Clause
 * Joins small UDP datagrams of one flow that wait behind each other into one frame.  All take one
 * system call and one pass through the network stack.  The receiving kernel separates the payloads
 * again (UDP segmentation offload).  NICs' receivers do the same.  Datagrams keep their boundaries
 * and order, and none waits for others to come. */
#ifndef NUPA_COALESCE_H
#define NUPA_COALESCE_H

#include "netdev/frame.h"

#define NUPA_COALESCE_MAX_BYTES (16u << 10)
#define NUPA_COALESCE_MAX_SEGMENTS 64u        /* Linux's limit */
#define NUPA_COALESCE_MAX_PAYLOAD_BYTES 2048u /* larger ones cost much to copy and gain little */

struct nupa_coalesced {
	uint32_t bytes;         /* of the frame so far; 0: there is none */
	uint32_t headers_bytes; /* vnet, Ethernet, IP, UDP */
	uint32_t payload_bytes; /* of each datagram; the last may be shorter */
	uint32_t segments;
	uint32_t ip_bytes;
	bool full; /* no more may join */
};

/* Whether others may join this frame (a valid one); then *c is about it. */
bool nupa_coalesce_begin(struct nupa_coalesced *c, const uint8_t *frame, uint32_t bytes);
/* Moves the payload of *frame* behind those at *first*; false: it does not belong to them. */
bool nupa_coalesce_join(struct nupa_coalesced *c, uint8_t *first, const uint8_t *frame,
			uint32_t bytes);
/* Makes the headers at *first* those of all.  Returns its length in bytes; *c is empty again. */
uint32_t nupa_coalesce_end(struct nupa_coalesced *c, uint8_t *first);

#endif
