/* SPDX-License-Identifier: BSD-3-Clause
 * The backlog of messages of UC and UD that wait for a receive: its end, its bound, its counters.
 */
#include "tests/transport/unreliable.h"

TEST(datagrams_without_a_receive_are_dropped_and_counted_in_the_end)
{
	struct scene scene = scene_of(IBV_QPT_UD);
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	starve(&scene, 100);
	while (lost_of(scene.fabric) != 1) {
		CHECK(test_now_ns() < deadline_ns);
		CHECK_EQ(nupa_poll_cq(scene.to->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
	}
	/* From now on at once, until it posts one. */
	for (uint64_t i = 2; i < 10; i++) {
		send_filled(&scene, i, 100);
		while (lost_of(scene.fabric) != i)
			CHECK(test_now_ns() < deadline_ns);
	}
	end_post_recv(scene.to, 10, 0, 200);
	send_filled(&scene, 10, 100);
	cq_expect(scene.to->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect(scene.to->recv_cq, 10, IBV_WC_SUCCESS);
	scene_close(&scene);
}

TEST(a_program_that_has_polled_all_has_no_receive_to_come)
{
	struct scene scene = scene_of(IBV_QPT_UD);

	starve(&scene, 100);
	cq_expect(scene.to->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect_none(scene.to->recv_cq, MS);
	CHECK_EQ(waiting(&scene), 0);
	CHECK_EQ(lost_of(scene.fabric), 1);
	scene_close(&scene);
}

static void make_wait(struct scene *scene)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	starve(scene, 100);
	while (!waiting(scene) && !lost_of(scene->fabric)) {
		CHECK(test_now_ns() < deadline_ns);
		CHECK_EQ(nupa_poll_cq(scene->to->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
	}
}

TEST(a_backlog_ends_with_its_queue_pair)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC };

	for (int i = 0; i < 2; i++) {
		struct scene scene = scene_of(types[i]);
		struct end *to = scene.to;

		make_wait(&scene);
		CHECK_EQ(end_modify(to, IBV_QPS_ERR), 0);
		CHECK_EQ(waiting(&scene), 0);
		scene_close(&scene);

		scene = scene_of(types[i]);
		make_wait(&scene);
		CHECK_EQ(end_modify(scene.to, IBV_QPS_RESET), 0);
		CHECK_EQ(waiting(&scene), 0);
		scene_close(&scene);

		scene = scene_of(types[i]);
		make_wait(&scene);
		fabric_close(scene.fabric, scene.from, scene.to);
	}
}

TEST(a_backlog_outlives_its_sender_where_that_was_no_partner)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = unreliable_options(types[i]);
		struct target target = target_fork(fabric);
		struct end *end = end_open(fabric, &options);
		struct nupa_engine *engine = qp_of(end)->engine;
		uint32_t n;

		target_open(&target, fabric, &options);
		target_connect(&target, &end->self);
		end_connect(end, &target.address);
		end_post_recv(end, 0, 0, 200);
		target_for_ever(&target, TARGET_SENDS, 100);
		while (!nupa_load_acquire(&qp_of(end)->entry->backlog) &&
		       !hw_of(fabric, 0).rx_no_receive)
			CHECK_EQ(nupa_poll_cq(end->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
		target_kill(&target);
		for (bool broken = false; !broken;) {
			struct nupa_channel *channel;

			nupa_engine_lock(engine);
			channel = engine->channels[target.address.qpn >> NUPA_QP_INDEX_BITS];
			broken = !channel || channel->broken;
			n = qp_of(end)->backlog.n;
			nupa_engine_unlock(engine);
		}
		CHECK(types[i] == IBV_QPT_UD || !n);
		end_close(end);
		nupa_fabric_put(fabric);
	}
}

/* A sender that heeds no backlog. */
TEST(a_backlog_has_a_bound)
{
	struct scene scene = scene_of(IBV_QPT_UD);
	struct nupa_engine *engine = qp_of(scene.to)->engine;
	const uint64_t n = 5000;
	uint64_t most = 0;

	end_post_recv(scene.to, 0, 0, 200);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t now;

		end_start(scene.from, IBV_WR_SEND, i, 0, 100);
		do
			nupa_store_relaxed(&engine->slot->backlogs, 0);
		while (nupa_poll_cq(scene.from->send_cq, 1, &(struct ibv_wc){ 0 }) == 0);
		now = waiting(&scene);
		most = now > most ? now : most;
	}
	CHECK(most && most <= 4096);
	nupa_engine_lock(engine);
	nupa_store_relaxed(&engine->slot->backlogs, qp_of(scene.to)->backlog.n != 0);
	nupa_engine_unlock(engine);
	CHECK_EQ(end_modify(scene.to, IBV_QPS_ERR), 0);
	scene_close(&scene);
}

/* A peer that always publishes a backlog that shrinks. */
TEST(a_peer_that_claims_a_backlog_holds_no_sender_for_ever)
{
	struct scene scene = scene_of(IBV_QPT_UD);
	struct nupa_qp *to = qp_of(scene.to);
	struct nupa_slot *slot = to->engine->slot;
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	send_filled(&scene, 0, 8);
	nupa_store_relaxed(&to->entry->backlog, 1);
	nupa_store_release(&slot->backlogs, 1);
	end_start(scene.from, IBV_WR_SEND, 1, 0, 8);
	while (nupa_poll_cq(scene.from->send_cq, 1, &(struct ibv_wc){ 0 }) == 0) {
		CHECK(test_now_ns() < deadline_ns);
		nupa_store_relaxed(&slot->backlog_moves, slot->backlog_moves + 1);
	}
	CHECK_EQ(hw_of(scene.fabric, 0).tx_no_room, 1);
	nupa_store_relaxed(&to->entry->backlog, 0);
	nupa_store_release(&slot->backlogs, 0);
	scene_close(&scene);
}

TEST(a_reliable_connection_shares_an_empty_srq_with_a_backlog)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = unreliable_options(IBV_QPT_UD);
	struct end *u, *v, a, b;

	options.srq_wr = 16;
	pair_open(fabric, &options, &u, &v);
	a = *u;
	b = *v;
	a.options.type = b.options.type = IBV_QPT_RC;
	a.qp = end_make_qp(&a);
	b.qp = end_make_qp(&b);
	a.self.qpn = a.qp->qp_num;
	b.self.qpn = b.qp->qp_num;
	end_connect(&a, &b.self);
	end_connect(&b, &a.self);
	end_post_recv(v, 0, 0, 200);
	for (uint64_t i = 0; i < 2; i++) {
		end_start(u, IBV_WR_SEND, i, 0, 100);
		cq_expect(u->send_cq, i, IBV_WC_SUCCESS);
	}
	end_start(&a, IBV_WR_SEND, 2, 0, 100);
	for (uint64_t i = 1; i < 4; i++)
		end_post_recv(v, i, (uint32_t)i * 1024, 200);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(v->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect(v->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_destroy_qp(a.qp), 0);
	CHECK_EQ(nupa_destroy_qp(b.qp), 0);
	fabric_close(fabric, u, v);
}
