/* SPDX-License-Identifier: BSD-3-Clause
 * Faults that programs notice: poison, ports that go down, completions that do not come, QPs that
 * end, messages that unreliable services lose.  All is as before when there are no faults. */
#include "engine/device/device.h"
#include "tests/support/faults.h"
#include "tests/support/target.h"
#include "region/region.h"

#include <string.h>

TEST(poisoned_data_is_a_remote_operation_error)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_POISON, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	memset(b->memory, 5, 100);
	fault_add(fabric, &fault);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_REM_OP_ERR);
	CHECK_EQ(b->memory[0], 5);
	CHECK_EQ(end_state(a), IBV_QPS_ERR);
	CHECK_EQ(end_state(b), IBV_QPS_ERR);
	CHECK_EQ(fault_hw(fabric, 1).fault_poisoned, 1);
	fabric_close(fabric, a, b);
}

TEST(a_poisoned_read_is_a_remote_operation_error)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_POISON, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	fault_add(fabric, &fault);
	end_start(a, IBV_WR_RDMA_READ, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_REM_OP_ERR);
	fabric_close(fabric, a, b);
}

TEST(stuck_completions_come_in_order_when_the_fault_is_cleared)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_STUCK, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	fault.count = 1;
	id = fault_add(fabric, &fault);
	for (uint32_t i = 0; i < 4; i++) {
		end_post_recv(b, i, 0, 100);
		end_start(a, IBV_WR_SEND, i, 0, 100);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
	cq_expect_none(a->send_cq, 5 * MS);
	CHECK_EQ(fault_hw(fabric, 0).fault_stuck, 1);
	CHECK(fault_get(fabric, id).ended);
	CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	for (uint32_t i = 0; i < 4; i++)
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(stuck_completions_come_when_their_time_is_over)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_STUCK, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;
	uint64_t start_ns;

	pair_open(fabric, &options, &a, &b);
	fault.count = 1;
	fault.duration_ns = 5 * MS;
	fault_add(fabric, &fault);
	start_ns = test_now_ns();
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK(test_now_ns() - start_ns >= fault.duration_ns);
	fabric_close(fabric, a, b);
}

/* Whether the oldest request has been acknowledged, though nothing says so. */
static bool is_done(struct end *end)
{
	struct nupa_qp *qp = container_of(end->qp, struct nupa_qp, ibv);
	bool done;

	nupa_engine_lock(qp->engine);
	done = nupa_sq_wqe(&qp->sq, qp->sq.acked)->state == NUPA_WQE_DONE;
	nupa_engine_unlock(qp->engine);
	return done;
}

TEST(stuck_completions_of_done_requests_succeed_when_the_qp_ends)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_STUCK, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	fault_add(fabric, &fault);
	end_post_recv(b, 1, 0, 100);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	do
		cq_expect_none(a->send_cq, 2 * MS);
	while (!is_done(a));
	CHECK_EQ(end_modify(a, IBV_QPS_ERR), 0);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_SEND, 2, 0, 100);
	cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	fabric_close(fabric, a, b);
}

TEST(a_killed_qp_ends_and_its_partner_gives_up)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_KILL, 1);
	struct end_options options = fault_options(8);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	fault.count = 1;
	fault_add(fabric, &fault);
	end_post_recv(b, 7, 0, 100);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	end_expect_event(b, IBV_EVENT_QP_FATAL);
	cq_expect(b->recv_cq, 7, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(b), IBV_QPS_ERR);
	cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(fault_hw(fabric, 1).fault_killed, 1);
	fabric_close(fabric, a, b);
}

TEST(a_port_that_flaps_comes_up_again)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_FLAP, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;
	uint64_t start_ns;

	pair_open(fabric, &options, &a, &b);
	fault.count = 1;
	fault.duration_ns = 10 * MS;
	fault_add(fabric, &fault);
	start_ns = test_now_ns();
	end_post_recv(b, 1, 0, 100);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	end_expect_event(a, IBV_EVENT_PORT_ERR);
	end_expect_event(a, IBV_EVENT_PORT_ACTIVE);
	CHECK(test_now_ns() - start_ns >= fault.duration_ns);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_fabric_port(fabric, fault.port)->link_downed, 1);
	CHECK_EQ(fault_hw(fabric, 1).fault_flaps, 1);
	fabric_close(fabric, a, b);
}

TEST(a_flap_that_nobody_saw_is_told_of)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(14);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	nupa_engine_lock(nupa_engine_of(a->context)); /* it cannot look meanwhile */
	CHECK_EQ(nupa_fabric_set_port(fabric, test_fabric_port(0), NUPA_PORT_DOWN), 0);
	CHECK_EQ(nupa_fabric_set_port(fabric, test_fabric_port(0), NUPA_PORT_ACTIVE), 0);
	nupa_engine_unlock(nupa_engine_of(a->context));
	end_expect_event(a, IBV_EVENT_PORT_ERR);
	end_expect_event(a, IBV_EVENT_PORT_ACTIVE);
	fabric_close(fabric, a, b);
}

TEST(a_flap_is_over_when_it_is_cleared)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_FLAP, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	fault.duration_ns = 3600000 * MS;
	id = fault_add(fabric, &fault);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	end_expect_event(a, IBV_EVENT_PORT_ERR);
	CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	end_expect_event(a, IBV_EVENT_PORT_ACTIVE);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(a_flap_ends_although_the_process_that_made_it_died)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_FLAP, 1);
	struct target target = target_fork(fabric);
	struct end_options options = fault_options(14), b_options = options;
	struct end *a;

	b_options.host = 1;
	target_open(&target, fabric, &b_options);
	a = end_open(fabric, &options);
	end_connect(a, &target.address);
	target_connect(&target, &a->self);
	fault.duration_ns = 500 * MS;
	fault_add(fabric, &fault);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	end_expect_event(a, IBV_EVENT_PORT_ERR); /* judged by the receiver */
	target_kill(&target);
	end_expect_event(a, IBV_EVENT_QP_FATAL);
	end_expect_event(a, IBV_EVENT_PORT_ACTIVE);
	end_close(a);
	nupa_fabric_put(fabric);
}

/* --- unreliable services ------------------------------------------------------------- */

/* How many of n messages of type arrive, each intact and in order. */
static uint32_t arrivals(const struct nupa_fault_info *fault, enum ibv_qp_type type, uint32_t bytes,
			 struct nupa_hw_counters *hw)
{
	enum { MESSAGES = 60 };
	const uint32_t grh = type == IBV_QPT_UD ? NUPA_GRH_BYTES : 0;
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(14);
	struct end *a, *b;
	struct ibv_wc wc;
	uint32_t arrived = 0, next = 0, id;
	uint64_t judged = MESSAGES * (bytes > TEST_DMA_BYTES / 4 ? 2 : 1);

	options.type = type;
	options.memory_bytes = 4u << 20;
	pair_open(fabric, &options, &a, &b);
	id = fault_add(fabric, fault);
	for (uint32_t i = 0; i <= MESSAGES; i++)
		end_post_recv(b, i, 2000000 + i * 32768, 32768);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct request request = request_of(a, IBV_WR_SEND_WITH_IMM, i, i * 32768, bytes);

		request.wr.imm_data = i;
		pattern_fill(a->memory + i * 32768, bytes, i);
		end_post(a, &request);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	while (fault_get(fabric, id).seen < judged)
		(void)nupa_poll_cq(b->send_cq, 1, &wc);
	CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	end_start(a, IBV_WR_SEND, 99, 0, 0); /* the last one arrives */
	do {
		wc = cq_wait(b->recv_cq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		if (!(wc.wc_flags & IBV_WC_WITH_IMM))
			break;
		CHECK(wc.imm_data >= next);
		CHECK_EQ(wc.byte_len, bytes + grh);
		CHECK_PATTERN(b->memory + 2000000 + wc.wr_id * 32768 + grh, bytes, wc.imm_data);
		next = wc.imm_data + 1;
		arrived++;
	} while (true);
	*hw = fault_hw(fabric, 1);
	fabric_close(fabric, a, b);
	return arrived;
}

TEST(datagrams_that_are_lost_are_counted)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0.3);
	struct nupa_hw_counters hw;
	uint32_t arrived = arrivals(&fault, IBV_QPT_UD, 1000, &hw);

	CHECK(hw.fault_dropped > 0);
	CHECK_EQ(arrived + hw.fault_dropped, 60);
}

TEST(poisoned_datagrams_are_lost_and_counted)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_POISON, 0.3);
	struct nupa_hw_counters hw;
	uint32_t arrived = arrivals(&fault, IBV_QPT_UD, 1000, &hw);

	CHECK(hw.fault_poisoned > 0);
	CHECK_EQ(arrived + hw.fault_poisoned, 60);
}

TEST(a_lost_part_costs_an_unreliable_connection_its_message_and_no_other)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0.2);
	struct nupa_hw_counters hw;
	uint32_t arrived = arrivals(&fault, IBV_QPT_UC, 32000, &hw); /* in two parts */

	CHECK(hw.fault_dropped > 0);
	CHECK(arrived < 60);
	CHECK(60 - arrived <= hw.fault_dropped);
}

TEST(unreliable_messages_that_are_delayed_arrive_in_order)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DELAY, 0.2);
	struct nupa_hw_counters hw;

	fault.duration_ns = 100000;
	CHECK_EQ(arrivals(&fault, IBV_QPT_UC, 32000, &hw), 60);
	CHECK_EQ(arrivals(&fault, IBV_QPT_UD, 1000, &hw), 60);
}

TEST(duplicates_and_late_comers_of_an_unreliable_connection_are_left_out)
{
	struct nupa_fault_info twice = fault_of(NUPA_FAULT_DUPLICATE, 0.5);
	struct nupa_fault_info late = fault_of(NUPA_FAULT_REORDER, 0.1);
	struct nupa_hw_counters hw;

	CHECK_EQ(arrivals(&twice, IBV_QPT_UC, 32000, &hw), 60);
	CHECK_EQ(hw.duplicate_request, hw.fault_duplicated);
	CHECK(arrivals(&late, IBV_QPT_UC, 100, &hw) < 60);
	CHECK(hw.duplicate_request > 0);
}

/* --- the fast ways ------------------------------------------------------------------- */

static bool is_fast(struct end *end)
{
	struct nupa_qp *qp = container_of(end->qp, struct nupa_qp, ibv);
	bool fast;

	nupa_engine_lock(qp->engine);
	fast = qp->steady_tx && !qp->channel->faulty &&
	       nupa_channel_may_direct(qp->engine, qp->channel, IBV_WR_RDMA_WRITE);
	nupa_engine_unlock(qp->engine);
	return fast;
}

static void be_fast(struct end *end)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	while (!is_fast(end)) {
		CHECK(test_now_ns() < deadline_ns);
		end_start(end, IBV_WR_RDMA_WRITE, 1, 0, 100);
		cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	}
}

TEST(nothing_moves_directly_while_there_is_a_fault_and_everything_after)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0);
	struct end_options options = fault_options(14);
	struct end *a, *b;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	be_fast(a);
	id = fault_add(fabric, &fault);
	for (uint32_t i = 0; i < 5; i++) {
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 100);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		CHECK(!is_fast(a));
	}
	CHECK(fault_get(fabric, id).seen >= 10); /* requests and acknowledgements */
	CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	be_fast(a);
	fabric_close(fabric, a, b);
}

TEST(a_fault_elsewhere_slows_nobody)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);
	struct end_options options = fault_options(14);
	struct end *a, *b;

	options.host = 0;
	a = end_open(fabric, &options);
	b = end_open(fabric, &options);
	end_connect(a, &b->self);
	end_connect(b, &a->self);
	fault_add(fabric, &fault);
	be_fast(a); /* both on one host: no port between them */
	fabric_close(fabric, a, b);
}
