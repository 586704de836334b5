/* SPDX-License-Identifier: BSD-3-Clause
 * Loopback of a machine whose programs each have a host of their own (NUPA_LOOPBACK=machine), and
 * of one that is a host alone. */
#include "tests/support/cm_end.h"
#include "engine/cm/internal.h"
#include "region/region.h"
#include "tests/support/end.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT 4714

/* Read when a process first uses an attachment's connection management. */
static void say_loopback(const char *value)
{
	CHECK_EQ(setenv("NUPA_LOOPBACK", value, 1), 0);
}

static void check_gid(const union ibv_gid *gid, const struct cm_side *side, int index)
{
	union ibv_gid expected;

	CHECK_EQ(nupa_query_gid(side->context, 1, index, &expected), 0);
	CHECK(!memcmp(gid, &expected, sizeof(expected)));
}

static void check_peer(struct rdma_cm_id *id, const char *address, uint16_t port)
{
	struct sockaddr_storage expected;

	cm_addr(&expected, address, port);
	CHECK(!memcmp(rdma_get_peer_addr(id), &expected,
		      expected.ss_family == AF_INET ? sizeof(struct sockaddr_in)
						    : sizeof(struct sockaddr_in6)));
}

/* From host 0 to a listener on host 1: addresses are as asked, GIDs the true hosts'. */
TEST(loopback_reaches_the_listener_of_another_host)
{
	static const struct {
		const char *to, *seen;
		int gid;
	} cases[] = {
		{ "127.0.0.1", "127.0.0.1", NUPA_GID_IPV4 },
		{ "127.1.2.3", "127.1.2.3", NUPA_GID_IPV4 },
		{ "0.0.0.0", "127.0.0.1", NUPA_GID_IPV4 },
		{ "::1", "::1", NUPA_GID_LINK },
		{ "::", "::1", NUPA_GID_LINK },
		{ "::ffff:127.0.0.1", "::ffff:127.0.0.1", NUPA_GID_IPV4 },
	};
	struct cm_pair pair;
	struct rdma_cm_id *listener;

	say_loopback("machine");
	pair = cm_pair_open();
	listener = cm_listener(&pair.side[1], RDMA_PS_TCP, "::");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_cm_id *client = cm_id(&pair.side[0], RDMA_PS_TCP), *server;
		const struct rdma_ib_addr *there, *here = &client->route.addr.addr.ibaddr;

		cm_resolve(&pair.side[0], client, cases[i].to, cm_port(listener));
		check_gid(&here->sgid, &pair.side[0], cases[i].gid);
		check_gid(&here->dgid, &pair.side[1], cases[i].gid);
		cm_connect(&pair, listener, client, &server);
		there = &server->route.addr.addr.ibaddr;
		check_gid(&there->sgid, &pair.side[1], cases[i].gid);
		check_gid(&there->dgid, &pair.side[0], cases[i].gid);
		check_peer(client, cases[i].seen, cm_port(listener));
		check_peer(server, cases[i].seen, cm_port(client));
		cm_destroy(client);
		cm_expect_ack(pair.side[1].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_destroy(server);
	}
	cm_destroy(listener);
	cm_pair_close(&pair);
}

/* Where the request came: its listener.  It is rejected. */
static struct rdma_cm_id *heard(struct cm_side *side)
{
	struct rdma_cm_event *event =
	    cm_expect(side->channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *listener = event->listen_id;

	cm_destroy(event->id);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	return listener;
}

TEST(the_own_host_comes_first)
{
	struct rdma_cm_id *here, *there, *client;
	struct cm_pair pair;

	say_loopback("machine");
	pair = cm_pair_open();
	there = cm_id(&pair.side[0], RDMA_PS_TCP);
	here = cm_id(&pair.side[1], RDMA_PS_TCP);
	client = cm_id(&pair.side[1], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(there, "", PORT), 0);
	CHECK_EQ(rdma_listen(there, 8), 0);
	cm_resolve(&pair.side[1], client, "127.0.0.1", PORT);
	check_gid(&client->route.addr.addr.ibaddr.dgid, &pair.side[0], NUPA_GID_IPV4);
	/* Before the request, a listener comes that is nearer. */
	CHECK_EQ(cm_bind(here, "", PORT), 0);
	CHECK_EQ(rdma_listen(here, 8), 0);
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	CHECK(heard(&pair.side[1]) == here);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_REJECTED, 28);
	cm_expect_none(pair.side[0].channel);
	cm_destroy(client);
	cm_destroy(here);
	cm_destroy(there);
	cm_pair_close(&pair);
}

TEST(a_listener_of_another_host_may_come_late)
{
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_cm_event *event;
	struct cm_pair pair;

	say_loopback("machine");
	pair = cm_pair_open();
	listener = cm_id(&pair.side[1], RDMA_PS_TCP);
	client = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(listener, "127.0.0.1", PORT), 0);
	cm_resolve(&pair.side[0], client, "127.0.0.1", PORT);
	check_gid(&client->route.addr.addr.ibaddr.dgid, &pair.side[0], NUPA_GID_IPV4);
	cm_make_qp(&pair.side[0], client);
	CHECK_EQ(rdma_connect(client, NULL), 0);
	CHECK_EQ(rdma_listen(listener, 8), 0);
	event = cm_expect(pair.side[1].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server = event->id;
	cm_make_qp(&pair.side[1], server);
	CHECK_EQ(rdma_accept(server, NULL), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_expect_ack(pair.side[0].channel, client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(pair.side[1].channel, server, RDMA_CM_EVENT_ESTABLISHED, 0);
	check_gid(&client->route.addr.addr.ibaddr.dgid, &pair.side[1], NUPA_GID_IPV4);
	check_gid(&client->route.path_rec->dgid, &pair.side[1], NUPA_GID_IPV4);
	cm_destroy(client);
	cm_expect_ack(pair.side[1].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(datagram_services_are_found_by_loopback)
{
	struct rdma_cm_id *listener, *client;
	struct rdma_cm_event *event, *answer;
	struct cm_pair pair;

	say_loopback("machine");
	pair = cm_pair_open();
	listener = cm_listener(&pair.side[1], RDMA_PS_UDP, "");
	client = cm_id(&pair.side[0], RDMA_PS_UDP);
	cm_resolve(&pair.side[0], client, "127.0.0.1", cm_port(listener));
	cm_make_qp(&pair.side[0], client);
	CHECK_EQ(rdma_connect(client, NULL), 0);
	event = cm_expect(pair.side[1].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	cm_make_qp(&pair.side[1], event->id);
	CHECK_EQ(rdma_accept(event->id, NULL), 0);
	answer = cm_expect(pair.side[0].channel, client, RDMA_CM_EVENT_ESTABLISHED, 0);
	check_gid(&answer->param.ud.ah_attr.grh.dgid, &pair.side[1], NUPA_GID_IPV4);
	CHECK_EQ(answer->param.ud.qp_num, event->id->qp->qp_num);
	CHECK_EQ(rdma_ack_cm_event(answer), 0);
	cm_destroy(event->id);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_destroy(client);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(a_link_that_is_down_holds_back_a_request_by_loopback)
{
	struct rdma_cm_id *listener, *client;
	struct cm_pair pair;

	say_loopback("machine");
	pair = cm_pair_open();
	listener = cm_listener(&pair.side[1], RDMA_PS_TCP, "");
	client = cm_id(&pair.side[0], RDMA_PS_TCP);
	cm_resolve(&pair.side[0], client, "127.0.0.1", cm_port(listener));
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, test_fabric_port(1), NUPA_PORT_DOWN), 0);
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	cm_pass(&pair.side[0], UINT64_C(200000000)); /* longer than it seeks a listener */
	cm_expect_none(pair.side[0].channel);
	cm_expect_none(pair.side[1].channel);
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, test_fabric_port(1), NUPA_PORT_ACTIVE), 0);
	CHECK(heard(&pair.side[1]) == listener);
	cm_expect_ack(pair.side[0].channel, client, RDMA_CM_EVENT_REJECTED, 28);
	cm_destroy(client);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

static void check_refused(struct cm_side *side, const char *address, uint16_t port)
{
	struct rdma_cm_id *client = cm_id(side, RDMA_PS_TCP);

	cm_resolve(side, client, address, port);
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	cm_expect_ack(side->channel, client, RDMA_CM_EVENT_REJECTED, 8);
	cm_destroy(client);
}

TEST(loopback_of_a_host_of_its_own_is_that_host)
{
	static const char *const values[] = { "", "host", "machines" };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct rdma_cm_id *listener;
		struct cm_pair pair;

		say_loopback(values[i]);
		pair = cm_pair_open();
		listener = cm_listener(&pair.side[1], RDMA_PS_TCP, "");
		check_refused(&pair.side[0], "127.0.0.1", cm_port(listener));
		cm_destroy(listener);
		cm_pair_close(&pair);
	}
}

/* A listener in a process of another kernel, as a guest's is. */
TEST(a_guest_is_another_machine)
{
	struct nupa_fabric *fabric = test_fabric();
	struct rdma_cm_id *listener;
	struct cm_side side;
	int ready[2];
	char byte;
	pid_t pid;

	say_loopback("machine");
	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		fabric->kernel = 2; /* the child's own copy */
		side = cm_side_open(fabric, 1);
		listener = cm_id(&side, RDMA_PS_TCP);
		CHECK_EQ(cm_bind(listener, "", PORT), 0);
		CHECK_EQ(rdma_listen(listener, 1), 0);
		CHECK_EQ(write(ready[1], "", 1), 1);
		for (;;)
			pause();
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	side = cm_side_open(fabric, 0);
	CHECK(cm_port_find(nupa_engine_of(side.context)->fabric, 1, RDMA_PS_TCP, PORT,
			   CM_ADDR_LOOPBACK4) > 0);
	check_refused(&side, "127.0.0.1", PORT);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	cm_side_close(&side);
	nupa_fabric_put(fabric);
}

/* The kernel's cma_any_addr: bound to no device, and each request matches. */
TEST(an_id_bound_to_loopback_is_a_wildcard)
{
	static const struct {
		const char *bound, *asked;
		int gid;
	} cases[] = {
		{ "127.0.0.1", "10.0.0.2", NUPA_GID_IPV4 },
		{ "127.0.0.9", "::ffff:10.0.0.2", NUPA_GID_IPV4 },
		{ "::1", "fd4e:5550:4100::2", NUPA_GID_IPV6 },
		{ "::1", "10.0.0.2", NUPA_GID_IPV4 },
	};
	struct cm_pair pair = cm_pair_open();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_cm_id *listener =
		    cm_listener(&pair.side[1], RDMA_PS_TCP, cases[i].bound);
		struct rdma_cm_id *client = cm_id(&pair.side[0], RDMA_PS_TCP), *server;
		struct sockaddr_storage own;

		CHECK(!listener->verbs && !listener->pd);
		cm_addr(&own, cases[i].bound, cm_port(listener));
		CHECK(!memcmp(rdma_get_local_addr(listener), &own, sizeof(struct sockaddr_in)));
		cm_resolve(&pair.side[0], client, cases[i].asked, cm_port(listener));
		cm_connect(&pair, listener, client, &server);
		CHECK(server->verbs == pair.side[1].context);
		check_gid(&server->route.addr.addr.ibaddr.sgid, &pair.side[1], cases[i].gid);
		cm_destroy(client);
		cm_expect_ack(pair.side[1].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_destroy(server);
		cm_destroy(listener);
	}
	cm_pair_close(&pair);
}

TEST(an_id_bound_to_loopback_reaches_other_hosts_from_its_own_address)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[1], RDMA_PS_TCP, "");
	struct rdma_cm_id *client = cm_id(&pair.side[0], RDMA_PS_TCP), *server;

	CHECK_EQ(cm_bind(client, "127.0.0.1", 0), 0);
	CHECK(!client->verbs);
	cm_resolve(&pair.side[0], client, "10.0.0.2", cm_port(listener));
	CHECK(client->verbs == pair.side[0].context);
	cm_connect(&pair, listener, client, &server);
	check_peer(server, "10.0.0.1", cm_port(client));
	cm_destroy(client);
	cm_expect_ack(pair.side[1].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

/* Programs tell each other "127.0.0.1" and a port that the system chose: it means one of them. */
TEST(ports_that_the_system_chooses_differ_between_hosts_of_a_machine)
{
	enum { N = 500 };
	static struct rdma_cm_id *ids[2][N];
	static uint8_t used[1 << 16];
	struct cm_pair pair;

	say_loopback("machine");
	pair = cm_pair_open();
	for (int i = 0; i < N; i++) {
		for (int host = 0; host < 2; host++) {
			struct nupa_engine *engine = nupa_engine_of(pair.side[host].context);

			ids[host][i] = cm_id(&pair.side[host], RDMA_PS_TCP);
			engine->cm->next_port = (uint32_t)i + 1; /* both begin at the same */
			CHECK_EQ(cm_bind(ids[host][i], "", 0), 0);
			CHECK(!used[cm_port(ids[host][i])]++);
		}
	}
	for (int i = 0; i < N; i++)
		for (int host = 0; host < 2; host++)
			cm_destroy(ids[host][i]);
	cm_pair_close(&pair);
}
