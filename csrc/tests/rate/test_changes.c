/* SPDX-License-Identifier: BSD-3-Clause
 * Rates that change under requests, what each holds for, and requests that end while they wait. */
#include "engine/core/engine.h"
#include "tests/rate/rated.h"
#include "tests/support/faults.h"
#include "tests/support/target.h"

#include <string.h>

/* --- changes ------------------------------------------------------------------------- */

TEST(a_request_that_would_take_hours_goes_at_once_by_a_new_rate)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	uint64_t start_ns = test_now_ns();
	struct end *a, *b;

	options.timeout = 1; /* 8 us, seven times: no peer is slow */
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < 2; i++) {
		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 1);
		pattern_fill(a->memory, 100000, i);
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 100000);
		cq_expect_none(a->send_cq, 20 * MS);
		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, i ? 0 : 1000000000);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory, 100000, i);
	}
	CHECK(test_now_ns() - start_ns < WAIT_NS);
	fabric_close(fabric, a, b);
}

static struct nupa_qp *qp_of(const struct end *end)
{
	return container_of(end->qp, struct nupa_qp, ibv);
}

static void write_once(struct end *a)
{
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 64);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
}

/* The peer may not have opened its direction yet. */
static void write_until_express(struct end *a)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	while (!qp_of(a)->steady_tx) {
		CHECK(test_now_ns() < deadline_ns);
		write_once(a);
	}
}

TEST(without_a_rate_the_express_lane_is_open_again)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	write_until_express(a);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 1000000000);
	CHECK(!qp_of(a)->steady_tx && qp_of(a)->rated);
	write_once(a);
	write_once(a);
	CHECK(!qp_of(a)->steady_tx);
	CHECK_EQ(rate_get(fabric).bytes, 2 * (64 + NUPA_RATE_HEADER_BYTES));
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 0);
	CHECK(!qp_of(a)->rated);
	write_until_express(a);
	fabric_close(fabric, a, b);
}

/* --- scopes -------------------------------------------------------------------------- */

TEST(each_rate_holds_for_its_own_hosts_and_partition)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	nupa_store_relaxed(&fabric->controls[1].tenant, 0);
	rate_set(fabric, NUPA_RATE_PARTITION, 0, 0x1234, 1000000); /* another P_Key */
	CHECK(!qp_of(a)->rated && !qp_of(b)->rated);
	rate_set(fabric, NUPA_RATE_MEMBER, 1, 0x7fff, 1000000); /* READs of a fetch from there */
	CHECK(qp_of(a)->rated && qp_of(b)->rated);
	write_once(a);
	rate_set(fabric, NUPA_RATE_MEMBER, 1, 0x7fff, 0);
	rate_set(fabric, NUPA_RATE_PARTITION, 0, 0x7fff, 1000000000);
	CHECK(qp_of(a)->rated && qp_of(b)->rated);
	rate_set(fabric, NUPA_RATE_PARTITION, 0, 0x7fff, 0);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 1000000000);
	CHECK(qp_of(a)->rated && qp_of(b)->rated); /* b: what it fetches of host 0 */
	fabric_close(fabric, a, b);
}

TEST(all_rates_of_a_flow_let_it_pass)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct nupa_rate_info all[3];
	uint64_t start_ns;
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 4000000000);
	rate_set(fabric, NUPA_RATE_PARTITION, 0, 0x7fff, 50000000);
	rate_set(fabric, NUPA_RATE_MEMBER, 0, 0x7fff, 2000000000);
	start_ns = test_now_ns();
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 4u << 20);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK(test_now_ns() - start_ns >= 79 * MS); /* 84 by the slowest, less 4, and a piece */
	CHECK_EQ(nupa_rate_list(fabric, all, 3), 3);
	CHECK_EQ(all[0].bytes, all[1].bytes);
	CHECK_EQ(all[1].bytes, all[2].bytes);
	fabric_close(fabric, a, b);
}

TEST(a_flow_that_waits_holds_no_other_back)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct end *a, *b, *c, *d;

	/* Of the same hosts and rings, but another partition. */
	nupa_store_relaxed(&fabric->controls[0].pkeys[1], 0x8012);
	nupa_store_relaxed(&fabric->controls[1].pkeys[1], 0x8012);
	pair_open(fabric, &options, &a, &b);
	pair_open(fabric, &options, &c, &d);
	qp_of(a)->attr.pkey_index = 1;
	qp_of(b)->attr.pkey_index = 1;
	rate_set(fabric, NUPA_RATE_PARTITION, 0, 0x12, 1);
	CHECK(qp_of(a)->rated && !qp_of(c)->rated);
	end_post_recv(b, 1, 0, 1u << 20);
	end_start(a, IBV_WR_SEND, 1, 0, 1u << 20);
	for (uint32_t i = 0; i < 100; i++) {
		end_post_recv(d, i, 0, 64);
		end_start(c, IBV_WR_SEND, i, 0, 64);
		cq_expect(c->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(d->recv_cq, i, IBV_WC_SUCCESS);
	}
	cq_expect_none(a->send_cq, 5 * MS);
	rate_set(fabric, NUPA_RATE_PARTITION, 0, 0x12, 0);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	pair_close(c, d);
	fabric_close(fabric, a, b);
}

TEST(a_sleeping_program_is_served_by_the_timer)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct ibv_cq *cq;
	void *context;
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 10000000);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(nupa_req_notify_cq(a->send_cq, 0), 0);
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 200000);
		CHECK_EQ(nupa_get_cq_event(a->channel, &cq, &context), 0);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		nupa_ack_cq_events(a->send_cq, 1);
	}
	fabric_close(fabric, a, b);
}

/* --- endings ------------------------------------------------------------------------- */

TEST(a_request_that_waits_is_flushed)
{
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 1);
	for (uint32_t i = 0; i < 3; i++)
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 100000);
	cq_expect_none(a->send_cq, 5 * MS);
	CHECK_EQ(end_modify(a, IBV_QPS_ERR), 0);
	for (uint32_t i = 0; i < 3; i++)
		cq_expect(a->send_cq, i, IBV_WC_WR_FLUSH_ERR);
	fabric_close(fabric, a, b);
}

TEST(a_peer_that_dies_ends_a_request_that_waits_for_its_rate)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND };

	for (uint32_t i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = rated_fabric();
		struct end_options options = rated_options(IBV_QPT_RC), theirs = options;
		struct target target = target_fork(fabric);
		struct end *a;

		theirs.host = 1;
		target_open(&target, fabric, &theirs);
		a = end_open(fabric, &options);
		target_connect(&target, &a->self);
		end_connect(a, &target.address);
		target_post_recv(&target, 1, 0, 100000);
		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 1);
		end_start(a, opcodes[i], 1, 0, 100000);
		cq_expect_none(a->send_cq, 5 * MS);
		target_kill(&target);
		cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		end_close(a);
		nupa_fabric_put(fabric);
	}
}

TEST(what_is_lost_under_a_rate_comes_again)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_SEND };
	struct nupa_fabric *fabric = rated_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0.05);
	struct end_options options = rated_options(IBV_QPT_RC);
	struct end *a, *b;

	options.timeout = 8; /* 1 ms */
	pair_open(fabric, &options, &a, &b);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 50000000);
	for (uint32_t i = 0; i < 6; i++) {
		enum ibv_wr_opcode opcode = opcodes[i % 3];
		struct end *from = opcode == IBV_WR_RDMA_READ ? b : a, *to = from == a ? b : a;

		if (i == 3) /* the first three begin directly, where they can */
			fault_add(fabric, &fault);
		pattern_fill(from->memory, 500000, i);
		memset(to->memory, 0, 500000);
		if (opcode == IBV_WR_SEND)
			end_post_recv(b, i, 0, 500000);
		end_start(a, opcode, i, 0, 500000);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		if (opcode == IBV_WR_SEND)
			cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(to->memory, 500000, i);
	}
	fabric_close(fabric, a, b);
}

TEST(a_fault_in_the_midst_of_a_direct_copy_moves_it_to_messages)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	for (uint32_t i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = rated_fabric();
		struct nupa_fault_info fault = fault_of(NUPA_FAULT_DELAY, 1);
		struct end_options options = rated_options(IBV_QPT_RC);
		struct end *a, *b, *from, *to;

		pair_open(fabric, &options, &a, &b);
		from = i ? b : a;
		to = i ? a : b;
		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 20000000);
		pattern_fill(from->memory, 1u << 20, i);
		end_start(a, opcodes[i], 1, 0, 1u << 20); /* 52 ms */
		cq_expect_none(a->send_cq, 10 * MS);
		fault_add(fabric, &fault);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		CHECK_PATTERN(to->memory, 1u << 20, i);
		fabric_close(fabric, a, b);
	}
}
