/* SPDX-License-Identifier: BSD-3-Clause
 * Faults of kind TIMEOUT: a requester gives a peer up that takes nothing, as hardware does; without
 * one it waits. */
#include "tests/support/faults.h"
#include "tests/support/target.h"

#include <string.h>

#define MANY (2 * TEST_RING_LINES)

struct scene {
	struct nupa_fabric *fabric;
	struct target target;
	struct end *end;
};

static struct scene scene_of(enum nupa_mover mover, uint8_t timeout, uint8_t retry_cnt)
{
	struct scene scene = { .fabric = test_fabric() };
	struct end_options options = end_options_of(mover);

	options.timeout = timeout;
	options.retry_cnt = retry_cnt;
	options.send_wr = MANY;
	scene.target = target_fork(scene.fabric);
	scene.end = end_open(scene.fabric, &options);
	target_open(&scene.target, scene.fabric, &options);
	target_connect(&scene.target, &scene.end->self);
	end_connect(scene.end, &scene.target.address);
	target_post_recv(&scene.target, 0, 0, 64);
	end_start(scene.end, IBV_WR_SEND, 0, 0, 8);
	cq_expect(scene.end->send_cq, 0, IBV_WC_SUCCESS);
	target_expect(&scene.target, 0, IBV_WC_SUCCESS);
	return scene;
}

static void scene_end(struct scene *scene)
{
	target_close(&scene->target);
	end_close(scene->end);
	nupa_fabric_put(scene->fabric);
}

static uint32_t make_strict(struct scene *scene)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_TIMEOUT, 1);

	return fault_add(scene->fabric, &fault);
}

TEST(each_operation_to_a_stopped_peer_ends_with_a_retry_error)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t bytes;
	} operations[] = {
		{ IBV_WR_SEND, 8 },
		{ IBV_WR_SEND, 300000 }, /* more than the channel takes */
		{ IBV_WR_RDMA_WRITE, 8 },
		{ IBV_WR_RDMA_READ, 8 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 8 },
	};

	for (uint32_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		struct scene scene = scene_of(NUPA_MOVER_NONE, 11, 2); /* 3 times 8.4 ms */
		uint64_t begun_ns;

		make_strict(&scene);
		target_stop(&scene.target);
		begun_ns = test_now_ns();
		end_start(scene.end, operations[i].opcode, 1, 0, operations[i].bytes);
		end_start(scene.end, IBV_WR_SEND, 2, 0, 8);
		cq_expect(scene.end->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		CHECK(test_now_ns() - begun_ns >= 3 * (UINT64_C(4096) << 11));
		cq_expect(scene.end->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(end_state(scene.end), IBV_QPS_ERR);
		CHECK(fault_hw(scene.fabric, 0).local_ack_timeout_err >= 1);
		target_continue(&scene.target);
		scene_end(&scene);
	}
}

/* The ring is full of messages of a QP that has no timeout. */
TEST(one_that_finds_no_room_is_given_up_as_well)
{
	struct scene scene = scene_of(NUPA_MOVER_NONE, 0, 7);
	struct end other = *scene.end;

	other.options.timeout = 11;
	other.options.retry_cnt = 2;
	other.qp = end_make_qp(&other);
	end_connect(&other, &scene.target.address);
	make_strict(&scene);
	target_stop(&scene.target);
	for (uint64_t i = 1; i <= MANY; i++)
		end_start(scene.end, IBV_WR_SEND, i, 0, 8);
	end_start(&other, IBV_WR_SEND, MANY + 1, 0, 8);
	cq_expect(scene.end->send_cq, MANY + 1, IBV_WC_RETRY_EXC_ERR);
	cq_expect_none(scene.end->send_cq, 30 * MS);
	CHECK_EQ(end_state(scene.end), IBV_QPS_RTS);
	CHECK_EQ(nupa_destroy_qp(other.qp), 0);
	CHECK_EQ(end_modify(scene.end, IBV_QPS_ERR), 0);
	target_continue(&scene.target);
	scene_end(&scene);
}

/* It goes on in time: nothing is lost, and nothing is executed twice. */
TEST(one_that_goes_on_in_time_takes_each_request_once)
{
	struct scene scene = scene_of(NUPA_MOVER_NONE, 16, 7); /* 268 ms each */

	make_strict(&scene);
	target_set_word(&scene.target, 0, 5);
	for (uint64_t i = 1; i <= 4; i++)
		target_post_recv(&scene.target, i, 4096, 64);
	target_stop(&scene.target);
	for (uint64_t i = 1; i <= 4; i++) {
		struct request request =
		    request_of(scene.end, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8);

		request.wr.wr.atomic.compare_add = 1;
		request.sge[0].addr += i * 64;
		end_post(scene.end, &request);
		end_start(scene.end, IBV_WR_SEND, i + 10, 64, 8);
	}
	/* Its timer has run out once, and twice. */
	while (fault_hw(scene.fabric, 0).local_ack_timeout_err < 2)
		cq_expect_none(scene.end->send_cq, 0);
	target_continue(&scene.target);
	for (uint64_t i = 1; i <= 4; i++) {
		cq_expect(scene.end->send_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(*(uint64_t *)(void *)(scene.end->memory + i * 64), 4 + i);
		cq_expect(scene.end->send_cq, i + 10, IBV_WC_SUCCESS);
		target_expect(&scene.target, i, IBV_WC_SUCCESS);
	}
	CHECK_EQ(target_word(&scene.target, 0), 9);
	scene_end(&scene);
}

TEST(without_the_fault_a_stopped_peer_is_waited_for)
{
	struct scene scene = scene_of(NUPA_MOVER_NONE, 8, 0); /* 1 ms */

	target_post_recv(&scene.target, 1, 0, 64);
	target_stop(&scene.target);
	end_start(scene.end, IBV_WR_SEND, 1, 0, 8);
	cq_expect_none(scene.end->send_cq, 50 * MS);
	target_continue(&scene.target);
	cq_expect(scene.end->send_cq, 1, IBV_WC_SUCCESS);
	target_expect(&scene.target, 1, IBV_WC_SUCCESS);
	scene_end(&scene);
}

/* Requests that it had not taken are executed when it goes on, as packets on their way would be.
 * They are not of the connection that is made anew. */
TEST(a_connection_made_anew_has_nothing_of_the_old_one)
{
	struct scene scene = scene_of(NUPA_MOVER_NONE, 8, 1);
	uint32_t id = make_strict(&scene);

	target_stop(&scene.target);
	end_start(scene.end, IBV_WR_SEND, 1, 0, 8);
	cq_expect(scene.end->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(end_modify(scene.end, IBV_QPS_RESET), 0);
	target_continue(&scene.target);
	CHECK_EQ(nupa_fault_clear(scene.fabric, id), 0);
	target_to_reset(&scene.target);
	scene.end->options.timeout = end_defaults.timeout;
	scene.end->options.retry_cnt = end_defaults.retry_cnt;
	target_connect(&scene.target, &scene.end->self);
	end_connect(scene.end, &scene.target.address);
	pattern_fill(scene.end->memory, 8, 3);
	target_post_recv(&scene.target, 2, 0, 64);
	end_start(scene.end, IBV_WR_SEND, 2, 0, 8);
	cq_expect(scene.end->send_cq, 2, IBV_WC_SUCCESS);
	target_expect(&scene.target, 2, IBV_WC_SUCCESS);
	target_check(&scene.target, 0, 8, 3);
	scene_end(&scene);
}
