/* SPDX-License-Identifier: BSD-3-Clause
 * The control table, behind the table of regions in the segment: header | tenants | partitions |
 * members | events.  Backed when its first row or event is written (superblock.control_backed).
 *
 *   T1  Rows of tenants, partitions and members have one writer, the holder of the control lock.
 *       A row's stamp is odd while it changes, so that a reader sees one body or looks again.
 *   T2  A row whose first word is 0 is free.
 *   T3  P_Key tables (nupa_host_control) say which hosts are in a partition.  A host's row of
 *       members only adds what a P_Key cannot say: rate and service level.
 *   T4  An event has many writers.  Each takes a number (header.events), clears the row's seq,
 *       stores the body with its check, and seq last.  A writer that is overtaken by a whole ring
 *       leaves a row whose check fails.
 *   T5  A newcomer is an accelerator or a device that has a state.  Its row of members has the
 * P_Key NUPA_PKEY_NEWCOMER, which no partition has, and so does not depend on memberships. */
#ifndef NUPA_CONTROL_LAYOUT_H
#define NUPA_CONTROL_LAYOUT_H

#include "segment/layout/layout.h"

/* cffi: begin */
/* Limits of a tenant. */
enum nupa_quota_kind {
	NUPA_QUOTA_QPS,
	NUPA_QUOTA_MRS,
	NUPA_QUOTA_REGISTERED_BYTES,
	NUPA_QUOTA_POOL_BYTES,
	NUPA_QUOTA_ATTACHMENTS,
	NUPA_QUOTA_KINDS,
};

struct nupa_tenant {
	uint32_t id; /* from 1 */
	uint32_t reserved;
	char name[32];
	uint64_t rate;     /* bytes a second; 0: no limit */
	uint64_t quota[5]; /* by enum nupa_quota_kind; 0: no limit */
};

enum nupa_partition_kind { NUPA_PARTITION_PLAIN, NUPA_PARTITION_VPOD };

struct nupa_partition {
	uint32_t pkey; /* 0x0001..0x7fff, without the membership bit */
	uint32_t tenant;
	uint8_t kind; /* enum nupa_partition_kind */
	uint8_t service_level;
	uint8_t managed; /* by a subnet manager: P_Key tables have it, the model does not */
	uint8_t reserved[5];
	char name[32];
	uint64_t rate;
};

enum { NUPA_SERVICE_LEVELS = 16 };    /* IBTA 7.6.5 */
enum { NUPA_PKEY_NEWCOMER = 0x8000 }; /* T5 */
enum nupa_member_kind { NUPA_MEMBER_HOST = 1, NUPA_MEMBER_ACCELERATOR, NUPA_MEMBER_DEVICE };

struct nupa_member {
	uint32_t pkey;
	uint8_t kind; /* enum nupa_member_kind */
	uint8_t full;
	uint8_t service_level;
	uint8_t state;  /* enum nupa_host_state; of a newcomer's row (T5) */
	uint32_t index; /* of the host; the accelerator's UALink id */
	uint32_t reserved1;
	uint64_t rate;
	char name[32]; /* of a host or device */
};

enum nupa_severity { NUPA_SEVERITY_OK, NUPA_SEVERITY_WARNING, NUPA_SEVERITY_CRITICAL };

struct nupa_control_event {
	uint64_t seq;     /* from 1 */
	uint64_t time_ns; /* CLOCK_REALTIME */
	uint32_t severity;
	uint32_t reserved;
	char kind[24];
	char subject[64];
	char text[136];
};
/* cffi: end */

struct nupa_tenant_row {
	uint64_t stamp;
	struct nupa_tenant body;
	uint64_t refused_ns[NUPA_QUOTA_KINDS]; /* CAS: when a refusal was last an event */
	uint64_t pad[7];
};
NUPA_ASSERT_SIZE(struct nupa_tenant_row, 192);

struct nupa_partition_row {
	uint64_t stamp;
	struct nupa_partition body;
};
NUPA_ASSERT_SIZE(struct nupa_partition_row, 64);

struct nupa_member_row {
	uint64_t stamp;
	struct nupa_member body;
};
NUPA_ASSERT_SIZE(struct nupa_member_row, 64);

struct nupa_event_row {
	uint64_t check; /* of the body with its seq */
	struct nupa_control_event body;
};
NUPA_ASSERT_SIZE(struct nupa_event_row, 256);

struct nupa_control_header {
	uint64_t events;     /* fetch_add: numbers given out */
	uint32_t event_bell; /* fetch_add: an event was stored; futex */
	uint32_t members;    /* rows of members that were ever in use; grows only */
	uint64_t pad[6];
};
NUPA_ASSERT_SIZE(struct nupa_control_header, 64);

#endif
