/* SPDX-License-Identifier: BSD-3-Clause
 * A carrier between trunks of this process, for tests: in order, and cut when a test says so. */
#ifndef NUPA_TESTS_TRUNK_LOOP_H
#define NUPA_TESTS_TRUNK_LOOP_H

#include "trunk/carrier.h"

#include <stdint.h>

#define LOOP_MACHINES 3u

struct loop; /* the network */

struct loop *loop_new(void);
void loop_free(struct loop *loop);
/* The carrier of a machine's trunk, which frees it; again after that. */
struct nupa_carrier *loop_carrier(struct loop *loop, uint32_t machine);
/* The connections of a machine end, and none is made until it is joined. */
void loop_cut(struct loop *loop, uint32_t machine);
void loop_join(struct loop *loop, uint32_t machine);
/* How many bytes were put into windows. */
uint64_t loop_put_bytes(struct loop *loop);
/* Packets stay on their way, and come in order once they are let go. */
void loop_hold(struct loop *loop, bool held);
/* What the machine puts takes time: its packets wait, until its next progress when it is not slow
 * any more.  For a machine whose trunk does not run. */
void loop_slow(struct loop *loop, uint32_t machine, bool slow);
/* Puts a packet of these bytes into what the machine receives from the other. */
void loop_forge(struct loop *loop, uint32_t from, uint32_t to, const void *bytes, uint32_t n);

#endif
