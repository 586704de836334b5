/* SPDX-License-Identifier: BSD-3-Clause
 * Rates: how many bytes a second the hosts of a tenant, a partition or a member may send.  A table
 * in the segment (struct nupa_rate_entry) has a token bucket for each.  The process that sends
 * books its bytes there before it moves them, so all processes of a tenant share one bucket.
 *
 *   R1  A bucket is one word, free_at: when all that was booked has gone.  Booking is a CAS that
 *       moves it on, so bookings have an order and no process waits for another.
 *   R2  Bytes go NUPA_RATE_AHEAD_NS early at most: a sender sleeps for as long between two goes.
 *       Time that nobody used is made up for, NUPA_RATE_BURST_NS of it at most.  So in no time t
 *       go more bytes than the rate allows in t + NUPA_RATE_AHEAD_NS + NUPA_RATE_BURST_NS, and one
 *       piece.
 *   R3  The time that is not made up for is added to idle_ns.  So in any time t go bytes as the
 *       rate allows in t - idle_ns, if there were enough to send. */
#ifndef NUPA_CONTROL_RATE_H
#define NUPA_CONTROL_RATE_H

#include "base/atomics.h"
#include "segment/layout/rate_layout.h"
#include "segment/segment.h"

#define NUPA_RATE_AHEAD_NS UINT64_C(1000000)
#define NUPA_RATE_BURST_NS UINT64_C(3000000)

/* free_at: 1/64 ns of CLOCK_MONOTONIC, which reach for nine years.  64 bytes at 100 GB/s are then
 * 41, so that rounding is far below a per cent. */
#define NUPA_RATE_UNITS_PER_NS 64u
#define NUPA_RATE_COST_MAX (UINT64_C(1) << 62)

/* Counted with each message, and with each piece of a direct copy: the ring's line. */
#define NUPA_RATE_HEADER_BYTES 64u

/* Bytes that go at once: what the rate allows in this time, in whole packets, one at least. */
#define NUPA_RATE_PIECE_NS 500000u
#define NUPA_RATE_PIECE_MAX_BYTES (1u << 20)

/* cffi: begin */
/* A rate as it stands in the table. */
struct nupa_rate_info {
	uint32_t scope;  /* enum nupa_rate_scope */
	uint32_t tenant; /* TENANT */
	uint32_t host;   /* MEMBER */
	uint32_t pkey;   /* PARTITION, MEMBER: 15 bits */
	uint64_t bytes_per_s;
	uint64_t bytes;   /* booked since the rate was made */
	uint64_t idle_ns; /* time since then in which less was asked for, and which is lost */
};

/* Makes or changes a rate; 0 bytes a second: takes it away.  What the scope does not name is 0, and
 * bit 15 of pkey does not count.  All attachments go by it when this returns, unless one is
 * stopped.  -EINVAL: no such scope, tenant, P_Key or host; -ENOSPC: the table is full; -EREMOTE,
 * -EOPNOTSUPP: see nupa_fabric_may_command; the latter also where several kernels share the fabric,
 * whose clocks differ.  The caller holds the control lock. */
int nupa_rate_set(struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant, uint32_t host,
		  uint32_t pkey, uint64_t bytes_per_s, char *why, size_t why_bytes);
/* Those in the table, up to max of them; returns how many there are. */
uint32_t nupa_rate_list(struct nupa_fabric *fabric, struct nupa_rate_info *out, uint32_t max);
/* cffi: end */

static inline uint64_t nupa_rate_sum(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static inline uint64_t nupa_rate_units(uint64_t ns)
{
	return ns > UINT64_MAX / NUPA_RATE_UNITS_PER_NS ? UINT64_MAX : ns * NUPA_RATE_UNITS_PER_NS;
}

/* What one byte costs. */
static inline double nupa_rate_price(uint64_t bytes_per_s)
{
	return 1e9 * NUPA_RATE_UNITS_PER_NS / (double)bytes_per_s;
}

static inline uint64_t nupa_rate_cost(double price, uint64_t bytes)
{
	double cost = price * (double)bytes + 0.5;

	return cost < (double)NUPA_RATE_COST_MAX ? (uint64_t)cost : NUPA_RATE_COST_MAX;
}

/* R1.  Returns when the first of these bytes may go, in units. */
uint64_t nupa_rate_book(struct nupa_rate_entry *entry, double price, uint64_t bytes,
			uint64_t now_ns);
/* The largest piece at this rate. */
uint32_t nupa_rate_piece_bytes(uint64_t bytes_per_s);

#endif
