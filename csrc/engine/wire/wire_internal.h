/* SPDX-License-Identifier: BSD-3-Clause
 * A port to a wire, for the files behind wire.h. */
#ifndef NUPA_WIRE_INTERNAL_H
#define NUPA_WIRE_INTERNAL_H

#include "engine/trace/trace.h"
#include "engine/wire/wire.h"
#include "packet/raw.h"
#include "packet/roce.h"
#include "segment/port_protocol.h"
#include "segment/wire.h"

#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define NUPA_WIRE_BATCH 128u          /* packets that are made before they are sent */
#define NUPA_WIRE_BATCH_BYTES 140000u /* of all of them: two groups, within a core's cache */
#define NUPA_WIRE_TTL 64u
#define NUPA_WIRE_ECN_CAPABLE 2 /* ECT(0), in the type of service */
#define NUPA_WIRE_PIECES 3u     /* headers, payload, padding with ICRC */
/* Of a datagram, or of several in one (UDP_GRO); RAW has the headers before it. */
#define NUPA_WIRE_IN_BYTES (NUPA_RAW_HEADERS_MAX_BYTES + 65536u)

/* A packet that is being sent. */
struct nupa_wire_out {
	uint64_t head, dma_head;     /* of the ring, before it */
	uint32_t at, bytes;          /* in the batch */
	bool repeated;               /* a request that was sent before */
	struct nupa_trace_posted of; /* while a capture runs: the request of which it is */
};

/* Packets that leave in one call: all of one length, but for the last, which may be shorter.  The
 * kernel segments them (UDP_SEGMENT), and gives the n-th the identification n. */
struct nupa_wire_group {
	uint32_t first, n;       /* packets */
	uint32_t segment, bytes; /* of each, of all */
	struct iovec piece;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(uint16_t))];
	} control;
};

struct nupa_wire_in {
	uint8_t bytes[NUPA_WIRE_IN_BYTES];
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} from;
	union {
		struct cmsghdr header;
		char bytes[2 * CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	} control;
};

struct nupa_wire {
	struct nupa_engine *engine;
	struct nupa_wire *next;       /* engine->wires */
	struct nupa_channel *channel; /* NULL: it has ended */
	struct nupa_wire_entry *entry;
	struct nupa_rx rx; /* the ring of the channel */
	uint32_t index, host;
	bool frames;           /* NUPA_WIRE_FRAMES: all goes by the keeper */
	int keeper, udp, wake; /* sockets; an eventfd */
	int raw;               /* NUPA_WIRE_RAW: receives in place of `udp`; -1: none */
	bool ipv4;
	bool joined;     /* the keeper has answered: until then, nothing leaves the ring */
	bool blocked;    /* the socket takes no more for now */
	bool stop, done; /* its thread shall end, and has */
	struct nupa_roce_path out, in;
	struct nupa_icrc_base icrc_out, icrc_in;
	/* Of what is sent: congestion.c. */
	uint64_t sent_ns, measured_ns, measured_bytes, bytes_per_s;
	struct nupa_icrc_sender sender;   /* the other end */
	struct nupa_trace_posted *posted; /* by line of the ring */
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to;
	pthread_t thread;
	uint32_t gsi_psn; /* of the next datagram from QP 1 */
	bool segments;    /* the kernel makes packets of groups */
	uint32_t n_out, n_groups, n_bytes;
	uint32_t came; /* datagrams, the last time */
	struct nupa_wire_out outs[NUPA_WIRE_BATCH];
	struct nupa_wire_group groups[NUPA_WIRE_BATCH];
	struct mmsghdr out_headers[NUPA_WIRE_BATCH];
	uint8_t batch[NUPA_WIRE_BATCH_BYTES];
	struct nupa_wire_in in_datagram;
};

/* join.c: 0; -EAGAIN: the keeper has not answered yet; or another -errno. */
int nupa_wire_join(struct nupa_wire *wire, int patience_ms);
/* Tells the user of such an error. */
void nupa_wire_hint(const struct nupa_wire *wire, int error);
/* thread.c: 0 or -errno. */
int nupa_wire_start_thread(struct nupa_wire *wire);
/* port.c: closes a descriptor that may be -1, which it is then. */
void nupa_wire_shut(int *fd);
/* send.c: what lies in the ring goes out, as far as the socket takes it. */
void nupa_wire_flush(struct nupa_wire *wire);
/* packet.c: the packet that a message becomes, and its payload; false: it stays here.  Says in
 * *repeated* whether it was sent before. */
bool nupa_wire_packet(const struct nupa_wire *wire, const struct nupa_msg *msg,
		      const uint8_t *beside, struct nupa_roce_packet *packet,
		      const uint8_t **payload, bool *repeated);
/* And the acknowledgement that goes before it. */
bool nupa_wire_acknowledgement(const struct nupa_wire *wire, const struct nupa_msg *msg,
			       struct nupa_roce_packet *packet);
/* gsi.c: a packet to QP 1.  Only those that the keeper has steered are for this process. */
void nupa_wire_receive_mad(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
			   const uint8_t *payload);
void nupa_wire_hand_over(struct nupa_wire *wire, const struct nupa_roce_path *path, bool identified,
			 const uint8_t *bytes, uint32_t n);
/* gsi.c: a packet by itself, at once; lost, if it cannot leave now. */
void nupa_wire_send_alone(struct nupa_wire *wire, const struct nupa_roce_packet *packet,
			  const uint8_t *payload);
/* congestion.c: packets of this socket may be marked. */
void nupa_wire_say_capable(int fd, bool ipv4);
/* The type of service or the traffic class that a packet came with. */
uint8_t nupa_wire_tos(struct msghdr *msg);
/* So many bytes were sent: at which rate. */
void nupa_wire_measure(struct nupa_wire *wire, uint64_t bytes);
/* Answers a marked packet.  True: the packet is a notification, and done. */
bool nupa_wire_congested(struct nupa_wire *wire, const struct nupa_roce_packet *packet);
/* trace.c: for captures.  Groups that have just left. */
static inline bool nupa_wire_is_traced(const struct nupa_wire *wire)
{
	return unlikely(wire->engine->trace & NUPA_TRACE_TRANSPORT);
}
void nupa_wire_trace_sent(struct nupa_wire *wire, uint32_t from, uint32_t to, uint64_t time_ns);
/* One by itself, of NUPA_WIRE_PIECES pieces. */
void nupa_wire_trace_alone(struct nupa_wire *wire, uint64_t time_ns, const struct iovec *pieces);
/* One that came.  packet NULL: it is not taken. */
void nupa_wire_trace_came(struct nupa_wire *wire, const struct nupa_roce_path *path,
			  bool identified, const struct nupa_roce_packet *packet,
			  const uint8_t *bytes, uint32_t n);
/* receive.c: returns how many came. */
uint32_t nupa_wire_receive(struct nupa_wire *wire);
uint32_t nupa_wire_receive_kept(struct nupa_wire *wire); /* by the keeper */

#endif
