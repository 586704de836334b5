/* SPDX-License-Identifier: BSD-3-Clause
 * Hostile writes to a fabric's segment: noise, small numbers and flipped bits, and what looks
 * right: messages made of those that were sent, keys that there are, claims of other owners.
 * test_fuzz.c aims them at processes, tests/system/test_kernel_fuzz.py at guests' kernels. */
#ifndef NUPA_TESTS_SCRIBBLE_H
#define NUPA_TESTS_SCRIBBLE_H

#include "segment/segment.h"

/* One write into a part of the segment. */
typedef void scribble_write(struct nupa_fabric *fabric, uint64_t *random);

struct scribble_area {
	const char *name;
	scribble_write *write;
};

extern const struct scribble_area scribble_areas[];
extern const uint32_t scribble_n_areas;

/* A number below n. */
uint32_t scribble_pick(uint64_t *random, uint32_t n);
/* A slot that has an owner, if one is easily found. */
uint32_t scribble_slot(const struct nupa_fabric *fabric, uint64_t *random);
/* Any of 8 bytes or fewer in [at, +bytes). */
void scribble(uint8_t *at, uint64_t bytes, uint64_t *random);
/* A message in the ring from a slot to another, where the consumer looks next; polite: none for
 * which a receiver closes the channel. */
void scribble_message(struct nupa_fabric *fabric, uint32_t from, uint32_t to, bool polite,
		      uint64_t *random);
/* Into tables, ring headers, lines and messages of a slot. */
void scribble_in_arena(struct nupa_fabric *fabric, uint32_t slot, uint64_t *random);
void scribble_hazard(struct nupa_fabric *fabric, uint32_t slot, uint64_t *random);

scribble_write scribble_polite_message, scribble_message_of_any, scribble_datagram, scribble_ring,
    scribble_tables, scribble_counts;

#endif
