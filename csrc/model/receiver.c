/* SPDX-License-Identifier: BSD-3-Clause
 * Receivers: packets are counted and acknowledged, and pulled where the protocol says so. */
#include "model/engine.h"

enum {
	SHARE_ONE = 65536,
	SHARE_LEAST = SHARE_ONE / 64,
	SHARE_STEP = SHARE_ONE / 16, /* more after a period, twice that after each further one */
};

static void acknowledge(struct nupa_model_packets *sim, uint32_t op, uint32_t grant)
{
	struct flow *flow = &sim->flows[op];

	nupa_model_control_send(sim, op, PACKET_ACK, flow->unacked | grant << 16, flow->echo,
				flow->flags & FLOW_MARKED);
	flow->unacked = 0;
	flow->flags &= (uint8_t)~FLOW_MARKED;
}

/* More is pulled than the network carries if more than two thirds are trimmed before the last
 * link; less than that costs little, keeps links busy and treats flows alike.  Then the share of
 * the rate falls by the part above that, and what was under way is waited for.  Else it rises with
 * time. */
static void adapt(struct nupa_model_packets *sim, struct endpoint *end, uint64_t period_ps)
{
	const uint64_t past_ps = sim->now_ps - end->since_ps;

	if (sim->now_ps < end->since_ps + period_ps)
		return;
	end->since_ps = sim->now_ps;
	if (end->trimmed * 3 > end->got * 2) {
		const uint32_t over = end->trimmed * SHARE_ONE / end->got - SHARE_ONE / 3 * 2;

		end->share -= (uint32_t)((uint64_t)end->share * over / SHARE_ONE);
		if (end->share < SHARE_LEAST)
			end->share = SHARE_LEAST;
		end->since_ps += period_ps;
		end->rose = false;
	} else {
		const uint64_t periods_ps = past_ps < 64 * period_ps ? past_ps : 64 * period_ps;
		const uint64_t more = SHARE_STEP * periods_ps / period_ps << end->rose;

		end->share =
		    more < SHARE_ONE - end->share ? end->share + (uint32_t)more : SHARE_ONE;
		end->rose = true;
	}
	end->got = end->trimmed = 0;
}

/* Pulls of one endpoint are spaced so that what they pull fits its links. */
static void pull_next(struct nupa_model_packets *sim, uint32_t end_index)
{
	struct endpoint *end = &sim->ends[end_index];
	const uint32_t op = end->pulls.head;
	struct flow *flow = &sim->flows[op];
	const uint32_t most = sim->protocols[flow->protocol].pull_packets;
	const uint32_t grant = flow->wanted < most ? flow->wanted : most;
	const uint64_t adapt_ps = sim->protocols[flow->protocol].adapt_ps;
	uint64_t interval;

	if (adapt_ps)
		adapt(sim, end, adapt_ps);
	interval = end->pull_packet_ps * SHARE_ONE / end->share * grant;
	end->pulls.head = flow->next_pull;
	flow->wanted -= grant;
	end->pull_ps = (end->pull_ps > sim->now_ps ? end->pull_ps : sim->now_ps) + interval;
	if (flow->wanted) {
		flow->next_pull = NUPA_MODEL_NONE;
		if (end->pulls.head == NUPA_MODEL_NONE)
			end->pulls.head = op;
		else
			sim->flows[end->pulls.tail].next_pull = op;
		end->pulls.tail = op;
	} else {
		flow->flags &= (uint8_t)~FLOW_PULLING;
	}
	acknowledge(sim, op, grant);
}

static void pull(struct nupa_model_packets *sim, uint32_t end_index)
{
	struct endpoint *end = &sim->ends[end_index];

	if (end->armed || end->pulls.head == NUPA_MODEL_NONE)
		return;
	if (end->pull_ps <= sim->now_ps)
		pull_next(sim, end_index);
	if (end->pulls.head == NUPA_MODEL_NONE)
		return;
	end->armed = true;
	put(sim, timer_of_end(sim, end_index), end->pull_ps);
}

void nupa_model_pull_timer(struct nupa_model_packets *sim, uint32_t end_index)
{
	sim->ends[end_index].armed = false;
	pull(sim, end_index);
}

static void want_pulls(struct nupa_model_packets *sim, uint32_t op)
{
	struct flow *flow = &sim->flows[op];
	struct endpoint *end = &sim->ends[flow->receiver];

	if (!flow->wanted || flow->flags & FLOW_PULLING)
		return;
	flow->flags |= FLOW_PULLING;
	flow->next_pull = NUPA_MODEL_NONE;
	if (end->pulls.head == NUPA_MODEL_NONE)
		end->pulls.head = op;
	else
		sim->flows[end->pulls.tail].next_pull = op;
	end->pulls.tail = op;
	pull(sim, flow->receiver);
}

/* false: the packet was here before. */
static bool first_time(struct nupa_model_packets *sim, const struct flow *flow, uint32_t seq)
{
	uint64_t *word = &sim->seen[flow->seen + seq / 64];
	const uint64_t bit = 1ull << seq % 64;

	if (*word & bit)
		return false;
	*word |= bit;
	return true;
}

/* One path keeps the order: packets before this one that are missing are lost. */
static void report_gap(struct nupa_model_packets *sim, uint32_t op, uint32_t seq)
{
	struct flow *flow = &sim->flows[op];
	const bool pulls = sim->protocols[flow->protocol].transport == NUPA_MODEL_PULL;

	for (; flow->expected < seq; flow->expected++, flow->wanted += pulls)
		nupa_model_control_send(sim, op, PACKET_NACK, flow->expected, flow->echo, false);
	if (flow->expected == seq)
		flow->expected++;
}

/* Step 5. */
void nupa_model_receiver_data(struct nupa_model_packets *sim, uint32_t id)
{
	const struct packet *packet = &sim->packets[id];
	const uint32_t op = packet->flow, seq = packet->seq;
	const bool marked = packet->flags & FLAG_MARKED;
	struct flow *flow = &sim->flows[op];
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];
	const bool lossy = protocol->flow_control <= NUPA_MODEL_TRIM;

	flow->progress++;
	if (packet->flags & FLAG_PULLED) /* the first window says nothing of pulls */
		sim->ends[flow->receiver].got++;
	if (packet->flags & FLAG_TRIMMED) {
		if ((packet->flags & (FLAG_PULLED | FLAG_LAST)) == FLAG_PULLED)
			sim->ends[flow->receiver].trimmed++;
		flow->wanted++;
		nupa_model_packet_return(sim, id, PACKET_NACK);
		want_pulls(sim, op);
		return;
	}
	if (marked || !(flow->flags & FLOW_MARKED))
		flow->echo = packet->entropy;
	packet_free(sim, id);
	if (lossy && !first_time(sim, flow, seq))
		return;
	if (marked)
		flow->flags |= FLOW_MARKED;
	if (lossy && protocol->flow_control == NUPA_MODEL_DROP &&
	    protocol->spread == NUPA_MODEL_PER_FLOW)
		report_gap(sim, op, seq);
	if (marked && protocol->transport == NUPA_MODEL_DCQCN && sim->now_ps >= flow->notified_ps) {
		flow->notified_ps = sim->now_ps + protocol->notify_ps;
		nupa_model_control_send(sim, op, PACKET_NOTIFY, 0, 0, false);
	}
	flow->received++;
	flow->unacked++;
	if (flow->received == flow->total) {
		nupa_model_operation_done(sim, op);
		acknowledge(sim, op, 0);
		return;
	}
	if ((protocol->ack_packets && flow->unacked >= protocol->ack_packets) ||
	    flow->unacked == 0xffff)
		acknowledge(sim, op, 0);
	if (protocol->transport == NUPA_MODEL_PULL)
		want_pulls(sim, op);
}
