/* SPDX-License-Identifier: BSD-3-Clause
 * The table of hdm.h: checked once, then walked for each line. */
#include "cxl/hdm.h"

_Static_assert(sizeof(struct nupa_cxl_node) == 64, "a node is a cache line");

#define MIN_SHIFT 8u
#define MAX_SHIFT 14u
#define MAX_BITS 4u
#define LINE_BYTES 64u

static uint32_t ways_of(const struct nupa_cxl_node *node)
{
	return (node->thirds ? 3u : 1u) << node->bits;
}

static bool node_check(const struct nupa_cxl_table *table, uint32_t at, uint32_t n_devices,
		       uint32_t n_ports)
{
	const struct nupa_cxl_node *node = &table->nodes[at];

	if (node->kind == NUPA_CXL_NOTHING)
		return true;
	if (node->shift < MIN_SHIFT || node->shift > MAX_SHIFT || node->bits > MAX_BITS ||
	    node->thirds > 1 || (node->n_maps && node->n_maps != node->bits))
		return false;
	if (node->kind == NUPA_CXL_STEP)
		return node->next > at && node->next <= table->n_nodes &&
		       ways_of(node) <= table->n_nodes - node->next;
	if (node->kind != NUPA_CXL_DEVICE || node->device >= n_devices ||
	    (node->hpa_base | node->dpa_base) % LINE_BYTES || node->next > table->n_hops ||
	    node->n_hops > table->n_hops - node->next)
		return false;
	for (uint32_t i = 0; i < node->n_hops; i++)
		if (table->hops[node->next + i] >= n_ports)
			return false;
	return true;
}

bool nupa_cxl_table_check(const struct nupa_cxl_table *table, uint32_t n_devices, uint32_t n_ports)
{
	for (uint32_t i = 0; i < table->n_ranges; i++) {
		const struct nupa_cxl_range *range = &table->ranges[i];

		if (range->first > range->last || range->node >= table->n_nodes)
			return false;
		if (i && range->first <= range[-1].last)
			return false;
	}
	for (uint32_t i = 0; i < table->n_nodes; i++)
		if (!node_check(table, i, n_devices, n_ports))
			return false;
	return true;
}

static const struct nupa_cxl_range *range_find(const struct nupa_cxl_table *table, uint64_t hpa)
{
	uint32_t low = 0, high = table->n_ranges;

	while (low < high) { /* the first that does not end before hpa */
		uint32_t middle = low + (high - low) / 2;

		if (table->ranges[middle].last < hpa)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == table->n_ranges || table->ranges[low].first > hpa)
		return NULL;
	return &table->ranges[low];
}

static uint32_t choose(const struct nupa_cxl_node *node, uint64_t hpa)
{
	uint64_t turn = hpa >> node->shift;
	uint32_t target = (uint32_t)turn & ((1u << node->bits) - 1);

	if (node->n_maps) {
		target = 0;
		for (uint32_t i = 0; i < node->n_maps; i++)
			target |= (uint32_t)__builtin_parityll(hpa & node->xor_maps[i]) << i;
	}
	if (node->thirds)
		target |= (uint32_t)((turn >> node->bits) % 3) << node->bits;
	return target;
}

bool nupa_cxl_table_find(const struct nupa_cxl_table *table, uint64_t hpa,
			 struct nupa_cxl_place *place)
{
	const struct nupa_cxl_range *range = range_find(table, hpa);
	const struct nupa_cxl_node *node;
	uint64_t offset, turn;

	if (!range)
		return false;
	node = &table->nodes[range->node];
	while (node->kind == NUPA_CXL_STEP)
		node = &table->nodes[node->next + choose(node, hpa)];
	if (node->kind != NUPA_CXL_DEVICE)
		return false;
	offset = hpa - node->hpa_base;
	turn = offset >> node->shift >> node->bits;
	if (node->thirds)
		turn /= 3;
	place->dpa = node->dpa_base + (turn << node->shift | (offset & ((1u << node->shift) - 1)));
	place->device = node->device;
	place->hops = table->hops + node->next;
	place->n_hops = node->n_hops;
	return true;
}
