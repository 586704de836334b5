/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/switch.h"

/* The shorter of two random queues. */
static uint32_t shorter(struct nupa_model_packets *sim, const uint32_t *links, uint32_t count)
{
	const uint64_t random = nupa_model_random(&sim->random);
	const uint32_t one = (uint32_t)((random & UINT32_MAX) * count >> 32);
	const uint32_t step = 1 + (uint32_t)((random >> 32) * (count - 1) >> 32);
	const struct port *a = &sim->ports[links[one]];
	const struct port *b = &sim->ports[links[(one + step) % count]];

	if (a->queue_bytes == b->queue_bytes)
		return links[b->free_ps < a->free_ps ? (one + step) % count : one];
	return links[b->queue_bytes < a->queue_bytes ? (one + step) % count : one];
}

/* The link from the node to the packet's endpoint; of several, the digits choose. */
static uint32_t direct(const struct nupa_model_packets *sim, uint32_t node, struct packet *packet)
{
	const struct routes *routes = &sim->routes;
	const uint32_t first = routes->down_start[packet->to];
	const uint32_t end = routes->down_start[packet->to + 1];
	uint32_t count = 0, wanted;

	if (end - first == 1)
		return routes->down[first];
	for (uint32_t at = first; at < end; at++)
		count += sim->ports[routes->down[at]].source == node;
	wanted = digit_take(&sim->protocols[sim->ports[routes->down[first]].protocol],
			    &packet->digits, count);
	for (uint32_t at = first; at < end; at++)
		if (sim->ports[routes->down[at]].source == node && !wanted--)
			return routes->down[at];
	__builtin_unreachable();
}

/* Of the links from an endpoint on shortest paths, the one that is free first. */
uint32_t nupa_model_route_free(const struct nupa_model_packets *sim, uint32_t node, uint32_t to)
{
	const struct routes *routes = &sim->routes;
	const uint32_t entry = routes->row[(uint64_t)node * routes->classes + routes->class_of[to]];
	const bool last = entry == ROUTE_DIRECT;
	const uint32_t *links =
	    last ? routes->down + routes->down_start[to] : routes->sets + entry + 1;
	const uint32_t count =
	    last ? routes->down_start[to + 1] - routes->down_start[to] : routes->sets[entry];
	uint32_t found = NO_LINK;

	for (uint32_t at = 0; at < count; at++)
		if (sim->ports[links[at]].source == node &&
		    (found == NO_LINK || sim->ports[links[at]].free_ps < sim->ports[found].free_ps))
			found = links[at];
	return found;
}

/* Step 3.  Each pair of an operation has a route: nupa_model_work_copy() checked it. */
uint32_t nupa_model_route_pick(struct nupa_model_packets *sim, uint32_t node, struct packet *packet)
{
	const struct routes *routes = &sim->routes;
	const uint32_t entry =
	    routes->row[(uint64_t)node * routes->classes + routes->class_of[packet->to]];
	const uint32_t *set = routes->sets + entry;
	const struct nupa_model_protocol *protocol;

	if (entry == ROUTE_DIRECT)
		return direct(sim, node, packet);
	if (set[0] == 1)
		return set[1];
	protocol = &sim->protocols[sim->ports[set[1]].protocol];
	if (packet->type == PACKET_DATA && protocol->spread == NUPA_MODEL_ADAPTIVE)
		return shorter(sim, set + 1, set[0]);
	return set[1 + digit_take(protocol, &packet->digits, set[0])];
}

static void drop(struct nupa_model_packets *sim, uint32_t id)
{
	const struct packet *packet = &sim->packets[id];

	if (packet->flags & FLAG_HELD)
		nupa_model_port_release(sim, packet->link, packet->bytes, 0);
	packet_free(sim, id);
}

/* A full queue: this packet is trimmed, or, as often, the last one in the queue, whose place it
 * takes. Otherwise flows in step lose all packets, or none. */
static void trim(struct nupa_model_packets *sim, struct port *port, uint32_t id)
{
	struct packet *packet = &sim->packets[id];

	if (port->data.head != NUPA_MODEL_NONE && nupa_model_random(&sim->random) >> 63) {
		struct packet *last = &sim->packets[port->data.tail];
		const struct packet waiting = *last;

		if (packet->bytes <= waiting.bytes) {
			*last = *packet;
			last->event.next = NUPA_MODEL_NONE;
			port->queue_bytes -= waiting.bytes - packet->bytes;
			*packet = waiting;
		}
	}
	port->trimmed++;
	if (packet->flags & FLAG_HELD)
		nupa_model_port_release(sim, packet->link, packet->bytes, 0);
	packet->flags =
	    FLAG_TRIMMED | (packet->flags & FLAG_PULLED) | (port->to_switch ? 0 : FLAG_LAST);
	packet->bytes = (uint16_t)sim->protocols[port->protocol].control_bytes;
	append(sim, &port->priority, id);
}

/* In the virtual queue of its input, or behind all others. */
static void wait(struct nupa_model_packets *sim, struct port *port, uint32_t id)
{
	const struct packet *packet = &sim->packets[id];
	const struct port *in = &sim->ports[packet->link];
	struct virtual_queue *queue;
	uint32_t index;

	if (!nupa_model_has_virtuals(in) || !nupa_model_has_virtuals(port)) {
		append(sim, &port->data, id);
		return;
	}
	index = port->virtuals + in->place;
	queue = &sim->virtuals[index];
	if (!queue->waiting++) {
		queue->packets.head = NUPA_MODEL_NONE;
		nupa_model_virtual_append(sim, port, index);
	}
	append(sim, &queue->packets, id);
}

/* Step 4: a packet waits for a link, or goes at once, or the link's buffer is full. */
void nupa_model_switch_enqueue(struct nupa_model_packets *sim, uint32_t index, uint32_t id)
{
	struct port *port = &sim->ports[index];
	const uint32_t queue_bytes = port->queue_bytes + sim->packets[id].bytes;

	if (port->flow_control <= NUPA_MODEL_TRIM && queue_bytes > port->buffer_bytes) {
		if (port->flow_control == NUPA_MODEL_DROP) {
			port->dropped++;
			drop(sim, id);
			return;
		}
		trim(sim, port, id);
	} else {
		port->queue_bytes = queue_bytes;
		wait(sim, port, id);
		if (queue_bytes > port->queue_most)
			port->queue_most = queue_bytes;
	}
	nupa_model_port_kick(sim, index);
}

/* PAUSE: the account of an input.  false: its buffer is full, and the packet is dropped. */
static bool input_admits(struct nupa_model_packets *sim, struct port *port, struct packet *packet)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[port->protocol];

	if (port->input_bytes + packet->bytes > port->buffer_bytes) {
		port->dropped++;
		return false;
	}
	port->input_bytes += packet->bytes;
	packet->flags |= FLAG_HELD;
	if (port->input_bytes >= protocol->xoff_bytes && !port->pausing) {
		const uint32_t id = packet_new(sim);

		port->pausing = true;
		port->pauses++;
		if (id == NUPA_MODEL_NONE)
			return true;
		sim->packets[id].type = PACKET_PAUSE;
		sim->packets[id].seq = 1;
		sim->packets[id].link = packet->link;
		put(sim, id, sim->now_ps + port->latency_ps);
	}
	return true;
}

void nupa_model_switch_forward(struct nupa_model_packets *sim, uint32_t id)
{
	struct packet *packet = &sim->packets[id];
	struct port *in = &sim->ports[packet->link];
	uint32_t out;

	if (packet->type != PACKET_DATA || packet->flags & FLAG_TRIMMED) {
		out = nupa_model_route_pick(sim, in->target, packet);
		append(sim, &sim->ports[out].priority, id);
		nupa_model_port_kick(sim, out);
		return;
	}
	if (in->flow_control == NUPA_MODEL_PAUSE && !input_admits(sim, in, packet)) {
		packet_free(sim, id);
		return;
	}
	if (in->flow_control == NUPA_MODEL_CREDITS) {
		packet->flags |= FLAG_HELD;
		if (in->input_queue) {
			if (in->input_busy) {
				append(sim, &in->input, id);
				return;
			}
			in->input_busy = true;
		}
	}
	nupa_model_switch_enqueue(sim, nupa_model_route_pick(sim, in->target, packet), id);
}
