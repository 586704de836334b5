/* SPDX-License-Identifier: BSD-3-Clause
 * Requests as flits through a host's root port, a switch and two interleaved devices, of which one
 * is a logical device: they end as requests of transact.h do, at the same ports and for the same
 * reasons. */
#include "flit_way.h"
#include "rate.h"
#include "support/runner.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define BASE (UINT64_C(1) << 32)
#define DEVICE_BYTES 4096u
#define REGION_BYTES (2 * DEVICE_BYTES)
#define MOST 64u
#define ROOT 0
#define UPSTREAM 1
#define LD 5

static _Alignas(64) uint8_t memory[2][DEVICE_BYTES];
static const uint8_t ld_ids[] = { 0, LD };
static const uint16_t hops[] = { ROOT, UPSTREAM, 2, ROOT, UPSTREAM, 3 };
/* 256 bytes in turn. */
static const struct nupa_cxl_node nodes[] = {
	{ .kind = NUPA_CXL_STEP, .shift = 8, .bits = 1, .next = 1 },
	{ .kind = NUPA_CXL_DEVICE,
	  .shift = 8,
	  .bits = 1,
	  .hpa_base = BASE,
	  .next = 0,
	  .n_hops = 3 },
	{ .kind = NUPA_CXL_DEVICE,
	  .shift = 8,
	  .bits = 1,
	  .hpa_base = BASE,
	  .next = 3,
	  .n_hops = 3,
	  .device = 1 },
};
static const struct nupa_cxl_range ranges[] = { { BASE, BASE + REGION_BYTES - 1, 0, 0 } };
static const struct nupa_cxl_table table = { ranges, nodes, hops, 1, 3, 6 };

static struct nupa_cxl_bus *bus_make(void)
{
	struct nupa_cxl_bus *bus = nupa_cxl_bus_new(2, 4);

	CHECK(bus);
	CHECK_EQ(nupa_cxl_bus_set_table(bus, &table), 0);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(nupa_cxl_bus_set_device(bus, i, memory[i], DEVICE_BYTES), 0);
	return bus;
}

/* A batch, and the flits of each link: down 0, down 1, up 1, up 0. */
struct batch {
	struct nupa_flit_run run;
	struct nupa_flit_way ways[MOST];
	struct nupa_cxl_message requests[MOST], received[MOST], device[MOST], answers[MOST];
	uint8_t flits[4][MOST * NUPA_FLIT_MESSAGE_BYTES], counts[4][MOST];
	int64_t n[4];
	int damaged; /* of which of the four links the first flit is; -1: none */
};

static void damage(struct batch *batch, int stage)
{
	if (batch->damaged == stage)
		batch->flits[stage][20] ^= 1;
}

/* All stages: how many answers there are. */
static int64_t go(struct batch *batch)
{
	struct nupa_flit_run *run = &batch->run;

	batch->n[0] = nupa_flit_send(run, batch->requests, batch->flits[0], batch->counts[0]);
	CHECK(batch->n[0] >= 0);
	damage(batch, 0);
	batch->n[1] = nupa_flit_forward(run, 1, batch->flits[0], (uint64_t)batch->n[0],
					batch->counts[0], batch->flits[1], batch->counts[1]);
	CHECK(batch->n[1] >= 0);
	damage(batch, 1);
	CHECK(nupa_flit_serve(run, batch->flits[1], (uint64_t)batch->n[1], batch->counts[1],
			      batch->received, batch->device) >= 0);
	batch->n[2] = nupa_flit_answer(run, batch->device, batch->flits[2], batch->counts[2]);
	CHECK(batch->n[2] >= 0);
	damage(batch, 2);
	batch->n[3] = nupa_flit_return(run, 1, batch->flits[2], (uint64_t)batch->n[2],
				       batch->counts[2], batch->flits[3], batch->counts[3]);
	CHECK(batch->n[3] >= 0);
	damage(batch, 3);
	return nupa_flit_finish(run, batch->flits[3], (uint64_t)batch->n[3], batch->counts[3],
				batch->answers);
}

static struct batch *batch_make(struct nupa_cxl_bus *bus, uint32_t format)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	CHECK(batch);
	batch->run.bus = bus;
	batch->run.ld_ids = ld_ids;
	batch->run.ways = batch->ways;
	batch->run.format = format;
	batch->damaged = -1;
	return batch;
}

static struct nupa_cxl_message *ask(struct batch *batch, uint8_t channel, uint64_t hpa)
{
	struct nupa_cxl_message *request = &batch->requests[batch->run.n];

	memset(request, 0, sizeof(*request));
	request->channel = channel;
	request->opcode = 1; /* MemRd, MemWr */
	request->address = hpa;
	request->tag = (uint16_t)(1000 + batch->run.n++);
	return request;
}

static void check_answer(const struct batch *batch, uint32_t i, uint32_t channel, uint32_t status,
			 uint32_t opcode, uint32_t poison)
{
	CHECK_EQ(batch->answers[i].channel, channel);
	CHECK_EQ(batch->answers[i].tag, 1000 + i);
	CHECK_EQ(batch->answers[i].opcode, opcode);
	CHECK_EQ(batch->answers[i].poison, poison);
	CHECK_EQ(batch->answers[i].ld_id, 0);
	CHECK_EQ(batch->ways[i].status, status);
	CHECK_EQ(batch->ways[i].fault, NUPA_FLIT_FINE);
	for (uint32_t k = 0; k < 64 && channel == NUPA_CXL_S2M_DRS && status; k++)
		CHECK_EQ(batch->answers[i].data[k], 0xFF);
}

static void both_formats(void (*test)(uint32_t format))
{
	test(NUPA_FLIT_68);
	test(NUPA_FLIT_256);
}

static void lines(uint32_t format)
{
	struct nupa_cxl_bus *bus = bus_make(), *other = bus_make();
	struct batch *batch = batch_make(bus, format);
	struct nupa_cxl_counters found, wanted;
	uint8_t line[64];

	for (uint32_t i = 0; i < 16; i++)
		nupa_cxl_rate_line(BASE + 192 * i,
				   ask(batch, NUPA_CXL_M2S_RWD, BASE + 192 * i)->data);
	for (uint32_t i = 0; i < 16; i++)
		ask(batch, NUPA_CXL_M2S_REQ, BASE + 192 * i);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	CHECK_EQ(go(batch), 32);
	for (uint32_t i = 0; i < 16; i++) {
		uint64_t hpa = BASE + 192 * i;

		nupa_cxl_rate_line(hpa, line);
		check_answer(batch, i, NUPA_CXL_S2M_NDR, NUPA_CXL_OK, 0, 0);
		check_answer(batch, 16 + i, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
		CHECK(!memcmp(batch->answers[16 + i].data, line, 64));
		CHECK_EQ(batch->received[i].ld_id, hpa / 256 % 2 ? LD : 0);
		CHECK_EQ(batch->device[i].ld_id, hpa / 256 % 2 ? LD : 0);
		CHECK_EQ(nupa_cxl_write(other, hpa, line, 64).status, NUPA_CXL_OK);
		CHECK_EQ(nupa_cxl_read(other, hpa, line, 64).status, NUPA_CXL_OK);
		CHECK(!memcmp(batch->answers[16 + i].data, line, 64));
	}
	for (uint32_t port = 0; port < 4; port++) {
		CHECK_EQ(nupa_cxl_bus_counters(bus, port, &found), 0);
		CHECK_EQ(nupa_cxl_bus_counters(other, port, &wanted), 0);
		CHECK(!memcmp(&found, &wanted, sizeof(found)));
	}
	free(batch);
	nupa_cxl_bus_free(bus);
	nupa_cxl_bus_free(other);
}

static void test_lines_are_written_and_read_as_without_flits(void)
{
	both_formats(lines);
}

static void parts(uint32_t format)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct batch *batch = batch_make(bus, format);
	struct nupa_cxl_message *request = ask(batch, NUPA_CXL_M2S_RWD, BASE + 256);

	memset(memory, 0, sizeof(memory));
	memset(request->data, 7, 64);
	request->opcode = 2; /* MemWrPtl */
	request->byte_enables = UINT64_C(0x8000000000000105);
	ask(batch, NUPA_CXL_M2S_REQ, BASE + 320)->opcode = 0; /* MemInv */
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	CHECK_EQ(go(batch), 2);
	for (uint32_t i = 0; i < 64; i++)
		CHECK_EQ(memory[1][i], request->byte_enables >> i & 1 ? 7 : 0);
	check_answer(batch, 0, NUPA_CXL_S2M_NDR, NUPA_CXL_OK, 0, 0);
	check_answer(batch, 1, NUPA_CXL_S2M_NDR, NUPA_CXL_OK, 0, 0);
	free(batch);
	nupa_cxl_bus_free(bus);
}

static void test_a_partial_write_changes_what_is_enabled(void)
{
	both_formats(parts);
}

/* One write and one read of each device, and of an address that is nobody's. */
static void ask_all(struct batch *batch)
{
	static const uint64_t places[] = { BASE, BASE + 256, BASE + REGION_BYTES };

	batch->run.n = 0;
	for (uint32_t i = 0; i < 3; i++) {
		memset(ask(batch, NUPA_CXL_M2S_RWD, places[i])->data, (int)i + 1, 64);
		ask(batch, NUPA_CXL_M2S_REQ, places[i]);
	}
}

static void failures(uint32_t format)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct batch *batch = batch_make(bus, format);
	struct nupa_cxl_counters counters;

	memset(memory, 0, sizeof(memory));
	ask_all(batch);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), -EXDEV);
	CHECK_EQ(batch->ways[3].links, 2);
	CHECK_EQ(batch->ways[4].links, 0);
	/* Nobody decodes it: the host answers itself, and no flit is sent. */
	CHECK_EQ(go(batch), 6);
	check_answer(batch, 4, NUPA_CXL_S2M_NDR, NUPA_CXL_NO_DECODER, 0, 0);
	check_answer(batch, 5, NUPA_CXL_S2M_DRS, NUPA_CXL_NO_DECODER, 1, 0);
	CHECK_EQ(batch->counts[0][4] + batch->counts[3][5], 0);
	/* A link that is down: the switch answers. */
	CHECK_EQ(nupa_cxl_bus_set_link(bus, 3, false), 0);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), -EXDEV);
	CHECK_EQ(go(batch), 6);
	check_answer(batch, 2, NUPA_CXL_S2M_NDR, NUPA_CXL_LINK_DOWN, 0, 0);
	check_answer(batch, 3, NUPA_CXL_S2M_DRS, NUPA_CXL_LINK_DOWN, 0, 1);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
	CHECK_EQ(batch->counts[1][3] + batch->counts[2][3], 0);
	CHECK_EQ(batch->counts[3][3], format == NUPA_FLIT_68 ? 2 : 1);
	CHECK_EQ(nupa_cxl_bus_counters(bus, 3, &counters), 0);
	CHECK_EQ(counters.refused, 2);
	/* The upstream port's: the host does. */
	CHECK_EQ(nupa_cxl_bus_set_link(bus, UPSTREAM, false), 0);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), -EXDEV);
	CHECK_EQ(go(batch), 6);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_LINK_DOWN, 0, 1);
	CHECK_EQ(batch->n[0] + batch->n[3], 0);
	CHECK_EQ(nupa_cxl_bus_set_link(bus, UPSTREAM, true), 0);
	CHECK_EQ(nupa_cxl_bus_set_link(bus, 3, true), 0);
	/* Viral, poisoned, and gone. */
	CHECK_EQ(nupa_cxl_bus_set_viral(bus, 0, true), 0);
	CHECK_EQ(nupa_cxl_bus_set_device(bus, 1, NULL, 0), 0);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), -EXDEV);
	memset(memory, 9, sizeof(memory));
	CHECK_EQ(go(batch), 6);
	check_answer(batch, 0, NUPA_CXL_S2M_NDR, NUPA_CXL_VIRAL, 0, 0);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_VIRAL, 0, 1);
	check_answer(batch, 3, NUPA_CXL_S2M_DRS, NUPA_CXL_NO_MEMORY, 1, 0);
	for (uint32_t i = 0; i < DEVICE_BYTES; i++)
		CHECK_EQ(memory[0][i] & memory[1][i], 9);
	free(batch);
	nupa_cxl_bus_free(bus);
}

static void test_what_cannot_be_done_is_answered_by_who_finds_it(void)
{
	both_formats(failures);
}

static void poison(uint32_t format)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct batch *batch = batch_make(bus, format);
	struct nupa_cxl_counters counters;

	memset(memory, 0, sizeof(memory));
	ask(batch, NUPA_CXL_M2S_RWD, BASE + 256)->poison = 1;
	ask(batch, NUPA_CXL_M2S_REQ, BASE + 256);
	ask(batch, NUPA_CXL_M2S_REQ, BASE);
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	CHECK_EQ(go(batch), 3);
	check_answer(batch, 0, NUPA_CXL_S2M_NDR, NUPA_CXL_OK, 0, 0);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_POISON, 0, 1);
	check_answer(batch, 2, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
	CHECK_EQ(nupa_cxl_bus_is_poisoned(bus, 1, 0), 1);
	CHECK_EQ(nupa_cxl_bus_counters(bus, 3, &counters), 0);
	CHECK_EQ(counters.poison, 1);
	batch->requests[0].poison = 0;
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	CHECK_EQ(go(batch), 3);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
	free(batch);
	nupa_cxl_bus_free(bus);
}

static void test_poison_travels_with_the_data(void)
{
	both_formats(poison);
}

static void damages(uint32_t format)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct batch *batch = batch_make(bus, format);

	for (int stage = 0; stage < 4; stage++) {
		static const uint8_t receiver[] = { 1, 2, 1, 0 };

		memset(memory, 0, sizeof(memory));
		ask_all(batch);
		batch->run.n = 4;
		batch->damaged = stage;
		CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
		CHECK_EQ(go(batch), 3);
		CHECK_EQ(batch->ways[0].fault, NUPA_FLIT_CRC);
		CHECK_EQ(batch->ways[0].at, receiver[stage]);
		CHECK_EQ(batch->answers[0].channel, 0);
		CHECK_EQ(memory[0][0], stage < 2 ? 0 : 1);
		check_answer(batch, 3, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
	}
	free(batch);
	nupa_cxl_bus_free(bus);
}

static void test_damage_on_any_link_stops_that_request_and_no_other(void)
{
	both_formats(damages);
}

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
	CHECK_EQ(nupa_cxl_bus_set_device(bus, 1, memory[1], DEVICE_BYTES), 0);
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

static void test_the_loop_of_the_benchmark_writes_and_compares(void)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_rate rate;

	memset(memory, 0, sizeof(memory));
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, false);
	CHECK_EQ(rate.wrong, 500);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, true);
	CHECK_EQ(rate.result.status, NUPA_CXL_OK);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, false);
	CHECK_EQ(rate.wrong, 0);
	memset(memory, 0, sizeof(memory));
	rate = nupa_cxl_rate_fill(bus, BASE, REGION_BYTES);
	CHECK_EQ(rate.result.status, NUPA_CXL_OK);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 2, false);
	CHECK_EQ(rate.wrong, 0);
	CHECK_EQ(nupa_cxl_bus_set_link(bus, ROOT, false), 0);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, true);
	CHECK_EQ(rate.result.status, NUPA_CXL_LINK_DOWN);
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
		CHECK_EQ(nupa_cxl_bus_set_table(bus, i % 2 ? &table : &empty), 0);
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
		CASE(test_lines_are_written_and_read_as_without_flits),
		CASE(test_a_partial_write_changes_what_is_enabled),
		CASE(test_what_cannot_be_done_is_answered_by_who_finds_it),
		CASE(test_poison_travels_with_the_data),
		CASE(test_damage_on_any_link_stops_that_request_and_no_other),
		CASE(test_between_switches_messages_are_routed_by_pids),
		CASE(test_what_is_no_run_is_refused),
		CASE(test_the_loop_of_the_benchmark_writes_and_compares),
		CASE(test_threads_go_on_while_tables_change),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
