/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind segment.h. */
#ifndef NUPA_SEGMENT_INTERNAL_H
#define NUPA_SEGMENT_INTERNAL_H

#include "segment/layout/qpn.h"
#include "segment/segment.h"

static inline uint64_t nupa_arena_offset(const struct nupa_fabric *fabric, uint32_t slot)
{
	return fabric->geometry.arenas_off + (slot - 1) * fabric->geometry.arena_bytes;
}

/* Gives [offset, +bytes) of the segment back to the system: it reads as zeros afterwards. */
void nupa_fabric_release(struct nupa_fabric *fabric, uint64_t offset, uint64_t bytes);
/* Whether the arena has any memory. */
bool nupa_fabric_arena_held(const struct nupa_fabric *fabric, uint32_t slot);
/* Reads all of *bytes*, zeros where the file has holes.  0 or a negative errno. */
int nupa_fabric_read(const struct nupa_fabric *fabric, uint64_t offset, void *to, size_t bytes);
/* Flows of attachments that are gone, from host to host. */
struct nupa_flow *nupa_past_flow(const struct nupa_fabric *fabric, uint32_t from, uint32_t to);
/* Counters of attachments to the host that are gone. */
struct nupa_hw_counters *nupa_past_hw(const struct nupa_fabric *fabric, uint32_t host);
/* Turns all mappings into private ones at the same place: what is stored there stays here. */
void nupa_fabric_detach_copy(struct nupa_fabric *fabric);

/* kernel.c: the slots that attachments to the host may have, [first, end).  SOFTWARE: no others. */
void nupa_slots_of(const struct nupa_fabric *fabric, uint32_t host, uint32_t *first, uint32_t *end);
/* SOFTWARE: whether it is another kernel's; of who has not attached, all are.  Others: false. */
bool nupa_slot_apart(const struct nupa_fabric *fabric, uint32_t slot);
/* Whether the claim is of another kernel. */
bool nupa_slot_elsewhere(const struct nupa_fabric *fabric, uint64_t claim);

#endif
