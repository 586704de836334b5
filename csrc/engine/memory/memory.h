/* SPDX-License-Identifier: BSD-3-Clause
 * Registered memory, windows on it and protection domains, for the folders above. */
#ifndef NUPA_ENGINE_MEMORY_H
#define NUPA_ENGINE_MEMORY_H

#include "engine/channel/channel.h"
#include "engine/core/qp.h"
#include "engine/promote/promote.h"

struct nupa_pd {
	struct ibv_pd
	    ibv; /* handle: slot << 22 | a number of its own, so no two processes share it */
	struct nupa_list link; /* engine->pds */
	uint32_t users;
	uint32_t resource;          /* its row; 0: none, as of those imported */
	bool imported;              /* another handle of a PD that was allocated elsewhere */
	bool gone;                  /* destroyed through another handle */
	bool released;              /* kept for its users only */
	struct nupa_parent *parent; /* of a parent domain; else NULL */
};

static inline struct nupa_pd *nupa_pd_of(struct ibv_pd *ibv)
{
	return container_of(ibv, struct nupa_pd, ibv);
}

enum nupa_mr_kind {
	NUPA_MR_MEMORY,    /* memory that is there as long as the region is */
	NUPA_MR_ON_DEMAND, /* memory that may come and go: the kernel is asked at each access */
	NUPA_MR_NULL,      /* reads zeros, swallows what is written */
	NUPA_MR_WINDOW,    /* a memory window's binding: for remote keys alone */
	NUPA_MR_FAST,      /* memory of a fast registration (fast.c) */
	NUPA_MR_DEVICE,    /* a DM's place in the table: it has no key that fits any PD */
};

/* In nupa_mr.access alone: the bytes may be touched as they are, by their local key. */
#define NUPA_ACCESS_PLAIN (1 << 30)

/* A region's ranges in our memfd.  If it is `whole`, the one range is all of the region.  If not,
 * peers reach it by other movers, and the ranges keep these parts from becoming private meanwhile.
 */
#define NUPA_MR_RANGES 4

struct nupa_mr_pages {
	uintptr_t va; /* of the region */
	uint64_t length;
	struct nupa_shared_range ranges[NUPA_MR_RANGES];
	int n;
	bool whole;
	bool bare;                  /* see mr_share.c */
	bool keeper;                /* a bare one that has not all of its ranges */
	struct nupa_list bare_link; /* while `bare` */
};

struct nupa_mr {
	struct ibv_mr ibv; /* the program's view; addr is NULL where its memory has no address */
	uint64_t iova;
	uint64_t length;
	uint8_t *va;
	int access;
	uint32_t index;
	uint32_t users;              /* memory windows bound to it */
	uint32_t qpn;                /* a type 2 window: the only QP that it works on */
	uint8_t kind;                /* enum nupa_mr_kind */
	bool imported;               /* another handle of a region registered elsewhere */
	bool known;                  /* its key is in the table: others may write there (I5) */
	uint32_t exporter;           /* slot of the process whose pool memory it is; 0: ours */
	bool gone;                   /* destroyed through another handle */
	struct nupa_dm *dm;          /* of device memory */
	struct nupa_dmabuf *dmabuf;  /* of a dma-buf: its mapping; else NULL */
	bool away;                   /* its key is taken back for a while: a fork */
	struct nupa_mr_pages *pages; /* NULL: peers do not reach it */
	uint64_t sent_bytes;         /* of SENDs, while peers cannot map it (mr_late.c) */
	bool becomes_shared;         /* for that */
};

/* mr.c */
static inline struct nupa_mr *nupa_mr_find(const struct nupa_engine *engine, uint32_t key)
{
	uint32_t index = key >> NUPA_KEY_VARIANT_BITS;
	struct nupa_mr *mr;

	if (index >= engine->fabric->geometry.mr_entries)
		return NULL;
	mr = engine->mrs[index];
	return mr && mr->known && mr->ibv.lkey == key ? mr : NULL;
}

/* Where [addr, +bytes) of a region is, in the region's own addressing; NULL: beyond it.  No sum
 * here can overflow. */
static inline uint8_t *nupa_mr_at(const struct nupa_mr *mr, uint64_t addr, uint64_t bytes)
{
	uint64_t offset = addr - mr->iova;

	if (addr < mr->iova || offset > mr->length || bytes > mr->length - offset)
		return NULL;
	return (uint8_t *)((uintptr_t)mr->va + offset);
}

/* odp.c: what is not plain memory of just this PD; mr may be NULL. */
uint8_t *nupa_mr_local_rare(const struct nupa_mr *mr, const struct ibv_pd *pd,
			    const struct ibv_sge *sge, int access);

/* Local memory by its lkey, if it is plain memory of just this PD; else NULL. */
static inline uint8_t *nupa_mr_local_plain(const struct nupa_engine *engine,
					   const struct ibv_pd *pd, const struct ibv_sge *sge,
					   int access)
{
	const struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);
	int needed = access | NUPA_ACCESS_PLAIN;

	if (unlikely(!mr || mr->ibv.pd != pd || (mr->access & needed) != needed))
		return NULL;
	return nupa_mr_at(mr, sge->addr, sge->length);
}

/* Local memory by its lkey; NULL: protection error. */
static inline uint8_t *nupa_mr_local(const struct nupa_engine *engine, const struct ibv_pd *pd,
				     const struct ibv_sge *sge, int access)
{
	uint8_t *plain = nupa_mr_local_plain(engine, pd, sge, access);

	return likely(plain) ? plain
			     : nupa_mr_local_rare(nupa_mr_find(engine, sge->lkey), pd, sge, access);
}

/* mr_late.c: a SEND takes bytes from a region that the receiver cannot map, and could if it were
 * shared.  True: it is about to be, and no system call of a peer must read it meanwhile. */
bool nupa_mr_sends(struct nupa_engine *engine, const struct ibv_sge *sge);

/* Whether the partner of this QP may map the memory of an SGE that nupa_mr_local has found. */
static inline bool nupa_mr_may_map(const struct nupa_qp *qp, const struct ibv_sge *sge)
{
	const struct nupa_mr_entry *entry =
	    &qp->engine->mr_entries[sge->lkey >> NUPA_KEY_VARIANT_BITS];

	return qp->channel->mover == NUPA_MOVER_LOCAL ||
	       nupa_load_relaxed(&entry->shared_off) != UINT64_MAX ||
	       nupa_load_relaxed(&entry->pool_off) != UINT64_MAX;
}

/* Resolves a local scatter/gather list to memory: IBV_WC_SUCCESS or LOC_PROT_ERR. */
enum ibv_wc_status nupa_mr_resolve(struct nupa_engine *engine, struct ibv_pd *pd,
				   const struct ibv_sge *sge, uint32_t n_sge, int access,
				   struct nupa_span *spans, uint32_t *n_spans);
/* Resolves a remote request against our own regions and windows, for the responder; NULL: access
 * error.  *on_demand: the memory may not be there, use nupa_memory_copy. */
uint8_t *nupa_mr_remote(struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			int access, bool *on_demand);
/* refusal.c: say once why one of the two has failed. */
void nupa_mr_explain_local(const struct nupa_engine *engine, const struct ibv_pd *pd,
			   const struct ibv_sge *sge, int access);
void nupa_mr_explain_remote(const struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			    int access);
/* Makes a region's entry, filled in, known under its key; takes it back, and waits for those who
 * use it. */
void nupa_mr_publish(struct nupa_engine *engine, struct nupa_mr *mr);
/* Around a fork, under the locks of all engines.  Peers lose access to all regions before it.
 * Afterwards all regions are shared again, and then shown to peers. */
void nupa_mr_hide_all(struct nupa_engine *engine);
void nupa_mr_share_all(struct nupa_engine *engine);
void nupa_mr_show_all(struct nupa_engine *engine);
void nupa_mr_forget_in_child(struct nupa_engine *engine);
bool nupa_mr_withdraw(struct nupa_engine *engine, uint32_t index); /* hazard.c; false: a limit */

/* mw.c */
int nupa_mr_invalidate(struct nupa_qp *qp, uint32_t rkey);
/* Windows bound on a QP that is destroyed are free again. */
void nupa_mw_forget_qp(struct nupa_qp *qp);
/* A BIND_MW or LOCAL_INV whose turn it is. */
enum ibv_wc_status nupa_mw_execute(struct nupa_qp *qp, const struct nupa_wqe *wqe);
/* Fills in the bind: 0 or the errno that posting it gives. */
int nupa_mw_fill_wqe(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_mw *mw, uint32_t rkey,
		     const struct ibv_mw_bind_info *info);

/* fast.c: a region that work requests of this opcode register; not of enum ibv_wr_opcode. */
#define NUPA_WR_FAST_REG 30u
#define NUPA_WC_FAST_REG 100u
struct ibv_mr *nupa_alloc_fast_mr(struct ibv_pd *pd, void *memory);
/* Fills in the registration: 0 or the errno that posting it gives; and in its turn. */
int nupa_mr_fast_fill_wqe(const struct nupa_qp *qp, struct nupa_wqe *wqe, uint32_t key,
			  const struct ibv_mw_bind_info *info);
enum ibv_wc_status nupa_mr_fast_execute(struct nupa_qp *qp, const struct nupa_wqe *wqe);
/* domain.c: puts memory of the parent domain's own in the place of a ring that was mapped, if it
 * has an allocator: 0 or ENOMEM. */
enum nupa_buffer_type { NUPA_BUFFER_CQ = 1, NUPA_BUFFER_SQ, NUPA_BUFFER_RQ, NUPA_BUFFER_SRQ };
int nupa_domain_buffer(struct ibv_pd *pd, enum nupa_buffer_type type, uint8_t **ring, size_t bytes,
		       bool *custom);
void nupa_domain_release(struct ibv_pd *pd, enum nupa_buffer_type type, uint8_t **ring,
			 bool *custom);
int nupa_parent_dealloc(struct nupa_pd *pd);

/* import.c */
bool nupa_context_exporter_lives(const struct nupa_context *context);
/* The process in *slot* is gone, and its pool memory will be reused: regions over it end. */
void nupa_import_lose(struct nupa_engine *engine, uint32_t slot);

/* mr_late.c: shares the region that nupa_mr_sends has found worth it.  Not under the lock. */
void nupa_mr_share_late(struct nupa_engine *engine);

/* mr_share.c: how many forks there were, of those that fork.c notices. */
extern uint32_t nupa_forks;

#endif
