/* SPDX-License-Identifier: BSD-3-Clause
 * A peer that is killed during any operation.  The other side is notified within a second, nothing
 * hangs, and the fabric serves the next peer. */
#include "base/atomics.h"
#include "engine/attachment/attachment.h"
#include "tests/support/target.h"
#include "region/slot_life.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NOTICE_NS UINT64_C(5000000000)
#else
#define NOTICE_NS UINT64_C(1000000000)
#endif

struct scene {
	struct nupa_fabric *fabric;
	struct target victim, next;
	struct end *end;
};

static struct scene scene_of(enum nupa_mover mover, uint8_t rnr_retry)
{
	struct scene scene = { .fabric = test_fabric() };
	struct end_options options = end_defaults;

	options.mover = mover;
	options.rnr_retry = rnr_retry;
	options.timeout = 0; /* for ever: it is the death that counts */
	scene.victim = target_fork(scene.fabric);
	scene.next = target_fork(scene.fabric);
	scene.end = end_open(scene.fabric, &options);
	target_open(&scene.victim, scene.fabric, &options);
	target_connect(&scene.victim, &scene.end->self);
	end_connect(scene.end, &scene.victim.address);
	return scene;
}

/* A successor meets the same end, made new, on the same fabric. */
static void the_next_peer_is_served(struct scene *scene)
{
	struct end *end = scene->end;

	CHECK_EQ(end_modify(end, IBV_QPS_RESET), 0);
	target_open(&scene->next, scene->fabric, &end->options);
	target_connect(&scene->next, &end->self);
	end_connect(end, &scene->next.address);
	target_post_recv(&scene->next, 1, 0, 20000);
	pattern_fill(end->memory, 20000, 3);
	end_start(end, IBV_WR_SEND, 2, 0, 20000);
	cq_expect(end->send_cq, 2, IBV_WC_SUCCESS);
	target_expect(&scene->next, 1, IBV_WC_SUCCESS);
	target_check(&scene->next, 0, 20000, 3);
	target_close(&scene->next);
	end_close(end);
	CHECK_EQ(nupa_fabric_reap(scene->fabric), 0); /* it was done */
	nupa_fabric_put(scene->fabric);
}

/* The next n completions: successes, then one with this error, then flushes.  The last was posted
 * after the end: it has the error if all before it were executed. */
static void all_complete(struct ibv_cq *cq, uint64_t n, enum ibv_wc_status error)
{
	enum ibv_wc_status before = IBV_WC_SUCCESS, status = IBV_WC_SUCCESS;

	for (uint64_t i = 0; i < n; i++) {
		status = cq_wait(cq).status;
		if (before != IBV_WC_SUCCESS)
			CHECK_EQ(status, IBV_WC_WR_FLUSH_ERR);
		else if (status != IBV_WC_SUCCESS || i == n - 1)
			CHECK_EQ(status, error);
		before = status;
	}
}

/* Keeps 40 requests and 40 receives going for up to 2 ms, then strikes. */
static void killed_while(enum target_habit habit, enum nupa_mover mover, uint32_t length,
			 enum ibv_wr_opcode opcode, uint64_t *random)
{
	struct scene scene = scene_of(mover, 7);
	struct end *end = scene.end;
	uint64_t started = 0, done = 0, posted = 0, got = 0, start_ns, until_ns;

	target_for_ever(&scene.victim, habit, length);
	until_ns = test_now_ns() + test_random(random) % 2000000;
	do {
		struct ibv_wc wc;

		for (; started - done < 40; started++)
			end_start(end, opcode, started, 0, length);
		for (; posted - got < 40; posted++)
			end_post_recv(end, posted, 0, length);
		if (nupa_poll_cq(end->send_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, done++);
		}
		if (nupa_poll_cq(end->recv_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.wr_id, got++);
		}
	} while (test_now_ns() < until_ns);
	start_ns = test_now_ns();
	target_kill(&scene.victim);
	end_expect_event(end, IBV_EVENT_QP_FATAL);
	CHECK(test_now_ns() - start_ns < NOTICE_NS);
	CHECK_EQ(end_state(end), IBV_QPS_ERR);
	end_start(end, opcode, started++, 0, length);
	end_post_recv(end, posted++, 0, length);
	all_complete(end->send_cq, started - done, IBV_WC_RETRY_EXC_ERR);
	all_complete(end->recv_cq, posted - got, IBV_WC_WR_FLUSH_ERR);
	the_next_peer_is_served(&scene);
}

static const enum nupa_mover movers[] = { NUPA_MOVER_RELAY, NUPA_MOVER_CMA };

static void while_all(enum target_habit habit, enum ibv_wr_opcode opcode)
{
	static const uint32_t lengths[] = { 8, 8000, 300000 };

	uint64_t random = test_seed();

	for (int i = 0; i < 18; i++)
		if (i % 2 == 0 || test_cma_works())
			killed_while(habit, movers[i % 2], lengths[i % 3], opcode, &random);
}

TEST(a_peer_killed_while_it_polls)
{
	while_all(TARGET_POLLS, IBV_WR_SEND);
}

TEST(a_peer_killed_while_it_sends)
{
	while_all(TARGET_SENDS, IBV_WR_SEND);
}

TEST(a_peer_killed_while_it_receives)
{
	while_all(TARGET_RECEIVES, IBV_WR_SEND);
}

TEST(a_peer_killed_while_it_registers)
{
	while_all(TARGET_REGISTERS, IBV_WR_SEND);
}

TEST(a_peer_killed_while_it_is_written_to)
{
	while_all(TARGET_POLLS, IBV_WR_RDMA_WRITE);
}

TEST(a_peer_killed_while_it_is_read)
{
	while_all(TARGET_POLLS, IBV_WR_RDMA_READ);
}

TEST(a_peer_killed_while_it_writes)
{
	while_all(TARGET_WRITES, IBV_WR_SEND);
}

TEST(a_peer_killed_while_it_reads)
{
	while_all(TARGET_READS, IBV_WR_SEND);
}

/* Nothing is on its way: only the receives tell. */
TEST(an_idle_connection_hears_of_the_death_as_well)
{
	struct scene scene = scene_of(NUPA_MOVER_NONE, 7);
	uint64_t start_ns;

	end_post_recv(scene.end, 1, 0, 8);
	end_post_recv(scene.end, 2, 0, 8);
	start_ns = test_now_ns();
	target_kill(&scene.victim);
	cq_expect(scene.end->recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	cq_expect(scene.end->recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	end_expect_event(scene.end, IBV_EVENT_QP_FATAL);
	CHECK(test_now_ns() - start_ns < NOTICE_NS);
	the_next_peer_is_served(&scene);
}

struct connector {
	struct end *end;
	bool begins;
};

static void *connects(void *given)
{
	struct connector *connector = given;

	nupa_store_release(&connector->begins, true);
	end_connect(connector->end, &connector->end->peer);
	return NULL;
}

/* A QP meets the process that has the slot now, though nobody here has noticed the death of the one
 * before.  The lock keeps the port thread from it; either thread may have the lock next. */
TEST(a_successor_in_the_slot_is_met_before_the_death_is_noticed)
{
	struct nupa_fabric *fabric = test_fabric();
	struct target targets[9];
	struct end *end;
	pthread_t thread;

	for (size_t i = 0; i < 9; i++)
		targets[i] = target_fork(fabric);
	end = end_open(fabric, &end_defaults);
	target_open(&targets[0], fabric, &end_defaults);
	end_connect(end, &targets[0].address);
	for (size_t i = 1; i < 9; i++) {
		struct connector connector = { .end = end };

		CHECK_EQ(end_modify(end, IBV_QPS_RESET), 0);
		nupa_engine_lock(nupa_engine_of(end->context));
		target_kill(&targets[i - 1]);
		CHECK_EQ(nupa_fabric_reap(fabric), 1);
		target_open(&targets[i], fabric, &end_defaults);
		target_connect(&targets[i], &end->self);
		end->peer = targets[i].address;
		CHECK_EQ(pthread_create(&thread, NULL, connects, &connector), 0);
		while (!nupa_load_acquire(&connector.begins))
			sched_yield();
		nupa_engine_unlock(nupa_engine_of(end->context));
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK_EQ(end_state(end), IBV_QPS_RTS);
		end_start(end, IBV_WR_RDMA_WRITE, i, 0, 8);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	}
	target_close(&targets[8]);
	end_close(end);
	nupa_fabric_put(fabric);
}

/* Between two calls of a program that connects: the second one succeeds all the same. */
TEST(a_peer_killed_before_rts_fails_the_first_request)
{
	struct nupa_fabric *fabric = test_fabric();
	struct target victim = target_fork(fabric);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct end *end = end_open(fabric, &end_defaults);

	target_open(&victim, fabric, &end_defaults);
	end_to_init(end);
	end_to_rtr(end, &victim.address);
	end_post_recv(end, 1, 0, 8);
	target_kill(&victim);
	end_expect_event(end, IBV_EVENT_QP_FATAL);
	CHECK_EQ(nupa_modify_qp(end->qp, &attr, IBV_QP_STATE),
		 EINVAL); /* what RTS demands is missing */
	end_to_rts(end);
	CHECK_EQ(end_state(end), IBV_QPS_ERR);
	end_start(end, IBV_WR_SEND, 2, 0, 8);
	cq_expect(end->send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	cq_expect(end->recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	end_start(end, IBV_WR_SEND, 3, 0, 8);
	cq_expect(end->send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(nupa_modify_qp(end->qp, &attr, IBV_QP_STATE), EINVAL); /* once is enough */
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(a_peer_that_ends_without_closing_anything_is_as_one_that_was_killed)
{
	struct scene scene = scene_of(NUPA_MOVER_NONE, 7);

	end_post_recv(scene.end, 1, 0, 8);
	target_for_ever(&scene.victim, TARGET_EXITS, 0);
	target_join(&scene.victim);
	cq_expect(scene.end->recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	end_expect_event(scene.end, IBV_EVENT_QP_FATAL);
	the_next_peer_is_served(&scene);
}

/* A victim that is stopped is not dead: nothing fails until it is killed. */
TEST(a_stopped_peer_is_waited_for)
{
	struct scene scene = scene_of(NUPA_MOVER_RELAY, 7);
	struct end *end = scene.end;

	target_stop(&scene.victim);
	for (uint64_t i = 0; i < 10; i++)
		end_start(end, IBV_WR_RDMA_WRITE, i, 0, 65536);
	cq_expect_none(end->send_cq, 20000000);
	target_continue(&scene.victim);
	for (uint64_t i = 0; i < 10; i++)
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	target_stop(&scene.victim);
	for (uint64_t i = 0; i < 10; i++)
		end_start(end, IBV_WR_RDMA_WRITE, i, 0, 65536);
	target_kill(&scene.victim);
	end_expect_event(end, IBV_EVENT_QP_FATAL);
	end_start(end, IBV_WR_RDMA_WRITE, 10, 0, 8);
	all_complete(end->send_cq, 11, IBV_WC_RETRY_EXC_ERR);
	the_next_peer_is_served(&scene);
}

TEST(an_unreliable_connection_outlives_its_peer)
{
	struct nupa_fabric *fabric = test_fabric();
	struct target victim = target_fork(fabric);
	struct end_options options = end_defaults;
	struct end *end;

	options.type = IBV_QPT_UC;
	end = end_open(fabric, &options);
	target_open(&victim, fabric, &options);
	target_connect(&victim, &end->self);
	end_connect(end, &victim.address);
	target_stop(&victim);
	for (uint64_t i = 0; i < 40; i++)
		end_start(end, IBV_WR_SEND, i, 0, 20000);
	target_kill(&victim);
	for (uint64_t i = 0; i < 40; i++)
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	CHECK_EQ(end_state(end), IBV_QPS_RTS);
	end_close(end);
	nupa_fabric_put(fabric);
}

/* LOCAL is demanded there, and we are another process: without a word we would wait for ever. */
TEST(a_peer_that_cannot_reach_us_says_so)
{
	struct nupa_fabric *fabric = test_fabric();
	struct target peer = target_fork(fabric);
	struct end_options options = end_defaults;
	struct end *end;

	options.timeout = 0;
	end = end_open(fabric, &options);
	options.mover = NUPA_MOVER_LOCAL;
	target_open(&peer, fabric, &options);
	end_connect(end, &peer.address);
	end_start(end, IBV_WR_SEND, 1, 0, 8);
	target_connect(&peer, &end->self);
	cq_expect(end->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	end_expect_event(end, IBV_EVENT_QP_FATAL);
	end_close(end);
	target_close(&peer);
	nupa_fabric_put(fabric);
}

/* Words that two processes exchange: addresses of two ends each, and their progress. */
struct board {
	struct end_address ours[2], theirs[2];
	uint32_t ready, done;
};

static void wait_until(uint32_t *word)
{
	while (!nupa_load_acquire(word))
		sched_yield();
}

static void destroy_one_and_wait(struct nupa_fabric *fabric, struct board *board)
{
	struct end *ends[2] = { end_open(fabric, &end_defaults), end_open(fabric, &end_defaults) };

	for (int i = 0; i < 2; i++)
		board->theirs[i] = ends[i]->self;
	nupa_store_release(&board->done, 1);
	wait_until(&board->ready);
	for (int i = 0; i < 2; i++)
		end_connect(ends[i], &board->ours[i]);
	CHECK_EQ(nupa_destroy_qp(ends[0]->qp), 0);
	nupa_store_release(&board->done, 2);
	for (;;)
		pause();
}

/* The victim had destroyed one of its two QPs: that one's partner does not care. */
TEST(the_partner_of_a_destroyed_queue_pair_outlives_its_process)
{
	struct board *board =
	    mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end *ends[2];
	pid_t victim = fork();
	int status;

	CHECK(victim >= 0);
	if (victim == 0)
		destroy_one_and_wait(fabric, board);
	options.host = 1;
	wait_until(&board->done);
	for (uint64_t i = 0; i < 2; i++) {
		ends[i] = end_open(fabric, &options);
		board->ours[i] = ends[i]->self;
		end_connect(ends[i], &board->theirs[i]);
		end_post_recv(ends[i], i, 0, 8);
	}
	nupa_store_release(&board->ready, 1);
	while (nupa_load_acquire(&board->done) != 2)
		cq_expect_none(ends[0]->recv_cq, 1000000);
	CHECK_EQ(kill(victim, SIGKILL), 0);
	CHECK_EQ(waitpid(victim, &status, 0), victim);
	cq_expect(ends[1]->recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
	end_expect_event(ends[1], IBV_EVENT_QP_FATAL);
	CHECK_EQ(end_state(ends[0]), IBV_QPS_RTS);
	cq_expect_none(ends[0]->recv_cq, 1000000);
	end_start(ends[0], IBV_WR_SEND, 7, 0, 8);
	cq_expect(ends[0]->send_cq, 7, IBV_WC_RETRY_EXC_ERR);
	end_close(ends[0]);
	end_close(ends[1]);
	nupa_fabric_put(fabric);
	CHECK_EQ(munmap(board, sizeof(*board)), 0);
}

struct deregistration {
	struct ibv_mr *mr;
	int error;
	uint32_t done;
};

static void *deregister(void *argument)
{
	struct deregistration *d = argument;

	d->error = nupa_dereg_mr(d->mr);
	nupa_store_release(&d->done, 1);
	return NULL;
}

/* As if the victim had been stopped between its look at the key and its copy. */
TEST(a_region_in_use_by_a_stopped_peer_stays_while_all_else_goes_on)
{
	struct scene scene = scene_of(NUPA_MOVER_RELAY, 7);
	struct end *end = scene.end;
	struct deregistration d = { .mr = end->mr };
	struct nupa_slot *slot =
	    &scene.fabric->slots[scene.victim.address.qpn >> NUPA_QP_INDEX_BITS];
	uint64_t hazard = (uint64_t)nupa_context_slot(end->context) << 32 |
			  ((end->mr->rkey >> NUPA_KEY_VARIANT_BITS) + 1);
	uint64_t start_ns = test_now_ns();
	pthread_t thread;
	struct ibv_wc wc;

	target_stop(&scene.victim);
	nupa_store_relaxed(&slot->hazard, hazard);
	CHECK_EQ(pthread_create(&thread, NULL, deregister, &d), 0);
	while (!nupa_load_acquire(&d.done)) {
		uint64_t before_ns = test_now_ns();

		CHECK_EQ(nupa_poll_cq(end->send_cq, 1, &wc), 0);
		CHECK(test_now_ns() - before_ns < NOTICE_NS); /* nothing is locked */
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(d.error, EBUSY);
	CHECK(test_now_ns() - start_ns < WAIT_NS);
	CHECK_EQ(nupa_dealloc_pd(end->pd), EBUSY); /* it is still there */
	nupa_store_relaxed(&slot->hazard, 0);
	target_continue(&scene.victim);
	CHECK_EQ(nupa_dereg_mr(end->mr), 0);
	end->mr = nupa_reg_mr(end->pd, end->memory, end->options.memory_bytes,
			      (uintptr_t)end->memory, (int)end->options.access);
	CHECK(end->mr);
	target_kill(&scene.victim);
	end_expect_event(end, IBV_EVENT_QP_FATAL);
	the_next_peer_is_served(&scene);
}
