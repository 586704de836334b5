/* SPDX-License-Identifier: BSD-3-Clause
 * What congestion does to a sender: DCQCN's rate, and a window.  Integers only: the same answer on
 * each machine. */
#include "model/engine.h"

enum {
	ALPHA_ONE = 1 << 30,
	ALPHA_SHIFT = 8,         /* g = 1/256 (Zhu et al., SIGCOMM 2015) */
	ALPHA_PERIODS = 1 << 13, /* after these without a notification alpha is 0 */
	WINDOW_LEAST = 512,      /* two packets, in 1/256 */
	WINDOW_MOST = 1 << 30,
};

static uint64_t line_rate(const struct nupa_model_packets *sim, const struct flow *flow)
{
	return (1000000000000ull << 20) / sim->ports[flow->port].byte_ps20;
}

void nupa_model_dcqcn_start(struct nupa_model_packets *sim, struct flow *flow)
{
	flow->rate = flow->target = line_rate(sim, flow);
	flow->left_bytes = sim->protocols[flow->protocol].recover_bytes;
}

/* What a connection's operation before this one learned. */
void nupa_model_congestion_keep(const struct nupa_model_packets *sim, const struct flow *before,
				struct flow *flow)
{
	const uint32_t transport = sim->protocols[flow->protocol].transport;

	if (transport == NUPA_MODEL_WINDOW) {
		flow->cwnd256 = before->cwnd256;
		flow->threshold = before->threshold;
	} else if (transport == NUPA_MODEL_DCQCN) {
		flow->pace_ps = before->pace_ps;
		flow->recover_ps = before->recover_ps;
		flow->rate = before->rate;
		flow->target = before->target;
		flow->alpha_ps = before->alpha_ps;
		flow->left_bytes = before->left_bytes;
		flow->alpha = before->alpha;
		flow->time_rounds = before->time_rounds;
		flow->byte_rounds = before->byte_rounds;
		flow->notified = before->notified;
	}
}

/* Alpha falls each period, and rises instead in one with a notification. */
static void follow_alpha(struct nupa_model_packets *sim, struct flow *flow)
{
	const uint64_t period_ps = sim->protocols[flow->protocol].alpha_ps;
	const uint64_t periods = (sim->now_ps - flow->alpha_ps) / period_ps;

	if (!periods)
		return;
	flow->alpha_ps += periods * period_ps;
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
static void rise(struct nupa_model_packets *sim, struct flow *flow, uint32_t *rounds)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];
	const uint64_t line = line_rate(sim, flow);
	const uint32_t by_time = flow->time_rounds;
	const uint32_t by_bytes = protocol->recover_bytes ? flow->byte_rounds : by_time;

	if (by_time > protocol->recover_rounds && by_bytes > protocol->recover_rounds)
		flow->target += protocol->hyper_bytes_per_s;
	else if (by_time >= protocol->recover_rounds || by_bytes >= protocol->recover_rounds)
		flow->target += protocol->increase_bytes_per_s;
	if (flow->target > line)
		flow->target = line;
	flow->rate = (flow->rate + flow->target + 1) / 2;
	++*rounds;
}

/* The rises that are due by time. */
static void recover(struct nupa_model_packets *sim, struct flow *flow)
{
	while (flow->rate < line_rate(sim, flow) && flow->recover_ps <= sim->now_ps) {
		rise(sim, flow, &flow->time_rounds);
		flow->recover_ps += sim->protocols[flow->protocol].recover_ps;
	}
}

/* A notification: the rate falls by alpha / 2.  The target becomes the rate before, unless the rate
 * has not risen since it fell. */
void nupa_model_dcqcn_notified(struct nupa_model_packets *sim, struct flow *flow)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];

	if (flow->alpha_ps) {
		recover(sim, flow);
		follow_alpha(sim, flow);
	} else {
		flow->alpha = ALPHA_ONE;
		flow->alpha_ps = sim->now_ps;
	}
	flow->notified = true;
	if (flow->time_rounds || flow->byte_rounds)
		flow->target = flow->rate;
	flow->rate -= (flow->rate * (flow->alpha >> 14)) >> 17;
	if (flow->rate < protocol->least_bytes_per_s)
		flow->rate = protocol->least_bytes_per_s;
	flow->time_rounds = flow->byte_rounds = 0;
	flow->left_bytes = protocol->recover_bytes;
	flow->recover_ps = sim->now_ps + protocol->recover_ps;
}

/* The time from a packet to the next one, after the rises that are due. */
uint64_t nupa_model_dcqcn_interval_ps(struct nupa_model_packets *sim, struct flow *flow,
				      uint32_t bytes)
{
	const uint64_t each = sim->protocols[flow->protocol].recover_bytes;

	recover(sim, flow);
	if (each && flow->rate < line_rate(sim, flow)) {
		if (flow->left_bytes <= bytes) {
			rise(sim, flow, &flow->byte_rounds);
			flow->left_bytes += each;
		}
		flow->left_bytes -= bytes;
	}
	return bytes * 1000000000000ull / flow->rate;
}

/* Slow start below the threshold, above it a packet a round trip. */
void nupa_model_window_acked(struct flow *flow, uint32_t packets)
{
	if (flow->cwnd256 < flow->threshold)
		flow->cwnd256 += packets * 256;
	else
		flow->cwnd256 += (uint32_t)(packets * 65536ull / flow->cwnd256);
	if (flow->cwnd256 > WINDOW_MOST)
		flow->cwnd256 = WINDOW_MOST;
}

/* Halves once for the packets of one window.  UINT32_MAX: a timeout. */
void nupa_model_window_lost(struct flow *flow, uint32_t seq)
{
	if (seq < flow->recover)
		return;
	flow->threshold = flow->cwnd256 / 2 > WINDOW_LEAST ? flow->cwnd256 / 2 : WINDOW_LEAST;
	flow->cwnd256 = seq == UINT32_MAX ? 256 : flow->threshold;
	flow->recover = flow->sent;
}
