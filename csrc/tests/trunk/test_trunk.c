/* SPDX-License-Identifier: BSD-3-Clause
 * Two machines and the trunk between them: programs do what they do on one machine. */
#include "engine/channel/channel.h"
#include "engine/core/engine.h"
#include "segment/slot/counters.h"
#include "segment/slot/machine.h"
#include "tests/trunk/two.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GRH_BYTES 40 /* UD has them before the message */
#define SMALL_BYTES 8u
#define MANY (4 * TEST_RING_LINES)
#define LARGE_BYTES 200000u /* several times the DMA ring */

static void send_one(struct end *from, struct end *to, uint32_t bytes, uint32_t seed)
{
	pattern_fill(from->memory, bytes, seed);
	memset(to->memory, 0, bytes);
	end_post_recv(to, seed, 0, bytes);
	end_start(from, IBV_WR_SEND, seed, 0, bytes);
	CHECK_EQ(cq_expect(to->recv_cq, seed, IBV_WC_SUCCESS).byte_len, bytes);
	cq_expect(from->send_cq, seed, IBV_WC_SUCCESS);
	CHECK_PATTERN(to->memory, bytes, seed);
}

static void converse(struct end *a, struct end *b)
{
	for (uint32_t i = 1; i <= 200; i++) { /* three laps of the ring */
		send_one(a, b, SMALL_BYTES, i);
		send_one(b, a, SMALL_BYTES, i);
	}
	for (uint32_t i = 1; i <= 5; i++) {
		send_one(a, b, LARGE_BYTES, i);
		send_one(b, a, LARGE_BYTES, i);
	}
}

static void reach_into_memory(struct end *a, struct end *b)
{
	pattern_fill(a->memory, LARGE_BYTES, 7);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, LARGE_BYTES);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory, LARGE_BYTES, 7);
	pattern_fill(b->memory, LARGE_BYTES, 8);
	end_start(a, IBV_WR_RDMA_READ, 2, 0, LARGE_BYTES);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_PATTERN(a->memory, LARGE_BYTES, 8);
}

static void work(bool by_ucx)
{
	struct two *two = two_up(by_ucx);
	struct end *a, *b;

	two_connect(two, &end_defaults, &a, &b);
	converse(a, b);
	reach_into_memory(a, b);
	if (!by_ucx) /* large payloads go without packets once the receiver has offered it */
		CHECK(loop_put_bytes(two->loop) > LARGE_BYTES);
	pair_close(a, b);
	two_free(two);
}

TEST(messages_pass_between_two_machines)
{
	work(false);
}

TEST(messages_pass_between_two_machines_by_ucx)
{
	work(true);
}

static void *kill_later(void *arg)
{
	two_stop(arg, 1);
	return NULL;
}

/* What is sent to a machine that is lost fails. */
static void expect_loss(struct end *end)
{
	end_start(end, IBV_WR_SEND, 9, 0, SMALL_BYTES);
	cq_expect(end->send_cq, 9, IBV_WC_RETRY_EXC_ERR);
}

static uint32_t port_state(const struct machine *machine, uint32_t host)
{
	return nupa_load_acquire(&machine->fabric->ports[test_fabric_port(host)].state);
}

TEST(a_machine_that_is_lost_is_a_port_that_goes_down_and_partners_that_fail)
{
	struct two *two = two_up(false);
	struct end *a, *b;

	two_connect(two, &end_defaults, &a, &b);
	send_one(a, b, SMALL_BYTES, 1);
	CHECK_EQ(port_state(&two->machines[0], 1), NUPA_PORT_ACTIVE);
	loop_cut(two->loop, 1);
	two_await(two, NUPA_MACHINE_DOWN);
	CHECK_EQ(port_state(&two->machines[0], 1), NUPA_PORT_DOWN);
	CHECK_EQ(port_state(&two->machines[1], 0), NUPA_PORT_DOWN);
	CHECK_EQ(port_state(&two->machines[1], 1), NUPA_PORT_ACTIVE);
	expect_loss(a);
	expect_loss(b);
	pair_close(a, b);
	two_free(two);
}

TEST(processes_that_stay_meet_again_when_the_machine_comes_back)
{
	struct two *two = two_up(false);
	struct end *a, *b, *c, *d;

	two_connect(two, &end_defaults, &a, &b);
	for (uint32_t i = 0; i < 3; i++) {
		send_one(a, b, SMALL_BYTES, 1);
		loop_cut(two->loop, 1);
		two_await(two, NUPA_MACHINE_DOWN);
		expect_loss(a);
		expect_loss(b);
		loop_join(two->loop, 1);
		two_await(two, NUPA_MACHINE_UP);
		CHECK_EQ(port_state(&two->machines[0], 1), NUPA_PORT_ACTIVE);
		two_connect(two, &end_defaults, &c, &d);
		pair_close(a, b);
		a = c;
		b = d;
		converse(a, b);
	}
	pair_close(a, b);
	two_free(two);
}

TEST(a_trunk_that_ends_is_a_loss_on_both_machines)
{
	struct two *two = two_up(false);
	struct end *a, *b;
	pthread_t thread;

	two_connect(two, &end_defaults, &a, &b);
	send_one(a, b, SMALL_BYTES, 1);
	CHECK_EQ(pthread_create(&thread, NULL, kill_later, two), 0);
	expect_loss(a);
	expect_loss(b);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	pair_close(a, b);
	two_start(two, 1);
	two_await(two, NUPA_MACHINE_UP);
	two_connect(two, &end_defaults, &a, &b);
	converse(a, b);
	pair_close(a, b);
	two_free(two);
}

TEST(a_trunk_that_was_killed_asleep_is_rung_without_a_signal)
{
	struct two *two = two_up(false);
	const struct nupa_fabric *fabric = two->machines[1].fabric;
	struct nupa_trunk_area *area = &fabric->sb->trunk;
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	uint32_t pid;

	while (!nupa_load_acquire(&fabric->trunk_bell)) { /* its pipe is open here */
		CHECK(test_now_ns() < until_ns);
		nupa_trunk_ring(fabric);
	}
	pid = nupa_load_acquire(&area->pid);
	two_stop(two, 1);
	nupa_store_release(&area->pid, pid); /* as SIGKILL leaves them */
	nupa_store_release(&area->sleeping, 1);
	nupa_trunk_ring(fabric);
	CHECK_EQ(nupa_load_acquire(&area->sleeping), 0);
	nupa_store_release(&area->pid, 0);
	two_free(two);
}

TEST(machines_of_two_fabrics_refuse_each_other)
{
	struct two *two = two_new(false);

	nupa_fabric_put(two->machines[1].fabric);
	two->machines[1].fabric = two_fabric(1, 43);
	two_start(two, 0);
	two_start(two, 1);
	two_await(two, NUPA_MACHINE_REFUSED);
	two_free(two);
}

TEST(a_host_of_another_machine_takes_no_process)
{
	struct two *two = two_up(false);
	char why[256] = "";

	errno = 0;
	CHECK(!nupa_open_host(two->machines[0].fabric, 1, NUPA_MOVER_NONE, why, sizeof(why)));
	CHECK_EQ(errno, EREMOTE);
	CHECK(strstr(why, "another machine"));
	two_free(two);
}

TEST(a_second_trunk_of_a_machine_is_refused)
{
	/* That of another process: its pid is ours here, so a child asks. */
	struct two *two = two_up(false);
	struct nupa_trunk *trunk;
	char why[256] = "";
	pid_t child = fork();

	if (child == 0) {
		struct loop *loop = loop_new();

		_exit(nupa_trunk_new(two->machines[0].fabric, loop_carrier(loop, 0), &trunk, why,
				     sizeof(why)) != -EBUSY);
	}
	CHECK_CHILD(child);
	two_free(two);
}

/* --- outages that the network survives ------------------------------------------------- */

/* The queue pair has waited for so much longer than before. */
static void age(struct end *end, uint64_t ns)
{
	struct nupa_qp *qp = container_of(end->qp, struct nupa_qp, ibv);

	nupa_engine_lock(qp->engine);
	CHECK_EQ(qp->wait, NUPA_WAIT_RING);
	qp->channel->full.since_ns -= ns;
	qp->wait_deadline_ns -= ns;
	nupa_engine_unlock(qp->engine);
}

/* Until nothing more completes. */
static uint64_t complete_sends(struct end *end, uint64_t first)
{
	struct ibv_wc wc;

	for (uint32_t empty = 0; empty < 1000; empty++) {
		while (nupa_poll_cq(end->send_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.wr_id, first);
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			first++;
			empty = 0;
		}
	}
	return first;
}

/* Messages that nothing acknowledges, of which most find the ring full, while the network brings
 * none: how many are lost when it does again after so much time. */
static uint64_t lost_in_outage(enum ibv_qp_type type, uint64_t ns)
{
	struct end_options options = end_defaults;
	struct two *two = two_up(false);
	uint64_t sent, lost;
	struct nupa_hw_counters counters;
	struct end *a, *b;

	options.type = type;
	options.send_wr = options.recv_wr = MANY;
	options.send_cqe = options.recv_cqe = MANY;
	two_connect(two, &options, &a, &b);
	end_post_recv(b, MANY, 0, GRH_BYTES + SMALL_BYTES);
	end_start(a, IBV_WR_SEND, MANY, 0, SMALL_BYTES);
	cq_expect(b->recv_cq, MANY, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, MANY, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < MANY; i++)
		end_post_recv(b, i, 0, GRH_BYTES + SMALL_BYTES);
	loop_hold(two->loop, true);
	for (uint64_t i = 0; i < MANY; i++)
		end_start(a, IBV_WR_SEND, i, 0, SMALL_BYTES);
	sent = complete_sends(a, 0);
	CHECK(sent < MANY);
	age(a, ns);
	sent = complete_sends(a, sent);
	loop_hold(two->loop, false);
	CHECK_EQ(nupa_fabric_hw_counters(two->machines[0].fabric, 0, &counters), 0);
	lost = counters.tx_no_room;
	for (uint64_t i = 0; i < MANY - lost; i++)
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	CHECK_EQ(complete_sends(a, sent), MANY);
	pair_close(a, b);
	two_free(two);
	return lost;
}

TEST(uc_and_ud_lose_nothing_in_an_outage_of_the_network_that_ends_soon)
{
	CHECK_EQ(lost_in_outage(IBV_QPT_UC, 4000 * MS), 0);
	CHECK_EQ(lost_in_outage(IBV_QPT_UD, 4000 * MS), 0);
}

TEST(uc_and_ud_wait_for_a_network_no_longer_than_they_say)
{
	CHECK(lost_in_outage(IBV_QPT_UC, 5000 * MS) > 0);
	CHECK(lost_in_outage(IBV_QPT_UD, 5000 * MS) > 0);
}

TEST(a_trunk_with_nothing_to_do_sleeps)
{
	const struct timespec second = { .tv_sec = 1 };
	struct timespec before, after;
	struct two *two = two_up(false);
	clockid_t clock;
	uint64_t used_ns;

	CHECK_EQ(pthread_getcpuclockid(two->machines[0].thread, &clock), 0);
	clock_gettime(clock, &before);
	nanosleep(&second, NULL);
	clock_gettime(clock, &after);
	used_ns = (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000u + (uint64_t)after.tv_nsec -
		  (uint64_t)before.tv_nsec;
	CHECK(used_ns < 10000000u);
	two_free(two);
}
