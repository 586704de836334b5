/* SPDX-License-Identifier: BSD-3-Clause
 * The owner's side of the table of resources.  Its lock is the engine's. */
#ifndef NUPA_RESOURCE_TABLE_H
#define NUPA_RESOURCE_TABLE_H

#include "segment/layout/resource_layout.h"
#include "segment/segment.h"

struct nupa_resource_table {
	struct nupa_fabric *fabric;
	struct nupa_resource_header *header;
	struct nupa_resource_row *rows;
	uint32_t slot;
	uint32_t limit, used;
	uint32_t next; /* rows go round, so a number does not come again at once */
};

/* Backs the first rows of the slot's arena, mapped at *arena*: 0 or a negative errno. */
int nupa_resource_begin(struct nupa_resource_table *table, struct nupa_fabric *fabric,
			uint32_t slot, uint8_t *arena);
/* Counts a resource and gives it a row.  A *row.number* of 0 becomes one of the row's own.  The
 * place of the row, for the calls below; 0: there was no room, and it is only counted. */
uint32_t nupa_resource_add(struct nupa_resource_table *table, const struct nupa_resource_row *row);
/* The row as it is now; kind and number stay. */
void nupa_resource_change(struct nupa_resource_table *table, uint32_t place,
			  const struct nupa_resource_row *row);
void nupa_resource_drop(struct nupa_resource_table *table, uint32_t place,
			enum nupa_resource_kind kind);
/* The number of a row whose own it is; 0 for place 0. */
uint32_t nupa_resource_number(const struct nupa_resource_table *table, uint32_t place);

#endif
