/* SPDX-License-Identifier: BSD-3-Clause
 * The table of regions, behind the bound ports in the segment: header | rows | mappings.  Backed
 * when the first region is made (superblock.regions_backed).
 *
 *   R1  A row's claim is the only word that decides, as a slot's: owner << 32 | changes << 8 |
 *       state.  The owner is a kernel << 22 | a pid, or where there is one kernel, bits of the
 *       pid's namespace << 22.  In MAKING, CHANGING and FREEING a row has an owner, and only the
 *       owner changes it.  A process that finds the owner dead completes or undoes the change.
 *   R2  `body` changes only while the claim says so.  So a reader that finds the same claim before
 *       and after has read one body.
 *   R3  Extents that a row has carry its index (pool.c).  It is not FREE before it has none.
 *   R4  A mapping is stored before the row is looked at; a row stops to be LIVE before mappings
 *       are looked at (Dekker: both sides are seq_cst).  So no window is overlooked.
 *   R5  Likewise a port: its state is stored before mappings are looked at, and a mapping before
 *       the states of its ports. */
#ifndef NUPA_REGION_LAYOUT_H
#define NUPA_REGION_LAYOUT_H

#include "segment/layout/layout.h"

/* Beyond the public states (enum nupa_region_state); CHANGING is LIVE to others. */
#define NUPA_REGION_CHANGING 4u
#define NUPA_REGION_FREEING 5u

struct nupa_region_body {
	uint64_t id;
	uint64_t bytes;
	uint64_t start_time; /* of the owner's pid */
	uint32_t owner;      /* as a claim's; 0: the host */
	uint32_t host;
	uint32_t slot, epoch; /* of the owner's attachment; slot 0: none */
	uint32_t coherence, ways, granularity, published, orphan;
	uint32_t home; /* the host at whose switch the memory is */
	uint64_t share[4];
	char tag[32];
	uint64_t pieces[NUPA_REGION_WAYS_MAX];
};
NUPA_ASSERT_SIZE(struct nupa_region_body, 256);

struct nupa_region_row {
	uint64_t claim;  /* CAS */
	uint64_t charge; /* NUPA_CHARGE: the owner's quota; 0: none */
	uint64_t pad[6];
	NUPA_LINE_ALIGNED struct nupa_region_body body; /* the claim's owner alone writes it */
};
NUPA_ASSERT_SIZE(struct nupa_region_row, 320);
#define NUPA_CHARGE(host, extents) ((uint64_t)((host) + 1) << 32 | (extents))
#define NUPA_CHARGE_HOST(charge) ((uint32_t)((charge) >> 32) - 1)
#define NUPA_CHARGE_EXTENTS(charge) ((uint32_t)(charge))

enum nupa_mapping_state { NUPA_MAPPING_FREE, NUPA_MAPPING_TAKING, NUPA_MAPPING_OPEN };

/* The id of a place that is not a window but follows ports (nupa_region_follow). */
#define NUPA_REGION_FOLLOWER UINT64_MAX

/* A window.  claim as a row's; all else is its owner's. */
struct nupa_region_mapping {
	NUPA_LINE_ALIGNED uint64_t claim; /* CAS */
	uint64_t id;
	uint64_t start_time;
	uint32_t host;
	uint32_t slot, epoch; /* MACHINES */
	uint32_t home;        /* the region's */
	uint32_t links;       /* nupa_region_linked when it began; a follower's: the epoch heeded */
	uint32_t pad[5];
};
NUPA_ASSERT_SIZE(struct nupa_region_mapping, 64);

struct nupa_region_header {
	uint32_t epoch;          /* fetch_add: a row was revoked, or a port changed; futex */
	uint32_t let_go;         /* fetch_add: a window ended, or a follower heeds; futex */
	uint64_t serial;         /* fetch_add: regions ever made */
	uint32_t rows_limit;     /* CAS: rows that may be in use; grows only */
	uint32_t mappings_limit; /* same */
	uint64_t pad[5];
	uint64_t quota[256]; /* of each host: ~limit in bytes, so that 0 is none */
};
NUPA_ASSERT_SIZE(struct nupa_region_header, 64 + 2048);

#endif
