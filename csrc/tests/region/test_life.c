/* SPDX-License-Identifier: BSD-3-Clause
 * Regions: made, found, shared, mapped, published and ended; limits and quotas; what is refused. */
#include "tests/region/shared_region.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "region/pool.h"
#include "region/slot_life.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

static void check_same(const struct nupa_region_info *a, const struct nupa_region_info *b)
{
	CHECK_EQ(a->id, b->id);
	CHECK_EQ(a->bytes, b->bytes);
	CHECK(strcmp(a->tag, b->tag) == 0);
	CHECK(a->host == b->host && a->pid == b->pid && a->slot == b->slot);
	CHECK(memcmp(a->share, b->share, sizeof(a->share)) == 0);
	CHECK(memcmp(a->pieces, b->pieces, sizeof(a->pieces)) == 0);
	CHECK(a->ways == b->ways && a->granularity == b->granularity);
	CHECK(a->coherence == b->coherence && a->published == b->published);
	CHECK(a->state == b->state && a->mapped == b->mapped && a->orphan == b->orphan);
}

TEST(made_found_and_ended)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint64_t before = region_backed_bytes(fabric);
	struct nupa_region_info made, found;
	void *memory;

	/* A fabric without regions has no table, not even an empty one. */
	CHECK_EQ(nupa_pool_alloc(fabric, 0, EXTENT, &memory), 0);
	CHECK_EQ(nupa_pool_free(fabric, 0, memory, EXTENT), 0);
	CHECK_EQ(nupa_fabric_reap(fabric), 0);
	CHECK_EQ(nupa_region_limit(fabric), 0);
	CHECK_EQ(nupa_region_find(fabric, 1 << 16, &found), -ESTALE);
	CHECK_EQ(nupa_region_get(fabric, 0, &found), -ENOENT);
	CHECK_EQ(region_backed_bytes(fabric), before);
	end_close(end_open(fabric, &end_defaults));
	CHECK(!fabric->regions && !fabric->sb->regions_backed);

	made = region_made(fabric, EXTENT + 1, BIT(1) | BIT(0));
	CHECK_EQ(made.state, NUPA_REGION_LIVE);
	CHECK_EQ(made.share[0], BIT(1));
	CHECK_EQ(made.ways, 1);
	CHECK_EQ(made.pid, getpid());
	CHECK_EQ(nupa_region_find(fabric, made.id, &found), 0);
	check_same(&made, &found);
	CHECK_EQ(nupa_region_get(fabric, (uint32_t)made.id & 0xffff, &found), 0);
	check_same(&made, &found);
	CHECK_EQ(region_extents(fabric), 2);
	CHECK(nupa_fabric_pool(fabric)[made.pieces[0]] == 0);
	memset(nupa_fabric_pool(fabric) + made.pieces[0], 1, made.bytes);
	CHECK_EQ(region_backed_bytes(fabric),
		 before + 2 * EXTENT + nupa_regions_bytes(&fabric->geometry));

	CHECK_EQ(nupa_region_free(fabric, made.id, false), 0);
	CHECK_EQ(nupa_region_free(fabric, made.id, true), -ESTALE);
	CHECK_EQ(nupa_region_find(fabric, made.id, &found), -ESTALE);
	CHECK_EQ(region_extents(fabric), 0);
	found = region_made(fabric, 2 * EXTENT, 0);
	CHECK(found.id != made.id && (found.id & 0xffff) == (made.id & 0xffff));
	CHECK(nupa_fabric_pool(fabric)[found.pieces[0]] == 0);
	nupa_fabric_put(fabric);
}

TEST(impossible_regions_are_refused)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint32_t self = (uint32_t)getpid();
	const struct nupa_region_info good = region_wish(EXTENT, 0, self);
	struct nupa_region_info wish, made = { .id = 0 };
	const struct {
		int rc;
		struct nupa_region_info wish;
	} bad[] = {
		{ -EINVAL, { .bytes = 0, .pid = self } },
		{ -EINVAL, { .bytes = 1, .pid = self, .host = 2 } },
		{ -EINVAL, { .bytes = 1, .pid = self, .share = { 4 } } },
		{ -EINVAL, { .bytes = 1, .pid = self, .share = { 0, 0, 0, 1 } } },
		{ -EINVAL, { .bytes = 1, .pid = self, .coherence = 2 } },
		{ -EINVAL, { .bytes = 8192, .pid = self, .ways = 2, .granularity = 4096 } },
		{ -EPERM, { .bytes = 1, .pid = self + 1 } },
		{ -ENOMEM, { .bytes = (8 << 20) + 1, .pid = self } },
		{ -ENOMEM, { .bytes = UINT64_MAX, .pid = self } },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(nupa_region_alloc(fabric, 0, &bad[i].wish, &made), bad[i].rc);
	wish = good;
	memset(wish.tag, 'x', sizeof(wish.tag));
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), -EINVAL);
	CHECK_EQ(nupa_region_alloc(fabric, 1, &good, &made), -EPERM);
	CHECK_EQ(nupa_region_alloc(fabric, 8, &good, &made), -EINVAL);
	CHECK_EQ(region_extents(fabric), 0);
	CHECK_EQ(region_count(fabric), 0);
	/* The whole pool can be had, and then no more. */
	wish = good;
	wish.bytes = 8 << 20;
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), 0);
	CHECK_EQ(nupa_region_alloc(fabric, 0, &good, &wish), -ENOMEM);
	CHECK_EQ(region_count(fabric), 1);
	nupa_fabric_put(fabric);
}

TEST(a_quota_is_kept_to_the_extent)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_region_info wish = region_wish(3 * EXTENT + 1, BIT(1), 0), made, more;
	struct nupa_quota quota;

	CHECK_EQ(nupa_region_quota(fabric, 0, &quota), 0);
	CHECK(quota.limit_bytes == UINT64_MAX && quota.used_bytes == 0);
	CHECK_EQ(nupa_region_set_quota(fabric, 2, 1), -EINVAL);
	CHECK_EQ(nupa_region_quota(fabric, 2, &quota), -EINVAL);
	CHECK_EQ(nupa_region_set_quota(fabric, 0, 4 * EXTENT - 1), 0);
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), -EDQUOT);
	CHECK_EQ(nupa_region_set_quota(fabric, 0, 4 * EXTENT), 0);
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), 0);
	CHECK_EQ(nupa_region_quota(fabric, 0, &quota), 0);
	CHECK(quota.limit_bytes == 4 * EXTENT && quota.used_bytes == 4 * EXTENT);
	wish.bytes = 1;
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &more), -EDQUOT);
	CHECK_EQ(region_extents(fabric), 4);
	/* Another host's is its own. */
	wish.host = 1;
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &more), 0);
	/* A lower one takes nothing away. */
	CHECK_EQ(nupa_region_set_quota(fabric, 0, 0), 0);
	CHECK_EQ(nupa_region_find(fabric, made.id, &made), 0);
	CHECK_EQ(nupa_region_free(fabric, made.id, false), 0);
	wish.host = 0;
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &more), -EDQUOT);
	CHECK_EQ(nupa_region_set_quota(fabric, 0, UINT64_MAX), 0);
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &more), 0);
	nupa_fabric_put(fabric);
}

TEST(a_window_is_the_sharers_and_keeps_the_region)
{
	struct nupa_fabric *fabric = test_fabric();
	const struct nupa_region_info made = region_made(fabric, EXTENT, 0);
	const uint64_t both[4] = { BIT(1) }, none[4] = { 0 }, no_host[4] = { BIT(2) };
	struct nupa_region_info found;
	uint32_t own, other;

	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 2, &found, &own), -EINVAL);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id + 1, 0, &found, &own), -ESTALE);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &own), -EACCES);
	CHECK_EQ(region_windows(fabric), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &own), 0);
	CHECK_EQ(nupa_region_share(fabric, made.id, no_host), -EINVAL);
	CHECK_EQ(nupa_region_share(fabric, made.id, both), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &other), 0);
	CHECK_EQ(nupa_region_find(fabric, made.id, &found), 0);
	CHECK_EQ(found.mapped, 2);
	CHECK_EQ(nupa_region_share(fabric, made.id, none), -EBUSY);
	CHECK_EQ(nupa_region_free(fabric, made.id, false), -EBUSY);
	CHECK_EQ(nupa_region_map_end(fabric, own), 0);
	CHECK_EQ(nupa_region_map_end(fabric, own), -EINVAL);
	CHECK_EQ(nupa_region_map_end(fabric, UINT32_MAX), -EINVAL);
	/* The place is given again, under another name. */
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &found.mapped), 0);
	CHECK(found.mapped != own);
	CHECK_EQ(nupa_region_map_end(fabric, found.mapped), 0);
	CHECK_EQ(nupa_region_map_end(fabric, other), 0);
	CHECK_EQ(nupa_region_share(fabric, made.id, none), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &other), -EACCES);
	CHECK_EQ(nupa_region_free(fabric, made.id, false), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &own), -ESTALE);
	CHECK_EQ(region_windows(fabric), 0);
	nupa_fabric_put(fabric);
}

TEST(published_memory_is_the_publishers_and_stays_while_it_is_published)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint64_t before = region_backed_bytes(fabric);
	struct nupa_region_info wish = region_wish(4 * EXTENT, BIT(1), 0), made, found;
	uint32_t window;
	uint64_t at;
	void *memory;

	CHECK_EQ(nupa_pool_reserve(fabric, 0, 16 * EXTENT, &memory), 0);
	CHECK_EQ(region_backed_bytes(fabric), before);
	at = nupa_pool_offset(fabric, memory);
	CHECK_EQ(nupa_pool_offset(fabric, &wish), UINT64_MAX);
	wish.ways = 2;
	wish.granularity = 256;
	wish.pieces[0] = at + 8 * EXTENT;
	wish.pieces[1] = at + 100 * EXTENT;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), -EPERM);
	wish.pieces[1] = (8 << 20) - 2 * EXTENT + 1;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), -EINVAL);
	wish.pieces[1] = at;
	wish.granularity = 255;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), -EINVAL);
	wish.granularity = 32;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), -EINVAL);
	wish.granularity = 1 << 14;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), -EINVAL);
	wish.granularity = 256;
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), 0);
	CHECK(made.published && made.pid == (uint32_t)getpid() && made.pieces[1] == at);
	CHECK_EQ(nupa_pool_free(fabric, 0, memory, 16 * EXTENT), -EBUSY);
	/* A window has memory: of each piece its half, of what is around nothing. */
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &window), 0);
	CHECK_EQ(region_backed_bytes(fabric),
		 before + 4 * EXTENT + nupa_regions_bytes(&fabric->geometry));
	CHECK_EQ(nupa_region_back(fabric, at + 15 * EXTENT, EXTENT + 1), -EINVAL);
	CHECK_EQ(nupa_region_back(fabric, UINT64_MAX, 2), -EINVAL);
	CHECK_EQ(nupa_region_back(fabric, at, 0), -EINVAL);
	CHECK_EQ(nupa_region_back(fabric, at, 16 * EXTENT), 0);
	CHECK_EQ(nupa_region_map_end(fabric, window), 0);
	CHECK_EQ(nupa_region_free(fabric, made.id, false), 0);
	CHECK_EQ(region_extents(fabric), 16);
	CHECK_EQ(nupa_pool_free(fabric, 0, memory, 16 * EXTENT), 0);
	nupa_fabric_put(fabric);
}

TEST(both_tables_have_an_end)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_region_info wish = region_wish(64, 0, 0), made, found;
	uint32_t window = 0;
	void *memory;

	CHECK_EQ(nupa_pool_alloc(fabric, 0, EXTENT, &memory), 0);
	wish.pieces[0] = nupa_pool_offset(fabric, memory);
	for (uint32_t i = 0; i < NUPA_REGIONS_MAX; i++)
		CHECK_EQ(nupa_region_publish(fabric, &wish, &made), 0);
	CHECK_EQ(nupa_region_publish(fabric, &wish, &found), -ENFILE);
	wish.pid = (uint32_t)getpid();
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &found), -ENFILE);
	for (uint32_t i = 0; i < NUPA_REGION_MAPPINGS_MAX; i++)
		CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &window), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &found.mapped), -ENFILE);
	CHECK_EQ(nupa_region_map_end(fabric, window), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &window), 0);
	nupa_fabric_put(fabric);
}

struct waiter {
	struct nupa_fabric *fabric;
	uint64_t id;
	uint32_t window;
	bool let_go;
};

/* The owner of a window sleeps on the epoch, then takes the window away. */
static void *mind_the_window(void *argument)
{
	struct waiter *waiter = argument;
	const uint32_t *epoch = nupa_region_epoch(waiter->fabric);
	struct nupa_region_info found;

	do {
		CHECK_EQ(nupa_region_find(waiter->fabric, waiter->id, &found), 0);
		while (found.state == NUPA_REGION_LIVE && !nupa_load_seq(epoch))
			sched_yield();
	} while (found.state == NUPA_REGION_LIVE);
	CHECK_EQ(found.state, NUPA_REGION_REVOKED);
	CHECK_EQ(nupa_region_map_begin(waiter->fabric, waiter->id, 0, &found, &found.mapped),
		 -ESTALE);
	CHECK_EQ(nupa_region_free(waiter->fabric, waiter->id, false), -EBUSY);
	CHECK_EQ(region_extents(waiter->fabric), 1);
	nupa_store_release(&waiter->let_go, true);
	CHECK_EQ(nupa_region_map_end(waiter->fabric, waiter->window), 0);
	return NULL;
}

TEST(revocation_waits_until_the_last_window_is_gone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_region_info made = region_made(fabric, EXTENT, 0), found;
	struct waiter waiter = { .fabric = fabric, .id = made.id };
	pthread_t thread;

	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &waiter.window), 0);
	CHECK_EQ(pthread_create(&thread, NULL, mind_the_window, &waiter), 0);
	CHECK_EQ(nupa_region_free(fabric, made.id, true), 0);
	CHECK(nupa_load_acquire(&waiter.let_go));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(nupa_region_find(fabric, made.id, &found), -ESTALE);
	CHECK_EQ(region_extents(fabric), 0);
	nupa_fabric_put(fabric);
}

static struct nupa_fabric *machines(uint32_t flags)
{
	const struct nupa_config config = {
		.slots = 5,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 64,
		.mr_entries = 64,
		.extent_bytes = EXTENT,
		.flags = NUPA_SEGMENT_MACHINES | flags,
		.segment_bytes = 32 << 20,
	};

	return test_fabric_of(&config);
}

TEST(a_process_needs_an_attachment_where_several_kernels_share)
{
	struct nupa_fabric *fabric = machines(0);
	const uint32_t self = (uint32_t)getpid();
	struct nupa_region_info wish = region_wish(EXTENT, BIT(1), self), made, found;
	uint32_t slot, window;

	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), -EOPNOTSUPP);
	wish.pid = 0;
	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &window), -EOPNOTSUPP);
	CHECK_EQ(nupa_fabric_claim_slot(fabric, 0, &slot), 0);
	CHECK_EQ(nupa_region_slot(fabric, 0), 0);
	fabric->slots[slot].claim = NUPA_CLAIM(nupa_fabric_owner(fabric), 1, NUPA_SLOT_LIVE);
	CHECK_EQ(nupa_region_slot(fabric, 0), slot);
	CHECK_EQ(nupa_region_slot(fabric, 1), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 0, &found, &window), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, made.id, 1, &found, &found.mapped), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_alloc(fabric, slot, &wish, &found), 0);
	CHECK_EQ(nupa_fabric_reap(fabric), 0);
	CHECK_EQ(region_count(fabric), 2);
	CHECK_EQ(region_windows(fabric), 1);
	/* They go with the attachment; what is shared stays. */
	CHECK_EQ(nupa_fabric_free_slot(fabric, slot), 0);
	CHECK_EQ(region_windows(fabric), 0);
	CHECK_EQ(nupa_region_find(fabric, found.id, &found), 0);
	CHECK_EQ(found.orphan, 1);
	CHECK_EQ(nupa_region_find(fabric, made.id, &made), 0);
	CHECK_EQ(made.orphan, 0);
	nupa_fabric_put(fabric);
}

TEST(a_kernel_that_has_ended_leaves_what_others_share)
{
	struct nupa_fabric *fabric = machines(0);
	struct nupa_region_info wish = region_wish(EXTENT, 0, (uint32_t)getpid());
	struct nupa_region_info exclusive, shared, found;
	uint32_t slot, window;

	CHECK_EQ(nupa_fabric_claim_slot(fabric, 0, &slot), 0);
	fabric->slots[slot].claim = NUPA_CLAIM(nupa_fabric_owner(fabric), 1, NUPA_SLOT_LIVE);
	CHECK_EQ(nupa_region_alloc(fabric, slot, &wish, &exclusive), 0);
	wish.share[0] = BIT(1);
	CHECK_EQ(nupa_region_alloc(fabric, slot, &wish, &shared), 0);
	CHECK_EQ(nupa_region_map_begin(fabric, shared.id, 0, &found, &window), 0);
	/* As if all that had been done by another one. */
	fabric->slots[slot].claim = NUPA_CLAIM(NUPA_OWNER(2, 4711), 1, NUPA_SLOT_LIVE);
	CHECK_EQ(nupa_region_find(fabric, shared.id, &found), 0);
	CHECK_EQ(found.mapped, 1);
	CHECK_EQ(nupa_fabric_evict(fabric, 0), 1);
	CHECK_EQ(nupa_region_find(fabric, exclusive.id, &found), -ESTALE);
	CHECK_EQ(nupa_region_find(fabric, shared.id, &found), 0);
	CHECK(found.orphan && found.mapped == 0);
	CHECK_EQ(region_extents(fabric), 1);
	nupa_fabric_put(fabric);
}

TEST(memory_that_is_not_coherent_has_no_regions)
{
	struct nupa_fabric *fabric = machines(NUPA_SEGMENT_SOFTWARE);
	const struct nupa_region_info wish = region_wish(EXTENT, 0, 0);
	struct nupa_region_info made;
	struct nupa_quota quota;
	uint32_t window;

	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_publish(fabric, &wish, &made), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_free(fabric, 1 << 16, true), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_find(fabric, 1 << 16, &made), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_map_begin(fabric, 1 << 16, 0, &made, &window), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_set_quota(fabric, 0, 0), -EOPNOTSUPP);
	CHECK_EQ(nupa_region_quota(fabric, 0, &quota), -EOPNOTSUPP);
	CHECK(!nupa_region_epoch(fabric) && errno == EOPNOTSUPP);
	CHECK_EQ(nupa_region_limit(fabric), 0);
	CHECK_EQ(nupa_fabric_reap(fabric), 0);
	nupa_fabric_put(fabric);
}
