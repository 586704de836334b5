/* SPDX-License-Identifier: BSD-3-Clause
 * Ports that go down under traffic: within the timeout nothing is lost or doubled; beyond it the
 * connection ends. */
#include "tests/support/target.h"
#include "region/region.h"
#include "segment/slot/counters.h"

#include <string.h>

static void set_path(struct nupa_fabric *fabric, bool up)
{
	CHECK_EQ(nupa_fabric_set_port(fabric, test_fabric_port(1),
				      up ? NUPA_PORT_ACTIVE : NUPA_PORT_DOWN),
		 0);
}

TEST(a_port_that_is_down_longer_than_the_timeout_ends_the_connection)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_options_of(movers[i]);
		struct end *a, *b;
		uint64_t start_ns;

		options.timeout = 12;
		options.retry_cnt = 2;
		pair_open(fabric, &options, &a, &b);
		set_path(fabric, false);
		end_expect_event(b, IBV_EVENT_PORT_ERR);
		start_ns = test_now_ns();
		end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
		end_start(a, IBV_WR_SEND, 2, 0, 8);
		cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK(test_now_ns() - start_ns > 30 * MS);
		CHECK_EQ(b->memory[0], 0);
		set_path(fabric, true);
		end_expect_event(b, IBV_EVENT_PORT_ACTIVE);
		fabric_close(fabric, a, b);
	}
}

/* Down and up while messages flow: as many arrive as were sent, in order, each once. */
TEST(a_port_that_comes_up_in_time_loses_and_doubles_nothing)
{
	enum { MESSAGES = 400 };
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_options_of(movers[i]);
		uint64_t completed = 0, sent = 0, received = 0, posted = 0;
		uint64_t random = test_seed();
		struct end *a, *b;
		uint64_t word = 0;
		bool up = true;

		options.timeout = 20;
		pair_open(fabric, &options, &a, &b);
		while (completed < 2 * MESSAGES || received < MESSAGES) {
			struct ibv_wc wc;

			if (sent < MESSAGES && 2 * sent - completed < 20) {
				struct request fetch_add =
				    request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 65536, 8);

				memset(a->memory, (int)sent & 0xff, 64);
				fetch_add.wr.wr.atomic.compare_add = 1;
				end_start(a, IBV_WR_SEND, 0, 0, 64);
				end_post(a, &fetch_add);
				sent++;
			}
			for (; posted < MESSAGES && posted - received < 32; posted++)
				end_post_recv(b, posted, (uint32_t)posted * 64, 64);
			if (nupa_poll_cq(a->send_cq, 1, &wc) == 1) {
				CHECK_EQ(wc.status, IBV_WC_SUCCESS);
				CHECK_EQ(wc.wr_id, completed % 2);
				completed++;
			}
			if (nupa_poll_cq(b->recv_cq, 1, &wc) == 1) {
				CHECK_EQ(wc.status, IBV_WC_SUCCESS);
				CHECK_EQ(wc.wr_id, received);
				received++;
			}
			if (test_random(&random) % 50 == 0)
				set_path(fabric, up = !up);
			else if (!up && test_random(&random) % 50 < 3)
				set_path(fabric, up = true);
		}
		memcpy(&word, b->memory + 65536, sizeof(word));
		CHECK_EQ(word, MESSAGES);
		fabric_close(fabric, a, b);
	}
}

TEST(an_unreliable_connection_loses_what_it_sends_while_the_port_is_down)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_options_of(NUPA_MOVER_RELAY);
		struct nupa_flow_info flow;
		struct end *a, *b;

		options.type = types[i];
		pair_open(fabric, &options, &a, &b);
		end_post_recv(b, 7, 0, 1000);
		set_path(fabric, false);
		end_start(a, IBV_WR_SEND, 1, 0, 100);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		set_path(fabric, true);
		end_start(a, IBV_WR_SEND, 2, 0, 200);
		cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len,
			 types[i] == IBV_QPT_UD ? 240 : 200);
		CHECK_EQ(
		    nupa_fabric_flow(fabric, (uint32_t)nupa_context_slot(a->context), 1, &flow), 0);
		CHECK_EQ(flow.xmit_discards, 1);
		fabric_close(fabric, a, b);
	}
}
