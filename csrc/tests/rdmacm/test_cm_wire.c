/* SPDX-License-Identifier: BSD-3-Clause
 * Connection management over a wire: what both ends then know of each other, and messages that are
 * lost, there twice, or forged. */
#include "tests/rdmacm/wire_net.h"
#include "engine/cm/internal.h"
#include "tests/support/end.h"

#include <arpa/inet.h>
#include <string.h>

#define TRIES 16u /* IBTA 12.7.27: a first one and Max CM Retries */

struct scene {
	struct net *net;
	struct rdma_cm_id *listener, *client, *server; /* of sides 1, 0 and 1 */
};

static void far_text(const struct scene *s, bool ipv6, int side, char text[INET6_ADDRSTRLEN])
{
	(void)s;
	snprintf(text, INET6_ADDRSTRLEN, ipv6 ? "2001:db8::%d" : "192.0.2.%d", side + 1);
}

static struct scene scene_open(enum rdma_port_space ps, bool ipv6, const char *at, const char *to)
{
	struct scene s = { .net = net_open(ipv6, 1024, 1024) };
	char far[INET6_ADDRSTRLEN];

	far_text(&s, ipv6, 1, far);
	s.listener = cm_listener(&s.net->side[1], ps, at);
	s.client = cm_id(&s.net->side[0], ps);
	cm_resolve(&s.net->side[0], s.client, to ? to : far, cm_port(s.listener));
	return s;
}

static struct rdma_event_channel *active(const struct scene *s)
{
	return s->net->side[0].channel;
}

static struct rdma_event_channel *passive(const struct scene *s)
{
	return s->net->side[1].channel;
}

static void pass(const struct scene *s, uint64_t ns)
{
	net_settle(s->net);
	for (int i = 0; i < 2; i++) {
		cm_pass(&s->net->side[i], ns);
		net_settle(s->net);
	}
}

static void scene_close(struct scene *s)
{
	if (s->server)
		cm_destroy(s->server);
	if (s->client)
		cm_destroy(s->client);
	cm_destroy(s->listener);
	net_settle(s->net);
	net_close(s->net);
}

static void ask(struct scene *s, const char *data)
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

static void hear(struct scene *s)
{
	struct rdma_cm_event *event = cm_expect(passive(s), NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	s->server = event->id;
	CHECK(event->listen_id == s->listener);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s->net->side[1], s->server);
}

static void establish(struct scene *s)
{
	ask(s, "");
	hear(s);
	CHECK_EQ(rdma_accept(s->server, NULL), 0);
	cm_expect_ack(active(s), s->client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(passive(s), s->server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void end(struct scene *s)
{
	CHECK_EQ(rdma_disconnect(s->client), 0);
	cm_expect_ack(passive(s), s->server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(active(s), s->client, RDMA_CM_EVENT_DISCONNECTED, 0);
}

static bool has_address(const struct sockaddr *addr, const char *text)
{
	char found[INET6_ADDRSTRLEN] = "";
	struct sockaddr_storage copy;
	uint8_t bytes[16];

	CHECK_EQ(cm_addr_copy(addr, &copy), 0);
	cm_addr_to_wire(&copy, bytes);
	inet_ntop(copy.ss_family, bytes, found, sizeof(found));
	return !strcmp(found, text);
}

static struct ibv_qp_attr attr_of(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(nupa_query_qp(id->qp, &attr, 0xfffff, &init), 0);
	return attr;
}

/* --- facts --------------------------------------------------------------------------- */

static void check_ends(struct scene *s, bool ipv6)
{
	char near[INET6_ADDRSTRLEN], far[INET6_ADDRSTRLEN];
	const struct ibv_qp_attr ours = attr_of(s->client), theirs = attr_of(s->server);

	far_text(s, ipv6, 0, near);
	far_text(s, ipv6, 1, far);
	CHECK(has_address(rdma_get_local_addr(s->client), near));
	CHECK(has_address(rdma_get_local_addr(s->server), far));
	CHECK(has_address(rdma_get_peer_addr(s->server), near));
	CHECK_EQ(rdma_get_src_port(s->client), rdma_get_dst_port(s->server));
	CHECK_EQ(rdma_get_src_port(s->server), rdma_get_dst_port(s->client));
	CHECK_EQ(ours.dest_qp_num, s->server->qp->qp_num);
	CHECK_EQ(theirs.dest_qp_num, s->client->qp->qp_num);
	CHECK_EQ(ours.path_mtu, IBV_MTU_1024);
	CHECK_EQ(theirs.path_mtu, IBV_MTU_1024);
	CHECK_EQ(ours.sq_psn, theirs.rq_psn);
	CHECK_EQ(ours.rq_psn, theirs.sq_psn);
	CHECK_EQ(theirs.timeout, CM_WIRE_QP_TIMEOUT);
	CHECK_EQ(ours.ah_attr.grh.sgid_index, NUPA_GID_WIRE);
	CHECK_EQ(theirs.ah_attr.grh.sgid_index, NUPA_GID_WIRE);
}

static void connection(bool ipv6, const char *at, const char *to)
{
	struct scene s = scene_open(RDMA_PS_TCP, ipv6, at, to);
	struct rdma_cm_event *event;
	struct nupa_cm_mad req, rep, dreq;

	CHECK_EQ(s.client->route.path_rec->mtu, IBV_MTU_1024);
	ask(&s, "from the client");
	event = cm_expect(passive(&s), NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s.server = event->id;
	CHECK_EQ(event->param.conn.private_data_len, 56);
	CHECK(!strcmp(event->param.conn.private_data, "from the client"));
	CHECK_EQ(event->param.conn.responder_resources, 2);
	CHECK_EQ(event->param.conn.initiator_depth, 3);
	CHECK_EQ(event->param.conn.retry_count, 5);
	CHECK_EQ(event->param.conn.rnr_retry_count, 6);
	CHECK_EQ(event->param.conn.flow_control, 1);
	CHECK_EQ(event->param.conn.qp_num, s.client->qp->qp_num);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s.net->side[1], s.server);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	check_ends(&s, ipv6);
	end(&s);
	net_last(s.net, 0, NUPA_CM_REQ, &req);
	net_last(s.net, 1, NUPA_CM_REP, &rep);
	net_last(s.net, 0, NUPA_CM_DREQ, &dreq);
	/* The keeper finds the process by the low bits; a host cannot guess the others. */
	CHECK_EQ(req.local_id & 0xff, s.net->engine[0]->slot_index);
	CHECK_EQ(rep.local_id & 0xff, s.net->engine[1]->slot_index);
	CHECK(req.local_id >> 8 != rep.local_id >> 8);
	CHECK_EQ(dreq.qpn, s.server->qp->qp_num);
	CHECK(req.ca_guid != rep.ca_guid);
	CHECK_EQ(req.transaction, rep.transaction);
	CHECK_EQ(req.transaction, dreq.transaction);
	CHECK_EQ(req.hop_limit, 64);
	CHECK_EQ(req.path_mtu, IBV_MTU_1024);
	scene_close(&s);
}

TEST(both_ends_know_each_other_by_the_addresses_of_the_wire)
{
	connection(false, "", NULL);
	connection(true, "::", NULL);
}

TEST(a_listener_at_the_local_address_or_at_that_of_the_fabric_is_reached)
{
	connection(false, "192.0.2.2", NULL);
	connection(false, "10.0.0.1", NULL);
	connection(true, "2001:db8::2", NULL);
	connection(false, "::", NULL);
}

TEST(the_address_in_the_fabric_is_another_name_of_the_host)
{
	connection(false, "", "10.0.0.2");
}

static uint32_t draw_by_client(void)
{
	return 0x77abcdef;
}

static uint32_t draw_by_server(void)
{
	return 0x99123456;
}

static void draw_by(struct nupa_engine *engine, uint32_t (*draw)(void))
{
	nupa_engine_lock(engine);
	engine->random = draw;
	nupa_engine_unlock(engine);
}

/* Each end names the first PSN that it expects (Starting PSN): a random word of its engine. */
TEST(first_psns_are_drawn)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	cm_destroy(s.client);
	draw_by(s.net->engine[0], draw_by_client);
	draw_by(s.net->engine[1], draw_by_server);
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	establish(&s);
	CHECK_EQ(attr_of(s.client).rq_psn, 0xabcdef);
	CHECK_EQ(attr_of(s.server).rq_psn, 0x123456);
	end(&s);
	scene_close(&s);
}

/* A request asks for a listener for 100 ms. */
static void seek_in_vain(struct scene *s)
{
	net_settle(s->net);
	cm_expect_none(active(s));
	for (uint32_t i = 0; i < 11; i++)
		net_pass(s->net, 10000000);
}

TEST(a_listener_that_comes_soon_is_found)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);
	const uint16_t port = cm_port(s.listener);

	cm_destroy(s.listener);
	ask(&s, "");
	net_settle(s.net);
	net_pass(s.net, 10000000);
	cm_expect_none(active(&s));
	s.listener = cm_id(&s.net->side[1], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(s.listener, "", port), 0);
	CHECK_EQ(rdma_listen(s.listener, 0), 0);
	net_pass(s.net, 10000000);
	hear(&s);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	end(&s);
	scene_close(&s);
}

TEST(nobody_listens_at_another_port)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	cm_destroy(s.listener);
	s.listener = cm_listener(&s.net->side[1], RDMA_PS_UDP, "");
	ask(&s, "");
	seek_in_vain(&s);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_SERVICE);
	scene_close(&s);
	s = scene_open(RDMA_PS_UDP, false, "", NULL);
	cm_destroy(s.listener);
	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	ask(&s, "");
	seek_in_vain(&s);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_UNSUPPORTED);
	scene_close(&s);
}

TEST(a_program_rejects_with_its_data)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);
	struct rdma_cm_event *event;

	ask(&s, "");
	hear(&s);
	CHECK_EQ(rdma_reject(s.server, "no", 2), 0);
	event = cm_expect(active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	CHECK_EQ(event->param.conn.private_data_len, 148);
	CHECK(!memcmp(event->param.conn.private_data, "no", 2));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	scene_close(&s);
}

TEST(a_path_mtu_that_one_end_cannot_carry_is_rejected)
{
	struct scene s = { .net = net_open(false, 4096, 1024) };

	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	ask(&s, "");
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_MTU);
	scene_close(&s);
	/* The smaller one is used by both. */
	s = (struct scene){ .net = net_open(false, 256, 4096) };
	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	establish(&s);
	CHECK_EQ(attr_of(s.server).path_mtu, IBV_MTU_256);
	end(&s);
	scene_close(&s);
}

TEST(datagram_services_are_found)
{
	struct scene s = scene_open(RDMA_PS_UDP, false, "", NULL);
	struct rdma_cm_event *event;

	ask(&s, "hello");
	event = cm_expect(passive(&s), NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s.server = event->id;
	CHECK_EQ(event->param.ud.private_data_len, 180);
	CHECK(!strcmp(event->param.ud.private_data, "hello"));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s.net->side[1], s.server);
	CHECK_EQ(rdma_accept(s.server, &(struct rdma_conn_param){ .private_data = "yes",
								  .private_data_len = 3 }),
		 0);
	event = cm_expect(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQ(event->param.ud.private_data_len, 136);
	CHECK_EQ(event->param.ud.qp_num, s.server->qp->qp_num);
	CHECK_EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
	CHECK_EQ(event->param.ud.ah_attr.grh.sgid_index, NUPA_GID_WIRE);
	CHECK_EQ(event->param.ud.ah_attr.grh.dgid.raw[15], 2);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	scene_close(&s);
}

/* --- a network ----------------------------------------------------------------------- */

/* The first message of one kind is lost. */
static uint32_t first_is_lost(struct net *net, int from, const struct nupa_cm_mad *mad)
{
	return mad->attribute == net->arg && net->sent[from][mad->attribute] == 1 ? 0 : 1;
}

static uint32_t all_are_lost(struct net *net, int from, const struct nupa_cm_mad *mad)
{
	(void)net, (void)from, (void)mad;
	return 0;
}

static uint32_t all_come_twice(struct net *net, int from, const struct nupa_cm_mad *mad)
{
	(void)net, (void)from, (void)mad;
	return 2;
}

static void lose_first(struct net *net, enum nupa_cm_attribute attribute)
{
	pthread_mutex_lock(&net->mutex);
	net->copies = first_is_lost;
	net->arg = attribute;
	pthread_mutex_unlock(&net->mutex);
}

TEST(a_message_that_is_lost_is_sent_again)
{
	static const enum nupa_cm_attribute kinds[] = { NUPA_CM_REQ, NUPA_CM_REP, NUPA_CM_RTU,
							NUPA_CM_DREQ, NUPA_CM_DREP };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const enum nupa_cm_attribute lost = kinds[i];
		struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

		lose_first(s.net, lost);
		ask(&s, "");
		if (lost == NUPA_CM_REQ)
			pass(&s, CM_RESPONSE_NS);
		hear(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		if (lost == NUPA_CM_REP)
			pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		if (lost == NUPA_CM_RTU)
			pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
		CHECK_EQ(rdma_disconnect(s.client), 0);
		if (lost == NUPA_CM_DREQ || lost == NUPA_CM_DREP)
			pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
		CHECK(net_sent(s.net, lost == NUPA_CM_REP || lost == NUPA_CM_DREP, lost) >= 2);
		scene_close(&s);
	}
}

TEST(a_lost_rtu_is_made_up_for_by_the_first_packet)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	lose_first(s.net, NUPA_CM_RTU);
	ask(&s, "");
	hear(&s);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	net_settle(s.net);
	cm_expect_none(passive(&s));
	CHECK_EQ(rdma_notify(s.server, IBV_EVENT_COMM_EST), 0);
	cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	end(&s);
	scene_close(&s);
}

TEST(messages_of_datagram_services_that_are_lost_are_sent_again)
{
	static const enum nupa_cm_attribute kinds[] = { NUPA_CM_SIDR_REQ, NUPA_CM_SIDR_REP };

	for (size_t i = 0; i < 2; i++) {
		struct scene s = scene_open(RDMA_PS_UDP, false, "", NULL);

		lose_first(s.net, kinds[i]);
		ask(&s, "");
		if (kinds[i] == NUPA_CM_SIDR_REQ)
			pass(&s, CM_RESPONSE_NS);
		hear(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		if (kinds[i] == NUPA_CM_SIDR_REP)
			pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		net_settle(s.net);
		cm_expect_none(passive(&s));
		scene_close(&s);
	}
}

TEST(messages_that_come_twice_are_executed_once)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	s.net->copies = all_come_twice;
	establish(&s);
	net_settle(s.net);
	cm_expect_none(active(&s));
	cm_expect_none(passive(&s));
	end(&s);
	scene_close(&s);
	s = scene_open(RDMA_PS_UDP, false, "", NULL);
	s.net->copies = all_come_twice;
	ask(&s, "");
	hear(&s);
	net_settle(s.net);
	cm_expect_none(passive(&s));
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	net_settle(s.net);
	cm_expect_none(active(&s));
	scene_close(&s);
}

TEST(a_host_that_does_not_answer_is_unreachable_after_the_last_try)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP };

	for (size_t i = 0; i < 2; i++) {
		struct scene s = scene_open(spaces[i], false, "", NULL);
		const enum nupa_cm_attribute kind = i ? NUPA_CM_SIDR_REQ : NUPA_CM_REQ;

		s.net->copies = all_are_lost;
		ask(&s, "");
		for (uint32_t n = 1; n < TRIES; n++) {
			CHECK_EQ(net_sent(s.net, 0, kind), n);
			cm_pass(&s.net->side[0], CM_RESPONSE_NS);
			cm_expect_none(active(&s));
		}
		CHECK_EQ(net_sent(s.net, 0, kind), TRIES);
		cm_pass(&s.net->side[0], CM_RESPONSE_NS);
		cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		CHECK_EQ(net_sent(s.net, 0, kind), TRIES);
		scene_close(&s);
	}
}

TEST(the_first_repetitions_come_early)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	s.net->copies = all_are_lost;
	ask(&s, "");
	for (uint32_t early = 4, n = 1; early; early--, n++) {
		cm_pass(&s.net->side[0], CM_RESPONSE_NS >> early);
		CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), n + 1);
	}
	cm_pass(&s.net->side[0], CM_RESPONSE_NS >> 1);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), 5);
	scene_close(&s);
}

/* IBTA 12.6.6: an MRA says for how long its sender is not to be asked again. */
static void check_patience(struct scene *s, int side, enum nupa_cm_attribute attribute,
			   uint8_t service_timeout)
{
	const uint32_t n = net_sent(s->net, side, attribute);

	cm_pass(&s->net->side[side], (UINT64_C(4096) << service_timeout) - 1);
	CHECK_EQ(net_sent(s->net, side, attribute), n);
	cm_expect_none(s->net->side[side].channel);
	cm_pass(&s->net->side[side], 1);
	net_settle(s->net);
}

static void check_acknowledgement(struct scene *s, int by, enum nupa_cm_attribute attribute,
				  enum nupa_cm_about about)
{
	struct nupa_cm_mad repeated, mra;

	cm_pass(&s->net->side[1 - by], CM_RESPONSE_NS);
	net_settle(s->net);
	CHECK_EQ(net_sent(s->net, 1 - by, attribute), 2);
	CHECK_EQ(net_sent(s->net, by, NUPA_CM_MRA), 1);
	net_last(s->net, 1 - by, attribute, &repeated);
	net_last(s->net, by, NUPA_CM_MRA, &mra);
	CHECK_EQ(mra.about, about);
	CHECK_EQ(mra.service_timeout, CM_SERVICE_TIMEOUT);
	CHECK_EQ(mra.remote_id, repeated.local_id);
	CHECK_EQ(mra.transaction, repeated.transaction);
	check_patience(s, 1 - by, attribute, CM_SERVICE_TIMEOUT);
	CHECK_EQ(net_sent(s->net, 1 - by, attribute), 3);
	CHECK_EQ(net_sent(s->net, by, NUPA_CM_MRA), 2);
}

TEST(what_comes_again_while_a_program_takes_long_is_acknowledged)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	ask(&s, "");
	hear(&s);
	check_acknowledgement(&s, 1, NUPA_CM_REQ, NUPA_CM_ABOUT_REQ);
	cm_expect_none(passive(&s));
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	net_settle(s.net);
	check_acknowledgement(&s, 0, NUPA_CM_REP, NUPA_CM_ABOUT_REP);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	end(&s);
	scene_close(&s);
}

TEST(a_rejection_that_was_delayed_is_sent_again)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	ask(&s, "");
	hear(&s);
	check_acknowledgement(&s, 1, NUPA_CM_REQ, NUPA_CM_ABOUT_REQ);
	lose_first(s.net, NUPA_CM_REJ);
	CHECK_EQ(rdma_reject(s.server, NULL, 0), 0);
	cm_destroy(s.server);
	s.server = NULL;
	net_settle(s.net);
	cm_expect_none(active(&s));
	cm_pass(&s.net->side[1], CM_RESPONSE_NS >> 4);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	scene_close(&s);
}

static void acknowledge(struct scene *s, enum nupa_cm_about about, uint8_t service_timeout)
{
	struct nupa_cm_mad req, mra = { .attribute = NUPA_CM_MRA,
					.local_id = 0x4242,
					.about = (uint8_t)about,
					.service_timeout = service_timeout };
	uint8_t bytes[NUPA_CM_MAD_BYTES];

	net_last(s->net, 0, NUPA_CM_REQ, &req);
	mra.remote_id = req.local_id;
	nupa_cm_mad_write(&mra, bytes);
	net_inject(s->net, 0, bytes);
}

TEST(a_requester_waits_as_long_as_an_acknowledgement_says)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);

	s.net->copies = all_are_lost;
	ask(&s, "");
	acknowledge(&s, NUPA_CM_ABOUT_REQ, CM_SERVICE_TIMEOUT + 2);
	acknowledge(&s, NUPA_CM_ABOUT_REQ, 1); /* one for each repetition counts */
	check_patience(&s, 0, NUPA_CM_REQ, CM_SERVICE_TIMEOUT + 2);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), 2);
	/* It never waits for less than without: an eighth of the response timeout, this time. */
	acknowledge(&s, NUPA_CM_ABOUT_REQ, 0);
	check_patience(&s, 0, NUPA_CM_REQ, CM_RESPONSE_TIMEOUT - 3);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), 3);
	/* That of another message is none. */
	acknowledge(&s, NUPA_CM_ABOUT_REP, CM_SERVICE_TIMEOUT);
	check_patience(&s, 0, NUPA_CM_REQ, CM_RESPONSE_TIMEOUT - 2);
	for (uint32_t n = 4; n < TRIES; n++) {
		CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), n);
		cm_pass(&s.net->side[0], CM_RESPONSE_NS);
	}
	/* Nor does it give up before. */
	acknowledge(&s, NUPA_CM_ABOUT_REQ, CM_SERVICE_TIMEOUT);
	check_patience(&s, 0, NUPA_CM_REQ, CM_SERVICE_TIMEOUT);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), TRIES);
	scene_close(&s);
}

TEST(a_request_that_is_given_up_ends_at_the_other_end_too)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);
	struct nupa_cm_mad rej;

	ask(&s, "");
	hear(&s);
	cm_destroy(s.client);
	s.client = NULL;
	net_settle(s.net);
	net_last(s.net, 0, NUPA_CM_REJ, &rej);
	CHECK_EQ(rej.reason, CM_REJ_TIMEOUT);
	CHECK_EQ(rej.information_bytes, 8);
	/* No id of ours is known there yet, so the keeper cannot say for whom it is. */
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(passive(&s), s.server, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_ID);
	scene_close(&s);
}

/* --- forgeries ----------------------------------------------------------------------- */

TEST(a_disconnection_of_another_queue_pair_or_id_is_ignored)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);
	uint8_t bytes[NUPA_CM_MAD_BYTES];
	struct nupa_cm_mad rep, dreq = { .attribute = NUPA_CM_DREQ };

	establish(&s);
	net_last(s.net, 1, NUPA_CM_REP, &rep);
	dreq.local_id = rep.local_id;
	dreq.remote_id = rep.remote_id;
	dreq.qpn = s.client->qp->qp_num + 1;
	nupa_cm_mad_write(&dreq, bytes);
	net_inject(s.net, 0, bytes);
	dreq.qpn--;
	dreq.local_id++;
	nupa_cm_mad_write(&dreq, bytes);
	net_inject(s.net, 0, bytes);
	dreq.local_id--;
	dreq.remote_id ^= 0x100;
	nupa_cm_mad_write(&dreq, bytes);
	net_inject(s.net, 0, bytes);
	cm_expect_none(active(&s));
	dreq.remote_id ^= 0x100;
	nupa_cm_mad_write(&dreq, bytes);
	net_inject(s.net, 0, bytes);
	cm_expect_ack(active(&s), s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	scene_close(&s);
}

TEST(a_datagram_from_another_address_is_foreign)
{
	struct scene s = scene_open(RDMA_PS_TCP, false, "", NULL);
	struct nupa_wire_entry *entry = &s.net->fabric[1]->sb->wires[0];
	uint8_t source[16] = { 0 };

	s.net->copies = all_are_lost;
	ask(&s, "");
	nupa_engine_lock(s.net->engine[1]);
	nupa_cm_receive_mad(s.net->engine[1], 0, s.net->last[0][NUPA_CM_REQ], NUPA_CM_MAD_BYTES,
			    source);
	nupa_cm_receive_mad(s.net->engine[1], NUPA_WIRES_MAX, s.net->last[0][NUPA_CM_REQ],
			    NUPA_CM_MAD_BYTES, source);
	nupa_engine_unlock(s.net->engine[1]);
	CHECK_EQ(entry->foreign, 1);
	cm_expect_none(passive(&s));
	scene_close(&s);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1); /* nobody keeps these wires' sockets */
	return test_main(argc, argv);
}
