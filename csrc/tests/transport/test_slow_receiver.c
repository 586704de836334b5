/* SPDX-License-Identifier: BSD-3-Clause
 * UC and UD messages wait for a slow receiver as long as it has completions to poll. */
#include "tests/support/target.h"

#define HASTE 40u /* messages, ten times what is posted for them */

/* Whether all messages came, in order, to a receiver that posts one receive for each it polls. */
static bool all_come_to_a_slow_receiver(struct end *a, struct end *b)
{
	uint64_t since_ns = test_now_ns();
	bool all = true;

	for (uint64_t i = 0; i < HASTE / 10; i++)
		end_post_recv(b, i, 0, 64);
	for (uint64_t i = 0; i < HASTE; i++)
		end_start(a, IBV_WR_SEND, i, 0, 8);
	for (uint64_t i = 0; i < HASTE; i++)
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	for (uint64_t i = 0; all && i < HASTE; i++) {
		struct ibv_wc wc;

		for (int n = 0; !n && all;) {
			n = ibv_poll_cq(b->recv_cq, 1, &wc);
			all = n || test_now_ns() - since_ns < WAIT_NS / 10;
		}
		CHECK(!all || wc.wr_id == i);
		if (i < HASTE - HASTE / 10)
			end_post_recv(b, i + HASTE / 10, 0, 64);
	}
	return all;
}

TEST(unreliable_messages_wait_for_a_receiver_that_has_completions_to_poll)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD };

	for (size_t type = 0; type < 2; type++) {
		struct end_options options = end_options_of(NUPA_MOVER_NONE);
		bool all = false;

		options.type = types[type];
		/* They wait for 100 ms, which a busy machine may take. */
		for (int round = 0; !all && round < 5; round++) {
			struct nupa_fabric *fabric = test_fabric();
			struct end *a, *b;

			pair_open(fabric, &options, &a, &b);
			all = all_come_to_a_slow_receiver(a, b);
			fabric_close(fabric, a, b);
		}
		CHECK(all);
	}
}

TEST(unreliable_messages_are_lost_where_nobody_polls)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.type = IBV_QPT_UC;
	pair_open(fabric, &options, &a, &b);
	end_post_recv(b, 1, 0, 8);
	/* More than the ring has room for: the channel is not held up for good. */
	for (uint64_t i = 0; i < 4 * TEST_RING_LINES; i++) {
		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	end_post_recv(b, 2, 0, 8);
	end_start(a, IBV_WR_SEND, 1000, 0, 8);
	cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}
