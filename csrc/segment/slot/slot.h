/* SPDX-License-Identifier: BSD-3-Clause
 * Slots: their claims, whether their owners live, how they are woken and told of changes. */
#ifndef NUPA_SLOT_H
#define NUPA_SLOT_H

#include "base/atomics.h"
#include "segment/segment_internal.h"

#include <string.h>

/* process.c: /proc/PID/stat field 22, or 0 if there is no such process. */
uint64_t nupa_process_start_time(uint32_t pid);
/* By a signal or a tracer.  False as well where that cannot be told. */
bool nupa_process_stopped(uint32_t pid);
bool nupa_process_alive(uint32_t pid, uint64_t start_time);

/* apart.c.  The claim as it is in memory here. */
uint64_t nupa_slot_claim(const struct nupa_slot *slot);
/* The word that the owner of the slot leaves for that of another (NUPA_CONTACT_CLOSED). */
static inline uint32_t *nupa_contact(const struct nupa_fabric *fabric, uint32_t slot,
				     uint32_t other)
{
	return fabric->contacts + (uint64_t)slot * fabric->contact_words + other;
}
static inline void nupa_contacts_clear(const struct nupa_fabric *fabric, uint32_t slot)
{
	for (uint32_t i = 0; i < fabric->contact_words; i++) /* others read them meanwhile */
		nupa_store_relaxed(nupa_contact(fabric, slot, i), 0);
}
/* How many lanes may have a hazard. */
static inline uint32_t nupa_slot_lanes(const struct nupa_slot *slot)
{
	const uint32_t n = nupa_load_relaxed(&slot->n_lanes);

	return n < NUPA_LANES_MAX ? n : NUPA_LANES_MAX;
}
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
/* slot.c: whether the process of that claim exists.  A slot that is being attached or reaped has no
 * settled start time: its pid alone counts. */
bool nupa_slot_alive(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim);
/* named.c: "ib_send_lat (pid 12), ...": the first owners, and how many more; *text*. */
const char *nupa_slots_named(struct nupa_fabric *fabric, char *text, size_t bytes);
/* process.c: whether its owner's program has ended; whether its pid means nothing here: it is of
 * another kernel or another pid namespace. */
bool nupa_life_is_over(const struct nupa_slot *slot);
/* Whether it has not, by the kernel's own mark; false: that cannot be told by it. */
bool nupa_life_is_proven(const struct nupa_slot *slot);
bool nupa_slot_foreign(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim);

/* beat.c: whether the owner of a claim of another kernel lives: false once it has been silent for
 * NUPA_BEATS_MISSED looks. */
bool nupa_beat_heard(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim);
/* Looks at all heartbeats, if NUPA_BEAT_MS have passed since this process did; true: one has
 * stopped for good since this attachment asked.  *known is the attachment's, 0 at first. */
bool nupa_beat_look(struct nupa_fabric *fabric, uint64_t now_ns, uint32_t *known);
#define NUPA_BEAT_MS 100
#define NUPA_BEATS_MISSED 12u
/* slot.c: wakes the owner of a slot if it said that it sleeps. */
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
