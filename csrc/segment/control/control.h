/* SPDX-License-Identifier: BSD-3-Clause
 * Tenants, partitions and their members.  All changes: the caller holds the control lock; -EREMOTE,
 * -EOPNOTSUPP: see nupa_fabric_may_command; each posts an event.
 *
 * A host is in the partitions that its P_Key table names (control_layout.h, T3).  So what a subnet
 * manager writes there counts, too: a P_Key that has no row is listed as a partition of tenant 0,
 * "pkey-0x0012".  The default partition, 0x7fff, is always there. */
#ifndef NUPA_CONTROL_H
#define NUPA_CONTROL_H

#include "segment/layout/control_layout.h"
#include "segment/segment.h"

/* cffi: begin */
/* --- tenants ------------------------------------------------------------------------------ */

/* Adds one with a name, rate and quotas; returns its id.  -EINVAL: the name; -EEXIST: it is taken;
 * -ENOSPC: the table is full. */
int64_t nupa_tenant_add(struct nupa_fabric *fabric, const struct nupa_tenant *wish, char *why,
			size_t why_bytes);
/* Sets the rate and the quotas of the tenant of that id.  -ENOENT.  Quotas below what is used take
 * nothing away. */
int nupa_tenant_set(struct nupa_fabric *fabric, const struct nupa_tenant *wish, char *why,
		    size_t why_bytes);
/* -EBUSY: it has hosts or partitions.  force: they are released and removed first. */
int nupa_tenant_remove(struct nupa_fabric *fabric, uint32_t id, uint32_t force, char *why,
		       size_t why_bytes);
/* -ENOENT: no tenant has that id. */
int nupa_tenant_get(struct nupa_fabric *fabric, uint32_t id, struct nupa_tenant *out);
/* Tenants have ids below this. */
uint32_t nupa_tenant_ids(struct nupa_fabric *fabric);
/* Gives a host to a tenant; 0: to none.  It leaves all partitions and gets the table of a host that
 * is in none.  -EBUSY: it is another tenant's. */
int nupa_tenant_assign(struct nupa_fabric *fabric, uint32_t host, uint32_t id, char *why,
		       size_t why_bytes);
/* The tenant of a host; 0: none. */
uint32_t nupa_host_tenant(const struct nupa_fabric *fabric, uint32_t host);

/* --- partitions --------------------------------------------------------------------------- */

/* Adds one; returns its P_Key.  pkey 0: the lowest free one.  -EINVAL: name, P_Key, service level
 * or kind; -ENOENT: no such tenant; -EEXIST: the name or P_Key is taken; -EBUSY: hosts of others
 * have the P_Key in their tables; -ENOSPC. */
int64_t nupa_partition_add(struct nupa_fabric *fabric, const struct nupa_partition *wish, char *why,
			   size_t why_bytes);
/* Sets service level and rate.  -ENOENT; -EINVAL. */
int nupa_partition_set(struct nupa_fabric *fabric, const struct nupa_partition *wish, char *why,
		       size_t why_bytes);
/* Its members leave.  -ENOENT; -EINVAL: the default partition stays. */
int nupa_partition_remove(struct nupa_fabric *fabric, uint32_t pkey, char *why, size_t why_bytes);
/* By P_Key, its membership bit ignored.  -ENOENT. */
int nupa_partition_get(struct nupa_fabric *fabric, uint32_t pkey, struct nupa_partition *out);
/* Up to *max* partitions by P_Key; returns how many there are. */
uint32_t nupa_partition_list(struct nupa_fabric *fabric, struct nupa_partition *out, uint32_t max);

/* --- members ------------------------------------------------------------------------------ */

/* Joins, or changes the membership of a member.  A host's first partition takes the place of the
 * default one, unless keep_default.  -ENOENT: no such partition; -EINVAL: no such host or
 * accelerator, service level; -EPERM: the host is another tenant's; -EBUSY: the accelerator is in
 * another vPod; -ENOSPC: a table is full. */
int nupa_member_join(struct nupa_fabric *fabric, const struct nupa_member *wish,
		     uint32_t keep_default, char *why, size_t why_bytes);
/* -ENOENT: it is no member. */
int nupa_member_leave(struct nupa_fabric *fabric, const struct nupa_member *member, char *why,
		      size_t why_bytes);
/* Up to *max* members of a partition: hosts in their order, then others; returns how many. */
uint32_t nupa_member_list(struct nupa_fabric *fabric, uint32_t pkey, struct nupa_member *out,
			  uint32_t max);

/* --- newcomers: accelerators and devices that have a state ---------------------------------- */

/* Sets the state of an accelerator (index) or a device (name): kind and state of *wish*.  -EINVAL:
 * kind, number, name or state; -ENOSPC: the table is full. */
int nupa_newcomer_set(struct nupa_fabric *fabric, const struct nupa_member *wish, char *why,
		      size_t why_bytes);
/* Up to *max* newcomers in the order of their rows; returns how many there are. */
uint32_t nupa_newcomer_list(struct nupa_fabric *fabric, struct nupa_member *out, uint32_t max);
/* cffi: end */

#endif
