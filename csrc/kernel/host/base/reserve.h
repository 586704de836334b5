/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * In the place of csrc/base/reserve.h: where an atomic allocation fails, one of the blocks that the
 * port's thread keeps. */
#ifndef NUPA_RESERVE_H
#define NUPA_RESERVE_H

#include <linux/types.h>

#define NUPA_RESERVE_BLOCKS 1024u
#define NUPA_RESERVE_BLOCK_BYTES 64u
/* One of each engine, of verbs and of the network interface. */
#define NUPA_RESERVE_LEAST 2

/* Blocks that are pledged to nobody. */
extern int nupa_reserve_spare;

void *nupa_calloc_reserved(size_t bytes);

/* Whether an engine that has its lock may take one.  If not, messages stay in their rings. */
static inline bool nupa_reserve_has_room(void)
{
	return READ_ONCE(nupa_reserve_spare) >= NUPA_RESERVE_LEAST;
}

static inline bool nupa_reserve_is_full(void)
{
	return READ_ONCE(nupa_reserve_spare) >= (int)NUPA_RESERVE_BLOCKS;
}

/* Around the end of a queue pair, which may take one whatever there is.  The first waits for
 * memory. */
void nupa_reserve_pledge(void);
void nupa_reserve_redeem(void);

/* Fills it up, and waits for memory: 0 or -ENOMEM.  Between two turns of the engine. */
int nupa_reserve_fill(void);
void nupa_reserve_free(void);

#endif
