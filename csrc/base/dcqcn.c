/* SPDX-License-Identifier: BSD-3-Clause
 * DCQCN's rate: three phases of rises between notifications. */
#include "base/dcqcn.h"

enum {
	ALPHA_ONE = 1 << 30,
	ALPHA_SHIFT = 8,         /* g = 1/256 (Zhu et al., SIGCOMM 2015) */
	ALPHA_PERIODS = 1 << 13, /* after these without a notification alpha is 0 */
};

void nupa_dcqcn_start(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules)
{
	flow->rate = flow->target = rules->line;
	flow->left_bytes = rules->recover_bytes;
}

/* Alpha falls each period, and rises instead in one with a notification. */
static void follow_alpha(struct nupa_dcqcn *flow, uint64_t period, uint64_t now)
{
	const uint64_t periods = (now - flow->alpha_at) / period;

	if (!periods)
		return;
	flow->alpha_at += periods * period;
	if (flow->notified)
		flow->alpha += (ALPHA_ONE - flow->alpha) >> ALPHA_SHIFT;
	if (periods > ALPHA_PERIODS)
		flow->alpha = 0;
	for (uint64_t past = flow->notified; past < periods && flow->alpha >> ALPHA_SHIFT; past++)
		flow->alpha -= flow->alpha >> ALPHA_SHIFT;
	flow->notified = false;
}

/* Fast recovery halves the distance to the target.  After recover_rounds by time or by bytes the
 * target grows; after as many by both, faster (IEEE 802.1Qau 32.13 has the same three phases). */
static void rise(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules, uint32_t *rounds)
{
	const uint32_t by_time = flow->time_rounds;
	const uint32_t by_bytes = rules->recover_bytes ? flow->byte_rounds : by_time;

	if (by_time > rules->recover_rounds && by_bytes > rules->recover_rounds)
		flow->target += rules->hyper;
	else if (by_time >= rules->recover_rounds || by_bytes >= rules->recover_rounds)
		flow->target += rules->increase;
	if (flow->target > rules->line)
		flow->target = rules->line;
	flow->rate = (flow->rate + flow->target + 1) / 2;
	++*rounds;
}

/* The rises that are due by time. */
static void recover(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules, uint64_t now)
{
	while (flow->rate < rules->line && flow->recover_at <= now) {
		rise(flow, rules, &flow->time_rounds);
		flow->recover_at += rules->recover_ticks;
	}
}

/* The rate falls by alpha / 2.  The target becomes the rate before, unless the rate has not risen
 * since it fell. */
void nupa_dcqcn_notified(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules,
			 uint64_t now)
{
	if (flow->alpha_at) {
		recover(flow, rules, now);
		follow_alpha(flow, rules->alpha_ticks, now);
	} else {
		flow->alpha = ALPHA_ONE;
		flow->alpha_at = now;
	}
	flow->notified = true;
	if (flow->time_rounds || flow->byte_rounds)
		flow->target = flow->rate;
	flow->rate -= (flow->rate * (flow->alpha >> 14)) >> 17;
	if (flow->rate < rules->least)
		flow->rate = rules->least;
	flow->time_rounds = flow->byte_rounds = 0;
	flow->left_bytes = rules->recover_bytes;
	flow->recover_at = now + rules->recover_ticks;
}

void nupa_dcqcn_sent(struct nupa_dcqcn *flow, const struct nupa_dcqcn_rules *rules, uint64_t now,
		     uint64_t bytes)
{
	recover(flow, rules, now);
	if (!rules->recover_bytes || flow->rate >= rules->line)
		return;
	if (flow->left_bytes <= bytes) {
		rise(flow, rules, &flow->byte_rounds);
		flow->left_bytes += rules->recover_bytes;
	}
	flow->left_bytes -= bytes;
}
