/* SPDX-License-Identifier: BSD-3-Clause
 * The reaction point of DCQCN (Zhu et al., SIGCOMM 2015): a sender's rate, by notifications of
 * congestion.  For the performance model and for wires, so time is in ticks of the caller's.
 * Integers only: the same answer on each machine. */
#ifndef NUPA_DCQCN_H
#define NUPA_DCQCN_H

#include <stdbool.h>
#include <stdint.h>

struct nupa_dcqcn_rules {
	uint64_t line, least;     /* bytes a second: the rate is never above or below */
	uint64_t increase, hyper; /* bytes a second: of the target, each time */
	uint64_t recover_bytes;   /* the rate rises after so many; 0: by time only */
	uint64_t recover_ticks;   /* and each so often */
	uint64_t alpha_ticks;     /* alpha follows notifications each so often */
	uint32_t recover_rounds;  /* rises before additive and hyper increase */
};

/* Of one flow.  Zeroed before nupa_dcqcn_start. */
struct nupa_dcqcn {
	uint64_t rate, target;         /* bytes a second */
	uint64_t alpha_at, recover_at; /* alpha is that of this time, 0: of none; the next rise */
	uint64_t left_bytes;           /* until the rate rises by bytes */
	uint32_t alpha;                /* 2^30 is 1 */
	uint32_t time_rounds, byte_rounds; /* rises since the rate fell */
	bool notified;                     /* since alpha_at */
};

/* At the line's rate. */
void nupa_dcqcn_start(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules);
/* A notification: the rate falls. */
void nupa_dcqcn_notified(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules,
			 uint64_t now);
/* So many bytes leave now: the rate makes the rises that are due. */
void nupa_dcqcn_sent(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules, uint64_t now,
		     uint64_t bytes);

#endif
