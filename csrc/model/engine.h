/* SPDX-License-Identifier: BSD-3-Clause
 * The state of a run: arrays of fixed-size structs, named by 32-bit indices.
 *
 * I1 A packet is in one place: the wheel, one queue, or the free list.
 * I2 A flow in a ring of a port may send its next packet as soon as the port is free, but for pace.
 * I3 A port with work is busy with an armed timer, or blocked by credits or a pause. */
#ifndef NUPA_MODEL_ENGINE_H
#define NUPA_MODEL_ENGINE_H

#include "base/dcqcn.h"
#include "model/packets.h"
#include "model/random.h"
#include "model/wheel.h"

enum {
	NODES_MAX = 1 << 24, /* as a packet has 24 bits for an endpoint */
	LINKS_MAX = 1 << 26,
	OPERATIONS_MAX = 1 << 22,
	PATHS_MAX = 1 << 8, /* PER_PACKET: a bit of `penalty` each */
};
#define NO_LINK UINT32_MAX

enum packet_type {
	PACKET_DATA,
	PACKET_ACK,     /* seq: packets that arrived, and << 16 those that the receiver pulls */
	PACKET_NACK,    /* packet `seq` was trimmed or lost */
	PACKET_REQUEST, /* of a read */
	PACKET_NOTIFY,  /* congestion */
	PACKET_CREDIT,  /* not on a link: `seq` bytes of credit for `link` */
	PACKET_PAUSE,   /* not on a link: `seq` is 1 to pause, 0 to resume */
	PACKET_INPUT,   /* not on a link: the input behind `link` is free for its next packet */
};

enum {
	FLAG_MARKED = 1,
	FLAG_TRIMMED = 2,
	FLAG_HELD = 4,    /* whole, and in the account of `link` */
	FLAG_LAST = 4,    /* trimmed, before its last link */
	FLAG_PULLED = 8,  /* PULL: beyond the first window */
	FLAG_COUNTED = 8, /* CREDITS: in held_bytes of its first virtual queue */
};

struct packet {
	struct nupa_model_event event;         /* time_ps, next */
	uint32_t flow : 22, entropy : 10;      /* the sender's choice of a path */
	uint32_t seq;                          /* by its type */
	uint16_t bytes;                        /* on the wire */
	uint16_t digits;                       /* of the path, for the switches ahead */
	uint32_t to : 24, type : 4, flags : 4; /* `to`: an endpoint */
	uint32_t link;                         /* on which it travels, or came */
} __attribute__((aligned(32)));
_Static_assert(sizeof(struct packet) == 32, "two in a cache line");

struct queue {
	uint32_t head, tail; /* packets, or flows, or virtual queues */
};

/* Packets from one input of a switch for one of its outputs, which takes from its inputs in turn.
 */
struct virtual_queue {
	struct queue packets;
	uint32_t next;      /* in the output's ring of those with packets */
	uint32_t waiting;   /* packets; if 0 `packets` means nothing: the array is zeroed pages */
	int32_t held_bytes; /* of an endpoint's link: credits of packets on their way to it, and in
			       it */
};

/* The sending side of a link, and the account of the buffer behind it. */
struct port {
	uint64_t free_ps;   /* its last packet is sent */
	uint64_t byte_ps20; /* 2^20 ps per byte */
	uint64_t latency_ps;
	struct queue priority, data;
	uint32_t source, target;
	uint32_t queue_bytes; /* of `data` */
	uint8_t protocol;
	bool armed; /* its timer will fire at free_ps */
	bool paused;
	bool to_switch;
	bool stores; /* a packet arrives with its last byte, not with its first */
	uint8_t flow_control;
	bool input_queue; /* behind it is one queue without virtual ones */
	uint32_t buffer_bytes;
	/* second line: endpoints, credits, pause, counters */
	struct queue ring; /* flows that may send, of an endpoint */
	int32_t credit_bytes;
	uint32_t input_bytes; /* PAUSE: of packets that came on this link and wait */
	union {
		struct queue input; /* input_queue: the packets behind the first */
		struct {
			uint32_t virtuals; /* as an output: its first virtual queue; or NONE */
			uint32_t place;    /* as an input: the number of its virtual queue there */
		};
	};
	bool pausing;    /* PAUSE: its source was told to pause */
	bool input_busy; /* input_queue: the first waits for its next link */
	uint32_t queue_most;
	uint64_t bytes;
	uint32_t ecn_low_bytes, packets, dropped, trimmed, marked, pauses;
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct port) == 128, "two cache lines");

enum flow_flag {
	FLOW_READY = 1, /* what it waited for has completed, and its lane has its turn */
	FLOW_STARTED = 2,
	FLOW_RINGED = 4, /* in a ring, or its timer will put it there */
	FLOW_DONE = 8,   /* all bytes are there */
	FLOW_ACKED = 16,
	FLOW_PULLING = 32, /* in the receiver's ring of pulls */
	FLOW_MARKED = 64,  /* a marked packet since the last acknowledgement */
};

/* An operation under way. */
struct flow {
	uint32_t sender, receiver; /* of the bytes: for a read, the peer and the rank */
	uint32_t total;            /* packets */
	uint32_t sent;             /* packets sent once */
	uint32_t acked;
	uint32_t window;    /* packets that may leave now; UINT32_MAX: unlimited */
	struct queue again; /* NACKs that wait to be answered by the packet */
	uint32_t next;      /* in a ring */
	uint32_t behind;    /* the next operation of its connection, which waits; or NONE */
	uint32_t port;      /* its ring */
	uint32_t virtuals;  /* CREDITS: the queue that all its packets meet first; or NONE */
	uint16_t full_bytes, last_bytes; /* of a packet, and of the last one, on the wire */
	uint8_t protocol, flags;
	uint8_t idle;  /* timeouts without a reply */
	uint8_t ports; /* links from the sender on shortest paths; at most 255 are counted */
	uint16_t entropy, stride;
	uint16_t digits; /* of PER_FLOW, and the offset of PER_PACKET */
	uint16_t back;   /* PER_DESTINATION: the digits of the way back */
	uint16_t echo;   /* entropy of the last packet, or the last marked one */
	/* receiver */
	uint32_t received, unacked, wanted, next_pull, expected;
	/* timers and congestion */
	uint32_t pending;           /* operations that it waits for */
	uint32_t progress, checked; /* replies so far; and when the timeout was armed */
	uint64_t ready_ps;
	uint64_t pace_ps;     /* not before */
	uint64_t seen;        /* index of its bits of received packets */
	uint64_t notified_ps; /* DCQCN: not before */
	struct nupa_dcqcn dcqcn;
	uint32_t cwnd256, threshold, in_flight, recover; /* WINDOW: 1/256 packets; packets */
	uint64_t penalty[PATHS_MAX / 64]; /* PER_PACKET: entropies to pass over once */
};

/* Operations of one sender and receiver whose packets leave in turn. */
struct connection {
	uint32_t sends; /* has packets left; or NONE */
	uint32_t tail;  /* the last that waits behind it */
	uint32_t last;  /* that sent; NONE: none did */
};

struct endpoint {
	struct queue pulls;      /* flows */
	uint64_t pull_ps;        /* the next pull not before */
	uint64_t pull_packet_ps; /* at full share */
	uint64_t since_ps;       /* the share was looked at */
	uint32_t got, trimmed;   /* pulled packets since then */
	bool rose;               /* the share, then */
	uint32_t share;          /* of the pulls' rate: 65536 is 1 */
	bool armed;
};

struct timer {
	struct nupa_model_event event;
};

/* Next links by node and class of destinations: those that hang on the same nodes.  An entry is an
 * index into `sets`, where a count and that many links stand. */
struct routes {
	uint32_t *class_of; /* by endpoint */
	uint32_t *place;    /* by endpoint, in its class */
	uint32_t *class_size;
	uint32_t **before; /* by node, of some: by class: see nupa_model_route_number() */
	uint32_t classes;
	uint32_t *row; /* node by class */
	uint32_t *sets;
	uint32_t sets_used, sets_room;
	uint32_t *down_start, *down; /* by endpoint: links that end there */
};
enum { ROUTE_NONE = 0, ROUTE_DIRECT = 1, ROUTE_FIRST = 2 }; /* DIRECT: the link to the endpoint */

struct nupa_model_packets {
	struct nupa_model_wheel wheel;
	uint64_t now_ps, random;
	struct packet *packets;
	struct port *ports;
	struct flow *flows;
	struct endpoint *ends;
	struct virtual_queue *virtuals;
	struct timer *timers; /* ports, flows' starts and pace, flows' timeouts, endpoints */
	struct nupa_model_protocol *protocols;
	struct nupa_model_operation *operations;
	struct nupa_model_times *times;
	struct routes routes;
	uint32_t *dependent_start, *dependent;
	uint64_t *lane_free_ps;
	struct connection *connections; /* from 1 */
	uint64_t *seen;                 /* a bit for each packet of operations over lossy links */
	uint32_t packets_used, packets_max, free; /* `packets_used` ever; `free` of these */
	uint32_t endpoints, nodes, links, operations_count;
	const char *failed; /* why the run cannot go on */
	struct nupa_model_totals totals;
};

static inline uint32_t timer_of_port(uint32_t port)
{
	return NUPA_MODEL_TIMER | port;
}

static inline uint32_t timer_of_flow(const struct nupa_model_packets *sim, uint32_t flow)
{
	return NUPA_MODEL_TIMER | (sim->links + flow);
}

static inline uint32_t timeout_of_flow(const struct nupa_model_packets *sim, uint32_t flow)
{
	return NUPA_MODEL_TIMER | (sim->links + sim->operations_count + flow);
}

static inline uint32_t timer_of_end(const struct nupa_model_packets *sim, uint32_t end)
{
	return NUPA_MODEL_TIMER | (sim->links + 2 * sim->operations_count + end);
}

static inline void put(struct nupa_model_packets *sim, uint32_t id, uint64_t time_ps)
{
	if (__builtin_expect(!nupa_model_wheel_put(&sim->wheel, id, time_ps), 0))
		sim->failed = "no memory for events";
}

static inline uint64_t serial_ps(const struct port *port, uint32_t bytes)
{
	return (bytes * port->byte_ps20 + (1u << 20) - 1) >> 20;
}

static inline bool nupa_model_has_virtuals(const struct port *port)
{
	return port->flow_control == NUPA_MODEL_CREDITS && !port->input_queue;
}

/* NUPA_MODEL_NONE: `failed` says why. */
static inline uint32_t packet_new(struct nupa_model_packets *sim)
{
	const uint32_t id = sim->free;

	if (id != NUPA_MODEL_NONE) {
		sim->free = sim->packets[id].event.next;
		return id;
	}
	if (sim->packets_used == sim->packets_max) {
		sim->failed = "more packets are in flight than packets_max";
		return NUPA_MODEL_NONE;
	}
	return sim->packets_used++;
}

static inline void packet_free(struct nupa_model_packets *sim, uint32_t id)
{
	sim->packets[id].event.next = sim->free;
	sim->free = id;
}

static inline void append(struct nupa_model_packets *sim, struct queue *queue, uint32_t id)
{
	sim->packets[id].event.next = NUPA_MODEL_NONE;
	if (queue->head == NUPA_MODEL_NONE)
		queue->head = id;
	else
		sim->packets[queue->tail].event.next = id;
	queue->tail = id;
}

static inline uint32_t take(struct nupa_model_packets *sim, struct queue *queue)
{
	const uint32_t id = queue->head;

	queue->head = sim->packets[id].event.next;
	return id;
}

/* The same for flows, in rings of ports. */
static inline void ring_append(struct nupa_model_packets *sim, struct queue *ring, uint32_t flow)
{
	sim->flows[flow].next = NUPA_MODEL_NONE;
	if (ring->head == NUPA_MODEL_NONE)
		ring->head = flow;
	else
		sim->flows[ring->tail].next = flow;
	ring->tail = flow;
}

/* setup.c, routes.c: false: `error` says why. */
bool nupa_model_graph_copy(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			   char *error);
bool nupa_model_work_copy(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			  const struct nupa_model_work *work, char *error);
bool nupa_model_routes_build(struct nupa_model_packets *sim, const struct nupa_model_graph *graph,
			     char *error);
uint32_t nupa_model_route_number(struct nupa_model_packets *sim, uint32_t node, uint32_t to);
void nupa_model_routes_free(struct routes *routes, uint32_t nodes);
/* Zeroed, and never empty; NULL: no memory. */
void *nupa_model_array(uint64_t count, uint64_t bytes);
bool nupa_model_refused(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* operation.c */
void nupa_model_operation_released(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_operation_ready(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_operation_start(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_operation_done(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_operation_acked(struct nupa_model_packets *sim, uint32_t op);

/* sender.c */
void nupa_model_flow_activate(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_flow_wake(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_flow_join(struct nupa_model_packets *sim, uint32_t op);
uint32_t nupa_model_flow_packet(struct nupa_model_packets *sim, uint32_t port_index);
void nupa_model_flow_timeout(struct nupa_model_packets *sim, uint32_t op);
void nupa_model_sender_receives(struct nupa_model_packets *sim, uint32_t id);
void nupa_model_control_send(struct nupa_model_packets *sim, uint32_t op, enum packet_type type,
			     uint32_t seq, uint32_t entropy, bool marked);
void nupa_model_packet_return(struct nupa_model_packets *sim, uint32_t id, enum packet_type type);

/* congestion.c */
void nupa_model_dcqcn_start(struct nupa_model_packets *sim, struct flow *flow);
void nupa_model_congestion_keep(const struct nupa_model_packets *sim, const struct flow *before,
				struct flow *flow);
void nupa_model_dcqcn_notified(struct nupa_model_packets *sim, struct flow *flow);
uint64_t nupa_model_dcqcn_interval_ps(struct nupa_model_packets *sim, struct flow *flow,
				      uint32_t bytes);
void nupa_model_window_acked(struct flow *flow, uint32_t packets);
void nupa_model_window_lost(struct flow *flow, uint32_t seq);

/* receiver.c */
void nupa_model_receiver_data(struct nupa_model_packets *sim, uint32_t id);
void nupa_model_pull_timer(struct nupa_model_packets *sim, uint32_t end);

/* port.c, switch.c */
void nupa_model_virtual_append(struct nupa_model_packets *sim, struct port *port, uint32_t index);
void nupa_model_port_kick(struct nupa_model_packets *sim, uint32_t index);
void nupa_model_port_release(struct nupa_model_packets *sim, uint32_t index, uint32_t bytes,
			     uint64_t in_ps);
void nupa_model_input_next(struct nupa_model_packets *sim, struct port *port);
void nupa_model_switch_forward(struct nupa_model_packets *sim, uint32_t id);
void nupa_model_switch_enqueue(struct nupa_model_packets *sim, uint32_t index, uint32_t id);
uint32_t nupa_model_route_free(const struct nupa_model_packets *sim, uint32_t node, uint32_t to);
uint32_t nupa_model_route_pick(struct nupa_model_packets *sim, uint32_t node,
			       struct packet *packet);

#endif
