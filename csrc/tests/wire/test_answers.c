/* SPDX-License-Identifier: BSD-3-Clause
 * What a responder answers by a wire: acknowledgements for several messages, RNR NAKs, and the NAKs
 * that end a connection (IBTA 9.7.5). */
#include "engine/attachment/attachment.h"
#include "engine/core/engine.h"
#include "engine/transport/responder.h"
#include "engine/transport/sq.h"
#include "tests/wire/keeper.h"

#define BURST 32u
#define BURSTS 16u
#define COUNT(end, counter) nupa_load_relaxed(&nupa_engine_of((end)->context)->hw->counter)

static void post_burst(struct end *end, enum ibv_wr_opcode opcode)
{
	struct request requests[BURST];
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < BURST; i++) {
		requests[i] = request_of(end, opcode, i, i * 8, 8);
		requests[i].wr.sg_list = requests[i].sge;
		requests[i].wr.next = i + 1 < BURST ? &requests[i + 1].wr : NULL;
	}
	CHECK_EQ(nupa_post_send(end->qp, &requests[0].wr, &bad), 0);
}

/* Requests that are sent together are acknowledged together (IBTA 9.7.5.1.2). */
TEST(acknowledgements_are_for_several_messages)
{
	struct end_options options = end_defaults;
	struct wired wired;

	options.timeout = 20; /* repetitions would be acknowledged as well */
	wired_open(&wired, &options, 4096);
	for (uint32_t round = 0; round < BURSTS; round++) {
		const bool sends = round % 2;

		for (uint32_t i = 0; sends && i < BURST; i++)
			end_post_recv(wired.end_b, i, i * 8, 8);
		pattern_fill(wired.end_a->memory, BURST * 8, round);
		post_burst(wired.end_a, sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE);
		for (uint32_t i = 0; i < BURST; i++)
			cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		for (uint32_t i = 0; sends && i < BURST; i++)
			cq_expect(wired.end_b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(wired.end_b->memory, BURST * 8, round);
	}
	CHECK_EQ(keeper_info(&wired.a).retransmitted, 0);
	printf("  %u messages, %llu acknowledgements\n", BURSTS * BURST,
	       (unsigned long long)keeper_info(&wired.b).sent_packets);
	CHECK(keeper_info(&wired.a).sent_packets >= BURSTS * BURST);
	CHECK(keeper_info(&wired.b).sent_packets <= BURSTS * BURST / 4);
	wired_close(&wired);
}

/* 9.7.5.2.8: as often as the program has asked for. */
TEST(a_receive_that_does_not_come_is_not_waited_for_any_more)
{
	struct end_options options = end_defaults;
	struct wired wired;

	options.rnr_retry = 3;
	options.timeout = 20;
	wired_open(&wired, &options, 4096);
	end_start(wired.end_a, IBV_WR_SEND, 1, 0, 10000);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK_EQ(COUNT(wired.end_b, send_rnr_err), 4);
	CHECK_EQ(COUNT(wired.end_a, rcvd_rnr_err), 4);
	CHECK_EQ(COUNT(wired.end_a, retry_rnr_exceeded_err), 1);
	CHECK_EQ(end_state(wired.end_a), IBV_QPS_ERR);
	/* The responder has refused nothing for good. */
	CHECK_EQ(end_state(wired.end_b), IBV_QPS_RTS);
	wired_close(&wired);
}

static void check_ended(struct wired *wired, enum ibv_wc_status status)
{
	cq_expect(wired->end_a->send_cq, 1, status);
	CHECK_EQ(end_state(wired->end_a), IBV_QPS_ERR);
	CHECK_EQ(end_state(wired->end_b), IBV_QPS_ERR);
	wired_close(wired);
}

TEST(a_message_longer_than_its_receive_is_an_invalid_request)
{
	static const uint32_t lengths[] = { 101, 10000 }; /* one packet, three */

	for (uint32_t i = 0; i < 2; i++) {
		const struct end_options options = end_defaults;
		struct wired wired;

		wired_open(&wired, &options, 4096);
		end_post_recv(wired.end_b, 2, 0, lengths[i] - 1);
		end_start(wired.end_a, IBV_WR_SEND, 1, 0, lengths[i]);
		cq_expect(wired.end_b->recv_cq, 2, IBV_WC_LOC_LEN_ERR);
		check_ended(&wired, IBV_WC_REM_INV_REQ_ERR);
	}
}

TEST(an_atomic_that_is_not_aligned_is_an_invalid_request)
{
	const struct end_options options = end_defaults;
	struct wired wired;

	wired_open(&wired, &options, 4096);
	end_start(wired.end_a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 4, 8);
	check_ended(&wired, IBV_WC_REM_INV_REQ_ERR);
}

/* 9.7.5.2.6: the responder's own fault. */
TEST(a_receive_without_its_region_is_an_operational_error)
{
	const struct end_options options = end_defaults;
	struct wired wired;

	wired_open(&wired, &options, 4096);
	end_post_recv(wired.end_b, 2, 0, 100);
	CHECK_EQ(nupa_dereg_mr(wired.end_b->mr), 0);
	wired.end_b->mr = NULL;
	end_start(wired.end_a, IBV_WR_SEND, 1, 0, 100);
	cq_expect(wired.end_b->recv_cq, 2, IBV_WC_LOC_PROT_ERR);
	check_ended(&wired, IBV_WC_REM_OP_ERR);
}

/* A requester need not wait for a READ's data before it sends: rdma_rxe does not. */
TEST(a_read_is_answered_again_while_a_send_is_on_its_way)
{
	struct nupa_msg send = {
		.op = NUPA_OP_SEND, .flags = NUPA_F_FIRST, .length_bytes = 1024, .total_bytes = 1024
	};
	struct nupa_msg read = { .op = NUPA_OP_READ };
	struct end_options options = end_defaults;
	uint8_t payload[1024] = { 0 };
	struct wired wired;
	struct nupa_qp *qp;
	uint64_t sent_bytes;

	options.timeout = 20;
	wired_open(&wired, &options, 4096);
	qp = container_of(wired.end_b->qp, struct nupa_qp, ibv);
	end_post_recv(wired.end_b, 2, 0, 4096);
	nupa_engine_lock(qp->engine);
	read.psn = qp->expected_psn;
	nupa_engine_unlock(qp->engine);
	read.reth.raddr = (uintptr_t)wired.end_b->memory;
	read.reth.rkey = wired.end_b->mr->rkey;
	read.reth.total_bytes = 10000;
	end_start(wired.end_a, IBV_WR_RDMA_READ, 1, 0, 10000);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_SUCCESS);
	sent_bytes = keeper_info(&wired.b).sent_bytes;
	nupa_engine_lock(qp->engine);
	send.psn = qp->expected_psn;
	CHECK(nupa_responder_take(qp, &send, payload));
	CHECK(qp->recv_active);
	nupa_responder_take(qp, &read, NULL);
	nupa_engine_unlock(qp->engine);
	while (keeper_info(&wired.b).sent_bytes < sent_bytes + 10000) {
		nupa_engine_lock(qp->engine);
		(void)nupa_engine_progress(qp->engine);
		nupa_engine_unlock(qp->engine);
	}
	wired_close(&wired);
}

/* The timer's turn, as if its time had passed; the retries that are left. */
static uint8_t expire(struct nupa_qp *qp)
{
	uint8_t left;

	nupa_engine_lock(qp->engine);
	if (qp->retrying)
		(void)nupa_retry_run(qp->engine, qp->faults->retry_at_ns);
	left = qp->psn_retries_left;
	nupa_engine_unlock(qp->engine);
	return left;
}

/* The answer to the last try may be under way: the NAK may be one to the try before. */
TEST(a_nak_at_the_last_try_leaves_the_end_to_the_timer)
{
	struct end_options options = end_defaults;
	struct nupa_msg nak = { .op = NUPA_OP_NAK, .syndrome = NUPA_NAK_PSN };
	struct nupa_engine *engine;
	struct wired wired;
	struct nupa_qp *qp;

	options.timeout = 20; /* 17 s on a wire */
	options.retry_cnt = 1;
	wired_open(&wired, &options, 4096);
	engine = nupa_engine_of(wired.end_a->context);
	qp = container_of(wired.end_a->qp, struct nupa_qp, ibv);
	end_modify(wired.end_b, IBV_QPS_RESET);
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	while (expire(qp)) /* a request that is in the ring still does not count */
		;
	nupa_engine_lock(engine);
	nak.psn = nupa_sq_wqe(&qp->sq, 0)->first_psn;
	nupa_requester_nak(qp, &nak);
	CHECK_EQ(qp->state, IBV_QPS_RTS);
	nupa_engine_unlock(engine);
	while (end_state(wired.end_a) == IBV_QPS_RTS)
		(void)expire(qp);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	wired_close(&wired);
}

/* What lies before the request that is refused is executed, and what lies behind it is not. */
TEST(a_refusal_is_of_one_request)
{
	static const enum ibv_wr_opcode refused[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_RDMA_WRITE };

	for (uint32_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const struct end_options options = end_defaults;
		const bool atomic = refused[i] == IBV_WR_ATOMIC_FETCH_AND_ADD;
		struct wired wired;
		struct request request;

		wired_open(&wired, &options, 4096);
		pattern_fill(wired.end_a->memory, 30000, i);
		end_start(wired.end_a, IBV_WR_RDMA_WRITE, 0, 0, 10000);
		request = request_of(wired.end_a, refused[i], 1, 16384, 8);
		*(atomic ? &request.wr.wr.atomic.rkey : &request.wr.wr.rdma.rkey) ^= 0x1000;
		end_post(wired.end_a, &request);
		end_start(wired.end_a, IBV_WR_RDMA_WRITE, 2, 20000, 10000);
		cq_expect(wired.end_a->send_cq, 0, IBV_WC_SUCCESS);
		cq_expect(wired.end_a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
		cq_expect(wired.end_a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_PATTERN(wired.end_b->memory, 10000, i);
		for (uint32_t at = 10000; at < 30000; at++)
			CHECK_EQ(wired.end_b->memory[at], 0);
		wired_close(&wired);
	}
}
