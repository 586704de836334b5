/* SPDX-License-Identifier: BSD-3-Clause
 * The clock: clock.h. */
#include "base/clock.h"

#include <time.h>

uint64_t nupa_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
