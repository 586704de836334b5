/* SPDX-License-Identifier: BSD-3-Clause
 * Access flags as programs give them. */
#ifndef NUPA_LIBIBVERBS_ACCESS_H
#define NUPA_LIBIBVERBS_ACCESS_H

#include "abi/verbs_abi.h"

/* Hints that a device may ignore: this one does. */
static inline int required_access(int access)
{
	return access & ~IBV_ACCESS_OPTIONAL_RANGE;
}

#endif
