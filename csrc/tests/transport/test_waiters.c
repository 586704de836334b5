/* SPDX-License-Identifier: BSD-3-Clause
 * Queue pairs that wait for a time: no turn of the engine looks at them before it, each goes on
 * after it, and any may end meanwhile. */
#include "engine/transport/transport.h"
#include "tests/support/end.h"

#define QPS 200u

/* Two ends in this process, and as many QPs between them. */
struct waiters {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct end from[QPS], to[QPS];
};

static struct nupa_engine *engine_of(const struct end *end)
{
	return nupa_engine_of(end->context);
}

static struct end another(struct end *end)
{
	struct end copy = *end;

	copy.qp = end_make_qp(end);
	copy.self.qpn = copy.qp->qp_num;
	return copy;
}

static uint64_t refusals(const struct waiters *w)
{
	struct nupa_engine *engine = engine_of(w->a);
	uint64_t n;

	nupa_engine_lock(engine);
	n = engine->hw->rcvd_rnr_err;
	nupa_engine_unlock(engine);
	return n;
}

/* Each has sent, and been told that there is no receive: all wait for the same time. */
static void waiters_open(struct waiters *w, uint8_t min_rnr_timer)
{
	struct end_options options = end_defaults;
	uint64_t until_ns = test_now_ns() + WAIT_NS;

	options.min_rnr_timer = min_rnr_timer;
	options.memory_bytes = 4096;
	options.send_wr = options.recv_wr = 4;
	options.send_cqe = options.recv_cqe = 4 * QPS;
	w->fabric = test_fabric();
	pair_open(w->fabric, &options, &w->a, &w->b);
	for (uint32_t i = 0; i < QPS; i++) {
		w->from[i] = another(w->a);
		w->to[i] = another(w->b);
		end_connect(&w->from[i], &w->to[i].self);
		end_connect(&w->to[i], &w->from[i].self);
		end_start(&w->from[i], IBV_WR_SEND, i, 0, 8);
	}
	while (refusals(w) < QPS) {
		struct ibv_wc wc;

		CHECK_EQ(nupa_poll_cq(w->a->send_cq, 1, &wc), 0);
		CHECK(test_now_ns() < until_ns);
	}
}

static void waiters_close(struct waiters *w)
{
	for (uint32_t i = 0; i < QPS; i++) {
		if (w->from[i].qp)
			CHECK_EQ(nupa_destroy_qp(w->from[i].qp), 0);
		CHECK_EQ(nupa_destroy_qp(w->to[i].qp), 0);
	}
	fabric_close(w->fabric, w->a, w->b);
}

/* How many each turn looks at, and how many come when it is time. */
static void count(const struct waiters *w, uint32_t *each_turn, uint32_t *in_time)
{
	struct nupa_engine *engine = engine_of(w->a);

	*each_turn = *in_time = 0;
	nupa_engine_lock(engine);
	for (struct nupa_list *at = engine->waiting.next; at != &engine->waiting; at = at->next)
		++*each_turn;
	for (uint32_t i = 0; i < QPS; i++)
		*in_time +=
		    nupa_heap_has(&container_of(w->from[i].qp, struct nupa_qp, ibv)->wait_item);
	nupa_engine_unlock(engine);
}

TEST(no_turn_looks_at_queue_pairs_that_wait_for_a_time)
{
	static struct waiters w;
	uint32_t each_turn, in_time;

	waiters_open(&w, 0); /* 655 ms */
	count(&w, &each_turn, &in_time);
	CHECK_EQ(each_turn, 0);
	CHECK_EQ(in_time, QPS);
	waiters_close(&w);
}

TEST(each_goes_on_when_its_time_has_come)
{
	static struct waiters w;
	uint8_t seen[QPS] = { 0 };

	waiters_open(&w, 22); /* 20 ms */
	for (uint32_t i = 0; i < QPS; i++)
		end_post_recv(&w.to[i], i, 0, 8);
	for (uint32_t i = 0; i < QPS; i++) {
		struct ibv_wc wc = cq_wait(w.a->send_cq);

		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.wr_id < QPS && !seen[wc.wr_id]++);
	}
	waiters_close(&w);
}

TEST(queue_pairs_end_while_they_wait)
{
	static struct waiters w;
	uint64_t seed = test_seed();

	waiters_open(&w, 0);
	for (uint32_t left = QPS; left > QPS / 4;) {
		uint32_t i = (uint32_t)(test_random(&seed) % QPS);

		if (!w.from[i].qp)
			continue;
		CHECK_EQ(nupa_destroy_qp(w.from[i].qp), 0);
		w.from[i].qp = NULL;
		left--;
	}
	for (uint32_t i = 0; i < QPS; i++) {
		struct ibv_wc wc;

		if (!w.from[i].qp)
			continue;
		CHECK_EQ(end_modify(&w.from[i], IBV_QPS_ERR), 0);
		wc = cq_wait(w.a->send_cq);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	nupa_engine_lock(engine_of(w.a));
	CHECK(!engine_of(w.a)->timed.top);
	nupa_engine_unlock(engine_of(w.a));
	waiters_close(&w);
}
