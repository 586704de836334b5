/* SPDX-License-Identifier: BSD-3-Clause
 * QP numbers: 24 bits (IBTA 9.2.1), slot | index.  A peer's tables are found from the number alone.
 * Where there are more slots, each has fewer numbers.  Slot 0 is never given out, so QP0 and QP1
 * cannot exist. */
#ifndef NUPA_QPN_H
#define NUPA_QPN_H

#include "segment/layout/layout.h"

#define NUPA_QP_INDEX_BITS_MANY 14u
#define NUPA_QPN_MULTICAST 0xffffffu /* IBTA 9.6.1: groups, so no QP has it */

static inline uint32_t nupa_qp_index_bits(const struct nupa_superblock *sb)
{
	return sb->n_slots > NUPA_SLOTS_FEW ? NUPA_QP_INDEX_BITS_MANY : NUPA_QP_INDEX_BITS;
}

/* How many QPs of one attachment have numbers. */
static inline uint32_t nupa_qp_most(const struct nupa_superblock *sb)
{
	return 1u << nupa_qp_index_bits(sb);
}

static inline uint32_t nupa_qpn(const struct nupa_superblock *sb, uint32_t slot, uint32_t index)
{
	return slot << nupa_qp_index_bits(sb) | index;
}

/* I5: below n_slots only if the number is one. */
static inline uint32_t nupa_qpn_slot(const struct nupa_superblock *sb, uint32_t qpn)
{
	return qpn >> nupa_qp_index_bits(sb);
}

static inline uint32_t nupa_qpn_index(const struct nupa_superblock *sb, uint32_t qpn)
{
	return qpn & (nupa_qp_most(sb) - 1);
}

#endif
