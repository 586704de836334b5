/* SPDX-License-Identifier: BSD-3-Clause
 * Addresses and ports of rdma_cm: who may be bound where, across processes, and who of several
 * listeners has a request. */
#include "tests/support/cm_end.h"
#include "tests/support/end.h"
#include "engine/device/device.h"

#include <arpa/inet.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_flag(struct rdma_cm_id *id, int option)
{
	int on = 1;

	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, option, &on, sizeof(on)), 0);
}

TEST(an_address_must_be_the_hosts_own)
{
	static const char *const own[] = {
		"10.0.0.1",        "127.0.0.1",         "::1", "::ffff:10.0.0.1", "", "::",
		"fe80::ff:fe00:1", "fd4e:5550:4100::1",
	};
	static const char *const foreign[] = {
		"10.0.0.2",        "10.0.0.9",          "192.0.2.1",
		"fe80::ff:fe00:2", "fd4e:5550:4100::2", "fd4e:5550:4100::100",
		"2001:db8::1",
	};
	struct cm_pair pair = cm_pair_open();

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		struct rdma_cm_id *id = cm_id(&pair.side[0], RDMA_PS_TCP);
		bool any = !*own[i] || !strcmp(own[i], "::") || !strcmp(own[i], "::1") ||
			   !strcmp(own[i], "127.0.0.1");

		CHECK_EQ(cm_bind(id, own[i], 0), 0);
		CHECK(cm_port(id) >= 32768);
		CHECK(any ? !id->verbs : id->verbs == pair.side[0].context);
		CHECK_EQ(cm_bind(id, own[i], 0), EINVAL); /* only once */
		cm_destroy(id);
	}
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		struct rdma_cm_id *id = cm_id(&pair.side[0], RDMA_PS_TCP);

		CHECK_EQ(cm_bind(id, foreign[i], 0), ENODEV);
		CHECK_EQ(cm_bind(id, "10.0.0.1", 0), 0); /* it is as before */
		cm_destroy(id);
	}
	cm_pair_close(&pair);
}

TEST(resolving_fails_where_no_host_is)
{
	static const struct {
		const char *address;
		int status;
	} cases[] = {
		{ "10.0.0.77", -EHOSTUNREACH },
		{ "fe80::ff:fe00:77", -EHOSTUNREACH },
		{ "fd4e:5550:4100::77", -EHOSTUNREACH },
		{ "fd4e:5550:4100:0:1::2", -EHOSTUNREACH },
		{ "fd4e:5550:4100:1::2", -ENODEV }, /* another network */
		{ "192.0.2.1", -ENODEV },
		{ "2001:db8::1", -ENODEV },
	};
	struct cm_pair pair = cm_pair_open();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_cm_id *id = cm_id(&pair.side[0], RDMA_PS_TCP);
		struct sockaddr_storage to;

		CHECK_EQ(rdma_resolve_addr(id, NULL, cm_addr(&to, cases[i].address, 7), 100), 0);
		cm_expect_ack(pair.side[0].channel, id, RDMA_CM_EVENT_ADDR_ERROR, cases[i].status);
		cm_resolve(&pair.side[0], id,
			   to.ss_family == AF_INET ? "10.0.0.2" : "fe80::ff:fe00:2", 7);
		cm_destroy(id);
	}
	cm_pair_close(&pair);
}

TEST(the_source_address_is_the_one_that_fits)
{
	static const struct {
		const char *to, *from;
	} cases[] = {
		{ "10.0.0.2", "10.0.0.1" },
		{ "fe80::ff:fe00:2", "fe80::ff:fe00:1" },
		{ "fd4e:5550:4100::2", "fd4e:5550:4100::1" },
		{ "::ffff:10.0.0.2", "::ffff:10.0.0.1" },
		{ "0.0.0.0", "127.0.0.1" }, /* as for sockets */
		{ "::", "::1" },
		{ "127.0.0.1", "127.0.0.1" },
		{ "::1", "::1" },
	};
	struct cm_pair pair = cm_pair_open();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_cm_id *id = cm_id(&pair.side[0], RDMA_PS_TCP);
		struct sockaddr_storage from;

		cm_resolve(&pair.side[0], id, cases[i].to, 7);
		cm_addr(&from, cases[i].from, cm_port(id));
		CHECK(!memcmp(&from, rdma_get_local_addr(id),
			      from.ss_family == AF_INET ? sizeof(struct sockaddr_in)
							: sizeof(struct sockaddr_in6)));
		CHECK_EQ(ntohs(rdma_get_dst_port(id)), 7);
		cm_destroy(id);
	}
	cm_pair_close(&pair);
}

/* GIDs of both ends are those of the addresses that the program named. */
TEST(the_gids_of_a_route_are_its_addresses)
{
	static const struct {
		const char *to;
		int index;
	} cases[] = {
		{ "fe80::ff:fe00:2", NUPA_GID_LINK },
		{ "10.0.0.2", NUPA_GID_IPV4 },
		{ "::ffff:10.0.0.2", NUPA_GID_IPV4 },
		{ "fd4e:5550:4100::2", NUPA_GID_IPV6 },
	};
	struct cm_pair pair = cm_pair_open();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_cm_id *id = cm_id(&pair.side[0], RDMA_PS_TCP);
		const struct rdma_ib_addr *ib = &id->route.addr.addr.ibaddr;
		union ibv_gid own, peers;

		cm_resolve(&pair.side[0], id, cases[i].to, 7);
		CHECK_EQ(nupa_query_gid(pair.side[0].context, 1, cases[i].index, &own), 0);
		CHECK_EQ(nupa_query_gid(pair.side[1].context, 1, cases[i].index, &peers), 0);
		CHECK(!memcmp(&ib->sgid, &own, sizeof(own)));
		CHECK(!memcmp(&ib->dgid, &peers, sizeof(peers)));
		if (strchr(cases[i].to, ':') && !strchr(cases[i].to, '.')) {
			struct sockaddr_storage to;

			cm_addr(&to, cases[i].to, 7);
			CHECK(
			    !memcmp(&((struct sockaddr_in6 *)(void *)&to)->sin6_addr, &peers, 16));
		}
		cm_destroy(id);
	}
	cm_pair_close(&pair);
}

/* Two ids and one port: the second is bound or refused. */
TEST(a_port_is_bound_by_one)
{
	static const struct {
		const char *first, *second;
		enum rdma_port_space space;
		int error;
	} cases[] = {
		{ "", "", RDMA_PS_TCP, EADDRINUSE },
		{ "10.0.0.1", "10.0.0.1", RDMA_PS_TCP, EADDRINUSE },
		{ "10.0.0.1", "::ffff:10.0.0.1", RDMA_PS_TCP, EADDRINUSE },
		{ "", "10.0.0.1", RDMA_PS_TCP, EADDRINUSE },
		{ "10.0.0.1", "", RDMA_PS_TCP, EADDRINUSE },
		{ "::", "::1", RDMA_PS_TCP, EADDRINUSE },
		{ "::", "fd4e:5550:4100::1", RDMA_PS_TCP, EADDRINUSE },
		{ "fd4e:5550:4100::1", "fd4e:5550:4100::1", RDMA_PS_TCP, EADDRINUSE },
		{ "fd4e:5550:4100::1", "fe80::ff:fe00:1", RDMA_PS_TCP, 0 },
		{ "fd4e:5550:4100::1", "10.0.0.1", RDMA_PS_TCP, 0 },
		{ "10.0.0.1", "127.0.0.1", RDMA_PS_TCP, EADDRINUSE }, /* a wildcard */
		{ "127.0.0.1", "127.0.0.2", RDMA_PS_TCP, EADDRINUSE },
		{ "127.0.0.1", "::1", RDMA_PS_TCP, 0 },
		{ "", "::", RDMA_PS_TCP, 0 }, /* IPv4 and IPv6 */
		{ "::", "", RDMA_PS_TCP, 0 },
		{ "", "", RDMA_PS_UDP, 0 }, /* another port space */
		{ "", "", RDMA_PS_IB, 0 },
	};
	struct cm_pair pair = cm_pair_open();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rdma_cm_id *first = cm_listener(&pair.side[0], RDMA_PS_TCP, cases[i].first);
		struct rdma_cm_id *second = cm_id(&pair.side[0], cases[i].space);
		struct rdma_cm_id *other = cm_id(&pair.side[1], RDMA_PS_TCP);

		CHECK_EQ(cm_bind(second, cases[i].second, cm_port(first)), cases[i].error);
		CHECK_EQ(cm_bind(other, "", cm_port(first)), 0); /* another host */
		if (!cases[i].error)
			CHECK_EQ(rdma_listen(second, 1), 0);
		cm_destroy(first);
		cm_destroy(second);
		cm_destroy(other);
	}
	cm_pair_close(&pair);
}

TEST(ports_are_shared_by_those_who_say_so_until_one_listens)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *ids[4];

	for (int i = 0; i < 4; i++)
		ids[i] = cm_id(&pair.side[0], RDMA_PS_TCP);
	set_flag(ids[0], RDMA_OPTION_ID_REUSEADDR);
	set_flag(ids[1], RDMA_OPTION_ID_REUSEADDR);
	CHECK_EQ(cm_bind(ids[0], "", 4711), 0);
	CHECK_EQ(cm_bind(ids[1], "", 4711), 0);
	CHECK_EQ(cm_bind(ids[2], "", 4711), EADDRINUSE); /* did not say so */
	CHECK_EQ(rdma_listen(ids[0], 1), -1);
	CHECK_EQ(errno, EADDRINUSE);
	cm_destroy(ids[1]);
	CHECK_EQ(rdma_listen(ids[0], 1), 0);
	set_flag(ids[3], RDMA_OPTION_ID_REUSEADDR);
	CHECK_EQ(cm_bind(ids[3], "", 4711), EADDRINUSE);
	for (int i = 0; i < 4; i++)
		if (i != 1)
			cm_destroy(ids[i]);
	cm_pair_close(&pair);
}

/* Asks, and expects the request at this listener only (NULL: at none). */
static void asks(struct cm_pair *pair, const char *address, uint16_t port,
		 struct rdma_cm_id *listener)
{
	struct rdma_cm_id *client = cm_id(&pair->side[1], RDMA_PS_TCP);
	struct rdma_cm_event *event;

	cm_resolve(&pair->side[1], client, address, port);
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	if (listener) {
		event = cm_expect(pair->side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		CHECK(event->listen_id == listener);
		cm_destroy(event->id);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_expect_ack(pair->side[1].channel, client, RDMA_CM_EVENT_REJECTED, 28);
	} else {
		cm_expect_ack(pair->side[1].channel, client, RDMA_CM_EVENT_REJECTED, 8);
	}
	cm_destroy(client);
}

TEST(the_most_exact_listener_has_the_request)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *any6 = cm_listener(&pair.side[0], RDMA_PS_TCP, "::"), *any4, *own;
	uint16_t port = cm_port(any6);

	asks(&pair, "10.0.0.1", port, any6); /* both families */
	asks(&pair, "fe80::ff:fe00:1", port, any6);
	any4 = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(any4, "", port), 0);
	CHECK_EQ(rdma_listen(any4, 8), 0);
	asks(&pair, "10.0.0.1", port, any4);
	asks(&pair, "::ffff:10.0.0.1", port, any4);
	asks(&pair, "fe80::ff:fe00:1", port, any6);
	cm_destroy(any4);
	asks(&pair, "10.0.0.1", port, any6);
	own = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(own, "10.0.0.1", port), 0);
	CHECK_EQ(rdma_listen(own, 8), 0);
	asks(&pair, "10.0.0.1", port, own);
	asks(&pair, "fe80::ff:fe00:1", port, any6);
	asks(&pair, "fd4e:5550:4100::1", port, any6);
	cm_destroy(own);
	cm_destroy(any6);
	cm_pair_close(&pair);
}

TEST(a_listener_at_one_ipv6_address_does_not_hear_those_of_the_other)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *host = cm_listener(&pair.side[0], RDMA_PS_TCP, "fd4e:5550:4100::1");
	struct rdma_cm_id *link = cm_id(&pair.side[0], RDMA_PS_TCP);

	asks(&pair, "fd4e:5550:4100::1", cm_port(host), host);
	asks(&pair, "fe80::ff:fe00:1", cm_port(host), NULL);
	asks(&pair, "10.0.0.1", cm_port(host), NULL);
	CHECK_EQ(cm_bind(link, "fe80::ff:fe00:1", cm_port(host)), 0);
	CHECK_EQ(rdma_listen(link, 8), 0);
	asks(&pair, "fd4e:5550:4100::1", cm_port(host), host);
	asks(&pair, "fe80::ff:fe00:1", cm_port(host), link);
	cm_destroy(link);
	cm_destroy(host);
	cm_pair_close(&pair);
}

TEST(a_listener_for_ipv6_alone_hears_no_ipv4)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_id(&pair.side[0], RDMA_PS_TCP);

	set_flag(listener, RDMA_OPTION_ID_AFONLY);
	CHECK_EQ(cm_bind(listener, "::", 0), 0);
	CHECK_EQ(rdma_listen(listener, 8), 0);
	asks(&pair, "fe80::ff:fe00:1", cm_port(listener), listener);
	asks(&pair, "10.0.0.1", cm_port(listener), NULL);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

static int by_number(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

TEST(ephemeral_ports_differ)
{
	enum { N = 2000 };
	static struct rdma_cm_id *ids[N];
	static uint16_t ports[N];
	struct cm_pair pair = cm_pair_open();

	for (int i = 0; i < N; i++) {
		ids[i] = cm_id(&pair.side[0], RDMA_PS_TCP);
		CHECK_EQ(cm_bind(ids[i], "", 0), 0);
		ports[i] = cm_port(ids[i]);
	}
	qsort(ports, N, sizeof(ports[0]), by_number);
	for (int i = 1; i < N; i++)
		CHECK(ports[i] != ports[i - 1]);
	for (int i = 0; i < N; i++)
		cm_destroy(ids[i]);
	cm_pair_close(&pair);
}

/* Processes of one host fight for ports: each has one owner. */
TEST(processes_never_share_a_port)
{
	enum { N = 4, ROUNDS = 300, PORTS = 8 };
	struct nupa_fabric *fabric = test_fabric();
	uint32_t *owner = mmap(NULL, sizeof(*owner) * PORTS, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[N];

	CHECK(owner != MAP_FAILED);
	for (uint32_t n = 0; n < N; n++) {
		pids[n] = fork();
		CHECK(pids[n] >= 0);
		if (pids[n])
			continue;
		struct cm_side side = cm_side_open(fabric, 0);

		for (uint32_t round = 0; round < ROUNDS; round++) {
			uint32_t port = (round * 5 + n) % PORTS, nobody = 0;
			struct rdma_cm_id *id = cm_id(&side, RDMA_PS_TCP);
			int error =
			    cm_bind(id, round & 1 ? "" : "10.0.0.1", (uint16_t)(5000 + port));

			CHECK(error == 0 || error == EADDRINUSE);
			if (!error) {
				CHECK(nupa_cas_seq(&owner[port], &nobody, n + 1));
				CHECK_EQ(nupa_exchange_seq(&owner[port], 0), n + 1);
			}
			cm_destroy(id);
		}
		cm_side_close(&side);
		_exit(0);
	}
	for (int n = 0; n < N; n++)
		CHECK_CHILD(pids[n]);
	nupa_fabric_put(fabric);
}

TEST(ports_that_a_dead_process_was_bound_to_are_free)
{
	struct nupa_fabric *fabric = test_fabric();
	int ready[2];
	struct cm_side side;
	struct rdma_cm_id *id;
	char byte;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		side = cm_side_open(fabric, 0);
		id = cm_id(&side, RDMA_PS_TCP);
		CHECK_EQ(cm_bind(id, "", 4712), 0);
		CHECK_EQ(rdma_listen(id, 1), 0);
		CHECK_EQ(write(ready[1], "", 1), 1);
		pause();
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	side = cm_side_open(fabric, 0);
	id = cm_id(&side, RDMA_PS_TCP);
	CHECK_EQ(cm_bind(id, "", 4712), EADDRINUSE);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_EQ(cm_bind(id, "", 4712), 0);
	cm_destroy(id);
	cm_side_close(&side);
	nupa_fabric_put(fabric);
}

/* I5: any process can write to the table. */
TEST(nonsense_in_the_table_does_no_harm)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct nupa_cm_bucket *table = nupa_fabric_cm_table(pair.fabric, 0, true);
	uint64_t random = test_seed();
	struct rdma_cm_id *client;

	for (uint32_t i = 0; i < NUPA_CM_BUCKETS; i++)
		for (uint32_t n = 0; n < NUPA_CM_BUCKET_WORDS; n++)
			if (!table[i].words[n])
				table[i].words[n] = test_random(&random);
	for (int i = 0; i < 200; i++) {
		struct sockaddr_storage to;

		client = cm_id(&pair.side[1], RDMA_PS_TCP);
		(void)rdma_resolve_addr(
		    client, NULL, cm_addr(&to, "10.0.0.1", (uint16_t)test_random(&random)), 100);
		cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		CHECK_EQ(rdma_resolve_route(client, 100), 0);
		cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
		cm_destroy(client);
	}
	asks(&pair, "10.0.0.1", cm_port(listener), listener);
	cm_destroy(listener);
	cm_pair_close(&pair);
}
