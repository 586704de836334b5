/* SPDX-License-Identifier: BSD-3-Clause
 * Threads with queue pairs of their own share the engine's lock: what each has posted is executed
 * and completed, whatever takes the lock meanwhile, and counted. */
#include "engine/core/lane.h"
#include "tests/support/end.h"

#include <pthread.h>
#include <string.h>

#define THREADS 3u
#define STRIDE 4096u /* of the part of the region that each thread has */

struct worker {
	struct end from, to;
	struct ibv_mr mr; /* the key outlives its region here */
	struct stage *stage;
	pthread_t thread;
	uint32_t index;
	uint64_t done;
	enum ibv_wc_status ended; /* what the last request did */
};

/* Two hosts in this process, and as many connections between them. */
struct stage {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct worker workers[THREADS];
	bool may_share; /* false: no membarrier here; the same results are due */
	uint32_t stop;
	uint32_t shared; /* how many have seen the lock shared */
};

static struct nupa_engine *engine_of(const struct end *end)
{
	return nupa_engine_of(end->context);
}

static struct end another(struct end *end)
{
	struct end copy = *end;

	copy.send_cq = nupa_create_cq(end->context, 64, NULL, NULL, 0);
	copy.recv_cq = copy.send_cq;
	CHECK(copy.send_cq);
	copy.qp = end_make_qp(&copy);
	copy.self.qpn = copy.qp->qp_num;
	return copy;
}

static void close_another(struct end *end)
{
	CHECK_EQ(nupa_destroy_qp(end->qp), 0);
	CHECK_EQ(nupa_destroy_cq(end->send_cq), 0);
}

static void stage_open(struct stage *s)
{
	memset(s, 0, sizeof(*s));
	s->fabric = test_fabric();
	pair_open(s->fabric, &end_defaults, &s->a, &s->b);
	for (uint32_t i = 0; i < THREADS; i++) {
		struct worker *worker = &s->workers[i];

		worker->stage = s;
		worker->index = i;
		worker->from = another(s->a);
		worker->to = another(s->b);
		worker->mr = *s->a->mr;
		worker->from.mr = &worker->mr;
		end_connect(&worker->from, &worker->to.self);
		end_connect(&worker->to, &worker->from.self);
	}
	nupa_engine_lock(engine_of(s->a)); /* which changes the count, but not to or from 0 */
	s->may_share = engine_of(s->a)->lock.enough_votes != 0;
	nupa_engine_unlock(engine_of(s->a));
}

static void stage_close(struct stage *s)
{
	for (uint32_t i = 0; i < THREADS; i++) {
		close_another(&s->workers[i].from);
		close_another(&s->workers[i].to);
	}
	fabric_close(s->fabric, s->a, s->b);
}

/* The next request: a WRITE of a number, a READ of it, or an addition. */
static struct request next_of(struct worker *worker)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	const uint32_t kind = (uint32_t)(worker->done % 3), at = worker->index * STRIDE;
	struct request request =
	    request_of(&worker->from, opcodes[kind], worker->done, at + 8 * kind, 8);

	if (kind == 0) {
		memcpy(worker->from.memory + at, &worker->done, 8);
	} else if (kind == 1) { /* of the number that was written */
		request.wr.wr.rdma.remote_addr -= 8;
	} else {
		request.wr.wr.atomic.compare_add = 1;
	}
	return request;
}

/* What the request has left behind. */
static void check_last(const struct worker *worker)
{
	const uint8_t *at = worker->from.memory + worker->index * STRIDE;
	const uint64_t kind = worker->done % 3;
	uint64_t got;

	if (kind == 0)
		return;
	memcpy(&got, at + 8 * kind, 8);
	CHECK_EQ(got, kind == 1 ? worker->done - 1 : worker->done / 3);
}

static void one(struct worker *worker)
{
	struct request request = next_of(worker);
	struct ibv_wc wc;

	end_post(&worker->from, &request);
	wc = cq_wait(worker->from.send_cq);
	CHECK_EQ(wc.wr_id, worker->done);
	worker->ended = wc.status;
	if (wc.status == IBV_WC_SUCCESS)
		check_last(worker);
	worker->done++;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct stage *s = worker->stage;
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	bool seen = !s->may_share;

	while (worker->ended == IBV_WC_SUCCESS && !nupa_load_acquire(&s->stop)) {
		one(worker);
		if (!seen && nupa_lock_is_shared(&engine_of(s->a)->lock)) {
			nupa_fetch_add_seq(&s->shared, 1);
			seen = true;
		}
		CHECK(test_now_ns() < until_ns);
	}
	return NULL;
}

static void start(struct stage *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(pthread_create(&s->workers[i].thread, NULL, work, &s->workers[i]), 0);
}

static void await_shared(const struct stage *s, uint32_t n)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	while (s->may_share && nupa_load_acquire(&s->shared) < n) {
		CHECK(test_now_ns() < until_ns);
		sched_yield();
	}
}

static void join(struct stage *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(pthread_join(s->workers[i].thread, NULL), 0);
}

static void stop(struct stage *s, uint32_t n)
{
	nupa_store_release(&s->stop, 1);
	join(s, n);
}

/* The numbers that each has left at the other end. */
static void check_all(const struct stage *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct worker *worker = &s->workers[i];
		const uint8_t *at = worker->to.memory + i * STRIDE;
		const uint64_t last = (worker->done - 1) / 3 * 3; /* the last WRITE */
		uint64_t got[3];

		memcpy(got, at, sizeof(got));
		CHECK_EQ(worker->ended, IBV_WC_SUCCESS);
		CHECK_EQ(got[0], last);
		CHECK_EQ(got[2], worker->done / 3);
	}
}

TEST(threads_with_queue_pairs_of_their_own_share_the_lock)
{
	struct stage s;

	stage_open(&s);
	start(&s, THREADS);
	await_shared(&s, THREADS);
	stop(&s, THREADS);
	check_all(&s, THREADS);
	stage_close(&s);
}

/* T3: each packet is counted, in time. */
TEST(what_moves_in_lanes_is_counted)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	uint64_t sent = 0, got = 0;
	struct nupa_flow *flow;
	struct stage s;

	stage_open(&s);
	start(&s, 2);
	await_shared(&s, 2);
	stop(&s, 2);
	flow = &engine_of(s.a)->flows[1];
	for (uint32_t i = 0; i < 2; i++) {
		got += (s.workers[i].done + 1) / 3;
		sent += s.workers[i].done - (s.workers[i].done + 1) / 3;
	}
	while (nupa_load_relaxed(&flow->xmit_packets) != sent ||
	       nupa_load_relaxed(&flow->rcv_packets) != got) {
		CHECK(test_now_ns() < until_ns);
		sched_yield();
	}
	CHECK_EQ(nupa_load_relaxed(&flow->xmit_bytes), sent * 8);
	CHECK_EQ(nupa_load_relaxed(&flow->rcv_bytes), got * 8);
	stage_close(&s);
}

/* T2: objects come and go beside the lanes. */
TEST(others_take_the_lock)
{
	struct stage s;

	stage_open(&s);
	start(&s, 2);
	await_shared(&s, 2);
	for (uint32_t i = 0; i < 300; i++) {
		struct ibv_mr *mr = nupa_reg_mr(s.a->pd, s.a->memory, 4096, 0, 0);
		struct ibv_cq *cq = nupa_create_cq(s.a->context, 16, NULL, NULL, 0);

		CHECK(mr && cq);
		CHECK_EQ(nupa_destroy_cq(cq), 0);
		CHECK_EQ(nupa_dereg_mr(mr), 0);
	}
	stop(&s, 2);
	check_all(&s, 2);
	stage_close(&s);
}

/* P4/C4: once ibv_dereg_mr has returned, no lane stores there. */
TEST(a_region_is_taken_from_lanes)
{
	uint8_t before[THREADS * STRIDE];
	struct stage s;

	stage_open(&s);
	start(&s, 2);
	await_shared(&s, 2);
	CHECK_EQ(nupa_dereg_mr(s.b->mr), 0);
	memcpy(before, s.b->memory, sizeof(before));
	s.b->mr = NULL;
	join(&s, 2);
	CHECK_EQ(memcmp(before, s.b->memory, sizeof(before)), 0);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(s.workers[i].ended, IBV_WC_REM_ACCESS_ERR);
	stage_close(&s);
}

TEST(local_memory_is_taken_from_lanes)
{
	struct stage s;

	stage_open(&s);
	start(&s, 2);
	await_shared(&s, 2);
	CHECK_EQ(nupa_dereg_mr(s.a->mr), 0);
	s.a->mr = NULL;
	join(&s, 2);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(s.workers[i].ended, IBV_WC_LOC_PROT_ERR);
	stage_close(&s);
}

/* Queue pairs may change hands: only one thread at a time is in the lane of each. */
TEST(a_queue_pair_changes_hands)
{
	struct stage s;

	stage_open(&s);
	for (uint32_t round = 0; round < 5; round++) {
		s.stop = s.shared = 0;
		start(&s, 2);
		await_shared(&s, 2);
		stop(&s, 2);
		for (uint32_t i = 0; i < 2; i++)
			for (uint32_t k = 0; k < 100; k++)
				one(&s.workers[i]);
		check_all(&s, 2);
	}
	stage_close(&s);
}
