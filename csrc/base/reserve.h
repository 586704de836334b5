/* SPDX-License-Identifier: BSD-3-Clause
 * Small memory of those who can neither fail nor wait: zeros, and never NULL.  A process ends where
 * there is none; a kernel has some set aside (csrc/kernel/host/base/reserve.h). */
#ifndef NUPA_RESERVE_H
#define NUPA_RESERVE_H

#include <stdbool.h>
#include <stdlib.h>

static inline void *nupa_calloc_reserved(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory)
		abort();
	return memory;
}

/* Whether there is such memory for what one message may need. */
static inline bool nupa_reserve_has_room(void)
{
	return true;
}

#endif
