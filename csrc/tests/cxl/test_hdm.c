/* SPDX-License-Identifier: BSD-3-Clause
 * The table of csrc/cxl/hdm.h beside a slow model: trees that are walked by division and by single
 * bits, as the specification's text does. */
#include "cxl/hdm.h"
#include "tests/support/runner.h"

#include <string.h>

#define MAX_NODES 4096u
#define MAX_HOPS 4096u
#define N_DEVICES 300u
#define N_PORTS 50u
#define STEP (UINT64_C(256) << 20)
#define N_TABLES 400
#define N_ADDRESSES 400

struct builder {
	struct nupa_cxl_range ranges[8];
	struct nupa_cxl_node nodes[MAX_NODES];
	uint16_t hops[MAX_HOPS];
	uint32_t n_ranges, n_nodes, n_hops;
	uint64_t seed;
};

static uint64_t below(struct builder *b, uint64_t limit)
{
	return test_random(&b->seed) % limit;
}

static struct nupa_cxl_table table_of(const struct builder *b)
{
	return (struct nupa_cxl_table){
		.ranges = b->ranges,
		.nodes = b->nodes,
		.hops = b->hops,
		.n_ranges = b->n_ranges,
		.n_nodes = b->n_nodes,
		.n_hops = b->n_hops,
	};
}

static void device_make(struct builder *b, struct nupa_cxl_node *node)
{
	node->kind = NUPA_CXL_DEVICE;
	node->hpa_base = below(b, 16) * STEP;
	node->dpa_base = below(b, 16) * STEP;
	node->device = (uint16_t)below(b, N_DEVICES);
	node->next = b->n_hops;
	node->n_hops = (uint8_t)below(b, 4);
	for (uint32_t i = 0; i < node->n_hops; i++)
		b->hops[b->n_hops++] = (uint16_t)below(b, N_PORTS);
}

/* Node *at* and all below it, at most *depth* steps. */
static void node_make(struct builder *b, uint32_t at, int depth)
{
	struct nupa_cxl_node *node = &b->nodes[at];
	uint32_t ways;

	memset(node, 0, sizeof(*node));
	if (!below(b, 12))
		return;
	node->shift = (uint8_t)(8 + below(b, 7));
	node->thirds = (uint8_t)below(b, 2);
	node->bits = (uint8_t)below(b, node->thirds ? 3 : 5);
	ways = (node->thirds ? 3u : 1u) << node->bits;
	if (!depth || !below(b, 3)) {
		device_make(b, node);
		return;
	}
	node->kind = NUPA_CXL_STEP;
	node->n_maps = below(b, 2) ? node->bits : 0;
	for (uint32_t i = 0; i < node->n_maps; i++)
		node->xor_maps[i] = test_random(&b->seed);
	node->next = b->n_nodes;
	b->n_nodes += ways;
	CHECK(b->n_nodes <= MAX_NODES);
	for (uint32_t i = 0; i < ways; i++)
		node_make(b, node->next + i, depth - 1);
}

static void build(struct builder *b)
{
	uint64_t first = below(b, 4) * STEP;

	b->n_ranges = (uint32_t)below(b, 8);
	b->n_nodes = b->n_ranges;
	b->n_hops = 0;
	for (uint32_t i = 0; i < b->n_ranges; i++) {
		uint64_t size = (1 + below(b, 4)) * STEP;

		b->ranges[i] = (struct nupa_cxl_range){ first, first + size - 1, i, 0 };
		first += size + below(b, 2) * STEP;
		node_make(b, i, 2);
	}
}

/* --- the slow model ---------------------------------------------------------------- */

static uint64_t slow_target(const struct nupa_cxl_node *node, uint64_t hpa)
{
	uint64_t powers = UINT64_C(1) << node->bits, block = hpa / (UINT64_C(1) << node->shift);
	uint64_t target = 0;

	if (!node->n_maps)
		return block % (node->thirds ? 3 * powers : powers);
	for (uint32_t i = 0; i < node->n_maps; i++) {
		int odd = 0;

		for (int bit = 0; bit < 64; bit++)
			if ((hpa & node->xor_maps[i]) >> bit & 1)
				odd = !odd;
		target += (uint64_t)odd << i;
	}
	return node->thirds ? target + powers * (block / powers % 3) : target;
}

static bool slow_find(const struct builder *b, uint64_t hpa, struct nupa_cxl_place *place)
{
	const struct nupa_cxl_node *node = NULL;
	uint64_t granularity, ways, offset;

	for (uint32_t i = 0; i < b->n_ranges; i++)
		if (hpa >= b->ranges[i].first && hpa <= b->ranges[i].last)
			node = &b->nodes[b->ranges[i].node];
	while (node && node->kind == NUPA_CXL_STEP)
		node = &b->nodes[node->next + slow_target(node, hpa)];
	if (!node || node->kind != NUPA_CXL_DEVICE)
		return false;
	granularity = UINT64_C(1) << node->shift;
	ways = (node->thirds ? UINT64_C(3) : UINT64_C(1)) << node->bits;
	offset = hpa - node->hpa_base;
	place->dpa =
	    node->dpa_base + offset / (granularity * ways) * granularity + offset % granularity;
	place->device = node->device;
	place->hops = &b->hops[node->next];
	place->n_hops = node->n_hops;
	return true;
}

static void compare(const struct builder *b, uint64_t hpa)
{
	struct nupa_cxl_table table = table_of(b);
	struct nupa_cxl_place fast = { 0 }, slow = { 0 };

	CHECK_EQ(nupa_cxl_table_find(&table, hpa, &fast), slow_find(b, hpa, &slow));
	CHECK_EQ(fast.dpa, slow.dpa);
	CHECK_EQ(fast.device, slow.device);
	CHECK_EQ(fast.n_hops, slow.n_hops);
	CHECK(fast.hops == slow.hops);
}

static struct builder builder;

TEST(random_tables_decode_as_the_slow_model)
{
	struct builder *b = &builder;

	b->seed = test_seed();
	for (int n = 0; n < N_TABLES; n++) {
		struct nupa_cxl_table table;

		build(b);
		table = table_of(b);
		CHECK(nupa_cxl_table_check(&table, N_DEVICES, N_PORTS));
		for (int i = 0; i < N_ADDRESSES; i++)
			compare(b, below(b, 40 * STEP));
		for (uint32_t i = 0; i < b->n_ranges; i++)
			for (uint64_t near = 0; near < 3; near++) {
				compare(b, b->ranges[i].first - 1 + near);
				compare(b, b->ranges[i].last - 1 + near);
			}
		compare(b, 0);
		compare(b, UINT64_MAX);
	}
}

TEST(a_range_may_end_with_the_last_address)
{
	struct nupa_cxl_range range = { UINT64_MAX - 4095, UINT64_MAX, 0, 0 };
	struct nupa_cxl_node node = { .kind = NUPA_CXL_DEVICE,
				      .shift = 8,
				      .hpa_base = UINT64_MAX - 4095 };
	struct nupa_cxl_table table = {
		.ranges = &range, .nodes = &node, .n_ranges = 1, .n_nodes = 1
	};
	struct nupa_cxl_place place = { 0 };

	CHECK(nupa_cxl_table_check(&table, 1, 0));
	CHECK(nupa_cxl_table_find(&table, UINT64_MAX, &place));
	CHECK_EQ(place.dpa, 4095);
	CHECK(!nupa_cxl_table_find(&table, UINT64_MAX - 4096, &place));
}

/* Tables that the check must refuse: each is one change of a valid table. */
TEST(invalid_tables_are_refused)
{
	static const uint16_t hops[2] = { 0, 1 };
	const struct nupa_cxl_range good_ranges[2] = { { 0, 63, 0, 0 }, { 64, 127, 1, 0 } };
	const struct nupa_cxl_node good_nodes[4] = {
		{ .kind = NUPA_CXL_STEP, .shift = 8, .bits = 1, .next = 2 },
		{ .kind = NUPA_CXL_NOTHING },
		{ .kind = NUPA_CXL_DEVICE, .shift = 8, .next = 0, .n_hops = 2 },
		{ .kind = NUPA_CXL_DEVICE, .shift = 14, .next = 2, .n_hops = 0, .device = 1 },
	};

	for (int i = 0; i <= 16; i++) {
		struct nupa_cxl_range ranges[2];
		struct nupa_cxl_node nodes[4];
		struct nupa_cxl_table table = { ranges, nodes, hops, 2, 4, 2 };

		memcpy(ranges, good_ranges, sizeof(ranges));
		memcpy(nodes, good_nodes, sizeof(nodes));
		switch (i) {
		case 1:
			ranges[0].last = 64;
			break;
		case 2:
			ranges[1].first = 128;
			break;
		case 3:
			ranges[1].node = 4;
			break;
		case 4:
			nodes[0].next = 0;
			break;
		case 5:
			nodes[0].next = 3;
			break;
		case 6:
			nodes[0].next = UINT32_MAX;
			break;
		case 7:
			nodes[0].shift = 7;
			break;
		case 8:
			nodes[0].shift = 15;
			break;
		case 9:
			nodes[2].bits = 5;
			break;
		case 10:
			nodes[2].thirds = 2;
			break;
		case 11:
			nodes[0].n_maps = 2;
			break;
		case 12:
			nodes[2].device = 2;
			break;
		case 13:
			nodes[2].n_hops = 3;
			break;
		case 14:
			nodes[3].next = 3;
			break;
		case 15:
			nodes[3].kind = 3;
			break;
		case 16:
			nodes[3].dpa_base = 32;
			break;
		default:
			break;
		}
		CHECK_EQ(nupa_cxl_table_check(&table, 2, 2), i == 0);
		CHECK(!nupa_cxl_table_check(&table, 2, 1));
	}
}
