/* SPDX-License-Identifier: BSD-3-Clause
 * Many connections by rdma_cm at once: more messages than a ring has lines, and several threads. */
#include "tests/support/cm_end.h"
#include "engine/device/device.h"

enum { BURST = 6000, BATCH = 1000 /* a backlog has 1024 */ };

static void take_batch(struct cm_pair *pair, struct rdma_cm_id **servers)
{
	for (int i = 0; i < BATCH; i++) {
		struct rdma_cm_event *event =
		    cm_expect(pair->side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

		servers[i] = event->id;
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		CHECK_EQ(rdma_accept(servers[i], &(struct rdma_conn_param){ 0 }), 0);
	}
	for (int i = 0; i < BATCH; i++)
		cm_expect_ack(pair->side[1].channel, NULL, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
}

/* More at once than a ring has lines, while the other side does not look: what finds no room goes
 * later, and nothing is lost. */
TEST(a_burst_of_messages_arrives)
{
	static struct rdma_cm_id *clients[BURST], *servers[BURST];
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct nupa_engine *server = nupa_engine_of(pair.side[0].context);
	int disconnected = 0;

	for (int i = 0; i < BURST; i++) {
		clients[i] = cm_id(&pair.side[1], RDMA_PS_TCP);
		cm_resolve(&pair.side[1], clients[i], "10.0.0.1", cm_port(listener));
		CHECK_EQ(rdma_connect(clients[i], &(struct rdma_conn_param){ 0 }), 0);
		if ((i + 1) % BATCH == 0)
			take_batch(&pair, servers + i + 1 - BATCH);
	}
	nupa_engine_lock(server);
	for (int i = 0; i < BURST; i++)
		CHECK_EQ(rdma_establish(clients[i]), 0);
	nupa_engine_unlock(server);
	for (int i = 0; i < BURST; i++)
		cm_expect_ack(pair.side[0].channel, NULL, RDMA_CM_EVENT_ESTABLISHED, 0);
	nupa_engine_lock(server);
	for (int i = 0; i < BURST; i++)
		cm_destroy(clients[i]);
	nupa_engine_unlock(server);
	while (disconnected < BURST) {
		struct rdma_cm_event *event = cm_next(pair.side[0].channel);

		/* The first ones are out of timewait before the last are told. */
		CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED ||
		      event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		disconnected += event->event == RDMA_CM_EVENT_DISCONNECTED;
		CHECK_EQ(rdma_ack_cm_event(event), 0);
	}
	for (int i = 0; i < BURST; i++)
		cm_destroy(servers[i]);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

static void *connect_often(void *arg)
{
	struct rdma_cm_id *listener = arg;
	struct cm_side *side = listener->context;
	struct rdma_event_channel *channel = rdma_channel_open();

	for (int i = 0; i < 100; i++) {
		struct sockaddr_storage to;
		struct rdma_cm_id *id;

		CHECK_EQ(
		    rdma_create_id_on(side->context, channel, &id, NULL, RDMA_PS_TCP, IBV_QPT_RC),
		    0);
		CHECK_EQ(
		    rdma_resolve_addr(
			id, NULL,
			cm_addr(&to, nupa_context_host(side->context) ? "10.0.0.1" : "10.0.0.2",
				cm_port(listener)),
			1),
		    0);
		cm_expect_ack(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
		CHECK_EQ(rdma_resolve_route(id, 1), 0);
		cm_expect_ack(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		cm_make_qp(side, id);
		CHECK_EQ(rdma_connect(id, NULL), 0);
		cm_expect_ack(channel, id, RDMA_CM_EVENT_ESTABLISHED, 0);
		CHECK_EQ(rdma_disconnect(id), 0);
		cm_expect_ack(channel, id, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_destroy(id);
	}
	rdma_destroy_event_channel(channel);
	return NULL;
}

static void *serve_often(void *arg)
{
	struct cm_side *side = arg;
	int ended = 0;

	while (ended < 200) { /* by two clients */
		struct rdma_cm_event *event = cm_next(side->channel);
		enum rdma_cm_event_type type = event->event;
		struct rdma_cm_id *id = event->id;

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			cm_make_qp(side, id);
			CHECK_EQ(rdma_accept(id, NULL), 0);
		}
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		if (type == RDMA_CM_EVENT_DISCONNECTED) {
			cm_destroy(id);
			ended++;
		}
	}
	return NULL;
}

/* Both hosts serve two threads of the other; TSan looks on. */
TEST(threads_connect_both_ways)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listeners[2];
	pthread_t clients[4], servers[2];

	for (int host = 0; host < 2; host++) {
		/* Its port is for the clients of the other host: they find their side there. */
		listeners[host] = cm_listener(&pair.side[host], RDMA_PS_TCP, "");
		listeners[host]->context = &pair.side[1 - host];
		CHECK_EQ(pthread_create(&servers[host], NULL, serve_often, &pair.side[host]), 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&clients[i], NULL, connect_often, listeners[i % 2]), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(clients[i], NULL), 0);
	for (int host = 0; host < 2; host++)
		CHECK_EQ(pthread_join(servers[host], NULL), 0);
	for (int host = 0; host < 2; host++)
		cm_destroy(listeners[host]);
	cm_pair_close(&pair);
}
