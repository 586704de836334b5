/* SPDX-License-Identifier: BSD-3-Clause
 * The requester's retries: no receive, responder not ready; how long it tries, and that nothing is
 * lost, doubled or out of order. */
#include "tests/support/target.h"
#include "region/region.h"

#include <sched.h>
#include <string.h>

TEST(with_rnr_retry_0_the_first_refusal_is_the_end)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.rnr_retry = 0;
	options.min_rnr_timer = 31; /* 491 ms: not waited for */
	pair_open(fabric, &options, &a, &b);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	end_start(a, IBV_WR_RDMA_WRITE, 2, 0, 100);
	end_start(a, IBV_WR_SEND, 3, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	cq_expect(a->send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(a), IBV_QPS_ERR);
	CHECK_EQ(end_state(b), IBV_QPS_RTS);
	fabric_close(fabric, a, b);
}

TEST(with_rnr_retry_1_it_fails_after_one_timer)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;
	uint64_t start_ns;

	options.rnr_retry = 1;
	options.min_rnr_timer = 17; /* 3.84 ms */
	pair_open(fabric, &options, &a, &b);
	start_ns = test_now_ns();
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(test_now_ns() - start_ns >= 3840000);
	fabric_close(fabric, a, b);
}

TEST(with_rnr_retry_1_a_receive_in_time_is_enough_each_time)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.rnr_retry = 1;
	options.min_rnr_timer = 30; /* 327.68 ms */
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 4; i++) { /* the count starts anew after each success */
		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect_none(a->send_cq, 10 * MS);
		end_post_recv(b, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
	fabric_close(fabric, a, b);
}

TEST(with_rnr_retry_7_it_waits_for_ever)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.timeout = 1; /* 8 us: does not count for RNR */
	options.retry_cnt = 0;
	pair_open(fabric, &options, &a, &b);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	cq_expect_none(a->send_cq, 50 * MS);
	CHECK_EQ(end_state(a), IBV_QPS_RTS);
	end_post_recv(b, 2, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

/* Operations of all kinds behind a SEND that is refused again and again: they wait for it, and all
 * arrive once, in order. */
static void go_back_n(enum nupa_mover mover, uint32_t length)
{
	enum { MESSAGES = 600 };
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(mover);
	uint64_t random = test_seed();
	struct end *a, *b;
	uint64_t sent = 0, completed = 0, received = 0, posted = 0;

	options.send_wr = 128;
	options.memory_bytes = 4u << 20;
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < 64; i++)
		pattern_fill(a->memory + i * 32768, length, i);
	while (completed < MESSAGES || received < MESSAGES) {
		struct ibv_wc wc;

		while (sent < MESSAGES && sent - completed < 32) {
			struct request request = request_of(a, IBV_WR_SEND_WITH_IMM, sent,
							    (uint32_t)(sent % 64) * 32768, length);

			if (sent % 3 == 2) {
				request.wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
				request.wr.wr.rdma.remote_addr =
				    b->self.memory + 64 * 32768 + (sent % 32) * 32768;
				request.wr.wr.rdma.rkey = b->self.rkey;
			}
			request.wr.imm_data = (uint32_t)sent;
			end_post(a, &request);
			sent++;
		}
		/* Receives come in dribbles, so that most messages are refused at first. */
		if (posted < MESSAGES && posted - received < 8 && test_random(&random) % 4 == 0) {
			end_post_recv(b, posted, (uint32_t)(posted % 64) * 32768, length);
			posted++;
		}
		if (nupa_poll_cq(a->send_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, completed);
			completed++;
		}
		if (nupa_poll_cq(b->recv_cq, 1, &wc) == 1) {
			bool is_write = received % 3 == 2;

			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, received);
			CHECK_EQ(wc.imm_data, received);
			CHECK_EQ(wc.opcode, is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
			CHECK_EQ(wc.byte_len, length);
			CHECK_PATTERN(b->memory +
					  (is_write ? 64 + received % 32 : received % 64) * 32768,
				      length, (uint32_t)(received % 64));
			received++;
		}
	}
	fabric_close(fabric, a, b);
}

TEST(short_messages_refused_for_want_of_receives_arrive_once_and_in_order)
{
	go_back_n(NUPA_MOVER_LOCAL, 20);
	go_back_n(NUPA_MOVER_RELAY, 20);
}

TEST(long_messages_refused_for_want_of_receives_arrive_once_and_in_order)
{
	go_back_n(NUPA_MOVER_LOCAL, 20000);
	go_back_n(NUPA_MOVER_RELAY, 20000);
}

/* IBTA 10.8.3.3: the READ behind a SEND that is not executed must not see the time before it. */
TEST(requests_behind_a_refused_send_wait_for_it)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_options_of(movers[i]);
		struct request fetch_add;
		struct end *a, *b;

		pair_open(fabric, &options, &a, &b);
		memset(b->memory, 1, 64);
		memset(a->memory, 9, 64);
		end_start(a, IBV_WR_SEND, 1, 0, 8);
		end_start(a, IBV_WR_RDMA_READ, 2, 16, 8);
		fetch_add = request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 24, 8);
		fetch_add.wr.wr.atomic.compare_add = 1;
		end_post(a, &fetch_add);
		end_start(a, IBV_WR_RDMA_WRITE, 4, 32, 8);
		cq_expect_none(a->send_cq, 5 * MS);
		CHECK_EQ(a->memory[16], 9);
		memset(b->memory + 16, 2, 8);
		end_post_recv(b, 5, 0, 8);
		for (uint64_t wr_id = 1; wr_id <= 4; wr_id++)
			cq_expect(a->send_cq, wr_id, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, 5, IBV_WC_SUCCESS);
		CHECK_EQ(a->memory[16], 2);
		CHECK_EQ(b->memory[24], 2);
		CHECK_EQ(b->memory[32], 9);
		fabric_close(fabric, a, b);
	}
}

static void requests_before_the_peer_is_ready(bool fork_target, enum nupa_mover mover)
{
	struct nupa_fabric *fabric = test_fabric();
	struct target target = fork_target ? target_fork(fabric) : target_here();
	struct end_options options = end_options_of(mover);
	struct end *a = end_open(fabric, &options);

	target_open(&target, fabric, &options);
	target_fill(&target, 100000, 8, 3);
	end_connect(a, &target.address);
	pattern_fill(a->memory, 9000, 1);
	end_start(a, IBV_WR_SEND, 1, 0, 9000);
	end_start(a, IBV_WR_SEND, 2, 0, 8);
	end_start(a, IBV_WR_RDMA_READ, 3, 100000, 8);
	end_start(a, IBV_WR_SEND, 4, 0, 20);
	cq_expect_none(a->send_cq, 3 * MS);
	target_to_init(&target);
	for (uint64_t i = 0; i < 3; i++)
		target_post_recv(&target, i, (uint32_t)i * 16384, 16384);
	cq_expect_none(a->send_cq, 3 * MS);
	target_to_rtr(&target, &a->self);
	for (uint64_t wr_id = 1; wr_id <= 4; wr_id++)
		cq_expect(a->send_cq, wr_id, IBV_WC_SUCCESS);
	CHECK_PATTERN(a->memory + 100000, 8, 3);
	CHECK_EQ(target_expect(&target, 0, IBV_WC_SUCCESS).byte_len, 9000);
	CHECK_EQ(target_expect(&target, 1, IBV_WC_SUCCESS).byte_len, 8);
	CHECK_EQ(target_expect(&target, 2, IBV_WC_SUCCESS).byte_len, 20);
	target_to_rts(&target);
	target_close(&target);
	end_close(a);
	nupa_fabric_put(fabric);
}

TEST(requests_before_the_peer_is_ready_are_retried_in_one_process)
{
	requests_before_the_peer_is_ready(false, NUPA_MOVER_LOCAL);
	requests_before_the_peer_is_ready(false, NUPA_MOVER_RELAY);
}

TEST(requests_before_the_peer_is_ready_are_retried_between_processes)
{
	requests_before_the_peer_is_ready(true, NUPA_MOVER_NONE);
	requests_before_the_peer_is_ready(true, NUPA_MOVER_RELAY);
}

/* Many QPs whose peers become ready at random moments, while requests are on the way.  None is lost
 * and none done twice, however refusals and requests cross. */
TEST(a_peer_that_becomes_ready_at_any_moment_gets_each_message_once)
{
	enum { ROUNDS = 300, MESSAGES = 12 };
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	uint64_t random = test_seed();
	struct end *a, *b;

	options.timeout = 20;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct end_options b_options = options;
		struct request fetch_add;
		uint64_t word = 0;

		b_options.host = 1;
		a = end_open(fabric, &options);
		b = end_open(fabric, &b_options);
		end_to_init(b);
		for (uint64_t i = 0; i < MESSAGES; i++)
			end_post_recv(b, i, 0, 64);
		memcpy(b->memory + 128, &word, sizeof(word));
		end_connect(a, &b->self);
		fetch_add = request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 128, 8);
		fetch_add.wr.wr.atomic.compare_add = 1;
		for (uint64_t i = 0; i < MESSAGES; i++) {
			struct request send = request_of(a, IBV_WR_SEND_WITH_IMM, i, 0, 8);

			send.wr.imm_data = (uint32_t)i;
			end_post(a, &send);
			fetch_add.wr.wr_id = i;
			end_post(a, &fetch_add);
		}
		for (uint64_t spins = test_random(&random) % 200; spins; spins--)
			sched_yield();
		end_to_rtr(b, &a->self);
		for (uint64_t i = 0; i < MESSAGES; i++) {
			cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
			cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
			CHECK_EQ(cq_expect(b->recv_cq, i, IBV_WC_SUCCESS).imm_data, i);
		}
		memcpy(&word, b->memory + 128, sizeof(word));
		CHECK_EQ(word, MESSAGES);
		pair_close(a, b);
	}
	nupa_fabric_put(fabric);
}

TEST(a_peer_that_never_becomes_ready_is_given_up_after_the_timeout)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_options_of(movers[i]);
		uint64_t start_ns, took_ns;
		struct end *a, *b;

		options.timeout = 12; /* 16.8 ms, three times */
		options.retry_cnt = 2;
		pair_open(fabric, &options, &a, &b);
		CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
		start_ns = test_now_ns();
		end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
		end_start(a, IBV_WR_SEND, 2, 0, 8);
		cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		took_ns = test_now_ns() - start_ns;
		CHECK(took_ns > 30 * MS);
		fabric_close(fabric, a, b);
	}
}

/* Waiting for room in between does not begin the wait for the peer anew. */
TEST(a_long_write_to_a_peer_that_never_becomes_ready_is_given_up_too)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct end *a, *b;

	options.timeout = 12;
	options.retry_cnt = 2;
	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8 * TEST_DMA_BYTES); /* more than the ring has */
	cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	fabric_close(fabric, a, b);
}

/* A request refused because the peer was not ready may be refused for want of a receive later.  The
 * second wait has a limit of its own, or none. */
TEST(a_wait_for_a_receive_outlives_the_wait_for_the_peer)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE), b_options;
	struct end *a, *b;

	options.timeout = 16; /* 268 ms, twice: the machine may stand still between two lines */
	options.retry_cnt = 1;
	b_options = options;
	b_options.host = 1;
	a = end_open(fabric, &options);
	b = end_open(fabric, &b_options);
	end_connect(a, &b->self);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect_none(a->send_cq, 2 * MS);
	end_connect(b, &a->self);
	cq_expect_none(a->send_cq, 600 * MS);
	end_post_recv(b, 2, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

/* No requester waits for ever for a responder that is reset in the middle of a READ. */
TEST(a_read_whose_responder_is_reset_fails_after_the_timeout)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct end *a, *b;

	options.timeout = 10;
	options.retry_cnt = 1;
	options.memory_bytes = 8u << 20;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 4; i++)
		end_start(a, IBV_WR_RDMA_READ, i, 0, 8u << 20);
	CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
	for (uint64_t i = 0; i < 4; i++) {
		struct ibv_wc wc = cq_wait(a->send_cq);

		CHECK_EQ(wc.wr_id, i);
		if (wc.status != IBV_WC_SUCCESS) {
			CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
			for (i++; i < 4; i++)
				cq_expect(a->send_cq, i, IBV_WC_WR_FLUSH_ERR);
		}
	}
	fabric_close(fabric, a, b);
}

/* A connection made anew with the same numbers and the same PSNs, while messages of the one before
 * are still in the channel. */
TEST(a_message_from_before_a_reset_is_not_delivered_after_it)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct target target = target_fork(fabric);
		struct end_options options = end_options_of(NUPA_MOVER_RELAY);
		struct end *a;

		options.type = types[i];
		a = end_open(fabric, &options);
		target_open(&target, fabric, &options);
		for (int round = 0; round < 2; round++) { /* the first opens the channel */
			target_connect(&target, &a->self);
			end_connect(a, &target.address);
			target_post_recv(&target, 0, 0, 64);
			if (round)
				break;
			end_start(a, IBV_WR_SEND, 0, 0, 8);
			cq_expect(a->send_cq, 0, IBV_WC_SUCCESS);
			target_expect(&target, 0, IBV_WC_SUCCESS);
			CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
			target_to_reset(&target);
		}
		for (uint64_t n = 1; n < 5; n++)
			target_post_recv(&target, n, 0, 64);
		target_stop(&target);
		for (uint64_t n = 0; n < 10; n++)
			end_start(a, IBV_WR_SEND, n, 0, 8);
		CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
		end_connect(a, &target.address);
		for (uint64_t n = 0; n < 5; n++)
			end_start(a, IBV_WR_SEND, n, 0, 32 + (uint32_t)n);
		target_continue(&target);
		for (uint64_t n = 0; n < 5; n++) {
			cq_expect(a->send_cq, n, IBV_WC_SUCCESS);
			CHECK_EQ(target_expect(&target, n, IBV_WC_SUCCESS).byte_len, 32 + n);
		}
		target_close(&target);
		end_close(a);
		nupa_fabric_put(fabric);
	}
}
