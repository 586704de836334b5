/* SPDX-License-Identifier: BSD-3-Clause
 * Two machines and the trunk between them: programs do what they do on one machine. */
#include "tests/trunk/two.h"

#include <string.h>

#define SMALL_BYTES 8u
#define LARGE_BYTES 200000u /* several times the DMA ring */

static void send_one(struct end *from, struct end *to, uint32_t bytes, uint32_t seed)
{
	pattern_fill(from->memory, bytes, seed);
	memset(to->memory, 0, bytes);
	end_post_recv(to, seed, 0, bytes);
	end_start(from, IBV_WR_SEND, seed, 0, bytes);
	CHECK_EQ(cq_expect(to->recv_cq, seed, IBV_WC_SUCCESS).byte_len, bytes);
	cq_expect(from->send_cq, seed, IBV_WC_SUCCESS);
	CHECK_PATTERN(to->memory, bytes, seed);
}

static void converse(struct end *a, struct end *b)
{
	for (uint32_t i = 1; i <= 200; i++) { /* three laps of the ring */
		send_one(a, b, SMALL_BYTES, i);
		send_one(b, a, SMALL_BYTES, i);
	}
	for (uint32_t i = 1; i <= 5; i++) {
		send_one(a, b, LARGE_BYTES, i);
		send_one(b, a, LARGE_BYTES, i);
	}
}

static void reach_into_memory(struct end *a, struct end *b)
{
	pattern_fill(a->memory, LARGE_BYTES, 7);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, LARGE_BYTES);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory, LARGE_BYTES, 7);
	pattern_fill(b->memory, LARGE_BYTES, 8);
	end_start(a, IBV_WR_RDMA_READ, 2, 0, LARGE_BYTES);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_PATTERN(a->memory, LARGE_BYTES, 8);
}

static void work(bool by_ucx)
{
	struct two *two = two_up(by_ucx);
	struct end *a, *b;

	two_connect(two, &end_defaults, &a, &b);
	converse(a, b);
	reach_into_memory(a, b);
	pair_close(a, b);
	two_free(two);
}

TEST(messages_pass_between_two_machines)
{
	work(false);
}

TEST(messages_pass_between_two_machines_by_ucx)
{
	work(true);
}
