/* SPDX-License-Identifier: BSD-3-Clause
 * Parent and thread domains (man ibv_alloc_parent_domain, ibv_alloc_td).  A parent domain is
 * another handle of its PD, with the PD's number, that says where queues get their memory.  A
 * thread domain changes nothing here: an uncontended lock costs next to nothing. */
#define _GNU_SOURCE
#include "engine/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

struct nupa_parent {
	struct nupa_pd *pd;
	struct nupa_td *td; /* NULL: none */
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void *pd_context;
};

/* IBV_ALLOCATOR_USE_DEFAULT */
#define USE_DEFAULT ((void *)-1)

/* --- thread domains ------------------------------------------------------------------ */

struct nupa_td {
	struct ibv_td ibv;
	uint32_t users;
};

struct ibv_td *nupa_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct nupa_td *td;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->ibv.context = context;
	return &td->ibv;
}

int nupa_dealloc_td(struct ibv_td *ibv)
{
	struct nupa_td *td = container_of(ibv, struct nupa_td, ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	uint32_t users;

	nupa_engine_lock(engine);
	users = td->users;
	nupa_engine_unlock(engine);
	if (users)
		return EBUSY;
	free(td);
	return 0;
}

/* --- parent domains ------------------------------------------------------------------ */

static bool attr_ok(const struct ibv_context *context,
		    const struct ibv_parent_domain_init_attr *attr)
{
	/* A device that reaches all memory ignores the last. */
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			       IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;

	return attr->pd && attr->pd->context == context && !nupa_pd_of(attr->pd)->parent &&
	       (!attr->td || attr->td->context == context) && !(attr->comp_mask & ~known) &&
	       (!(attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) ||
		(attr->alloc && attr->free));
}

struct ibv_pd *nupa_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *attr)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_parent *parent;
	struct nupa_pd *pd;

	if (!attr_ok(context, attr)) {
		errno = EINVAL;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	parent = calloc(1, sizeof(*parent));
	if (!pd || !parent) {
		free(pd);
		free(parent);
		errno = ENOMEM;
		return NULL;
	}
	parent->pd = nupa_pd_of(attr->pd);
	parent->td = attr->td ? container_of(attr->td, struct nupa_td, ibv) : NULL;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		parent->alloc = attr->alloc;
		parent->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		parent->pd_context = attr->pd_context;
	pd->parent = parent;
	pd->ibv.context = context;
	pd->ibv.handle = attr->pd->handle;
	nupa_list_init(&pd->link);
	nupa_engine_lock(engine);
	parent->pd->users++;
	if (parent->td)
		parent->td->users++;
	nupa_engine_unlock(engine);
	return &pd->ibv;
}

int nupa_parent_dealloc(struct nupa_pd *pd)
{
	struct nupa_engine *engine = nupa_engine_of(pd->ibv.context);
	struct nupa_parent *parent = pd->parent;
	uint32_t users;

	nupa_engine_lock(engine);
	users = pd->users;
	if (!users) {
		parent->pd->users--;
		if (parent->td)
			parent->td->users--;
	}
	nupa_engine_unlock(engine);
	if (users)
		return EBUSY;
	free(parent);
	free(pd);
	return 0;
}

/* --- memory of queues ----------------------------------------------------------------- */

int nupa_domain_buffer(struct ibv_pd *ibv, enum nupa_buffer_type type, uint8_t **ring, size_t bytes,
		       bool *custom)
{
	struct nupa_parent *parent = ibv ? nupa_pd_of(ibv)->parent : NULL;
	void *at;

	*custom = false;
	if (!parent || !parent->alloc)
		return 0;
	at = parent->alloc(ibv, parent->pd_context, bytes, NUPA_PAGE_BYTES, type);
	if (at == USE_DEFAULT)
		return 0;
	if (!at)
		return ENOMEM;
	munmap(*ring, bytes);
	*ring = at;
	*custom = true;
	return 0;
}

void nupa_domain_release(struct ibv_pd *ibv, enum nupa_buffer_type type, uint8_t **ring,
			 bool *custom)
{
	struct nupa_parent *parent;

	if (!*custom)
		return;
	parent = nupa_pd_of(ibv)->parent;
	parent->free(ibv, parent->pd_context, *ring, type);
	*ring = NULL;
	*custom = false;
}
