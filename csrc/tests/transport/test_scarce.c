/* SPDX-License-Identifier: BSD-3-Clause
 * Where memory for refusals is scarce, as in a kernel, messages stay in their rings until there is
 * some: none is lost, and no refusal is made without a block. */
#include "engine/device/device.h"
#include "tests/support/target.h"
#include "tests/transport/scarce.h"

#define BLOCKS 5
#define PLENTY 1000000

int scarce_blocks = PLENTY;

static void have(int blocks)
{
	__atomic_store_n(&scarce_blocks, blocks, __ATOMIC_RELEASE);
}

/* Until there are too few for one more message. */
static void use_up(struct ibv_cq *polled)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	while (nupa_reserve_has_room()) {
		CHECK(test_now_ns() < until_ns);
		cq_expect_none(polled, MS / 10);
	}
}

/* Completes, while they are filled up again and again, as by the port's thread of a kernel. */
static void expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	struct ibv_wc wc;

	while (!nupa_poll_cq(cq, 1, &wc)) {
		CHECK(test_now_ns() < until_ns);
		have(BLOCKS);
	}
	CHECK_EQ(wc.wr_id, wr_id);
	CHECK_EQ(wc.status, status);
}

/* Many requesters whose peers are not ready: each is refused, again and again. */
TEST(more_refusals_than_blocks_wait_in_the_ring)
{
	enum { PAIRS = 24, MESSAGES = 3 };
	struct end_options options = end_options_of(NUPA_MOVER_RELAY), b_options;
	struct nupa_fabric *fabric = test_fabric();
	struct end *a[PAIRS], *b[PAIRS];

	options.timeout = 0; /* patient */
	b_options = options;
	b_options.host = 1;
	for (int i = 0; i < PAIRS; i++) {
		a[i] = end_open(fabric, &options);
		b[i] = end_open(fabric, &b_options);
		CHECK(nupa_engine_of(b[i]->context) == nupa_engine_of(b[0]->context));
		end_to_init(b[i]);
		for (uint64_t id = 0; id < MESSAGES; id++)
			end_post_recv(b[i], id, (uint32_t)id * 64, 64);
		end_connect(a[i], &b[i]->self);
	}
	have(BLOCKS);
	for (int i = 0; i < PAIRS; i++)
		for (uint64_t id = 0; id < MESSAGES; id++)
			end_start(a[i], IBV_WR_SEND, id, 0, 8);
	use_up(a[0]->send_cq);
	for (int i = 0; i < PAIRS; i++)
		end_to_rtr(b[i], &a[i]->self);
	cq_expect_none(a[0]->send_cq, 3 * MS);
	for (int i = 0; i < PAIRS; i++) {
		for (uint64_t id = 0; id < MESSAGES; id++) {
			expect(a[i]->send_cq, id, IBV_WC_SUCCESS);
			expect(b[i]->recv_cq, id, IBV_WC_SUCCESS);
		}
	}
	have(PLENTY);
	for (int i = 0; i < PAIRS; i++)
		pair_close(a[i], b[i]);
	nupa_fabric_put(fabric);
}

/* What a process sent before it died counts, also where nothing can be taken when its death is
 * noticed. */
TEST(messages_of_the_dead_wait_too)
{
	enum { RECEIVES = 4 };
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct nupa_fabric *fabric = test_fabric();
	struct target target = target_fork(fabric);
	struct end *end;

	options.host = 1;
	target_open(&target, fabric, &options);
	options.host = 0;
	end = end_open(fabric, &options);
	end_connect(end, &target.address);
	for (uint64_t id = 0; id < RECEIVES; id++)
		end_post_recv(end, id, (uint32_t)id * 64, 64);
	target_connect(&target, &end->self);
	have(0);
	target_for_ever(&target, TARGET_SENDS, 8);
	cq_expect_none(end->recv_cq, 20 * MS);
	target_kill(&target);
	cq_expect_none(end->recv_cq, 20 * MS);
	for (uint64_t id = 0; id < RECEIVES; id++)
		expect(end->recv_cq, id, IBV_WC_SUCCESS);
	have(PLENTY);
	end_close(end);
	nupa_fabric_put(fabric);
}
