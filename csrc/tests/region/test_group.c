/* SPDX-License-Identifier: BSD-3-Clause
 * Groups: requests of two hosts, at the same time, over links that go down, and refused ones. */
#include "base/atomics.h"
#include "region/group/group.h"
#include "region/region.h"
#include "region/group/tree.h"
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

static void *store_many(void *arg)
{
	struct nupa_group *group = arg;
	uint64_t words[500];
	uint32_t culprit;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		for (uint32_t j = 0; j < 500; j++)
			words[j] = i * UINT64_C(0x0001000100010001);
		CHECK_EQ(nupa_group_store(group, 8, words, sizeof(words), &culprit), 0);
	}
	return NULL;
}

TEST(an_element_is_loaded_and_stored_whole)
{
	struct pair pair;
	pthread_t thread;
	uint64_t found[500] = { 0 };
	uint32_t culprit;

	open_pair(&pair);
	CHECK_EQ(pthread_create(&thread, NULL, store_many, pair.groups[0]), 0);
	while (nupa_load_relaxed(&found[499]) != 2 * ROUNDS * UINT64_C(0x0001000100010001)) {
		CHECK_EQ(nupa_group_load_reduce(pair.groups[1], 8, found, sizeof(found),
						NUPA_REDUCE_U64, NUPA_REDUCE_MAX, &culprit),
			 0);
		for (uint32_t j = 0; j < 500; j++)
			CHECK_EQ(found[j] / UINT64_C(0x0001000100010001) *
				     UINT64_C(0x0001000100010001),
				 found[j]);
		CHECK_EQ(nupa_group_load_reduce(pair.groups[1], 8, found, sizeof(found),
						NUPA_REDUCE_U64, NUPA_REDUCE_ADD, &culprit),
			 0);
	}
	pthread_join(thread, NULL);
	close_pair(&pair);
}

TEST(a_port_that_another_process_damages_is_counted_nowhere_else)
{
	struct pair pair;
	struct nupa_group *none;
	uint64_t word = 1, left, packets;
	uint32_t culprit;

	open_pair(&pair);
	for (uint32_t port = 0; port < 4; port++)
		nupa_store_relaxed(&pair.fabric->ports[port].peer, UINT32_MAX - port);
	CHECK_EQ(nupa_group_store(pair.groups[0], 0, &word, sizeof(word), &culprit), 0);
	CHECK_EQ(nupa_group_reduce_store(pair.groups[0], 0, sizeof(word), NUPA_REDUCE_U64,
					 NUPA_REDUCE_ADD, &culprit),
		 0);
	CHECK_EQ(nupa_group_port(pair.fabric, 1, &left, &packets), 0);
	CHECK_EQ(left, 2 * sizeof(word));
	CHECK_EQ(nupa_group_new(pair.fabric, 0, (const uint32_t[]){ 0, 1 }, pair.views[0], 2, &none,
				why, sizeof(why)),
		 -EUCLEAN);
	CHECK(strstr(why, "has no peer"));
	close_pair(&pair);
}

/* --- trees ------------------------------------------------------------------------- */

/* Hosts 0 and 1 at either end of so many switches in a row.  Ports: of host 0, of host 1, then two
 * of each switch: towards host 0, and towards host 1. */
static struct nupa_fabric *row_of(uint32_t switches, struct nupa_route routes[4])
{
	static const struct nupa_config config = { .slots = 5,
						   .ring_lines = 16,
						   .dma_bytes = 4096,
						   .qp_entries = 64,
						   .mr_entries = 64,
						   .extent_bytes = PAGE,
						   .pool_bytes = REGION_BYTES };
	struct nupa_host hosts[2] = { { .name = "host0", .port = 0 },
				      { .name = "host1", .port = 1 } };
	struct nupa_port ports[2 + 2 * NUPA_TREE_LEVELS_MAX];
	struct nupa_fabric *fabric = NULL;

	for (uint32_t i = 0; i < 2; i++) {
		hosts[i].link_layer = NUPA_LINK_ETHERNET;
		hosts[i].ipv4 = 0x0a000001 + i;
		hosts[i].mac[0] = 2;
		hosts[i].mac[5] = (uint8_t)(1 + i);
	}
	for (uint32_t i = 0; i < 2 + 2 * switches; i++) {
		ports[i] = (struct nupa_port){
			.peer = i == 0   ? 2
				: i == 1 ? 1 + 2 * switches
				: i % 2  ? i + 1
					 : i - 1,
			.is_switch = i > 1,
			.node = i > 1 ? i / 2 - 1 : i,
			.number = i > 1 ? 1 + i % 2 : 1,
			.width_lanes = 4,
			.speed_mtps = 32000,
			.state = NUPA_PORT_ACTIVE,
		};
		snprintf(ports[i].name, sizeof(ports[i].name), "port%u", i);
	}
	ports[2].peer = 0;
	ports[1 + 2 * switches].peer = 1;
	if (!routes[1].hops) {
		routes[1].hops = routes[2].hops = (uint16_t)(2 + 2 * switches);
		routes[1].port[1 + 2 * switches] = 1;
		for (uint32_t i = 0; i < 2 * switches; i++)
			routes[1].port[1 + i] = (uint16_t)(2 + i);
		for (uint32_t i = 0; i < routes[1].hops; i++)
			routes[2].port[i] = routes[1].port[routes[1].hops - 1u - i];
	}
	CHECK_EQ(nupa_fabric_create(NULL, "row", &config, hosts, 2, ports, 2 + 2 * switches, routes,
				    &fabric, why, sizeof(why)),
		 0);
	return fabric;
}

TEST(the_longest_row_of_switches_is_a_tree_whose_links_count_each_request)
{
	struct nupa_route routes[4] = { 0 };
	struct nupa_fabric *fabric = row_of(NUPA_TREE_LEVELS_MAX, routes);
	static const uint32_t hosts[2] = { 0, 1 };
	struct nupa_view *views[2];
	struct nupa_group *group;
	uint64_t bytes, packets;
	uint32_t culprit, found;
	uint16_t half = 0x3c00;

	for (uint32_t i = 0; i < 2; i++)
		views[i] =
		    viewed_map(fabric, viewed_region(fabric, PAGE, NUPA_COHERENT_HARDWARE), 1);
	CHECK_EQ(nupa_group_new(fabric, 1, hosts, views, 2, &group, why, sizeof(why)), 0);
	CHECK_EQ(nupa_group_store(group, 0, &half, sizeof(half), &culprit), 0);
	for (uint32_t port = 4; port < 2 * NUPA_TREE_LEVELS_MAX + 2; port += 2) { /* to host 0 */
		CHECK_EQ(nupa_group_port(fabric, port, &bytes, &packets), 0);
		CHECK_EQ(bytes, 2);
		CHECK_EQ(nupa_group_port(fabric, port - 1, &bytes, &packets), 0);
		CHECK_EQ(bytes, 0);
	}
	CHECK_EQ(nupa_group_load_reduce(group, 0, &half, sizeof(half), NUPA_REDUCE_F16,
					NUPA_REDUCE_ADD, &culprit),
		 0);
	CHECK_EQ(half, 0x4000);
	CHECK_EQ(nupa_group_port(fabric, 4, &bytes, &packets), 0);
	CHECK_EQ(bytes, 2 + 4); /* an accumulator */
	CHECK_EQ(nupa_group_port(fabric, 3, &bytes, &packets), 0);
	CHECK_EQ(bytes, 2);
	/* Trunks are part of the group. */
	CHECK_EQ(nupa_fabric_set_port(fabric, 4, NUPA_PORT_DOWN), 0);
	CHECK_EQ(nupa_group_store(group, 0, &half, sizeof(half), &culprit), -EHOSTUNREACH);
	CHECK_EQ(culprit, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, 4, NUPA_PORT_ACTIVE), 0);
	CHECK_EQ(nupa_group_load_reduce(group, 0, &found, sizeof(found), NUPA_REDUCE_U32,
					NUPA_REDUCE_ADD, &culprit),
		 -EHOSTUNREACH);
	nupa_group_free(group);
	for (uint32_t i = 0; i < 2; i++)
		nupa_view_free(views[i]);
	nupa_fabric_put(fabric);
}

TEST(routes_that_pass_no_switch_are_damaged)
{
	static const uint32_t hosts[2] = { 0, 1 };
	struct nupa_route routes[4] = {
		[1] = { .hops = 2, .port = { 0, 1 } }, [2] = { .hops = 2, .port = { 1, 0 } }
	};

	for (uint16_t hops = 2; hops <= NUPA_HOPS_MAX; hops++) {
		struct nupa_fabric *fabric;
		struct nupa_tree tree;
		const int expected = hops % 2 || hops < 4 ? -EUCLEAN : 0;

		for (uint32_t way = 1; way < 3; way++) {
			routes[way].hops = hops;
			routes[way].port[0] = (uint16_t)(way - 1);
			for (uint16_t i = 1; i + 1 < hops; i++)
				routes[way].port[i] = 3; /* the same port again and again */
			routes[way].port[hops - 1] = (uint16_t)(2 - way);
		}
		fabric = row_of(2, routes);
		CHECK_EQ(nupa_tree_make(&tree, fabric, hosts, 2, 1, why, sizeof(why)), expected);
		nupa_fabric_put(fabric);
	}
}

/* --- limits ------------------------------------------------------------------------ */

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
