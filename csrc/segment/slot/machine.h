/* SPDX-License-Identifier: BSD-3-Clause
 * Machines of a fabric as its trunk sees them. */
#ifndef NUPA_SLOT_MACHINE_H
#define NUPA_SLOT_MACHINE_H

#include "segment/trunk.h"

/* cffi: begin */
/* A machine of a fabric that spans several. */
struct nupa_machine_info {
	uint32_t state; /* enum nupa_machine_state; our own is UP while our trunk runs */
	uint32_t own;   /* it is this machine */
	uint32_t first_slot, end_slot; /* its slots are [first, end) */
	uint32_t losses;               /* how often it was lost */
	uint64_t rtt_ns;               /* between the trunks, smoothed; 0: not known */
	uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
	uint64_t refused;  /* parts of messages that were not obeyed */
	uint64_t since_ns; /* CLOCK_REALTIME: since when it has that state; 0: not known */
};
/* 0, or -EINVAL: no such machine. */
int nupa_fabric_machine(const struct nupa_fabric *fabric, uint32_t machine,
			struct nupa_machine_info *info);
/* The pid of the trunk process; 0: none runs. */
uint32_t nupa_fabric_trunk_pid(const struct nupa_fabric *fabric);
/* cffi: end */

/* Whether the trunk process lives. */
bool nupa_trunk_alive(const struct nupa_fabric *fabric);

/* Changes that the trunk is told of, since it could not find them fast enough.  None of these does
 * anything where there is no trunk. */
enum nupa_news {
	NUPA_NEWS_SLOT = 1, /* a slot of ours */
	NUPA_NEWS_QP,       /* slot, index */
	NUPA_NEWS_CONTACT,  /* slot, the other machine's slot */
	NUPA_NEWS_BOUND,    /* host, bucket * NUPA_CM_BUCKET_WORDS + word */
};
#define NUPA_NEWS(kind, place, at)                                                                 \
	((uint32_t)(kind) << 26 | (uint32_t)(place) << 16 | (uint32_t)(at))
#define NUPA_NEWS_KIND(word) ((uint32_t)(word) >> 26)
#define NUPA_NEWS_PLACE(word) ((uint32_t)(word) >> 16 & 0x3ff)
#define NUPA_NEWS_AT(word) ((uint32_t)(word)&0xffff)

void nupa_trunk_tell(const struct nupa_fabric *fabric, enum nupa_news kind, uint32_t place,
		     uint32_t at);
/* Wakes the trunk if it sleeps; what it shall see was stored before, without a fence. */
void nupa_trunk_ring(const struct nupa_fabric *fabric);
/* Waits until all machines that are reached know what was told before: a second at most. */
void nupa_trunk_settle(const struct nupa_fabric *fabric);

#endif
