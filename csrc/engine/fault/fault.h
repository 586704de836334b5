/* SPDX-License-Identifier: BSD-3-Clause
 * Faults: what is done to messages that pass a port.  A table in the segment (struct
 * nupa_fault_entry) says what and where; the receiver of a message judges it, before anything else
 * looks at it.
 *
 *   F1  While a fault lies on a path, nothing moves there by another way than messages: no direct
 *       access, no pulls, no express lane.  So all that goes there is judged.
 *   F2  Whether the n-th message that a fault judges is hit depends on its seed and n alone.
 *   F3  A requester has a retransmission timer only while there are faults: without them nothing is
 *       ever lost. */
#ifndef NUPA_FAULT_H
#define NUPA_FAULT_H

#include "segment/segment.h"

/* cffi: begin */
/* A fault as it stands in the table; what its fields mean: layout.h. */
struct nupa_fault_info {
	uint32_t id, kind, port, probability;
	uint64_t seed, after, count, duration_ns, bytes_per_s;
	uint64_t for_ns; /* how long it lasts, or still lasts; 0: until it is cleared */
	uint64_t seen, hits;
	uint32_t ended; /* its time is over or all its hits are used up */
};

/* Adds one: its id; -ENOSPC (the table is full), -EINVAL (a kind, port or value that there is not;
 * *why* says which).  All attachments go by it when this returns, unless one is stopped.  The
 * caller holds the control lock. */
int64_t nupa_fault_add(struct nupa_fabric *fabric, const struct nupa_fault_info *fault, char *why,
		       size_t why_bytes);
/* Takes one away, or, id 0, all: 0 or -ENOENT.  Messages held back go on; a port that a flap has
 * taken down comes up.  Same lock. */
int nupa_fault_clear(struct nupa_fabric *fabric, uint32_t id);
/* Those in the table, up to max of them, oldest first; returns how many there are. */
uint32_t nupa_fault_list(struct nupa_fabric *fabric, struct nupa_fault_info *out, uint32_t max);
/* cffi: end */

#endif
