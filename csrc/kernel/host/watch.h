/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * watch.c: looks at the rings while the processor has nothing else to do. */
#ifndef NUPA_KERNEL_WATCH_H
#define NUPA_KERNEL_WATCH_H

#include <stdint.h>

/* *looks* is called again and again for a while after traffic.  0 or -errno. */
int nupa_watch_start(void (*looks)(void));
void nupa_watch_stop(void);
void nupa_watch_traffic(uint64_t now_ns);

#endif
