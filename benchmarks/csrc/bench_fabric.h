/* SPDX-License-Identifier: BSD-3-Clause
 * The fabric of benchmarks that call the engine's own verbs. */
#ifndef NUPA_BENCH_FABRIC_H
#define NUPA_BENCH_FABRIC_H

#include "bench.h"

#include "engine/core/nupa.h"

/* An anonymous fabric of two hosts and one switch; exits where there cannot be one. */
static inline struct nupa_fabric *bench_fabric(const char *program,
					       const struct nupa_config *config)
{
	static const struct nupa_host hosts[2] = {
		{ .name = "host0",
		  .port = 0,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000001 },
		{ .name = "host1",
		  .port = 1,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000002 },
	};
	static const struct nupa_port ports[2] = {
		{ "host0/1", 1, 0, 0, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
		{ "host1/1", 0, 0, 1, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
	};
	static const struct nupa_route routes[4] = {
		{ .hops = 0 },
		{ .hops = 2, .port = { 0, 1 } },
		{ .hops = 2, .port = { 1, 0 } },
		{ .hops = 0 },
	};
	struct nupa_fabric *fabric = NULL;
	char why[512] = "";

	if (nupa_fabric_create(NULL, "bench", config, hosts, 2, ports, 2, routes, &fabric, why,
			       sizeof(why))) {
		fprintf(stderr, "%s: %s\n", program, why);
		exit(1);
	}
	return fabric;
}

#endif
