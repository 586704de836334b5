/* SPDX-License-Identifier: BSD-3-Clause
 * The subnet management interface: directed routes (IBTA 14.2.2), and what a LID reaches. */
#include "mad/mad.h"

#include <errno.h>

/* One link of a path: from a node by its port, to the node and port at the other end. */
static int step(const struct nupa_fabric *fabric, struct nupa_node *at, uint8_t out, uint8_t *in)
{
	const int port = nupa_node_port(fabric, *at, out);

	if (port < 0 || !nupa_node_linked(fabric, (uint32_t)port))
		return -ENETUNREACH;
	*in = nupa_node_port_number(fabric, fabric->ports[port].peer);
	*at = nupa_node_of_port(fabric, fabric->ports[port].peer);
	return 0;
}

int nupa_smi_forward(const struct nupa_fabric *fabric, struct nupa_node from, uint8_t *smp,
		     struct nupa_node *at, uint8_t *in_port)
{
	const uint8_t hops = smp[NUPA_MAD_AT_HOP_COUNT];

	*at = from;
	*in_port = from.is_switch ? 0 : 1;
	if (hops > NUPA_MAD_HOPS_MAX || smp[NUPA_MAD_AT_HOP_POINTER])
		return -ENETUNREACH;
	for (uint32_t hop = 1; hop <= hops; hop++) {
		/* A channel adapter forwards nothing. */
		if ((hop > 1 && !at->is_switch) ||
		    step(fabric, at, smp[NUPA_MAD_AT_INITIAL_PATH + hop], in_port))
			return -ENETUNREACH;
		smp[NUPA_MAD_AT_RETURN_PATH + hop] = *in_port;
	}
	smp[NUPA_MAD_AT_HOP_POINTER] = (uint8_t)(hops + 1);
	return 0;
}

int nupa_smi_return(const struct nupa_fabric *fabric, struct nupa_node from, const uint8_t *smp,
		    struct nupa_node *at)
{
	const uint8_t hops = smp[NUPA_MAD_AT_HOP_COUNT];
	uint8_t in_port;

	*at = from;
	if (hops > NUPA_MAD_HOPS_MAX)
		return -ENETUNREACH;
	for (uint32_t hop = hops; hop; hop--)
		if ((hop < hops && !at->is_switch) ||
		    step(fabric, at, smp[NUPA_MAD_AT_RETURN_PATH + hop], &in_port))
			return -ENETUNREACH;
	return 0;
}

static bool route_is_up(const struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	const struct nupa_route *route = &fabric->routes[from * fabric->geometry.n_hosts + to];

	for (uint32_t hop = 0; hop < route->hops; hop++)
		if (!nupa_node_linked(fabric, route->port[hop]))
			return false;
	return true;
}

/* Switches have no routes of their own: any path of links that are up leads to them. */
static bool spreads_to(const struct nupa_fabric *fabric, uint32_t host, uint32_t switch_)
{
	bool reached[NUPA_PORTS_MAX] = { false }; /* by switch */
	const uint32_t own = fabric->hosts[host].port, n = fabric->geometry.n_ports;
	const struct nupa_port *first = &fabric->ports[fabric->ports[own].peer];
	bool more = true;

	if (!nupa_node_linked(fabric, own) || !first->is_switch || first->node >= NUPA_PORTS_MAX ||
	    switch_ >= NUPA_PORTS_MAX)
		return false;
	reached[first->node] = true;
	while (more && !reached[switch_]) {
		more = false;
		for (uint32_t i = 0; i < n; i++) {
			const struct nupa_port *port = &fabric->ports[i];
			const struct nupa_port *peer = &fabric->ports[port->peer];

			if (port->is_switch && peer->is_switch && port->node < NUPA_PORTS_MAX &&
			    peer->node < NUPA_PORTS_MAX && reached[port->node] &&
			    !reached[peer->node] && nupa_node_linked(fabric, i))
				more = reached[peer->node] = true;
		}
	}
	return reached[switch_];
}

bool nupa_smi_reaches(const struct nupa_fabric *fabric, uint32_t host, struct nupa_node node)
{
	return node.is_switch ? spreads_to(fabric, host, node.index)
			      : route_is_up(fabric, host, node.index);
}
