/* SPDX-License-Identifier: BSD-3-Clause
 * The flow engine: known answers, and random work whose bytes all arrive.  The same engine in
 * Python, nupa/model/engine/flows/operations.py, is compared with it in tests/unit/model/engine. */
#include "model/flows.h"
#include "tests/support/runner.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { OPERATIONS = 200, CLASSES = 24, RESOURCES = 9, LANES = 5, CONNECTIONS = 7, USES_MAX = 3 };
#define NONE UINT32_MAX

static struct {
	uint32_t lane[OPERATIONS], class_of[OPERATIONS], connection[OPERATIONS];
	double bytes[OPERATIONS], before_ns[OPERATIONS], after_ns[OPERATIONS], busy_ns[OPERATIONS];
	uint32_t after_start[OPERATIONS + 1], after[2 * OPERATIONS];
	double limit[CLASSES], capacity[RESOURCES];
	uint32_t use_start[CLASSES + 1], use[CLASSES * USES_MAX];
	double part[CLASSES * USES_MAX];
	double ready_ns[OPERATIONS], end_ns[OPERATIONS];
	uint32_t cause[OPERATIONS], bound[OPERATIONS];
	uint8_t why[OPERATIONS];
} at; /* of one case: each has a process of its own */

static struct nupa_model_flow_work work = {
	.lane = at.lane,
	.class_of = at.class_of,
	.connection = at.connection,
	.bytes = at.bytes,
	.before_ns = at.before_ns,
	.after_ns = at.after_ns,
	.busy_ns = at.busy_ns,
	.after_start = at.after_start,
	.after = at.after,
	.limit = at.limit,
	.use_start = at.use_start,
	.use = at.use,
	.part = at.part,
	.capacity = at.capacity,
};
static struct nupa_model_flow_result result = {
	.ready_ns = at.ready_ns,
	.end_ns = at.end_ns,
	.cause = at.cause,
	.bound = at.bound,
	.why = at.why,
};

/* A class over the resources first to last, whole. */
static uint32_t class_add(uint32_t first, uint32_t last)
{
	const uint32_t class = work.classes++;
	uint32_t end = at.use_start[class];

	at.limit[class] = INFINITY;
	for (uint32_t resource = first; resource <= last; resource++) {
		at.use[end] = resource;
		at.part[end++] = 1;
	}
	at.use_start[class + 1] = end;
	return class;
}

/* An operation in a lane and a connection of its own, after the one before where *follows*. */
static void operation_add(uint32_t class, double bytes, double before_ns, bool follows)
{
	const uint32_t made = work.operations++;

	at.lane[made] = made;
	at.class_of[made] = class;
	at.connection[made] = made;
	at.bytes[made] = bytes;
	at.before_ns[made] = before_ns;
	at.after_start[made + 1] = at.after_start[made];
	if (follows)
		at.after[at.after_start[made + 1]++] = made - 1;
	work.lanes = work.connections = made + 1;
}

static void resources_are(uint32_t count, double bytes_per_s)
{
	work.resources = count;
	for (uint32_t it = 0; it < count; it++)
		at.capacity[it] = bytes_per_s;
}

static void check_end(uint32_t operation, double wanted_ns)
{
	CHECK(fabs(at.end_ns[operation] - wanted_ns) < 1e-6 * wanted_ns + 1e-6);
}

TEST(a_parking_lot_gives_the_long_flow_half_of_each_link)
{
	resources_are(3, 1e9);
	operation_add(class_add(0, 2), 1000, 0, false);
	for (uint32_t link = 0; link < 3; link++)
		operation_add(class_add(link, link), 1000, 0, false);
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
	for (uint32_t it = 0; it < 4; it++)
		check_end(it, 2000);
	CHECK(fabs(result.received_bytes - 4000) < 1e-3);
}

TEST(a_flow_that_ends_leaves_its_part_to_the_others)
{
	resources_are(1, 1e9);
	operation_add(class_add(0, 0), 1000, 0, false);
	operation_add(class_add(0, 0), 3000, 0, false);
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
	check_end(0, 2000);
	check_end(1, 4000);
	CHECK_EQ(at.bound[0], 0);
}

TEST(a_limit_of_one_flow_leaves_the_rest_to_the_other)
{
	resources_are(1, 1e9);
	operation_add(class_add(0, 0), 1000, 0, false);
	operation_add(class_add(0, 0), 3000, 0, false);
	at.limit[0] = 0.25e9;
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
	check_end(0, 4000);
	check_end(1, 4000);
	CHECK_EQ(at.bound[0], NONE);
}

TEST(an_operation_waits_for_what_it_follows_and_for_its_lane)
{
	resources_are(1, 1e9);
	operation_add(NONE, 0, 500, false);
	operation_add(class_add(0, 0), 1000, 100, true);
	operation_add(0, 1000, 0, false);
	at.lane[2] = at.lane[0];
	at.busy_ns[0] = 5000;
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
	check_end(0, 500);
	check_end(1, 1600);
	check_end(2, 6000);
	CHECK_EQ(at.why[1], NUPA_MODEL_AFTER);
	CHECK_EQ(at.why[2], NUPA_MODEL_IN_TURN);
	CHECK_EQ(at.cause[2], 0);
}

TEST(flows_of_one_connection_follow_each_other)
{
	resources_are(1, 1e9);
	for (uint32_t it = 0; it < 3; it++)
		operation_add(it ? 0 : class_add(0, 0), 1000, 0, false);
	at.connection[2] = 0;
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
	check_end(0, 2000);
	check_end(1, 2000);
	check_end(2, 3000);
}

TEST(operations_that_wait_in_a_circle_are_left)
{
	resources_are(1, 1e9);
	operation_add(class_add(0, 0), 1000, 0, false);
	operation_add(0, 1000, 0, true);
	operation_add(0, 1000, 0, true);
	at.after[0] = 2; /* 1 waits for 2, and 2 for 1 */
	CHECK_EQ(nupa_model_flows_run(&work, &result), 2);
	check_end(0, 1000);
	CHECK(at.end_ns[1] < 0);
}

static void check_refused(uint32_t *index, uint32_t wrong)
{
	const uint32_t right = *index;

	*index = wrong;
	CHECK_EQ(nupa_model_flows_run(&work, &result), -2);
	*index = right;
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
}

TEST(what_is_no_index_and_what_is_no_number_is_refused)
{
	double *const numbers[] = { &at.bytes[1], &at.before_ns[1], &at.after_ns[1], &at.busy_ns[1],
				    &at.limit[0], &at.part[0],      &at.capacity[0] };

	resources_are(2, 1e9);
	operation_add(class_add(0, 1), 1000, 0, false);
	operation_add(0, 1000, 0, true);
	check_refused(&at.class_of[1], work.classes);
	check_refused(&at.lane[1], work.lanes);
	check_refused(&at.connection[1], work.connections);
	check_refused(&at.connection[1], NONE); /* with a class */
	check_refused(&at.after[0], work.operations);
	check_refused(&at.use[1], work.resources);
	check_refused(&at.after_start[1], 2);
	check_refused(&at.use_start[0], 1);
	for (uint32_t it = 0; it < sizeof(numbers) / sizeof(numbers[0]); it++) {
		const double right = *numbers[it];

		*numbers[it] = -1;
		CHECK_EQ(nupa_model_flows_run(&work, &result), -2);
		*numbers[it] = NAN;
		CHECK_EQ(nupa_model_flows_run(&work, &result), -2);
		*numbers[it] = right;
	}
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
}

static double random_up_to(uint64_t *seed, uint32_t most)
{
	return 1 + (double)(test_random(seed) >> 33) / (UINT64_C(1) << 31) * most;
}

static void random_work(uint64_t *seed)
{
	double total = 0;

	memset(&at, 0, sizeof(at));
	work.operations = work.classes = 0;
	for (uint32_t it = 0; it < RESOURCES; it++)
		at.capacity[it] = random_up_to(seed, 1000) * 1e6;
	work.resources = RESOURCES;
	for (uint32_t it = 0; it < CLASSES; it++) {
		const uint32_t first = (uint32_t)(test_random(seed) >> 40) % (RESOURCES - USES_MAX);

		class_add(first, first + (uint32_t)(test_random(seed) >> 40) % USES_MAX);
		if (it % 4 == 0)
			at.limit[it] = random_up_to(seed, 500) * 1e6;
	}
	for (uint32_t it = 0; it < OPERATIONS; it++) {
		const uint32_t class = (uint32_t)(test_random(seed) >> 40) % (CLASSES + 4);
		const double bytes = random_up_to(seed, 100000);

		operation_add(class < CLASSES ? class : NONE, bytes, random_up_to(seed, 1000),
			      it && test_random(seed) >> 63);
		at.lane[it] = (uint32_t)(test_random(seed) >> 40) % LANES;
		at.after_ns[it] = random_up_to(seed, 500);
		at.connection[it] = class < CLASSES ? class % CONNECTIONS : NONE;
		total += class < CLASSES ? bytes : 0;
	}
	work.lanes = LANES;
	work.connections = CONNECTIONS;
	CHECK_EQ(nupa_model_flows_run(&work, &result), 0);
	CHECK(fabs(result.received_bytes - total) < 1e-6 * total);
	for (uint32_t it = 0; it < OPERATIONS; it++)
		CHECK(at.end_ns[it] >= at.ready_ns[it] + at.before_ns[it]);
}

TEST(all_bytes_of_random_work_arrive)
{
	uint64_t seed = test_seed();

	for (uint32_t round = 0; round < 200; round++)
		random_work(&seed);
}
