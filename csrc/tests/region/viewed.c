/* SPDX-License-Identifier: BSD-3-Clause
 * Windows for tests: see viewed.h. */
#include "tests/region/viewed.h"

#include "base/atomics.h"

#include <unistd.h>

struct nupa_fabric *viewed_fabric(void)
{
	static const struct nupa_config config = {
		.slots = 5,
		.ring_lines = 16,
		.dma_bytes = 4096,
		.qp_entries = 64,
		.mr_entries = 64,
		.extent_bytes = PAGE,
		.pool_bytes = REGION_BYTES,
	};

	return test_fabric_of(&config);
}

uint64_t viewed_region(struct nupa_fabric *fabric, uint64_t bytes, uint32_t coherence)
{
	const struct nupa_region_info wish = {
		.tag = "test",
		.bytes = bytes,
		.pid = (uint32_t)getpid(),
		.share = { 2 },
		.coherence = coherence,
	};
	struct nupa_region_info made;

	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), 0);
	return made.id;
}

struct nupa_view *viewed_map(struct nupa_fabric *fabric, uint64_t region, uint32_t host)
{
	struct nupa_view *view = NULL;
	char why[512];

	CHECK_EQ(nupa_view_of_region(fabric, region, host, &view, why, sizeof(why)), 0);
	return view;
}

void viewed_fill(const struct nupa_view *view, uint64_t value)
{
	for (uint64_t i = 0; i < nupa_view_bytes(view) / sizeof(uint64_t); i++)
		nupa_store_relaxed(&words(view)[i], value);
}

void *load_until_ones(void *arg)
{
	struct under_way *way = arg;

	for (uint64_t i = 0;; i = (i + 1) % way->words) {
		const uint64_t found = nupa_load_relaxed(&words(way->view)[i]);

		CHECK(found == OURS || found == ONES);
		if (found == ONES)
			return NULL;
		nupa_store_release(&way->started, 1);
	}
}
