/* SPDX-License-Identifier: BSD-3-Clause
 * The invariant CRC of RoCE v2 (IBTA A17.3.3): over all that routers leave unchanged, from the IP
 * header on; variant fields count as ones. */
#ifndef NUPA_PACKET_ICRC_H
#define NUPA_PACKET_ICRC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* The headers below the transport, as far as the ICRC covers them.  IPv4 addresses are mapped. */
struct nupa_roce_path {
	uint8_t src[16], dst[16];
	uint16_t src_port, identification; /* IPv4; not to be fragmented */
	uint8_t tos, ttl;                  /* not covered */
};

/* Of a packet from its BTH to its padding, in n pieces; the first one has all of the BTH.  As it is
 * stored, little endian, behind the padding. */
uint32_t nupa_icrc(const struct nupa_roce_path *path, const struct iovec *packet, int n);
/* Whether a packet, from its BTH on, ends with its ICRC. */
bool nupa_icrc_right(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes);
/* The same where the identification is not known.  CRCs are linear, so 1 of 65,536 wrong ones
 * passes. */
bool nupa_icrc_plausible(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes);

/* The sender of packets whose identifications are hidden.  Zeroed at first. */
struct nupa_icrc_sender {
	uint8_t zeros;  /* successive packets with identification 0 */
	uint8_t others; /* successive plausible packets since, with another one */
};

/* Whether a packet of this sender ends with its ICRC.  It is exact for a sender whose packets have
 * identification 0, as those of UDP sockets with IP_PMTUDISC_DO have. */
bool nupa_icrc_expected(struct nupa_icrc_sender *sender, const struct nupa_roce_path *path,
			const uint8_t *packet, uint32_t bytes);

#endif
