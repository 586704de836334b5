/* SPDX-License-Identifier: BSD-3-Clause
 * A word of the host's table of ports: a bound port and its owner.  A bucket of eight words holds
 * the ports of some low bits, so that finding a listener reads one cache line. */
#ifndef NUPA_CM_PORT_WORD_H
#define NUPA_CM_PORT_WORD_H

#include "engine/cm/internal.h"
#include "segment/slot/machine.h"

/* port 16 | space 2 | kind 4 | flags 4 | 0 | slot 10 | epoch 24 */
#define WORD_PORT(w) ((uint16_t)((w) >> 48))
#define WORD_SPACE(w) ((uint32_t)((w) >> 46) & 3)
#define WORD_KIND(w) ((enum cm_addr_kind)((w) >> 42 & 15))
#define WORD_SLOT(w) NUPA_CM_WORD_SLOT(w)
#define WORD_EPOCH(w) ((uint32_t)(w)&0xffffff)
#define WORD_LISTENS (UINT64_C(1) << 41)
#define WORD_REUSE (UINT64_C(1) << 40)
#define WORD_AFONLY (UINT64_C(1) << 39)
#define WORD_TENTATIVE (UINT64_C(1) << 38)
_Static_assert(CM_ADDR_KINDS <= 16, "four bits");

static inline uint32_t cm_port_space(enum rdma_port_space ps)
{
	switch (ps) {
	case RDMA_PS_TCP:
		return 0;
	case RDMA_PS_UDP:
		return 1;
	case RDMA_PS_IB:
		return 2;
	default:
		return 3;
	}
}

static inline uint64_t *cm_port_bucket(struct nupa_cm_bucket *table, uint32_t space, uint16_t port)
{
	return table[(port + space * (NUPA_CM_BUCKETS / 4)) % NUPA_CM_BUCKETS].words;
}

/* I5: any process may have stored the word.  One of an owner that is gone counts as none. */
static inline bool cm_word_is_owned(const struct nupa_fabric *fabric, uint32_t host, uint64_t word)
{
	const struct nupa_slot *slot;
	uint64_t claim;

	if (!word || WORD_SLOT(word) == 0 || WORD_SLOT(word) >= fabric->geometry.n_slots)
		return false;
	slot = &fabric->slots[WORD_SLOT(word)];
	claim = nupa_slot_claim(slot);
	return NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
	       NUPA_CLAIM_EPOCH(claim) == WORD_EPOCH(word) &&
	       nupa_load_relaxed(&slot->host) == host;
}

static inline bool cm_word_same_port(uint64_t a, uint64_t b)
{
	return WORD_PORT(a) == WORD_PORT(b) && WORD_SPACE(a) == WORD_SPACE(b);
}

#endif
