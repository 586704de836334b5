/* SPDX-License-Identifier: BSD-3-Clause
 * Events of rdma_cm: channels, migration, acknowledgement, synchronous calls, multicast. */
#include "tests/support/cm_end.h"
#include "tests/support/end.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static struct cm_pair pair;

static bool readable(const struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	return poll(&wait, 1, 0) == 1;
}

TEST(a_channel_is_readable_while_an_event_waits)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct sockaddr_storage to;
	struct rdma_cm_id *id[2];

	pair = cm_pair_open();
	channel = pair.side[0].channel;
	CHECK_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	CHECK_EQ(rdma_get_cm_event(channel, &event), -1);
	CHECK_EQ(errno, EAGAIN);
	for (int i = 0; i < 2; i++) {
		id[i] = cm_id(&pair.side[0], RDMA_PS_TCP);
		CHECK_EQ(rdma_resolve_addr(id[i], NULL, cm_addr(&to, "10.0.0.2", 1), 100), 0);
	}
	CHECK(readable(channel));
	cm_expect_ack(channel, id[0], RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(readable(channel));
	cm_destroy(id[1]); /* its event goes with it */
	CHECK(!readable(channel));
	CHECK_EQ(rdma_get_cm_event(channel, &event), -1);
	CHECK_EQ(errno, EAGAIN);
	cm_destroy(id[0]);
	cm_pair_close(&pair);
}

TEST(a_migrated_id_takes_pending_and_later_events_along)
{
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_event_channel *other = rdma_channel_open();

	pair = cm_pair_open();
	listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	client = cm_id(&pair.side[1], RDMA_PS_TCP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	cm_connect(&pair, listener, client, &server);
	CHECK_EQ(rdma_disconnect(client), 0);
	while (!readable(pair.side[0].channel))
		CHECK_EQ(poll(&(struct pollfd){ pair.side[0].channel->fd, POLLIN, 0 }, 1, 10000),
			 1);
	CHECK_EQ(rdma_migrate_id(server, other), 0);
	CHECK(server->channel == other);
	CHECK(!readable(pair.side[0].channel));
	cm_expect_ack(other, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(other, server, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0); /* later */
	CHECK(!readable(pair.side[0].channel));
	cm_destroy(server);
	cm_destroy(client);

	/* A listener takes its requests along. */
	client = cm_id(&pair.side[1], RDMA_PS_TCP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	CHECK_EQ(poll(&(struct pollfd){ pair.side[0].channel->fd, POLLIN, 0 }, 1, 10000), 1);
	CHECK_EQ(rdma_migrate_id(listener, other), 0);
	server = cm_expect(other, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0)->id;
	CHECK(server->channel == other);
	_exit(0);
}

static void *acknowledge_later(void *arg)
{
	struct rdma_cm_event *event = arg;

	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return NULL;
}

/* man rdma_get_cm_event: destruction waits; TSan sees whether it really does. */
TEST(destroying_waits_for_events_that_were_got)
{
	struct rdma_cm_event *event;
	struct sockaddr_storage to;
	struct rdma_cm_id *id;
	pthread_t thread;

	pair = cm_pair_open();
	for (int i = 0; i < 50; i++) {
		id = cm_id(&pair.side[0], RDMA_PS_TCP);
		CHECK_EQ(rdma_resolve_addr(id, NULL, cm_addr(&to, "10.0.0.2", 1), 100), 0);
		event = cm_expect(pair.side[0].channel, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		CHECK_EQ(pthread_create(&thread, NULL, acknowledge_later, event), 0);
		cm_destroy(id);
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	cm_pair_close(&pair);
}

TEST(the_backlog_limits_requests_that_wait)
{
	struct rdma_cm_id *listener, *clients[4];
	int rejected = 0;

	pair = cm_pair_open();
	listener = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(listener, "", 0), 0);
	CHECK_EQ(rdma_listen(listener, 2), 0);
	/* All resolve before the first connects: a refusal may come at once. */
	for (int i = 0; i < 4; i++) {
		clients[i] = cm_id(&pair.side[1], RDMA_PS_TCP);
		cm_resolve(&pair.side[1], clients[i], "10.0.0.1", cm_port(listener));
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(rdma_connect(clients[i], &(struct rdma_conn_param){ 0 }), 0);
	while (rejected < 2) {
		cm_expect_ack(pair.side[1].channel, clients[2 + rejected], RDMA_CM_EVENT_REJECTED,
			      28);
		rejected++;
	}
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event =
		    cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

		cm_destroy(event->id);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_expect_ack(pair.side[1].channel, clients[i], RDMA_CM_EVENT_REJECTED, 28);
	}
	cm_destroy(clients[0]); /* requests that were got make room */
	clients[0] = cm_id(&pair.side[1], RDMA_PS_TCP);
	cm_resolve(&pair.side[1], clients[0], "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(clients[0], &(struct rdma_conn_param){ 0 }), 0);
	cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	_exit(0);
}

TEST(calls_in_the_wrong_state_are_einval)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct rdma_conn_param param = { 0 };
	struct sockaddr_storage to;
	struct rdma_cm_id *id;
	int mask;

	pair = cm_pair_open();
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
#define IS_EINVAL(call)                                                                            \
	do {                                                                                       \
		CHECK_EQ(call, -1);                                                                \
		CHECK_EQ(errno, EINVAL);                                                           \
	} while (0)
	IS_EINVAL(rdma_resolve_route(id, 100));
	IS_EINVAL(rdma_connect(id, &param));
	IS_EINVAL(rdma_accept(id, &param));
	IS_EINVAL(rdma_reject(id, NULL, 0));
	IS_EINVAL(rdma_establish(id));
	IS_EINVAL(rdma_disconnect(id));
	IS_EINVAL(rdma_notify(id, IBV_EVENT_COMM_EST));
	IS_EINVAL(rdma_init_qp_attr(id, &attr, &mask));
	IS_EINVAL(rdma_create_qp(id, NULL, &init)); /* not bound to a device */
	IS_EINVAL(rdma_get_request(id, &id));       /* not synchronous */
	IS_EINVAL(rdma_join_multicast(id, cm_addr(&to, "239.1.1.1", 0), NULL));
	CHECK_EQ(cm_bind(id, "10.0.0.1", 0), 0);
	IS_EINVAL(rdma_join_multicast(id, cm_addr(&to, "239.1.1.1", 0), NULL)); /* not UD */
	IS_EINVAL(rdma_resolve_addr(id, NULL, cm_addr(&to, "::1", 0), 100));    /* other family */
	CHECK_EQ(rdma_listen(id, 1), 0);
	IS_EINVAL(rdma_listen(id, 1));
	IS_EINVAL(rdma_resolve_addr(id, NULL, cm_addr(&to, "10.0.0.2", 1), 100));
	to.ss_family = AF_UNIX;
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)(void *)&to), -1);
	CHECK_EQ(errno, EINVAL);
	cm_destroy(id);
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)(void *)&to), -1);
	CHECK_EQ(errno, EAFNOSUPPORT);
	cm_resolve(&pair.side[0], id, "10.0.0.2", 1);
	param.initiator_depth = 17; /* max_qp_init_rd_atom is 16 */
	IS_EINVAL(rdma_connect(id, &param));
	cm_destroy(id);
	cm_pair_close(&pair);
}

TEST(options_are_checked)
{
	uint8_t byte = 21, too_long = 32;
	struct rdma_cm_id *id;
	int on = 1;

	pair = cm_pair_open();
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), 0);
	IS_EINVAL(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &too_long, 1));
	IS_EINVAL(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)));
	IS_EINVAL(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1));
	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof(on)), -1);
	CHECK_EQ(errno, ENOSYS);
	CHECK_EQ(rdma_set_option(id, 7, 0, &on, sizeof(on)), -1);
	CHECK_EQ(errno, ENOSYS);
	cm_resolve(&pair.side[0], id, "10.0.0.2", 1);
	CHECK_EQ(id->route.path_rec->packet_life_time, 20);
	CHECK_EQ(id->route.path_rec->traffic_class, 21);
	IS_EINVAL(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	cm_destroy(id);
	cm_pair_close(&pair);
}

/* --- multicast ----------------------------------------------------------------------- */

TEST(a_group_is_joined_and_left)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
	};
	struct sockaddr_storage group;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int context;

	pair = cm_pair_open();
	id = cm_id(&pair.side[0], RDMA_PS_UDP);
	CHECK_EQ(cm_bind(id, "10.0.0.1", 0), 0);
	cm_make_qp(&pair.side[0], id);
	attr.addr = cm_addr(&group, "239.7.7.7", 0);
	CHECK_EQ(rdma_join_multicast_ex(id, &attr, &context), 0);
	event = cm_expect(pair.side[0].channel, id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	CHECK(event->param.ud.private_data == &context);
	CHECK_EQ(event->param.ud.qp_num, 0xffffff);
	CHECK_EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
	CHECK_EQ(event->param.ud.ah_attr.grh.dgid.raw[12], 239);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(rdma_leave_multicast(id, (struct sockaddr *)(void *)&group), 0);
	CHECK_EQ(rdma_leave_multicast(id, (struct sockaddr *)(void *)&group), -1);
	CHECK_EQ(errno, EADDRNOTAVAIL);
	CHECK_EQ(rdma_join_multicast(id, (struct sockaddr *)(void *)&group, NULL), 0);
	CHECK_EQ(rdma_leave_multicast(id, (struct sockaddr *)(void *)&group), 0); /* not got */
	cm_expect_none(pair.side[0].channel);
	CHECK_EQ(rdma_join_multicast(id, (struct sockaddr *)(void *)&group, NULL), 0);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
	CHECK_EQ(rdma_join_multicast_ex(id, &attr, NULL), -1);
	CHECK_EQ(errno, EOPNOTSUPP);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	IS_EINVAL(rdma_join_multicast_ex(id, &attr, NULL));
	IS_EINVAL(rdma_join_multicast(id, cm_addr(&group, "10.0.0.2", 0), NULL)); /* no group */
	cm_destroy(id); /* leaves what it is in */
	cm_pair_close(&pair);
}

/* --- synchronous calls --------------------------------------------------------------- */

static void *serve(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };

	CHECK_EQ(rdma_get_request(listener, &id), 0);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_make_qp(&pair.side[0], id);
	CHECK_EQ(rdma_accept(id, &param), 0);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
	cm_destroy(id);
	return NULL;
}

TEST(without_a_channel_calls_wait_for_their_end)
{
	struct rdma_cm_id *listener, *client, *nobody;
	struct sockaddr_storage to;
	pthread_t thread;

	pair = cm_pair_open();
	CHECK_EQ(
	    rdma_create_id_on(pair.side[0].context, NULL, &listener, NULL, RDMA_PS_TCP, IBV_QPT_RC),
	    0);
	CHECK_EQ(cm_bind(listener, "10.0.0.1", 0), 0);
	CHECK_EQ(rdma_listen(listener, 1), 0);
	CHECK_EQ(pthread_create(&thread, NULL, serve, listener), 0);
	CHECK_EQ(
	    rdma_create_id_on(pair.side[1].context, NULL, &client, NULL, RDMA_PS_TCP, IBV_QPT_RC),
	    0);
	CHECK_EQ(rdma_resolve_addr(client, NULL, cm_addr(&to, "10.0.0.1", cm_port(listener)), 1),
		 0);
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_EQ(rdma_resolve_route(client, 1), 0);
	cm_make_qp(&pair.side[1], client);
	CHECK_EQ(rdma_connect(client, NULL), 0);
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(rdma_disconnect(client), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	cm_destroy(client);

	CHECK_EQ(
	    rdma_create_id_on(pair.side[1].context, NULL, &nobody, NULL, RDMA_PS_TCP, IBV_QPT_RC),
	    0);
	CHECK_EQ(rdma_resolve_addr(nobody, NULL, cm_addr(&to, "10.0.0.99", 1), 1), -1);
	CHECK_EQ(errno, EHOSTUNREACH);
	CHECK_EQ(rdma_resolve_addr(nobody, NULL, cm_addr(&to, "10.0.0.1", 1), 1), 0);
	CHECK_EQ(rdma_resolve_route(nobody, 1), 0);
	cm_make_qp(&pair.side[1], nobody);
	CHECK_EQ(rdma_connect(nobody, NULL), -1);
	CHECK_EQ(errno, ECONNREFUSED);
	cm_destroy(nobody);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(a_synchronous_id_becomes_asynchronous_and_back)
{
	struct sockaddr_storage to;
	struct rdma_cm_id *id;

	pair = cm_pair_open();
	CHECK_EQ(rdma_create_id_on(pair.side[0].context, NULL, &id, NULL, RDMA_PS_TCP, IBV_QPT_RC),
		 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, cm_addr(&to, "10.0.0.2", 1), 1), 0);
	CHECK_EQ(rdma_migrate_id(id, pair.side[0].channel), 0);
	CHECK(!id->event);
	CHECK_EQ(rdma_resolve_route(id, 1), 0);
	cm_expect_ack(pair.side[0].channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	CHECK_EQ(rdma_migrate_id(id, NULL), 0);
	CHECK(id->channel != pair.side[0].channel);
	IS_EINVAL(rdma_migrate_id(id, NULL));
	CHECK_EQ(rdma_connect(id, &(struct rdma_conn_param){ 0 }), -1);
	CHECK_EQ(errno, ECONNREFUSED);
	cm_destroy(id);
	cm_pair_close(&pair);
}

/* --- addresses by name --------------------------------------------------------------- */

TEST(getaddrinfo_answers_by_its_hints)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct sockaddr_storage to;

	CHECK_EQ(rdma_getaddrinfo("10.0.0.2", "7471", &hints, &res), 0);
	CHECK_EQ(res->ai_family, AF_INET);
	CHECK_EQ(res->ai_qp_type, IBV_QPT_RC);
	CHECK_EQ(res->ai_dst_len, sizeof(struct sockaddr_in));
	CHECK_EQ(res->ai_src_len, 0);
	CHECK(!memcmp(res->ai_dst_addr, cm_addr(&to, "10.0.0.2", 7471), 8));
	rdma_freeaddrinfo(res);
	hints.ai_flags = RAI_PASSIVE;
	hints.ai_port_space = RDMA_PS_UDP;
	CHECK_EQ(rdma_getaddrinfo("10.0.0.1", NULL, &hints, &res), 0);
	CHECK_EQ(res->ai_qp_type, IBV_QPT_UD);
	CHECK_EQ(res->ai_dst_len, 0);
	CHECK_EQ(res->ai_src_len, sizeof(struct sockaddr_in));
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){ .ai_flags = RAI_NUMERICHOST | RAI_FAMILY,
					.ai_family = AF_INET6,
					.ai_qp_type = IBV_QPT_UD };
	CHECK_EQ(rdma_getaddrinfo("::1", "1", &hints, &res), 0);
	CHECK_EQ(res->ai_family, AF_INET6);
	CHECK_EQ(res->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(res);
	CHECK_EQ(rdma_getaddrinfo("no number", "1", &hints, &res), EAI_NONAME);
	IS_EINVAL(rdma_getaddrinfo(NULL, NULL, NULL, &res));
}
