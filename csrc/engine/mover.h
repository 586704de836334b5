/* SPDX-License-Identifier: BSD-3-Clause
 * What a one-sided operation does once both ends are memory here. */
#ifndef NUPA_MOVER_H
#define NUPA_MOVER_H

#include "engine.h"

/* Whether the peer QP is still what it was when we looked at all of it (meet_peer_qp). */
static inline bool nupa_mover_knows_peer(const struct nupa_qp *qp)
{
	const uint64_t *peer = (const uint64_t *)(const void *)qp->peer;

	return likely(peer != NULL) && likely(nupa_load_acquire(&peer[0]) == qp->peer_identity) &&
	       likely(nupa_load_relaxed(&peer[1]) == qp->peer_rights);
}

/* Programs look for the last byte of a message (as they may with hardware that writes in order), so
 * it is stored last: plain stores are not reordered with the string moves that a memcpy may use. */
static inline void nupa_mover_write(uint8_t *target, const uint8_t *source, uint64_t bytes)
{
	uint64_t tail;

	if (likely(bytes <= NUPA_SEND_INLINE_BYTES)) {
		nupa_copy_small(target, source, (uint32_t)bytes);
		return;
	}
	bytes -= sizeof(tail);
	memcpy(&tail, source + bytes, sizeof(tail));
	memcpy(target, source, bytes);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(target + bytes, &tail, sizeof(tail));
}

/* False: not aligned, which the responder refuses (IBTA 9.4.5). */
static inline bool nupa_mover_atomic(bool is_cas, uint8_t *target, uint64_t compare_add,
				     uint64_t swap, uint64_t *original)
{
	uint64_t *word = (uint64_t *)(void *)target;

	if (unlikely((uintptr_t)target & 7))
		return false;
	if (is_cas) {
		*original = compare_add;
		nupa_cas_seq(word, original, swap);
	} else {
		*original = nupa_fetch_add_seq(word, compare_add);
	}
	return true;
}

/* The same with all that is local in one piece. */
static inline bool nupa_mover_copy(uint32_t opcode, uint8_t *target, uint8_t *local, uint64_t bytes,
				   uint64_t compare_add, uint64_t swap)
{
	uint64_t original;

	if (likely(opcode == IBV_WR_RDMA_WRITE)) {
		nupa_mover_write(target, local, bytes);
		return true;
	}
	if (opcode == IBV_WR_RDMA_READ) {
		nupa_mover_write(local, target, bytes);
		return true;
	}
	if (!nupa_mover_atomic(opcode == IBV_WR_ATOMIC_CMP_AND_SWP, target, compare_add, swap,
			       &original))
		return false;
	memcpy(local, &original, sizeof(original));
	return true;
}

#endif
