/* SPDX-License-Identifier: BSD-3-Clause
 * Packets of a watch as records of a pcapng file. */
#include "capture/watch_index.h"

#include <string.h>

enum { TRANSPORT = 3, NET }; /* nupa.packet.tables.record.Level: link type Ethernet; others: NUPA */
enum { FLAG_CORRUPT = 8 };   /* nupa.packet.tables.record.Flag */
#define EPB_CRC_ERROR (1u << 24) /* the draft, 4.3.1: epb_flags */

static bool fill(const struct nupa_watch_packet *packet, const uint32_t *interfaces,
		 uint32_t n_ports, const struct nupa_watch_options *options,
		 struct nupa_pcapng_record *out)
{
	bool is_nupa = packet->level != TRANSPORT && packet->level != NET;
	uint32_t interface;

	if (packet->port >= n_ports)
		return false;
	interface = interfaces[2 * packet->port + is_nupa];
	if (interface == ~0u)
		return false;
	*out = (struct nupa_pcapng_record){
		.ts_ns = packet->ts_ns,
		.packet_id = packet->transfer,
		.captured_bytes = packet->captured_bytes,
		.original_bytes = packet->original_bytes,
		.interface = interface,
		.flags =
		    (packet->direction & 3u) | (packet->flags & FLAG_CORRUPT ? EPB_CRC_ERROR : 0),
	};
	if (!is_nupa) {
		const struct nupa_watch_options *more = &options[packet->flags >> 2 & 255];

		out->options_offset = more->bytes ? more->offset : 0;
		out->options_bytes = more->bytes;
	}
	return true;
}

uint32_t nupa_watch_index(const uint8_t *data, size_t bytes, const uint32_t *interfaces,
			  uint32_t n_ports, const struct nupa_watch_options *options,
			  struct nupa_pcapng_record *records, uint32_t max, size_t *place)
{
	size_t at = *place;
	uint32_t n = 0;

	while (n < max && at < bytes && bytes - at >= sizeof(struct nupa_watch_packet)) {
		struct nupa_watch_packet packet;
		size_t body = at + sizeof(packet), padded;

		memcpy(&packet, data + at, sizeof(packet));
		padded = ((size_t)packet.captured_bytes + 7) & ~(size_t)7;
		if (padded > bytes - body || body > UINT32_MAX) {
			at = bytes;
			break;
		}
		if (fill(&packet, interfaces, n_ports, options, &records[n]))
			records[n++].offset = (uint32_t)body;
		at = body + padded;
	}
	*place = at;
	return n;
}
