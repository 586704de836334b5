/* SPDX-License-Identifier: BSD-3-Clause
 * A packet as the reader of a watch gets it. */
#ifndef NUPA_CAPTURE_PACKET_H
#define NUPA_CAPTURE_PACKET_H

#include <stdint.h>

/* cffi: begin */
/* One packet in the buffer of nupa_watch_read; its bytes follow, padded to a multiple of 8. */
struct nupa_watch_packet {
	uint64_t ts_ns; /* since 1970 */
	uint64_t transfer;
	uint32_t captured_bytes, original_bytes;
	uint32_t sequence; /* of this transfer at this level */
	uint16_t port;     /* of the fabric: where it was seen */
	uint16_t host;     /* the host at whose end of the route it was seen: source if outbound */
	uint16_t flags;    /* nupa.packet.tables.record.Flag */
	uint8_t level;     /* 1 tlp, 2 queue, 3 transport, 4 net, 5 cache:
			      nupa.packet.tables.record.Level */
	uint8_t kind;      /* nupa.packet.tables.record.Kind; a transport packet has ETHERNET */
	uint8_t direction; /* nupa.packet.tables.record.Direction */
	uint8_t reserved[3];
};

struct nupa_watch_counts {
	uint64_t records; /* read */
	uint64_t packets; /* made of them */
	uint64_t lost;    /* records: overwritten before they were read */
	uint64_t invalid; /* invalid records, from a hostile or dying process */
};
/* cffi: end */

#endif
