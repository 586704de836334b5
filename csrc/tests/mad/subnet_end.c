/* SPDX-License-Identifier: BSD-3-Clause
 * A subnet in memory for tests: see subnet_end.h. */
#include "tests/mad/subnet_end.h"

#include <string.h>

#define LINK .width_lanes = 4, .speed_mtps = 32000, .state = NUPA_PORT_ACTIVE
#define HOST(n)                                                                                    \
	{                                                                                          \
		.name = "host" #n, .port = (n), .link_layer = NUPA_LINK_INFINIBAND,                \
		.ipv4 = 0x0a000001 + (n), .lid = 1 + (n),                                          \
		.mac = { 2,                                                                        \
			 0,                                                                        \
			 10,                                                                       \
			 0,                                                                        \
			 0,                                                                        \
			 1 + (n) }                                                                 \
	}
#define HOST_PORT(n, to)                                                                           \
	{                                                                                          \
		.name = "host" #n "/1", .peer = (to), .node = (n), .number = 1, LINK               \
	}
#define SWITCH_PORT(s, n, to)                                                                      \
	{                                                                                          \
		.name = "switch" #s "/" #n, .peer = (to), .is_switch = 1, .node = (s),             \
		.number = (n), LINK                                                                \
	}

static const struct nupa_host hosts[SUBNET_HOSTS] = { HOST(0), HOST(1), HOST(2), HOST(3) };
static const struct nupa_port ports[SUBNET_PORTS] = {
	HOST_PORT(0, 4),      HOST_PORT(1, 5),      HOST_PORT(2, 7),      HOST_PORT(3, 8),
	SWITCH_PORT(0, 1, 0), SWITCH_PORT(0, 2, 1), SWITCH_PORT(0, 3, 9), SWITCH_PORT(1, 1, 2),
	SWITCH_PORT(1, 2, 3), SWITCH_PORT(1, 3, 6),
};

static void make_routes(struct nupa_route routes[SUBNET_HOSTS * SUBNET_HOSTS])
{
	memset(routes, 0, SUBNET_HOSTS * SUBNET_HOSTS * sizeof(*routes));
	for (uint16_t from = 0; from < SUBNET_HOSTS; from++)
		for (uint16_t to = 0; to < SUBNET_HOSTS; to++) {
			struct nupa_route *route = &routes[from * SUBNET_HOSTS + to];
			const uint16_t first = (uint16_t)ports[from].peer;
			const uint16_t last = (uint16_t)ports[to].peer;
			const uint16_t trunk = from / 2 ? 9 : 6;

			if (from == to)
				continue;
			route->port[route->hops++] = from;
			route->port[route->hops++] = first;
			if (from / 2 != to / 2) {
				route->port[route->hops++] = trunk;
				route->port[route->hops++] = (uint16_t)ports[trunk].peer;
			}
			route->port[route->hops++] = last;
			route->port[route->hops++] = to;
		}
}

struct nupa_subnet subnet_create(void)
{
	static const struct nupa_config small = { .slots = 3,
						  .ring_lines = 16,
						  .dma_bytes = 4096,
						  .qp_entries = 16,
						  .mr_entries = 16,
						  .extent_bytes = 4096,
						  .pool_bytes = 4096 };
	struct nupa_route routes[SUBNET_HOSTS * SUBNET_HOSTS];
	struct nupa_subnet subnet = { 0 };
	char why[256] = "";

	make_routes(routes);
	if (nupa_fabric_create(NULL, "test", &small, hosts, SUBNET_HOSTS, ports, SUBNET_PORTS,
			       routes, &subnet.fabric, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	return subnet;
}

void subnet_destroy(struct nupa_subnet *subnet)
{
	nupa_subnet_close(subnet);
	nupa_fabric_put(subnet->fabric);
}

void subnet_ask(uint8_t mad[NUPA_MAD_BYTES], uint8_t class, uint8_t method, uint16_t attribute,
		uint32_t modifier)
{
	memset(mad, 0, NUPA_MAD_BYTES);
	mad[NUPA_MAD_AT_BASE_VERSION] = 1;
	mad[NUPA_MAD_AT_CLASS] = class;
	mad[NUPA_MAD_AT_CLASS_VERSION] = 1;
	mad[NUPA_MAD_AT_METHOD] = method;
	nupa_be16_put(mad + NUPA_MAD_AT_ATTRIBUTE, attribute);
	nupa_be32_put(mad + NUPA_MAD_AT_MODIFIER, modifier);
}

void subnet_direct(uint8_t mad[NUPA_MAD_BYTES], const char *path)
{
	const uint8_t hops = (uint8_t)strlen(path);

	mad[NUPA_MAD_AT_CLASS] = NUPA_MAD_SUBN_DIRECTED;
	mad[NUPA_MAD_AT_HOP_COUNT] = hops;
	nupa_be16_put(mad + NUPA_MAD_AT_DR_SLID, NUPA_LID_PERMISSIVE);
	nupa_be16_put(mad + NUPA_MAD_AT_DR_DLID, NUPA_LID_PERMISSIVE);
	for (uint32_t i = 0; i < hops; i++)
		mad[NUPA_MAD_AT_INITIAL_PATH + 1 + i] = (uint8_t)(path[i] - '0');
}

int subnet_send(struct nupa_subnet *subnet, uint32_t host, uint16_t lid,
		uint8_t mad[NUPA_MAD_BYTES])
{
	const struct nupa_mad_target to = { .lid = lid };
	uint32_t at = 0;

	if (nupa_mad_send(subnet, host, &to, mad, &at) != NUPA_MAD_ANSWERED)
		return -1;
	CHECK_EQ(mad[NUPA_MAD_AT_METHOD], NUPA_MAD_GET_RESPONSE);
	return nupa_be16_get(mad + NUPA_MAD_AT_STATUS) & 0x7fff;
}

uint8_t *subnet_get(struct nupa_subnet *subnet, uint16_t lid, uint16_t attribute, uint32_t modifier,
		    uint8_t mad[NUPA_MAD_BYTES])
{
	subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_GET, attribute, modifier);
	CHECK_EQ(subnet_send(subnet, 0, lid, mad), NUPA_MAD_OK);
	return mad + NUPA_MAD_AT_DATA;
}
