/* SPDX-License-Identifier: BSD-3-Clause
 * The rate of a QP by DCQCN. */
#include "engine/transport/congestion.h"

#define SECOND_NS 1000000000ull

/* Zhu et al., SIGCOMM 2015, figure 12 and table 14; increases for links of 1 to 100 Gb/s. */
static const struct nupa_dcqcn_rules rules = {
	.line = NUPA_CONGESTION_LINE,
	.least = NUPA_CONGESTION_LEAST,
	.increase = 5000000,
	.hyper = 50000000,
	.recover_bytes = 10000000,
	.recover_ticks = 1500000,
	.alpha_ticks = 55000,
	.recover_rounds = 5,
};

void nupa_congestion_notified(struct nupa_congestion *congestion, uint64_t now_ns, uint64_t first)
{
	if (!congestion->slow) {
		congestion->flow = (struct nupa_dcqcn){ 0 };
		nupa_dcqcn_start(&congestion->flow, &rules);
		if (first && first < rules.line)
			congestion->flow.rate = congestion->flow.target =
			    first > rules.least ? first : rules.least;
		congestion->free_ns = now_ns;
		congestion->slow = true;
	}
	nupa_dcqcn_notified(&congestion->flow, &rules, now_ns);
}

uint64_t nupa_congestion_due_ns(struct nupa_congestion *congestion, uint64_t bytes, uint64_t now_ns)
{
	if (congestion->free_ns > now_ns)
		return congestion->free_ns;
	if (now_ns - congestion->free_ns > NUPA_CONGESTION_BURST_NS)
		congestion->free_ns = now_ns - NUPA_CONGESTION_BURST_NS;
	nupa_dcqcn_sent(&congestion->flow, &rules, now_ns, bytes);
	congestion->free_ns += bytes * SECOND_NS / congestion->flow.rate;
	congestion->slow = congestion->flow.rate < rules.line;
	return 0;
}

bool nupa_congestion_marked(struct nupa_congestion *congestion, uint64_t now_ns)
{
	if (now_ns < congestion->cnp_ns)
		return false;
	congestion->cnp_ns = now_ns + NUPA_CNP_INTERVAL_NS;
	return true;
}
