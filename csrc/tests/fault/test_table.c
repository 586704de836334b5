/* SPDX-License-Identifier: BSD-3-Clause
 * The table of faults: its limits, what is refused, which messages are hit and how often, and that
 * attachments go by it at once. */
#include "engine/device/device.h"
#include "tests/support/faults.h"
#include "tests/support/target.h"

#include <errno.h>
#include <string.h>

static void refused(struct nupa_fabric *fabric, const struct nupa_fault_info *fault,
		    const char *saying)
{
	char why[256] = "";

	CHECK_EQ(nupa_fault_add(fabric, fault, why, sizeof(why)), -EINVAL);
	if (!strstr(why, saying))
		fprintf(stderr, "says: %s\n", why);
	CHECK(strstr(why, saying));
}

TEST(a_fault_that_there_is_not_is_refused)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_KINDS, 1);

	refused(fabric, &fault, "no fault of kind 12");
	fault.kind = 0;
	refused(fabric, &fault, "no fault of kind 0");
	fault.kind = NUPA_FAULT_DROP;
	fault.port = nupa_fabric_n_ports(fabric);
	refused(fabric, &fault, "no port 4");
	fault = fault_of(NUPA_FAULT_BANDWIDTH, 1);
	refused(fabric, &fault, "bandwidth of 0");
	fault = fault_of(NUPA_FAULT_FLAP, 1);
	refused(fabric, &fault, "duration");
	CHECK_EQ(nupa_fault_list(fabric, NULL, 0), 0);
	nupa_fabric_put(fabric);
}

TEST(a_full_table_takes_no_more)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0), all[NUPA_FAULTS_MAX + 1];
	char why[256] = "";
	uint32_t first = 0, last = 0;

	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		fault.seed = i;
		last = fault_add(fabric, &fault);
		first = first ? first : last;
	}
	CHECK_EQ(nupa_fault_add(fabric, &fault, why, sizeof(why)), -ENOSPC);
	CHECK(strstr(why, "64 faults"));
	CHECK_EQ(nupa_fault_list(fabric, all, NUPA_FAULTS_MAX + 1), NUPA_FAULTS_MAX);
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) { /* oldest first */
		CHECK_EQ(all[i].id, first + i);
		CHECK_EQ(all[i].seed, i);
	}
	CHECK_EQ(nupa_fault_clear(fabric, first), 0);
	CHECK_EQ(nupa_fault_clear(fabric, first), -ENOENT);
	CHECK_EQ(fault_add(fabric, &fault), last + 1); /* a number means one fault for ever */
	CHECK_EQ(nupa_fault_clear(fabric, 0), 0);
	CHECK_EQ(nupa_fault_clear(fabric, 0), 0);
	CHECK_EQ(nupa_fault_list(fabric, all, NUPA_FAULTS_MAX), 0);
	nupa_fabric_put(fabric);
}

/* --- which messages ------------------------------------------------------------------ */

/* Datagrams from a to b; which of them arrived, as bits: all that were not hit. */
static uint64_t send_datagrams(struct nupa_fabric *fabric, struct end *a, struct end *b,
			       uint32_t id, uint32_t n)
{
	uint64_t before = fault_get(fabric, id).hits, found = 0;
	uint64_t deadline_ns = nupa_clock_ns() + WAIT_NS;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < n; i++) {
		struct request request = request_of(a, IBV_WR_SEND_WITH_IMM, i, 0, 8);

		request.wr.imm_data = i;
		end_post_recv(b, i, i * 64, 64);
		end_post(a, &request);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	/* Once its hits are used up a fault sees no more. */
	while (fault_get(fabric, id).hits - before + (uint32_t)__builtin_popcountll(found) < n) {
		while (nupa_poll_cq(b->recv_cq, 1, &wc) == 1)
			found |= UINT64_C(1) << wc.imm_data;
		CHECK(nupa_clock_ns() < deadline_ns);
	}
	return found;
}

static uint64_t which_arrive(const struct nupa_fault_info *fault, struct nupa_fault_info *after)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = fault_options(14);
	struct end *a, *b;
	uint64_t found;
	uint32_t id;

	options.type = IBV_QPT_UD;
	pair_open(fabric, &options, &a, &b);
	id = fault_add(fabric, fault);
	found = send_datagrams(fabric, a, b, id, 32);
	*after = fault_get(fabric, id);
	fabric_close(fabric, a, b);
	return found;
}

TEST(the_seed_decides_which_messages_are_hit)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 0.4), after;
	uint64_t first = which_arrive(&fault, &after);

	CHECK_EQ(after.seen, 32);
	CHECK_EQ(after.hits, 32 - __builtin_popcountll(first));
	CHECK(after.hits > 4 && after.hits < 28);
	CHECK_EQ(which_arrive(&fault, &after), first);
	fault.seed++;
	CHECK(which_arrive(&fault, &after) != first);
}

TEST(after_and_count_bound_what_is_hit)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1), after;

	fault.after = 5;
	fault.count = 3;
	CHECK_EQ(which_arrive(&fault, &after), 0xffffffff & ~(7u << 5));
	CHECK_EQ(after.hits, 3);
	CHECK(after.ended);
	fault.after = 0;
	fault.count = 0;
	CHECK_EQ(which_arrive(&fault, &after), 0);
	CHECK(!after.ended);
	fault.probability = 0;
	CHECK_EQ(which_arrive(&fault, &after), 0xffffffff);
	CHECK_EQ(after.seen, 32);
}

static bool is_faulty(struct end *end, const struct end *peer)
{
	struct nupa_engine *engine = nupa_engine_of(end->context);
	bool faulty;

	nupa_engine_lock(engine);
	faulty = engine->channels[peer->self.qpn >> NUPA_QP_INDEX_BITS]->faulty;
	nupa_engine_unlock(engine);
	return faulty;
}

TEST(a_fault_whose_time_is_over_lies_on_no_path)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);
	struct end_options options = fault_options(31);
	struct end *a, *b;
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	fault.for_ns = 10 * MS;
	id = fault_add(fabric, &fault);
	CHECK(fault_get(fabric, id).for_ns <= 10 * MS);
	while (is_faulty(a, b) || is_faulty(b, a)) /* no program polls: timers of their own */
		CHECK(test_now_ns() < deadline_ns);
	CHECK(fault_get(fabric, id).ended);
	CHECK_EQ(fault_get(fabric, id).for_ns, 0);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(fault_get(fabric, id).hits, 0);
	fabric_close(fabric, a, b);
}

/* --- its followers ------------------------------------------------------------------- */

TEST(attached_processes_apply_a_fault_when_it_has_been_added)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);
	struct end_options options = fault_options(31);
	struct end *a, *b;
	uint32_t id;

	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < 50; i++) {
		id = fault_add(fabric, &fault);
		CHECK(is_faulty(a, b) && is_faulty(b, a));
		CHECK_EQ(nupa_fault_clear(fabric, id), 0);
	}
	fabric_close(fabric, a, b);
}

TEST(processes_that_attach_later_apply_it_too)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);
	struct end_options options = fault_options(31);
	struct end *a, *b;

	fault_add(fabric, &fault);
	pair_open(fabric, &options, &a, &b);
	CHECK(is_faulty(a, b));
	fabric_close(fabric, a, b);
}

TEST(one_who_is_stopped_is_not_waited_for_long)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);
	struct target target = target_fork(fabric);
	struct end_options options = fault_options(31);
	uint64_t start_ns;
	struct end *a;

	target_open(&target, fabric, &options);
	target_stop(&target);
	start_ns = test_now_ns();
	CHECK_EQ(nupa_fault_clear(fabric, fault_add(fabric, &fault)), 0);
	CHECK(test_now_ns() - start_ns < WAIT_NS / 2);
	target_continue(&target);
	a = end_open(fabric, &options);
	end_close(a);
	target_close(&target);
	nupa_fabric_put(fabric);
}
