/* SPDX-License-Identifier: BSD-3-Clause
 * What congestion does to a sender: DCQCN's rate, and a window.  Integers only: the same answer on
 * each machine. */
#include "model/engine.h"

enum {
	WINDOW_LEAST = 512, /* two packets, in 1/256 */
	WINDOW_MOST = 1 << 30,
};

static struct nupa_dcqcn_rules rules_of(const struct nupa_model_packets *sim,
					const struct flow *flow)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];

	return (struct nupa_dcqcn_rules){
		.line = (1000000000000ull << 20) / sim->ports[flow->port].byte_ps20,
		.least = protocol->least_bytes_per_s,
		.increase = protocol->increase_bytes_per_s,
		.hyper = protocol->hyper_bytes_per_s,
		.recover_bytes = protocol->recover_bytes,
		.recover_ticks = protocol->recover_ps,
		.alpha_ticks = protocol->alpha_ps,
		.recover_rounds = protocol->recover_rounds,
	};
}

void nupa_model_dcqcn_start(struct nupa_model_packets *sim, struct flow *flow)
{
	const struct nupa_dcqcn_rules rules = rules_of(sim, flow);

	nupa_dcqcn_start(&flow->dcqcn, &rules);
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
		flow->dcqcn = before->dcqcn;
	}
}

void nupa_model_dcqcn_notified(struct nupa_model_packets *sim, struct flow *flow)
{
	const struct nupa_dcqcn_rules rules = rules_of(sim, flow);

	nupa_dcqcn_notified(&flow->dcqcn, &rules, sim->now_ps);
}

/* The time from a packet to the next one, after the rises that are due. */
uint64_t nupa_model_dcqcn_interval_ps(struct nupa_model_packets *sim, struct flow *flow,
				      uint32_t bytes)
{
	const struct nupa_dcqcn_rules rules = rules_of(sim, flow);

	nupa_dcqcn_sent(&flow->dcqcn, &rules, sim->now_ps, bytes);
	return bytes * 1000000000000ull / flow->dcqcn.rate;
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
