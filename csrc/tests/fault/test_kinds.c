/* SPDX-License-Identifier: BSD-3-Clause
 * Faults, one kind at a time: the effect of each on messages and counters.  RC notices nothing of
 * those that a requester can make good. */
#include "tests/support/faults.h"

#include <string.h>

/* --- RC is as without ---------------------------------------------------------------- */

#define SLOT_BYTES 40000u /* in parts: TEST_DMA_BYTES */

static void send_all(struct end *a, struct end *b, uint32_t n, uint32_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		pattern_fill(a->memory, bytes, i);
		end_post_recv(b, i, 0, bytes);
		end_start(a, IBV_WR_SEND, i, 0, bytes);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(cq_expect(b->recv_cq, i, IBV_WC_SUCCESS).byte_len, bytes);
		CHECK_PATTERN(b->memory, bytes, i);
	}
}

static void write_and_read_all(struct end *a, struct end *b, uint32_t n, uint32_t bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		pattern_fill(a->memory, bytes, i);
		end_start(a, IBV_WR_RDMA_WRITE, 1, 0, bytes);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory, bytes, i);
		memset(a->memory, 0, bytes);
		end_start(a, IBV_WR_RDMA_READ, 2, 0, bytes);
		cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
		CHECK_PATTERN(a->memory, bytes, i);
	}
}

static void add_all(struct end *a, struct end *b, uint32_t n)
{
	uint64_t *target = (uint64_t *)(void *)b->memory, *found = (uint64_t *)(void *)a->memory;

	*target = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct request request = request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8);

		request.wr.wr.atomic.compare_add = 3;
		end_post(a, &request);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(*found, i * 3);
	}
	CHECK_EQ(*target, n * 3);
}

static void all_operations(struct end *a, struct end *b)
{
	send_all(a, b, 20, 8);
	send_all(a, b, 10, SLOT_BYTES);
	write_and_read_all(a, b, 10, 8);
	write_and_read_all(a, b, 5, SLOT_BYTES);
	add_all(a, b, 30);
}

static void rc_under(const struct nupa_fault_info *fault)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(12); /* 17 ms */
	struct end *a, *b;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	id = fault_add(fabric, fault);
	all_operations(a, b);
	CHECK(fault_get(fabric, id).hits > 0);
	CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	all_operations(a, b);
	fabric_close(fabric, a, b);
}

TEST(messages_that_are_dropped_come_again)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0.05);

	rc_under(&fault);
}

TEST(duplicates_are_executed_once)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DUPLICATE, 1);

	rc_under(&fault);
}

TEST(messages_out_of_order_are_put_in_order)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_REORDER, 0.3);

	fault.duration_ns = 100000;
	rc_under(&fault);
}

TEST(delayed_messages_arrive)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DELAY, 0.3);

	fault.duration_ns = 200000;
	rc_under(&fault);
}

TEST(corrupt_messages_are_sent_again_by_the_link)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_CORRUPT, 0.5);

	rc_under(&fault);
}

TEST(a_slow_link_is_slow_and_no_more)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_BANDWIDTH, 1);

	fault.bytes_per_s = 20000000;
	rc_under(&fault);
}

/* --- one message lost ---------------------------------------------------------------- */

TEST(a_send_whose_acknowledgement_is_lost_is_received_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(14);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	end_post_recv(b, 1, 0, 100);
	end_post_recv(b, 2, 0, 100);
	fault_lose(fabric, 1);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect_none(b->recv_cq, 3 * MS);
	CHECK_EQ(fault_hw(fabric, 0).fault_dropped, 1);
	CHECK(fault_hw(fabric, 0).local_ack_timeout_err >= 1);
	CHECK(fault_hw(fabric, 1).duplicate_request >= 1);
	fabric_close(fabric, a, b);
}

TEST(a_request_behind_a_lost_one_brings_it_back_at_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(31); /* hours */
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < 3; i++)
		end_post_recv(b, i, i * 4096, 4096);
	fault_lose(fabric, 0);
	for (uint32_t i = 0; i < 3; i++) {
		pattern_fill(a->memory + i * 4096, 4096, i);
		end_start(a, IBV_WR_SEND, i, i * 4096, 4096);
	}
	for (uint32_t i = 0; i < 3; i++) {
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory + i * 4096, 4096, i);
	}
	CHECK_EQ(fault_hw(fabric, 0).packet_seq_err, 1);
	CHECK_EQ(fault_hw(fabric, 0).local_ack_timeout_err, 0);
	CHECK(fault_hw(fabric, 1).rx_out_of_sequence >= 1);
	fabric_close(fabric, a, b);
}

TEST(a_lost_part_of_a_read_is_asked_for_at_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(31);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	pattern_fill(b->memory, SLOT_BYTES, 3);
	fault_lose(fabric, 2); /* the request, one part, this one, the last */
	end_start(a, IBV_WR_RDMA_READ, 1, 0, SLOT_BYTES);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(a->memory, SLOT_BYTES, 3);
	CHECK_EQ(fault_hw(fabric, 0).packet_seq_err, 1);
	CHECK_EQ(fault_hw(fabric, 1).duplicate_request, 1);
	fabric_close(fabric, a, b);
}

TEST(an_atomic_whose_answer_is_lost_is_executed_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(12);
	struct end *a, *b;
	struct request request;

	pair_open(fabric, &options, &a, &b);
	*(uint64_t *)(void *)b->memory = 40;
	fault_lose(fabric, 1);
	request = request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8);
	request.wr.wr.atomic.compare_add = 2;
	end_post(a, &request);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(*(uint64_t *)(void *)a->memory, 40);
	CHECK_EQ(*(uint64_t *)(void *)b->memory, 42);
	CHECK(fault_hw(fabric, 1).duplicate_request >= 1);
	fabric_close(fabric, a, b);
}

TEST(a_requester_that_hears_nothing_gives_up_after_its_retries)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);
	struct end_options options = fault_options(8);
	struct end *a, *b;

	options.retry_cnt = 2;
	pair_open(fabric, &options, &a, &b);
	fault_add(fabric, &fault);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	end_start(a, IBV_WR_RDMA_READ, 2, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(a), IBV_QPS_ERR);
	CHECK_EQ(fault_hw(fabric, 0).local_ack_timeout_err, 3);
	CHECK_EQ(fault_hw(fabric, 1).fault_dropped, 2 * 3);
	fabric_close(fabric, a, b);
}

/* 256 parts an operation, of which one in twenty is hit: never all of them in a row get through.
 * The same one gets lost in all its tries (request or first part: 0.0975 each) once in 10^8. */
TEST(long_messages_go_on_where_they_stopped)
{
	enum { BYTES = 1u << 20 };
	const uint32_t kinds[] = { NUPA_FAULT_DROP, NUPA_FAULT_REORDER };

	for (uint32_t i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct nupa_fault_info fault = fault_of(kinds[i], 0.05);
		struct end_options options = fault_options(12);
		struct end *a, *b;

		pair_open(fabric, &options, &a, &b);
		fault.duration_ns = 100000;
		fault_add(fabric, &fault);
		send_all(a, b, 1, BYTES);
		write_and_read_all(a, b, 1, BYTES);
		CHECK(fault_hw(fabric, 0).packet_seq_err > 8); /* more than there are retries */
		fabric_close(fabric, a, b);
	}
}

/* --- held messages ------------------------------------------------------------------- */

TEST(held_messages_go_on_in_order_when_the_fault_is_cleared)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DELAY, 1);
	struct end_options options = fault_options(31);
	struct end *a, *b;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	fault.duration_ns = 3600000 * MS;
	id = fault_add(fabric, &fault);
	for (uint32_t i = 0; i < 10; i++) {
		end_post_recv(b, i, i * 100, 100);
		end_start(a, IBV_WR_SEND, i, 0, 100);
	}
	cq_expect_none(b->recv_cq, 5 * MS);
	CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	for (uint32_t i = 0; i < 10; i++) {
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	CHECK_EQ(fault_hw(fabric, 0).packet_seq_err + fault_hw(fabric, 0).local_ack_timeout_err, 0);
	fabric_close(fabric, a, b);
}

TEST(messages_behind_a_delayed_one_wait)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DELAY, 1);
	struct end_options options = fault_options(31);
	struct end *a, *b;
	uint64_t start_ns;

	pair_open(fabric, &options, &a, &b);
	fault.duration_ns = 5 * MS;
	fault.count = 1;
	fault_add(fabric, &fault);
	start_ns = test_now_ns();
	for (uint32_t i = 0; i < 5; i++) {
		end_post_recv(b, i, 0, 100);
		end_start(a, IBV_WR_SEND, i, 0, 100);
	}
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	CHECK(test_now_ns() - start_ns >= fault.duration_ns);
	for (uint32_t i = 1; i < 5; i++)
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	CHECK_EQ(fault_hw(fabric, 1).fault_delayed, 1);
	CHECK_EQ(fault_hw(fabric, 1).rx_out_of_sequence, 0);
	fabric_close(fabric, a, b);
}

TEST(reorder_lets_the_next_message_pass)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_REORDER, 1);
	struct end_options options = fault_options(31);
	struct end *a, *b;

	options.type = IBV_QPT_UD;
	pair_open(fabric, &options, &a, &b);
	fault.duration_ns = 3600000 * MS;
	fault.count = 1;
	fault_add(fabric, &fault);
	for (uint32_t i = 0; i < 3; i++) {
		pattern_fill(a->memory + i * 128, 100, i);
		end_post_recv(b, i, i * 256, 256);
		end_start(a, IBV_WR_SEND, i, i * 128, 100);
	}
	for (uint32_t i = 0; i < 3; i++)
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory + 40, 100, 1);
	CHECK_PATTERN(b->memory + 256 + 40, 100, 0);
	CHECK_PATTERN(b->memory + 512 + 40, 100, 2);
	fabric_close(fabric, a, b);
}

TEST(a_link_gives_as_much_as_its_bandwidth)
{
	enum { BYTES = 400000 };
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_BANDWIDTH, 1);
	struct end_options options = fault_options(14); /* 67 ms, a third of what it takes */
	struct end *a, *b;
	uint64_t start_ns, ns;

	pair_open(fabric, &options, &a, &b);
	fault.bytes_per_s = 2000000;
	fault_add(fabric, &fault);
	start_ns = test_now_ns();
	pattern_fill(a->memory, BYTES, 1);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, BYTES);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	ns = test_now_ns() - start_ns;
	CHECK_PATTERN(b->memory, BYTES, 1);
	CHECK(ns >= 175 * MS); /* the last part waits for those before it alone */
	/* Messages that wait in a ring are not lost. */
	CHECK_EQ(fault_hw(fabric, 1).duplicate_request, 0);
	fabric_close(fabric, a, b);
}
