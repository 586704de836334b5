/* SPDX-License-Identifier: BSD-3-Clause
 * The packet engine of nupa.model: operations on a graph, each packet on each link.
 *
 * Where to start: switch.h has the way of one packet, in numbered steps.  Time is an integer of
 * picoseconds.  The same graph, operations and seed give the same answer, bit for bit. */
#ifndef NUPA_MODEL_PACKETS_H
#define NUPA_MODEL_PACKETS_H

#include <stdint.h>

/* cffi: begin */
/* Full buffers: what a link does with a packet for which the next buffer has no room. */
enum nupa_model_flow_control {
	NUPA_MODEL_DROP,    /* drops it */
	NUPA_MODEL_TRIM,    /* cuts the payload off: the header travels on, with priority (UEC) */
	NUPA_MODEL_CREDITS, /* is not sent it: credits (InfiniBand, CXL, UALink, NVLink) */
	NUPA_MODEL_PAUSE,   /* is not sent it: pause frames (RoCE with PFC) */
};

/* Senders: what limits the packets of one operation in flight. */
enum nupa_model_transport {
	NUPA_MODEL_LINE,   /* the links only */
	NUPA_MODEL_PULL,   /* a first window, then what the receiver pulls (UEC) */
	NUPA_MODEL_DCQCN,  /* a rate, which falls with notifications of congestion (RoCE) */
	NUPA_MODEL_WINDOW, /* a window, which halves with losses and marks (TCP) */
};

/* Equal-cost paths: what chooses among them. */
enum nupa_model_spread {
	NUPA_MODEL_PER_FLOW,        /* a hash of the operation */
	NUPA_MODEL_PER_PACKET,      /* the sender, anew for each packet; it avoids marked paths */
	NUPA_MODEL_ADAPTIVE,        /* each switch: the shorter of two random queues */
	NUPA_MODEL_PER_DESTINATION, /* the endpoint's number, as in a fat tree's D-mod-k */
};

/* How packets are sent over one fabric.  Sizes of packets are on the wire, headers included. */
struct nupa_model_protocol {
	uint32_t flow_control, transport, spread; /* enums above */
	uint32_t payload_bytes;                   /* of a full packet */
	uint32_t header_bytes;                    /* of a packet, beside its payload */
	uint32_t control_bytes;  /* acknowledgements, pulls, requests, trimmed packets */
	uint32_t cut_through;    /* 0: switches store a packet before they forward it */
	uint32_t virtual_queues; /* 0: one queue an input, whose first packet blocks the others */
	uint32_t paths;          /* PER_PACKET: values of a packet's entropy; a power of two */
	uint32_t credit_bytes;   /* CREDITS: a packet takes whole units of this */
	uint32_t ack_packets;    /* an acknowledgement each so many packets; 0: at the end */
	uint32_t ecn_low_bytes;  /* a longer queue marks; 0: none does */
	uint32_t ecn_high_bytes; /* from here on each packet is marked */
	uint32_t ecn_per_mille;  /* just below `ecn_high_bytes` */
	uint32_t xoff_bytes;     /* PAUSE: an input's packets from which it pauses its link */
	uint32_t xon_bytes;      /* PAUSE: below this it resumes */
	uint32_t window_packets; /* PULL, WINDOW: the first window */
	uint32_t pull_packets;   /* PULL: granted by one pull */
	uint32_t pull_per_mille; /* PULL: rate of grants, of the rate of the receiver's links */
	uint64_t timeout_ps;     /* without progress, missing packets are sent again; 0: never */
	uint64_t adapt_ps;       /* PULL: trimmed packets lower the rate each so often; 0: never */
	uint64_t notify_ps;      /* DCQCN: the least time between two notifications */
	uint64_t alpha_ps;       /* DCQCN: alpha follows notifications each so often */
	uint64_t recover_ps;     /* DCQCN: the rate rises each so often */
	uint64_t recover_bytes;  /* DCQCN: and each so many bytes sent; 0: not by bytes */
	uint64_t increase_bytes_per_s; /* DCQCN: additive increase */
	uint64_t hyper_bytes_per_s;    /* DCQCN: hyper increase */
	uint64_t least_bytes_per_s;    /* DCQCN: the rate falls no lower */
	uint32_t recover_rounds;       /* DCQCN: rises in fast recovery, before increases */
};

struct nupa_model_link_kind {
	double bytes_per_s;
	uint64_t latency_ps; /* the medium, and the node at its end */
	uint64_t
	    buffer_bytes;  /* DROP, TRIM: before this link; else behind it.  0: a round trip's */
	uint32_t protocol; /* index */
};

/* Nodes 0 to endpoints - 1 send and receive, the others forward.  An explicit route replaces, for
 * one node and destination, the links of the shortest paths. */
struct nupa_model_graph {
	uint32_t endpoints, switches, links, kinds, protocols, routes;
	const uint32_t *source, *target;
	const uint16_t *kind;
	const struct nupa_model_link_kind *link_kind;
	const struct nupa_model_protocol *protocol;
	const uint32_t *route_node, *route_endpoint;
	const uint32_t *route_start; /* routes + 1 indices into route_link */
	const uint32_t *route_link;
};

/* rank == peer: a computation of `before_ps`. */
struct nupa_model_operation {
	uint32_t rank, peer;
	uint64_t bytes;
	uint64_t start_ps;          /* not before this */
	uint64_t before_ps;         /* from its start until its first packet may leave */
	uint64_t after_ps;          /* from its last packet's arrival until it has completed */
	uint64_t busy_ps;           /* from its start until its lane starts another */
	uint64_t limit_bytes_per_s; /* of its packets at their sender; 0: none but the links' */
	uint32_t lane; /* a thread, 1 to `operations`, which starts them in turn; 0: none */
	uint32_t payload_bytes, header_bytes; /* of its packets; payload 0: the protocol's */
	uint32_t read;    /* 1: a request travels to the peer, and the bytes travel back */
	uint32_t entropy; /* PER_FLOW: 0: by the seed; else operations with one value share paths */
	uint32_t connection; /* 1 to `operations`, whose packets leave in turn; 0: none */
};

struct nupa_model_work {
	uint32_t operations;
	const struct nupa_model_operation *operation;
	const uint32_t *after_start; /* operations + 1 indices into `after` */
	const uint32_t *after;       /* operations that must have completed */
	uint64_t seed;
	uint32_t packets_max; /* packets in flight; more is an error */
};

/* An operation that waits for another starts at its `done_ps`, on the node that received the
 * bytes, or at its `acked_ps`, on any other. */
struct nupa_model_times {
	uint64_t start_ps; /* what it waited for had completed */
	uint64_t done_ps;  /* the bytes were there */
	uint64_t acked_ps; /* the sender knew */
};

struct nupa_model_link_use {
	uint64_t bytes, packets; /* sent on it */
	uint64_t busy_ps;
	uint64_t queue_bytes_max;
	uint64_t dropped, trimmed, marked, paused; /* packets; paused: pause frames for it */
};

struct nupa_model_totals {
	uint64_t events;
	uint64_t now_ps, end_ps; /* of the last event; of the last completion */
	uint64_t data_packets, resent_packets, control_packets;
	uint64_t payload_sent_bytes, payload_received_bytes; /* without repetitions */
	uint32_t operations_left, packets_most;
};

enum { NUPA_MODEL_ERROR_BYTES = 200 };

struct nupa_model_packets;

/* NULL: `error` says why.  The arguments are copied. */
struct nupa_model_packets *nupa_model_packets_new(const struct nupa_model_graph *graph,
						  const struct nupa_model_work *work,
						  char error[NUPA_MODEL_ERROR_BYTES]);

/* Runs that many events: 1 if more remain, 0 if all operations completed, -1 if they cannot, and
 * `error` says why.  A run ends early by never being continued. */
int nupa_model_packets_run(struct nupa_model_packets *sim, uint64_t events,
			   char error[NUPA_MODEL_ERROR_BYTES]);

/* An entry for each operation, and for each link. */
void nupa_model_packets_times(const struct nupa_model_packets *sim, struct nupa_model_times *times);
void nupa_model_packets_links(const struct nupa_model_packets *sim,
			      struct nupa_model_link_use *use);
struct nupa_model_totals nupa_model_packets_totals(const struct nupa_model_packets *sim);
void nupa_model_packets_free(struct nupa_model_packets *sim);
/* cffi: end */

#endif
