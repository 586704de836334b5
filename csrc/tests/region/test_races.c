/* SPDX-License-Identifier: BSD-3-Clause
 * Regions under several threads, and under processes that are killed at any instruction.  A window
 * never shows memory of others, quotas hold, and nothing is left behind. */
#include "tests/region/shared_region.h"

#include "base/atomics.h"
#include "region/pool.h"
#include "region/slot_life.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 400u
#define MAPPERS 2u

static uint64_t *memory_of(struct nupa_fabric *fabric, const struct nupa_region_info *region)
{
	return (uint64_t *)(void *)(nupa_fabric_pool(fabric) + region->pieces[0]);
}

struct stage {
	struct nupa_fabric *fabric;
	uint64_t id;     /* the region there is now; its first word says the same */
	uint32_t opened; /* windows that there were */
	uint32_t closed; /* no more regions come */
};

/* While a window is open its memory remains that region's. */
static void *map_and_look(void *argument)
{
	struct stage *stage = argument;
	struct nupa_region_info region;
	uint32_t window;

	while (!nupa_load_acquire(&stage->closed)) {
		const uint64_t id = nupa_load_acquire(&stage->id);
		int rc =
		    id ? nupa_region_map_begin(stage->fabric, id, 1, &region, &window) : -ESTALE;

		CHECK(rc == 0 || rc == -ESTALE);
		if (rc) {
			sched_yield();
			continue;
		}
		for (int i = 0; i < 20; i++)
			CHECK_EQ(nupa_load_acquire(memory_of(stage->fabric, &region)), id);
		nupa_fetch_add_seq(&stage->opened, 1);
		CHECK_EQ(nupa_region_map_end(stage->fabric, window), 0);
	}
	return NULL;
}

TEST(a_window_never_shows_what_is_somebody_elses)
{
	struct stage stage = { .fabric = test_fabric() };
	pthread_t mappers[MAPPERS];
	uint32_t busy = 0;

	CHECK(nupa_fabric_pool(stage.fabric));
	for (uint32_t i = 0; i < MAPPERS; i++)
		CHECK_EQ(pthread_create(&mappers[i], NULL, map_and_look, &stage), 0);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		const struct nupa_region_info made = region_made(stage.fabric, EXTENT, BIT(1));
		const uint32_t opened = nupa_load_acquire(&stage.opened);
		int rc;

		nupa_store_release(memory_of(stage.fabric, &made), made.id);
		nupa_store_release(&stage.id, made.id);
		while (round % 8 == 0 && nupa_load_acquire(&stage.opened) == opened)
			sched_yield();
		rc = nupa_region_free(stage.fabric, made.id, round % 2);
		while (rc == -EBUSY) {
			CHECK(round % 2 == 0);
			busy++;
			sched_yield();
			rc = nupa_region_free(stage.fabric, made.id, false);
		}
		CHECK_EQ(rc, 0);
	}
	nupa_store_release(&stage.closed, 1);
	for (uint32_t i = 0; i < MAPPERS; i++)
		CHECK_EQ(pthread_join(mappers[i], NULL), 0);
	printf("%u windows, %u times busy\n", stage.opened, busy);
	CHECK_EQ(region_windows(stage.fabric), 0);
	CHECK_EQ(region_count(stage.fabric), 0);
	CHECK_EQ(region_extents(stage.fabric), 0);
	nupa_fabric_put(stage.fabric);
}

#define QUOTA_EXTENTS 3u

struct takers {
	struct nupa_fabric *fabric;
	uint32_t held; /* extents, by all */
	uint32_t refused;
};

static void *take_and_return(void *argument)
{
	struct takers *takers = argument;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		const uint32_t n = 1 + round % 2;
		const struct nupa_region_info wish =
		    region_wish((uint64_t)n * EXTENT, 0, (uint32_t)getpid());
		struct nupa_region_info made;
		int rc = nupa_region_alloc(takers->fabric, 0, &wish, &made);

		CHECK(rc == 0 || rc == -EDQUOT);
		if (rc) {
			nupa_fetch_add_seq(&takers->refused, 1);
			sched_yield();
			continue;
		}
		CHECK(nupa_fetch_add_seq(&takers->held, n) + n <= QUOTA_EXTENTS);
		sched_yield();
		nupa_fetch_add_seq(&takers->held, -n);
		CHECK_EQ(nupa_region_free(takers->fabric, made.id, false), 0);
	}
	return NULL;
}

TEST(a_quota_holds_against_all_at_once)
{
	struct takers takers = { .fabric = test_fabric() };
	pthread_t threads[3];

	CHECK_EQ(nupa_region_set_quota(takers.fabric, 0, QUOTA_EXTENTS * EXTENT), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, take_and_return, &takers), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK(takers.refused < 3 * ROUNDS);
	CHECK_EQ(region_extents(takers.fabric), 0);
	nupa_fabric_put(takers.fabric);
}

/* Does all that can be done with regions, until killed. */
static void live(struct nupa_fabric *fabric, uint64_t seed)
{
	const uint64_t shares[2][4] = { { 0 }, { BIT(1) } };
	struct nupa_region_info made, found, wish;
	uint32_t window;
	void *memory;

	for (;;) {
		made = region_made(fabric, (1 + test_random(&seed) % 3) * EXTENT, 0);
		if (nupa_region_map_begin(fabric, made.id, 0, &found, &window) == 0 &&
		    test_random(&seed) % 2)
			(void)nupa_region_map_end(fabric, window);
		(void)nupa_region_share(fabric, made.id, shares[test_random(&seed) % 2]);
		(void)nupa_region_free(fabric, made.id, false);
		if (nupa_pool_reserve(fabric, 0, 3 * EXTENT, &memory))
			continue;
		wish = region_wish(2 * EXTENT, BIT(1), 0);
		wish.ways = 2;
		wish.granularity = 256;
		wish.pieces[0] = nupa_pool_offset(fabric, memory);
		wish.pieces[1] = wish.pieces[0] + EXTENT;
		CHECK_EQ(nupa_region_publish(fabric, &wish, &made), 0);
		(void)nupa_region_free(fabric, made.id, false);
		(void)nupa_pool_free(fabric, 0, memory, 3 * EXTENT);
		/* The remaining windows end by death alone. */
		if (region_extents(fabric) > 256)
			(void)raise(SIGKILL);
	}
}

TEST(a_process_that_is_killed_at_any_instruction_leaves_nothing)
{
	struct nupa_fabric *fabric = test_fabric();
	uint64_t seed = test_seed();

	for (uint32_t round = 0; round < 40; round++) {
		const struct timespec pause = { .tv_nsec = (long)(test_random(&seed) % 400000) };
		const uint64_t child_seed = test_random(&seed) | 1;
		struct nupa_region_info found;
		const pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0)
			live(fabric, child_seed);
		nanosleep(&pause, NULL);
		kill(child, SIGKILL);
		region_reaped(child);
		(void)nupa_fabric_reap(fabric);
		for (uint32_t i = 0; i < nupa_region_limit(fabric); i++) {
			if (nupa_region_get(fabric, i, &found))
				continue;
			/* Shared by then. */
			CHECK(found.orphan && found.share[0] == BIT(1) && !found.published);
			CHECK_EQ(nupa_region_free(fabric, found.id, false), 0);
		}
		CHECK_EQ(region_extents(fabric), 0);
		if (!nupa_region_limit(fabric))
			continue;
		CHECK_EQ(region_windows(fabric), 0);
		for (uint32_t i = 0; i < nupa_region_limit(fabric); i++) {
			CHECK_EQ(NUPA_CLAIM_STATE(region_rows(fabric)[i].claim), NUPA_REGION_FREE);
			CHECK_EQ(region_rows(fabric)[i].charge, 0);
		}
	}
	nupa_fabric_put(fabric);
}
