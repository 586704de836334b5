/* SPDX-License-Identifier: BSD-3-Clause
 * Queues at their limits, errors and events: CQ overrun, the order of flushes, SQD, completion
 * channels, asynchronous events. */
#include "tests/support/end.h"
#include "engine/device/device.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

TEST(posting_beyond_a_queue_is_refused_and_names_the_first_that_was_not_taken)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct ibv_recv_wr recv[6] = { 0 }, *bad_recv = NULL;
	struct ibv_send_wr send[6] = { 0 }, *bad_send = NULL;
	struct end *a, *b;

	options.send_wr = options.recv_wr = 4;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 6; i++) {
		recv[i] = (struct ibv_recv_wr){ .wr_id = i, .next = i < 5 ? &recv[i + 1] : NULL };
		send[i] = (struct ibv_send_wr){ .wr_id = i,
						.next = i < 5 ? &send[i + 1] : NULL,
						.opcode = IBV_WR_SEND,
						.send_flags = IBV_SEND_SIGNALED };
	}
	/* No QP receives: all four stay. */
	CHECK_EQ(nupa_post_send(a->qp, send, &bad_send), ENOMEM);
	CHECK(bad_send == &send[4]);
	CHECK_EQ(nupa_post_send(a->qp, &send[5], &bad_send), ENOMEM);
	CHECK(bad_send == &send[5]);
	CHECK_EQ(nupa_post_recv(b->qp, recv, &bad_recv), ENOMEM);
	CHECK(bad_recv == &recv[4]);
	for (uint64_t i = 0; i < 4; i++) {
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
	fabric_close(fabric, a, b);
}

TEST(a_completion_queue_that_overruns_ends_its_queue_pair)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_wc wc[8];
	struct end *a, *b;

	options.send_cqe = 4;
	pair_open(fabric, &options, &a, &b);
	end_post_recv(a, 77, 0, 8);
	for (uint64_t i = 0; i < 5; i++)
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 8);
	end_expect_event(a, IBV_EVENT_CQ_ERR);
	end_expect_event(a, IBV_EVENT_QP_FATAL);
	CHECK_EQ(end_state(a), IBV_QPS_ERR);
	/* Its receives end by the other CQ, which is sound. */
	cq_expect(a->recv_cq, 77, IBV_WC_WR_FLUSH_ERR);
	/* Completions in the queue can still be polled; then polling fails. */
	CHECK_EQ(nupa_poll_cq(a->send_cq, 8, wc), 4);
	for (uint64_t i = 0; i < 4; i++) {
		CHECK_EQ(wc[i].wr_id, i);
		CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
	}
	CHECK(nupa_poll_cq(a->send_cq, 8, wc) < 0);
	fabric_close(fabric, a, b);
}

TEST(a_completion_queue_can_be_resized_with_completions_in_it)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.send_cqe = 4;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t round = 0; round < 3; round++) { /* so that the ring wraps */
		for (uint64_t i = 0; i < 3; i++)
			end_start(a, IBV_WR_RDMA_WRITE, i, 0, 8);
		for (uint64_t i = 0; i < 3; i++)
			cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	for (uint64_t i = 0; i < 4; i++)
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 8);
	CHECK_EQ(nupa_resize_cq(a->send_cq, 3), EINVAL);
	CHECK_EQ(nupa_resize_cq(a->send_cq, 9), 0);
	CHECK_EQ(a->send_cq->cqe, 9);
	for (uint64_t i = 4; i < 9; i++)
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 8);
	for (uint64_t i = 0; i < 9; i++)
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(an_error_flushes_both_queues_in_order)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct request bad;
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 5; i++)
		end_post_recv(a, 100 + i, 0, 8);
	for (uint64_t i = 0; i < 5; i++)
		end_post_recv(b, 100 + i, 0, 8);
	end_start(a, IBV_WR_RDMA_WRITE, 0, 0, 8);
	bad = request_of(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	bad.wr.wr.rdma.rkey ^= 1;
	end_post(a, &bad);
	/* Unsignalled ones show only when they fail. */
	for (uint64_t i = 2; i < 6; i++) {
		struct request later =
		    request_of(a, i & 1 ? IBV_WR_SEND : IBV_WR_RDMA_READ, i, 0, 8);

		later.wr.send_flags = 0;
		end_post(a, &later);
	}
	cq_expect(a->send_cq, 0, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	for (uint64_t i = 2; i < 6; i++)
		cq_expect(a->send_cq, i, IBV_WC_WR_FLUSH_ERR);
	for (uint64_t i = 0; i < 5; i++)
		cq_expect(a->recv_cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(a), IBV_QPS_ERR);
	/* The responder's side ends too: IBTA 9.9.2.4. */
	for (uint64_t i = 0; i < 5; i++)
		cq_expect(b->recv_cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	end_expect_event(b, IBV_EVENT_QP_ACCESS_ERR);
	CHECK_EQ(end_state(b), IBV_QPS_ERR);
	/* Requests posted now are flushed as well. */
	end_start(a, IBV_WR_SEND, 6, 0, 8);
	cq_expect(a->send_cq, 6, IBV_WC_WR_FLUSH_ERR);
	end_post_recv(a, 200, 0, 8);
	cq_expect(a->recv_cq, 200, IBV_WC_WR_FLUSH_ERR);
	fabric_close(fabric, a, b);
}

TEST(a_datagram_error_stops_the_send_queue_alone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct end *a, *b;

	options.type = IBV_QPT_UD;
	pair_open(fabric, &options, &a, &b);
	end_post_recv(a, 9, 0, 100);
	end_start(a, IBV_WR_SEND, 1, 0, 4097); /* one beyond the MTU */
	cq_expect(a->send_cq, 1, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(end_state(a), IBV_QPS_SQE);
	end_start(a, IBV_WR_SEND, 2, 0, 8);
	cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	end_start(b, IBV_WR_SEND, 3, 0, 8);
	cq_expect(a->recv_cq, 9, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_STATE), 0);
	end_post_recv(b, 10, 0, 100);
	end_start(a, IBV_WR_SEND, 4, 0, 8);
	cq_expect(a->send_cq, 4, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 10, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(a_message_longer_than_the_receive_ends_both_sides)
{
	static const uint32_t lengths[] = { 9, 8000, 20000, 100000 };

	for (int i = 0; i < 8; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options =
		    end_options_of(i & 1 ? NUPA_MOVER_LOCAL : NUPA_MOVER_RELAY);
		uint32_t length = lengths[i / 2];
		struct end *a, *b;

		pair_open(fabric, &options, &a, &b);
		memset(b->memory, 5, 200000);
		end_post_recv(b, 1, 0, length - 1);
		end_post_recv(b, 2, 0, length);
		end_start(a, IBV_WR_SEND, 3, 0, length);
		cq_expect(b->recv_cq, 1, IBV_WC_LOC_LEN_ERR);
		cq_expect(b->recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
		cq_expect(a->send_cq, 3, IBV_WC_REM_INV_REQ_ERR);
		CHECK_EQ(b->memory[length - 1], 5);
		fabric_close(fabric, a, b);
	}
}

TEST(a_drained_send_queue_takes_posts_and_sends_them_later)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	end_start(a, IBV_WR_SEND, 1, 0,
		  8); /* no receive yet: it has begun, and will be tried again */
	cq_expect_none(a->send_cq, MS);
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	end_start(a, IBV_WR_SEND, 2, 0, 8);
	CHECK_EQ(end_state(a), IBV_QPS_SQD);
	end_post_recv(b, 1, 0, 8);
	end_post_recv(b, 2, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	end_expect_event(a, IBV_EVENT_SQ_DRAINED);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect_none(a->send_cq, MS);
	CHECK_EQ(end_modify(a, IBV_QPS_RTS), 0);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(an_idle_send_queue_is_drained_at_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	end_expect_event(a, IBV_EVENT_SQ_DRAINED);
	/* It still receives. */
	end_post_recv(a, 1, 0, 8);
	end_start(b, IBV_WR_SEND, 2, 0, 8);
	cq_expect(a->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->send_cq, 2, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(a_reset_queue_pair_takes_its_completions_along_and_works_again)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	for (int round = 0; round < 3; round++) {
		end_post_recv(b, 1, 0, 8);
		end_post_recv(b, 2, 0, 8);
		end_start(a, IBV_WR_SEND, 1, 0, 8);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		end_start(a, IBV_WR_RDMA_WRITE, 2, 0, 8);
		CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
		CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
		cq_expect_none(a->send_cq, MS);
		cq_expect_none(b->recv_cq, MS);
		end_connect(a, &b->self);
		end_connect(b, &a->self);
	}
	fabric_close(fabric, a, b);
}

static bool channel_readable(const struct end *end, int timeout_ms)
{
	struct pollfd readable = { .fd = end->channel->fd, .events = POLLIN };

	return poll(&readable, 1, timeout_ms) == 1;
}

static void get_event(struct end *end, struct ibv_cq *wanted)
{
	struct ibv_cq *cq = NULL;
	void *cq_context = NULL;

	CHECK(channel_readable(end, (int)(WAIT_NS / MS)));
	CHECK_EQ(nupa_get_cq_event(end->channel, &cq, &cq_context), 0);
	CHECK(cq == wanted);
	CHECK(cq_context == end);
	nupa_ack_cq_events(cq, 1);
}

TEST(a_completion_channel_tells_of_one_completion_for_each_request)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 50; i++) {
		CHECK(!channel_readable(b, 0));
		CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 0), 0);
		CHECK_EQ(nupa_req_notify_cq(a->send_cq, 0), 0);
		end_post_recv(b, i, 0, 8);
		end_start(a, IBV_WR_SEND, i, 0, 8);
		get_event(b, b->recv_cq); /* no thread polls: the port threads do it all */
		get_event(a, a->send_cq);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	fabric_close(fabric, a, b);
}

TEST(solicited_events_come_for_solicited_messages_and_errors_alone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct request send;
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 1), 0);
	for (uint64_t i = 0; i < 4; i++)
		end_post_recv(b, i, 0, 8);
	end_start(a, IBV_WR_SEND, 0, 0, 8);
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	CHECK(!channel_readable(b, 0));
	send = request_of(a, IBV_WR_SEND, 1, 0, 8);
	send.wr.send_flags |= IBV_SEND_SOLICITED;
	end_post(a, &send);
	get_event(b, b->recv_cq);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 1), 0);
	CHECK_EQ(end_modify(b, IBV_QPS_ERR), 0);
	get_event(b, b->recv_cq);
	fabric_close(fabric, a, b);
}

/* A READ and atomics for a program that sleeps are answered by its port thread. */
TEST(a_sleeping_target_answers)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 50; i++) {
		pattern_fill(b->memory, 100000, (uint32_t)i);
		end_start(a, IBV_WR_RDMA_READ, i, 0, 100000);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(a->memory, 100000, (uint32_t)i);
	}
	fabric_close(fabric, a, b);
}

static void *wait_for_event(void *arg)
{
	end_expect_event(arg, IBV_EVENT_COMM_EST);
	return NULL;
}

TEST(an_object_waits_with_its_end_for_its_events_to_be_acknowledged)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE), b_options;
	pthread_t thread;
	struct end *a, *b;

	b_options = options;
	b_options.host = 1;
	a = end_open(fabric, &options);
	b = end_open(fabric, &b_options);
	end_to_init(b);
	end_post_recv(b, 1, 0, 8);
	end_to_rtr(b, &a->self);
	CHECK_EQ(pthread_create(&thread, NULL, wait_for_event, b), 0);
	end_connect(a, &b->self);
	end_start(a, IBV_WR_SEND, 1, 0,
		  8); /* arrives in RTR: IBTA 11.6.3.1, communication established */
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	fabric_close(fabric, a, b);
}

/* As the first of two pingpongs to end: the other has its receives still posted. */
TEST(a_peer_that_leaves_in_order_flushes_nothing)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.timeout = 1;
	options.retry_cnt = 0;
	pair_open(fabric, &options, &a, &b);
	end_post_recv(b, 1, 0, 8);
	end_post_recv(b, 2, 0, 8);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	end_close(a);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect_none(b->recv_cq, UINT64_C(50000000));
	CHECK_EQ(end_state(b), IBV_QPS_RTS);
	end_start(b, IBV_WR_SEND, 3, 0, 8); /* a request of its own fails */
	cq_expect(b->send_cq, 3, IBV_WC_RETRY_EXC_ERR);
	cq_expect(b->recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	end_close(b);
	nupa_fabric_put(fabric);
}

/* Only a message that its sender never finishes shows this, so it is handed to the responder. */
TEST(a_uc_message_that_breaks_off_leaves_its_receive_to_the_next)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct nupa_engine *engine;
	struct nupa_msg msg = { .op = NUPA_OP_SEND, .flags = NUPA_F_FIRST, .length_bytes = 8 };
	struct nupa_qp *qp;
	struct end *a, *b;

	options.type = IBV_QPT_UC;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t wr_id = 1; wr_id <= 3; wr_id++)
		end_post_recv(b, wr_id, 0, 64);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);

	engine = nupa_engine_of(b->context);
	nupa_engine_lock(engine);
	qp = nupa_qp_find(engine, b->qp->qp_num);
	msg.dest_qpn = b->qp->qp_num;
	msg.src_qpn = a->qp->qp_num;
	msg.psn = nupa_psn_of(qp->peer_incarnation, qp->expected_psn);
	nupa_responder_request(engine, qp->channel, &msg, NULL);
	nupa_engine_unlock(engine);

	end_start(a, IBV_WR_SEND, 2, 0, 8);
	CHECK_EQ(cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS).byte_len, 8);
	end_start(a, IBV_WR_SEND, 3, 0, 16);
	CHECK_EQ(cq_expect(b->recv_cq, 3, IBV_WC_SUCCESS).byte_len, 16);
	fabric_close(fabric, a, b);
}

TEST(objects_in_use_are_not_destroyed)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(nupa_dealloc_pd(a->pd), EBUSY);
	CHECK_EQ(nupa_destroy_cq(a->send_cq), EBUSY);
	CHECK_EQ(nupa_destroy_cq(a->recv_cq), EBUSY);
	CHECK_EQ(nupa_destroy_comp_channel(a->channel), EBUSY);
	fabric_close(fabric, a, b);
}
