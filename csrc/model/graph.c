/* SPDX-License-Identifier: BSD-3-Clause
 * From a graph, checked, to ports and endpoints. */
#include "model/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define RATE_LEAST 1e5 /* bytes a second: the time of the largest packet fits 64 bits */
#define RATE_MOST 1e14
#define LATENCY_MOST_PS 10000000000000ull
#define PS_PER_S 1e12
#define BUFFER_MOST INT32_MAX
#define VIRTUALS_MAX (1ull << 28)
enum { PACKET_MOST = UINT16_MAX, KINDS_MAX = UINT16_MAX, PROTOCOLS_MAX = UINT8_MAX };

bool nupa_model_refused(char *error, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vsnprintf(error, NUPA_MODEL_ERROR_BYTES, format, values);
	va_end(values);
	return false;
}

void *nupa_model_array(uint64_t count, uint64_t bytes)
{
	return calloc(count + 1, bytes);
}

static bool protocol_check(const struct nupa_model_protocol *protocol, uint32_t index, char *error)
{
	const uint64_t most = (uint64_t)protocol->payload_bytes + protocol->header_bytes;
	const uint32_t paths = protocol->paths;
	const char *wrong = NULL;

	if (protocol->flow_control > NUPA_MODEL_PAUSE || protocol->transport > NUPA_MODEL_WINDOW ||
	    protocol->spread > NUPA_MODEL_PER_DESTINATION)
		wrong = "an unknown flow control, transport or spread";
	else if (!protocol->payload_bytes || most > PACKET_MOST)
		wrong = "a packet has a payload, and 65535 bytes at most";
	else if (!protocol->control_bytes || protocol->control_bytes > PACKET_MOST)
		wrong = "a control packet has 1 to 65535 bytes";
	else if (!paths || paths > PATHS_MAX || paths & (paths - 1))
		wrong = "paths are a power of two from 1 to 256";
	else if (protocol->flow_control == NUPA_MODEL_CREDITS &&
		 (!protocol->credit_bytes || protocol->credit_bytes > PACKET_MOST))
		wrong = "a credit has 1 to 65535 bytes";
	else if (protocol->flow_control == NUPA_MODEL_PAUSE &&
		 (!protocol->xoff_bytes || protocol->xon_bytes > protocol->xoff_bytes))
		wrong = "xon_bytes <= xoff_bytes, and xoff_bytes is not 0";
	else if (protocol->ecn_low_bytes && (protocol->ecn_high_bytes < protocol->ecn_low_bytes ||
					     protocol->ecn_per_mille > 1000))
		wrong = "ecn_low_bytes <= ecn_high_bytes, and ecn_per_mille <= 1000";
	else if ((protocol->transport == NUPA_MODEL_PULL ||
		  protocol->transport == NUPA_MODEL_WINDOW) &&
		 (!protocol->window_packets || protocol->window_packets > PACKET_MOST))
		wrong = "a first window has 1 to 65535 packets";
	else if (protocol->transport == NUPA_MODEL_PULL &&
		 (!protocol->pull_packets || protocol->pull_packets > PACKET_MOST ||
		  !protocol->pull_per_mille || protocol->pull_per_mille > 1000))
		wrong = "a pull grants 1 to 65535 packets, at 1 to 1000 per mille of the rate";
	else if (protocol->transport == NUPA_MODEL_DCQCN &&
		 (!protocol->alpha_ps || !protocol->recover_ps || !protocol->least_bytes_per_s))
		wrong = "alpha_ps, recover_ps and least_bytes_per_s are not 0";
	return wrong ? nupa_model_refused(error, "protocol %u: %s", index, wrong) : true;
}

static bool kind_check(const struct nupa_model_graph *graph, uint32_t index, char *error)
{
	const struct nupa_model_link_kind *kind = &graph->link_kind[index];

	if (kind->protocol >= graph->protocols)
		return nupa_model_refused(error, "kind %u: protocol %u of %u", index,
					  kind->protocol, graph->protocols);
	if (!(kind->bytes_per_s >= RATE_LEAST && kind->bytes_per_s <= RATE_MOST))
		return nupa_model_refused(error, "kind %u: %g B/s: a link has 1e5 to 1e14", index,
					  kind->bytes_per_s);
	if (kind->latency_ps > LATENCY_MOST_PS)
		return nupa_model_refused(error, "kind %u: %.9g s of latency: 10 at most", index,
					  (double)kind->latency_ps / PS_PER_S);
	if (kind->buffer_bytes > BUFFER_MOST)
		return nupa_model_refused(error, "kind %u: a buffer of %llu bytes: %d at most",
					  index, (unsigned long long)kind->buffer_bytes,
					  BUFFER_MOST);
	return true;
}

static bool graph_check(const struct nupa_model_graph *graph, char *error)
{
	const uint64_t nodes = (uint64_t)graph->endpoints + graph->switches;

	if (!graph->endpoints || nodes > NODES_MAX || !graph->links || graph->links > LINKS_MAX ||
	    !graph->kinds || graph->kinds > KINDS_MAX || !graph->protocols ||
	    graph->protocols > PROTOCOLS_MAX)
		return nupa_model_refused(
		    error,
		    "%llu nodes, %u links, %u kinds and %u protocols: at least 1 "
		    "each, and at most %u, %u, %u, %u",
		    (unsigned long long)nodes, graph->links, graph->kinds, graph->protocols,
		    NODES_MAX, LINKS_MAX, KINDS_MAX, PROTOCOLS_MAX);
	for (uint32_t at = 0; at < graph->protocols; at++)
		if (!protocol_check(&graph->protocol[at], at, error))
			return false;
	for (uint32_t at = 0; at < graph->kinds; at++)
		if (!kind_check(graph, at, error))
			return false;
	for (uint32_t at = 0; at < graph->links; at++)
		if (graph->source[at] >= nodes || graph->target[at] >= nodes ||
		    graph->source[at] == graph->target[at] || graph->kind[at] >= graph->kinds)
			return nupa_model_refused(error, "link %u leads from %u to %u, of kind %u",
						  at, graph->source[at], graph->target[at],
						  graph->kind[at]);
	for (uint32_t at = 0; at < graph->routes; at++) {
		const uint32_t first = graph->route_start[at], end = graph->route_start[at + 1];

		if (graph->route_node[at] >= nodes || end <= first ||
		    graph->route_endpoint[at] >= graph->endpoints)
			return nupa_model_refused(error, "route %u: from node %u to endpoint %u",
						  at, graph->route_node[at],
						  graph->route_endpoint[at]);
		for (uint32_t link = first; link < end; link++)
			if (graph->route_link[link] >= graph->links ||
			    graph->source[graph->route_link[link]] != graph->route_node[at])
				return nupa_model_refused(
				    error, "route %u: link %u does not leave node %u", at,
				    graph->route_link[link], graph->route_node[at]);
	}
	return true;
}

static void port_init(struct port *port, const struct nupa_model_graph *graph, uint32_t index)
{
	const struct nupa_model_link_kind *kind = &graph->link_kind[graph->kind[index]];
	const struct nupa_model_protocol *protocol = &graph->protocol[kind->protocol];
	const uint32_t most = protocol->payload_bytes + protocol->header_bytes;
	const struct queue empty = { NUPA_MODEL_NONE, NUPA_MODEL_NONE };
	double buffer = (double)kind->buffer_bytes;

	if (!kind->buffer_bytes) /* there and back, and the packets that are on their way then */
		buffer = 2.0 * (double)kind->latency_ps / PS_PER_S * kind->bytes_per_s + 4.0 * most;
	*port = (struct port){
		.byte_ps20 = (uint64_t)(PS_PER_S * (1 << 20) / kind->bytes_per_s + 0.5),
		.latency_ps = kind->latency_ps,
		.priority = empty,
		.data = empty,
		.ring = empty,
		.source = graph->source[index],
		.target = graph->target[index],
		.protocol = (uint8_t)kind->protocol,
		.to_switch = graph->target[index] >= graph->endpoints,
		.flow_control = (uint8_t)protocol->flow_control,
		.input_queue = !protocol->virtual_queues,
		.buffer_bytes = buffer > BUFFER_MOST ? BUFFER_MOST : (uint32_t)buffer,
		.ecn_low_bytes = UINT32_MAX,
	};
	if (port->input_queue)
		port->input = empty;
	/* Pulls see to the last link themselves: a mark there says nothing of paths. */
	if (protocol->ecn_low_bytes && (port->to_switch || protocol->transport != NUPA_MODEL_PULL))
		port->ecn_low_bytes = protocol->ecn_low_bytes;
	if (port->flow_control == NUPA_MODEL_CREDITS)
		port->credit_bytes =
		    (int32_t)(port->buffer_bytes / protocol->credit_bytes * protocol->credit_bytes);
}

/* A switch forwards a packet's first bytes at once if no link of it is faster than the packet's. */
static bool ports_finish(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			 char *error)
{
	uint64_t *fastest = malloc(sim->nodes * sizeof(*fastest));

	if (!fastest)
		return nupa_model_refused(error, "no memory for %u nodes", sim->nodes);
	for (uint32_t node = 0; node < sim->nodes; node++)
		fastest[node] = UINT64_MAX;
	for (uint32_t at = 0; at < sim->links; at++)
		if (sim->ports[at].byte_ps20 < fastest[sim->ports[at].source])
			fastest[sim->ports[at].source] = sim->ports[at].byte_ps20;
	for (uint32_t at = 0; at < sim->links; at++) {
		struct port *port = &sim->ports[at];
		const struct nupa_model_protocol *protocol = &sim->protocols[port->protocol];

		port->stores = !port->to_switch || !protocol->cut_through ||
			       fastest[port->target] < port->byte_ps20;
		if (port->flow_control != NUPA_MODEL_CREDITS)
			continue;
		if (port->credit_bytes <
		    (int32_t)(protocol->payload_bytes + protocol->header_bytes +
			      protocol->credit_bytes)) {
			free(fastest);
			return nupa_model_refused(
			    error,
			    "kind %u: a buffer of %u bytes holds no packet in "
			    "units of %u",
			    graph->kind[at], port->buffer_bytes, protocol->credit_bytes);
		}
	}
	free(fastest);
	return true;
}

/* A virtual queue for each pair of an input and an output of a switch. */
static bool virtuals_init(struct nupa_model_packets *sim, char *error)
{
	uint32_t *inputs = calloc(sim->nodes, sizeof(*inputs));
	uint64_t count = 0;

	if (!inputs)
		return nupa_model_refused(error, "no memory for %u nodes", sim->nodes);
	for (uint32_t at = 0; at < sim->links; at++)
		if (nupa_model_has_virtuals(&sim->ports[at]))
			sim->ports[at].place = inputs[sim->ports[at].target]++;
	for (uint32_t at = 0; at < sim->links; at++) {
		struct port *port = &sim->ports[at];

		if (!nupa_model_has_virtuals(port) || port->source < sim->endpoints)
			continue;
		port->virtuals = (uint32_t)count;
		count += inputs[port->source];
	}
	free(inputs);
	if (count > VIRTUALS_MAX)
		return nupa_model_refused(error,
					  "%llu pairs of an input and an output of a switch: "
					  "%llu at most",
					  (unsigned long long)count,
					  (unsigned long long)VIRTUALS_MAX);
	sim->virtuals = calloc(count + 1, sizeof(*sim->virtuals));
	if (!sim->virtuals)
		return nupa_model_refused(error, "no memory for %llu virtual queues",
					  (unsigned long long)count);
	return true;
}

static void ends_init(struct nupa_model_packets *sim, const struct nupa_model_graph *graph)
{
	for (uint32_t at = 0; at < sim->endpoints; at++)
		sim->ends[at] = (struct endpoint){ .pulls = { NUPA_MODEL_NONE, NUPA_MODEL_NONE },
						   .share = 65536 };
	for (uint32_t at = 0; at < sim->links; at++) {
		const struct nupa_model_link_kind *kind = &graph->link_kind[graph->kind[at]];
		const struct nupa_model_protocol *protocol = &graph->protocol[kind->protocol];
		struct endpoint *end;
		double rate, packet;

		if (graph->target[at] >= sim->endpoints || protocol->transport != NUPA_MODEL_PULL)
			continue;
		/* Several links share the pulls: their rates add up. */
		end = &sim->ends[graph->target[at]];
		packet = (protocol->payload_bytes + protocol->header_bytes) * PS_PER_S;
		rate = kind->bytes_per_s * protocol->pull_per_mille / 1000;
		if (end->pull_packet_ps)
			rate += packet / (double)end->pull_packet_ps;
		end->pull_packet_ps = (uint64_t)(packet / rate + 0.5);
	}
}

bool nupa_model_graph_copy(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			   char *error)
{
	if (!graph_check(graph, error))
		return false;
	sim->endpoints = graph->endpoints;
	sim->nodes = graph->endpoints + graph->switches;
	sim->links = graph->links;
	sim->ports = aligned_alloc(64, sim->links * sizeof(*sim->ports));
	sim->ends = calloc(sim->endpoints, sizeof(*sim->ends));
	sim->protocols = calloc(graph->protocols, sizeof(*sim->protocols));
	if (!sim->ports || !sim->ends || !sim->protocols)
		return nupa_model_refused(error, "no memory for %u links", sim->links);
	for (uint32_t at = 0; at < graph->protocols; at++)
		sim->protocols[at] = graph->protocol[at];
	for (uint32_t at = 0; at < sim->links; at++)
		port_init(&sim->ports[at], graph, at);
	ends_init(sim, graph);
	return ports_finish(sim, graph, error) && virtuals_init(sim, error) &&
	       nupa_model_routes_build(sim, graph, error);
}
