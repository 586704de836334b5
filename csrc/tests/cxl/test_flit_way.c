/* SPDX-License-Identifier: BSD-3-Clause
 * Requests as flits end as requests of transact.h do, at the same ports and for the same reasons.
 */
#include "cxl/rate.h"
#include "tests/support/flits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

	memset(flits_memory, 0, sizeof(flits_memory));
	memset(request->data, 7, 64);
	request->opcode = 2; /* MemWrPtl */
	request->byte_enables = UINT64_C(0x8000000000000105);
	ask(batch, NUPA_CXL_M2S_REQ, BASE + 320)->opcode = 0; /* MemInv */
	CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
	CHECK_EQ(go(batch), 2);
	for (uint32_t i = 0; i < 64; i++)
		CHECK_EQ(flits_memory[1][i], request->byte_enables >> i & 1 ? 7 : 0);
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

	memset(flits_memory, 0, sizeof(flits_memory));
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
	memset(flits_memory, 9, sizeof(flits_memory));
	CHECK_EQ(go(batch), 6);
	check_answer(batch, 0, NUPA_CXL_S2M_NDR, NUPA_CXL_VIRAL, 0, 0);
	check_answer(batch, 1, NUPA_CXL_S2M_DRS, NUPA_CXL_VIRAL, 0, 1);
	check_answer(batch, 3, NUPA_CXL_S2M_DRS, NUPA_CXL_NO_MEMORY, 1, 0);
	for (uint32_t i = 0; i < DEVICE_BYTES; i++)
		CHECK_EQ(flits_memory[0][i] & flits_memory[1][i], 9);
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

	memset(flits_memory, 0, sizeof(flits_memory));
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

		memset(flits_memory, 0, sizeof(flits_memory));
		ask_all(batch);
		batch->run.n = 4;
		batch->damaged = stage;
		CHECK_EQ(nupa_flit_plan(&batch->run, batch->requests), 2);
		CHECK_EQ(go(batch), 3);
		CHECK_EQ(batch->ways[0].fault, NUPA_FLIT_CRC);
		CHECK_EQ(batch->ways[0].at, receiver[stage]);
		CHECK_EQ(batch->answers[0].channel, 0);
		CHECK_EQ(flits_memory[0][0], stage < 2 ? 0 : 1);
		check_answer(batch, 3, NUPA_CXL_S2M_DRS, NUPA_CXL_OK, 0, 0);
	}
	free(batch);
	nupa_cxl_bus_free(bus);
}

static void test_damage_on_any_link_stops_that_request_and_no_other(void)
{
	both_formats(damages);
}

static void test_the_loop_of_the_benchmark_writes_and_compares(void)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_rate rate;

	memset(flits_memory, 0, sizeof(flits_memory));
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, false);
	CHECK_EQ(rate.wrong, 500);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, true);
	CHECK_EQ(rate.result.status, NUPA_CXL_OK);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, false);
	CHECK_EQ(rate.wrong, 0);
	memset(flits_memory, 0, sizeof(flits_memory));
	rate = nupa_cxl_rate_fill(bus, BASE, REGION_BYTES);
	CHECK_EQ(rate.result.status, NUPA_CXL_OK);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 2, false);
	CHECK_EQ(rate.wrong, 0);
	CHECK_EQ(nupa_cxl_bus_set_link(bus, ROOT, false), 0);
	rate = nupa_cxl_rate(bus, BASE, REGION_BYTES, 500, 1, true);
	CHECK_EQ(rate.result.status, NUPA_CXL_LINK_DOWN);
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
		CASE(test_the_loop_of_the_benchmark_writes_and_compares),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
