/* SPDX-License-Identifier: BSD-3-Clause
 * Many threads on one attachment: each with queues of its own, some making and destroying objects,
 * some waiting for events, while others come and go.  TSan is the judge. */
#include "base/atomics.h"
#include "segment/slot/counters.h"
#include "tests/support/end.h"
#include "region/region.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define THREADS 4u
#define LANE_BYTES 262144u
#define PART_BYTES 65536u

/* One thread's share of two ends: QPs and CQs of its own, a quarter of the regions. */
struct lane {
	struct end a, b;
	uint32_t offset;
	uint64_t seed;
	uint64_t operations;
};

static void own_queues(struct end *end)
{
	end->send_cq = nupa_create_cq(end->context, 64, end, NULL, 0);
	end->recv_cq = nupa_create_cq(end->context, 64, end, NULL, 0);
	CHECK(end->send_cq && end->recv_cq);
	end->qp = end_make_qp(end);
	end->self.qpn = end->qp->qp_num;
}

static void destroy_queues(struct end *end)
{
	CHECK_EQ(nupa_destroy_qp(end->qp), 0);
	CHECK_EQ(nupa_destroy_cq(end->send_cq), 0);
	CHECK_EQ(nupa_destroy_cq(end->recv_cq), 0);
}

static void lane_open(struct lane *lane, const struct end *a, const struct end *b, uint32_t index,
		      uint64_t seed)
{
	*lane = (struct lane){
		.a = *a, .b = *b, .offset = index * LANE_BYTES, .seed = seed + index + 1
	};
	own_queues(&lane->a);
	own_queues(&lane->b);
	end_connect(&lane->a, &lane->b.self);
	end_connect(&lane->b, &lane->a.self);
}

static void lane_close(struct lane *lane)
{
	destroy_queues(&lane->a);
	destroy_queues(&lane->b);
}

/* One operation from one end to the other, of a random kind and length, checked. */
static void lane_step(struct lane *lane)
{
	bool turned = test_random(&lane->seed) & 1;
	struct end *from = turned ? &lane->b : &lane->a, *to = turned ? &lane->a : &lane->b;
	uint32_t length = (uint32_t)(test_random(&lane->seed) %
				     (test_random(&lane->seed) % 8 ? 200 : PART_BYTES));
	uint32_t seed = (uint32_t)test_random(&lane->seed), offset = lane->offset;
	uint8_t *source = from->memory + offset, *sink = to->memory + offset;

	switch (test_random(&lane->seed) % 4) {
	case 0:
		pattern_fill(source, length, seed);
		end_post_recv(to, seed, offset, length);
		end_start(from, IBV_WR_SEND, seed, offset, length);
		cq_expect(from->send_cq, seed, IBV_WC_SUCCESS);
		cq_expect(to->recv_cq, seed, IBV_WC_SUCCESS);
		CHECK_PATTERN(sink, length, seed);
		break;
	case 1:
		pattern_fill(source, length, seed);
		end_start(from, IBV_WR_RDMA_WRITE, seed, offset, length);
		cq_expect(from->send_cq, seed, IBV_WC_SUCCESS);
		CHECK_PATTERN(sink, length, seed);
		break;
	case 2:
		pattern_fill(sink, length, seed);
		end_start(from, IBV_WR_RDMA_READ, seed, offset, length);
		cq_expect(from->send_cq, seed, IBV_WC_SUCCESS);
		CHECK_PATTERN(source, length, seed);
		break;
	default:
		memset(sink, 0, 8);
		end_start(from, IBV_WR_ATOMIC_FETCH_AND_ADD, seed, offset, 8);
		cq_expect(from->send_cq, seed, IBV_WC_SUCCESS);
		break;
	}
	lane->operations++;
}

static void *run_lane(void *arg)
{
	struct lane *lane = arg;

	for (int i = 0; i < 600; i++)
		lane_step(lane);
	return NULL;
}

static void four_threads(enum nupa_mover mover)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct lane lanes[THREADS];
	pthread_t threads[THREADS];
	uint64_t seed = test_seed();
	struct end *a, *b;

	options.mover = mover;
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < THREADS; i++) {
		lane_open(&lanes[i], a, b, i, seed);
		CHECK_EQ(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		CHECK_EQ(lanes[i].operations, 600);
		lane_close(&lanes[i]);
	}
	pair_close(a, b);
	nupa_fabric_put(fabric);
}

TEST(four_threads_with_queues_of_their_own_by_memcpy)
{
	four_threads(NUPA_MOVER_LOCAL);
}

TEST(four_threads_with_queues_of_their_own_by_relay)
{
	four_threads(NUPA_MOVER_RELAY);
}

TEST(four_threads_with_queues_of_their_own_by_cma)
{
	if (test_cma_works())
		four_threads(NUPA_MOVER_CMA);
}

/* --- coming and going ---------------------------------------------------------------- */

struct neighbour {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	uint64_t seed;
	uint32_t rounds;
	bool stop;
};

static bool goes_on(struct neighbour *neighbour)
{
	nupa_fetch_add_seq(&neighbour->rounds, 1);
	return !nupa_load_acquire(&neighbour->stop);
}

static void *make_and_destroy_objects(void *arg)
{
	struct neighbour *neighbour = arg;

	while (goes_on(neighbour)) {
		struct lane lane;
		struct ibv_mr *mr = nupa_reg_mr(neighbour->a->pd, neighbour->a->memory, 4096,
						(uintptr_t)neighbour->a->memory, 0);

		CHECK(mr);
		lane_open(&lane, neighbour->a, neighbour->b, 1, neighbour->seed);
		lane_step(&lane);
		CHECK_EQ(end_modify(&lane.a, IBV_QPS_ERR), 0);
		lane_close(&lane);
		CHECK_EQ(nupa_dereg_mr(mr), 0);
	}
	return NULL;
}

/* Attachments of the same process that appear and vanish, while others poll. */
static void *attach_and_leave(void *arg)
{
	struct neighbour *neighbour = arg;

	while (goes_on(neighbour)) {
		struct end_options options = end_defaults;
		struct end *a, *b;

		options.mover = NUPA_MOVER_RELAY; /* another engine than the others' */
		options.memory_bytes = 4096;
		pair_open(neighbour->fabric, &options, &a, &b);
		end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 4096);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		pair_close(a, b);
	}
	return NULL;
}

static void *flap_the_port(void *arg)
{
	struct neighbour *neighbour = arg;
	struct nupa_flow_info flow;

	while (goes_on(neighbour)) {
		uint32_t port = test_fabric_port(1);

		CHECK_EQ(nupa_fabric_set_port(neighbour->fabric, port, NUPA_PORT_DOWN), 0);
		sched_yield();
		CHECK_EQ(nupa_fabric_set_port(neighbour->fabric, port, NUPA_PORT_ACTIVE), 0);
		for (uint32_t slot = 1; slot < 4; slot++) {
			struct nupa_slot_info info;

			(void)nupa_fabric_slot(neighbour->fabric, slot, &info); /* may be free */
			CHECK_EQ(nupa_fabric_flow(neighbour->fabric, slot, 1, &flow), 0);
			(void)nupa_fabric_mover(neighbour->fabric, slot, 3 - slot); /* or closed */
		}
		sched_yield();
	}
	return NULL;
}

static void beside(void *(*run)(void *))
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct neighbour neighbour = { .fabric = fabric, .seed = test_seed() };
	pthread_t thread;
	struct lane lane;

	options.timeout = 20;
	pair_open(fabric, &options, &neighbour.a, &neighbour.b);
	lane_open(&lane, neighbour.a, neighbour.b, 0, neighbour.seed);
	CHECK_EQ(pthread_create(&thread, NULL, run, &neighbour), 0);
	for (int i = 0; i < 1500 || nupa_load_relaxed(&neighbour.rounds) < 100; i++)
		lane_step(&lane);
	nupa_store_release(&neighbour.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	lane_close(&lane);
	pair_close(neighbour.a, neighbour.b);
	nupa_fabric_put(fabric);
}

TEST(traffic_goes_on_while_objects_are_made_and_destroyed)
{
	beside(make_and_destroy_objects);
}

TEST(traffic_goes_on_while_attachments_come_and_go)
{
	beside(attach_and_leave);
}

TEST(traffic_goes_on_while_a_port_flaps_and_a_controller_looks)
{
	beside(flap_the_port);
}

/* --- events -------------------------------------------------------------------------- */

#define PINGS 300u

/* Answers each message, asleep in between: the loop of man ibv_get_cq_event. */
static void *echo(void *arg)
{
	struct end *end = arg;
	uint64_t answered = 0;

	while (answered < PINGS) {
		struct ibv_cq *cq;
		struct ibv_wc wc;
		void *context;

		CHECK_EQ(nupa_get_cq_event(end->channel, &cq, &context), 0);
		nupa_ack_cq_events(cq, 1);
		CHECK_EQ(nupa_req_notify_cq(cq, 0), 0);
		while (nupa_poll_cq(cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			if (cq != end->recv_cq)
				continue;
			CHECK_EQ(wc.wr_id, answered++);
			end_post_recv(end, answered, 0, 64);
			end_start(end, IBV_WR_SEND, 0, 64, 64);
		}
	}
	return NULL;
}

TEST(a_thread_asleep_on_its_channel_answers_every_message)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	pthread_t thread;
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 0), 0);
	CHECK_EQ(nupa_req_notify_cq(b->send_cq, 0), 0);
	end_post_recv(b, 0, 0, 64);
	CHECK_EQ(pthread_create(&thread, NULL, echo, b), 0);
	for (uint64_t i = 0; i < PINGS; i++) {
		end_post_recv(a, i, 0, 64);
		end_start(a, IBV_WR_SEND, i, 64, 64);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(a->recv_cq, i, IBV_WC_SUCCESS);
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	pair_close(a, b);
	nupa_fabric_put(fabric);
}

struct acknowledger {
	struct end *end;
	uint32_t got; /* the event was got, and is not acknowledged */
	bool destroyed;
};

static void *get_and_acknowledge(void *arg)
{
	struct acknowledger *acknowledger = arg;
	struct ibv_async_event event;

	CHECK_EQ(nupa_get_async_event(acknowledger->end->context, &event), 0);
	CHECK_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	nupa_store_release(&acknowledger->got, 1);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	CHECK(!nupa_load_acquire(&acknowledger->destroyed));
	nupa_ack_async_event(&event);
	return NULL;
}

/* man ibv_destroy_srq: it waits until the events of the object are acknowledged. */
TEST(destroying_an_object_waits_for_the_acknowledgement_of_its_events)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct acknowledger acknowledger = { 0 };
	pthread_t thread;
	struct end *a, *b;

	options.srq_wr = 8;
	pair_open(fabric, &options, &a, &b);
	acknowledger.end = b;
	CHECK_EQ(pthread_create(&thread, NULL, get_and_acknowledge, &acknowledger), 0);
	end_post_recv(b, 1, 0, 8);
	end_post_recv(b, 2, 0, 8);
	CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_LIMIT), 0);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	while (!nupa_load_acquire(&acknowledger.got))
		sched_yield();
	CHECK_EQ(nupa_destroy_qp(b->qp), 0);
	CHECK_EQ(nupa_destroy_srq(b->srq), 0);
	nupa_store_release(&acknowledger.destroyed, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	b->srq = NULL;
	b->qp = end_make_qp(b);
	pair_close(a, b);
	nupa_fabric_put(fabric);
}
