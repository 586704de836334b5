// SPDX-License-Identifier: BSD-3-Clause
/* The automatic fabric: two hosts on a switch of two ports, as nupa.topology.topology.star(2) and
 * nupa/core/segment.py make it.  A test compares the two files. */
#include "launcher/launcher.h"

#include <stdio.h>

#define HOSTS 2u
#define SPEED_MTPS 32000u /* Gen5 */
#define WIDTH_LANES 4u

static void fill_host(struct nupa_host *host, uint32_t index)
{
	const uint8_t number = (uint8_t)(index + 1);
	/* Locally administered (IEEE 802, 8.4), the IPv4 address in its last bytes. */
	const uint8_t mac[] = { 2, 0, 10, 0, 0, number };

	*host = (struct nupa_host){ .port = index,
				    .link_layer = NUPA_LINK_ETHERNET,
				    .ipv4 = 10u << 24 | number };
	snprintf(host->name, sizeof(host->name), "host%u", index);
	__builtin_memcpy(host->mac, mac, sizeof(mac));
}

/* Ports 0 and 1 are the hosts', 2 and 3 those of the switch. */
static void fill_port(struct nupa_port *port, uint32_t index)
{
	const bool is_switch = index >= HOSTS;

	*port = (struct nupa_port){ .peer = (index + HOSTS) % (2 * HOSTS),
				    .is_switch = is_switch,
				    .node = is_switch ? 0 : index,
				    .number = is_switch ? index - HOSTS + 1 : 1,
				    .width_lanes = WIDTH_LANES,
				    .speed_mtps = SPEED_MTPS,
				    .state = NUPA_PORT_ACTIVE };
	if (is_switch)
		snprintf(port->name, sizeof(port->name), "switch0/%u", port->number);
	else
		snprintf(port->name, sizeof(port->name), "host%u/1", index);
}

struct nupa_fabric *nupa_pair_create(const char *path, const char *name)
{
	const struct nupa_config config = { .flags = NUPA_SEGMENT_AUTO };
	const struct nupa_route routes[HOSTS * HOSTS] = {
		[1] = { .hops = 4, .port = { 0, 2, 3, 1 } },
		[2] = { .hops = 4, .port = { 1, 3, 2, 0 } },
	};
	struct nupa_host hosts[HOSTS];
	struct nupa_port ports[2 * HOSTS];
	struct nupa_fabric *fabric;
	char why[512];

	for (uint32_t i = 0; i < HOSTS; i++)
		fill_host(&hosts[i], i);
	for (uint32_t i = 0; i < 2 * HOSTS; i++)
		fill_port(&ports[i], i);
	return nupa_fabric_create(path, name, &config, hosts, HOSTS, ports, 2 * HOSTS, routes,
				  &fabric, why, sizeof(why))
		   ? NULL
		   : fabric;
}
