/* SPDX-License-Identifier: BSD-3-Clause
 * A gettimeofday that runs 20 times as fast, to be preloaded.  By gettimeofday perftest times the
 * CPU's clock, for a quarter of a second for each line that it prints.  Most of the time of its
 * tests would be spent there. */
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

#define TIMES 20

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec real;
	long long us;

	(void)zone;
	if (clock_gettime(CLOCK_MONOTONIC, &real))
		return -1;
	us = (real.tv_sec * 1000000LL + real.tv_nsec / 1000) * TIMES;
	now->tv_sec = us / 1000000;
	now->tv_usec = us % 1000000;
	return 0;
}
