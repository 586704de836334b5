/* SPDX-License-Identifier: BSD-3-Clause
 * Views: shared memory as a program sees it, one run of addresses that may be taken away at any
 * moment.  A view maps pieces of a file in turns.  Or it is a cache of them, which is as stale as
 * the program lets it be.  Memory that was taken away reads as all ones, at the same addresses.
 *
 *   V1  The addresses are the view's from its making to nupa_view_free.  No load or store there
 *       raises a signal, and none reaches memory that is no longer the view's.
 *   V2  `lost` is stored before the memory is replaced.  So a copy after which it is 0 has copied
 *       nothing but the memory.
 *
 * Views need mappings and lines, and of regions only their revocation. */
#ifndef NUPA_VIEW_H
#define NUPA_VIEW_H

#include "segment/segment.h"

/* cffi: begin */
struct nupa_view;

/* Bytes of a file, or of the pool: turn t is the granularity bytes at pieces[t % n_pieces] +
 * t / n_pieces * granularity.  All but the bytes of a region of its own are whole pages. */
struct nupa_view_plan {
	const uint64_t *pieces;
	uint32_t n_pieces;
	uint32_t software;    /* coherence: a cache of its own, see nupa_view_flush */
	uint64_t granularity; /* 0: one piece */
	uint64_t bytes;
};

enum nupa_view_loss {
	NUPA_VIEW_KEPT,
	NUPA_VIEW_REVOKED, /* its memory was taken away */
	NUPA_VIEW_FORKED,  /* it is its parent's: a child makes its own */
	NUPA_VIEW_CLOSED,
	NUPA_VIEW_LINK_DOWN, /* a link between the host and the memory went down */
};

/* Each returns 0 or a negative errno, and *why* says what was asked, found, and to do.  -EINVAL: a
 * plan that is none; -E2BIG: it takes more than 32768 mappings; -ENOMEM, -ENOSPC: no room. */

/* The file is long enough, and is never shortened. */
int nupa_view_of_file(int fd, const struct nupa_view_plan *plan, struct nupa_view **out, char *why,
		      size_t why_bytes);
/* Of reserved pool memory; it is backed here. */
int nupa_view_of_pool(struct nupa_fabric *fabric, const struct nupa_view_plan *plan,
		      struct nupa_view **out, char *why, size_t why_bytes);
/* A region, as a window of *host*.  It is lost for good when the region is revoked, or a link
 * between the host and the memory goes down.  -ENETDOWN: one is down; -EACCES: it is not shared
 * with the host; -ESTALE: it is gone; ... as nupa_region_map_begin. */
int nupa_view_of_region(struct nupa_fabric *fabric, uint64_t region, uint32_t host,
			struct nupa_view **out, char *why, size_t why_bytes);

/* Takes the memory away: all ones from now on, also for loads under way.  Later stores
 * stay here. */
void nupa_view_revoke(struct nupa_view *view);
/* Likewise, by the program itself: the region may be freed.  A second call does nothing. */
void nupa_view_close(struct nupa_view *view);
/* Closes the view and frees its addresses: neither may be used afterwards. */
void nupa_view_free(struct nupa_view *view);

void *nupa_view_at(const struct nupa_view *view);
uint64_t nupa_view_bytes(const struct nupa_view *view);
bool nupa_view_is_software(const struct nupa_view *view);
/* The first loss: enum nupa_view_loss. */
uint32_t nupa_view_lost(const struct nupa_view *view);

/* Each: 0; -ERANGE: not inside; -ESTALE: it is lost, and a read has given all ones. */
int nupa_view_read(const struct nupa_view *view, uint64_t offset, void *to, uint64_t bytes);
int nupa_view_write(const struct nupa_view *view, uint64_t offset, const void *from,
		    uint64_t bytes);
/* SOFTWARE: lines of 64 bytes that hold something else than when they were fetched are written to
 * the memory.  Others: nothing to do. */
int nupa_view_flush(struct nupa_view *view, uint64_t offset, uint64_t bytes);
/* SOFTWARE: lines are fetched anew; what was stored there and not flushed is gone. */
int nupa_view_invalidate(struct nupa_view *view, uint64_t offset, uint64_t bytes);

enum nupa_word_operation {
	NUPA_WORD_LOAD,
	NUPA_WORD_STORE,
	NUPA_WORD_FETCH_ADD,
	NUPA_WORD_FETCH_AND,
	NUPA_WORD_FETCH_OR,
	NUPA_WORD_FETCH_XOR,
	NUPA_WORD_SWAP,
	NUPA_WORD_COMPARE_SWAP, /* stores operand where compare is found */
};
/* An atomic operation on the 64 bits at base + offset, in one order with all others
 * (memory_order_seq_cst); *before: what was there.  -ERANGE: not inside of *bytes*; -EINVAL: its
 * address is not a multiple of 8, or no such operation. */
int nupa_word_atomic(void *base, uint64_t bytes, uint64_t offset, uint32_t operation,
		     uint64_t operand, uint64_t compare, uint64_t *before);
/* cffi: end */

#endif
