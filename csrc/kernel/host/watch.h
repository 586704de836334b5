/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * watch.c: runs the engines while the processor has nothing else to do. */
#ifndef NUPA_KERNEL_WATCH_H
#define NUPA_KERNEL_WATCH_H

#include <stdint.h>

/* *run* is called again and again for a while after traffic.  0 or -errno. */
int nupa_watch_start(void (*run)(void));
void nupa_watch_stop(void);
void nupa_watch_traffic(uint64_t now_ns);

/* How long the port's thread, which has handled so many messages, may nap; 0: it looks again. */
struct nupa_naps {
	uint64_t latest_ns;
	uint64_t spin_until_ns;
};
uint64_t nupa_watch_nap(struct nupa_naps *naps, uint32_t handled);

#endif
