/* SPDX-License-Identifier: BSD-3-Clause
 * Batches of flits where something is different: PIDs between switches, runs that are none, threads
 * while tables change. */
#include "tests/support/flits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Root port, a switch, another behind it, and the device there: links of 68B, PBR and 68B flits. */
static void test_between_switches_messages_are_routed_by_pids(void)
{
	static const uint16_t far_hops[] = { ROOT, UPSTREAM, 2, 3, 4 };
	static const struct nupa_cxl_node node = {
		.kind = NUPA_CXL_DEVICE, .shift = 8, .hpa_base = BASE, .n_hops = 5, .device = 1
	};
	static const struct nupa_cxl_range range = { BASE, BASE + DEVICE_BYTES - 1, 0, 0 };
	static const struct nupa_cxl_table far = { &range, &node, far_hops, 1, 1, 5 };
	static const uint32_t pids[] = { 0, 0x123u << 16 | 0xABC };
	struct nupa_cxl_bus *bus = nupa_cxl_bus_new(2, 5);
	struct batch *batch = batch_make(bus, NUPA_FLIT_68);
	struct nupa_flit_run *run = &batch->run;
	struct nupa_cxl_message between[2], up;
	uint32_t corrected = 0;
	int64_t n;

	CHECK_EQ(nupa_cxl_bus_set_table(bus, &far), 0);
	CHECK_EQ(nupa_cxl_bus_set_device(bus, 1, flits_memory[1], DEVICE_BYTES), 0);
	run->pids = pids;
	memset(ask(batch, NUPA_CXL_M2S_RWD, BASE + 64)->data, 7, 64);
	ask(batch, NUPA_CXL_M2S_REQ, BASE + 64);
	CHECK_EQ(nupa_flit_plan(run, batch->requests), 3);
	n = nupa_flit_send(run, batch->requests, batch->flits[0], batch->counts[0]);
	n = nupa_flit_forward(run, 1, batch->flits[0], (uint64_t)n, batch->counts[0],
			      batch->flits[1], batch->counts[1]);
	CHECK_EQ(n, 2); /* one 256B flit each */
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(nupa_flit_unpack(NUPA_FLIT_PBR, false, batch->flits[1] + 256 * i, 1,
					  &between[i], &corrected),
			 NUPA_FLIT_FINE);
		CHECK_EQ(between[i].spid, 0x123);
		CHECK_EQ(between[i].dpid, 0xABC);
		CHECK_EQ(between[i].ld_id, 0);
	}
	n = nupa_flit_forward(run, 2, batch->flits[1], (uint64_t)n, batch->counts[1],
			      batch->flits[2], batch->counts[2]);
	CHECK_EQ(nupa_flit_serve(run, batch->flits[2], (uint64_t)n, batch->counts[2],
				 batch->received, batch->device),
		 2);
	CHECK_EQ(batch->received[0].ld_id, LD);
	CHECK_EQ(batch->received[0].spid | batch->received[0].dpid, 0);
	n = nupa_flit_answer(run, batch->device, batch->flits[0], batch->counts[0]);
	n = nupa_flit_return(run, 2, batch->flits[0], (uint64_t)n, batch->counts[0],
			     batch->flits[1], batch->counts[1]);
	CHECK_EQ(n, 2);
	CHECK_EQ(nupa_flit_unpack(NUPA_FLIT_PBR, true, batch->flits[1], 1, &up, &corrected),
		 NUPA_FLIT_FINE);
	CHECK_EQ(up.dpid, 0x123);
	n = nupa_flit_return(run, 1, batch->flits[1], (uint64_t)n, batch->counts[1],
			     batch->flits[2], batch->counts[2]);
	CHECK_EQ(
	    nupa_flit_finish(run, batch->flits[2], (uint64_t)n, batch->counts[2], batch->answers),
	    2);
	check_answer(batch, 0, NUPA_CXL_S2M_NDR, NUPA_CXL_OK, 0, 0);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
	CHECK_EQ(batch->answers[1].data[63], 7);
	free(batch);
	nupa_cxl_bus_free(bus);
}

static void test_what_is_no_run_is_refused(void)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct batch *batch = batch_make(bus, NUPA_FLIT_68);
	struct nupa_cxl_message stranger = { .channel = NUPA_CXL_S2M_NDR, .tag = 7 };

	ask(batch, NUPA_CXL_M2S_REQ, BASE)->opcode = 8; /* MemSpecRd has no answer */
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), -EOPNOTSUPP);
	batch->requests[0].opcode = 1;
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	batch->requests[0].tc = 9;
	CHECK_EQ(nupa_flit_send(&batch->run, batch->requests, batch->flits[0], batch->counts[0]),
		 -EINVAL);
	batch->requests[0].tc = 0;
	CHECK_EQ(go(batch), 1);
	CHECK_EQ(nupa_flit_forward(&batch->run, 1, batch->flits[0], 2, batch->counts[0],
				   batch->flits[1], batch->counts[1]),
		 -EINVAL);
	CHECK_EQ(nupa_flit_serve(&batch->run, batch->flits[1], 0, batch->counts[1], batch->received,
				 batch->device),
		 -EINVAL);
	/* An answer to something else, and a request for another logical device. */
	CHECK_EQ(nupa_flit_answer(&batch->run, &stranger, batch->flits[2], batch->counts[2]), 1);
	CHECK_EQ(nupa_flit_return(&batch->run, 1, batch->flits[2], 1, batch->counts[2],
				  batch->flits[3], batch->counts[3]),
		 0);
	CHECK_EQ(batch->ways[0].fault, NUPA_FLIT_TAG);
	batch->requests[0].ld_id = LD;
	CHECK_EQ(nupa_flit_pack(NUPA_FLIT_68, batch->requests, batch->flits[1]), 1);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	CHECK_EQ(nupa_flit_serve(&batch->run, batch->flits[1], 1, batch->counts[1], batch->received,
				 batch->device),
		 1);
	CHECK_EQ(batch->ways[0].fault, NUPA_FLIT_LD);
	free(batch);
	nupa_cxl_bus_free(bus);
}

/* Batches of threads go on while tables and links change: each line is what its thread wrote, or
 * all ones. */
static void *work(void *context)
{
	struct batch *batch = context;

	for (uint32_t round = 1; round <= 300; round++) {
		for (uint32_t i = 0; i < 8; i += 2)
			memset(batch->requests[i].data, (int)(round % 200), 64);
		if (nupa_flit_plan(&batch->run, batch->requests) != 2)
			continue;
		if (go(batch) < 8)
			continue;
		for (uint32_t i = 0; i < 8; i += 2)
			if (!batch->ways[i].status && !batch->ways[i + 1].status)
				CHECK(!memcmp(batch->answers[i + 1].data, batch->requests[i].data,
					      64));
	}
	return NULL;
}

static void test_threads_go_on_while_tables_change(void)
{
	static const struct nupa_cxl_table empty;
	struct nupa_cxl_bus *bus = bus_make();
	struct batch *batches[3];
	pthread_t threads[3];

	for (uint32_t i = 0; i < 3; i++) {
		batches[i] = batch_make(bus, i % 2);
		for (uint32_t k = 0; k < 4; k++) {
			uint64_t hpa = BASE + 1024 * i + 128 * k;

			ask(batches[i], NUPA_CXL_M2S_RWD, hpa);
			ask(batches[i], NUPA_CXL_M2S_REQ, hpa);
		}
		CHECK_EQ(pthread_create(&threads[i], NULL, work, batches[i]), 0);
	}
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(nupa_cxl_bus_set_table(bus, i % 2 ? &flits_table : &empty), 0);
		CHECK_EQ(nupa_cxl_bus_set_link(bus, 2, i % 3 != 0), 0);
		CHECK_EQ(nupa_cxl_bus_set_viral(bus, 1, i % 5 == 0), 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		free(batches[i]);
	}
	nupa_cxl_bus_free(bus);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(test_between_switches_messages_are_routed_by_pids),
		CASE(test_what_is_no_run_is_refused),
		CASE(test_threads_go_on_while_tables_change),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
