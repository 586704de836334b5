/* SPDX-License-Identifier: BSD-3-Clause
 * Packets of wires, as their sockets have sent and received them.  The headers in front are made
 * again: Ethernet's are those of the hosts, and the UDP checksum of IPv4 is 0. */
#include "capture/expand/expand.h"
#include "wire/frames/ethernet.h"

#define MTU_MAX_BYTES 65000u

static void set_link(const struct nupa_watch *watch, const struct nupa_trace_packet *packet,
		     uint32_t from, uint32_t to, struct nupa_frame_link *link)
{
	memcpy(link->local, packet->path.src, sizeof(link->local));
	memcpy(link->remote, packet->path.dst, sizeof(link->remote));
	memcpy(link->mac, watch->fabric->hosts[from].mac, sizeof(link->mac));
	memcpy(link->remote_mac, watch->fabric->hosts[to].mac, sizeof(link->remote_mac));
}

bool nupa_expand_packet(struct nupa_watch *watch, const struct nupa_trace_record *record,
			uint32_t source)
{
	const struct nupa_trace_packet *packet = (const void *)(record + 1);
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts, total = packet->data.total_bytes;
	const uint32_t own = watch->slot_host[source];
	const uint32_t from = packet->came ? packet->host : own - 1;
	const uint32_t to = packet->came ? own - 1 : packet->host;
	struct nupa_frame_link link;
	struct nupa_frame_packet frame = {
		.identification = packet->path.identification,
		.src_port = packet->path.src_port,
		.tos = packet->path.tos,
		.ttl = packet->path.ttl,
		.data = record->data_bytes == total ? (const uint8_t *)(packet + 1) : NULL,
		.bytes = total,
	};
	struct nupa_run *run;

	if (!own || packet->host >= n_hosts || !total || total > MTU_MAX_BYTES ||
	    record->data_bytes > total)
		return false;
	run = nupa_run_add(watch, NUPA_LEVEL_TRANSPORT, NUPA_KIND_ETHERNET, record->transfer,
			   nupa_flags_of(record));
	run->how = NUPA_RUN_WHOLE;
	run->cast.ends_transfer = packet->ends;
	run->whole.data = (const uint8_t *)(packet + 1);
	run->whole.data_bytes = record->data_bytes;
	set_link(watch, packet, from, to, &link);
	run->whole.head_bytes = nupa_frame_head(&link, &frame, run->whole.head);
	run->whole.original_bytes = run->whole.head_bytes + total;
	/* The keeper is on the wire's own host. */
	if (own - 1 == packet->host)
		nupa_sights_port(watch, packet->host, packet->came ? NUPA_OUTBOUND : NUPA_INBOUND,
				 &run->cast);
	else
		nupa_sights_route(watch, from, to, &run->cast);
	return true;
}
