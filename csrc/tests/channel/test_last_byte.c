/* SPDX-License-Identifier: BSD-3-Clause
 * Programs poll the last byte of a WRITE: when it is there, all of it is, by each mover. */
#include "base/atomics.h"
#include "tests/support/promoted.h"
#include "tests/support/target.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define ROUNDS 20000u
#define TIME_NS UINT64_C(300000000) /* for each shape */

struct shape {
	uint32_t offset, bytes, pieces;
};

/* Within a line and across two, of whole pages, of several parts of a message. */
static const struct shape shapes[] = {
	{ 0, 8, 1 },    { 60, 4, 1 },   { 59, 7, 1 },    { 56, 24, 1 },  { 61, 100, 1 },
	{ 0, 4096, 1 }, { 4, 4096, 1 }, { 3, 10000, 1 }, { 0, 4096, 3 }, { 7, 50000, 2 },
};

struct watch {
	const uint8_t *end;
	uint32_t bytes;
	uint64_t wanted, seen; /* rounds; the pattern is the low byte of a round */
	uint64_t torn;
	bool stop;
};

/* First a byte of each line, at once: what is missing comes soon. */
static bool is_whole(const struct watch *watch, uint8_t value)
{
	const uint8_t *from = watch->end - watch->bytes;

	for (uint32_t i = 0; i < watch->bytes; i += 32)
		if (nupa_load_relaxed(from + i) != value)
			return false;
	for (uint32_t i = 0; i < watch->bytes; i++)
		if (nupa_load_relaxed(from + i) != value)
			return false;
	return true;
}

static void *watch_last_byte(void *argument)
{
	struct watch *watch = argument;
	uint64_t round = 1;

	for (uint32_t spins = 1; !nupa_load_relaxed(&watch->stop); spins++) {
		if (spins % 1024 == 0)
			sched_yield(); /* one core may be all there is */
		if (nupa_load_acquire(&watch->wanted) != round ||
		    nupa_load_acquire(watch->end - 1) != (uint8_t)round)
			continue;
		watch->torn += !is_whole(watch, (uint8_t)round);
		nupa_store_release(&watch->seen, round++);
	}
	return NULL;
}

static void write_once(struct end *from, const struct shape *shape)
{
	struct request request =
	    request_of(from, IBV_WR_RDMA_WRITE, 1, 0, shape->bytes / shape->pieces);
	uint32_t rest = shape->bytes;

	request.wr.num_sge = (int)shape->pieces;
	for (uint32_t i = 0; i < shape->pieces; i++) {
		uint32_t bytes = i + 1 < shape->pieces ? shape->bytes / shape->pieces : rest;

		request.sge[i] = request.sge[0];
		request.sge[i].addr = (uintptr_t)from->memory + (shape->bytes - rest);
		request.sge[i].length = bytes;
		rest -= bytes;
	}
	request.wr.wr.rdma.remote_addr += shape->offset;
	end_post(from, &request);
	cq_expect(from->send_cq, 1, IBV_WC_SUCCESS);
}

static void hammer(struct end *from, struct end *to, const struct shape *shape)
{
	struct watch watch = { .end = to->memory + shape->offset + shape->bytes,
			       .bytes = shape->bytes };
	uint64_t until_ns = test_now_ns() + TIME_NS;
	uint64_t deadline_ns = until_ns + WAIT_NS;
	pthread_t thread;

	memset(to->memory, 0, shape->offset + shape->bytes);
	CHECK_EQ(pthread_create(&thread, NULL, watch_last_byte, &watch), 0);
	for (uint64_t round = 1; round <= ROUNDS && test_now_ns() < until_ns; round++) {
		memset(from->memory, (int)(round & 0xff), shape->bytes);
		nupa_store_release(&watch.wanted, round);
		write_once(from, shape);
		while (nupa_load_acquire(&watch.seen) != round) {
			CHECK(test_now_ns() < deadline_ns);
			sched_yield();
		}
	}
	nupa_store_relaxed(&watch.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(watch.torn, 0);
}

static void hammer_by(enum nupa_mover mover)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(mover);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	for (unsigned int i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		hammer(a, b, &shapes[i]);
	fabric_close(fabric, a, b);
}

TEST(the_last_byte_is_last_within_a_process)
{
	hammer_by(NUPA_MOVER_LOCAL);
}

TEST(the_last_byte_is_last_by_cma)
{
	if (test_cma_works())
		hammer_by(NUPA_MOVER_CMA);
}

TEST(the_last_byte_is_last_by_relay)
{
	hammer_by(NUPA_MOVER_RELAY);
}

TEST(the_last_byte_is_last_by_shared_pages)
{
	if (promotion_works())
		hammer_by(NUPA_MOVER_SHARED);
}
