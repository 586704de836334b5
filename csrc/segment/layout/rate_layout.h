/* SPDX-License-Identifier: BSD-3-Clause
 * The table of rates, before the arenas of the segment: NUPA_RATES_MAX rows. */
#ifndef NUPA_RATE_LAYOUT_H
#define NUPA_RATE_LAYOUT_H

#include "segment/layout/layout.h"

/* cffi: begin */
/* All that a rate holds for. */
enum nupa_rate_scope {
	NUPA_RATE_TENANT = 1, /* what the hosts of a tenant send, together */
	NUPA_RATE_PARTITION,  /* what is sent by a P_Key, together */
	NUPA_RATE_MEMBER,     /* what a host sends by a P_Key */
	NUPA_RATE_SCOPES,
};
/* cffi: end */

/* A rate, and how far it is used up (rate.h).  Writer: the holder of the control lock, unless a
 * field says otherwise. */
struct nupa_rate_entry {
	NUPA_LINE_ALIGNED uint32_t scope; /* enum nupa_rate_scope; 0: free.  Stored last */
	uint32_t tenant;                  /* TENANT */
	uint32_t host;                    /* MEMBER */
	uint32_t pkey;                    /* PARTITION, MEMBER: 15 bits */
	uint64_t bytes_per_s;
	uint64_t free_at; /* CAS: when all that is booked has gone, in units of rate.h */
	uint64_t bytes;   /* fetch_add: booked, ever */
	uint64_t idle_ns; /* fetch_add: time in which less was asked for */
	uint64_t pad;
};
NUPA_ASSERT_SIZE(struct nupa_rate_entry, 64);
#define NUPA_RATES_MAX 256u

#endif
