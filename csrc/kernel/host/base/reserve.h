/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * In the place of csrc/base/reserve.h: where an atomic allocation fails, one of the blocks that the
 * port's thread keeps. */
#ifndef NUPA_RESERVE_H
#define NUPA_RESERVE_H

#include <linux/types.h>

#define NUPA_RESERVE_BLOCKS 1024u
#define NUPA_RESERVE_BLOCK_BYTES 64u

void *nupa_calloc_reserved(size_t bytes);

/* Fills it up, and waits for memory: 0 or -ENOMEM.  Between two turns of the engine. */
int nupa_reserve_fill(void);
void nupa_reserve_free(void);

#endif
