/* SPDX-License-Identifier: BSD-3-Clause
 * What congestion does to a sender: DCQCN's rate, and a window.  Integers only: the same answer on
 * each machine. */
#include "model/engine.h"

enum {
	ALPHA_ONE = 65536,
	ALPHA_SHIFT = 8,    /* g = 1/256 (Zhu et al., SIGCOMM 2015) */
	FAST_ROUNDS = 5,    /* fast recovery, before the target grows */
	WINDOW_LEAST = 512, /* two packets, in 1/256 */
	WINDOW_MOST = 1 << 30,
};

static uint64_t line_rate(const struct nupa_model_packets *sim, const struct flow *flow)
{
	return (1000000000000ull << 20) / sim->ports[flow->port].byte_ps20;
}

void nupa_model_dcqcn_start(struct nupa_model_packets *sim, struct flow *flow)
{
	flow->rate = flow->target = line_rate(sim, flow);
	flow->alpha = ALPHA_ONE;
}

/* A notification: the rate falls by alpha / 2, and alpha rises. */
void nupa_model_dcqcn_notified(struct nupa_model_packets *sim, struct flow *flow)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];

	flow->target = flow->rate;
	flow->rate -= flow->rate / (2 * ALPHA_ONE) * flow->alpha;
	if (flow->rate < protocol->least_bytes_per_s)
		flow->rate = protocol->least_bytes_per_s;
	flow->alpha += (ALPHA_ONE - flow->alpha) >> ALPHA_SHIFT;
	flow->rounds = 0;
	flow->recover_ps = sim->now_ps + protocol->recover_ps;
}

/* The time from a packet to the next one, after the increases that are due. */
uint64_t nupa_model_dcqcn_interval_ps(struct nupa_model_packets *sim, struct flow *flow,
				      uint32_t bytes)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];
	const uint64_t line = line_rate(sim, flow);

	while (flow->rate < line && flow->recover_ps <= sim->now_ps) {
		flow->alpha -= flow->alpha >> ALPHA_SHIFT;
		if (++flow->rounds > FAST_ROUNDS)
			flow->target += protocol->increase_bytes_per_s;
		if (flow->target > line)
			flow->target = line;
		flow->rate = (flow->rate + flow->target + 1) / 2;
		flow->recover_ps += protocol->recover_ps;
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
