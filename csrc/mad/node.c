/* SPDX-License-Identifier: BSD-3-Clause
 * Hosts and switches as InfiniBand sees them: nodes with LIDs, GUIDs and numbered ports. */
#include "mad/mad.h"

#include "base/atomics.h"
#include "segment/gid.h"

#include <errno.h>
#include <stdio.h>

/* Of switches: locally administered (EUI-64), "NUPA" and the number. */
#define SWITCH_GUID UINT64_C(0x024e555041000000)

uint32_t nupa_node_switches(const struct nupa_fabric *fabric)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fabric->geometry.n_ports; i++)
		if (fabric->ports[i].is_switch && fabric->ports[i].node >= n)
			n = fabric->ports[i].node + 1;
	return n;
}

uint8_t nupa_node_port_number(const struct nupa_fabric *fabric, uint32_t port)
{
	/* A host has one port; ports of switches are 1 to 254 (IBTA 14.2.5.3). */
	return (uint8_t)(fabric->ports[port].is_switch ? fabric->ports[port].number : 1);
}

uint32_t nupa_node_n_ports(const struct nupa_fabric *fabric, struct nupa_node node)
{
	uint32_t n = 0;

	if (!node.is_switch)
		return 1;
	for (uint32_t i = 0; i < fabric->geometry.n_ports; i++)
		if (fabric->ports[i].is_switch && fabric->ports[i].node == node.index &&
		    fabric->ports[i].number > n && fabric->ports[i].number < 255)
			n = fabric->ports[i].number;
	return n;
}

int nupa_node_port(const struct nupa_fabric *fabric, struct nupa_node node, uint32_t number)
{
	if (!node.is_switch)
		return number == 1 ? (int)fabric->hosts[node.index].port : -ENOENT;
	for (uint32_t i = 0; i < fabric->geometry.n_ports; i++)
		if (number && fabric->ports[i].is_switch && fabric->ports[i].node == node.index &&
		    fabric->ports[i].number == number)
			return (int)i;
	return -ENOENT;
}

struct nupa_node nupa_node_of_port(const struct nupa_fabric *fabric, uint32_t port)
{
	return (struct nupa_node){ .is_switch = fabric->ports[port].is_switch,
				   .index = fabric->ports[port].node };
}

uint16_t nupa_node_lid(const struct nupa_fabric *fabric, struct nupa_node node)
{
	if (!node.is_switch)
		return fabric->hosts[node.index].lid;
	return (uint16_t)(fabric->geometry.n_hosts + 1 + node.index);
}

int nupa_node_of_lid(const struct nupa_fabric *fabric, uint16_t lid, struct nupa_node *node)
{
	const uint32_t first = fabric->geometry.n_hosts + 1;

	for (uint32_t i = 0; lid && i < fabric->geometry.n_hosts; i++)
		if (fabric->hosts[i].lid == lid) {
			*node = (struct nupa_node){ .index = i };
			return 0;
		}
	if (lid < first || lid - first >= nupa_node_switches(fabric))
		return -ENOENT;
	*node = (struct nupa_node){ .is_switch = true, .index = lid - first };
	return 0;
}

uint64_t nupa_node_guid(const struct nupa_fabric *fabric, struct nupa_node node)
{
	const uint64_t guid_be = node.is_switch ? 0 : nupa_host_guid_be(fabric, node.index);

	return node.is_switch ? SWITCH_GUID + node.index : nupa_be64_get((const uint8_t *)&guid_be);
}

void nupa_node_name(const struct nupa_fabric *fabric, struct nupa_node node, char *text,
		    size_t bytes)
{
	if (!node.is_switch) {
		snprintf(text, bytes, "%.*s nupa_rdma0", (int)NUPA_NAME_BYTES,
			 fabric->hosts[node.index].name);
		return;
	}
	snprintf(text, bytes, "switch %u", node.index);
	for (uint32_t i = 0; i < fabric->geometry.n_ports; i++) {
		const struct nupa_port *port = &fabric->ports[i];
		const char *slash = memchr(port->name, '/', sizeof(port->name));

		if (port->is_switch && port->node == node.index && slash) {
			snprintf(text, bytes, "%.*s", (int)(slash - port->name), port->name);
			return;
		}
	}
}

bool nupa_node_linked(const struct nupa_fabric *fabric, uint32_t port)
{
	return nupa_load_relaxed(&fabric->ports[port].state) == NUPA_PORT_ACTIVE &&
	       nupa_load_relaxed(&fabric->ports[fabric->ports[port].peer].state) ==
		   NUPA_PORT_ACTIVE;
}
