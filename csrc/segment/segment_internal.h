/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind segment.h. */
#ifndef NUPA_SEGMENT_INTERNAL_H
#define NUPA_SEGMENT_INTERNAL_H

#include "segment/segment.h"

/* Fills *why* like snprintf and returns *error*, so that a check is one statement. */
__attribute__((format(printf, 4, 5))) int nupa_explain(int error, char *why, size_t why_bytes,
						       const char *format, ...);

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
/* lines.c: adds the lines of a ring that is about to be emptied, of all rings, to these flows. */
int nupa_lines_add_ring(struct nupa_fabric *fabric, uint32_t slot, uint32_t peer,
			struct nupa_flow *flows);
void nupa_lines_add_rings(struct nupa_fabric *fabric, uint32_t slot, struct nupa_flow *flows);
/* Flows of attachments that are gone, from host to host. */
struct nupa_flow *nupa_past_flow(const struct nupa_fabric *fabric, uint32_t from, uint32_t to);
/* Counters of attachments to the host that are gone. */
struct nupa_hw_counters *nupa_past_hw(const struct nupa_fabric *fabric, uint32_t host);
/* Turns all mappings into private ones at the same place: what is stored there stays here. */
void nupa_fabric_detach_copy(struct nupa_fabric *fabric);

uint64_t nupa_slot_claim(const struct nupa_slot *slot);
/* apart.c: the slots that attachments to the host may have, [first, end).  SOFTWARE: no others. */
void nupa_slots_of(const struct nupa_fabric *fabric, uint32_t host, uint32_t *first, uint32_t *end);
/* SOFTWARE: whether it is another kernel's; of who has not attached, all are.  Others: false. */
bool nupa_slot_apart(const struct nupa_fabric *fabric, uint32_t slot);
/* The claim, and what stands beside it and in line 1, as they are now. */
uint64_t nupa_slot_fetch(const struct nupa_fabric *fabric, uint32_t slot);
/* All of a slot of our own; its lines 0 and 1 alone. */
void nupa_slot_flush(const struct nupa_fabric *fabric, uint32_t slot);
void nupa_slot_flush_claim(const struct nupa_fabric *fabric, const struct nupa_slot *slot);
void nupa_slot_flush_queue(const struct nupa_fabric *fabric, const struct nupa_slot *slot);
void nupa_qp_entry_flush(const struct nupa_fabric *fabric, const struct nupa_qp_entry *entry);
/* Counts of processes that are gone, by the kernel of their host. */
void nupa_past_flush(const struct nupa_fabric *fabric, const void *counts, size_t bytes);
void nupa_past_fetch(const struct nupa_fabric *fabric, uint32_t host, const void *counts,
		     size_t bytes);
/* A queue of a network interface came or went. */
void nupa_fabric_net_changed(struct nupa_fabric *fabric);
/* Whether the process of that claim exists.  A slot that is being attached or reaped has no settled
 * start time: its pid alone counts. */
bool nupa_slot_alive(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim);
/* process.c: whether its owner's program has ended; whether its pid means nothing here: it is of
 * another kernel or another pid namespace. */
bool nupa_life_is_over(const struct nupa_slot *slot);
bool nupa_slot_foreign(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim);
/* beat.c: whether the claim is of another kernel. */
bool nupa_slot_elsewhere(const struct nupa_fabric *fabric, uint64_t claim);
/* Whether the owner of a claim of another kernel lives: false once it has been silent for
 * NUPA_BEATS_MISSED looks. */
bool nupa_beat_heard(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim);
/* Looks at all heartbeats, if NUPA_BEAT_MS have passed since this process did; true: one has just
 * stopped for good. */
bool nupa_beat_look(struct nupa_fabric *fabric, uint64_t now_ns);
#define NUPA_BEAT_MS 100
#define NUPA_BEATS_MISSED 12u
/* Wakes the owner of a slot if it said that it sleeps. */
void nupa_slot_ring(struct nupa_fabric *fabric, struct nupa_slot *slot);

/* notice.c: whether *what* may be set from here: it lives in the superblock and goes by this
 * kernel's clock.  0, -EREMOTE (run it where the fabric was made), -EOPNOTSUPP (SOFTWARE:
 * nowhere). */
int nupa_fabric_may_command(const struct nupa_fabric *fabric, const char *what, char *why,
			    size_t why_bytes);
/* notice.c: something that attachments go by has changed (port_epoch): all are told. */
void nupa_fabric_announce(struct nupa_fabric *fabric);
/* Waits, 200 ms at most, until each attachment goes by it that lives and is not stopped. */
typedef bool nupa_heeds(const struct nupa_fabric *fabric, const struct nupa_slot *slot);
void nupa_fabric_await_notice(struct nupa_fabric *fabric, nupa_heeds *heeds);

#endif
