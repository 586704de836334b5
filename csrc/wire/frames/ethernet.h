/* SPDX-License-Identifier: BSD-3-Clause
 * RoCE v2 packets in Ethernet frames: IPv4 or IPv6, UDP.  Plain functions of bytes; frames that are
 * read may hold anything. */
#ifndef NUPA_WIRE_ETHERNET_H
#define NUPA_WIRE_ETHERNET_H

#include <net/ethernet.h>
#include <stdbool.h>
#include <stdint.h>

#define NUPA_ROCE_PORT 4791u /* IBTA A17.9.2 */
/* Ethernet, IPv6 and UDP. */
#define NUPA_FRAME_HEAD_BYTES 62u
/* Ethernet, and the longest IPv6 packet without a jumbo payload. */
#define NUPA_FRAME_MAX_BYTES (ETHER_HDR_LEN + 40u + 65535u)
/* A BTH and an ICRC. */
#define NUPA_FRAME_ROCE_MIN_BYTES 16u

/* Both ends of a link.  IPv4 addresses are mapped (::ffff:10.1.0.2), and so both or none. */
struct nupa_frame_link {
	uint8_t local[16], remote[16];
	uint8_t mac[ETHER_ADDR_LEN];        /* ours */
	uint8_t remote_mac[ETHER_ADDR_LEN]; /* learned */
};

/* A packet, BTH to ICRC, and the fields of its IP and UDP headers. */
struct nupa_frame_packet {
	uint8_t src[16], dst[16];
	uint16_t identification; /* IPv6: 0 */
	uint16_t src_port;
	uint8_t tos, ttl;
	const uint8_t *data;
	uint32_t bytes;
};

enum nupa_frame_verdict {
	NUPA_FRAME_ROCE,      /* a packet of the link's remote for us */
	NUPA_FRAME_OTHER,     /* another protocol, or another destination */
	NUPA_FRAME_FOREIGN,   /* RoCE for us, from another address */
	NUPA_FRAME_MALFORMED, /* lengths or checksums are wrong, or it is a fragment */
};

bool nupa_frame_is_ipv4(const uint8_t address[16]);

/* Chooses our MAC by our address. */
void nupa_frame_choose_mac(struct nupa_frame_link *link);

/* ROCE: *packet is set, its data lie in the frame. */
enum nupa_frame_verdict nupa_frame_read(const struct nupa_frame_link *link, const uint8_t *frame,
					uint32_t bytes, struct nupa_frame_packet *packet);

/* Writes the headers of the frame from us to the remote in front of packet->data: their bytes.
 * Identification, source port, TOS and TTL are the packet's; IPv4 has DF, as an unconnected socket
 * with IP_PMTUDISC_DO has.  The packet has at most 65,507 bytes.  data NULL: without the checksum
 * that IPv6 wants. */
uint32_t nupa_frame_head(const struct nupa_frame_link *link, const struct nupa_frame_packet *packet,
			 uint8_t head[NUPA_FRAME_HEAD_BYTES]);

/* The one's complement sum (RFC 1071) of bytes, continued from `sum`; not complemented. */
uint32_t nupa_frame_sum(uint32_t sum, const uint8_t *data, uint32_t bytes);
/* Folded and complemented, in the order of the network. */
uint16_t nupa_frame_checksum(uint32_t sum);
/* The pseudo header of a protocol over IP (RFC 768, RFC 8200 8.1); addresses as in a link. */
uint32_t nupa_frame_pseudo(const uint8_t src[16], const uint8_t dst[16], uint8_t protocol,
			   uint32_t bytes);

#endif
