/* SPDX-License-Identifier: BSD-3-Clause
 * The engine's lock when it is not free: a short spin, then the core goes to the holder. */
#include "engine.h"

#define SPINS 100

void nupa_engine_lock_slow(struct nupa_engine *engine)
{
	for (;;) {
		for (int i = 0; i < SPINS; i++) {
			if (nupa_engine_trylock(engine))
				return;
			nupa_cpu_pause();
		}
		sched_yield();
	}
}
