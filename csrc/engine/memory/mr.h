/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind regions, windows and device memory: entries of the table that peers
 * read.  All under the engine's lock. */
#ifndef NUPA_MR_H
#define NUPA_MR_H

#include "engine/memory/memory.h"

#define NUPA_MR_SUPPORTED_ACCESS                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                   \
	 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_FLUSH_GLOBAL |                     \
	 IBV_ACCESS_OPTIONAL_RANGE)

struct nupa_mw {
	struct ibv_mw ibv;
	struct nupa_mr mr;     /* its place in the table; ibv.lkey is the key that works now */
	struct nupa_mr *bound; /* NULL: free */
};

struct nupa_dm {
	struct ibv_dm ibv; /* handle: its place in the table */
	struct nupa_mr mr;
	uint32_t users;      /* regions of it */
	bool imported, gone; /* as in struct nupa_mr */
	bool foreign;        /* of the process that the context was imported from */
	bool private;        /* a child's after fork: anonymous memory */
};

/* Bits 8 to 11 of a window's keys, beside its place: the same in all, not all clear. */
#define NUPA_MW_GROUP(key) ((key)&0xf00u)

static inline struct nupa_mr *nupa_mr_of(struct ibv_mr *ibv)
{
	return container_of(ibv, struct nupa_mr, ibv);
}

/* Checks a registration: 0 with *kind, or EINVAL, EOPNOTSUPP, EFAULT. */
int nupa_mr_check(const struct nupa_engine *engine, void *addr, size_t length, uint64_t iova,
		  int access, enum nupa_mr_kind *kind);
/* The access of a region of that kind, as struct nupa_mr has it. */
int nupa_mr_access(enum nupa_mr_kind kind, int access);

static inline bool nupa_mr_same_pd(const struct nupa_mr *mr, const struct nupa_qp *qp)
{
	return mr->ibv.pd && qp->ibv.pd && mr->ibv.pd->handle == qp->ibv.pd->handle;
}

/* Makes a region known, all of it but its key filled in: 0 or ENOMEM. */
int nupa_mr_register(struct nupa_mr *mr);

/* null_mr.c: the memory of null regions, to be read or written. */
uint8_t *nupa_mr_void(bool to_write);
/* dmabuf.c: unmaps it, and lets go of its file; NULL: nothing. */
void nupa_dmabuf_release(struct nupa_dmabuf *buf);

/* mr_entry.c */
/* Where it is in the pool; ~0: it is not. */
uint64_t nupa_mr_pool_offset(const struct nupa_engine *engine, const struct nupa_mr *mr);
/* What a region of that kind and length counts as registered bytes: device and foreign memory is of
 * the pool, and the whole address space of nobody. */
uint64_t nupa_mr_bytes(enum nupa_mr_kind kind, const struct nupa_mr *mr, uint64_t length);
/* Gives mr a free place and a key: 0 or ENOMEM, of a quota, too.  Peers do not see it before
 * nupa_mr_expose. */
int nupa_mr_place(struct nupa_engine *engine, struct nupa_mr *mr);
/* The same, at a place and with a key of the caller's; EBUSY: it is taken. */
int nupa_mr_place_at(struct nupa_engine *engine, struct nupa_mr *mr, uint32_t key);
void nupa_mr_unplace(struct nupa_engine *engine, struct nupa_mr *mr);
/* Peers may use mr.ibv.lkey from here on. */
void nupa_mr_expose(struct nupa_engine *engine, struct nupa_mr *mr);
/* When it returns no peer uses that key any more; false: one is stopped in the middle of it. */
bool nupa_mr_retract(struct nupa_engine *engine, struct nupa_mr *mr);
/* Before that, by those who can let go of the engine's lock while they wait: waits longer.  False:
 * still in use, and the caller gives up; the key is gone all the same. */
bool nupa_mr_settle(struct nupa_engine *engine, uint32_t index);

/* mr_share.c: puts a region's pages into our memfd if it can, before it is exposed, and then takes
 * the engine's lock.  ENOMEM: neither. */
int nupa_mr_share_and_lock(struct nupa_engine *engine, struct nupa_mr *mr);
/* Takes the pages of a region back that has been retracted; NULL: none.  Not under the engine's
 * lock: it takes as long as copying them, and waits for other threads that share. */
void nupa_mr_unshare(struct nupa_mr_pages *pages);
/* Where it is in the memfd; ~0: it is not. */
uint64_t nupa_mr_shared_offset(struct nupa_mr *mr);

/* import.c */
/* The entry that an imported context's exporter has at *index*, checked for being whole: 0, ENOENT,
 * EAGAIN while it changes. */
int nupa_context_foreign_entry(const struct nupa_context *context, uint32_t index,
			       struct nupa_mr_entry *entry);
/* Marks a region as over memory of the exporter, whose death ends it: false if it is dead. */
bool nupa_mr_follow(struct nupa_engine *engine, struct nupa_mr *mr,
		    const struct nupa_context *context);
/* [offset, +bytes) of the pool; NULL: it is not inside. */
uint8_t *nupa_pool_at(struct nupa_engine *engine, uint64_t offset, uint64_t bytes);

#endif
