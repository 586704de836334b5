/* SPDX-License-Identifier: BSD-3-Clause
 * Senders: when a flow may send, its packets, and the replies to them. */
#include "model/switch.h"

enum { IDLE_MOST = 200 }; /* timeouts that a flow waits for its turn to be pulled */

static bool lossy(const struct nupa_model_protocol *protocol)
{
	return protocol->flow_control <= NUPA_MODEL_TRIM;
}

static bool may_send(const struct nupa_model_packets *sim, const struct flow *flow)
{
	if (flow->again.head == NUPA_MODEL_NONE && flow->sent == flow->total)
		return false;
	if (sim->protocols[flow->protocol].transport == NUPA_MODEL_WINDOW)
		return flow->in_flight * 256ull < flow->cwnd256;
	return flow->window;
}

/* Into the ring of its port, which sends at once if it is idle. */
void nupa_model_flow_join(struct nupa_model_packets *sim, uint32_t op)
{
	struct flow *flow = &sim->flows[op];

	ring_append(sim, &sim->ports[flow->port].ring, op);
	nupa_model_port_kick(sim, flow->port);
}

void nupa_model_flow_wake(struct nupa_model_packets *sim, uint32_t op)
{
	struct flow *flow = &sim->flows[op];

	if (flow->flags & FLOW_RINGED || !may_send(sim, flow))
		return;
	flow->flags |= FLOW_RINGED;
	if (flow->pace_ps > sim->now_ps)
		put(sim, timer_of_flow(sim, op), flow->pace_ps);
	else
		nupa_model_flow_join(sim, op);
}

/* The rate and window of a connection go on with its next operation. */
static void begin(struct nupa_model_packets *sim, uint32_t op)
{
	struct flow *flow = &sim->flows[op];
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];
	struct connection *connection = &sim->connections[sim->operations[op].connection];
	const bool first = !sim->operations[op].connection || connection->last == NUPA_MODEL_NONE;

	if (!first)
		nupa_model_congestion_keep(sim, &sim->flows[connection->last], flow);
	else if (protocol->transport == NUPA_MODEL_DCQCN)
		nupa_model_dcqcn_start(sim, flow);
	if (lossy(protocol) && protocol->timeout_ps)
		put(sim, timeout_of_flow(sim, op), sim->now_ps + protocol->timeout_ps);
}

void nupa_model_flow_activate(struct nupa_model_packets *sim, uint32_t op)
{
	const uint32_t number = sim->operations[op].connection;
	struct connection *connection = &sim->connections[number];

	sim->flows[op].behind = NUPA_MODEL_NONE;
	if (number) {
		if (connection->sends != NUPA_MODEL_NONE) {
			sim->flows[connection->tail].behind = op;
			connection->tail = op;
			return;
		}
		connection->sends = connection->tail = op;
	}
	begin(sim, op);
	nupa_model_flow_wake(sim, op);
}

/* The last packet of an operation leaves: the next one of its connection follows. */
static void connection_next(struct nupa_model_packets *sim, uint32_t op)
{
	const uint32_t number = sim->operations[op].connection, next = sim->flows[op].behind;

	if (!number)
		return;
	sim->connections[number].last = op;
	sim->connections[number].sends = next;
	if (next == NUPA_MODEL_NONE)
		return;
	begin(sim, next);
	/* By its timer: its port is about to send. */
	sim->flows[next].flags |= FLOW_RINGED;
	put(sim, timer_of_flow(sim, next),
	    sim->flows[next].pace_ps > sim->now_ps ? sim->flows[next].pace_ps : sim->now_ps);
}

/* PER_PACKET: the next value in turn; values of marked paths are passed over once. */
static uint16_t next_entropy(struct flow *flow, uint32_t paths)
{
	for (uint32_t tried = 0; tried < paths; tried++) {
		uint64_t *word, bit;

		flow->entropy = (uint16_t)((flow->entropy + flow->stride) & (paths - 1));
		word = &flow->penalty[flow->entropy / 64];
		bit = 1ull << flow->entropy % 64;
		if (!(*word & bit))
			break;
		*word &= ~bit;
	}
	return flow->entropy;
}

/* The digits of a path, by which switches choose among equal links. */
static uint16_t first_digits(struct nupa_model_packets *sim, struct flow *flow, uint32_t entropy)
{
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];

	if (protocol->spread == NUPA_MODEL_PER_PACKET && protocol->paths > 1)
		return (uint16_t)(entropy * (65536 / protocol->paths) + flow->digits);
	if (protocol->spread == NUPA_MODEL_ADAPTIVE)
		return (uint16_t)nupa_model_random(&sim->random);
	return flow->digits; /* PER_FLOW, PER_DESTINATION */
}

/* An adapter, a thread or a stream is slower than its links. */
static void limit_pace(struct nupa_model_packets *sim, uint32_t op, uint32_t bytes)
{
	struct flow *flow = &sim->flows[op];
	const uint64_t next_ps =
	    sim->now_ps + bytes * 1000000000000ull / sim->operations[op].limit_bytes_per_s;

	if (flow->pace_ps < next_ps)
		flow->pace_ps = next_ps;
}

/* Packets of one flow may take several paths. */
static bool spreads(const struct nupa_model_protocol *protocol)
{
	return protocol->spread == NUPA_MODEL_PER_PACKET || protocol->spread == NUPA_MODEL_ADAPTIVE;
}

/* After a packet: the flow waits for its pace, or its turn, or for a reply. */
static void continue_flow(struct nupa_model_packets *sim, uint32_t op, uint32_t bytes)
{
	struct flow *flow = &sim->flows[op];
	struct port *port = &sim->ports[flow->port];

	if (sim->protocols[flow->protocol].transport == NUPA_MODEL_DCQCN)
		flow->pace_ps = sim->now_ps + nupa_model_dcqcn_interval_ps(sim, flow, bytes);
	if (sim->operations[op].limit_bytes_per_s)
		limit_pace(sim, op, bytes);
	if (!may_send(sim, flow)) {
		flow->flags &= (uint8_t)~FLOW_RINGED;
	} else if (flow->pace_ps > sim->now_ps + serial_ps(port, bytes)) {
		put(sim, timer_of_flow(sim, op), flow->pace_ps);
	} else if (flow->ports > 1 && spreads(&sim->protocols[flow->protocol])) {
		const uint32_t last = flow->port;

		port->free_ps = sim->now_ps + serial_ps(port, bytes); /* the packet goes now */
		flow->port = nupa_model_route_free(sim, flow->sender, flow->receiver);
		ring_append(sim, &sim->ports[flow->port].ring, op);
		if (flow->port != last)
			nupa_model_port_kick(sim, flow->port);
	} else {
		ring_append(sim, &sim->ports[flow->port].ring, op);
	}
}

/* Step 1: the next packet of the first flow in the ring. */
uint32_t nupa_model_flow_packet(struct nupa_model_packets *sim, uint32_t port_index)
{
	struct port *port = &sim->ports[port_index];
	const uint32_t op = port->ring.head;
	struct flow *flow = &sim->flows[op];
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];
	const bool resent = flow->again.head != NUPA_MODEL_NONE;
	struct packet *packet;
	uint32_t id, seq;

	port->ring.head = flow->next;
	if (resent) {
		id = take(sim, &flow->again);
		seq = sim->packets[id].seq;
		sim->totals.resent_packets++;
	} else {
		id = packet_new(sim);
		if (id == NUPA_MODEL_NONE)
			return id;
		seq = flow->sent++;
	}
	packet = &sim->packets[id];
	packet->flow = op & (OPERATIONS_MAX - 1);
	packet->seq = seq;
	packet->type = PACKET_DATA;
	if (protocol->transport == NUPA_MODEL_PULL)
		packet->flags = resent || seq >= protocol->window_packets ? FLAG_PULLED : 0;
	else
		packet->flags = flow->virtuals != NUPA_MODEL_NONE ? FLAG_COUNTED : 0;
	packet->to = flow->receiver & (NODES_MAX - 1);
	packet->link = NO_LINK;
	packet->bytes = seq + 1 == flow->total ? flow->last_bytes : flow->full_bytes;
	if (protocol->spread == NUPA_MODEL_PER_PACKET)
		next_entropy(flow, protocol->paths);
	packet->entropy = (uint32_t)flow->entropy & 1023;
	packet->digits = first_digits(sim, flow, flow->entropy);
	sim->totals.data_packets++;
	flow->in_flight++;
	if (flow->window != UINT32_MAX)
		flow->window--;
	if (flow->ports > 1) /* the endpoint's choice takes its digit */
		digit_take(protocol, &packet->digits, flow->ports);
	continue_flow(sim, op, packet->bytes);
	if (!resent && seq + 1 == flow->total)
		connection_next(sim, op);
	return id;
}

/* Sends a control packet from the endpoint where a flow's packets arrive to its sender; a request,
 * the other way. */
void nupa_model_control_send(struct nupa_model_packets *sim, uint32_t op, enum packet_type type,
			     uint32_t seq, uint32_t entropy, bool marked)
{
	const uint32_t id = packet_new(sim);
	struct packet *packet = &sim->packets[id];

	if (id == NUPA_MODEL_NONE)
		return;
	packet->flow = op & (OPERATIONS_MAX - 1);
	packet->seq = seq;
	packet->entropy = entropy & 1023;
	packet->flags = marked ? FLAG_MARKED : 0;
	nupa_model_packet_return(sim, id, type);
}

/* Makes a control packet of a packet, and sends it to its flow's sender. */
void nupa_model_packet_return(struct nupa_model_packets *sim, uint32_t id, enum packet_type type)
{
	struct packet *packet = &sim->packets[id];
	struct flow *flow = &sim->flows[packet->flow];
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];
	uint32_t port;

	packet->type = type;
	packet->to = flow->sender & (NODES_MAX - 1);
	packet->link = NO_LINK;
	packet->bytes = (uint16_t)protocol->control_bytes;
	packet->flags &= FLAG_MARKED;
	if (protocol->spread == NUPA_MODEL_PER_DESTINATION)
		packet->digits = flow->back;
	else
		packet->digits = protocol->spread == NUPA_MODEL_PER_FLOW
				     ? flow->digits
				     : (uint16_t)nupa_model_random(&sim->random);
	sim->totals.control_packets++;
	port = nupa_model_route_pick(sim, flow->receiver, packet);
	append(sim, &sim->ports[port].priority, id);
	nupa_model_port_kick(sim, port);
}

static void acknowledged(struct nupa_model_packets *sim, uint32_t op, const struct packet *packet)
{
	struct flow *flow = &sim->flows[op];
	const uint32_t packets = packet->seq & 0xffff;

	flow->acked += packets;
	flow->in_flight -= packets < flow->in_flight ? packets : flow->in_flight;
	if (sim->protocols[flow->protocol].transport == NUPA_MODEL_WINDOW) {
		if (packet->flags & FLAG_MARKED)
			nupa_model_window_lost(flow, flow->acked);
		else
			nupa_model_window_acked(flow, packets);
	}
	if (flow->window != UINT32_MAX)
		flow->window += packet->seq >> 16;
	if (flow->acked == flow->total && !(flow->flags & FLOW_ACKED))
		nupa_model_operation_acked(sim, op);
}

void nupa_model_sender_receives(struct nupa_model_packets *sim, uint32_t id)
{
	const struct packet *packet = &sim->packets[id];
	const uint32_t op = packet->flow;
	struct flow *flow = &sim->flows[op];

	flow->progress++;
	if (packet->type == PACKET_NOTIFY) {
		const uint32_t number = sim->operations[op].connection;

		if (number && sim->connections[number].sends != NUPA_MODEL_NONE)
			flow = &sim->flows[sim->connections[number].sends];
		nupa_model_dcqcn_notified(sim, flow);
		packet_free(sim, id);
		return;
	}
	if ((packet->flags & FLAG_MARKED || packet->type == PACKET_NACK) &&
	    packet->entropy < PATHS_MAX)
		flow->penalty[packet->entropy / 64] |= 1ull << packet->entropy % 64;
	if (packet->type == PACKET_ACK) {
		acknowledged(sim, op, packet);
		packet_free(sim, id);
	} else {
		if (flow->in_flight)
			flow->in_flight--;
		if (sim->protocols[flow->protocol].transport == NUPA_MODEL_WINDOW)
			nupa_model_window_lost(flow, packet->seq);
		append(sim, &flow->again, id);
	}
	nupa_model_flow_wake(sim, op);
}

/* What was sent and did not arrive waits to be sent again.  Links that trim lose nothing: there a
 * packet asks whether others of its path do. */
static void resend_missing(struct nupa_model_packets *sim, struct flow *flow)
{
	const bool trims = sim->protocols[flow->protocol].flow_control == NUPA_MODEL_TRIM;

	for (uint32_t seq = 0; seq < flow->sent; seq++) {
		uint32_t id;

		if (sim->seen[flow->seen + seq / 64] >> seq % 64 & 1)
			continue;
		id = packet_new(sim);
		if (id == NUPA_MODEL_NONE)
			return;
		sim->packets[id].seq = seq;
		append(sim, &flow->again, id);
		if (flow->window != UINT32_MAX)
			flow->window++;
		if (trims)
			return;
	}
}

/* Without a reply since the timeout was armed, what is in flight counts as lost. */
void nupa_model_flow_timeout(struct nupa_model_packets *sim, uint32_t op)
{
	struct flow *flow = &sim->flows[op];
	const struct nupa_model_protocol *protocol = &sim->protocols[flow->protocol];

	if (flow->flags & FLOW_ACKED)
		return;
	if (flow->progress != flow->checked || flow->flags & FLOW_RINGED) {
		flow->idle = 0;
	} else if (flow->in_flight || flow->again.head == NUPA_MODEL_NONE ||
		   ++flow->idle == IDLE_MOST) {
		flow->in_flight = 0;
		if (protocol->transport == NUPA_MODEL_WINDOW)
			nupa_model_window_lost(flow, UINT32_MAX);
		if (flow->again.head == NUPA_MODEL_NONE)
			resend_missing(sim, flow);
		else if (!flow->window) /* its grants were lost with packets */
			flow->window = 1;
		nupa_model_flow_wake(sim, op);
	} /* else it waits for a pull, and many others do */
	flow->checked = flow->progress;
	put(sim, timeout_of_flow(sim, op), sim->now_ps + protocol->timeout_ps);
}
