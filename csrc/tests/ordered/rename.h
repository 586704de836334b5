/* SPDX-License-Identifier: BSD-3-Clause
 * In front of engine/express.c, which is compiled once more so that the test sees its accesses. */
#ifndef NUPA_TESTS_RENAME_H
#define NUPA_TESTS_RENAME_H

#include "base/guard.h"
#include "tests/ordered/weak.h"

/* The compiler's pass does not see assembly: the copy's loads are announced. */
static inline bool ordered_copy_small(void *to, const void *from, uint64_t bytes)
{
	weak_load_plain(from, bytes);
	return nupa_guard_copy_small(to, from, bytes);
}

#define nupa_guard_copy_small ordered_copy_small
#define nupa_express_drain ordered_express_drain

#endif
