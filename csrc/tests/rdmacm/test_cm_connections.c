/* SPDX-License-Identifier: BSD-3-Clause
 * Connections by rdma_cm: made, refused, ended; what both sides learn of each other. */
#include "tests/support/cm_end.h"
#include "tests/support/end.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

TEST(a_connection_carries_data_and_ends)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP), *server;
	uint8_t memory[128] = { 1, 2, 3 };
	struct ibv_recv_wr recv = { .wr_id = 1, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_sge to, from;
	struct ibv_mr *mr[2];

	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK(client->verbs == pair.side[1].context);
	CHECK_EQ(client->route.num_paths, 1);
	cm_connect(&pair, listener, client, &server);
	CHECK_EQ(cm_qp_state(client), IBV_QPS_RTS);
	CHECK_EQ(cm_qp_state(server), IBV_QPS_RTS);
	CHECK_EQ(rdma_get_dst_port(client), rdma_get_src_port(server));
	CHECK_EQ(rdma_get_src_port(client), rdma_get_dst_port(server));
	for (int i = 0; i < 2; i++)
		mr[i] = nupa_reg_mr(pair.side[i].pd, memory, sizeof(memory), (uintptr_t)memory,
				    IBV_ACCESS_LOCAL_WRITE);
	to = (struct ibv_sge){ (uintptr_t)memory + 64, 64, mr[0]->lkey };
	from = (struct ibv_sge){ (uintptr_t)memory, 64, mr[1]->lkey };
	recv.sg_list = &to;
	send.sg_list = &from;
	send.send_flags = IBV_SEND_SIGNALED;
	CHECK_EQ(nupa_post_recv(server->qp, &recv, &bad_recv), 0);
	CHECK_EQ(nupa_post_send(client->qp, &send, &bad_send), 0);
	cq_expect(pair.side[1].cq, 2, IBV_WC_SUCCESS);
	cq_expect(pair.side[0].cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(memory[66], 3);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(nupa_dereg_mr(mr[i]), 0);

	CHECK_EQ(rdma_disconnect(client), 0);
	CHECK_EQ(cm_qp_state(client), IBV_QPS_ERR);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK_EQ(rdma_disconnect(server), 0); /* as programs do */
	CHECK_EQ(cm_qp_state(server), IBV_QPS_ERR);
	cm_destroy(client);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(out_of_timewait_there_is_an_event)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP), *server;

	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	cm_connect(&pair, listener, client, &server);
	CHECK_EQ(rdma_disconnect(client), 0);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	cm_destroy(client);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

/* Both ends in one process on one host, and by each of its addresses. */
TEST(a_host_reaches_itself)
{
	static const char *const addresses[] = { "10.0.0.1", "127.0.0.1", "127.1.2.3",      "::1",
						 "0.0.0.0",  "::",        "::ffff:10.0.0.1" };
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "::");

	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		struct rdma_cm_id *client = cm_id(&pair.side[0], RDMA_PS_TCP), *server;

		cm_resolve(&pair.side[0], client, addresses[i], cm_port(listener));
		CHECK_EQ(rdma_get_local_addr(client)->sa_family,
			 rdma_get_peer_addr(client)->sa_family);
		cm_make_qp(&pair.side[0], client);
		CHECK_EQ(rdma_connect(client, NULL), 0);
		server =
		    cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0)->id;
		cm_make_qp(&pair.side[0], server);
		CHECK_EQ(rdma_accept(server, NULL), 0);
		for (int n = 0; n < 2; n++) { /* in either order */
			struct rdma_cm_event *event =
			    cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_ESTABLISHED, 0);

			CHECK(event->id == client || event->id == server);
			CHECK_EQ(rdma_ack_cm_event(event), 0);
		}
		cm_destroy(client);
		cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_destroy(server);
	}
	/* The requests were not acknowledged: that is what the listener would wait for. */
	_exit(0);
}

TEST(parameters_change_sides)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "10.0.0.1");
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP), *server;
	uint8_t data[] = "to the server", reply[] = "to the client";
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 4,
		.rnr_retry_count = 200, /* 7 is the most */
		.flow_control = 1,
		.srq = 1,
		.qp_num = 0x123456,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 7 }, remote;
	struct rdma_cm_event *event;
	int mask = 0;

	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_set_local_ece(client, &ece), 0);
	CHECK_EQ(rdma_connect(client, &param), 0); /* without a QP: qp_num counts */
	event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server = event->id;
	CHECK_EQ(event->param.conn.private_data_len, 56);
	CHECK(!memcmp(event->param.conn.private_data, data, sizeof(data)));
	CHECK_EQ(((const uint8_t *)event->param.conn.private_data)[sizeof(data)], 0);
	CHECK_EQ(event->param.conn.responder_resources, 5);
	CHECK_EQ(event->param.conn.initiator_depth, 3);
	CHECK_EQ(event->param.conn.retry_count, 4);
	CHECK_EQ(event->param.conn.rnr_retry_count, 7);
	CHECK_EQ(event->param.conn.flow_control, 1);
	CHECK_EQ(event->param.conn.srq, 1);
	CHECK_EQ(event->param.conn.qp_num, 0x123456);
	CHECK_EQ(rdma_get_remote_ece(server, &remote), 0);
	CHECK_EQ(remote.vendor_id, 0x15b3);
	CHECK_EQ(remote.options, 7);
	CHECK_EQ(rdma_init_qp_attr(server, &attr, &mask), 0);
	CHECK_EQ(attr.dest_qp_num, 0x123456);
	CHECK_EQ(attr.max_dest_rd_atomic, 5);

	param.private_data = reply;
	param.private_data_len = sizeof(reply);
	param.responder_resources = 2;
	param.initiator_depth = 1;
	param.qp_num = 0x654321;
	CHECK_EQ(rdma_accept(server, &param), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	event = cm_expect(pair.side[1].channel, client, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	CHECK_EQ(event->param.conn.private_data_len, 196);
	CHECK(!memcmp(event->param.conn.private_data, reply, sizeof(reply)));
	CHECK_EQ(event->param.conn.responder_resources, 1);
	CHECK_EQ(event->param.conn.initiator_depth, 2);
	CHECK_EQ(event->param.conn.qp_num, 0x654321);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(rdma_init_qp_attr(client, &attr, &mask), 0);
	CHECK_EQ(attr.max_rd_atomic, 2);
	CHECK_EQ(attr.retry_cnt, 4);
	cm_expect_none(pair.side[0].channel);
	CHECK_EQ(rdma_establish(client), 0);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQ(rdma_notify(server, IBV_EVENT_COMM_EST), -1);
	CHECK_EQ(errno, EISCONN);
	cm_destroy(client);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

/* man rdma_connect, rdma_accept, rdma_reject: as much fits, and a byte more does not. */
TEST(private_data_has_limits)
{
	struct cm_pair pair = cm_pair_open();
	uint8_t data[255];
	struct rdma_conn_param param = { .private_data = data };

	memset(data, 0xa5, sizeof(data));
	for (int datagrams = 0; datagrams < 2; datagrams++) {
		enum rdma_port_space ps = datagrams ? RDMA_PS_UDP : RDMA_PS_TCP;
		uint8_t request = datagrams ? 180 : 56, reply = datagrams ? 136 : 196;
		struct rdma_cm_id *listener = cm_listener(&pair.side[0], ps, "");
		struct rdma_cm_id *client = cm_id(&pair.side[1], ps), *server;
		struct rdma_cm_event *event;

		cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
		param.private_data_len = (uint8_t)(request + 1);
		CHECK_EQ(rdma_connect(client, &param), -1);
		CHECK_EQ(errno, EINVAL);
		param.private_data_len = request;
		CHECK_EQ(rdma_connect(client, &param), 0);
		event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		server = event->id;
		if (datagrams)
			CHECK_EQ(event->param.ud.private_data_len, request);
		else
			CHECK(!memcmp(event->param.conn.private_data, data, request));
		param.private_data_len = (uint8_t)(reply + 1);
		CHECK_EQ(rdma_accept(server, &param), -1);
		CHECK_EQ(errno, EINVAL);
		CHECK_EQ(rdma_reject(server, data, datagrams ? 137 : 149), -1);
		CHECK_EQ(errno, EINVAL);
		param.private_data_len = reply;
		CHECK_EQ(rdma_accept(server, &param), 0);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		event = cm_next(pair.side[1].channel);
		CHECK_EQ(event->event,
			 datagrams ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE);
		CHECK(!memcmp(datagrams ? event->param.ud.private_data
					: event->param.conn.private_data,
			      data, reply));
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_destroy(client);
		cm_destroy(server);
		cm_destroy(listener);
	}
	cm_pair_close(&pair);
}

TEST(a_request_is_rejected_with_a_reason_and_data)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	const char why[] = "full";

	for (int for_ece = 0; for_ece < 2; for_ece++) {
		struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);
		struct rdma_cm_event *event;

		cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
		cm_make_qp(&pair.side[1], client);
		CHECK_EQ(rdma_connect(client, NULL), 0);
		event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		CHECK_EQ(for_ece ? rdma_reject_ece(event->id, why, sizeof(why))
				 : rdma_reject(event->id, why, sizeof(why)),
			 0);
		CHECK_EQ(rdma_reject(event->id, NULL, 0), -1);
		CHECK_EQ(errno, EINVAL);
		cm_destroy(event->id);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		event = cm_expect(pair.side[1].channel, client, RDMA_CM_EVENT_REJECTED,
				  for_ece ? 35 : 28);
		CHECK_EQ(event->param.conn.private_data_len, 148);
		CHECK(!strcmp(event->param.conn.private_data, why));
		CHECK_EQ(cm_qp_state(client), IBV_QPS_ERR);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_destroy(client);
	}
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(a_port_without_listener_rejects)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *bound = cm_id(&pair.side[0], RDMA_PS_TCP);
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);
	struct rdma_cm_id *ud = cm_id(&pair.side[1], RDMA_PS_UDP);

	CHECK_EQ(cm_bind(bound, "10.0.0.1", 0), 0); /* but it does not listen */
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(bound));
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_REJECTED, 8);
	cm_resolve(&pair.side[1], ud, "10.0.0.1", cm_port(bound));
	CHECK_EQ(rdma_connect(ud, NULL), 0);
	cm_expect_ack(pair.side[1].channel, ud, RDMA_CM_EVENT_UNREACHABLE, 1);
	cm_destroy(client);
	cm_destroy(ud);
	cm_destroy(bound);
	cm_pair_close(&pair);
}

/* A request that comes a little early meets the listener all the same. */
TEST(a_listener_that_is_late_is_found)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_id(&pair.side[0], RDMA_PS_TCP);
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP), *server;

	CHECK_EQ(cm_bind(listener, "", 0), 0);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	CHECK_EQ(rdma_listen(listener, 1), 0);
	server = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0)->id;
	CHECK(server != listener);
	_exit(0);
}

/* The kernel rejects what is destroyed before it is accepted. */
TEST(a_request_that_is_destroyed_is_rejected)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");

	for (int got = 0; got < 2; got++) {
		struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);

		cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
		CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
		if (got == 0) {
			struct rdma_cm_event *event =
			    cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

			cm_destroy(event->id);
			CHECK_EQ(rdma_ack_cm_event(event), 0);
		} else {
			struct pollfd wait = { .fd = listener->channel->fd, .events = POLLIN };

			CHECK_EQ(poll(&wait, 1, 10000), 1);
			cm_destroy(listener); /* with the request that it has not got */
		}
		cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_REJECTED, 28);
		cm_destroy(client);
	}
	cm_pair_close(&pair);
}

TEST(a_request_that_is_given_up_cannot_be_accepted)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);
	struct rdma_cm_event *event;

	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	cm_destroy(client);
	/* The rejection comes behind the request: the next one behind both. */
	client = cm_id(&pair.side[1], RDMA_PS_TCP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CHECK_EQ(rdma_accept(event->id, &(struct rdma_conn_param){ 0 }), -1);
	CHECK_EQ(errno, EINVAL);
	cm_destroy(event->id);
	_exit(0);
}

TEST(datagram_services_tell_qpn_and_qkey)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_UDP, "");
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_UDP), *server;
	struct rdma_cm_event *event;
	struct ibv_ah *ah;

	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	cm_make_qp(&pair.side[1], client);
	CHECK_EQ(cm_qp_state(client), IBV_QPS_RTS);
	CHECK_EQ(rdma_connect(client, NULL), 0);
	event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server = event->id;
	cm_make_qp(&pair.side[0], server);
	CHECK_EQ(rdma_accept(server, NULL), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	event = cm_expect(pair.side[1].channel, client, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQ(event->param.ud.qp_num, server->qp->qp_num);
	CHECK_EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
	ah = nupa_create_ah(pair.side[1].pd, &event->param.ud.ah_attr);
	CHECK(ah);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_expect_none(pair.side[0].channel);
	cm_destroy(client);

	client = cm_id(&pair.side[1], RDMA_PS_UDP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(client, NULL), 0);
	event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CHECK_EQ(rdma_reject(event->id, NULL, 0), 0);
	cm_destroy(event->id);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_UNREACHABLE, 2);
	cm_destroy(client);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}
