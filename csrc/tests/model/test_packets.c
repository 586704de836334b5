/* SPDX-License-Identifier: BSD-3-Clause
 * The packet engine on random graphs with each protocol: bytes are conserved, no link is above its
 * rate, equal seeds give equal answers; and its limits, with one past each. */
#include "model/packets.h"
#include "tests/support/runner.h"

#include <stdbool.h>
#include <string.h>

#define ENDS 12u
#define LEAVES 3u
#define SPINES 4u
#define LINKS (2 * (ENDS + LEAVES * SPINES))
#define OPERATIONS 60u
#define MB 1000000u
#define EVENTS_MAX UINT64_C(50000000)

struct setup {
	struct nupa_model_graph graph;
	struct nupa_model_work work;
	struct nupa_model_protocol protocol;
	struct nupa_model_link_kind kinds[2];
	uint32_t source[LINKS], target[LINKS];
	uint16_t kind[LINKS];
	struct nupa_model_operation operations[OPERATIONS];
	uint32_t after_start[OPERATIONS + 1], after[OPERATIONS];
};

static struct setup setup; /* of one case: each has a process of its own */

static void cable(uint32_t a, uint32_t b, uint16_t kind)
{
	const uint32_t at = setup.graph.links;

	setup.source[at] = setup.target[at + 1] = a;
	setup.target[at] = setup.source[at + 1] = b;
	setup.kind[at] = setup.kind[at + 1] = kind;
	setup.graph.links += 2;
}

/* Leaves with four endpoints each, and spines. */
static void leaf_spine(void)
{
	setup.graph = (struct nupa_model_graph){
		.endpoints = ENDS,
		.switches = LEAVES + SPINES,
		.kinds = 2,
		.protocols = 1,
		.source = setup.source,
		.target = setup.target,
		.kind = setup.kind,
		.link_kind = setup.kinds,
		.protocol = &setup.protocol,
	};
	setup.kinds[0] = (struct nupa_model_link_kind){ 1.25e10, 500000, 200000, 0 };
	setup.kinds[1] = (struct nupa_model_link_kind){ 5e9, 300000, 150000, 0 };
	setup.protocol = (struct nupa_model_protocol){
		.payload_bytes = 4096,
		.header_bytes = 64,
		.control_bytes = 64,
		.cut_through = 1,
		.virtual_queues = 1,
		.paths = 16,
		.credit_bytes = 64,
		.ack_packets = 4,
		.xoff_bytes = 60000,
		.xon_bytes = 50000,
		.window_packets = 16,
		.pull_packets = 4,
		.pull_per_mille = 990,
		.timeout_ps = 100000000,
		.notify_ps = 50000000,
		.alpha_ps = 55000000,
		.recover_ps = 55000000,
		.recover_bytes = 10 << 20,
		.recover_rounds = 5,
		.hyper_bytes_per_s = 50000000,
		.increase_bytes_per_s = 5000000,
		.least_bytes_per_s = 1000000,
	};
	for (uint32_t end = 0; end < ENDS; end++)
		cable(end, ENDS + end % LEAVES, 0);
	for (uint32_t leaf = 0; leaf < LEAVES; leaf++)
		for (uint32_t spine = 0; spine < SPINES; spine++)
			cable(ENDS + leaf, ENDS + LEAVES + spine, 1);
}

static void random_work(uint64_t seed)
{
	uint32_t waits = 0;

	setup.work = (struct nupa_model_work){
		.operations = OPERATIONS,
		.operation = setup.operations,
		.after_start = setup.after_start,
		.after = setup.after,
		.seed = seed,
		.packets_max = 1 << 16,
	};
	for (uint32_t at = 0; at < OPERATIONS; at++) {
		const uint64_t random = test_random(&seed);

		setup.operations[at] = (struct nupa_model_operation){
			.rank = (uint32_t)random % ENDS,
			.peer = (uint32_t)(random >> 16) % ENDS,
			.bytes = test_random(&seed) % ((random >> 32 & 1) ? MB : 5000),
			.start_ps = test_random(&seed) % 20000000,
			.before_ps = random >> 40 & 0xffff,
			.after_ps = random >> 41 & 0xffff,
			.busy_ps = random >> 42 & 0xffff,
			.limit_bytes_per_s = random >> 37 & 1 ? 2000000000 : 0,
			.lane = (uint32_t)(random >> 38 & 3),
			.read = random >> 36 & 1,
		};
		setup.after_start[at] = waits;
		if (at && random >> 33 & 1)
			setup.after[waits++] = (uint32_t)(test_random(&seed) % at);
	}
	setup.after_start[OPERATIONS] = waits;
}

static struct nupa_model_packets *make(void)
{
	char error[NUPA_MODEL_ERROR_BYTES] = "";
	struct nupa_model_packets *sim = nupa_model_packets_new(&setup.graph, &setup.work, error);

	if (!sim)
		fprintf(stderr, "%s\n", error);
	CHECK(sim);
	return sim;
}

static void run(struct nupa_model_packets *sim)
{
	char error[NUPA_MODEL_ERROR_BYTES] = "";
	const int more = nupa_model_packets_run(sim, EVENTS_MAX, error);

	if (more)
		fprintf(stderr, "%d: %s\n", more, error);
	CHECK_EQ(more, 0);
}

static void check_results(const struct nupa_model_packets *sim)
{
	const struct nupa_model_totals totals = nupa_model_packets_totals(sim);
	struct nupa_model_times times[OPERATIONS];
	struct nupa_model_link_use use[LINKS];
	const bool lossless = setup.protocol.flow_control == NUPA_MODEL_CREDITS;

	nupa_model_packets_times(sim, times);
	nupa_model_packets_links(sim, use);
	CHECK_EQ(totals.operations_left, 0);
	CHECK_EQ(totals.payload_sent_bytes, totals.payload_received_bytes);
	for (uint32_t at = 0; at < OPERATIONS; at++) {
		const struct nupa_model_operation *operation = &setup.operations[at];

		CHECK(times[at].start_ps >= operation->start_ps);
		CHECK(times[at].done_ps >= times[at].start_ps + operation->before_ps);
		CHECK(times[at].acked_ps >= times[at].done_ps);
		for (uint32_t it = setup.after_start[at]; it < setup.after_start[at + 1]; it++)
			CHECK(times[at].start_ps >= times[setup.after[it]].done_ps);
	}
	for (uint32_t at = 0; at < LINKS; at++) {
		CHECK(use[at].busy_ps <= totals.now_ps + 2000000);
		if (lossless)
			CHECK_EQ(use[at].dropped + use[at].trimmed + use[at].paused, 0);
	}
}

static void each_spread(uint32_t flow_control, uint32_t transport, uint64_t seed)
{
	static struct nupa_model_times first[OPERATIONS], second[OPERATIONS];

	for (uint32_t spread = 0; spread <= NUPA_MODEL_ADAPTIVE; spread++) {
		for (uint32_t mode = 0; mode < 4; mode++) {
			struct nupa_model_packets *sim;
			char error[NUPA_MODEL_ERROR_BYTES];

			leaf_spine();
			random_work(seed);
			setup.protocol.flow_control = flow_control;
			setup.protocol.transport = transport;
			setup.protocol.spread = spread;
			setup.protocol.cut_through = mode & 1;
			setup.protocol.virtual_queues = mode >> 1;
			setup.protocol.adapt_ps = mode == 3 ? 10000000 : 0;
			setup.protocol.ecn_low_bytes = transport == NUPA_MODEL_LINE ? 0 : 30000;
			setup.protocol.ecn_high_bytes = 90000;
			setup.protocol.ecn_per_mille = 500;
			sim = make();
			run(sim);
			check_results(sim);
			nupa_model_packets_times(sim, first);
			nupa_model_packets_free(sim);
			sim = make(); /* in small slices */
			while (nupa_model_packets_run(sim, 1000, error) > 0)
				;
			nupa_model_packets_times(sim, second);
			nupa_model_packets_free(sim);
			CHECK(!memcmp(first, second, sizeof(first)));
		}
	}
}

TEST(credits_conserve_bytes_and_repeat)
{
	each_spread(NUPA_MODEL_CREDITS, NUPA_MODEL_LINE, test_seed());
}

TEST(pauses_and_rates_conserve_bytes_and_repeat)
{
	each_spread(NUPA_MODEL_PAUSE, NUPA_MODEL_DCQCN, test_seed());
}

TEST(trims_and_pulls_conserve_bytes_and_repeat)
{
	each_spread(NUPA_MODEL_TRIM, NUPA_MODEL_PULL, test_seed());
}

TEST(drops_and_windows_conserve_bytes_and_repeat)
{
	each_spread(NUPA_MODEL_DROP, NUPA_MODEL_WINDOW, test_seed());
}

TEST(drops_are_repaired_for_pulls_and_rates)
{
	each_spread(NUPA_MODEL_DROP, NUPA_MODEL_PULL, test_seed());
	each_spread(NUPA_MODEL_DROP, NUPA_MODEL_DCQCN, test_seed());
}

/* The setup is invalid; *word* is of the error. */
static void refused(const char *word)
{
	char error[NUPA_MODEL_ERROR_BYTES] = "";

	CHECK(!nupa_model_packets_new(&setup.graph, &setup.work, error));
	if (!strstr(error, word))
		fprintf(stderr, "wanted %s: %s\n", word, error);
	CHECK(strstr(error, word));
	leaf_spine();
	random_work(7);
}

#define REFUSES(change, word)                                                                      \
	do {                                                                                       \
		change;                                                                            \
		refused(word);                                                                     \
	} while (0)

TEST(one_past_each_limit_is_refused)
{
	leaf_spine();
	random_work(7);
	REFUSES(setup.graph.endpoints = 0, "nodes");
	REFUSES(setup.graph.switches = 1 << 24, "nodes");
	REFUSES(setup.graph.links = (1 << 26) + 1, "links");
	REFUSES(setup.target[3] = ENDS + LEAVES + SPINES, "link 3");
	REFUSES(setup.target[3] = setup.source[3], "link 3");
	REFUSES(setup.kind[3] = 2, "link 3");
	REFUSES(setup.kinds[1].bytes_per_s = 0.99e5, "B/s");
	REFUSES(setup.kinds[1].bytes_per_s = 1.01e14, "B/s");
	REFUSES(setup.kinds[1].latency_ps = 10000000000001u, "latency");
	REFUSES(setup.kinds[1].buffer_bytes = UINT64_C(1) << 31, "buffer");
	REFUSES(setup.kinds[1].protocol = 1, "protocol");
	REFUSES(setup.protocol.payload_bytes = 65535 - 63, "65535");
	REFUSES(setup.protocol.payload_bytes = 0, "65535");
	REFUSES(setup.protocol.control_bytes = 65536, "control");
	REFUSES(setup.protocol.flow_control = 4, "unknown");
	REFUSES(setup.protocol.paths = 512, "paths");
	REFUSES(setup.protocol.paths = 3, "paths");
	REFUSES(setup.work.packets_max = 1023, "packets_max");
	REFUSES(setup.work.packets_max = (1u << 30) + 1, "packets_max");
	REFUSES(setup.work.operations = 0, "operations");
	REFUSES(setup.work.operations = (1 << 22) + 1, "operations");
	REFUSES(setup.operations[5].rank = ENDS, "operation 5");
	REFUSES(setup.operations[5].lane = OPERATIONS + 1, "lane 61 of 60");
	REFUSES(setup.operations[5].limit_bytes_per_s = 99999, "a limit of 99999 B/s");
	REFUSES(setup.operations[5].start_ps = (UINT64_C(1) << 60) + 1, "13 days");
	setup.operations[5].rank = (setup.operations[5].peer + 1) % ENDS;
	REFUSES(setup.operations[5].bytes = UINT64_C(4096) * UINT32_MAX, "2^32 - 2 packets");
	REFUSES(setup.after[0] = OPERATIONS, "waits for");
	setup.protocol.transport = NUPA_MODEL_DCQCN;
	REFUSES(setup.protocol.alpha_ps = 0, "alpha_ps");
	setup.protocol.flow_control = NUPA_MODEL_CREDITS;
	REFUSES(setup.protocol.credit_bytes = 65536, "a credit has 1 to 65535 bytes");
	setup.protocol.flow_control = NUPA_MODEL_CREDITS;
	REFUSES(setup.kinds[0].buffer_bytes = 4160, "holds no packet");
	REFUSES(setup.graph.links -= 2 * LEAVES * SPINES, "no path");
}

TEST(operations_that_wait_for_each_other_are_an_error)
{
	char error[NUPA_MODEL_ERROR_BYTES] = "";
	struct nupa_model_packets *sim;

	leaf_spine();
	random_work(7);
	for (uint32_t at = 0; at <= OPERATIONS; at++)
		setup.after_start[at] = at < 2 ? at : 2;
	setup.after[0] = 1;
	setup.after[1] = 0;
	sim = make();
	CHECK_EQ(nupa_model_packets_run(sim, EVENTS_MAX, error), -1);
	CHECK(strstr(error, "2 operations never complete; the first is 0, which waits"));
	nupa_model_packets_free(sim);
}

TEST(more_packets_than_permitted_are_an_error)
{
	char error[NUPA_MODEL_ERROR_BYTES] = "";
	struct nupa_model_packets *sim;

	leaf_spine();
	random_work(7);
	setup.work.packets_max = 1024;
	setup.kinds[0].latency_ps = setup.kinds[1].latency_ps = 1000000000;
	setup.kinds[0].buffer_bytes = setup.kinds[1].buffer_bytes = 1 << 30;
	setup.protocol.flow_control = NUPA_MODEL_CREDITS;
	sim = make();
	CHECK_EQ(nupa_model_packets_run(sim, EVENTS_MAX, error), -1);
	CHECK(strstr(error, "packets_max"));
	nupa_model_packets_free(sim);
}

/* 100 packets of 4,160 bytes at 80 ps a byte, two links of 500 ns, cut through. */
TEST(one_message_takes_its_closed_form)
{
	struct nupa_model_times times[OPERATIONS];
	struct nupa_model_packets *sim;

	leaf_spine();
	random_work(7);
	setup.protocol.flow_control = NUPA_MODEL_CREDITS;
	setup.work.operations = 1;
	setup.after_start[1] = setup.after_start[0] = 0;
	setup.operations[0] = (struct nupa_model_operation){
		.rank = 0, .peer = LEAVES, .bytes = 409600, .before_ps = 1000, .after_ps = 300
	};
	sim = make();
	run(sim);
	nupa_model_packets_times(sim, times);
	CHECK_EQ(times[0].done_ps, 1000 + 100 * 4160 * 80 + 2 * 500000 + 300);
	CHECK_EQ(times[0].acked_ps, times[0].done_ps + 2 * 500000 + 64 * 80);
	nupa_model_packets_free(sim);
}
