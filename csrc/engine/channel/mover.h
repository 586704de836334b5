/* SPDX-License-Identifier: BSD-3-Clause
 * One-sided operations whose ends are both memory of this process; and what the movers share. */
#ifndef NUPA_MOVER_H
#define NUPA_MOVER_H

#include "engine/channel/channel.h"

#include <sys/uio.h>

/* Whether the peer QP is still what it was when we looked at all of it (meet_peer_qp). */
static inline bool nupa_mover_knows_peer(const struct nupa_qp *qp)
{
	const uint64_t *peer = (const uint64_t *)(const void *)qp->peer;

	return likely(peer != NULL) && likely(nupa_load_acquire(&peer[0]) == qp->peer_identity) &&
	       likely(nupa_load_relaxed(&peer[1]) == qp->peer_rights);
}

/* False: not aligned, which the responder refuses (IBTA 9.4.5), or not there. */
static inline bool nupa_mover_atomic(bool is_cas, uint8_t *target, uint64_t compare_add,
				     uint64_t swap, uint64_t *original)
{
	uint64_t *word = (uint64_t *)(void *)target;

	if (unlikely((uintptr_t)target & 7))
		return false;
	if (is_cas) {
		*original = compare_add;
		return nupa_guard_cas(word, original, swap);
	}
	return nupa_guard_add(word, compare_add, original);
}

/* The same with all that is local in one piece.  False: nothing is done but by a WRITE or READ,
 * which may be done again. */
static inline bool nupa_mover_copy(uint32_t opcode, uint8_t *target, uint8_t *local, uint64_t bytes,
				   uint64_t compare_add, uint64_t swap)
{
	uint64_t original;

	if (likely(opcode == IBV_WR_RDMA_WRITE))
		return nupa_guard_write(target, local, bytes);
	if (opcode == IBV_WR_RDMA_READ)
		return nupa_guard_write(local, target, bytes);
	/* An atomic is executed once, so its result needs a place first. */
	if (!nupa_guard_copy_small(local, local, sizeof(original)) ||
	    !nupa_mover_atomic(opcode == IBV_WR_ATOMIC_CMP_AND_SWP, target, compare_add, swap,
			       &original))
		return false;
	nupa_copy(local, &original, sizeof(original));
	return true;
}

/* mover.c: memory that is just being promoted may be EFAULT to a system call (promote.h), in our
 * process or in the peer's: not for long.  *since_ns: 0 at first. */
bool nupa_mover_may_be_in_promotion(uint64_t *since_ns);
/* Behind the first bytes of a vector. */
void nupa_iov_advance(struct iovec **iov, unsigned long *n, size_t bytes);

#endif
