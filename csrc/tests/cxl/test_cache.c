/* SPDX-License-Identifier: BSD-3-Clause
 * Caches of several hosts over one memory: which messages each access costs, and what is lost when
 * a link or a host goes. */
#include "cxl/bus.h"
#include "tests/cxl/coherent.h"
#include "tests/support/runner.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define LINE(i) (COHERENT_BASE + 64ull * (i))

static struct coherent world;
static const uint32_t two[] = { 2, 2 };
static uint8_t line[64], found[64];

static void write_byte(uint32_t host, uint32_t number, uint8_t value)
{
	CHECK_EQ(nupa_cxl_write(world.buses[host], LINE(number) + 3, &value, 1).status,
		 NUPA_CXL_OK);
}

static void write_line(uint32_t host, uint32_t number, uint8_t value)
{
	memset(line, value, sizeof(line));
	CHECK_EQ(nupa_cxl_write(world.buses[host], LINE(number), line, 64).status, NUPA_CXL_OK);
}

static uint8_t read_byte(uint32_t host, uint32_t number)
{
	uint8_t value = 0;

	CHECK_EQ(nupa_cxl_read(world.buses[host], LINE(number) + 3, &value, 1).status, NUPA_CXL_OK);
	return value;
}

static int state(uint32_t host, uint32_t number)
{
	return nupa_cxl_cache_state(world.buses[host], LINE(number));
}

/* host * 100 + kind of each message since the last time, ended by -1. */
static void expect(const int *wanted)
{
	struct nupa_cxl_trace messages[64];
	uint64_t missed;
	int n = nupa_cxl_snoop_take(world.memory, messages, 64, &missed);

	CHECK_EQ(missed, 0);
	for (int i = 0; i < n; i++)
		CHECK_EQ(messages[i].host * 100 + messages[i].kind, wanted[i]);
	CHECK_EQ(wanted[n], -1);
}

#define EXPECT(...) expect((const int[]){ __VA_ARGS__, -1 })
#define NOTHING expect((const int[]){ -1 })

static void begin(uint32_t filter_ways, uint32_t tells)
{
	coherent_make(&world, 2, two, filter_ways, tells);
	CHECK_EQ(nupa_cxl_snoop_trace(world.memory, 64), 0);
}

TEST(reads_and_writes_cost_the_messages_of_the_specification)
{
	begin(4, 0);
	CHECK_EQ(read_byte(0, 5), 0);
	EXPECT(NUPA_CXL_MEM_RD, NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA);
	CHECK_EQ(state(0, 5), NUPA_CXL_E);
	write_byte(0, 5, 7); /* E becomes M without a message */
	CHECK_EQ(read_byte(0, 5), 7);
	NOTHING;
	CHECK_EQ(state(0, 5), NUPA_CXL_M);
	CHECK_EQ(world.bytes[5 * 64 + 3], 0);
	CHECK_EQ(read_byte(1, 5), 7);
	EXPECT(100 + NUPA_CXL_MEM_RD, NUPA_CXL_BISNP_DATA, NUPA_CXL_MEM_WR, NUPA_CXL_CMP,
	       NUPA_CXL_BIRSP_S, 100 + NUPA_CXL_CMP_S, 100 + NUPA_CXL_MEM_DATA);
	CHECK_EQ(state(0, 5), NUPA_CXL_S);
	CHECK_EQ(state(1, 5), NUPA_CXL_S);
	CHECK_EQ(world.bytes[5 * 64 + 3], 7);
	write_byte(1, 5, 8); /* ownership without data */
	EXPECT(100 + NUPA_CXL_MEM_INV, NUPA_CXL_BISNP_INV, NUPA_CXL_BIRSP_I, 100 + NUPA_CXL_CMP_E);
	CHECK_EQ(state(0, 5), NUPA_CXL_I);
	CHECK_EQ(state(1, 5), NUPA_CXL_M);
	write_byte(0, 5, 9);
	EXPECT(NUPA_CXL_MEM_RD, 100 + NUPA_CXL_BISNP_INV, 100 + NUPA_CXL_MEM_WR, 100 + NUPA_CXL_CMP,
	       100 + NUPA_CXL_BIRSP_I, NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA);
	write_line(1, 5, 10); /* a whole line needs no data, either */
	EXPECT(100 + NUPA_CXL_MEM_INV, NUPA_CXL_BISNP_INV, NUPA_CXL_MEM_WR, NUPA_CXL_CMP,
	       NUPA_CXL_BIRSP_I, 100 + NUPA_CXL_CMP_E);
	CHECK_EQ(nupa_cxl_flush(world.buses[0], LINE(5), 1).status, NUPA_CXL_OK);
	EXPECT(NUPA_CXL_MEM_INV_NT, 100 + NUPA_CXL_BISNP_INV, 100 + NUPA_CXL_MEM_WR,
	       100 + NUPA_CXL_CMP, 100 + NUPA_CXL_BIRSP_I, NUPA_CXL_CMP);
	CHECK_EQ(world.bytes[5 * 64], 10);
	coherent_check(&world);
	coherent_free(&world);
}

TEST(lines_that_have_to_go_are_written_back_or_dropped)
{
	struct nupa_cxl_cache_counts counts;
	struct nupa_cxl_counters port;

	for (uint32_t tells = 0; tells < 2; tells++) {
		begin(16, tells);
		write_byte(0, 0, 1);
		CHECK_EQ(read_byte(0, 4), 0);
		CHECK_EQ(read_byte(0, 8), 0); /* the set has two ways: line 0 goes */
		EXPECT(NUPA_CXL_MEM_RD, NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA, NUPA_CXL_MEM_RD,
		       NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA, NUPA_CXL_MEM_WR, NUPA_CXL_CMP,
		       NUPA_CXL_MEM_RD, NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA);
		CHECK_EQ(world.bytes[3], 1);
		CHECK_EQ(nupa_cxl_snoop_state(world.memory, 0, 0), NUPA_CXL_META_I);
		CHECK_EQ(read_byte(0, 12), 0); /* line 4, clean */
		if (tells)
			EXPECT(NUPA_CXL_MEM_CLN_EVCT, NUPA_CXL_CMP, NUPA_CXL_MEM_RD, NUPA_CXL_CMP_E,
			       NUPA_CXL_MEM_DATA);
		else
			EXPECT(NUPA_CXL_MEM_RD, NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA);
		CHECK_EQ(nupa_cxl_snoop_state(world.memory, 0, 4 * 64),
			 tells ? NUPA_CXL_META_I : NUPA_CXL_META_A);
		CHECK_EQ(read_byte(1, 4), 0); /* the directory asks, if it does not know */
		if (tells)
			EXPECT(100 + NUPA_CXL_MEM_RD, 100 + NUPA_CXL_CMP_E,
			       100 + NUPA_CXL_MEM_DATA);
		else
			EXPECT(100 + NUPA_CXL_MEM_RD, NUPA_CXL_BISNP_DATA, NUPA_CXL_BIRSP_I,
			       100 + NUPA_CXL_CMP_E, 100 + NUPA_CXL_MEM_DATA);
		CHECK_EQ(nupa_cxl_cache_counts(world.buses[0], &counts), 0);
		CHECK_EQ(counts.misses, 4);
		CHECK_EQ(counts.evictions, 2);
		CHECK_EQ(counts.write_backs, 1);
		CHECK_EQ(nupa_cxl_bus_counters(world.buses[0], 0, &port), 0);
		CHECK_EQ(port.reads, 4);
		CHECK_EQ(port.writes, 1);
		coherent_check(&world);
		coherent_free(&world);
	}
}

TEST(a_filter_without_room_takes_lines_back)
{
	struct nupa_cxl_snoop_counts counts;

	begin(1, 0);
	write_byte(0, 0, 1);
	CHECK_EQ(read_byte(1, 8), 0); /* the same entry */
	EXPECT(NUPA_CXL_MEM_RD, NUPA_CXL_CMP_E, NUPA_CXL_MEM_DATA, 100 + NUPA_CXL_MEM_RD,
	       NUPA_CXL_BISNP_INV, NUPA_CXL_MEM_WR, NUPA_CXL_CMP, NUPA_CXL_BIRSP_I,
	       100 + NUPA_CXL_CMP_E, 100 + NUPA_CXL_MEM_DATA);
	CHECK_EQ(state(0, 0), NUPA_CXL_I);
	CHECK_EQ(nupa_cxl_snoop_counts(world.memory, 0, &counts), 0);
	CHECK_EQ(counts.evictions, 1);
	CHECK_EQ(counts.messages[NUPA_CXL_BISNP_INV], 1);
	CHECK_EQ(counts.entries, 1);
	CHECK_EQ(nupa_cxl_snoop_counts(world.memory, -1, &counts), 0);
	CHECK_EQ(counts.messages[NUPA_CXL_MEM_RD], 2);
	coherent_free(&world);
}

TEST(the_device_asks_for_blocks_and_gets_one_answer_if_lines_agree)
{
	uint8_t all[256];

	begin(16, 0);
	write_byte(0, 4, 1);
	write_byte(0, 5, 2);
	CHECK_EQ(nupa_cxl_snoop_trace(world.memory, 64), 0);
	CHECK_EQ(nupa_cxl_device_read(world.memory, 4 * 64, all, 256), 0);
	CHECK_EQ(all[3], 1);
	CHECK_EQ(all[64 + 3], 2);
	EXPECT(NUPA_CXL_BISNP_CUR_BLK, NUPA_CXL_MEM_WR, NUPA_CXL_CMP, NUPA_CXL_MEM_WR, NUPA_CXL_CMP,
	       NUPA_CXL_BIRSP_E, NUPA_CXL_BIRSP_E, NUPA_CXL_BIRSP_I, NUPA_CXL_BIRSP_I);
	CHECK_EQ(state(0, 4), NUPA_CXL_E);
	CHECK_EQ(nupa_cxl_device_recall(world.memory, 4 * 64, 128, NUPA_CXL_SNP_DATA), 0);
	EXPECT(NUPA_CXL_BISNP_DATA_BLK, NUPA_CXL_BIRSP_S_BLK);
	memset(all, 9, sizeof(all));
	CHECK_EQ(nupa_cxl_device_write(world.memory, 5 * 64 + 1, all, 64), 0);
	EXPECT(NUPA_CXL_BISNP_INV, NUPA_CXL_BIRSP_I); /* lines 5 and 6 are not one block */
	CHECK_EQ(read_byte(0, 5), 9);
	CHECK_EQ(read_byte(0, 4), 1);
	CHECK_EQ(nupa_cxl_device_recall(world.memory, 32, 64, NUPA_CXL_SNP_INV), -EINVAL);
	CHECK_EQ(nupa_cxl_device_recall(world.memory, 0, 64, NUPA_CXL_SNP_NONE), -EINVAL);
	CHECK_EQ(nupa_cxl_device_read(world.memory, COHERENT_BYTES, all, 1), -EINVAL);
	CHECK_EQ(nupa_cxl_device_write(world.memory, 1, all, UINT64_MAX), -EINVAL);
	coherent_check(&world);
	coherent_free(&world);
}

TEST(a_snoop_that_meets_a_request_is_a_conflict)
{
	struct cache_set *set;

	begin(4, 0);
	CHECK_EQ(read_byte(0, 5), 0);
	CHECK_EQ(read_byte(1, 5), 0);
	CHECK_EQ(nupa_cxl_snoop_trace(world.memory, 64), 0);
	/* Host 0 wants to own the line; host 1 comes first. */
	set = cache_set_of(world.buses[0]->cache, UINT64_C(5) * 64);
	set->wanted = world.memory;
	set->wanted_offset = UINT64_C(5) * 64;
	write_byte(1, 5, 3);
	EXPECT(100 + NUPA_CXL_MEM_INV, NUPA_CXL_BISNP_INV, NUPA_CXL_BI_CONFLICT,
	       NUPA_CXL_BI_CONFLICT_ACK, NUPA_CXL_BIRSP_I, 100 + NUPA_CXL_CMP_E);
	CHECK_EQ(read_byte(0, 5), 3);
	CHECK(!set->wanted);
	coherent_free(&world);
}

TEST(poison_is_not_cached_and_goes_with_a_whole_line)
{
	struct nupa_cxl_counters port;

	begin(4, 0);
	CHECK_EQ(nupa_cxl_memory_set_poison(world.memory, 64, 64, true), 0);
	CHECK_EQ(nupa_cxl_read(world.buses[0], LINE(1), found, 64).status, NUPA_CXL_POISON);
	CHECK_EQ(found[0], 0xFF);
	CHECK_EQ(state(0, 1), NUPA_CXL_I);
	CHECK_EQ(nupa_cxl_bus_counters(world.buses[0], 0, &port), 0);
	CHECK_EQ(port.poison, 1);
	write_byte(1, 1, 5); /* a part leaves it */
	CHECK_EQ(world.bytes[64 + 3], 5);
	CHECK_EQ(nupa_cxl_read(world.buses[0], LINE(1), found, 64).status, NUPA_CXL_POISON);
	write_line(1, 1, 6);
	CHECK_EQ(read_byte(0, 1), 6);
	CHECK_EQ(nupa_cxl_memory_is_poisoned(world.memory, 64), 0);
	coherent_check(&world);
	coherent_free(&world);
}

TEST(lines_changed_by_a_dead_link_or_host_are_poisoned)
{
	struct nupa_cxl_cache_counts counts;

	begin(16, 0);
	write_byte(0, 0, 1);
	CHECK_EQ(read_byte(0, 1), 0);
	CHECK_EQ(read_byte(0, 2), 0);
	CHECK_EQ(read_byte(1, 2), 0); /* only read: nothing can be lost */
	write_byte(1, 3, 4);
	CHECK_EQ(nupa_cxl_bus_set_link(world.buses[0], 0, false), 0);
	CHECK_EQ(nupa_cxl_cache_counts(world.buses[0], &counts), 0);
	CHECK_EQ(counts.lost, 3);
	CHECK_EQ(nupa_cxl_read(world.buses[0], LINE(0), found, 64).status, NUPA_CXL_LINK_DOWN);
	CHECK_EQ(nupa_cxl_read(world.buses[1], LINE(0), found, 64).status, NUPA_CXL_POISON);
	CHECK_EQ(read_byte(1, 1), 0);
	CHECK_EQ(read_byte(1, 2), 0);
	CHECK_EQ(nupa_cxl_bus_set_link(world.buses[0], 0, true), 0);
	coherent_check(&world);
	nupa_cxl_bus_free(world.buses[1]); /* without a word */
	world.n = 1;
	CHECK_EQ(nupa_cxl_read(world.buses[0], LINE(3), found, 64).status, NUPA_CXL_POISON);
	CHECK_EQ(read_byte(0, 2), 0);
	coherent_free(&world);
}

TEST(a_host_that_leaves_in_order_writes_back)
{
	struct nupa_cxl_cache_shape none = { .host = 0 };
	struct nupa_cxl_snoop_counts counts;

	begin(4, 0);
	write_byte(0, 0, 1);
	write_byte(1, 1, 2);
	CHECK_EQ(nupa_cxl_bus_set_cache(world.buses[0], &none), 0);
	CHECK_EQ(world.bytes[3], 1);
	write_byte(0, 1, 3); /* without a cache, but still coherent */
	CHECK_EQ(read_byte(1, 1), 3);
	write_byte(1, 1, 4);
	CHECK_EQ(read_byte(0, 1), 4);
	CHECK_EQ(nupa_cxl_bus_flush(world.buses[1]), 0);
	CHECK_EQ(nupa_cxl_snoop_counts(world.memory, -1, &counts), 0);
	CHECK_EQ(counts.entries, 0);
	CHECK_EQ(nupa_cxl_bus_flush(world.buses[0]), -EINVAL);
	/* Memory that a bus loses has been written back, too. */
	write_byte(1, 2, 5);
	CHECK_EQ(nupa_cxl_bus_set_parts(world.buses[1], 0, NULL, 0), 0);
	CHECK_EQ(world.bytes[2 * 64 + 3], 5);
	coherent_free(&world);
}

TEST(impossible_caches_and_filters_are_refused)
{
	struct nupa_cxl_cache_shape shape = { .host = 0, .sets = 4, .ways = 1 };
	struct nupa_cxl_snoop_counts counts;
	struct nupa_cxl_memory *bare;
	struct nupa_cxl_bus *bus;

	begin(4, 0);
	CHECK_EQ(nupa_cxl_bus_set_cache(world.buses[0], &shape), -EBUSY);
	shape.sets = 3;
	CHECK_EQ(nupa_cxl_bus_set_cache(world.buses[0], &shape), -EINVAL);
	shape.sets = 4;
	shape.host = 64;
	CHECK_EQ(nupa_cxl_bus_set_cache(world.buses[0], &shape), -EINVAL);
	shape.host = 1;
	shape.ways = 65;
	CHECK_EQ(nupa_cxl_bus_set_cache(world.buses[0], &shape), -EINVAL);
	CHECK_EQ(nupa_cxl_memory_set_snoop(world.memory, 8, 1), -EBUSY);
	CHECK_EQ(nupa_cxl_memory_set_snoop(world.memory, 12, 1), -EINVAL);
	CHECK_EQ(nupa_cxl_memory_set_snoop(world.memory, 8, 0), -EINVAL);
	CHECK_EQ(nupa_cxl_snoop_trace(world.memory, (1 << 20) + 1), -EINVAL);
	CHECK_EQ(nupa_cxl_snoop_counts(world.memory, 65, &counts), -EINVAL);
	CHECK_EQ(nupa_cxl_snoop_state(world.memory, 64, 0), -EINVAL);
	CHECK_EQ(nupa_cxl_cache_state(world.buses[0], 0), -EFAULT);
	CHECK((bare = nupa_cxl_memory_new(world.bytes, 64)));
	CHECK_EQ(nupa_cxl_snoop_counts(bare, -1, &counts), -EINVAL);
	CHECK_EQ(nupa_cxl_device_read(bare, 0, found, 64), -EINVAL);
	nupa_cxl_memory_free(bare);
	/* A second host 1: its requests are coherent, but not cached. */
	CHECK((bus = nupa_cxl_bus_new(1, 1)));
	shape.ways = 2;
	CHECK_EQ(nupa_cxl_bus_set_cache(bus, &shape), 0);
	CHECK_EQ(nupa_cxl_bus_set_table(bus, &world.buses[0]->table), 0);
	CHECK_EQ(nupa_cxl_bus_set_parts(bus, 0, world.buses[0]->devices[0].parts, 1), 0);
	write_byte(1, 0, 1);
	CHECK_EQ(nupa_cxl_read(bus, LINE(0), found, 64).status, NUPA_CXL_OK);
	CHECK_EQ(found[3], 1);
	CHECK_EQ(nupa_cxl_cache_state(bus, LINE(0)), NUPA_CXL_I);
	nupa_cxl_bus_free(bus);
	coherent_free(&world);
}

/* --- threads ----------------------------------------------------------------------- */

#define ROUNDS 3000u

/* Each writes its word of every line, and sees that of others only grow. */
static void *run(void *context)
{
	uint32_t host = *(const uint32_t *)context;
	uint64_t seen[4][COHERENT_HOSTS] = { 0 }, words[COHERENT_HOSTS], seed = host + 1;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		uint64_t random = test_random(&seed), number = random % 4;
		uint64_t at = LINE(number * 4);

		CHECK_EQ(nupa_cxl_read(world.buses[host], at, words, 64).status, NUPA_CXL_OK);
		for (uint32_t k = 0; k < COHERENT_HOSTS; k++) {
			CHECK(words[k] >= seen[number][k]);
			seen[number][k] = words[k];
		}
		CHECK(words[host] == seen[number][host]);
		words[host]++;
		CHECK_EQ(nupa_cxl_write(world.buses[host], at + host * 8, &words[host], 8).status,
			 NUPA_CXL_OK);
		seen[number][host] = words[host];
		if (random % 64 == 4)
			CHECK_EQ(nupa_cxl_bus_flush(world.buses[host]), host == 3 ? -EINVAL : 0);
	}
	return NULL;
}

TEST(hosts_in_threads_see_each_others_writes_in_order)
{
	static const uint32_t ways[] = { 2, 1, 2, 0 };
	static const uint32_t hosts[] = { 0, 1, 2, 3, 0 };
	pthread_t threads[4];
	uint64_t words[8], total = 0;

	coherent_make(&world, 4, ways, 2, 0);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, run, (void *)&hosts[i]), 0);
	for (uint32_t i = 0; i < 100; i++)
		CHECK_EQ(nupa_cxl_device_read(world.memory, i % 16 * 256, words, 64), 0);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	coherent_check(&world);
	for (uint32_t number = 0; number < 4; number++) {
		CHECK_EQ(nupa_cxl_read(world.buses[0], LINE(number * 4), words, 64).status,
			 NUPA_CXL_OK);
		for (uint32_t i = 0; i < 8; i++)
			total += words[i];
	}
	CHECK_EQ(total, 4 * ROUNDS);
	coherent_free(&world);
}

/* One host in threads, each with bytes of its own in the same lines. */
static void *run_part(void *context)
{
	uint32_t part = *(const uint32_t *)context;
	uint64_t seed = part + 1, mine[16] = { 0 };

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		uint64_t number = test_random(&seed) % 16, word;
		uint64_t at = LINE(number) + part * 8;

		CHECK_EQ(nupa_cxl_read(world.buses[0], at, &word, 8).status, NUPA_CXL_OK);
		CHECK_EQ(word, mine[number]);
		mine[number] = i;
		CHECK_EQ(nupa_cxl_write(world.buses[0], at, &i, 8).status, NUPA_CXL_OK);
		read_byte(1, (uint32_t)number);
	}
	return NULL;
}

TEST(threads_of_one_host_share_its_cache)
{
	static const uint32_t parts[] = { 1, 2, 3 };
	pthread_t threads[3];

	begin(2, 1);
	CHECK_EQ(nupa_cxl_snoop_trace(world.memory, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, run_part, (void *)&parts[i]), 0);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	coherent_check(&world);
	coherent_free(&world);
}
