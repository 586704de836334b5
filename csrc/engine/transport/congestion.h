/* SPDX-License-Identifier: BSD-3-Clause
 * Congestion on the way of a QP by a wire: the rate to which notifications slow it down, and the
 * notifications that it owes (IBTA A17.9).  Without a clock of its own. */
#ifndef NUPA_CONGESTION_H
#define NUPA_CONGESTION_H

#include "base/dcqcn.h"

/* An adapter sends no more of them for one QP (Zhu et al., SIGCOMM 2015). */
#define NUPA_CNP_INTERVAL_NS 50000u
/* A sender that slept may catch up so much. */
#define NUPA_CONGESTION_BURST_NS 100000u
#define NUPA_CONGESTION_LINE 12500000000u /* bytes a second: 100 Gb/s; the rate is free above */
#define NUPA_CONGESTION_LEAST 1000000u

struct nupa_congestion {
	struct nupa_dcqcn flow;
	bool slow;        /* the rate is below the line's */
	uint64_t free_ns; /* what was booked has left by then */
	uint64_t cnp_ns;  /* not before: the next notification to the other end */
};

/* A notification came.  first: the rate of the sender before the first one, bytes a second. */
void nupa_congestion_notified(struct nupa_congestion *congestion, uint64_t now_ns, uint64_t first);
/* Books so many bytes.  Returns 0 where they may go now, else when to ask again. */
uint64_t nupa_congestion_due_ns(struct nupa_congestion *congestion, uint64_t bytes,
				uint64_t now_ns);
/* A marked packet came: whether the other end shall be notified now. */
bool nupa_congestion_marked(struct nupa_congestion *congestion, uint64_t now_ns);

#endif
