/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * nupa_core: the segment, and this kernel's attachment to a host of it. */
#ifndef NUPA_KERNEL_CORE_H
#define NUPA_KERNEL_CORE_H

#include "kernel/host/host.h"

/* The context of the attachment; there while nupa_core is loaded. */
struct ibv_context *nupa_core_context(void);
/* Its user from now on; NULL: none. */
void nupa_core_set_user(const struct nupa_kernel_user *user);

#endif
