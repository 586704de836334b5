/* SPDX-License-Identifier: BSD-3-Clause
 * Two machines in this process: see two.h. */
#include "tests/trunk/two.h"

#include "segment/slot/machine.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SLOTS 9u

struct nupa_fabric *two_fabric(uint32_t machine, uint64_t generation)
{
	const struct nupa_config config = {
		.slots = SLOTS,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 1024,
		.mr_entries = 1024,
		.extent_bytes = 4096,
		.pool_bytes = 1u << 20,
		.flags = NUPA_SEGMENT_TRUNK,
		.generation = generation,
		.machine = machine,
		.machines = 2,
		.machine_slots = { 1, SLOTS / 2 + 1 },
		.host_machine = { 0, 1 },
	};

	return test_fabric_of(&config);
}

struct two *two_new(bool by_ucx)
{
	struct two *two = calloc(1, sizeof(*two));

	CHECK(two);
	two->loop = by_ucx ? NULL : loop_new();
	for (uint32_t i = 0; i < 2; i++)
		two->machines[i].fabric = two_fabric(i, 42);
	return two;
}

static void *run(void *arg)
{
	struct machine *machine = arg;
	char why[256] = "";

	CHECK_EQ(nupa_trunk_run(machine->trunk, why, sizeof(why)), 0);
	return NULL;
}

static struct nupa_trunk *open_ucx(struct two *two, uint32_t machine)
{
	struct nupa_trunk_address addresses[2] = { { "127.0.0.1", 0 }, { "127.0.0.1", 0 } };
	const struct nupa_trunk_config config = { .listen = { "127.0.0.1", 0 },
						  .machines = addresses,
						  .n_machines = 2 };
	struct nupa_trunk *trunk = NULL;
	char why[512] = "";

	/* Its hooks of mmap and those of ThreadSanitizer exclude each other. */
	setenv("UCX_MEM_EVENTS", "n", 0);
	setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
	if (machine)
		addresses[0].port = nupa_trunk_port(two->machines[0].trunk);
	if (nupa_trunk_open(two->machines[machine].fabric, &config, &trunk, why, sizeof(why)))
		fprintf(stderr, "%s\n", why);
	return trunk;
}

void two_begin(struct two *two, uint32_t machine)
{
	struct machine *one = &two->machines[machine];
	char why[512] = "";

	if (two->loop)
		(void)nupa_trunk_new(one->fabric, loop_carrier(two->loop, machine), &one->trunk,
				     why, sizeof(why));
	else
		one->trunk = open_ucx(two, machine);
	CHECK(one->trunk);
}

void two_resume(struct two *two, uint32_t machine)
{
	struct machine *one = &two->machines[machine];

	nupa_store_release(&one->trunk->stop, false);
	CHECK_EQ(pthread_create(&one->thread, NULL, run, one), 0);
	one->runs = true;
}

void two_pause(struct two *two, uint32_t machine)
{
	struct machine *one = &two->machines[machine];

	nupa_trunk_stop(one->trunk);
	CHECK_EQ(pthread_join(one->thread, NULL), 0);
	one->runs = false;
}

void two_start(struct two *two, uint32_t machine)
{
	two_begin(two, machine);
	two_resume(two, machine);
}

void two_stop(struct two *two, uint32_t machine)
{
	struct machine *one = &two->machines[machine];

	if (!one->runs)
		return;
	two_pause(two, machine);
	nupa_trunk_close(one->trunk);
	one->trunk = NULL;
}

static bool has_state(const struct two *two, uint32_t machine, enum nupa_machine_state state)
{
	struct nupa_machine_info info;

	CHECK_EQ(nupa_fabric_machine(two->machines[machine].fabric, !machine, &info), 0);
	return info.state == state;
}

void two_await(struct two *two, enum nupa_machine_state state)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	while (!has_state(two, 0, state) || !has_state(two, 1, state)) {
		CHECK(test_now_ns() < until_ns);
		nanosleep(&pause, NULL);
	}
}

void two_free(struct two *two)
{
	for (uint32_t i = 0; i < 2; i++) {
		two_stop(two, i);
		nupa_fabric_put(two->machines[i].fabric);
	}
	if (two->loop)
		loop_free(two->loop);
	free(two);
}

void two_connect(struct two *two, const struct end_options *options, struct end **a, struct end **b)
{
	struct end_options ours = *options;

	ours.host = 0;
	*a = end_open(two->machines[0].fabric, &ours);
	ours.host = 1;
	*b = end_open(two->machines[1].fabric, &ours);
	end_connect(*a, &(*b)->self);
	end_connect(*b, &(*a)->self);
}

struct two *two_up(bool by_ucx)
{
	struct two *two = two_new(by_ucx);

	two_start(two, 0);
	two_start(two, 1);
	two_await(two, NUPA_MACHINE_UP);
	return two;
}
