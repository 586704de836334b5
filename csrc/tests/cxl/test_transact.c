/* SPDX-License-Identifier: BSD-3-Clause
 * Requests through a bus: two interleaved devices behind one switch, and what can go wrong. */
#include "tests/support/runner.h"
#include "cxl/transact.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define BASE (UINT64_C(1) << 32)
#define DEVICE_BYTES 4096u
#define REGION_BYTES (2 * DEVICE_BYTES)
#define UPSTREAM 0

static _Alignas(64) uint8_t memory[2][DEVICE_BYTES];
static const uint16_t hops[] = { UPSTREAM, 1, UPSTREAM, 2 };
/* 512 bytes in turn. */
static const struct nupa_cxl_node nodes[] = {
	{ .kind = NUPA_CXL_STEP, .shift = 9, .bits = 1, .next = 1 },
	{ .kind = NUPA_CXL_DEVICE,
	  .shift = 9,
	  .bits = 1,
	  .hpa_base = BASE,
	  .next = 0,
	  .n_hops = 2 },
	{ .kind = NUPA_CXL_DEVICE,
	  .shift = 9,
	  .bits = 1,
	  .hpa_base = BASE,
	  .next = 2,
	  .n_hops = 2,
	  .device = 1 },
};
static const struct nupa_cxl_range ranges[] = { { BASE, BASE + REGION_BYTES - 1, 0, 0 } };
static const struct nupa_cxl_table table = { ranges, nodes, hops, 1, 3, 4 };
static const struct nupa_cxl_table empty;

static struct nupa_cxl_memory *devices[2];

static struct nupa_cxl_bus *bus_make(void)
{
	struct nupa_cxl_bus *bus = nupa_cxl_bus_new(2, 3);

	CHECK(bus);
	CHECK_EQ(nupa_cxl_bus_set_table(bus, &table), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct nupa_cxl_part all = { .bytes = DEVICE_BYTES };

		CHECK((all.memory = devices[i] = nupa_cxl_memory_new(memory[i], DEVICE_BYTES)));
		CHECK_EQ(nupa_cxl_bus_set_parts(bus, i, &all, 1), 0);
	}
	return bus;
}

static void bus_close(struct nupa_cxl_bus *bus)
{
	nupa_cxl_bus_free(bus);
	for (uint32_t i = 0; i < 2; i++)
		nupa_cxl_memory_free(devices[i]);
}

static void fill(uint8_t *bytes, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)test_random(&seed);
}

static void check_all(const uint8_t *bytes, size_t n, uint8_t wanted)
{
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(bytes[i], wanted);
}

static uint32_t read_status(struct nupa_cxl_bus *bus, uint64_t hpa, uint8_t line[64])
{
	return nupa_cxl_read(bus, hpa, line, 64).status;
}

TEST(written_bytes_are_in_the_devices_and_come_back)
{
	struct nupa_cxl_bus *bus = bus_make();
	uint8_t wanted[REGION_BYTES], found[REGION_BYTES];
	struct nupa_cxl_counters counters;

	fill(wanted, sizeof(wanted), 7);
	CHECK_EQ(nupa_cxl_write(bus, BASE, wanted, sizeof(wanted)).status, NUPA_CXL_OK);
	for (size_t i = 0; i < REGION_BYTES; i += 512)
		CHECK(!memcmp(memory[i / 512 % 2] + i / 1024 * 512, wanted + i, 512));
	CHECK_EQ(nupa_cxl_read(bus, BASE, found, sizeof(found)).status, NUPA_CXL_OK);
	CHECK(!memcmp(found, wanted, sizeof(found)));
	for (uint32_t port = 0; port < 3; port++) {
		uint64_t lines = REGION_BYTES / 64 / (port == UPSTREAM ? 1 : 2);

		CHECK_EQ(nupa_cxl_bus_counters(bus, port, &counters), 0);
		CHECK_EQ(counters.reads, lines);
		CHECK_EQ(counters.writes, lines);
		CHECK_EQ(counters.partial_writes + counters.refused + counters.poison, 0);
	}
	bus_close(bus);
}

TEST(bytes_of_any_place_are_as_in_a_copy)
{
	struct nupa_cxl_bus *bus = bus_make();
	uint64_t seed = test_seed();
	uint8_t copy[REGION_BYTES], found[REGION_BYTES], piece[REGION_BYTES];

	memset(memory, 0, sizeof(memory));
	memset(copy, 0, sizeof(copy));
	for (int i = 0; i < 2000; i++) {
		size_t at = test_random(&seed) % REGION_BYTES;
		size_t n = test_random(&seed) % (REGION_BYTES - at + 1) % 700;

		fill(piece, n, seed);
		memcpy(copy + at, piece, n);
		CHECK_EQ(nupa_cxl_write(bus, BASE + at, piece, n).status, NUPA_CXL_OK);
		at = test_random(&seed) % REGION_BYTES;
		n = test_random(&seed) % (REGION_BYTES - at + 1) % 700;
		CHECK_EQ(nupa_cxl_read(bus, BASE + at, found, n).status, NUPA_CXL_OK);
		CHECK(!memcmp(found, copy + at, n));
	}
	bus_close(bus);
}

TEST(addresses_without_memory_read_as_all_ones)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_result result;
	uint8_t found[128];
	uint32_t device;
	uint64_t dpa;

	memset(memory, 0, sizeof(memory));
	result = nupa_cxl_read(bus, BASE + REGION_BYTES - 64, found, sizeof(found));
	CHECK_EQ(result.status, NUPA_CXL_NO_DECODER);
	CHECK_EQ(result.hpa, BASE + REGION_BYTES);
	check_all(found, 64, 0);
	check_all(found + 64, 64, 0xFF);
	CHECK_EQ(nupa_cxl_write(bus, BASE - 64, found, 64).status, NUPA_CXL_NO_DECODER);
	CHECK(!nupa_cxl_bus_find(bus, BASE - 1, &device, &dpa));
	CHECK(nupa_cxl_bus_find(bus, BASE + 512 + 3, &device, &dpa));
	CHECK_EQ(device, 1);
	CHECK_EQ(dpa, 3);
	/* A device that is taken away: the other goes on. */
	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 1, NULL, 0), 0);
	CHECK_EQ(read_status(bus, BASE + 512, found), NUPA_CXL_NO_MEMORY);
	check_all(found, 64, 0xFF);
	CHECK_EQ(read_status(bus, BASE, found), NUPA_CXL_OK);
	CHECK_EQ(nupa_cxl_bus_set_table(bus, &empty), 0);
	CHECK_EQ(read_status(bus, BASE, found), NUPA_CXL_NO_DECODER);
	bus_close(bus);
}

TEST(poison_is_read_until_its_whole_line_is_written)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_counters counters;
	uint8_t line[64] = { 1 }, found[64];

	CHECK_EQ(nupa_cxl_bus_set_poison(bus, 1, 64, 128, true), 0);
	CHECK_EQ(nupa_cxl_bus_is_poisoned(bus, 1, 0), 0);
	CHECK_EQ(nupa_cxl_bus_is_poisoned(bus, 1, 191), 1);
	CHECK_EQ(nupa_cxl_bus_is_poisoned(bus, 1, DEVICE_BYTES), -EINVAL);
	CHECK_EQ(read_status(bus, BASE + 512 + 64, found), NUPA_CXL_POISON);
	check_all(found, 64, 0xFF);
	CHECK_EQ(read_status(bus, BASE + 64, found), NUPA_CXL_OK); /* the other device's */
	CHECK_EQ(nupa_cxl_write(bus, BASE + 512 + 64, line, 32).status, NUPA_CXL_OK);
	CHECK_EQ(read_status(bus, BASE + 512 + 64, found), NUPA_CXL_POISON);
	CHECK_EQ(nupa_cxl_write(bus, BASE + 512 + 64, line, 64).status, NUPA_CXL_OK);
	CHECK_EQ(read_status(bus, BASE + 512 + 64, found), NUPA_CXL_OK);
	CHECK(!memcmp(found, line, 64));
	CHECK_EQ(nupa_cxl_bus_set_poison(bus, 1, 0, DEVICE_BYTES, false), 0);
	CHECK_EQ(read_status(bus, BASE + 512 + 128, found), NUPA_CXL_OK);
	for (uint32_t port = 0; port < 3; port++) {
		CHECK_EQ(nupa_cxl_bus_counters(bus, port, &counters), 0);
		CHECK_EQ(counters.poison, port == 1 ? 0 : 2);
		CHECK_EQ(counters.partial_writes, port == 1 ? 0 : 1);
	}
	CHECK_EQ(nupa_cxl_bus_set_poison(bus, 1, 32, 64, true), -EINVAL);
	CHECK_EQ(nupa_cxl_bus_set_poison(bus, 1, 64, DEVICE_BYTES, true), -EINVAL);
	CHECK_EQ(nupa_cxl_bus_set_poison(bus, 1, UINT64_MAX - 63, 64, true), -EINVAL);
	CHECK_EQ(nupa_cxl_bus_set_poison(bus, 2, 0, 64, true), -EINVAL);
	bus_close(bus);
}

/* Each device has lines of both memories, and a gap; the first one's second part is the second
 * one's, too. */
TEST(a_device_has_parts_of_memory_that_others_share)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_memory *both[2];
	uint8_t line[64] = { 1, 2, 3 }, found[64];

	memset(memory, 0, sizeof(memory));
	for (uint32_t i = 0; i < 2; i++)
		CHECK((both[i] = nupa_cxl_memory_new(memory[i], DEVICE_BYTES)));
	struct nupa_cxl_part first[] = { { 0, 512, 64, both[0] }, { 1024, 512, 128, both[1] } };
	struct nupa_cxl_part second[] = { { 0, 512, 128, both[1] } };

	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 0, first, 2), 0);
	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 1, second, 1), 0);
	/* Addresses of device 0 are those at even multiples of 512. */
	CHECK_EQ(nupa_cxl_write(bus, BASE, line, 64).status, NUPA_CXL_OK);
	CHECK(!memcmp(memory[0] + 64, line, 64));
	CHECK_EQ(nupa_cxl_write(bus, BASE + 1024, line, 64).status, NUPA_CXL_NO_MEMORY);
	CHECK_EQ(read_status(bus, BASE + 1024, found), NUPA_CXL_NO_MEMORY);
	check_all(found, 64, 0xFF);
	CHECK_EQ(nupa_cxl_write(bus, BASE + 2048 + 64, line, 64).status, NUPA_CXL_OK);
	CHECK_EQ(read_status(bus, BASE + 512 + 64, found), NUPA_CXL_OK);
	CHECK(!memcmp(found, line, 64));
	/* Poison is the memory's. */
	CHECK_EQ(nupa_cxl_memory_set_poison(both[1], 128 + 64, 64, true), 0);
	CHECK_EQ(read_status(bus, BASE + 2048 + 64, found), NUPA_CXL_POISON);
	CHECK_EQ(nupa_cxl_bus_is_poisoned(bus, 1, 64), 1);
	CHECK_EQ(nupa_cxl_write(bus, BASE + 512 + 64, line, 64).status, NUPA_CXL_OK);
	CHECK_EQ(nupa_cxl_memory_is_poisoned(both[1], 128 + 64), 0);
	CHECK_EQ(read_status(bus, BASE + 2048 + 64, found), NUPA_CXL_OK);
	/* A removed part is gone; a viral device stays viral. */
	CHECK_EQ(nupa_cxl_bus_set_viral(bus, 1, true), 0);
	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 1, NULL, 0), 0);
	CHECK_EQ(read_status(bus, BASE + 512, found), NUPA_CXL_VIRAL);
	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 0, first, 1), 0);
	CHECK_EQ(read_status(bus, BASE + 2048, found), NUPA_CXL_NO_MEMORY);
	bus_close(bus);
	for (uint32_t i = 0; i < 2; i++)
		nupa_cxl_memory_free(both[i]);
	nupa_cxl_memory_free(NULL);
}

TEST(parts_that_cannot_be_are_refused)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_memory *whole = nupa_cxl_memory_new(memory[0], DEVICE_BYTES);
	const struct nupa_cxl_part bad[][2] = {
		{ { 32, 64, 0, whole } },
		{ { 0, 64, 0, NULL } },
		{ { 0, 64, DEVICE_BYTES, whole } },
		{ { 0, DEVICE_BYTES + 64, 0, whole } },
		{ { 128, 64, 0, whole }, { 64, 128, 0, whole } },
		{ { UINT64_MAX - 63, 128, 0, whole } },
	};

	CHECK(whole);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(nupa_cxl_bus_set_parts(bus, 0, bad[i], bad[i][1].memory ? 2 : 1), -EINVAL);
	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 2, NULL, 0), -EINVAL);
	CHECK(!nupa_cxl_memory_new(memory[0], 100));
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(nupa_cxl_memory_set_poison(whole, 32, 64, true), -EINVAL);
	CHECK_EQ(nupa_cxl_memory_set_poison(whole, DEVICE_BYTES, 64, true), -EINVAL);
	CHECK_EQ(nupa_cxl_memory_is_poisoned(whole, DEVICE_BYTES), -EINVAL);
	bus_close(bus);
	nupa_cxl_memory_free(whole);
}

TEST(a_viral_device_gives_and_takes_nothing)
{
	struct nupa_cxl_bus *bus = bus_make();
	uint8_t line[64] = { 1 }, found[64];

	memset(memory, 0, sizeof(memory));
	CHECK_EQ(nupa_cxl_bus_set_viral(bus, 0, true), 0);
	CHECK_EQ(nupa_cxl_write(bus, BASE, line, 64).status, NUPA_CXL_VIRAL);
	CHECK_EQ(read_status(bus, BASE, found), NUPA_CXL_VIRAL);
	check_all(found, 64, 0xFF);
	check_all(memory[0], 64, 0);
	CHECK_EQ(read_status(bus, BASE + 512, found), NUPA_CXL_OK);
	CHECK_EQ(nupa_cxl_bus_set_viral(bus, 0, false), 0);
	CHECK_EQ(read_status(bus, BASE, found), NUPA_CXL_OK);
	CHECK_EQ(nupa_cxl_bus_set_viral(bus, 2, true), -EINVAL);
	bus_close(bus);
}

TEST(a_link_that_is_down_stops_what_comes_its_way)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_counters counters;
	uint8_t line[64] = { 1 }, found[64];

	memset(memory, 0, sizeof(memory));
	CHECK_EQ(nupa_cxl_bus_set_link(bus, 2, false), 0);
	CHECK_EQ(nupa_cxl_write(bus, BASE + 512, line, 64).status, NUPA_CXL_LINK_DOWN);
	CHECK_EQ(read_status(bus, BASE + 512, found), NUPA_CXL_LINK_DOWN);
	check_all(found, 64, 0xFF);
	CHECK_EQ(read_status(bus, BASE, found), NUPA_CXL_OK);
	CHECK_EQ(nupa_cxl_bus_counters(bus, 2, &counters), 0);
	CHECK_EQ(counters.refused, 2);
	CHECK_EQ(counters.reads + counters.writes, 0);
	CHECK_EQ(nupa_cxl_bus_counters(bus, UPSTREAM, &counters), 0);
	CHECK_EQ(counters.refused, 0);
	CHECK_EQ(counters.reads, 2);
	CHECK_EQ(nupa_cxl_bus_set_link(bus, 2, true), 0);
	CHECK_EQ(read_status(bus, BASE + 512, found), NUPA_CXL_OK);
	check_all(found, 64, 0);
	CHECK_EQ(nupa_cxl_bus_set_link(bus, 3, true), -EINVAL);
	CHECK_EQ(nupa_cxl_bus_counters(bus, 3, &counters), -EINVAL);
	bus_close(bus);
}

TEST(impossible_tables_and_buses_are_refused)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct nupa_cxl_table broken = table;
	uint8_t found[64];

	broken.n_nodes = 2;
	CHECK_EQ(nupa_cxl_bus_set_table(bus, &broken), -EINVAL);
	CHECK_EQ(read_status(bus, BASE, found), NUPA_CXL_OK);
	bus_close(bus);
	CHECK(!nupa_cxl_bus_new(1 << 17, 1));
	CHECK_EQ(errno, EINVAL);
	nupa_cxl_bus_free(NULL);
}

/* Each thread has lines of its own, while tables come and go: what it reads is what it wrote, or
 * all ones with the reason. */
struct worker {
	struct nupa_cxl_bus *bus;
	uint64_t hpa;
	uint64_t n_missed;
};

static void *work(void *context)
{
	struct worker *worker = context;
	uint8_t line[64], found[64];

	for (uint32_t i = 1; i <= 4000; i++) {
		memset(line, (int)(i % 200), sizeof(line));
		if (nupa_cxl_write(worker->bus, worker->hpa, line, 64).status == NUPA_CXL_OK &&
		    nupa_cxl_read(worker->bus, worker->hpa, found, 64).status == NUPA_CXL_OK)
			CHECK(!memcmp(line, found, 64));
		else
			worker->n_missed++;
	}
	return NULL;
}

TEST(threads_go_on_while_tables_change)
{
	struct nupa_cxl_bus *bus = bus_make();
	struct worker workers[3];
	pthread_t threads[3];
	struct nupa_cxl_memory *second = nupa_cxl_memory_new(memory[1], DEVICE_BYTES);
	struct nupa_cxl_part part = { 0, DEVICE_BYTES, 0, second };
	struct nupa_cxl_counters counters;
	uint64_t n_missed = 0;

	for (uint32_t i = 0; i < 3; i++) {
		workers[i] = (struct worker){ bus, BASE + 512 * i, 0 };
		CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < 200; i++) {
		CHECK_EQ(nupa_cxl_bus_set_table(bus, i % 2 ? &table : &empty), 0);
		CHECK_EQ(nupa_cxl_bus_set_link(bus, 1, i % 3 != 0), 0);
		if (i % 5 == 0) /* the next write heals it; healed from here it would be ones */
			CHECK_EQ(nupa_cxl_bus_set_poison(bus, 0, 0, 64, true), 0);
		CHECK_EQ(nupa_cxl_bus_set_parts(bus, 1, &part, i % 7 != 0), 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		n_missed += workers[i].n_missed;
	}
	CHECK_EQ(nupa_cxl_bus_counters(bus, UPSTREAM, &counters), 0);
	CHECK(counters.reads <= 12000 && counters.writes <= 12000);
	CHECK(12000 - counters.writes <= n_missed);
	bus_close(bus);
	nupa_cxl_memory_free(second);
}
