/* SPDX-License-Identifier: BSD-3-Clause
 * Memory and tenants: which hosts may map a region of the pool, and which may own one.
 *
 * A region belongs to its owner's tenant.  A tag that is a device in partitions (control.h) is for
 * the hosts of their tenants instead. */
#ifndef NUPA_CONTROL_SHARE_H
#define NUPA_CONTROL_SHARE_H

#include "segment/segment.h"

/* cffi: begin */
/* Whether a host may map memory of the host *owner* that has this tag. */
bool nupa_tenants_share(struct nupa_fabric *fabric, uint32_t host, uint32_t owner, const char *tag);
/* Whether memory with this tag may be made for a host: a host of no tenant may have any. */
bool nupa_tenant_may_own(struct nupa_fabric *fabric, uint32_t host, const char *tag);
/* cffi: end */

#endif
