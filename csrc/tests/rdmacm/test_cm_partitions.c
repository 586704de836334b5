/* SPDX-License-Identifier: BSD-3-Clause
 * rdma_cm and partitions: the P_Key of a route, routes that there are not, requests that come from
 * outside, groups. */
#include "tests/support/cm_end.h"
#include "tests/support/end.h"
#include "tests/support/pkeys.h"
#include "engine/cm/internal.h"

#include <arpa/inet.h>
#include <errno.h>

static uint16_t index_of(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(nupa_query_qp(id->qp, &attr, IBV_QP_PKEY_INDEX, &init), 0);
	return attr.pkey_index;
}

/* Each host has them in another order, so that index 0 is of different partitions. */
TEST(a_connection_uses_the_first_partition_that_both_hosts_share)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener, *client, *server;

	pkey_set(pair.fabric, 1, 0, 0x8033);
	pkey_set(pair.fabric, 1, 1, BLUE_LIMITED);
	pkey_set(pair.fabric, 1, 2, RED);
	pkey_set(pair.fabric, 0, 0, RED);
	pkey_set(pair.fabric, 0, 5, BLUE);
	listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	client = cm_id(&pair.side[1], RDMA_PS_TCP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(ntohs(client->route.addr.addr.ibaddr.pkey), BLUE_LIMITED);
	CHECK_EQ(ntohs(client->route.path_rec->pkey), BLUE_LIMITED);
	cm_connect(&pair, listener, client, &server);
	CHECK_EQ(index_of(client), 1);
	CHECK_EQ(index_of(server), 5);
	CHECK_EQ(ntohs(server->route.addr.addr.ibaddr.pkey), BLUE);
	CHECK_EQ(pkey_violations(pair.fabric, 0) + pkey_violations(pair.fabric, 1), 0);
	cm_destroy(client);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(there_is_no_route_to_a_host_of_other_partitions)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP };

	for (int i = 0; i < 2; i++) {
		struct cm_pair pair = cm_pair_open();
		struct rdma_cm_id *client = cm_id(&pair.side[1], spaces[i]);
		struct sockaddr_storage storage;

		pkey_set(pair.fabric, 0, 0, RED);
		pkey_set(pair.fabric, 1, 0, BLUE);
		CHECK_EQ(rdma_resolve_addr(client, NULL, cm_addr(&storage, "10.0.0.1", 7), 2000),
			 0);
		cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		CHECK_EQ(rdma_resolve_route(client, 2000), 0);
		cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL);
		CHECK_EQ(client->route.num_paths, 0);
		pkey_set(pair.fabric, 1, 1, RED); /* it joins: the same id may ask again */
		CHECK_EQ(rdma_resolve_route(client, 2000), 0);
		cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		CHECK_EQ(ntohs(client->route.path_rec->pkey), RED);
		cm_destroy(client);
		cm_pair_close(&pair);
	}
}

/* Its QP is made before the route is asked for, as programs do. */
TEST(a_queue_pair_without_a_route_can_be_made)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);
	struct sockaddr_storage storage;

	pkey_set(pair.fabric, 0, 0, RED);
	CHECK_EQ(rdma_resolve_addr(client, NULL, cm_addr(&storage, "10.0.0.1", 7), 2000), 0);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	cm_make_qp(&pair.side[1], client);
	CHECK_EQ(cm_qp_state(client), IBV_QPS_INIT);
	cm_destroy(client);
	cm_pair_close(&pair);
}

static void send_request(struct nupa_engine *engine, uint32_t slot, uint16_t port, uint16_t pkey)
{
	struct cm_wire wire = { .family = AF_INET,
				.ps = RDMA_PS_TCP,
				.dst_port = port,
				.qp_type = IBV_QPT_RC,
				.pkey = pkey };

	nupa_engine_lock(engine);
	CHECK(cm_of(engine));
	cm_send(engine, nupa_channel_get(engine, slot), CM_REQ, 0, 0, pkey + 1u, &wire);
	nupa_engine_unlock(engine);
}

TEST(a_request_from_another_partition_is_dropped_and_counted)
{
	/* None of ours; invalid; one that its sender's host does not have. */
	static const uint16_t wrong[] = { BLUE, 0, 0x8000, RED };
	struct cm_pair pair = cm_pair_open();
	struct nupa_engine *engine = nupa_engine_of(pair.side[1].context);
	const uint32_t slot = (uint32_t)nupa_context_slot(pair.side[0].context);
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct rdma_cm_event *event;

	pkey_set(pair.fabric, 0, 1, RED);
	for (uint64_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		send_request(engine, slot, cm_port(listener), wrong[i]);
		for (uint64_t until = test_now_ns() + WAIT_NS;
		     pkey_violations(pair.fabric, 0) != i + 1;)
			CHECK(test_now_ns() < until);
		cm_expect_none(pair.side[0].channel);
	}
	send_request(engine, slot, cm_port(listener), 0xffff);
	event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CHECK_EQ(rdma_reject(event->id, NULL, 0), 0);
	CHECK_EQ(rdma_destroy_id(event->id), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(pkey_violations(pair.fabric, 0), 4);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(a_host_of_no_partition_joins_no_group)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *id = cm_id(&pair.side[0], RDMA_PS_UDP);
	struct sockaddr_storage group;

	CHECK_EQ(cm_bind(id, "10.0.0.1", 0), 0);
	cm_make_qp(&pair.side[0], id);
	pkey_set(pair.fabric, 0, 0, 0);
	CHECK_EQ(rdma_join_multicast(id, cm_addr(&group, "239.1.2.3", 0), NULL), 0);
	cm_expect_ack(pair.side[0].channel, id, RDMA_CM_EVENT_MULTICAST_ERROR, -EINVAL);
	pkey_set(pair.fabric, 0, 3, RED);
	rdma_destroy_qp(id);
	cm_make_qp(&pair.side[0], id);
	CHECK_EQ(index_of(id), 3);
	CHECK_EQ(rdma_leave_multicast(id, (struct sockaddr *)(void *)&group), 0);
	CHECK_EQ(rdma_join_multicast(id, (struct sockaddr *)(void *)&group, NULL), 0);
	cm_expect_ack(pair.side[0].channel, id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	CHECK_EQ(rdma_leave_multicast(id, (struct sockaddr *)(void *)&group), 0);
	cm_destroy(id);
	cm_pair_close(&pair);
}
