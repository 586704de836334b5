/* SPDX-License-Identifier: BSD-3-Clause
 * Traffic of any port, as nupa/fabric/counters.py derives it: flows from host to host, added along
 * their routes, and those of groups, which ports count. */
#include "mad/mad.h"

#include "base/atomics.h"
#include "region/group/group.h"
#include "segment/slot/counters.h"
#include "segment/slot/slot.h"

/* Whether the port lies on a route: 0 no, 1 frames leave by it, 2 they enter. */
static uint32_t way(const struct nupa_fabric *fabric, uint32_t from, uint32_t to, uint32_t port)
{
	const struct nupa_route *route = &fabric->routes[from * fabric->geometry.n_hosts + to];

	for (uint32_t hop = 0; hop < route->hops; hop++)
		if (route->port[hop] == port)
			return 1 + hop % 2;
	return 0;
}

static void add(struct nupa_traffic *sum, uint32_t way_, uint64_t bytes, uint64_t packets)
{
	if (way_ == 1) {
		sum->xmit_bytes += bytes;
		sum->xmit_packets += packets;
	} else if (way_ == 2) {
		sum->rcv_bytes += bytes;
		sum->rcv_packets += packets;
	}
}

static void add_flow(const struct nupa_fabric *fabric, uint32_t port, uint32_t from, uint32_t to,
		     const struct nupa_flow_info *flow, struct nupa_traffic *sum)
{
	add(sum, way(fabric, from, to, port), flow->xmit_bytes, flow->xmit_packets);
	add(sum, way(fabric, to, from, port), flow->rcv_bytes, flow->rcv_packets);
	/* The port of the host whose operations found the path down. */
	if (from != to && fabric->hosts[from].port == port) {
		sum->xmit_wait += flow->xmit_wait;
		sum->xmit_discards += flow->xmit_discards;
	}
}

/* No flow between hosts whose routes pass elsewhere is read. */
static bool concerns(const struct nupa_fabric *fabric, uint32_t port, uint32_t from, uint32_t to)
{
	return from != to && (way(fabric, from, to, port) || way(fabric, to, from, port));
}

/* Groups' packets that left by the other end of the link entered here. */
static void add_groups(struct nupa_fabric *fabric, uint32_t port, struct nupa_traffic *sum)
{
	uint64_t bytes, packets;

	if (!nupa_group_port(fabric, port, &bytes, &packets))
		add(sum, 1, bytes, packets);
	if (!nupa_group_port(fabric, fabric->ports[port].peer, &bytes, &packets))
		add(sum, 2, bytes, packets);
}

void nupa_port_traffic(struct nupa_fabric *fabric, uint32_t port, struct nupa_traffic *sum)
{
	const uint32_t n = fabric->geometry.n_hosts;
	struct nupa_flow_info flow;

	*sum = (struct nupa_traffic){ 0 };
	for (uint32_t from = 0; from < n; from++)
		for (uint32_t to = 0; to < n; to++)
			if (concerns(fabric, port, from, to) &&
			    !nupa_fabric_past_flow(fabric, from, to, &flow))
				add_flow(fabric, port, from, to, &flow, sum);
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		const uint64_t claim = nupa_slot_claim(&fabric->slots[slot]);
		const uint32_t from = nupa_load_relaxed(&fabric->slots[slot].host);

		if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE || from >= n)
			continue;
		for (uint32_t to = 0; to < n; to++)
			if (concerns(fabric, port, from, to) &&
			    !nupa_fabric_flow(fabric, slot, to, &flow))
				add_flow(fabric, port, from, to, &flow, sum);
	}
	add_groups(fabric, port, sum);
}
