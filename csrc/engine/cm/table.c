/* SPDX-License-Identifier: BSD-3-Clause
 * The table of identifiers by their numbers, which messages carry. */
#include "engine/cm/internal.h"

#include <stdlib.h>

#define TABLE_FIRST 64u

struct nupa_cm *cm_of(struct nupa_engine *engine)
{
	struct nupa_cm *cm = engine->cm;

	if (cm)
		return cm;
	cm = calloc(1, sizeof(*cm));
	if (!cm)
		return NULL;
	cm->table_used = 1; /* no id has number 0 */
	nupa_list_init(&cm->ids);
	nupa_list_init(&cm->listeners);
	nupa_list_init(&cm->waiting);
	nupa_list_init(&cm->extended);
	nupa_list_init(&cm->timewait);
	nupa_list_init(&cm->left);
	for (uint32_t i = 0; i < CM_REMOTES; i++) {
		nupa_list_init(&cm->remotes[i]);
		nupa_list_init(&cm->numbers[i]);
	}
	nupa_list_init(&cm->owed);
	cm->machine = cm_machine_asked();
	engine->cm = cm;
	return cm;
}

static int table_grow(struct nupa_cm *cm)
{
	uint32_t entries = cm->table_entries ? cm->table_entries * 2 : TABLE_FIRST;
	struct nupa_cm_id **table;
	uint32_t *free_entries;

	if (entries > CM_INDEX_MASK)
		return ENOMEM;
	table = realloc(cm->table, entries * sizeof(*table));
	if (!table)
		return ENOMEM;
	cm->table = table;
	free_entries = realloc(cm->free_entries, entries * sizeof(*free_entries));
	if (!free_entries)
		return ENOMEM;
	cm->free_entries = free_entries;
	cm->table_entries = entries;
	return 0;
}

int cm_id_new(struct nupa_engine *engine, struct nupa_cm_id **out)
{
	struct nupa_cm *cm = cm_of(engine);
	struct nupa_cm_id *id;
	uint32_t index;

	if (!cm)
		return ENOMEM;
	if (!cm->n_free && cm->table_used >= cm->table_entries && table_grow(cm))
		return ENOMEM;
	id = calloc(1, sizeof(*id));
	if (!id)
		return ENOMEM;
	id->psn = engine->random() & 0xffffff;
	index = cm->n_free ? cm->free_entries[--cm->n_free] : cm->table_used++;
	cm->table[index] = id;
	id->local = ++cm->generation << CM_INDEX_BITS | index;
	id->engine = engine;
	id->param.retry_count = 7;
	id->param.rnr_retry_count = 7;
	nupa_list_init(&id->wait);
	nupa_list_init(&id->listener);
	nupa_list_init(&id->by_remote);
	nupa_list_init(&id->by_number);
	nupa_list_add(&cm->ids, &id->link);
	*out = id;
	return 0;
}

struct nupa_cm_id *cm_id_find(struct nupa_engine *engine, uint32_t number)
{
	const struct nupa_cm *cm = engine->cm;
	uint32_t index = number & CM_INDEX_MASK;
	struct nupa_cm_id *id;

	if (!cm || !index || index >= cm->table_used)
		return NULL;
	id = cm->table[index];
	return id && id->local == number ? id : NULL;
}

void cm_unlink_id(struct nupa_cm_id *id)
{
	struct nupa_cm *cm = id->engine->cm;
	uint32_t index = id->local & CM_INDEX_MASK;

	cm_port_release(id);
	cm_stop_waiting(id);
	nupa_list_del(&id->listener);
	nupa_list_del(&id->by_remote);
	nupa_list_del(&id->by_number);
	nupa_list_del(&id->link);
	if (cm->table[index] == id) { /* not its remnant's */
		cm->table[index] = NULL;
		cm->free_entries[cm->n_free++] = index;
	}
	cm_enter(id, CM_DESTROYED);
}
