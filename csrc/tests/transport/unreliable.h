/* SPDX-License-Identifier: BSD-3-Clause
 * Unreliable service for tests: a pair whose receiver has no receive, and the pace of a loaded
 * machine. */
#ifndef NUPA_TESTS_UNRELIABLE_H
#define NUPA_TESTS_UNRELIABLE_H

#include "engine/device/device.h"
#include "tests/support/target.h"

#define MANY (4 * TEST_RING_LINES)

struct nupa_qp *qp_of(const struct end *end);
struct nupa_hw_counters hw_of(struct nupa_fabric *fabric, uint32_t host);

/* Messages that either end dropped. */
uint64_t lost_of(struct nupa_fabric *fabric);
struct end_options unreliable_options(enum ibv_qp_type type);

/* For tests of messages that wait 100 ms at most: an attempt that lost something is repeated if
 * this process was without a core meanwhile. */
#define CORE_LOST_NS (50 * MS)

struct pace {
	uint64_t deadline_ns, last_ns, longest_ns;
};

void pace_begin(struct pace *pace);
void pace_step(struct pace *pace);

/* Nothing is lost: true.  False: again. */
bool pace_holds(struct pace *pace, uint64_t n_lost);

struct scene {
	struct nupa_fabric *fabric;
	struct end *from, *to; /* unreliable */
	uint32_t header;       /* in front of what arrives */
};

struct scene scene_of(enum ibv_qp_type type);
void scene_close(struct scene *scene);
void send_filled(struct scene *scene, uint64_t i, uint32_t bytes);
uint32_t waiting(const struct scene *scene);

/* One that takes the only receive, whose completion stays unpolled, and one that finds none. */
void starve(struct scene *scene, uint32_t bytes);

#endif
