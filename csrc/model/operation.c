/* SPDX-License-Identifier: BSD-3-Clause
 * Operations: released when all that they wait for has completed, started, done, acknowledged. */
#include "model/engine.h"

/* All that it waited for has completed, or will at its ready_ps. */
void nupa_model_operation_released(struct nupa_model_packets *sim, uint32_t op)
{
	const struct nupa_model_operation *operation = &sim->operations[op];
	struct flow *flow = &sim->flows[op];

	if (flow->ready_ps < operation->start_ps)
		flow->ready_ps = operation->start_ps;
	if (operation->lane && flow->ready_ps > sim->now_ps)
		put(sim, timer_of_flow(sim, op), flow->ready_ps);
	else
		nupa_model_operation_ready(sim, op);
}

/* It takes its turn in its lane, which takes operations as they become ready. */
void nupa_model_operation_ready(struct nupa_model_packets *sim, uint32_t op)
{
	const struct nupa_model_operation *operation = &sim->operations[op];
	struct flow *flow = &sim->flows[op];

	flow->flags |= FLOW_READY;
	if (operation->lane) {
		uint64_t *free_ps = &sim->lane_free_ps[operation->lane];

		if (flow->ready_ps < *free_ps)
			flow->ready_ps = *free_ps;
		*free_ps = flow->ready_ps + operation->busy_ps;
	}
	sim->times[op].start_ps = flow->ready_ps;
	put(sim, timer_of_flow(sim, op), flow->ready_ps + operation->before_ps);
}

static void release_dependents(struct nupa_model_packets *sim, uint32_t op, uint64_t time_ps,
			       bool at_receiver)
{
	const uint32_t receiver = sim->flows[op].receiver;

	for (uint32_t at = sim->dependent_start[op]; at < sim->dependent_start[op + 1]; at++) {
		const uint32_t next = sim->dependent[at];
		struct flow *flow = &sim->flows[next];

		if ((sim->operations[next].rank == receiver) != at_receiver)
			continue;
		if (flow->ready_ps < time_ps)
			flow->ready_ps = time_ps;
		if (!--flow->pending)
			nupa_model_operation_released(sim, next);
	}
}

void nupa_model_operation_start(struct nupa_model_packets *sim, uint32_t op)
{
	const struct nupa_model_operation *operation = &sim->operations[op];
	struct flow *flow = &sim->flows[op];

	flow->flags |= FLOW_STARTED;
	if (operation->rank == operation->peer) {
		nupa_model_operation_done(sim, op);
		nupa_model_operation_acked(sim, op);
		return;
	}
	sim->totals.payload_sent_bytes += operation->bytes;
	if (operation->read)
		nupa_model_control_send(sim, op, PACKET_REQUEST, 0, 0, false);
	else
		nupa_model_flow_activate(sim, op);
}

void nupa_model_operation_done(struct nupa_model_packets *sim, uint32_t op)
{
	const uint64_t time_ps = sim->now_ps + sim->operations[op].after_ps;

	sim->flows[op].flags |= FLOW_DONE;
	sim->times[op].done_ps = time_ps;
	if (sim->operations[op].rank != sim->operations[op].peer)
		sim->totals.payload_received_bytes += sim->operations[op].bytes;
	if (sim->totals.end_ps < time_ps)
		sim->totals.end_ps = time_ps;
	release_dependents(sim, op, time_ps, true);
}

/* The acknowledgement is of the last packet, so the operation is done. */
void nupa_model_operation_acked(struct nupa_model_packets *sim, uint32_t op)
{
	const uint64_t time_ps = sim->now_ps + sim->operations[op].after_ps;

	sim->flows[op].flags |= FLOW_ACKED;
	sim->times[op].acked_ps = time_ps;
	sim->totals.operations_left--;
	release_dependents(sim, op, time_ps, false);
}
