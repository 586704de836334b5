/* SPDX-License-Identifier: BSD-3-Clause
 * Regions and windows when a process dies; a damaged table makes calls fail, and has no other
 * effect. */
#include "tests/region/shared_region.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "region/pool.h"
#include "region/slot_life.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct told {
	struct nupa_region_info exclusive, shared, kept, published;
	uint32_t ready;
};

static struct told *shared_page(void)
{
	struct told *told =
	    mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(told != MAP_FAILED);
	return told;
}

static void make_all_sorts(struct nupa_fabric *fabric, struct told *told)
{
	struct nupa_region_info wish = region_wish(EXTENT, 0, 0);
	void *memory;

	told->exclusive = region_made(fabric, EXTENT, 0);
	told->shared = region_made(fabric, EXTENT, BIT(1));
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &told->kept), 0);
	CHECK_EQ(nupa_pool_alloc(fabric, 0, 2 * EXTENT, &memory), 0);
	memset(memory, 0x5a, 2 * EXTENT);
	wish = region_wish(EXTENT, BIT(1), 0);
	/* Half of each extent. */
	wish.pieces[0] = nupa_pool_offset(fabric, memory) + EXTENT / 2;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &told->published), 0);
}

/* Of a child. */
static _Noreturn void ready_until_killed(struct told *told)
{
	nupa_store_release(&told->ready, 1);
	for (;;)
		pause();
}

static void await_ready(const struct told *told, pid_t child)
{
	CHECK(child > 0);
	while (!nupa_load_acquire(&told->ready))
		sched_yield();
}

static pid_t killed_when_ready(const struct told *told, pid_t child)
{
	await_ready(told, child);
	kill(child, SIGKILL);
	region_reaped(child);
	return child;
}

TEST(the_dead_leave_what_others_share)
{
	struct nupa_fabric *fabric = test_fabric();
	struct told *told = shared_page();
	struct nupa_region_info found, wish = region_wish(EXTENT, 0, (uint32_t)getpid());
	uint32_t window;
	pid_t child = fork();

	if (child == 0) {
		make_all_sorts(fabric, told);
		ready_until_killed(told);
	}
	killed_when_ready(told, child);
	CHECK_EQ(region_extents(fabric), 5);
	(void)nupa_fabric_reap(fabric);
	CHECK_EQ(region_extents(fabric), 2);
	CHECK_EQ(nupa_region_find(fabric, told->exclusive.id, &found), -ESTALE);
	CHECK_EQ(nupa_region_find(fabric, told->published.id, &found), -ESTALE);
	CHECK_EQ(nupa_region_find(fabric, told->kept.id, &found), 0);
	CHECK(!found.orphan && found.pid == 0);
	CHECK_EQ(nupa_region_find(fabric, told->shared.id, &found), 0);
	CHECK(found.orphan && found.pid == told->shared.pid && found.share[0] == BIT(1));
	CHECK_EQ(nupa_region_map_begin(fabric, found.id, 1, &found, &window), 0);
	/* A process that shares it takes it over, within its quota. */
	CHECK_EQ(nupa_region_adopt(fabric, told->kept.id, &wish), -EALREADY);
	wish.host = 2;
	CHECK_EQ(nupa_region_adopt(fabric, found.id, &wish), -EINVAL);
	wish.host = 1;
	CHECK_EQ(nupa_region_set_quota(fabric, 1, EXTENT - 1), 0);
	CHECK_EQ(nupa_region_adopt(fabric, found.id, &wish), -EDQUOT);
	CHECK_EQ(nupa_region_set_quota(fabric, 1, EXTENT), 0);
	CHECK_EQ(nupa_region_adopt(fabric, found.id, &wish), 0);
	CHECK_EQ(nupa_region_find(fabric, found.id, &found), 0);
	CHECK(!found.orphan && found.pid == (uint32_t)getpid() && found.host == 1);
	CHECK_EQ(found.share[0], BIT(0));
	CHECK_EQ(nupa_region_map_end(fabric, window), 0);
	CHECK_EQ(nupa_region_free(fabric, found.id, false), 0);
	nupa_fabric_put(fabric);
}

TEST(memory_of_the_dead_is_nobody_elses_while_a_window_is_open)
{
	struct nupa_fabric *fabric = test_fabric();
	struct told *told = shared_page();
	struct nupa_region_info found;
	uint32_t epoch, own, theirs;
	const uint8_t *pool;
	pid_t child = fork();

	if (child == 0) {
		make_all_sorts(fabric, told);
		ready_until_killed(told);
	}
	await_ready(told, child);
	CHECK_EQ(nupa_region_map_begin(fabric, told->exclusive.id, 0, &found, &own), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, told->published.id, 1, &found, &theirs), 0);
	epoch = nupa_load_seq(nupa_region_epoch(fabric));
	killed_when_ready(told, child);
	(void)nupa_fabric_reap(fabric);
	CHECK_EQ(nupa_load_seq(nupa_region_epoch(fabric)), epoch + 2);
	CHECK_EQ(region_extents(fabric), 5);
	CHECK_EQ(nupa_region_find(fabric, told->published.id, &found), 0);
	CHECK_EQ(found.state, NUPA_REGION_REVOKED);
	pool = nupa_fabric_pool(fabric);
	CHECK(pool[found.pieces[0]] == 0x5a && pool[found.pieces[0] + EXTENT - 1] == 0x5a);
	(void)nupa_fabric_reap(fabric);
	CHECK_EQ(region_extents(fabric), 5);
	CHECK_EQ(nupa_region_map_end(fabric, theirs), 0);
	CHECK_EQ(region_extents(fabric), 3);
	CHECK_EQ(pool[found.pieces[0]], 0);
	CHECK_EQ(nupa_region_map_end(fabric, own), 0);
	CHECK_EQ(region_extents(fabric), 2);
	CHECK_EQ(region_count(fabric), 2);
	nupa_fabric_put(fabric);
}

TEST(memory_that_is_published_twice_goes_with_the_last)
{
	struct nupa_fabric *fabric = test_fabric();
	struct told *told = shared_page();
	struct nupa_region_info found, wish;
	uint32_t first, second;
	void *memory;
	pid_t child = fork();

	if (child == 0) {
		CHECK_EQ(nupa_pool_alloc(fabric, 0, 3 * EXTENT, &memory), 0);
		wish = region_wish(2 * EXTENT, 0, 0);
		wish.pieces[0] = nupa_pool_offset(fabric, memory);
		CHECK_EQ(nupa_region_publish(fabric, &wish, &told->published), 0);
		wish.pieces[0] += EXTENT;
		CHECK_EQ(nupa_region_publish(fabric, &wish, &told->shared), 0);
		ready_until_killed(told);
	}
	await_ready(told, child);
	CHECK_EQ(nupa_region_map_begin(fabric, told->published.id, 0, &found, &first), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, told->shared.id, 0, &found, &second), 0);
	killed_when_ready(told, child);
	(void)nupa_fabric_reap(fabric);
	CHECK_EQ(region_extents(fabric), 3);
	CHECK_EQ(nupa_region_map_end(fabric, first), 0);
	CHECK_EQ(region_extents(fabric), 2);
	CHECK_EQ(region_count(fabric), 1);
	CHECK_EQ(nupa_region_map_end(fabric, second), 0);
	CHECK_EQ(region_extents(fabric), 0);
	CHECK_EQ(region_count(fabric), 0);
	nupa_fabric_put(fabric);
}

TEST(windows_of_the_dead_are_taken_back)
{
	struct nupa_fabric *fabric = test_fabric();
	struct told *told = shared_page();
	const struct nupa_region_info made = region_made(fabric, EXTENT, BIT(1));
	struct nupa_region_info found;
	uint32_t window;
	pid_t child = fork();

	if (child == 0) {
		CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &window), 0);
		/* Its windows are not our own to end. */
		told->exclusive.mapped = window;
		ready_until_killed(told);
	}
	await_ready(told, child);
	CHECK_EQ(nupa_region_map_end(fabric, told->exclusive.mapped), -EINVAL);
	CHECK_EQ(nupa_region_free(fabric, made.id, false), -EBUSY);
	killed_when_ready(told, child);
	CHECK_EQ(nupa_region_free(fabric, made.id, false), 0);
	CHECK_EQ(region_windows(fabric), 0);
	nupa_fabric_put(fabric);
}

TEST(a_process_that_dies_while_others_wait_for_it_releases_its_windows)
{
	struct nupa_fabric *fabric = test_fabric();
	struct told *told = shared_page();
	const struct nupa_region_info made = region_made(fabric, EXTENT, BIT(1));
	struct nupa_region_info found;
	uint32_t window;
	pid_t child = fork();

	if (child == 0) {
		const uint32_t *epoch = nupa_region_epoch(fabric);
		const uint32_t before = nupa_load_seq(epoch);

		CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &window), 0);
		nupa_store_release(&told->ready, 1);
		while (nupa_load_seq(epoch) == before)
			sched_yield();
		(void)raise(SIGKILL);
	}
	await_ready(told, child);
	/* A dead child counts as dead before its parent has waited for it. */
	CHECK_EQ(nupa_region_free(fabric, made.id, true), 0);
	region_reaped(child);
	CHECK_EQ(region_extents(fabric), 0);
	nupa_fabric_put(fabric);
}

TEST(others_pids_are_not_judged)
{
	struct nupa_fabric *fabric = test_fabric();
	struct told *told = shared_page();
	struct nupa_region_info found;
	uint32_t window;
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID))
			_exit(77);
		child = fork();
		if (child == 0) {
			told->exclusive = region_made(fabric, EXTENT, 0);
			CHECK_EQ(
			    nupa_region_map_begin(fabric, told->exclusive.id, 0, &found, &window),
			    0);
			ready_until_killed(told);
		}
		await_ready(told, child);
		/* Here it has another pid. */
		(void)nupa_fabric_reap(fabric);
		CHECK_EQ(nupa_region_find(fabric, told->exclusive.id, &found), 0);
		CHECK(found.mapped == 1 && found.pid == 1);
		kill(child, SIGKILL);
		region_reaped(child);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
	if (WEXITSTATUS(status) == 77)
		puts("skipped: pids of another namespace (no user namespaces here)");
	nupa_fabric_put(fabric);
}

/* --- damage ------------------------------------------------------------------------------ */

static void use_everything(struct nupa_fabric *fabric, uint64_t *seed)
{
	const uint64_t share[4] = { test_random(seed) % 4 };
	struct nupa_region_info wish, found;
	struct nupa_quota quota;
	uint32_t window;

	(void)nupa_fabric_reap(fabric);
	for (uint32_t i = 0; i < 4; i++) {
		if (nupa_region_get(fabric, i, &found))
			continue;
		/* The remaining facts about it are readable. */
		CHECK(found.host < 2 && found.ways >= 1 && found.ways <= 16);
		for (uint32_t way = 0; way < found.ways; way++)
			CHECK(found.pieces[way] + found.bytes / found.ways <= 8 << 20);
		CHECK(memchr(found.tag, 0, sizeof(found.tag)));
		(void)nupa_region_share(fabric, found.id, share);
		(void)nupa_region_adopt(fabric, found.id, &found);
		if (nupa_region_map_begin(fabric, found.id, 0, &found, &window) == 0)
			(void)nupa_region_map_end(fabric, window);
		(void)nupa_region_free(fabric, found.id, false);
	}
	(void)nupa_region_map_end(fabric, (uint32_t)test_random(seed));
	(void)nupa_region_quota(fabric, 0, &quota);
	wish = region_wish(EXTENT, share[0] & BIT(1), (uint32_t)getpid());
	if (nupa_region_alloc(fabric, 0, &wish, &found) == 0)
		(void)nupa_region_free(fabric, found.id, false);
}

/* Mostly the numbers that mean something. */
static uint64_t lie(uint64_t *seed)
{
	const uint64_t kinds[] = { 0,
				   1,
				   2,
				   UINT64_MAX,
				   test_random(seed) % 17,
				   test_random(seed) % (16 << 20),
				   test_random(seed),
				   NUPA_CLAIM(test_random(seed) % (1 << 22) | 1 << 21,
					      test_random(seed), test_random(seed) % 7) };

	return kinds[test_random(seed) % (sizeof(kinds) / sizeof(kinds[0]))];
}

TEST(a_damaged_table_makes_calls_fail_and_no_more)
{
	struct nupa_fabric *fabric = test_fabric();
	uint64_t seed = test_seed();

	for (uint32_t round = 0; round < 1500; round++) {
		struct nupa_region_info made, wish = region_wish(EXTENT, BIT(1), 0);
		uint64_t *places[3];
		size_t words[3] = { 8, sizeof(struct nupa_region_row) / 8 * 3,
				    sizeof(struct nupa_region_mapping) / 8 * 3 };

		if (nupa_region_alloc(fabric, 0, &wish, &made) == 0)
			(void)nupa_region_map_begin(fabric, made.id, 1, &made, &made.mapped);
		places[0] = (uint64_t *)(void *)region_table(fabric);
		places[1] = (uint64_t *)(void *)region_rows(fabric);
		places[2] = (uint64_t *)(void *)region_mappings(fabric);
		for (uint32_t n = (uint32_t)(test_random(&seed) % 6); n; n--) {
			const uint64_t kind = test_random(&seed) % 3;

			places[kind][test_random(&seed) % words[kind]] = lie(&seed);
		}
		if (test_random(&seed) % 4 == 0)
			fabric->extents[test_random(&seed) % 16] = (uint32_t)lie(&seed);
		use_everything(fabric, &seed);
		if (round % 16)
			continue;
		memset(fabric->regions, 0, nupa_regions_bytes(&fabric->geometry));
		memset(fabric->extents, 0, fabric->geometry.n_extents * sizeof(uint32_t));
	}
	nupa_fabric_put(fabric);
}
