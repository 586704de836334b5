/* SPDX-License-Identifier: BSD-3-Clause
 * The pool, memory that all hosts share, in runs of extents. */
#ifndef NUPA_POOL_H
#define NUPA_POOL_H

#include "segment/segment.h"

/* cffi: begin */
/* Pool memory shared by all hosts: *size_bytes* is rounded up to extents.  slot: the caller's own,
 * or 0 for a process without an attachment.  -EPERM: not its slot or memory; -ENOMEM: no run of
 * free extents; -ENOSPC: the file system is full; -EDQUOT: past the quota of the host's tenant. */
int nupa_pool_alloc(struct nupa_fabric *fabric, uint32_t slot, uint64_t size_bytes, void **out);
/* The same without memory: who uses it, or maps it to others, backs it first (nupa_region_back). */
int nupa_pool_reserve(struct nupa_fabric *fabric, uint32_t slot, uint64_t size_bytes, void **out);
/* Where it is in the pool, for regions; ~0: not there. */
uint64_t nupa_pool_offset(struct nupa_fabric *fabric, const void *addr);
/* -EBUSY: a region that is published has it. */
int nupa_pool_free(struct nupa_fabric *fabric, uint32_t slot, void *addr, uint64_t size_bytes);
/* cffi: end */

/* Frees what a dead owner left in the pool.  Slot 0: the extents of each dead pid. */
void nupa_pool_reclaim(struct nupa_fabric *fabric, uint32_t slot);
/* The word of this process's extents, or 0 if the slot is not its own. */
uint32_t nupa_pool_owner(const struct nupa_fabric *fabric, uint32_t slot);
/* Claims *n* neighbours; returns the first, or n_extents if there is no such run. */
uint32_t nupa_pool_claim(struct nupa_fabric *fabric, uint32_t n, uint32_t owner);
/* Gives all extents of a region back, whose row is the caller's.  published: others may be, too,
 * over the same. */
void nupa_pool_drop(struct nupa_fabric *fabric, uint32_t word, bool published);
static inline uint32_t nupa_pool_extents(const struct nupa_superblock *sb, uint64_t bytes)
{
	return (uint32_t)((bytes + sb->extent_bytes - 1) / sb->extent_bytes);
}
/* The word of a region's extents, and whether it is one. */
static inline uint32_t nupa_pool_region_word(uint32_t index)
{
	return NUPA_EXTENT(NUPA_SLOTS_MAX, index);
}
static inline bool nupa_pool_of_region(uint32_t word)
{
	return NUPA_EXTENT_SLOT(word) == NUPA_SLOTS_MAX;
}

#endif
