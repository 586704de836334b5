/* SPDX-License-Identifier: BSD-3-Clause
 * XRC domains (man ibv_open_xrcd), and the numbers of SRQs in them.  All processes of a host know a
 * domain by the inode of a file.  Each publishes in its arena those that it has open. */
#include "engine/qp/verbs.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static struct nupa_xrcd *xrcd_of(struct ibv_xrcd *ibv)
{
	return container_of(ibv, struct nupa_xrcd, ibv);
}

static struct nupa_xrc *xrc_of(struct nupa_engine *engine)
{
	struct nupa_xrc *xrc = engine->xrc;

	if (xrc)
		return xrc;
	xrc = calloc(1, sizeof(*xrc));
	if (!xrc)
		return NULL;
	xrc->srqs = nupa_queue_map(NUPA_SRQ_MAX * sizeof(*xrc->srqs));
	if (!xrc->srqs) {
		free(xrc);
		return NULL;
	}
	for (uint32_t i = 0; i < NUPA_XRC_SHADOW_LISTS; i++)
		nupa_list_init(&xrc->shadows[i]);
	return engine->xrc = xrc;
}

/* --- domains ------------------------------------------------------------------------- */

static struct nupa_xrcd_entry *table_of(const struct nupa_engine *engine, uint8_t *arena)
{
	return (
	    struct nupa_xrcd_entry *)(void *)(arena +
					      nupa_arena_map(&engine->fabric->geometry).xrcds_off);
}

static bool table_has(struct nupa_engine *engine, uint32_t slot, const struct nupa_xrcd_id *id,
		      uint32_t at_least)
{
	const struct nupa_xrcd_entry *table;
	uint8_t *arena = nupa_fabric_arena(engine->fabric, slot);

	if (!arena)
		return false;
	table = table_of(engine, arena);
	for (uint32_t i = 0; i < NUPA_XRCD_MAX; i++)
		if (nupa_load_seq(&table[i].state) >= at_least && table[i].dev == id->dev &&
		    table[i].ino == id->ino)
			return true;
	return false;
}

/* Whether another process of our host has it open, or (NUPA_XRCD_OPENING) is about to. */
static bool others_have(struct nupa_engine *engine, const struct nupa_xrcd_id *id,
			uint32_t at_least)
{
	for (uint32_t i = 1; i < engine->fabric->geometry.n_slots; i++) {
		const struct nupa_slot *slot = &engine->fabric->slots[i];

		if (i != engine->slot_index &&
		    NUPA_CLAIM_STATE(nupa_slot_claim(slot)) == NUPA_SLOT_LIVE &&
		    nupa_load_relaxed(&slot->host) == engine->host &&
		    nupa_load_relaxed(&slot->has_xrcds) && table_has(engine, i, id, at_least))
			return true;
	}
	return false;
}

static bool we_have(const struct nupa_xrc *xrc, const struct nupa_xrcd_id *id)
{
	for (uint32_t i = 0; i < NUPA_XRCD_MAX; i++)
		if (xrc->xrcds[i] && nupa_xrcd_same(&xrc->xrcds[i]->id, id))
			return true;
	return false;
}

/* Of two that open one domain at once each sees the other: it is published before we look.  With
 * O_EXCL both may then fail, as if they had come one after the other and gone; never do both get
 * it.
 */
static int open_named(struct nupa_engine *engine, const struct nupa_xrcd *xrcd, int oflags,
		      struct nupa_xrcd_entry *entry)
{
	bool ours = we_have(engine->xrc, &xrcd->id);

	(void)nupa_exchange_seq(&entry->state, NUPA_XRCD_OPENING);
	if (oflags & O_EXCL && (ours || others_have(engine, &xrcd->id, NUPA_XRCD_OPENING)))
		return EINVAL;
	if (!(oflags & O_CREAT) && !ours && !others_have(engine, &xrcd->id, NUPA_XRCD_OPEN))
		return EAGAIN;
	return 0;
}

static int open_in_engine(struct nupa_engine *engine, struct nupa_xrcd *xrcd, int oflags)
{
	struct nupa_xrc *xrc = xrc_of(engine);
	struct nupa_xrcd_entry *entry;
	uint64_t off = nupa_arena_offset(engine->fabric, engine->slot_index) +
		       nupa_arena_map(&engine->fabric->geometry).xrcds_off;
	int error = 0;

	if (!xrc)
		return ENOMEM;
	if (!engine->slot->has_xrcds) {
		if (nupa_fabric_back(engine->fabric, off,
				     NUPA_XRCD_MAX * sizeof(struct nupa_xrcd_entry)))
			return ENOMEM;
		nupa_store_release(&engine->slot->has_xrcds, 1);
	}
	while (xrcd->index < NUPA_XRCD_MAX && xrc->xrcds[xrcd->index])
		xrcd->index++;
	if (xrcd->index == NUPA_XRCD_MAX)
		return ENOMEM;
	entry = &table_of(engine, engine->arena)[xrcd->index];
	if (xrcd->id.dev == UINT64_MAX)
		xrcd->id.ino = (uint64_t)engine->slot_index << 54 | (uint64_t)engine->epoch << 32 |
			       ++xrc->anonymous;
	entry->dev = xrcd->id.dev;
	entry->ino = xrcd->id.ino;
	if (xrcd->id.dev != UINT64_MAX)
		error = open_named(engine, xrcd, oflags, entry);
	nupa_store_release(&entry->state, error ? NUPA_XRCD_NONE : NUPA_XRCD_OPEN);
	if (!error)
		xrc->xrcds[xrcd->index] = xrcd;
	return error;
}

struct ibv_xrcd *nupa_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_xrcd *xrcd;
	struct stat file = { 0 };
	int error;

	/* man ibv_open_xrcd: without a file only O_CREAT makes sense. */
	if (attr->comp_mask != needed || attr->oflags & ~(O_CREAT | O_EXCL) ||
	    (attr->fd == -1 && !(attr->oflags & O_CREAT))) {
		errno = EINVAL;
		return NULL;
	}
	/* Openers of a domain see each other by words that they write at the same moment. */
	if (nupa_fabric_incoherent(engine->fabric)) {
		nupa_unsupported("ibv_open_xrcd on a fabric that is not coherent");
		return NULL;
	}
	if (attr->fd != -1 && fstat(attr->fd, &file))
		return NULL;
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;
	xrcd->ibv.context = context;
	xrcd->id = (struct nupa_xrcd_id){ file.st_dev, file.st_ino };
	if (attr->fd == -1)
		xrcd->id.dev = UINT64_MAX;
	nupa_engine_lock(engine);
	error = open_in_engine(engine, xrcd, attr->oflags);
	nupa_engine_unlock(engine);
	if (error) {
		free(xrcd);
		errno = error;
		return NULL;
	}
	return &xrcd->ibv;
}

int nupa_close_xrcd(struct ibv_xrcd *ibv)
{
	struct nupa_xrcd *xrcd = xrcd_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	if (xrcd->users) {
		nupa_engine_unlock(engine);
		return EBUSY;
	}
	nupa_store_release(&table_of(engine, engine->arena)[xrcd->index].state, NUPA_XRCD_NONE);
	engine->xrc->xrcds[xrcd->index] = NULL;
	nupa_engine_unlock(engine);
	free(xrcd);
	return 0;
}

/* --- SRQs ---------------------------------------------------------------------------- */

int nupa_xrc_srq_add(struct nupa_srq *srq, struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct nupa_engine *engine = nupa_engine_of(srq->ibv.context);
	const uint32_t most = nupa_qp_most(&engine->fabric->geometry);
	struct nupa_xrc *xrc = xrc_of(engine);

	if (!xrc || xrc->n_srqs == most)
		return ENOMEM;
	do
		srq->srq_num = engine->qpn_base | xrc->next_srq++ % most;
	while (xrc->srqs[srq->srq_num % NUPA_SRQ_MAX]);
	xrc->srqs[srq->srq_num % NUPA_SRQ_MAX] = srq;
	xrc->n_srqs++;
	srq->xrcd = xrcd_of(xrcd);
	srq->xrcd->users++;
	srq->cq = container_of(cq, struct nupa_cq, ibv);
	srq->cq->users++;
	return 0;
}

void nupa_xrc_srq_remove(struct nupa_srq *srq)
{
	struct nupa_xrc *xrc = nupa_engine_of(srq->ibv.context)->xrc;

	xrc->srqs[srq->srq_num % NUPA_SRQ_MAX] = NULL;
	xrc->n_srqs--;
	srq->xrcd->users--;
	srq->cq->users--;
	nupa_xrc_forget_srq(srq);
}

int nupa_get_srq_num(struct ibv_srq *ibv, uint32_t *srq_num)
{
	*srq_num = container_of(ibv, struct nupa_srq, ibv)->srq_num;
	return 0;
}

void nupa_xrc_qp_users(struct nupa_qp *qp, int delta)
{
	qp->xrc_part->xrcd->users += (uint32_t)delta;
}

void nupa_xrc_free(struct nupa_engine *engine)
{
	struct nupa_xrc *xrc = engine->xrc;

	if (!xrc)
		return;
	nupa_xrc_free_shadows(xrc);
	munmap(xrc->srqs, NUPA_SRQ_MAX * sizeof(*xrc->srqs));
	free(xrc);
}
