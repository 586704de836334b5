/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind control.h. */
#ifndef NUPA_CONTROL_INTERNAL_H
#define NUPA_CONTROL_INTERNAL_H

#include "segment/control/control.h"
#include "segment/control/table.h"

/* Room for what *why* adds to a message, and for a member's name. */
#define NUPA_MEMBER_NAME_BYTES 48

/* Whether a partition that was read can be one (I5). */
bool nupa_partition_row(const struct nupa_control *t, uint32_t index, struct nupa_partition *out);
bool nupa_tenant_row(const struct nupa_control *t, uint32_t index, struct nupa_tenant *out);
/* Those of members are checked with the fabric's hosts. */
bool nupa_member_row(const struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t index,
		     struct nupa_member *out);
/* The member's own row, else a free one; UINT32_MAX: all are taken. */
uint32_t nupa_member_row_for(const struct nupa_fabric *fabric, const struct nupa_control *t,
			     const struct nupa_member *member);
/* Stores a row; one that was never in use is from now on. */
void nupa_member_row_store(const struct nupa_control *t, uint32_t index,
			   const struct nupa_member *body);
/* Frees all rows of members of a partition. */
void nupa_members_forget(struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t pkey);
/* The host leaves all partitions: its table is that of a host in none. */
int nupa_host_clear_pkeys(struct nupa_fabric *fabric, uint32_t host, char *why, size_t why_bytes);
/* "host0", "accelerator 7", "device pool". */
const char *nupa_member_name(const struct nupa_member *member, char *text, size_t bytes);
static inline const char *nupa_membership_name(uint32_t full)
{
	return full ? "full" : "limited";
}

#endif
