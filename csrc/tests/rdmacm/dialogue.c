/* SPDX-License-Identifier: BSD-3-Clause
 * Two ids that meet over a wire. */
#include "tests/rdmacm/dialogue.h"
#include "tests/support/end.h"

#include <string.h>

void dialogue_far_text(bool ipv6, int side, char text[INET6_ADDRSTRLEN])
{
	snprintf(text, INET6_ADDRSTRLEN, ipv6 ? "2001:db8::%d" : "192.0.2.%d", side + 1);
}

struct dialogue dialogue_open(enum rdma_port_space ps, bool ipv6, const char *at, const char *to)
{
	struct dialogue s = { .net = net_open(ipv6, 1024, 1024) };
	char far[INET6_ADDRSTRLEN];

	dialogue_far_text(ipv6, 1, far);
	s.listener = cm_listener(&s.net->side[1], ps, at);
	s.client = cm_id(&s.net->side[0], ps);
	cm_resolve(&s.net->side[0], s.client, to ? to : far, cm_port(s.listener));
	return s;
}

struct rdma_event_channel *dialogue_active(const struct dialogue *s)
{
	return s->net->side[0].channel;
}

struct rdma_event_channel *dialogue_passive(const struct dialogue *s)
{
	return s->net->side[1].channel;
}

void dialogue_pass(const struct dialogue *s, uint64_t ns)
{
	net_settle(s->net);
	for (int i = 0; i < 2; i++) {
		cm_pass(&s->net->side[i], ns);
		net_settle(s->net);
	}
}

void dialogue_close(struct dialogue *s)
{
	if (s->server)
		cm_destroy(s->server);
	if (s->client)
		cm_destroy(s->client);
	cm_destroy(s->listener);
	net_settle(s->net);
	net_close(s->net);
}

void dialogue_ask(struct dialogue *s, const char *data)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = (uint8_t)strlen(data),
		.responder_resources = 3,
		.initiator_depth = 2,
		.retry_count = 5,
		.rnr_retry_count = 6,
		.flow_control = 1,
	};

	if (!s->client->qp)
		cm_make_qp(&s->net->side[0], s->client);
	CHECK_EQ(rdma_connect(s->client, &param), 0);
}

void dialogue_hear(struct dialogue *s)
{
	struct rdma_cm_event *event =
	    cm_expect(dialogue_passive(s), NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	s->server = event->id;
	CHECK(event->listen_id == s->listener);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s->net->side[1], s->server);
}

void dialogue_expect_established(const struct dialogue *s)
{
	cm_expect_ack(dialogue_active(s), s->client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(dialogue_passive(s), s->server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

void dialogue_establish(struct dialogue *s)
{
	dialogue_ask(s, "");
	dialogue_hear(s);
	CHECK_EQ(rdma_accept(s->server, NULL), 0);
	dialogue_expect_established(s);
}

void dialogue_end(struct dialogue *s)
{
	CHECK_EQ(rdma_disconnect(s->client), 0);
	cm_expect_ack(dialogue_passive(s), s->server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(dialogue_active(s), s->client, RDMA_CM_EVENT_DISCONNECTED, 0);
}
