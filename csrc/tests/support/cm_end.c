/* SPDX-License-Identifier: BSD-3-Clause
 * Both sides of rdma_cm for tests: see cm_end.h. */
#include "tests/support/cm_end.h"
#include "engine/cm/internal.h"
#include "tests/support/end.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>

struct cm_side cm_side_open(struct nupa_fabric *fabric, int host)
{
	struct cm_side side;
	char why[256] = "";

	side.context = nupa_open_host(fabric, host, NUPA_MOVER_NONE, why, sizeof(why));
	CHECK(side.context);
	side.channel = rdma_channel_open();
	CHECK(side.channel);
	side.pd = nupa_alloc_pd(side.context);
	side.cq = nupa_create_cq(side.context, 256, NULL, NULL, 0);
	CHECK(side.pd && side.cq);
	return side;
}

void cm_side_close(struct cm_side *side)
{
	CHECK_EQ(nupa_destroy_cq(side->cq), 0);
	CHECK_EQ(nupa_dealloc_pd(side->pd), 0);
	rdma_destroy_event_channel(side->channel);
	CHECK_EQ(nupa_close_device(side->context), 0);
}

struct cm_pair cm_pair_open(void)
{
	struct cm_pair pair = { .fabric = test_fabric() };

	for (int host = 0; host < 2; host++)
		pair.side[host] = cm_side_open(pair.fabric, host);
	return pair;
}

void cm_pair_close(struct cm_pair *pair)
{
	for (int host = 0; host < 2; host++)
		cm_side_close(&pair->side[host]);
	nupa_fabric_put(pair->fabric);
}

struct sockaddr *cm_addr(struct sockaddr_storage *storage, const char *text, uint16_t port)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)(void *)storage;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)(void *)storage;

	memset(storage, 0, sizeof(*storage));
	if (strchr(text, ':')) {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = htons(port);
		CHECK_EQ(inet_pton(AF_INET6, text, &sin6->sin6_addr), 1);
	} else {
		sin->sin_family = AF_INET;
		sin->sin_port = htons(port);
		if (*text)
			CHECK_EQ(inet_pton(AF_INET, text, &sin->sin_addr), 1);
	}
	return (struct sockaddr *)(void *)storage;
}

struct rdma_cm_id *cm_id(struct cm_side *side, enum rdma_port_space ps)
{
	bool datagrams = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;
	struct rdma_cm_id *id = NULL;

	CHECK_EQ(rdma_create_id_on(side->context, side->channel, &id, NULL, ps,
				   datagrams ? IBV_QPT_UD : IBV_QPT_RC),
		 0);
	return id;
}

int cm_bind(struct rdma_cm_id *id, const char *addr, uint16_t port)
{
	struct sockaddr_storage storage;

	return rdma_bind_addr(id, cm_addr(&storage, addr, port)) ? errno : 0;
}

struct rdma_cm_id *cm_listener(struct cm_side *side, enum rdma_port_space ps, const char *addr)
{
	struct rdma_cm_id *id = cm_id(side, ps);

	CHECK_EQ(cm_bind(id, addr, 0), 0);
	CHECK_EQ(rdma_listen(id, 0), 0);
	return id;
}

uint16_t cm_port(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

struct rdma_cm_event *cm_next(struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event = NULL;

	CHECK_EQ(poll(&wait, 1, (int)(WAIT_NS / 1000000)), 1);
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	return event;
}

struct rdma_cm_event *cm_expect(struct rdma_event_channel *channel, struct rdma_cm_id *id,
				enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event = cm_next(channel);

	CHECK_EQ(event->event, type);
	CHECK_EQ(event->status, status);
	CHECK(!id || event->id == id);
	return event;
}

void cm_expect_ack(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		   enum rdma_cm_event_type type, int status)
{
	CHECK_EQ(rdma_ack_cm_event(cm_expect(channel, id, type, status)), 0);
}

void cm_expect_none(struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	CHECK_EQ(poll(&wait, 1, 0), 0);
}

void cm_resolve(struct cm_side *side, struct rdma_cm_id *id, const char *addr, uint16_t port)
{
	struct sockaddr_storage storage;

	CHECK_EQ(rdma_resolve_addr(id, NULL, cm_addr(&storage, addr, port), 2000), 0);
	cm_expect_ack(side->channel, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK_EQ(rdma_resolve_route(id, 2000), 0);
	cm_expect_ack(side->channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

void cm_make_qp(struct cm_side *side, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = id->qp_type,
	};

	CHECK_EQ(rdma_create_qp(id, side->pd, &attr), 0);
}

void cm_connect(struct cm_pair *pair, struct rdma_cm_id *listener, struct rdma_cm_id *client,
		struct rdma_cm_id **server)
{
	struct rdma_event_channel *passive = listener->channel, *active = client->channel;
	struct rdma_cm_event *event;

	if (!client->qp)
		cm_make_qp(&pair->side[nupa_context_host(client->verbs)], client);
	CHECK_EQ(rdma_connect(client, NULL), 0);
	event = cm_expect(passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CHECK(event->listen_id == listener);
	*server = event->id;
	cm_make_qp(&pair->side[nupa_context_host((*server)->verbs)], *server);
	CHECK_EQ(rdma_accept(*server, NULL), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_expect_ack(active, client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(passive, *server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

void cm_destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

enum ibv_qp_state cm_qp_state(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(nupa_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void cm_pass(struct cm_side *side, uint64_t ns)
{
	struct nupa_engine *engine = nupa_engine_of(side->context);
	uint64_t until_ns = test_now_ns() + WAIT_NS;
	bool due;

	nupa_engine_lock(engine);
	CHECK(cm_of(engine));
	for (struct nupa_list *at = engine->cm->ids.next; at != &engine->cm->ids; at = at->next) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, link);

		id->deadline_ns = id->deadline_ns > ns ? id->deadline_ns - ns : 0;
	}
	cm_timer_at(engine, 1);
	nupa_engine_unlock(engine);
	do {
		CHECK(test_now_ns() < until_ns);
		nupa_port_wake(engine);
		sched_yield();
		nupa_engine_lock(engine);
		due = nupa_cm_next_timer_ns(engine) <= engine->now_ns();
		nupa_engine_unlock(engine);
	} while (due);
}
