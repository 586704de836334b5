/* SPDX-License-Identifier: BSD-3-Clause
 * The counters of the host's port, as in `nupa show`.  They have the flows of every attachment,
 * past and present, that passed the port, those of groups, and messages dropped, repeated or
 * rejected. */
#include "shim/shim.h"

#include "base/atomics.h"
#include "region/group/group.h"
#include "segment/slot/counters.h"
#include "segment/slot/slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add_outgoing(struct nupa_flow_info *sum, const struct nupa_flow_info *flow)
{
	sum->xmit_bytes += flow->xmit_bytes;
	sum->xmit_packets += flow->xmit_packets;
	sum->rcv_bytes += flow->rcv_bytes;
	sum->rcv_packets += flow->rcv_packets;
	sum->xmit_wait += flow->xmit_wait;
	sum->xmit_discards += flow->xmit_discards;
}

static void add_incoming(struct nupa_flow_info *sum, const struct nupa_flow_info *flow)
{
	sum->rcv_bytes += flow->xmit_bytes;
	sum->rcv_packets += flow->xmit_packets;
	sum->xmit_bytes += flow->rcv_bytes;
	sum->xmit_packets += flow->rcv_packets;
}

static void add_past(struct nupa_fabric *fabric, uint32_t host, struct nupa_flow_info *sum)
{
	struct nupa_flow_info flow;

	for (uint32_t peer = 0; peer < fabric->geometry.n_hosts; peer++) {
		if (peer == host)
			continue; /* messages within the host pass no port */
		if (!nupa_fabric_past_flow(fabric, host, peer, &flow))
			add_outgoing(sum, &flow);
		if (!nupa_fabric_past_flow(fabric, peer, host, &flow))
			add_incoming(sum, &flow);
	}
}

static void add_slot(struct nupa_fabric *fabric, uint32_t host, uint32_t slot,
		     struct nupa_flow_info *sum)
{
	const uint64_t claim = nupa_slot_claim(&fabric->slots[slot]);
	const uint32_t from = nupa_load_relaxed(&fabric->slots[slot].host);
	struct nupa_flow_info flow;

	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE)
		return;
	if (from != host) {
		if (!nupa_fabric_flow(fabric, slot, host, &flow))
			add_incoming(sum, &flow);
		return;
	}
	for (uint32_t peer = 0; peer < fabric->geometry.n_hosts; peer++)
		if (peer != host && !nupa_fabric_flow(fabric, slot, peer, &flow))
			add_outgoing(sum, &flow);
}

/* Groups' packets that left by the other end of the link entered here. */
static void add_groups(struct nupa_fabric *fabric, uint32_t port, struct nupa_flow_info *sum)
{
	uint64_t bytes, packets;

	if (!nupa_group_port(fabric, port, &bytes, &packets)) {
		sum->xmit_bytes += bytes;
		sum->xmit_packets += packets;
	}
	if (!nupa_group_port(fabric, fabric->ports[port].peer, &bytes, &packets)) {
		sum->rcv_bytes += bytes;
		sum->rcv_packets += packets;
	}
}

/* The two are read one after the other, while they grow. */
static uint64_t without(uint64_t all, uint64_t some)
{
	return all > some ? all - some : 0;
}

/* Data in words of 4 bytes, IBTA 16.1.3.5. */
void nupa_shim_counter(const struct nupa_shim_view *view, uint32_t index, char *text, size_t bytes)
{
	struct nupa_fabric *fabric = view->fabric;
	const struct nupa_port *port = &fabric->ports[fabric->hosts[view->host].port];
	struct nupa_flow_info sum = { 0 };
	struct nupa_hw_counters hw = { 0 };

	(void)nupa_fabric_hw_counters(fabric, view->host, &hw);
	add_past(fabric, view->host, &sum);
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		add_slot(fabric, view->host, slot, &sum);
	add_groups(fabric, fabric->hosts[view->host].port, &sum);
	const uint64_t values[] = {
		[NUPA_SHIM_XMIT_DATA] = sum.xmit_bytes / 4,
		[NUPA_SHIM_XMIT_PACKETS] = sum.xmit_packets,
		[NUPA_SHIM_RCV_DATA] = sum.rcv_bytes / 4,
		[NUPA_SHIM_RCV_PACKETS] = sum.rcv_packets,
		[NUPA_SHIM_XMIT_WAIT] = sum.xmit_wait,
		[NUPA_SHIM_XMIT_DISCARDS] = sum.xmit_discards,
		[NUPA_SHIM_LINK_DOWNED] = nupa_load_relaxed(&port->link_downed),
		[NUPA_SHIM_UNICAST_XMIT] = without(sum.xmit_packets, hw.multicast_xmit_packets),
		[NUPA_SHIM_UNICAST_RCV] = without(sum.rcv_packets, hw.multicast_rcv_packets),
		[NUPA_SHIM_RETRIES] = hw.packet_seq_err + hw.local_ack_timeout_err,
	};
	snprintf(text, bytes, "%" PRIu64 "\n", values[index]);
}

void nupa_shim_hw_counter(const struct nupa_shim_view *view, uint32_t index, char *text,
			  size_t bytes)
{
	struct nupa_hw_counters counters;
	uint64_t value = 0;

	if (!nupa_fabric_hw_counters(view->fabric, view->host, &counters))
		memcpy(&value, (const uint8_t *)&counters + index, sizeof(value));
	snprintf(text, bytes, "%" PRIu64 "\n", value);
}
