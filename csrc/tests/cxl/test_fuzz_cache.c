/* SPDX-License-Identifier: BSD-3-Clause
 * Random requests of 2 to 8 hosts, of the device and of links, against plain bytes.  Every read
 * returns the bytes last written, and the invariants hold after each request.  The seed is printed;
 * NUPA_FUZZ_SECONDS is the duration. */
#include "cxl/bus.h"
#include "tests/cxl/coherent.h"
#include "tests/support/runner.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 2000u

static struct coherent world;
static uint8_t model[COHERENT_BYTES];

/* Bytes of a few lines, mostly of the same ones. */
static uint64_t place(uint64_t *seed, uint64_t *bytes)
{
	uint64_t random = test_random(seed), at = random % COHERENT_BYTES;

	if (random & 1 << 20)
		at %= 1024;
	*bytes = (random >> 24) % 200;
	if (random & 1 << 21) { /* whole lines */
		at -= at % 64;
		*bytes = UINT64_C(64) << ((random >> 24) % 3);
	}
	if (*bytes > COHERENT_BYTES - at)
		*bytes = COHERENT_BYTES - at;
	return at;
}

static void write_some(struct nupa_cxl_bus *bus, uint64_t at, uint64_t bytes, uint64_t random)
{
	for (uint64_t i = 0; i < bytes; i++)
		model[at + i] = (uint8_t)(random + i * 7);
	if (bus)
		CHECK_EQ(nupa_cxl_write(bus, COHERENT_BASE + at, model + at, bytes).status,
			 NUPA_CXL_OK);
	else
		CHECK_EQ(nupa_cxl_device_write(world.memory, at, model + at, bytes), 0);
}

static void read_some(struct nupa_cxl_bus *bus, uint64_t at, uint64_t bytes)
{
	uint8_t found[COHERENT_BYTES];

	if (bus)
		CHECK_EQ(nupa_cxl_read(bus, COHERENT_BASE + at, found, bytes).status, NUPA_CXL_OK);
	else
		CHECK_EQ(nupa_cxl_device_read(world.memory, at, found, bytes), 0);
	CHECK(!memcmp(found, model + at, bytes));
}

static void step(uint64_t *seed)
{
	uint64_t random = test_random(seed), bytes, at = place(seed, &bytes);
	struct nupa_cxl_bus *bus = world.buses[random % world.n];

	switch ((random >> 8) % 16) {
	case 0:
		CHECK_EQ(nupa_cxl_device_recall(world.memory, at - at % 64, 64,
						1 + (uint32_t)(random >> 16) % 3),
			 0);
		break;
	case 1:
		CHECK_EQ(nupa_cxl_flush(bus, COHERENT_BASE + at, bytes).status, NUPA_CXL_OK);
		break;
	case 2:
		read_some(NULL, at, bytes);
		break;
	case 3:
		write_some(NULL, at, bytes, random);
		break;
	case 4:
		if (!((random >> 16) % 8) && bus->cache)
			CHECK_EQ(nupa_cxl_bus_flush(bus), 0);
		break;
	case 5: /* flushed lines cannot be lost with the link */
		if (bus->cache)
			CHECK_EQ(nupa_cxl_bus_flush(bus), 0);
		CHECK_EQ(nupa_cxl_bus_set_link(bus, 0, false), 0);
		CHECK_EQ(nupa_cxl_bus_set_link(bus, 0, true), 0);
		break;
	default:
		if (random >> 16 & 1)
			write_some(bus, at, bytes, random);
		else
			read_some(bus, at, bytes);
	}
}

TEST(every_read_is_the_last_write)
{
	uint64_t seed = test_seed(), end = test_now_ns() + test_fuzz_ns(1);

	do {
		uint32_t ways[COHERENT_HOSTS], n = 2 + (uint32_t)(test_random(&seed) % 7);
		struct nupa_cxl_snoop_counts counts;

		for (uint32_t i = 0; i < n; i++)
			ways[i] = (uint32_t)(test_random(&seed) % 4); /* some have no cache */
		memset(model, 0, sizeof(model));
		coherent_make(&world, n, ways, 1 + (uint32_t)(test_random(&seed) % 3),
			      (uint32_t)(test_random(&seed) % 2));
		for (uint32_t i = 0; i < STEPS; i++) {
			step(&seed);
			coherent_check(&world);
		}
		for (uint32_t i = 0; i < n; i++)
			read_some(world.buses[i], 0, COHERENT_BYTES);
		CHECK_EQ(nupa_cxl_device_recall(world.memory, 0, COHERENT_BYTES, NUPA_CXL_SNP_INV),
			 0);
		CHECK(!memcmp(world.bytes, model, sizeof(model)));
		CHECK_EQ(nupa_cxl_snoop_counts(world.memory, -1, &counts), 0);
		CHECK_EQ(counts.entries, 0);
		coherent_free(&world);
	} while (test_now_ns() < end);
}
