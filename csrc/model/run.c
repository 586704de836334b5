/* SPDX-License-Identifier: BSD-3-Clause
 * A run: made, its events one after the other, and its results. */
#include "model/switch.h"

#include <stdlib.h>
#include <string.h>

enum { PACKETS_LEAST = 1024 };
#define PACKETS_MOST (1u << 30)

static bool wheel_setup(struct nupa_model_packets *sim, const struct nupa_model_work *work,
			char *error)
{
	const uint64_t timers = sim->links + 2ull * sim->operations_count + sim->endpoints;
	uint64_t horizon_ps = 0;

	for (uint32_t at = 0; at < sim->links; at++) {
		const struct port *port = &sim->ports[at];
		const struct nupa_model_protocol *protocol = &sim->protocols[port->protocol];
		const uint64_t ps =
		    port->latency_ps +
		    2 * serial_ps(port, protocol->payload_bytes + protocol->header_bytes);

		if (ps > horizon_ps)
			horizon_ps = ps;
	}
	sim->packets_max = work->packets_max;
	if (sim->packets_max < PACKETS_LEAST || sim->packets_max > PACKETS_MOST)
		return nupa_model_refused(error, "packets_max is %u: %u to %u are possible",
					  sim->packets_max, PACKETS_LEAST, PACKETS_MOST);
	/* Not touched before it is used: the system gives pages then. */
	sim->packets = aligned_alloc(64, sim->packets_max * sizeof(*sim->packets));
	sim->timers = malloc(timers * sizeof(*sim->timers));
	if (!sim->packets || !sim->timers || !nupa_model_wheel_init(&sim->wheel, horizon_ps))
		return nupa_model_refused(error, "no memory for %u packets in flight",
					  sim->packets_max);
	sim->free = NUPA_MODEL_NONE;
	sim->wheel.packets = (char *)sim->packets;
	sim->wheel.packet_bytes = sizeof(*sim->packets);
	sim->wheel.timers = (char *)sim->timers;
	sim->wheel.timer_bytes = sizeof(*sim->timers);
	return true;
}

struct nupa_model_packets *nupa_model_packets_new(const struct nupa_model_graph *graph,
						  const struct nupa_model_work *work,
						  char error[NUPA_MODEL_ERROR_BYTES])
{
	struct nupa_model_packets *sim = calloc(1, sizeof(*sim));

	if (!sim) {
		nupa_model_refused(error, "no memory");
		return NULL;
	}
	sim->random = nupa_model_mix(work->seed + 1);
	if (!nupa_model_graph_copy(sim, graph, error) ||
	    !nupa_model_work_copy(sim, graph, work, error) || !wheel_setup(sim, work, error)) {
		nupa_model_packets_free(sim);
		return NULL;
	}
	for (uint32_t op = 0; op < sim->operations_count; op++)
		if (!sim->flows[op].pending)
			nupa_model_operation_released(sim, op);
	return sim;
}

void nupa_model_packets_free(struct nupa_model_packets *sim)
{
	if (!sim)
		return;
	nupa_model_wheel_free(&sim->wheel);
	nupa_model_routes_free(&sim->routes, sim->nodes);
	free(sim->packets);
	free(sim->ports);
	free(sim->flows);
	free(sim->ends);
	free(sim->virtuals);
	free(sim->timers);
	free(sim->protocols);
	free(sim->operations);
	free(sim->times);
	free(sim->dependent_start);
	free(sim->dependent);
	free(sim->lane_free_ps);
	free(sim->connections);
	free(sim->seen);
	free(sim);
}

static void timer_fires(struct nupa_model_packets *sim, uint32_t timer)
{
	const uint32_t flows = sim->links, timeouts = flows + sim->operations_count;
	const uint32_t ends = timeouts + sim->operations_count;

	if (timer < flows) {
		sim->ports[timer].armed = false;
		nupa_model_port_kick(sim, timer);
	} else if (timer < timeouts) {
		const uint32_t flags = sim->flows[timer - flows].flags;

		if (flags & FLOW_STARTED) /* its pace permits the next packet */
			nupa_model_flow_join(sim, timer - flows);
		else if (flags & FLOW_READY)
			nupa_model_operation_start(sim, timer - flows);
		else
			nupa_model_operation_ready(sim, timer - flows);
	} else if (timer < ends) {
		nupa_model_flow_timeout(sim, timer - timeouts);
	} else {
		nupa_model_pull_timer(sim, timer - ends);
	}
}

/* A packet is at the end of its link, or a word at its source. */
static void packet_arrives(struct nupa_model_packets *sim, uint32_t id)
{
	const struct packet *packet = &sim->packets[id];
	struct port *port = &sim->ports[packet->link];

	switch (packet->type) {
	case PACKET_CREDIT:
		port->credit_bytes += (int32_t)packet->seq;
		nupa_model_port_kick(sim, packet->link);
		packet_free(sim, id);
		return;
	case PACKET_PAUSE:
		port->paused = packet->seq;
		nupa_model_port_kick(sim, packet->link);
		packet_free(sim, id);
		return;
	case PACKET_INPUT:
		packet_free(sim, id);
		nupa_model_input_next(sim, port);
		return;
	default:
		break;
	}
	if (port->to_switch) {
		nupa_model_switch_forward(sim, id);
		return;
	}
	if (packet->type == PACKET_DATA) {
		if (port->flow_control == NUPA_MODEL_CREDITS && !(packet->flags & FLAG_TRIMMED))
			nupa_model_port_release(sim, packet->link, packet->bytes, 0);
		nupa_model_receiver_data(sim, id);
	} else if (packet->type == PACKET_REQUEST) {
		const uint32_t op = packet->flow;

		packet_free(sim, id);
		nupa_model_flow_activate(sim, op);
	} else {
		nupa_model_sender_receives(sim, id);
	}
}

static int stuck(const struct nupa_model_packets *sim, char *error)
{
	uint32_t op = 0;

	while (sim->flows[op].flags & FLOW_ACKED)
		op++;
	nupa_model_refused(
	    error, "%u operations never complete; the first is %u, which %s",
	    sim->totals.operations_left, op,
	    sim->flows[op].flags & FLOW_STARTED
		? "started: links wait for each other's credits, or packets were lost and "
		  "no timeout is set"
		: "waits for others that wait for it");
	return -1;
}

int nupa_model_packets_run(struct nupa_model_packets *sim, uint64_t events,
			   char error[NUPA_MODEL_ERROR_BYTES])
{
	uint64_t ran = 0;
	int more = 1;

	while (sim->totals.operations_left && ran < events) {
		uint32_t id;

		if (!nupa_model_wheel_take(&sim->wheel, &id, &sim->now_ps)) {
			more = stuck(sim, error);
			break;
		}
		ran++;
		if (id & NUPA_MODEL_TIMER)
			timer_fires(sim, id & ~NUPA_MODEL_TIMER);
		else
			packet_arrives(sim, id);
		if (__builtin_expect(sim->failed != NULL, 0)) {
			nupa_model_refused(error, "%s", sim->failed);
			more = -1;
			break;
		}
	}
	sim->totals.events += ran;
	return sim->totals.operations_left ? more : 0;
}

void nupa_model_packets_times(const struct nupa_model_packets *sim, struct nupa_model_times *times)
{
	memcpy(times, sim->times, sim->operations_count * sizeof(*times));
}

void nupa_model_packets_links(const struct nupa_model_packets *sim, struct nupa_model_link_use *use)
{
	for (uint32_t at = 0; at < sim->links; at++) {
		const struct port *port = &sim->ports[at];

		use[at] = (struct nupa_model_link_use){
			.bytes = port->bytes,
			.packets = port->packets,
			.busy_ps =
			    (uint64_t)((double)port->bytes * (double)port->byte_ps20 / (1 << 20)),
			.queue_bytes_max = port->queue_most,
			.dropped = port->dropped,
			.trimmed = port->trimmed,
			.marked = port->marked,
			.paused = port->pauses,
		};
	}
}

struct nupa_model_totals nupa_model_packets_totals(const struct nupa_model_packets *sim)
{
	struct nupa_model_totals totals = sim->totals;

	totals.now_ps = sim->now_ps;
	totals.packets_most = sim->packets_used;
	return totals;
}
