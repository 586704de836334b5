/* SPDX-License-Identifier: BSD-3-Clause
 * From operations, checked, to flows, and who waits for whom. */
#include "model/switch.h"

#include <stdlib.h>
#include <string.h>

enum { HOPS_MAX = 255, LIMIT_LEAST = 100000 /* bytes a second */ };
#define TIME_MOST_PS (1ull << 60)
#define PACKETS_MOST (UINT32_MAX - 1ull) /* of one operation */

static bool operation_check(const struct nupa_model_packets *sim,
			    const struct nupa_model_work *work, uint32_t at, char *error)
{
	const struct nupa_model_operation *operation = &work->operation[at];

	if (operation->rank >= sim->endpoints || operation->peer >= sim->endpoints)
		return nupa_model_refused(error,
					  "operation %u: rank %u and peer %u of %u endpoints", at,
					  operation->rank, operation->peer, sim->endpoints);
	if (operation->start_ps > TIME_MOST_PS || operation->before_ps > TIME_MOST_PS ||
	    operation->after_ps > TIME_MOST_PS || operation->busy_ps > TIME_MOST_PS)
		return nupa_model_refused(error, "operation %u: a time above 2^60 ps, 13 days", at);
	if (operation->lane > work->operations)
		return nupa_model_refused(error, "operation %u: lane %u of %u", at, operation->lane,
					  work->operations);
	if (operation->connection > work->operations)
		return nupa_model_refused(error, "operation %u: connection %u of %u", at,
					  operation->connection, work->operations);
	if (operation->limit_bytes_per_s && operation->limit_bytes_per_s < LIMIT_LEAST)
		return nupa_model_refused(error, "operation %u: a limit of %llu B/s: at least %u",
					  at, (unsigned long long)operation->limit_bytes_per_s,
					  LIMIT_LEAST);
	if (work->after_start[at + 1] < work->after_start[at])
		return nupa_model_refused(error, "operation %u: after_start falls", at);
	for (uint32_t it = work->after_start[at]; it < work->after_start[at + 1]; it++)
		if (work->after[it] >= work->operations || work->after[it] == at)
			return nupa_model_refused(error,
						  "operation %u waits for %u, of %u operations", at,
						  work->after[it], work->operations);
	return true;
}

/* A packet finds its way: each node has a next link, and there are no circles. */
static bool route_check(struct nupa_model_packets *sim, uint32_t from, uint32_t to, uint32_t at,
			char *error)
{
	struct packet probe = { .to = to & (NODES_MAX - 1) };
	uint32_t node = from;

	for (uint32_t hops = 0; hops < HOPS_MAX; hops++) {
		const struct routes *routes = &sim->routes;

		if (routes->row[(uint64_t)node * routes->classes + routes->class_of[to]] ==
		    ROUTE_NONE)
			return nupa_model_refused(
			    error, "operation %u: no path from endpoint %u to %u", at, from, to);
		node = sim->ports[nupa_model_route_pick(sim, node, &probe)].target;
		if (node == to)
			return true;
		if (node < sim->endpoints)
			break;
	}
	return nupa_model_refused(
	    error, "operation %u: the routes from endpoint %u to %u do not end there", at, from,
	    to);
}

static uint32_t links_from(const struct nupa_model_packets *sim, uint32_t from, uint32_t to)
{
	const struct routes *routes = &sim->routes;
	const uint32_t entry = routes->row[(uint64_t)from * routes->classes + routes->class_of[to]];
	const uint32_t count = entry == ROUTE_DIRECT
				   ? routes->down_start[to + 1] - routes->down_start[to]
				   : routes->sets[entry];

	return count < UINT8_MAX ? count : UINT8_MAX;
}

/* The virtual queue that all packets of a flow meet first, if there is one. */
static uint32_t first_virtual(const struct nupa_model_packets *sim, const struct flow *flow)
{
	const struct routes *routes = &sim->routes;
	const struct port *in = &sim->ports[flow->port], *out;
	const uint32_t first = routes->down_start[flow->receiver];
	uint32_t entry, count;

	if (flow->ports != 1 || in->target == flow->receiver || !nupa_model_has_virtuals(in) ||
	    sim->protocols[in->protocol].transport == NUPA_MODEL_PULL)
		return NUPA_MODEL_NONE;
	entry =
	    routes->row[(uint64_t)in->target * routes->classes + routes->class_of[flow->receiver]];
	count = entry == ROUTE_DIRECT ? routes->down_start[flow->receiver + 1] - first
				      : routes->sets[entry];
	if (count != 1)
		return NUPA_MODEL_NONE;
	out = &sim->ports[entry == ROUTE_DIRECT ? routes->down[first] : routes->sets[entry + 1]];
	return nupa_model_has_virtuals(out) ? out->virtuals + in->place : NUPA_MODEL_NONE;
}

/* PER_DESTINATION: the receiver's number at the first node with several links towards it.  The
 * nodes behind it divide that number further, so that their choices do not repeat it. */
static uint16_t table_digits(struct nupa_model_packets *sim, uint32_t from, uint32_t to)
{
	const struct routes *routes = &sim->routes;
	uint32_t node = from;

	for (uint32_t hops = 0; hops < HOPS_MAX && node != to; hops++) {
		const uint32_t entry =
		    routes->row[(uint64_t)node * routes->classes + routes->class_of[to]];
		uint32_t number;

		if (entry == ROUTE_DIRECT || entry == ROUTE_NONE)
			break;
		if (routes->sets[entry] == 1) {
			node = sim->ports[routes->sets[entry + 1]].target;
			continue;
		}
		number = nupa_model_route_number(sim, node, to);
		if (number == NUPA_MODEL_NONE)
			sim->failed = "no memory for routes";
		return (uint16_t)number;
	}
	return (uint16_t)routes->place[to];
}

static bool flow_init(struct nupa_model_packets *sim, uint32_t at, uint64_t *seen_words,
		      char *error)
{
	const struct nupa_model_operation *operation = &sim->operations[at];
	const uint64_t random = operation->entropy ? nupa_model_mix(operation->entropy)
						   : nupa_model_random(&sim->random);
	const uint32_t rank = operation->rank, peer = operation->peer;
	struct flow *flow = &sim->flows[at];
	const struct nupa_model_protocol *protocol;
	struct packet probe = { 0 };
	uint64_t packets, full;
	uint32_t payload, header;

	flow->sender = operation->read ? peer : rank;
	flow->receiver = operation->read ? rank : peer;
	flow->again.head = NUPA_MODEL_NONE;
	if (rank == peer)
		return true;
	if (!route_check(sim, rank, peer, at, error) || !route_check(sim, peer, rank, at, error))
		return false;
	flow->digits = probe.digits = (uint16_t)random;
	probe.to = flow->receiver & (NODES_MAX - 1);
	flow->port = nupa_model_route_pick(sim, flow->sender, &probe);
	flow->ports = (uint8_t)links_from(sim, flow->sender, flow->receiver);
	flow->protocol = sim->ports[flow->port].protocol;
	protocol = &sim->protocols[flow->protocol];
	if (protocol->spread == NUPA_MODEL_PER_DESTINATION) {
		flow->digits = probe.digits = table_digits(sim, flow->sender, flow->receiver);
		flow->back = table_digits(sim, flow->receiver, flow->sender);
		flow->port = nupa_model_route_pick(sim, flow->sender, &probe);
	}
	payload = operation->payload_bytes ? operation->payload_bytes : protocol->payload_bytes;
	header = operation->payload_bytes ? operation->header_bytes : protocol->header_bytes;
	full = (uint64_t)payload + header;
	if (full > (uint64_t)protocol->payload_bytes + protocol->header_bytes)
		return nupa_model_refused(
		    error,
		    "operation %u: packets of %llu bytes: its protocol has %u + %u "
		    "at most",
		    at, (unsigned long long)full, protocol->payload_bytes, protocol->header_bytes);
	flow->virtuals = first_virtual(sim, flow);
	packets = operation->bytes ? (operation->bytes - 1) / payload + 1 : 1;
	if (packets > PACKETS_MOST)
		return nupa_model_refused(error,
					  "operation %u: %llu bytes are more than 2^32 - 2 packets",
					  at, (unsigned long long)operation->bytes);
	flow->total = (uint32_t)packets;
	flow->full_bytes = (uint16_t)full;
	flow->last_bytes = (uint16_t)(operation->bytes - (packets - 1) * payload + header);
	flow->stride = (uint16_t)(random >> 16 | 1);
	flow->entropy = (uint16_t)(random >> 32) & (uint16_t)(protocol->paths - 1);
	flow->window = UINT32_MAX;
	flow->threshold = UINT32_MAX;
	flow->cwnd256 = protocol->window_packets * 256;
	if (protocol->transport == NUPA_MODEL_PULL) {
		flow->window =
		    protocol->window_packets < flow->total ? protocol->window_packets : flow->total;
		flow->wanted = flow->total - flow->window;
	}
	flow->seen = *seen_words;
	if (protocol->flow_control <= NUPA_MODEL_TRIM)
		*seen_words += (packets + 63) / 64;
	return true;
}

/* From "waits for" to "is waited for by". */
static bool dependents_build(struct nupa_model_packets *sim, const struct nupa_model_work *work)
{
	const uint32_t count = work->operations;
	const uint32_t first = work->after_start[0], end = work->after_start[count];
	uint32_t *start = calloc(count + 2ull, sizeof(*start));

	sim->dependent_start = start;
	sim->dependent = malloc((end - first + 1ull) * sizeof(*sim->dependent));
	if (!start || !sim->dependent)
		return false;
	for (uint32_t at = first; at < end; at++)
		start[work->after[at] + 2]++;
	for (uint32_t op = 1; op <= count; op++)
		start[op + 1] += start[op];
	for (uint32_t op = 0; op < count; op++) {
		sim->flows[op].pending = work->after_start[op + 1] - work->after_start[op];
		for (uint32_t at = work->after_start[op]; at < work->after_start[op + 1]; at++)
			sim->dependent[start[work->after[at] + 1]++] = op;
	}
	return true;
}

bool nupa_model_work_copy(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			  const struct nupa_model_work *work, char *error)
{
	const uint32_t count = work->operations;
	uint64_t seen_words = 1;

	(void)graph;
	if (!count || count > OPERATIONS_MAX)
		return nupa_model_refused(error, "%u operations: 1 to %u are possible", count,
					  OPERATIONS_MAX);
	for (uint32_t at = 0; at < count; at++)
		if (!operation_check(sim, work, at, error))
			return false;
	sim->operations_count = count;
	sim->totals.operations_left = count;
	sim->operations = malloc(count * sizeof(*sim->operations));
	sim->flows = calloc(count, sizeof(*sim->flows));
	sim->times = calloc(count, sizeof(*sim->times));
	sim->lane_free_ps = calloc(count + 1ull, sizeof(*sim->lane_free_ps));
	sim->connections = malloc((count + 1ull) * sizeof(*sim->connections));
	if (!sim->operations || !sim->flows || !sim->times || !sim->lane_free_ps ||
	    !sim->connections || !dependents_build(sim, work))
		return nupa_model_refused(error, "no memory for %u operations", count);
	for (uint32_t at = 0; at <= count; at++)
		sim->connections[at] =
		    (struct connection){ NUPA_MODEL_NONE, NUPA_MODEL_NONE, NUPA_MODEL_NONE };
	memcpy(sim->operations, work->operation, count * sizeof(*sim->operations));
	for (uint32_t at = 0; at < count; at++)
		if (!flow_init(sim, at, &seen_words, error))
			return false;
	sim->seen = calloc(seen_words, sizeof(*sim->seen));
	return sim->seen ? true
			 : nupa_model_refused(error, "no memory for the packets of the operations");
}
