/* SPDX-License-Identifier: BSD-3-Clause
 * RoCE v2 packets in what a packet socket gives (packet(7), SOCK_RAW with PACKET_VNET_HDR and
 * PACKET_AUXDATA): a virtio header, that of the link, IPv4, UDP, and the packet.  Several packets
 * come in one if a sender of this machine has the kernel segment them (UDP_SEGMENT), or if GRO has
 * merged them.  Their identifications count up; in merged ones they may all be the same. */
#ifndef NUPA_PACKET_RAW_H
#define NUPA_PACKET_RAW_H

#include "packet/icrc.h"

#include <sys/socket.h>

/* Virtio, the link and a tag: 10 + 32 bytes; IPv4 and UDP are within a datagram's 65535. */
#define NUPA_RAW_HEADERS_MAX_BYTES 64u

/* Packets of one sender that came in one. */
struct nupa_packets {
	struct nupa_roce_path path; /* of the first */
	const uint8_t *bytes;       /* from the BTH on */
	uint32_t n;                 /* bytes of all */
	uint32_t segment;           /* of each; the last one may be shorter */
};

/* Reads *n* bytes that recvmsg has put into the one piece of *msg*.  False: they are no such
 * packets.  Every field that the ICRC covers is checked or in the path. */
bool nupa_raw_read(struct msghdr *msg, uint32_t n, struct nupa_packets *packets);

#endif
