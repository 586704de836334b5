/* SPDX-License-Identifier: BSD-3-Clause
 * Rows given out and taken back.  A resource without a row works as any other: it is counted and
 * not listed. */
#include "segment/resource/table.h"

#include "base/atomics.h"
#include "segment/coherence.h"
#include "segment/layout/geometry.h"
#include "segment/segment_internal.h"

#include <errno.h>
#include <string.h>

#define FIRST_BYTES NUPA_PAGE_BYTES
#define LOOKS_MAX 4096u

static void flush(const struct nupa_resource_table *table, const void *at, size_t bytes)
{
	nupa_flush(nupa_fabric_incoherent(table->fabric), NUPA_POINT_COUNTERS, at, bytes);
}

static int back(const struct nupa_resource_table *table, uint64_t from, uint64_t bytes)
{
	const struct nupa_arena_map map = nupa_arena_map(&table->fabric->geometry);

	return nupa_fabric_back(
	    table->fabric, nupa_arena_offset(table->fabric, table->slot) + map.resources_off + from,
	    bytes);
}

int nupa_resource_begin(struct nupa_resource_table *table, struct nupa_fabric *fabric,
			uint32_t slot, uint8_t *arena)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	const uint32_t first = (FIRST_BYTES - sizeof(*table->header)) / sizeof(*table->rows);
	const uint32_t max = nupa_resource_rows(&fabric->geometry);
	int error;

	*table = (struct nupa_resource_table){
		.fabric = fabric,
		.slot = slot,
		.header = (struct nupa_resource_header *)(void *)(arena + map.resources_off),
		.limit = first < max ? first : max,
	};
	table->rows = (struct nupa_resource_row *)(void *)(table->header + 1);
	error = back(table, 0, FIRST_BYTES);
	if (error)
		return error;
	nupa_store_release(&table->header->limit, table->limit);
	flush(table, table->header, sizeof(*table->header));
	return 0;
}

/* Doubled once half of them are used, so a free one is soon found.  A full file system: the rows
 * there are have to do. */
static void grow(struct nupa_resource_table *table)
{
	const uint32_t max = nupa_resource_rows(&table->fabric->geometry);
	const uint32_t more = table->limit * 2 < max ? table->limit * 2 : max;
	const uint64_t row_bytes = sizeof(struct nupa_resource_row);

	if (table->used * 2 < table->limit || more == table->limit ||
	    back(table, sizeof(*table->header) + table->limit * row_bytes,
		 (more - table->limit) * row_bytes))
		return;
	table->limit = more;
	nupa_store_release(&table->header->limit, more);
}

static void count(struct nupa_resource_table *table, uint32_t kind, uint32_t delta)
{
	uint32_t *word = &table->header->counts[kind];

	nupa_store_relaxed(word, *word + delta);
	flush(table, table->header, sizeof(*table->header));
}

static void fill(struct nupa_resource_row *to, const struct nupa_resource_row *row)
{
	nupa_store_relaxed(&to->context, row->context);
	nupa_store_relaxed(&to->pd, row->pd);
	for (size_t i = 0; i < sizeof(to->words) / sizeof(to->words[0]); i++)
		nupa_store_relaxed(&to->words[i], row->words[i]);
}

uint32_t nupa_resource_number(const struct nupa_resource_table *table, uint32_t place)
{
	return place ? table->slot << NUPA_RESOURCE_ROW_BITS | place : 0;
}

uint32_t nupa_resource_add(struct nupa_resource_table *table, const struct nupa_resource_row *row)
{
	struct nupa_resource_row *to;
	uint32_t looks = 0, place;

	count(table, row->kind, 1);
	grow(table);
	while (nupa_load_relaxed(&table->rows[table->next % table->limit].kind)) {
		if (looks++ == LOOKS_MAX)
			return 0;
		table->next++;
	}
	place = table->next++ % table->limit + 1;
	to = &table->rows[place - 1];
	fill(to, row);
	nupa_store_relaxed(&to->number,
			   row->number ? row->number : nupa_resource_number(table, place));
	nupa_store_release(&to->kind, row->kind);
	flush(table, to, sizeof(*to));
	table->used++;
	return place;
}

void nupa_resource_change(struct nupa_resource_table *table, uint32_t place,
			  const struct nupa_resource_row *row)
{
	if (!place)
		return;
	fill(&table->rows[place - 1], row);
	flush(table, &table->rows[place - 1], sizeof(*row));
}

void nupa_resource_drop(struct nupa_resource_table *table, uint32_t place,
			enum nupa_resource_kind kind)
{
	count(table, kind, UINT32_MAX);
	if (!place)
		return;
	nupa_store_release(&table->rows[place - 1].kind, NUPA_RESOURCE_NONE);
	flush(table, &table->rows[place - 1], sizeof(table->rows[0]));
	table->used--;
}
