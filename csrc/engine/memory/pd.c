/* SPDX-License-Identifier: BSD-3-Clause
 * Protection domains.  One may have several handles, of which all but the first were imported: what
 * counts in checks is the number. */
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>

#define PD_NUMBER_BITS (32 - NUPA_SLOT_BITS)
#define PD_NUMBERS ((1u << PD_NUMBER_BITS) - 1)

static struct nupa_pd *find(struct nupa_engine *engine, uint32_t handle)
{
	for (struct nupa_list *at = engine->pds.next; at != &engine->pds; at = at->next) {
		struct nupa_pd *pd = container_of(at, struct nupa_pd, link);

		if (pd->ibv.handle == handle && !pd->gone)
			return pd;
	}
	return NULL;
}

/* Those without references, which were released while they had some. */
static void sweep(struct nupa_engine *engine)
{
	for (struct nupa_list *at = engine->pds.next, *next; at != &engine->pds; at = next) {
		struct nupa_pd *pd = container_of(at, struct nupa_pd, link);

		next = at->next;
		if (!pd->released || pd->users)
			continue;
		nupa_list_del(at);
		free(pd);
	}
}

static uint32_t handle_new(struct nupa_engine *engine)
{
	uint32_t handle;

	do {
		engine->pd_rounds += engine->pds_made == PD_NUMBERS;
		engine->pds_made = engine->pds_made % PD_NUMBERS + 1;
		handle = engine->slot_index << PD_NUMBER_BITS | engine->pds_made;
	} while (engine->pd_rounds && find(engine, handle));
	nupa_store_relaxed(&engine->slot->pds_made,
			   engine->pd_rounds ? PD_NUMBERS : engine->pds_made);
	return handle;
}

struct ibv_pd *nupa_alloc_pd(struct ibv_context *context)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->ibv.context = context;
	nupa_engine_lock(engine);
	pd->ibv.handle = handle_new(engine);
	nupa_list_add(&engine->pds, &pd->link);
	pd->resource =
	    nupa_resource_add(&engine->resources, &(struct nupa_resource_row){
						      .kind = NUPA_RESOURCE_PD,
						      .number = pd->ibv.handle,
						      .context = nupa_context_number(context),
						  });
	nupa_engine_unlock(engine);
	return &pd->ibv;
}

static void end_handle(struct nupa_engine *engine, struct nupa_pd *pd)
{
	if (!pd->imported && !pd->gone)
		nupa_resource_drop(&engine->resources, pd->resource, NUPA_RESOURCE_PD);
	pd->gone = true;
}

/* Ends the PD itself, with any number of handles: the others can only be unimported then. */
int nupa_dealloc_pd(struct ibv_pd *ibv)
{
	struct nupa_pd *pd = nupa_pd_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	uint32_t users = 0;
	int error = pd->gone ? EINVAL : 0;

	if (pd->parent)
		return nupa_parent_dealloc(pd);
	nupa_engine_lock(engine);
	for (struct nupa_list *at = engine->pds.next; at != &engine->pds; at = at->next)
		if (container_of(at, struct nupa_pd, link)->ibv.handle == ibv->handle)
			users += container_of(at, struct nupa_pd, link)->users;
	if (users)
		error = EBUSY;
	for (struct nupa_list *at = engine->pds.next; !error && at != &engine->pds; at = at->next)
		if (container_of(at, struct nupa_pd, link)->ibv.handle == ibv->handle)
			end_handle(engine, container_of(at, struct nupa_pd, link));
	if (!error) {
		pd->released = true;
		sweep(engine);
	}
	nupa_engine_unlock(engine);
	return error;
}

/* A PD of the process that the context was imported from: all that can be asked from here. */
static bool foreign_pd_exists(struct nupa_engine *engine, const struct nupa_context *context,
			      uint32_t handle)
{
	const struct nupa_slot *slot;
	uint32_t number = handle & PD_NUMBERS;

	if (!context->exporter_slot || handle >> PD_NUMBER_BITS != context->exporter_slot)
		return false;
	slot = &engine->fabric->slots[context->exporter_slot];
	return number && number <= nupa_load_relaxed(&slot->pds_made) &&
	       nupa_context_exporter_lives(context);
}

struct ibv_pd *nupa_import_pd(struct ibv_context *ibv, uint32_t handle)
{
	struct nupa_context *context = container_of(ibv, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;
	struct nupa_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->ibv.context = ibv;
	pd->ibv.handle = handle;
	pd->imported = true;
	nupa_engine_lock(engine);
	if (find(engine, handle) || foreign_pd_exists(engine, context, handle)) {
		nupa_list_add(&engine->pds, &pd->link);
		nupa_engine_unlock(engine);
		return &pd->ibv;
	}
	nupa_engine_unlock(engine);
	free(pd);
	errno = ENOENT;
	return NULL;
}

/* The handle alone; one that still has users stays until they are gone. */
void nupa_unimport_pd(struct ibv_pd *ibv)
{
	struct nupa_pd *pd = nupa_pd_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	/* The one who allocated it may do so too (man ibv_import_pd): the PD goes on. */
	pd->released = pd->imported || pd->gone;
	sweep(engine);
	nupa_engine_unlock(engine);
}
