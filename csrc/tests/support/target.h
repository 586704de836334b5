/* SPDX-License-Identifier: BSD-3-Clause
 * The other end of a connection, in this process or in one of its own.  The same calls tell it what
 * to do, so that a test runs both ways. */
#ifndef NUPA_TESTS_TARGET_H
#define NUPA_TESTS_TARGET_H

#include "tests/support/end.h"

#include <sys/types.h>

struct target {
	struct end *end; /* NULL: it is in another process */
	pid_t pid;
	int socket;
	struct end_address address;
};

/* Forks while this process has no threads: call it before end_open.  The child opens its end when
 * target_open tells it to. */
struct target target_fork(struct nupa_fabric *fabric);
struct target target_here(void);
void target_open(struct target *target, struct nupa_fabric *fabric,
		 const struct end_options *options);
void target_close(struct target *target);

void target_connect(struct target *target, const struct end_address *peer);
void target_to_reset(struct target *target);
void target_to_init(struct target *target);
void target_to_rtr(struct target *target, const struct end_address *peer);
void target_to_rts(struct target *target);
void target_post_recv(struct target *target, uint64_t wr_id, uint32_t offset, uint32_t length);
/* Of the CQ for receives. */
struct ibv_wc target_expect(struct target *target, uint64_t wr_id, enum ibv_wc_status status);
void target_fill(struct target *target, uint32_t offset, uint32_t length, uint32_t seed);
void target_check(struct target *target, uint32_t offset, uint32_t length, uint32_t seed);
uint64_t target_word(struct target *target, uint32_t offset);
void target_set_word(struct target *target, uint32_t offset, uint64_t value);
/* The work of a target from now on, until it is killed. */
enum target_habit {
	TARGET_POLLS,
	TARGET_SENDS,
	TARGET_WRITES,
	TARGET_READS,
	TARGET_REGISTERS,
	TARGET_RECEIVES,
	TARGET_EXITS, /* without closing anything, and without its exit handlers */
};
void target_for_ever(struct target *target, enum target_habit habit, uint32_t length);
/* Waits for one that exits. */
void target_join(struct target *target);
/* SIGSTOP, awaited, and SIGCONT. */
void target_stop(struct target *target);
void target_continue(struct target *target);
/* SIGKILL, awaited. */
void target_kill(struct target *target);

#endif
