/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of rates: see rated.h. */
#include "tests/rate/rated.h"

#include "base/atomics.h"

void rate_set(struct nupa_fabric *fabric, uint32_t scope, uint32_t host, uint32_t pkey,
	      uint64_t bytes_per_s)
{
	char why[256] = "";

	if (nupa_rate_set(fabric, scope, scope == NUPA_RATE_TENANT ? RATED_TENANT : 0, host, pkey,
			  bytes_per_s, why, sizeof(why)))
		fprintf(stderr, "%s\n", why);
	CHECK_EQ(why[0], 0);
}

struct nupa_rate_info rate_get(struct nupa_fabric *fabric)
{
	struct nupa_rate_info info[4] = { 0 };

	CHECK(nupa_rate_list(fabric, info, 4) >= 1);
	return info[0];
}

struct nupa_fabric *rated_fabric(void)
{
	const struct nupa_config config = { .slots = 8, .qp_entries = 64, .mr_entries = 64 };
	struct nupa_fabric *fabric = test_fabric_of(&config);

	for (uint32_t host = 0; host < 2; host++)
		nupa_store_relaxed(&fabric->controls[host].tenant, RATED_TENANT);
	return fabric;
}

struct end_options rated_options(enum ibv_qp_type type)
{
	struct end_options options = end_defaults;

	options.type = type;
	options.memory_bytes = RATED_MEMORY_BYTES;
	return options;
}
