/* SPDX-License-Identifier: BSD-3-Clause
 * Two machines in this process, for tests: a copy of the segment each, with a trunk that runs in a
 * thread.  Host 0 is on machine 0, host 1 on machine 1. */
#ifndef NUPA_TESTS_TRUNK_TWO_H
#define NUPA_TESTS_TRUNK_TWO_H

#include "tests/support/end.h"
#include "tests/trunk/loop.h"
#include "trunk/internal.h"

#include <pthread.h>

struct machine {
	struct nupa_fabric *fabric;
	struct nupa_trunk *trunk;
	pthread_t thread;
	bool runs;
};

struct two {
	struct loop *loop; /* NULL: by UCX over 127.0.0.1 */
	struct machine machines[2];
};

/* The copy of the segment that a machine has. */
struct nupa_fabric *two_fabric(uint32_t machine, uint64_t generation);
/* Both machines, not started. */
struct two *two_new(bool by_ucx);
/* A trunk that the test turns, and closes. */
void two_begin(struct two *two, uint32_t machine);
void two_start(struct two *two, uint32_t machine);
void two_stop(struct two *two, uint32_t machine);
/* The trunk's thread ends, and the test turns it; goes on. */
void two_pause(struct two *two, uint32_t machine);
void two_resume(struct two *two, uint32_t machine);
/* Until both trunks say that the other machine has that state. */
void two_await(struct two *two, enum nupa_machine_state state);
void two_free(struct two *two);
/* An end on each machine, connected. */
void two_connect(struct two *two, const struct end_options *options, struct end **a,
		 struct end **b);
/* Both machines, started and met. */
struct two *two_up(bool by_ucx);

#endif
