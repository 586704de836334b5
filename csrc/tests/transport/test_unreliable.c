/* SPDX-License-Identifier: BSD-3-Clause
 * UC and UD senders wait for no receiver, and a message without a receive holds up no other QP. */
#include "tests/transport/unreliable.h"

#include <string.h>

/* The peer goes on: until it has taken something, more is lost. */
static void await_drained(const struct end *end, const struct target *target)
{
	struct nupa_engine *engine = qp_of(end)->engine;
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	for (bool drained = false; !drained;) {
		nupa_engine_lock(engine);
		drained = nupa_tx_drained(
		    &engine->channels[target->address.qpn >> NUPA_QP_INDEX_BITS]->tx);
		nupa_engine_unlock(engine);
		CHECK(test_now_ns() < deadline_ns);
	}
}

/* All complete, though the peer takes none; the surplus is counted, and what had room arrives. */
static void post_to_stopped(enum ibv_qp_type type, enum ibv_wr_opcode opcode, uint32_t bytes)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = unreliable_options(type);
	struct target target = target_fork(fabric);
	struct end *end = end_open(fabric, &options), *a, *b;
	uint64_t n_lost;

	target_open(&target, fabric, &options);
	target_connect(&target, &end->self);
	end_connect(end, &target.address);
	target_post_recv(&target, 0, 0, 8192);
	end_start(end, IBV_WR_SEND, 0, 0, 8); /* the channel is open in both directions */
	cq_expect(end->send_cq, 0, IBV_WC_SUCCESS);
	target_expect(&target, 0, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < TEST_RING_LINES; i++)
		target_post_recv(&target, i, 0, 8192);
	target_stop(&target);
	for (uint64_t i = 0; i < MANY; i++) {
		end_start(end, opcode, i, 0, bytes);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	}
	n_lost = hw_of(fabric, 0).tx_no_room;
	CHECK(n_lost >= MANY - TEST_RING_LINES && n_lost < MANY);
	/* Others are reached as ever. */
	pair_open(fabric, &options, &a, &b);
	end_post_recv(b, 7, 0, 8192);
	end_start(a, IBV_WR_SEND, 7, 0, bytes);
	cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 7, IBV_WC_SUCCESS);
	pair_close(a, b);
	target_continue(&target);
	await_drained(end, &target);
	if (opcode != IBV_WR_SEND)
		n_lost = MANY;
	for (uint64_t i = 0; i < MANY - n_lost; i++)
		target_expect(&target, i, IBV_WC_SUCCESS);
	if (n_lost == MANY - TEST_RING_LINES)
		target_post_recv(&target, TEST_RING_LINES, 0, 8192);
	end_start(end, IBV_WR_SEND, 1, 0, bytes);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	target_expect(&target, MANY - n_lost, IBV_WC_SUCCESS);
	target_close(&target);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(datagrams_to_a_stopped_process_complete_and_are_counted)
{
	post_to_stopped(IBV_QPT_UD, IBV_WR_SEND, 8);
	post_to_stopped(IBV_QPT_UD, IBV_WR_SEND, NUPA_MTU_BYTES);
}

TEST(messages_of_uc_to_a_stopped_process_complete_and_are_counted)
{
	post_to_stopped(IBV_QPT_UC, IBV_WR_SEND, 8);
	post_to_stopped(IBV_QPT_UC, IBV_WR_SEND, 5000);
	post_to_stopped(IBV_QPT_UC, IBV_WR_RDMA_WRITE, 5000);
}

/* Of a long one a part is sent: the receiver leaves it out, and its receive is the next one's. */
TEST(a_long_message_of_uc_breaks_off_at_a_stopped_process)
{
	const uint32_t bytes = 4 * TEST_DMA_BYTES;
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE); /* UC is never pulled */
	struct target target = target_fork(fabric);
	struct end *end;

	options.type = IBV_QPT_UC;
	end = end_open(fabric, &options);
	target_open(&target, fabric, &options);
	target_connect(&target, &end->self);
	end_connect(end, &target.address);
	target_post_recv(&target, 0, 0, bytes);
	end_start(end, IBV_WR_SEND, 0, 0, bytes);
	cq_expect(end->send_cq, 0, IBV_WC_SUCCESS);
	target_expect(&target, 0, IBV_WC_SUCCESS);
	target_post_recv(&target, 1, 0, bytes);
	target_stop(&target);
	for (uint64_t i = 0; i < 3; i++) {
		end_start(end, IBV_WR_SEND, i, 0, bytes);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	}
	CHECK_EQ(hw_of(fabric, 0).tx_no_room, 3);
	target_continue(&target);
	await_drained(end, &target);
	pattern_fill(end->memory, bytes, 9);
	end_start(end, IBV_WR_SEND, 3, 0, bytes);
	cq_expect(end->send_cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(target_expect(&target, 1, IBV_WC_SUCCESS).byte_len, bytes);
	target_check(&target, 0, bytes, 9);
	target_close(&target);
	end_close(end);
	nupa_fabric_put(fabric);
}

/* Events alone: what is sent later over the same channel arrives while the first still waits. */
static void rc_passes_messages_without_a_receive(enum ibv_qp_type type)
{
	struct end_options options = unreliable_options(IBV_QPT_RC);
	struct pace pace = { 0 };

	for (bool done = false; !done;) {
		struct scene scene = scene_of(type);
		struct end *a, *b;

		pair_open(scene.fabric, &options, &a, &b);
		CHECK(qp_of(a)->engine == qp_of(scene.from)->engine); /* one channel */
		for (uint64_t i = 0; i < 2; i++)
			end_post_recv(b, i, 0, 64);
		end_start(a, IBV_WR_SEND, 0, 0, 8);
		cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
		pace_begin(&pace);
		starve(&scene, 100);
		end_start(a, IBV_WR_SEND, 1, 0, 8);
		cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
		done = pace_holds(&pace, lost_of(scene.fabric));
		if (done) { /* and it is not lost: it waits */
			pace_begin(&pace);
			end_post_recv(scene.to, 1, 1024, 200);
			cq_expect(scene.to->recv_cq, 0, IBV_WC_SUCCESS);
			done = pace_holds(&pace, lost_of(scene.fabric));
		}
		if (done) {
			cq_expect(scene.to->recv_cq, 1, IBV_WC_SUCCESS);
			CHECK_PATTERN(scene.to->memory + 1024 + scene.header, 100, 1);
		} else {
			CHECK_EQ(end_modify(scene.to, IBV_QPS_ERR), 0);
		}
		pair_close(a, b);
		scene_close(&scene);
	}
}

TEST(a_datagram_without_a_receive_holds_up_no_reliable_connection)
{
	rc_passes_messages_without_a_receive(IBV_QPT_UD);
}

TEST(a_message_of_uc_without_a_receive_holds_up_no_reliable_connection)
{
	rc_passes_messages_without_a_receive(IBV_QPT_UC);
}

/* As much as the send queue takes, to a receiver that posts one receive after the other. */
static bool trickle(enum ibv_qp_type type, uint32_t bytes, uint64_t n, struct pace *pace)
{
	struct scene scene = scene_of(type);
	uint64_t sent = 0, completed = 0, got = 0;
	bool whole;

	pace_begin(pace);
	end_post_recv(scene.to, 0, 0, bytes + scene.header);
	while (got < n && !lost_of(scene.fabric)) {
		struct ibv_wc wc;

		for (; sent < n && sent - completed < 4; sent++) {
			uint32_t at = (uint32_t)(sent % 4) * 65536;

			pattern_fill(scene.from->memory + at, bytes, (uint32_t)sent);
			end_start(scene.from, IBV_WR_SEND, sent, at, bytes);
		}
		while (nupa_poll_cq(scene.from->send_cq, 1, &wc) == 1)
			CHECK_EQ(wc.wr_id, completed++);
		if (nupa_poll_cq(scene.to->recv_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.wr_id, got);
			CHECK_EQ(wc.byte_len, bytes + scene.header);
			CHECK_PATTERN(scene.to->memory + scene.header, bytes, (uint32_t)got);
			end_post_recv(scene.to, ++got, 0, bytes + scene.header);
		}
		pace_step(pace);
	}
	whole = pace_holds(pace, lost_of(scene.fabric));
	CHECK_EQ(end_modify(scene.to, IBV_QPS_ERR), 0);
	scene_close(&scene);
	return whole;
}

TEST(a_slow_receiver_loses_nothing)
{
	static const uint32_t sizes[] = { 8, 100, NUPA_MTU_BYTES };
	struct pace pace = { 0 };

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		while (!trickle(IBV_QPT_UD, sizes[i], 500, &pace))
			;
		while (!trickle(IBV_QPT_UC, sizes[i], 500, &pace))
			;
	}
	while (!trickle(IBV_QPT_UC, 40000, 50, &pace)) /* in parts */
		;
}

/* A WRITE by messages, and one that needs none. */
static bool write_behind(enum nupa_mover mover, struct pace *pace)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(mover);
	struct end *a, *b;
	bool whole;

	options.type = IBV_QPT_UC;
	pair_open(fabric, &options, &a, &b);
	pace_begin(pace);
	end_post_recv(b, 0, 0, 8);
	for (uint64_t i = 0; i < 2; i++) {
		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	while (!nupa_load_acquire(&qp_of(b)->entry->backlog) && !lost_of(fabric))
		CHECK_EQ(nupa_poll_cq(b->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
	memset(a->memory, 7, 64);
	end_start(a, IBV_WR_RDMA_WRITE, 2, 0, 64);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(nupa_poll_cq(b->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
		CHECK(*(volatile uint8_t *)&b->memory[63] != 7 || lost_of(fabric));
	}
	end_post_recv(b, 1, 0, 8);
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	whole = pace_holds(pace, lost_of(fabric));
	if (whole) {
		cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
		end_post_recv(b, 2, 0, 8);
		end_start(a, IBV_WR_SEND, 3, 0, 8);
		cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(b->memory[63], 7);
	}
	fabric_close(fabric, a, b);
	return whole;
}

TEST(messages_behind_one_of_uc_that_waits_stay_behind_it)
{
	struct pace pace = { 0 };

	while (!write_behind(NUPA_MOVER_RELAY, &pace))
		;
	while (!write_behind(NUPA_MOVER_NONE, &pace))
		;
}
