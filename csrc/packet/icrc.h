/* SPDX-License-Identifier: BSD-3-Clause
 * The invariant CRC of a RoCE v2 packet whose IP and UDP headers are not at hand: a UDP socket
 * sends and receives from the BTH on (IBTA A17.3.3).
 *
 * It covers the IP identification, which a UDP socket hides.  A CRC is linear, so that the 16 bits
 * of the identification span a space of 2^16 among 2^32 differences: whether an ICRC is right for
 * any identification can be computed, and for which one. */
#ifndef NUPA_PACKET_ICRC_H
#define NUPA_PACKET_ICRC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* The longest packet whose identification can be found: from the BTH to the end of the ICRC. */
#define NUPA_ICRC_PACKET_MAX_BYTES 9216u

/* Fields of IP and UDP that the ICRC covers; numbers in the host's byte order.  tos and ttl are
 * masked.  The IP flags say "don't fragment". */
struct nupa_roce_path {
	uint8_t src[16], dst[16]; /* IPv4 is ::ffff:a.b.c.d, both or none */
	uint16_t src_port, identification;
	uint8_t tos, ttl;
};

/* What all packets between two addresses have in common. */
struct nupa_icrc_base {
	uint32_t state;
	bool is_ipv4;
};
void nupa_icrc_prepare(struct nupa_icrc_base *base, const uint8_t src[16], const uint8_t dst[16]);

/* The ICRC of the bytes from the BTH to the padding, in n pieces, the first of which has the BTH.
 * It is stored little endian. */
uint32_t nupa_icrc_of(const struct nupa_icrc_base *base, uint16_t src_port, uint16_t identification,
		      const struct iovec *packet, int n);

/* Whether the ICRC in the last four of `bytes` from the BTH on is right.  *identification is the
 * likely one, with which this is quick; it becomes the one for which the ICRC is right; with IPv6,
 * which has none, 0. */
bool nupa_icrc_find(const struct nupa_icrc_base *base, uint16_t src_port, const uint8_t *packet,
		    uint32_t bytes, uint16_t *identification);

/* The same of one packet, with all fields of its path. */
uint32_t nupa_icrc(const struct nupa_roce_path *path, const struct iovec *packet, int n);
bool nupa_icrc_right(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes);
/* For any identification: one wrong ICRC of 65,536 passes with IPv4. */
bool nupa_icrc_plausible(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes);

/* The sender of packets whose identifications are hidden.  Zeroed at first. */
struct nupa_icrc_sender {
	uint8_t low;    /* successive packets with a low identification */
	uint8_t others; /* successive packets since, with a higher one */
	bool anew;      /* one of the low ones was not above the one before */
	uint16_t last;  /* identification that was taken */
};

/* Whether a packet of this sender ends with its ICRC.  One wrong ICRC of 2^25 passes for a sender
 * whose identifications are below NUPA_ICRC_LOW: those of UDP sockets with IP_PMTUDISC_DO are 0,
 * and count from 0 in packets that were segmented (UDP_SEGMENT).  A sender that counts all its
 * packets, as rdma_rxe does, passes that range once in 65,536. */
#define NUPA_ICRC_LOW 128u
bool nupa_icrc_expected(struct nupa_icrc_sender *sender, const struct nupa_icrc_base *base,
			uint16_t src_port, uint16_t likely, const uint8_t *packet, uint32_t bytes);

/* The ICRC of a packet whose headers lie before it, all of which is in memory: from the first
 * header that it covers, IP, GRH or LRH, to the padding.  `udp_at` is the place of UDP's header, 0
 * without one.  `bth_at` is at most NUPA_ICRC_HEADERS_MAX_BYTES. */
#define NUPA_ICRC_HEADERS_MAX_BYTES 200u
enum nupa_icrc_first { NUPA_ICRC_IPV4, NUPA_ICRC_IPV6, NUPA_ICRC_LRH };
uint32_t nupa_icrc_of_frame(enum nupa_icrc_first first, const uint8_t *headers, uint32_t udp_at,
			    uint32_t bth_at, uint32_t bytes);

#endif
