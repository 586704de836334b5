/* SPDX-License-Identifier: BSD-3-Clause
 * The hosts of coherent.h. */
#include "tests/cxl/coherent.h"

#include "tests/check.h"

#include <string.h>

static const uint16_t hops[] = { 0 };
static const struct nupa_cxl_node nodes[] = {
	{ .kind = NUPA_CXL_DEVICE, .shift = 8, .hpa_base = COHERENT_BASE, .n_hops = 1 },
};
static const struct nupa_cxl_range ranges[] = {
	{ COHERENT_BASE, COHERENT_BASE + COHERENT_BYTES - 1, 0, 0 },
};
static const struct nupa_cxl_table table = { ranges, nodes, hops, 1, 1, 1 };

void coherent_make(struct coherent *world, uint32_t n, const uint32_t *ways, uint32_t filter_ways,
		   uint32_t tells)
{
	memset(world, 0, sizeof(*world));
	world->n = n;
	CHECK((world->memory = nupa_cxl_memory_new(world->bytes, COHERENT_BYTES)));
	CHECK_EQ(nupa_cxl_memory_set_snoop(world->memory, 8, filter_ways), 0);
	for (uint32_t i = 0; i < n; i++) {
		struct nupa_cxl_part part = { 0, COHERENT_BYTES, 0, world->memory };
		struct nupa_cxl_cache_shape shape = {
			.host = i, .sets = 4, .ways = ways[i], .tells = tells
		};

		CHECK((world->buses[i] = nupa_cxl_bus_new(1, 1)));
		CHECK_EQ(nupa_cxl_bus_set_table(world->buses[i], &table), 0);
		CHECK_EQ(nupa_cxl_bus_set_parts(world->buses[i], 0, &part, 1), 0);
		if (ways[i])
			CHECK_EQ(nupa_cxl_bus_set_cache(world->buses[i], &shape), 0);
	}
}

void coherent_free(struct coherent *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		nupa_cxl_bus_free(world->buses[i]);
	nupa_cxl_memory_free(world->memory);
}

void coherent_check(struct coherent *world)
{
	for (uint32_t line = 0; line < COHERENT_LINES; line++) {
		uint32_t owners = 0, sharers = 0, known_owners = 0, known_sharers = 0;

		for (uint32_t i = 0; i < world->n; i++) {
			int state =
			    nupa_cxl_cache_state(world->buses[i], COHERENT_BASE + line * 64);
			int known = nupa_cxl_snoop_state(world->memory, i, line * 64);

			owners += state == NUPA_CXL_E || state == NUPA_CXL_M;
			sharers += state == NUPA_CXL_S;
			known_owners += known == NUPA_CXL_META_A;
			known_sharers += known == NUPA_CXL_META_S;
			if (state == NUPA_CXL_E || state == NUPA_CXL_M)
				CHECK_EQ(known, NUPA_CXL_META_A);
			if (state == NUPA_CXL_S)
				CHECK_EQ(known, NUPA_CXL_META_S);
		}
		CHECK(owners <= 1 && !(owners && sharers));
		CHECK(known_owners <= 1 && !(known_owners && known_sharers));
	}
}
