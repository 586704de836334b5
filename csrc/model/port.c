/* SPDX-License-Identifier: BSD-3-Clause
 * Sending on links: what may go next, and the accounts of buffers. */
#include "model/switch.h"

enum { FLOWS_TRIED = 16 };

/* To the end of the ring of an output. */
void nupa_model_virtual_append(struct nupa_model_packets *sim, struct port *port, uint32_t index)
{
	sim->virtuals[index].next = NUPA_MODEL_NONE;
	if (port->ring.head == NUPA_MODEL_NONE)
		port->ring.head = index;
	else
		sim->virtuals[port->ring.tail].next = index;
	port->ring.tail = index;
}

/* What a packet takes of a link's credits. */
static int32_t credits_of(const struct nupa_model_packets *sim, const struct port *port,
			  uint32_t bytes)
{
	const uint32_t unit = sim->protocols[port->protocol].credit_bytes;

	return (int32_t)((bytes + unit - 1) / unit * unit);
}

/* A word about a link, not on a link. */
static void tell(struct nupa_model_packets *sim, uint32_t index, enum packet_type type,
		 uint32_t seq, uint64_t in_ps)
{
	const uint32_t id = packet_new(sim);
	struct packet *packet = &sim->packets[id];

	if (id == NUPA_MODEL_NONE)
		return;
	packet->type = type;
	packet->link = index;
	packet->seq = seq;
	put(sim, id, sim->now_ps + in_ps);
}

/* One queue an input: the first packet has left it, and the next may ask for its next link. */
void nupa_model_input_next(struct nupa_model_packets *sim, struct port *port)
{
	uint32_t id;

	if (port->input.head == NUPA_MODEL_NONE) {
		port->input_busy = false;
		return;
	}
	id = take(sim, &port->input);
	nupa_model_switch_enqueue(sim, nupa_model_route_pick(sim, port->target, &sim->packets[id]),
				  id);
}

/* A packet that came on that link leaves the buffer behind it in `in_ps`. */
void nupa_model_port_release(struct nupa_model_packets *sim, uint32_t index, uint32_t bytes,
			     uint64_t in_ps)
{
	struct port *port = &sim->ports[index];

	if (port->flow_control == NUPA_MODEL_CREDITS) {
		tell(sim, index, PACKET_CREDIT, (uint32_t)credits_of(sim, port, bytes),
		     in_ps + port->latency_ps);
		if (port->input_queue && port->to_switch)
			tell(sim, index, PACKET_INPUT, 0, in_ps);
		return;
	}
	port->input_bytes -= bytes;
	if (port->pausing && port->input_bytes < sim->protocols[port->protocol].xon_bytes) {
		port->pausing = false;
		tell(sim, index, PACKET_PAUSE, 0, port->latency_ps);
	}
}

/* RED: from ecn_low_bytes on with a probability that grows, from ecn_high_bytes on always. */
static bool marks(struct nupa_model_packets *sim, const struct port *port)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[port->protocol];
	const uint64_t over = port->queue_bytes - protocol->ecn_low_bytes;
	const uint64_t range = protocol->ecn_high_bytes - protocol->ecn_low_bytes;

	if (over >= range)
		return true;
	/* 20 random bits: all products fit 64 bits. */
	return (nupa_model_random(&sim->random) >> 44) * range * 1000 <
	       (over * protocol->ecn_per_mille) << 20;
}

/* The account of what an endpoint's link has for one output of its switch. */
static void count_held(struct nupa_model_packets *sim, const struct port *port,
		       struct packet *packet, bool held)
{
	if (!(packet->flags & FLAG_COUNTED) || port->flow_control != NUPA_MODEL_CREDITS)
		return;
	if (held) {
		const struct port *from = &sim->ports[packet->link];

		sim->virtuals[port->virtuals + from->place].held_bytes -=
		    credits_of(sim, from, packet->bytes);
		packet->flags &= (uint8_t)~FLAG_COUNTED & 15;
	} else {
		sim->virtuals[sim->flows[packet->flow].virtuals].held_bytes +=
		    credits_of(sim, port, packet->bytes);
	}
}

/* Step 2. */
static void transmit(struct nupa_model_packets *sim, uint32_t index, struct port *port, uint32_t id)
{
	struct packet *packet = &sim->packets[id];
	const uint32_t bytes = packet->bytes, from = packet->link;
	const uint64_t ps = serial_ps(port, bytes);
	const bool held = (packet->flags & (FLAG_HELD | FLAG_TRIMMED)) == FLAG_HELD;

	if (packet->type == PACKET_DATA && !(packet->flags & FLAG_TRIMMED)) {
		if (port->queue_bytes > port->ecn_low_bytes && marks(sim, port)) {
			packet->flags |= FLAG_MARKED;
			port->marked++;
		}
		if (port->flow_control == NUPA_MODEL_CREDITS)
			port->credit_bytes -= credits_of(sim, port, bytes);
		count_held(sim, port, packet, held);
	}
	port->bytes += bytes;
	port->packets++;
	port->free_ps = sim->now_ps + ps;
	packet->link = index;
	put(sim, id, sim->now_ps + port->latency_ps + (port->stores ? ps : 0));
	if (held) {
		packet->flags &= FLAG_MARKED | FLAG_PULLED;
		nupa_model_port_release(sim, from, bytes, ps);
	}
}

static bool has_credits(const struct nupa_model_packets *sim, const struct port *port,
			uint32_t bytes)
{
	return port->flow_control != NUPA_MODEL_CREDITS ||
	       port->credit_bytes >= credits_of(sim, port, bytes);
}

/* From the virtual queue whose turn it is, which goes to the end of the ring. */
static uint32_t next_virtual(struct nupa_model_packets *sim, struct port *port)
{
	const uint32_t index = port->ring.head;
	struct virtual_queue *queue = &sim->virtuals[index];
	const uint32_t bytes = sim->packets[queue->packets.head].bytes;
	uint32_t id;

	if (!has_credits(sim, port, bytes))
		return NUPA_MODEL_NONE;
	port->queue_bytes -= bytes;
	id = take(sim, &queue->packets);
	port->ring.head = queue->next;
	if (--queue->waiting)
		nupa_model_virtual_append(sim, port, index);
	return id;
}

/* The first flow whose virtual queue holds less than what is left of the credits (Choudhury and
 * Hahne's dynamic threshold): a slow output takes no other's credits, except for a part. */
static uint32_t next_of_flows(struct nupa_model_packets *sim, uint32_t index, struct port *port)
{
	for (uint32_t tried = 0; tried < FLOWS_TRIED; tried++) {
		const uint32_t op = port->ring.head;
		const struct flow *flow = &sim->flows[op];

		if (!has_credits(sim, port, flow->full_bytes))
			return NUPA_MODEL_NONE;
		if (port->flow_control != NUPA_MODEL_CREDITS || flow->virtuals == NUPA_MODEL_NONE ||
		    sim->virtuals[flow->virtuals].held_bytes < port->credit_bytes)
			return nupa_model_flow_packet(sim, index);
		port->ring.head = flow->next;
		ring_append(sim, &port->ring, op);
	}
	return NUPA_MODEL_NONE;
}

/* The packet that goes next, out of its queue; or none. */
static uint32_t next_packet(struct nupa_model_packets *sim, uint32_t index, struct port *port)
{
	if (port->priority.head != NUPA_MODEL_NONE)
		return take(sim, &port->priority);
	if (port->paused)
		return NUPA_MODEL_NONE;
	if (port->data.head != NUPA_MODEL_NONE) {
		const uint32_t bytes = sim->packets[port->data.head].bytes;

		if (!has_credits(sim, port, bytes))
			return NUPA_MODEL_NONE;
		port->queue_bytes -= bytes;
		return take(sim, &port->data);
	}
	if (port->ring.head == NUPA_MODEL_NONE)
		return NUPA_MODEL_NONE;
	if (port->source >= sim->endpoints)
		return next_virtual(sim, port);
	return next_of_flows(sim, index, port);
}

/* Sends a packet if the link is free and one may go; arms the timer if there is more (I3). */
void nupa_model_port_kick(struct nupa_model_packets *sim, uint32_t index)
{
	struct port *port = &sim->ports[index];

	if (port->armed)
		return;
	if (port->free_ps <= sim->now_ps) {
		const uint32_t id = next_packet(sim, index, port);

		if (id == NUPA_MODEL_NONE)
			return;
		transmit(sim, index, port, id);
		if (port->armed) /* by a packet that its input held back */
			return;
	}
	if (port->priority.head != NUPA_MODEL_NONE || port->data.head != NUPA_MODEL_NONE ||
	    port->ring.head != NUPA_MODEL_NONE) {
		port->armed = true;
		put(sim, timer_of_port(index), port->free_ps);
	}
}
