/* SPDX-License-Identifier: BSD-3-Clause
 * The table of wires (layout/wire_layout.h): entries listed, made and taken away. */
#ifndef NUPA_SLOT_WIRE_H
#define NUPA_SLOT_WIRE_H

#include "segment/segment.h"

/* cffi: begin */
/* An entry as it stands in the table; what its fields mean: wire_layout.h. */
struct nupa_wire_info {
	uint32_t index;
	uint32_t host; /* its index, not + 1 */
	uint32_t slot, epoch, state, medium, mtu_bytes, flags;
	uint8_t remote[16], local[16];
	char socket[108];
	uint32_t kept; /* its keeper is attached: W2 */
	int32_t error;
	uint64_t heard_ns, rtt_ns, other[2];
	uint64_t sent_packets, sent_bytes, received_packets, received_bytes;
	uint64_t retransmitted, lost, icrc_errors, malformed, foreign, refused;
	uint64_t ecn_marked, cnp_sent, cnp_handled;
};

/* Adds one, with host, slot, epoch, state, medium, mtu_bytes, addresses and socket of *wire*: its
 * index; the caller holds the control lock.  -EINVAL (a value that there is not), -EEXIST (the host
 * or the address has one), -EBUSY (other attachments are on the host), -ENOSPC (the table, or the
 * GIDs for local addresses, are full); *why* says which. */
int nupa_wire_add(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		  size_t why_bytes);
/* Takes one away: 0 or -ENOENT; same lock. */
int nupa_wire_remove(struct nupa_fabric *fabric, uint32_t index);
/* Those in the table, up to max of them; returns how many there are. */
uint32_t nupa_wire_list(const struct nupa_fabric *fabric, struct nupa_wire_info *out, uint32_t max);
/* The same without a keeper, which is not on the host yet; nupa_wire_add by a keeper with the same
 * host and addresses fills the entry in.  Until then the host is lost (W6). */
int nupa_wire_reserve(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		      size_t why_bytes);
/* cffi: end */

#endif
