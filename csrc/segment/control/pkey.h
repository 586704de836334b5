/* SPDX-License-Identifier: BSD-3-Clause
 * P_Key tables of hosts' ports (IBTA 10.9): which partitions a host is in, and whether two may
 * speak. */
#ifndef NUPA_PKEY_H
#define NUPA_PKEY_H

#include "segment/segment.h"

/* Bit 15: a full member.  Two limited members of a partition do not speak. */
#define NUPA_PKEY_FULL 0x8000u
#define NUPA_PKEY_PARTITION(pkey) ((uint16_t)(pkey)&0x7fffu)

/* IBTA 10.9.3: of the same partition, not both limited.  0 is no P_Key. */
static inline bool nupa_pkeys_match(uint16_t a, uint16_t b)
{
	return NUPA_PKEY_PARTITION(a) && NUPA_PKEY_PARTITION(a) == NUPA_PKEY_PARTITION(b) &&
	       ((a | b) & NUPA_PKEY_FULL);
}

/* Whether a host's table has this very entry. */
bool nupa_pkey_held(const struct nupa_fabric *fabric, uint32_t host, uint16_t pkey);
/* The first entry of a host's table that is not empty; -1: it is in no partition. */
int nupa_pkey_first(const struct nupa_fabric *fabric, uint32_t host);
/* A value that changes with a host's table. */
uint64_t nupa_pkey_sum(const struct nupa_fabric *fabric, uint32_t host);
/* "0xffff, 0x8012", at most NUPA_PKEYS_TEXT_BYTES; "none": *text*. */
#define NUPA_PKEYS_TEXT_BYTES 80u
const char *nupa_pkeys_named(const struct nupa_fabric *fabric, uint32_t host, char *text);
/* Counts a message for a host that its partitions kept off, and that its sender did not even send:
 * an adapter counts it where it arrives. */
void nupa_pkey_violation(struct nupa_fabric *fabric, uint32_t host);

/* cffi: begin */
/* The entry of a host's table; 0: it is empty, or there is no such entry. */
uint16_t nupa_pkey_at(const struct nupa_fabric *fabric, uint32_t host, uint32_t index);
/* Where a host's table has a P_Key that matches; -1: nowhere. */
int nupa_pkey_find(const struct nupa_fabric *fabric, uint32_t host, uint16_t pkey);
/* The first entry of a host's table that matches one of the peer's; -1: they share no partition. */
int nupa_pkey_shared(const struct nupa_fabric *fabric, uint32_t host, uint32_t peer);
/* Stores n entries of a host's table from *first* on.  All attachments are told; what they do with
 * QPs whose entry has changed: engine/qp/pkey.c.  -EINVAL: outside the table; -EREMOTE,
 * -EOPNOTSUPP: see nupa_fabric_may_command.  The caller holds the control lock. */
int nupa_pkey_table_set(struct nupa_fabric *fabric, uint32_t host, uint32_t first,
			const uint16_t *pkeys, uint32_t n, char *why, size_t why_bytes);
/* cffi: end */

#endif
