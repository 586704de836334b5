/* SPDX-License-Identifier: BSD-3-Clause
 * Quotas under creators that meet: never passed, and used up by those who try again. */
#include "base/atomics.h"
#include "region/pool.h"
#include "region/slot_life.h"
#include "segment/control/control.h"
#include "segment/control/event.h"
#include "segment/control/quota.h"
#include "tests/support/end.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define TAKERS 4u
#define QUOTA 10u
#define ROUNDS 3000u

struct taker {
	struct nupa_fabric *fabric;
	uint32_t slot;
	uint64_t *held; /* by all: fetch_add */
	uint64_t refused;
};

static struct nupa_fabric *fabric_with(enum nupa_quota_kind kind, uint64_t quota)
{
	const struct nupa_config config = {
		.slots = 8,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 64,
		.mr_entries = 64,
		.extent_bytes = 4096,
		.pool_bytes = 64 * 4096,
	};
	struct nupa_fabric *fabric = test_fabric_of(&config);
	struct nupa_tenant wish = { .name = "one" };
	char why[256];

	wish.quota[kind] = quota;
	CHECK_EQ(nupa_tenant_add(fabric, &wish, why, sizeof(why)), 1);
	CHECK_EQ(nupa_tenant_assign(fabric, 0, 1, why, sizeof(why)), 0);
	CHECK_EQ(nupa_tenant_assign(fabric, 1, 1, why, sizeof(why)), 0);
	return fabric;
}

/* Those that were let in never hold more than the quota. */
static void *take_and_give(void *argument)
{
	struct taker *taker = argument;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		const uint64_t n = 1 + i % 4;

		if (nupa_quota_take(taker->fabric, taker->slot, NUPA_QUOTA_QPS, n)) {
			taker->refused++;
			continue;
		}
		CHECK(nupa_fetch_add_seq(taker->held, n) + n <= QUOTA);
		nupa_fetch_add_seq(taker->held, -n);
		nupa_quota_give(taker->fabric, taker->slot, NUPA_QUOTA_QPS, n);
	}
	return NULL;
}

static uint32_t attach(struct nupa_fabric *fabric, uint32_t host)
{
	uint32_t slot;

	CHECK_EQ(nupa_fabric_claim_slot(fabric, host, &slot), 0);
	nupa_store_release(&fabric->slots[slot].claim,
			   NUPA_CLAIM(nupa_fabric_owner(fabric),
				      NUPA_CLAIM_EPOCH(fabric->slots[slot].claim), NUPA_SLOT_LIVE));
	return slot;
}

static void start_takers(struct nupa_fabric *fabric, struct taker *takers, uint64_t *held,
			 void *(*run)(void *))
{
	pthread_t threads[TAKERS];

	for (uint32_t i = 0; i < TAKERS; i++) {
		takers[i] = (struct taker){ .fabric = fabric, .held = held };
		takers[i].slot = attach(fabric, i % 2);
	}
	for (uint32_t i = 0; i < TAKERS; i++)
		CHECK(pthread_create(&threads[i], NULL, run, &takers[i]) == 0);
	for (uint32_t i = 0; i < TAKERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

TEST(creators_that_meet_never_pass_a_quota)
{
	struct nupa_fabric *fabric = fabric_with(NUPA_QUOTA_QPS, QUOTA);
	uint64_t used[NUPA_QUOTA_KINDS], held = 0;
	struct taker takers[TAKERS];

	start_takers(fabric, takers, &held, take_and_give);
	CHECK_EQ(held, 0);
	CHECK_EQ(nupa_tenant_used(fabric, 1, used), 0);
	CHECK_EQ(used[NUPA_QUOTA_QPS], 0);
	/* All of it can be had, and not one more. */
	CHECK_EQ(nupa_quota_take(fabric, takers[0].slot, NUPA_QUOTA_QPS, QUOTA - 1), 0);
	CHECK_EQ(nupa_quota_take(fabric, takers[1].slot, NUPA_QUOTA_QPS, 2), -EDQUOT);
	CHECK_EQ(nupa_quota_take(fabric, takers[1].slot, NUPA_QUOTA_QPS, 1), 0);
	CHECK_EQ(nupa_quota_take(fabric, takers[0].slot, NUPA_QUOTA_QPS, 1), -EDQUOT);
	CHECK_EQ(nupa_quota_take(fabric, takers[0].slot, NUPA_QUOTA_QPS, UINT64_MAX), -EDQUOT);
	CHECK_EQ(nupa_tenant_used(fabric, 1, used), 0);
	CHECK_EQ(used[NUPA_QUOTA_QPS], QUOTA);
	nupa_fabric_put(fabric);
}

static void *take_one(void *argument)
{
	struct taker *taker = argument;

	if (nupa_quota_take(taker->fabric, taker->slot, NUPA_QUOTA_MRS, 1))
		taker->refused++;
	return NULL;
}

TEST(of_those_who_meet_for_the_last_one_somebody_gets_it)
{
	for (int round = 0; round < 200; round++) {
		struct nupa_fabric *fabric = fabric_with(NUPA_QUOTA_MRS, 1);
		struct taker takers[TAKERS];
		uint64_t held = 0, refused = 0;

		start_takers(fabric, takers, &held, take_one);
		for (uint32_t i = 0; i < TAKERS; i++)
			refused += takers[i].refused;
		CHECK_EQ(refused, TAKERS - 1);
		nupa_fabric_put(fabric);
	}
}

static void *allocate(void *argument)
{
	struct taker *taker = argument;
	void *at;

	for (uint32_t i = 0; i < ROUNDS / 10; i++) {
		const uint64_t bytes = (1 + i % 4) * 4096;
		const int rc = nupa_pool_alloc(taker->fabric, taker->slot, bytes, &at);

		CHECK(rc == 0 || rc == -EDQUOT);
		if (rc) {
			taker->refused++;
			continue;
		}
		CHECK(nupa_fetch_add_seq(taker->held, bytes) + bytes <= QUOTA * 4096);
		nupa_fetch_add_seq(taker->held, -bytes);
		CHECK_EQ(nupa_pool_free(taker->fabric, taker->slot, at, bytes), 0);
	}
	return NULL;
}

TEST(the_pool_of_a_tenant_is_never_passed_either)
{
	struct nupa_fabric *fabric = fabric_with(NUPA_QUOTA_POOL_BYTES, QUOTA * 4096);
	struct taker takers[TAKERS];
	uint64_t held = 0;
	void *at;

	start_takers(fabric, takers, &held, allocate);
	CHECK_EQ(nupa_pool_alloc(fabric, takers[0].slot, QUOTA * 4096, &at), 0);
	CHECK_EQ(nupa_pool_free(fabric, takers[0].slot, at, QUOTA * 4096), 0);
	CHECK_EQ(nupa_pool_alloc(fabric, takers[0].slot, QUOTA * 4096 + 1, &at), -EDQUOT);
	/* A process without an attachment is on no host. */
	CHECK_EQ(nupa_pool_alloc(fabric, 0, (QUOTA + 1) * 4096, &at), 0);
	nupa_fabric_put(fabric);
}

TEST(a_refusal_is_an_event_once_a_second)
{
	struct nupa_fabric *fabric = fabric_with(NUPA_QUOTA_QPS, 1);
	const uint64_t before = nupa_event_last(fabric);
	struct nupa_control_event event;
	const uint32_t slot = attach(fabric, 0);

	for (int i = 0; i < 3; i++)
		CHECK_EQ(nupa_quota_take(fabric, slot, NUPA_QUOTA_QPS, 2), -EDQUOT);
	CHECK_EQ(nupa_event_get(fabric, before + 1, &event), 0);
	CHECK(strcmp(event.kind, "quota.refused") == 0 && strcmp(event.subject, "one") == 0);
	CHECK(nupa_event_last(fabric) <= before + 2); /* a busy machine may need a second */
	nupa_fabric_put(fabric);
}
