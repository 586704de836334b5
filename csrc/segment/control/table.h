/* SPDX-License-Identifier: BSD-3-Clause
 * The control table of a fabric: its parts, and rows read and written whole. */
#ifndef NUPA_CONTROL_TABLE_H
#define NUPA_CONTROL_TABLE_H

#include "segment/layout/control_layout.h"
#include "segment/segment.h"

struct nupa_control {
	struct nupa_control_header *header;
	struct nupa_tenant_row *tenants;
	struct nupa_partition_row *partitions;
	struct nupa_member_row *members;
	struct nupa_event_row *events;
	uint32_t n_tenants, n_partitions, n_members, n_events;
	uint32_t members_used; /* rows that may be in use, checked */
};

/* The table; make: also if there is none yet.  -ENOENT: there is none; -EOPNOTSUPP: SOFTWARE;
 * -ENOSPC: the file system is full. */
int nupa_control(struct nupa_fabric *fabric, bool make, struct nupa_control *t);
/* The same for a change of *what*, with the reason of a refusal: see nupa_fabric_may_command. */
int nupa_control_change(struct nupa_fabric *fabric, const char *what, struct nupa_control *t,
			char *why, size_t why_bytes);

/* A body of whole words behind its stamp: one that was stored at once.  Nobody else writes. */
void nupa_row_store(uint64_t *stamp, void *body, const void *from, size_t bytes);
/* False: the row is free, or its writer died within a change. */
bool nupa_row_load(const uint64_t *stamp, const void *body, void *to, size_t bytes);

/* 1 to 31 letters, digits, '_', '.' and '-', the first one no '.' or '-'. */
bool nupa_control_name_ok(const char name[NUPA_NAME_BYTES]);
int nupa_control_check_name(const char *what, const char name[NUPA_NAME_BYTES], char *why,
			    size_t why_bytes);

#endif
