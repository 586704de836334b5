/* SPDX-License-Identifier: BSD-3-Clause
 * SwitchInfo and the forwarding tables (IBTA 14.2.5.4, .10, .12).  Tables are kept as they were
 * set. Messages follow the fabric's routes, which are also the linear table until one is set. */
#include "mad/mad.h"

#include "base/atomics.h"

#define SWITCH_INFO 0x12
#define LINEAR_TABLE 0x19
#define MULTICAST_TABLE 0x1b
#define LINKS 0x3f12 /* our own: the links as they were when PortStateChange was cleared */

#define LINEAR_LIDS 0xc000u    /* unicast LIDs end at 0xbfff */
#define MULTICAST_LIDS 0x0400u /* from 0xc000 on */
#define LIDS_A_BLOCK 64u
#define NO_PORT 0xffu

#define PORT_STATE_CHANGE 0x04u /* of byte 11 */
#define LIFE_TIME 0xf8u

/* Another number whenever the state of a link of the switch has changed. */
static uint64_t links_of(const struct nupa_fabric *fabric, uint32_t node)
{
	uint64_t hash = 1;

	for (uint32_t i = 0; i < fabric->geometry.n_ports; i++) {
		const struct nupa_port *port = &fabric->ports[i];

		if (port->is_switch && port->node == node) {
			const uint64_t downs =
			    nupa_load_relaxed(&port->link_downed) +
			    ((uint64_t)nupa_load_relaxed(&fabric->ports[port->peer].link_downed)
			     << 32);

			hash = (hash ^ (downs << 1 | nupa_node_linked(fabric, i))) *
			       UINT64_C(0x9e3779b97f4a7c15);
		}
	}
	return hash;
}

static uint64_t key_of(const struct nupa_mad_request *request, uint16_t attribute)
{
	return nupa_subnet_key(attribute, true, request->node.index, request->modifier);
}

static uint16_t set_switch_info(const struct nupa_mad_request *request)
{
	uint8_t links[NUPA_SUBNET_VALUE_BYTES] = { 0 };

	if (request->data[11] & PORT_STATE_CHANGE) {
		nupa_be64_put(links, links_of(request->subnet->fabric, request->node.index));
		if (nupa_subnet_set(request->subnet, key_of(request, LINKS), links))
			return NUPA_MAD_INVALID;
	}
	return nupa_subnet_set(request->subnet, key_of(request, SWITCH_INFO), request->data)
		   ? NUPA_MAD_INVALID
		   : NUPA_MAD_OK;
}

uint16_t nupa_sma_switch_info(const struct nupa_mad_request *request)
{
	struct nupa_fabric *fabric = request->subnet->fabric;
	uint8_t links[NUPA_SUBNET_VALUE_BYTES], *data = request->data;

	if (request->modifier)
		return NUPA_MAD_INVALID;
	if (request->set && set_switch_info(request))
		return NUPA_MAD_INVALID;
	memset(data, 0, NUPA_SUBNET_VALUE_BYTES);
	if (!nupa_subnet_get(request->subnet, key_of(request, SWITCH_INFO), data))
		nupa_be16_put(data + 6, fabric->geometry.n_hosts + nupa_node_switches(fabric));
	nupa_be16_put(data, LINEAR_LIDS);
	nupa_be16_put(data + 2, 0);
	nupa_be16_put(data + 4, MULTICAST_LIDS);
	data[11] &= LIFE_TIME;
	if (!nupa_subnet_get(request->subnet, key_of(request, LINKS), links) ||
	    nupa_be64_get(links) != links_of(fabric, request->node.index))
		data[11] |= PORT_STATE_CHANGE;
	memset(data + 12, 0, 6); /* LIDs of ports, partitions enforced, an enhanced port 0: none */
	return NUPA_MAD_OK;
}

/* The port by which a route of the fabric leaves a switch. */
static uint8_t leaves_by(const struct nupa_fabric *fabric, uint32_t node, uint32_t host)
{
	const uint32_t n = fabric->geometry.n_hosts;

	for (uint32_t from = 0; from < n; from++) {
		const struct nupa_route *route = &fabric->routes[from * n + host];

		for (uint32_t hop = 2; hop < route->hops; hop += 2) {
			const struct nupa_port *port = &fabric->ports[route->port[hop]];

			if (port->is_switch && port->node == node)
				return (uint8_t)port->number;
		}
	}
	/* A fabric of one host has no routes. */
	if (nupa_node_of_port(fabric, fabric->ports[fabric->hosts[host].port].peer).index == node)
		return nupa_node_port_number(fabric, fabric->ports[fabric->hosts[host].port].peer);
	return NO_PORT;
}

uint16_t nupa_sma_linear_table(const struct nupa_mad_request *request)
{
	const struct nupa_fabric *fabric = request->subnet->fabric;
	const uint32_t first = request->modifier * LIDS_A_BLOCK;

	if (request->modifier >= LINEAR_LIDS / LIDS_A_BLOCK)
		return NUPA_MAD_INVALID;
	if (request->set)
		return nupa_subnet_set(request->subnet, key_of(request, LINEAR_TABLE),
				       request->data)
			   ? NUPA_MAD_INVALID
			   : NUPA_MAD_OK;
	memset(request->data, NO_PORT, LIDS_A_BLOCK);
	if (nupa_subnet_get(request->subnet, key_of(request, LINEAR_TABLE), request->data))
		return NUPA_MAD_OK;
	for (uint32_t i = 0; i < LIDS_A_BLOCK; i++) {
		struct nupa_node node;

		if (nupa_node_of_lid(fabric, (uint16_t)(first + i), &node))
			continue;
		if (!node.is_switch)
			request->data[i] = leaves_by(fabric, request->node.index, node.index);
		else if (node.index == request->node.index)
			request->data[i] = 0;
	}
	return NUPA_MAD_OK;
}

uint16_t nupa_sma_multicast_table(const struct nupa_mad_request *request)
{
	const uint32_t block = request->modifier & 0x1ff;

	if (request->modifier & 0x0ffffe00 || block >= MULTICAST_LIDS / 32)
		return NUPA_MAD_INVALID;
	if (!request->set)
		return (void)nupa_subnet_get(request->subnet, key_of(request, MULTICAST_TABLE),
					     request->data),
		       NUPA_MAD_OK;
	return nupa_subnet_set(request->subnet, key_of(request, MULTICAST_TABLE), request->data)
		   ? NUPA_MAD_INVALID
		   : NUPA_MAD_OK;
}
