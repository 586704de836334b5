/* SPDX-License-Identifier: BSD-3-Clause
 * A peer that destroys its QPs and leaves, as programs do when they are done.  Messages that it
 * took are acknowledged; the others get no answer, as on a network. */
#include "engine/device/device.h"
#include "tests/support/target.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* IBTA timeouts of 4.096 us * 2^n, eight times each: one that no test waits for, and one that it
 * does. */
#define LONG_TIMEOUT 20
#define SHORT_TIMEOUT 12
#define SHORT_NS (UINT64_C(8) * (UINT64_C(4096) << SHORT_TIMEOUT))

struct scene {
	struct nupa_fabric *fabric;
	struct target target;
	struct end *end;
};

static struct scene scene_of(enum nupa_mover mover, uint8_t timeout)
{
	struct scene scene = { .fabric = test_fabric() };
	struct end_options options = end_options_of(mover);

	options.timeout = timeout;
	scene.target = target_fork(scene.fabric);
	scene.end = end_open(scene.fabric, &options);
	target_open(&scene.target, scene.fabric, &options);
	target_connect(&scene.target, &scene.end->self);
	end_connect(scene.end, &scene.target.address);
	return scene;
}

static void scene_close(struct scene *scene)
{
	end_close(scene->end);
	nupa_fabric_put(scene->fabric);
}

/* The n requests behind those that succeeded: not before the time is over, and as one. */
static void expect_timeout(struct scene *scene, uint64_t first, uint64_t n, uint64_t since_ns)
{
	cq_expect(scene->end->send_cq, first, IBV_WC_RETRY_EXC_ERR);
	CHECK(test_now_ns() - since_ns >= SHORT_NS);
	for (uint64_t i = 1; i < n; i++)
		cq_expect(scene->end->send_cq, first + i, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(scene->end), IBV_QPS_ERR);
}

static const enum nupa_mover movers[] = { NUPA_MOVER_RELAY, NUPA_MOVER_CMA };
static const uint32_t lengths[] = { 8, 8000, 20000, 300000 };

static bool is_usable(enum nupa_mover mover)
{
	return mover != NUPA_MOVER_CMA || test_cma_works();
}

/* It had one receive, and two SENDs more were on their way when it left. */
static void send_too_much(enum nupa_mover mover, uint32_t length)
{
	struct scene scene = scene_of(mover, LONG_TIMEOUT);
	struct end *end = scene.end;

	target_post_recv(&scene.target, 1, 0, length);
	end_post_recv(end, 9, 0, length);
	pattern_fill(end->memory, length, 5);
	for (uint64_t i = 1; i <= 3; i++)
		end_start(end, IBV_WR_SEND, i, 0, length);
	target_expect(&scene.target, 1, IBV_WC_SUCCESS);
	target_check(&scene.target, 0, length, 5);
	target_close(&scene.target);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect_none(end->send_cq, 10000000);
	cq_expect_none(end->recv_cq, 0);
	CHECK_EQ(end_state(end), IBV_QPS_RTS);
	scene_close(&scene);
}

TEST(messages_that_the_target_took_are_acknowledged_and_the_rest_wait)
{
	for (size_t i = 0; i < sizeof(movers) / sizeof(movers[0]); i++)
		for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
			if (is_usable(movers[i]))
				send_too_much(movers[i], lengths[k]);
}

TEST(messages_that_nobody_took_fail_when_the_timeout_is_over)
{
	struct scene scene = scene_of(NUPA_MOVER_RELAY, SHORT_TIMEOUT);
	uint64_t start_ns = test_now_ns();

	end_post_recv(scene.end, 9, 0, 8);
	for (uint64_t i = 1; i <= 3; i++)
		end_start(scene.end, IBV_WR_SEND, i, 0, 20000);
	target_close(&scene.target);
	expect_timeout(&scene, 1, 3, start_ns);
	cq_expect(scene.end->recv_cq, 9, IBV_WC_WR_FLUSH_ERR);
	scene_close(&scene);
}

TEST(requests_to_a_target_that_left_fail_when_the_timeout_is_over)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		struct scene scene = scene_of(NUPA_MOVER_NONE, SHORT_TIMEOUT);
		uint64_t start_ns;

		target_close(&scene.target);
		start_ns = test_now_ns();
		end_start(scene.end, opcodes[i], 1, 0, 8);
		end_start(scene.end, opcodes[i], 2, 0, 8);
		expect_timeout(&scene, 1, 2, start_ns);
		scene_close(&scene);
	}
}

/* It leaves in the middle of requests of all kinds, each of them executed or not. */
static void leave_amid(enum nupa_mover mover, uint32_t length)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND,
	};
	struct scene scene = scene_of(mover, SHORT_TIMEOUT);
	uint64_t start_ns, n = 40, i = 0;
	struct ibv_wc wc;

	for (uint64_t k = 0; k < n; k++)
		target_post_recv(&scene.target, k, 0, length);
	start_ns = test_now_ns();
	for (uint64_t k = 0; k < n; k++)
		end_start(scene.end, opcodes[k % 4], k, 0, k % 4 == 2 ? 8 : length);
	target_close(&scene.target);
	do
		wc = cq_wait(scene.end->send_cq);
	while (wc.status == IBV_WC_SUCCESS && ++i < n);
	if (i < n) {
		CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
		CHECK(test_now_ns() - start_ns >= SHORT_NS);
		while (++i < n)
			cq_expect(scene.end->send_cq, i, IBV_WC_WR_FLUSH_ERR);
	}
	scene_close(&scene);
}

TEST(a_target_leaves_amid_requests_of_all_kinds)
{
	for (size_t i = 0; i < sizeof(movers) / sizeof(movers[0]); i++)
		for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
			if (is_usable(movers[i]))
				leave_amid(movers[i], lengths[k]);
}

/* --- owed messages ------------------------------------------------------------------- */

/* Words that two processes exchange. */
struct board {
	struct end_address ours, theirs;
	uint32_t theirs_known, ours_known, met, held, sent, leaving;
};

static struct board *board_new(void)
{
	struct board *board =
	    mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(board != MAP_FAILED);
	return board;
}

static void wait_until(uint32_t *word)
{
	while (!nupa_load_acquire(word))
		sched_yield();
}

static struct nupa_engine *engine_of(const struct end *end)
{
	return nupa_engine_of(end->context);
}

/* So that no acknowledgement finds room: the peer takes nothing just now. */
static void fill_ring_to(struct end *end, uint32_t peer)
{
	struct nupa_channel *channel = engine_of(end)->channels[peer];
	struct nupa_msg *msg;

	while ((msg = nupa_tx_reserve(&channel->tx, 0, NULL))) {
		*msg = (struct nupa_msg){ .op = NUPA_OP_GONE }; /* of no QP */
		nupa_channel_publish(channel, msg, 0);
	}
}

/* Its last acknowledgement waits for room when it is done. */
static void receive_and_leave(struct nupa_fabric *fabric, struct board *board, bool in_order)
{
	struct end_options options = end_defaults;
	struct end *end;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	options.host = 1;
	end = end_open(fabric, &options);
	board->theirs = end->self;
	nupa_store_release(&board->theirs_known, 1);
	wait_until(&board->ours_known);
	end_connect(end, &board->ours);
	end_post_recv(end, 1, 0, 8);
	end_post_recv(end, 2, 0, 8);
	cq_expect(end->recv_cq, 1, IBV_WC_SUCCESS);
	wait_until(&board->met);
	nupa_engine_lock(engine_of(end));
	nupa_store_release(&board->held, 1);
	wait_until(&board->sent);
	fill_ring_to(end, board->ours.qpn >> NUPA_QP_INDEX_BITS);
	nupa_engine_unlock(engine_of(end));
	cq_expect(end->recv_cq, 2, IBV_WC_SUCCESS);
	nupa_store_release(&board->leaving, 1);
	if (in_order)
		end_close(end);
	nupa_fabric_put(fabric);
	exit(0);
}

/* Looks at nothing until the peer is gone, if it goes without waiting for us. */
static void look_away(struct end *end, struct board *board)
{
	uint32_t peer = board->theirs.qpn >> NUPA_QP_INDEX_BITS;
	uint64_t until_ns;

	nupa_engine_lock(engine_of(end));
	nupa_store_release(&board->sent, 1);
	wait_until(&board->leaving);
	until_ns = test_now_ns() + 100000000;
	while (nupa_channel_peer_alive(engine_of(end)->channels[peer]) && test_now_ns() < until_ns)
		sched_yield();
	nupa_engine_unlock(engine_of(end));
}

static void leave_with_a_full_ring(bool in_order)
{
	struct board *board = board_new();
	struct nupa_fabric *fabric = test_fabric();
	struct end *end;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		receive_and_leave(fabric, board, in_order);
	end = end_open(fabric, &end_defaults);
	wait_until(&board->theirs_known);
	board->ours = end->self;
	end_connect(end, &board->theirs);
	nupa_store_release(&board->ours_known, 1);
	end_start(end, IBV_WR_SEND, 1, 0, 8);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	nupa_store_release(&board->met, 1);
	wait_until(&board->held);
	end_start(end, IBV_WR_SEND, 2, 0, 8);
	look_away(end, board);
	cq_expect(end->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_CHILD(pid);
	end_close(end);
	nupa_fabric_put(fabric);
	CHECK_EQ(munmap(board, sizeof(*board)), 0);
}

TEST(a_process_that_closes_its_device_waits_for_room_for_its_last_acknowledgement)
{
	leave_with_a_full_ring(true);
}

TEST(a_process_that_exits_waits_for_room_for_its_last_acknowledgement)
{
	leave_with_a_full_ring(false);
}

/* --- messages to be fetched ---------------------------------------------------------- */

enum giving_up { BY_DESTRUCTION, BY_RESET, BY_ERROR };

/* Sends from memory that is something else by the time that it is looked at. */
static void send_and_give_up(struct nupa_fabric *fabric, struct board *board, enum giving_up how)
{
	struct end_options options = end_defaults;
	struct end *end;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	options.host = 1;
	end = end_open(fabric, &options);
	board->theirs = end->self;
	nupa_store_release(&board->theirs_known, 1);
	wait_until(&board->ours_known);
	end_connect(end, &board->ours);
	end_start(end, IBV_WR_SEND, 1, 0, 8);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	nupa_store_release(&board->met, 1);
	wait_until(&board->held);
	end_start(end, IBV_WR_SEND, 2, 0, 20000);
	if (how == BY_DESTRUCTION)
		CHECK_EQ(nupa_destroy_qp(end->qp), 0);
	else
		CHECK_EQ(end_modify(end, how == BY_RESET ? IBV_QPS_RESET : IBV_QPS_ERR), 0);
	memset(end->memory, 0xee, 20000);
	nupa_store_release(&board->sent, 1);
	wait_until(&board->leaving);
	_exit(0);
}

static void give_up(enum giving_up how)
{
	struct board *board = board_new();
	struct nupa_fabric *fabric = test_fabric();
	struct end *end;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		send_and_give_up(fabric, board, how);
	end = end_open(fabric, &end_defaults);
	wait_until(&board->theirs_known);
	board->ours = end->self;
	end_connect(end, &board->theirs);
	end_post_recv(end, 1, 0, 8);
	end_post_recv(end, 2, 0, 20000);
	nupa_store_release(&board->ours_known, 1);
	cq_expect(end->recv_cq, 1, IBV_WC_SUCCESS);
	wait_until(&board->met);
	nupa_engine_lock(engine_of(end));
	nupa_store_release(&board->held, 1);
	wait_until(&board->sent);
	nupa_engine_unlock(engine_of(end));
	cq_expect_none(end->recv_cq, 10000000);
	CHECK_EQ(end_state(end), IBV_QPS_RTS);
	CHECK_EQ(end_modify(end, IBV_QPS_ERR), 0);
	cq_expect(end->recv_cq, 2, IBV_WC_WR_FLUSH_ERR); /* it was still there */
	nupa_store_release(&board->leaving, 1);
	CHECK_CHILD(pid);
	end_close(end);
	nupa_fabric_put(fabric);
	CHECK_EQ(munmap(board, sizeof(*board)), 0);
}

TEST(messages_that_their_sender_gave_up_are_not_received)
{
	if (!test_cma_works())
		return;
	give_up(BY_DESTRUCTION);
	give_up(BY_RESET);
	give_up(BY_ERROR);
}
