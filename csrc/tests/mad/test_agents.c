/* SPDX-License-Identifier: BSD-3-Clause
 * The agents of nodes: directed routes, what they answer, what a subnet manager sets. */
#include "tests/mad/subnet_end.h"

#include "base/atomics.h"
#include "region/region.h"
#include "segment/control/pkey.h"
#include "segment/gid.h"

#include <string.h>

#define NODE_INFO 0x11
#define SWITCH_INFO 0x12
#define PORT_INFO 0x15
#define PKEY_TABLE 0x16
#define LINEAR_TABLE 0x19
#define PORT_COUNTERS 0x12

TEST(a_directed_route_ends_at_the_node_and_records_the_way_back)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES];

	subnet_ask(mad, NUPA_MAD_SUBN_DIRECTED, NUPA_MAD_GET, NODE_INFO, 0);
	subnet_direct(mad, "131");
	CHECK_EQ(subnet_send(&subnet, 0, NUPA_LID_PERMISSIVE, mad), NUPA_MAD_OK);
	CHECK_EQ(mad[NUPA_MAD_AT_DATA + 2], 1);
	CHECK_EQ(nupa_be64_get(mad + NUPA_MAD_AT_DATA + 20),
		 nupa_node_guid(subnet.fabric, (struct nupa_node){ .index = 2 }));
	CHECK(!memcmp(mad + NUPA_MAD_AT_RETURN_PATH + 1, (uint8_t[]){ 1, 3, 1 }, 3));
	CHECK_EQ(mad[NUPA_MAD_AT_STATUS] >> 7, 1); /* it returned */
	CHECK_EQ(mad[NUPA_MAD_AT_HOP_POINTER], 0);
	subnet_destroy(&subnet);
}

TEST(paths_that_no_packet_can_take_are_lost)
{
	static const char *const paths[] = { "2", "0", "19", "111", "1311" };
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES];

	for (uint32_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		subnet_ask(mad, NUPA_MAD_SUBN_DIRECTED, NUPA_MAD_GET, NODE_INFO, 0);
		subnet_direct(mad, paths[i]);
		CHECK_EQ(subnet_send(&subnet, 0, NUPA_LID_PERMISSIVE, mad), -1);
	}
	subnet_ask(mad, NUPA_MAD_SUBN_DIRECTED, NUPA_MAD_GET, NODE_INFO, 0);
	subnet_direct(mad, "");
	mad[NUPA_MAD_AT_HOP_COUNT] = NUPA_MAD_HOPS_MAX + 1;
	CHECK_EQ(subnet_send(&subnet, 0, NUPA_LID_PERMISSIVE, mad), -1);
	CHECK_EQ(nupa_fabric_set_port(subnet.fabric, 9, NUPA_PORT_DOWN), 0);
	subnet_ask(mad, NUPA_MAD_SUBN_DIRECTED, NUPA_MAD_GET, NODE_INFO, 0);
	subnet_direct(mad, "13");
	CHECK_EQ(subnet_send(&subnet, 0, NUPA_LID_PERMISSIVE, mad), -1);
	for (uint16_t lid = 3; lid <= SUBNET_LIDS + 1; lid++) {
		subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_GET, NODE_INFO, 0);
		CHECK_EQ(subnet_send(&subnet, 0, lid, mad), lid == 5 ? NUPA_MAD_OK : -1);
	}
	subnet_destroy(&subnet);
}

TEST(each_lid_has_a_node_with_a_guid_of_its_own)
{
	struct nupa_subnet subnet = subnet_create();
	uint64_t guids[SUBNET_LIDS + 1] = { 0 };
	uint8_t mad[NUPA_MAD_BYTES], *info;

	for (uint16_t lid = 1; lid <= SUBNET_LIDS; lid++) {
		info = subnet_get(&subnet, lid, NODE_INFO, 0, mad);
		CHECK_EQ(info[2], lid > SUBNET_HOSTS ? 2 : 1);
		CHECK_EQ(info[3], lid > SUBNET_HOSTS ? 3 : 1);
		guids[lid] = nupa_be64_get(info + 12);
		for (uint16_t other = 1; other < lid; other++)
			CHECK(guids[other] != guids[lid]);
		info = subnet_get(&subnet, lid, PORT_INFO, 0, mad);
		CHECK_EQ(nupa_be16_get(info + 16), lid);
	}
	subnet_destroy(&subnet);
}

static int set_pkeys(struct nupa_subnet *subnet, uint16_t lid, uint32_t block, uint16_t first)
{
	uint8_t mad[NUPA_MAD_BYTES];

	subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_SET, PKEY_TABLE, block);
	for (uint32_t i = 0; i < 32; i++)
		nupa_be16_put(mad + NUPA_MAD_AT_DATA + 2 * i, first + i);
	return subnet_send(subnet, 0, lid, mad);
}

TEST(p_keys_that_are_set_are_those_of_the_engine)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES];

	CHECK_EQ(nupa_be16_get(subnet_get(&subnet, 3, PKEY_TABLE, 0, mad)), NUPA_PKEY_DEFAULT);
	CHECK_EQ(set_pkeys(&subnet, 3, 3, 0x8100), NUPA_MAD_OK);
	CHECK_EQ(nupa_pkey_at(subnet.fabric, 2, 96), 0x8100);
	CHECK_EQ(nupa_pkey_at(subnet.fabric, 2, 127), 0x811f);
	CHECK_EQ(nupa_pkey_at(subnet.fabric, 1, 96), 0);
	CHECK_EQ(nupa_be16_get(subnet_get(&subnet, 3, PKEY_TABLE, 3, mad) + 62), 0x811f);
	CHECK_EQ(set_pkeys(&subnet, 3, 4, 0x8100), NUPA_MAD_INVALID);
	subnet_destroy(&subnet);
}

static int set_port_info(struct nupa_subnet *subnet, uint16_t lid, uint32_t number, uint8_t state,
			 uint8_t physical, uint16_t new_lid)
{
	uint8_t mad[NUPA_MAD_BYTES], *data = subnet_get(subnet, lid, PORT_INFO, number, mad);

	mad[NUPA_MAD_AT_METHOD] = NUPA_MAD_SET;
	nupa_be16_put(mad + NUPA_MAD_AT_STATUS, 0);
	nupa_bits_put(data, 32 * 8 + 4, 4, state);
	nupa_bits_put(data, 33 * 8, 4, physical);
	if (new_lid)
		nupa_be16_put(data + 16, new_lid);
	nupa_be16_put(data + 18, 4); /* MasterSMLID */
	return subnet_send(subnet, 0, lid, mad);
}

TEST(ports_go_down_and_up_and_their_switch_says_that_they_changed)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES], *info;

	CHECK(subnet_get(&subnet, 6, SWITCH_INFO, 0, mad)[11] & 4);
	mad[NUPA_MAD_AT_METHOD] = NUPA_MAD_SET; /* clears it */
	CHECK_EQ(subnet_send(&subnet, 0, 6, mad), NUPA_MAD_OK);
	CHECK(!(subnet_get(&subnet, 6, SWITCH_INFO, 0, mad)[11] & 4));
	CHECK_EQ(set_port_info(&subnet, 6, 2, 0, 3, 0), NUPA_MAD_OK);
	CHECK_EQ(nupa_load_relaxed(&subnet.fabric->ports[8].state), NUPA_PORT_DOWN);
	info = subnet_get(&subnet, 6, PORT_INFO, 2, mad);
	CHECK_EQ(info[32] & 15, 1);
	CHECK_EQ(info[33] >> 4, 3);
	CHECK(subnet_get(&subnet, 6, SWITCH_INFO, 0, mad)[11] & 4);
	CHECK_EQ(set_port_info(&subnet, 6, 2, 0, 2, 0), NUPA_MAD_OK);
	CHECK_EQ(nupa_load_relaxed(&subnet.fabric->ports[8].state), NUPA_PORT_ACTIVE);
	/* No such port, no such states. */
	subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_GET, PORT_INFO, 4);
	CHECK_EQ(subnet_send(&subnet, 0, 6, mad), NUPA_MAD_INVALID);
	CHECK_EQ(set_port_info(&subnet, 6, 2, 5, 0, 0), NUPA_MAD_INVALID);
	CHECK_EQ(set_port_info(&subnet, 6, 2, 0, 6, 0), NUPA_MAD_INVALID);
	subnet_destroy(&subnet);
}

TEST(another_lid_is_refused_and_the_managers_lid_is_kept)
{
	struct nupa_subnet subnet = subnet_create();

	CHECK_EQ(nupa_host_sm_lid(subnet.fabric, 2), 1);
	CHECK_EQ(set_port_info(&subnet, 3, 1, 0, 0, 9), NUPA_MAD_INVALID);
	CHECK_EQ(nupa_host_sm_lid(subnet.fabric, 2), 1);
	CHECK_EQ(set_port_info(&subnet, 3, 1, 0, 0, 3), NUPA_MAD_OK);
	CHECK_EQ(nupa_host_sm_lid(subnet.fabric, 2), 4);
	subnet_destroy(&subnet);
}

TEST(forwarding_tables_are_the_routes_until_they_are_set)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES], *table = subnet_get(&subnet, 5, LINEAR_TABLE, 0, mad);

	CHECK(!memcmp(table + 1, (uint8_t[]){ 1, 2, 3, 3, 0 }, 5));
	memset(table, 7, 64);
	mad[NUPA_MAD_AT_METHOD] = NUPA_MAD_SET;
	CHECK_EQ(subnet_send(&subnet, 0, 5, mad), NUPA_MAD_OK);
	CHECK_EQ(subnet_get(&subnet, 5, LINEAR_TABLE, 0, mad)[1], 7);
	CHECK_EQ(subnet_get(&subnet, 6, LINEAR_TABLE, 0, mad)[1], 3);
	subnet_destroy(&subnet);
}

TEST(unknown_attributes_methods_and_versions_have_a_status)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES];

	subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_GET, 0x7777, 0);
	CHECK_EQ(subnet_send(&subnet, 0, 2, mad), NUPA_MAD_NO_ATTRIBUTE);
	subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_GET, SWITCH_INFO, 0); /* of a host */
	CHECK_EQ(subnet_send(&subnet, 0, 2, mad), NUPA_MAD_NO_ATTRIBUTE);
	subnet_ask(mad, NUPA_MAD_SUBN_LID, NUPA_MAD_SET, NODE_INFO, 0);
	CHECK_EQ(subnet_send(&subnet, 0, 2, mad), NUPA_MAD_NO_METHOD);
	subnet_ask(mad, NUPA_MAD_PERF, NUPA_MAD_GET, PORT_COUNTERS, 0);
	mad[NUPA_MAD_AT_CLASS_VERSION] = 2;
	CHECK_EQ(subnet_send(&subnet, 0, 2, mad), NUPA_MAD_BAD_VERSION);
	/* A port beyond the last one. */
	subnet_ask(mad, NUPA_MAD_PERF, NUPA_MAD_GET, PORT_COUNTERS, 0);
	mad[NUPA_MAD_AT_DATA + 1] = 4;
	CHECK_EQ(subnet_send(&subnet, 0, 5, mad), NUPA_MAD_INVALID);
	subnet_destroy(&subnet);
}

static uint32_t downed(struct nupa_subnet *subnet, uint8_t method)
{
	uint8_t mad[NUPA_MAD_BYTES];

	subnet_ask(mad, NUPA_MAD_PERF, method, PORT_COUNTERS, 0);
	mad[NUPA_MAD_AT_DATA + 1] = 3;
	nupa_be16_put(mad + NUPA_MAD_AT_DATA + 2, 0xffff);
	CHECK_EQ(subnet_send(subnet, 1, 5, mad), NUPA_MAD_OK);
	return mad[NUPA_MAD_AT_DATA + 7];
}

TEST(counters_start_anew_for_mads_alone)
{
	struct nupa_subnet subnet = subnet_create();

	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(nupa_fabric_set_port(subnet.fabric, 6, NUPA_PORT_DOWN), 0);
		CHECK_EQ(nupa_fabric_set_port(subnet.fabric, 6, NUPA_PORT_ACTIVE), 0);
	}
	CHECK_EQ(downed(&subnet, NUPA_MAD_GET), 3);
	CHECK_EQ(downed(&subnet, NUPA_MAD_SET), 0);
	CHECK_EQ(nupa_fabric_set_port(subnet.fabric, 6, NUPA_PORT_DOWN), 0);
	CHECK_EQ(downed(&subnet, NUPA_MAD_GET), 1);
	CHECK_EQ(nupa_load_relaxed(&subnet.fabric->ports[6].link_downed), 4);
	subnet_destroy(&subnet);
}

TEST(responses_and_other_classes_are_for_programs_of_the_host)
{
	struct nupa_subnet subnet = subnet_create();
	const struct nupa_mad_target to = { .lid = 4 };
	uint8_t mad[NUPA_MAD_BYTES];
	uint32_t host = 99;

	subnet_ask(mad, NUPA_MAD_SUBN_ADM, NUPA_MAD_GET, 1, 0);
	CHECK_EQ(nupa_mad_send(&subnet, 0, &to, mad, &host), NUPA_MAD_DELIVER);
	CHECK_EQ(host, 3);
	subnet_ask(mad, NUPA_MAD_SUBN_DIRECTED, NUPA_MAD_GET, 0x20, 0); /* SMInfo */
	subnet_direct(mad, "131");
	CHECK_EQ(nupa_mad_send(&subnet, 0, &to, mad, &host), NUPA_MAD_DELIVER);
	CHECK_EQ(host, 2);
	/* The answer finds the way back. */
	mad[NUPA_MAD_AT_METHOD] = NUPA_MAD_GET_RESPONSE;
	CHECK_EQ(nupa_mad_send(&subnet, 2, &to, mad, &host), NUPA_MAD_DELIVER);
	CHECK_EQ(host, 0);
	subnet_destroy(&subnet);
}

TEST(an_ethernet_port_has_no_subnet_management)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t mad[NUPA_MAD_BYTES];

	subnet.fabric->hosts[0].link_layer = NUPA_LINK_ETHERNET;
	subnet_ask(mad, NUPA_MAD_SUBN_DIRECTED, NUPA_MAD_GET, NODE_INFO, 0);
	subnet_direct(mad, "");
	CHECK_EQ(subnet_send(&subnet, 0, NUPA_LID_PERMISSIVE, mad), -1);
	subnet_destroy(&subnet);
}
