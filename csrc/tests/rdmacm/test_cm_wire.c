/* SPDX-License-Identifier: BSD-3-Clause
 * Connection management over a wire: what both ends then know of each other, and forgeries. */
#include "engine/cm/internal.h"
#include "tests/rdmacm/dialogue.h"
#include "tests/support/end.h"

#include <arpa/inet.h>
#include <string.h>

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

static void check_ends(struct dialogue *s, bool ipv6)
{
	char near[INET6_ADDRSTRLEN], far[INET6_ADDRSTRLEN];
	const struct ibv_qp_attr ours = attr_of(s->client), theirs = attr_of(s->server);

	dialogue_far_text(ipv6, 0, near);
	dialogue_far_text(ipv6, 1, far);
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
	struct dialogue s = dialogue_open(RDMA_PS_TCP, ipv6, at, to);
	struct rdma_cm_event *event;
	struct nupa_cm_mad req, rep, dreq;

	CHECK_EQ(s.client->route.path_rec->mtu, IBV_MTU_1024);
	dialogue_ask(&s, "from the client");
	event = cm_expect(dialogue_passive(&s), NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
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
	dialogue_expect_established(&s);
	check_ends(&s, ipv6);
	dialogue_end(&s);
	net_last(s.net, 0, NUPA_CM_REQ, &req);
	net_last(s.net, 1, NUPA_CM_REP, &rep);
	net_last(s.net, 0, NUPA_CM_DREQ, &dreq);
	/* The keeper finds the process by the low bits; a host cannot guess the others. */
	CHECK_EQ(NUPA_CM_NUMBER_SLOT(req.local_id), s.net->engine[0]->slot_index);
	CHECK_EQ(NUPA_CM_NUMBER_SLOT(rep.local_id), s.net->engine[1]->slot_index);
	CHECK(req.local_id >> 8 != rep.local_id >> 8);
	CHECK_EQ(dreq.qpn, s.server->qp->qp_num);
	CHECK(req.ca_guid != rep.ca_guid);
	CHECK_EQ(req.transaction, rep.transaction);
	CHECK_EQ(req.transaction, dreq.transaction);
	CHECK_EQ(req.hop_limit, 64);
	CHECK_EQ(req.path_mtu, IBV_MTU_1024);
	dialogue_close(&s);
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
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	cm_destroy(s.client);
	draw_by(s.net->engine[0], draw_by_client);
	draw_by(s.net->engine[1], draw_by_server);
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	dialogue_establish(&s);
	CHECK_EQ(attr_of(s.client).rq_psn, 0xabcdef);
	CHECK_EQ(attr_of(s.server).rq_psn, 0x123456);
	dialogue_end(&s);
	dialogue_close(&s);
}

/* A request asks for a listener for 100 ms. */
static void seek_in_vain(struct dialogue *s)
{
	net_settle(s->net);
	cm_expect_none(dialogue_active(s));
	for (uint32_t i = 0; i < 11; i++)
		net_pass(s->net, 10000000);
}

TEST(a_listener_that_comes_soon_is_found)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);
	const uint16_t port = cm_port(s.listener);

	cm_destroy(s.listener);
	dialogue_ask(&s, "");
	net_settle(s.net);
	net_pass(s.net, 10000000);
	cm_expect_none(dialogue_active(&s));
	s.listener = cm_id(&s.net->side[1], RDMA_PS_TCP);
	CHECK_EQ(cm_bind(s.listener, "", port), 0);
	CHECK_EQ(rdma_listen(s.listener, 0), 0);
	net_pass(s.net, 10000000);
	dialogue_hear(&s);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	dialogue_expect_established(&s);
	dialogue_end(&s);
	dialogue_close(&s);
}

TEST(nobody_listens_at_another_port)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	cm_destroy(s.listener);
	s.listener = cm_listener(&s.net->side[1], RDMA_PS_UDP, "");
	dialogue_ask(&s, "");
	seek_in_vain(&s);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_REJECTED,
		      CM_REJ_INVALID_SERVICE);
	dialogue_close(&s);
	s = dialogue_open(RDMA_PS_UDP, false, "", NULL);
	cm_destroy(s.listener);
	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	dialogue_ask(&s, "");
	seek_in_vain(&s);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_UNREACHABLE,
		      CM_SIDR_UNSUPPORTED);
	dialogue_close(&s);
}

TEST(a_program_rejects_with_its_data)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);
	struct rdma_cm_event *event;

	dialogue_ask(&s, "");
	dialogue_hear(&s);
	CHECK_EQ(rdma_reject(s.server, "no", 2), 0);
	event = cm_expect(dialogue_active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	CHECK_EQ(event->param.conn.private_data_len, 148);
	CHECK(!memcmp(event->param.conn.private_data, "no", 2));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	dialogue_close(&s);
}

TEST(a_path_mtu_that_one_end_cannot_carry_is_rejected)
{
	struct dialogue s = { .net = net_open(false, 4096, 1024) };

	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	dialogue_ask(&s, "");
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_MTU);
	dialogue_close(&s);
	/* The smaller one is used by both. */
	s = (struct dialogue){ .net = net_open(false, 256, 4096) };
	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	dialogue_establish(&s);
	CHECK_EQ(attr_of(s.server).path_mtu, IBV_MTU_256);
	dialogue_end(&s);
	dialogue_close(&s);
}

TEST(datagram_services_are_found)
{
	struct dialogue s = dialogue_open(RDMA_PS_UDP, false, "", NULL);
	struct rdma_cm_event *event;

	dialogue_ask(&s, "hello");
	event = cm_expect(dialogue_passive(&s), NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s.server = event->id;
	CHECK_EQ(event->param.ud.private_data_len, 180);
	CHECK(!strcmp(event->param.ud.private_data, "hello"));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s.net->side[1], s.server);
	CHECK_EQ(rdma_accept(s.server, &(struct rdma_conn_param){ .private_data = "yes",
								  .private_data_len = 3 }),
		 0);
	event = cm_expect(dialogue_active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQ(event->param.ud.private_data_len, 136);
	CHECK_EQ(event->param.ud.qp_num, s.server->qp->qp_num);
	CHECK_EQ(event->param.ud.qkey, RDMA_UDP_QKEY);
	CHECK_EQ(event->param.ud.ah_attr.grh.sgid_index, NUPA_GID_WIRE);
	CHECK_EQ(event->param.ud.ah_attr.grh.dgid.raw[15], 2);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	dialogue_close(&s);
}

/* --- forgeries ----------------------------------------------------------------------- */

TEST(a_disconnection_of_another_queue_pair_or_id_is_ignored)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);
	uint8_t bytes[NUPA_CM_MAD_BYTES];
	struct nupa_cm_mad rep, dreq = { .attribute = NUPA_CM_DREQ };

	dialogue_establish(&s);
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
	cm_expect_none(dialogue_active(&s));
	dreq.remote_id ^= 0x100;
	nupa_cm_mad_write(&dreq, bytes);
	net_inject(s.net, 0, bytes);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	dialogue_close(&s);
}

TEST(a_datagram_from_another_address_is_foreign)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);
	struct nupa_wire_entry *entry = &s.net->fabric[1]->sb->wires[0];
	uint8_t source[16] = { 0 };

	s.net->copies = net_lose_all;
	dialogue_ask(&s, "");
	nupa_engine_lock(s.net->engine[1]);
	nupa_cm_receive_mad(s.net->engine[1], 0, s.net->last[0][NUPA_CM_REQ], NUPA_CM_MAD_BYTES,
			    source);
	nupa_cm_receive_mad(s.net->engine[1], NUPA_WIRES_MAX, s.net->last[0][NUPA_CM_REQ],
			    NUPA_CM_MAD_BYTES, source);
	nupa_engine_unlock(s.net->engine[1]);
	CHECK_EQ(entry->foreign, 1);
	cm_expect_none(dialogue_passive(&s));
	dialogue_close(&s);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1); /* nobody keeps these wires' sockets */
	return test_main(argc, argv);
}
