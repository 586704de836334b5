/* SPDX-License-Identifier: BSD-3-Clause
 * The words between a process and the keeper of a wire, on the keeper's Unix socket
 * (SOCK_SEQPACKET).  The process says hello, the keeper welcomes it and passes it a UDP socket,
 * RAW: and a packet socket.  From then on each datagram is one packet behind an envelope, in either
 * direction.  A hang-up says that the other end is gone.
 *
 *   process -> keeper   packets of other slots that came by the process's UDP socket; FRAMES: all
 *   keeper -> process   packets of QP 1, and those that came by another socket; FRAMES: all */
#ifndef NUPA_PORT_PROTOCOL_H
#define NUPA_PORT_PROTOCOL_H

#include "segment/layout/wire_layout.h"

#define NUPA_WIRE_MAGIC 0x5750554eu /* "NUPW" */
#define NUPA_WIRE_VERSION 1u
/* Instead of a hello: a command's request follows, JSON (nupa/wire). */
#define NUPA_WIRE_REQUEST_MAGIC 0x5250554eu /* "NUPR" */
#define NUPA_WIRE_UDP_PORT 4791             /* IBTA A17.9.2 */

struct nupa_wire_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t slot, epoch; /* of the process's attachment */
};
_Static_assert(sizeof(struct nupa_wire_hello) == 16, "struct nupa_wire_hello");

struct nupa_wire_welcome {
	uint32_t magic;
	uint32_t version;
	uint32_t status; /* 0, or an errno: EPROTO, ESTALE, EACCES, EEXIST, EUSERS, ... */
	uint32_t flags;  /* 0 */
	uint32_t index;  /* of the wire's entry */
	uint32_t reserved;
};
_Static_assert(sizeof(struct nupa_wire_welcome) == 24, "struct nupa_wire_welcome");

enum nupa_wire_envelope_flag {
	NUPA_WIRE_IDENTIFIED = 1, /* the identification is known: the ICRC is exact */
};

struct nupa_wire_envelope {
	uint8_t src[16], dst[16]; /* of the IP header; IPv4 addresses are mapped */
	uint16_t identification;  /* in the order of the host */
	uint8_t tos, ttl;
	uint32_t flags; /* enum nupa_wire_envelope_flag */
	uint32_t bytes; /* of the packet, BTH to ICRC */
	uint16_t src_port;
	uint16_t reserved;
};
_Static_assert(sizeof(struct nupa_wire_envelope) == 48, "struct nupa_wire_envelope");

/* BTH to ICRC: an MTU, the longest headers (BTH, RDETH, DETH, RETH, atomics, IETH) and the ICRC. */
#define NUPA_WIRE_PACKET_MIN_BYTES 16u
#define NUPA_WIRE_PACKET_MAX_BYTES (NUPA_MTU_BYTES + 128u)

#endif
