/* SPDX-License-Identifier: BSD-3-Clause
 * Groups: requests of two hosts, at the same time, over links that go down, and refused ones. */
#include "base/atomics.h"
#include "region/group/group.h"
#include "region/region.h"
#include "tests/support/runner.h"
#include "tests/region/viewed.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define ROUNDS 2000u
#define ELEMENTS 16u

static char why[512];

struct pair {
	struct nupa_fabric *fabric;
	struct nupa_view *views[2][2]; /* of each host, on the memory of each */
	struct nupa_group *groups[2];  /* as each host sees it */
};

static void open_pair(struct pair *pair)
{
	static const uint32_t hosts[2] = { 0, 1 };
	uint64_t regions[2];

	pair->fabric = viewed_fabric();
	for (uint32_t i = 0; i < 2; i++)
		regions[i] = viewed_region(pair->fabric, PAGE, NUPA_COHERENT_HARDWARE);
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t j = 0; j < 2; j++)
			pair->views[i][j] = viewed_map(pair->fabric, regions[j], i);
		CHECK_EQ(nupa_group_new(pair->fabric, i, hosts, pair->views[i], 2, &pair->groups[i],
					why, sizeof(why)),
			 0);
	}
}

static void close_pair(struct pair *pair)
{
	for (uint32_t i = 0; i < 2; i++)
		nupa_group_free(pair->groups[i]);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t j = 0; j < 2; j++)
			nupa_view_free(pair->views[i][j]);
	nupa_fabric_put(pair->fabric);
}

static void *reduce_many(void *arg)
{
	static const uint16_t halves[ELEMENTS] = { 0x3c00, 0x3c00, 0x3c00, 0x3c00 }; /* 1.0 */
	static const uint64_t words[ELEMENTS] = { 1, UINT64_C(1) << 32, 3, 4 };
	struct nupa_group *group = arg;
	uint32_t culprit;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		CHECK_EQ(nupa_group_reduce(group, 0, words, sizeof(words), NUPA_REDUCE_U64,
					   NUPA_REDUCE_ADD, &culprit),
			 0);
		if (i < 1000) /* sums of halves are exact up to 2048 */
			CHECK_EQ(nupa_group_reduce(group, 1024, halves, sizeof(halves),
						   NUPA_REDUCE_F16, NUPA_REDUCE_ADD, &culprit),
				 0);
	}
	return NULL;
}

TEST(no_reduction_of_two_hosts_into_a_member_is_lost)
{
	struct pair pair;
	pthread_t threads[2];
	uint64_t left, packets;

	open_pair(&pair);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, reduce_many, pair.groups[i]), 0);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; i < 2; i++) {
		const uint64_t *found = words(pair.views[0][i]);
		uint16_t half;

		CHECK_EQ(found[0], 2 * ROUNDS);
		CHECK_EQ(found[1], 2 * (uint64_t)ROUNDS << 32);
		CHECK_EQ(found[3], 8 * ROUNDS);
		memcpy(&half, (const uint8_t *)found + 1024, sizeof(half));
		CHECK_EQ(half, 0x67d0); /* 2000.0 */
	}
	/* Ports 0 and 1 are the hosts', and count what both gave; 2 and 3 what both got. */
	CHECK_EQ(nupa_group_port(pair.fabric, 0, &left, &packets), 0);
	CHECK_EQ(left, ROUNDS * 8 * ELEMENTS + 1000 * 2 * ELEMENTS);
	CHECK_EQ(packets, ROUNDS + 1000);
	CHECK_EQ(
	    nupa_group_port(pair.fabric, nupa_fabric_port(pair.fabric, 0)->peer, &left, &packets),
	    0);
	CHECK_EQ(left, 2 * (ROUNDS * 8 * ELEMENTS + 1000 * 2 * ELEMENTS));
	CHECK_EQ(nupa_group_port(pair.fabric, 4096, &left, &packets), -EINVAL);
	close_pair(&pair);
}

TEST(a_link_that_went_down_ends_requests_and_names_its_host)
{
	struct pair pair;
	uint32_t culprit = 9, word = 5, found = 0;

	open_pair(&pair);
	CHECK_EQ(nupa_group_store(pair.groups[0], 8, &word, sizeof(word), &culprit), 0);
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, nupa_fabric_host(pair.fabric, 1)->port,
				      NUPA_PORT_DOWN),
		 0);
	CHECK_EQ(nupa_region_await_links(pair.fabric), 0);
	CHECK_EQ(nupa_group_load_reduce(pair.groups[0], 8, &found, sizeof(found), NUPA_REDUCE_U32,
					NUPA_REDUCE_ADD, &culprit),
		 -ENETDOWN);
	CHECK_EQ(culprit, 1);
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, nupa_fabric_host(pair.fabric, 1)->port,
				      NUPA_PORT_ACTIVE),
		 0);
	CHECK_EQ(nupa_group_store(pair.groups[0], 8, &word, sizeof(word), &culprit), -ENETDOWN);
	close_pair(&pair);
}

TEST(what_is_no_group_is_refused)
{
	static const uint32_t twice[2] = { 0, 0 }, ascending[2] = { 0, 1 };
	struct pair pair;
	struct nupa_group *none;
	struct nupa_view *other[2];
	uint32_t culprit;
	uint64_t word = 0;

	open_pair(&pair);
	CHECK_EQ(nupa_group_new(pair.fabric, 0, twice, pair.views[0], 2, &none, why, sizeof(why)),
		 -EINVAL);
	CHECK(strstr(why, "ascending"));
	CHECK_EQ(nupa_group_new(pair.fabric, 0, twice, pair.views[0], 0, &none, why, sizeof(why)),
		 -EINVAL);
	CHECK_EQ(nupa_group_new(pair.fabric, 0, twice, pair.views[0], NUPA_GROUP_MEMBERS_MAX + 1,
				&none, why, sizeof(why)),
		 -EINVAL);
	CHECK_EQ(
	    nupa_group_new(pair.fabric, 1, ascending, pair.views[1], 1, &none, why, sizeof(why)),
	    -EINVAL);
	CHECK(strstr(why, "not a member"));
	other[0] = pair.views[0][0];
	other[1] = viewed_map(pair.fabric,
			      viewed_region(pair.fabric, 2 * PAGE, NUPA_COHERENT_HARDWARE), 0);
	CHECK_EQ(nupa_group_new(pair.fabric, 0, ascending, other, 2, &none, why, sizeof(why)),
		 -EINVAL);
	CHECK(strstr(why, "another size"));
	nupa_view_free(other[1]);

	CHECK_EQ(nupa_group_store(pair.groups[0], PAGE, &word, 1, &culprit), -ERANGE);
	CHECK_EQ(nupa_group_store(pair.groups[0], PAGE, &word, 0, &culprit), 0);
	CHECK_EQ(nupa_group_store(pair.groups[0], UINT64_MAX, &word, 8, &culprit), -ERANGE);
	CHECK_EQ(nupa_group_reduce(pair.groups[0], 4, &word, 8, NUPA_REDUCE_U64, NUPA_REDUCE_ADD,
				   &culprit),
		 -EINVAL);
	CHECK_EQ(nupa_group_reduce(pair.groups[0], 0, &word, 8, NUPA_REDUCE_F64, NUPA_REDUCE_XOR,
				   &culprit),
		 -EINVAL);
	CHECK_EQ(nupa_group_reduce(pair.groups[0], 0, &word, 8, NUPA_REDUCE_TYPES, NUPA_REDUCE_ADD,
				   &culprit),
		 -EINVAL);
	CHECK_EQ(nupa_group_reduce_store(pair.groups[0], 0, 8, NUPA_REDUCE_U64,
					 NUPA_REDUCE_OPERATORS, &culprit),
		 -EINVAL);
	close_pair(&pair);
}
