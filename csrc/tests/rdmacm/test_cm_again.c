/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of connection management that are lost, late or there twice (IBTA 12.9).  They are sent
 * again, answered again, given up in the end, and never executed twice. */
#include "tests/support/cm_end.h"
#include "engine/cm/internal.h"
#include "tests/support/faults.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

/* In the order in which a connection sends them; DREP answers at once. */
enum { REQ, REP, RTU, DREQ, DREP, MESSAGES };

static void await_hits(struct nupa_fabric *fabric, uint32_t fault, uint64_t hits)
{
	for (uint64_t until_ns = test_now_ns() + WAIT_NS; fault_get(fabric, fault).hits < hits;)
		CHECK(test_now_ns() < until_ns);
	CHECK_EQ(fault_get(fabric, fault).hits, hits);
}

static void pass(struct cm_pair *pair, uint64_t ns)
{
	cm_pass(&pair->side[0], ns);
	cm_pass(&pair->side[1], ns);
}

struct scene {
	struct cm_pair pair;
	struct rdma_event_channel *passive, *active;
	struct rdma_cm_id *listener, *client, *server;
};

static struct scene scene_open(enum rdma_port_space ps)
{
	struct scene s = { .pair = cm_pair_open() };

	s.passive = s.pair.side[0].channel;
	s.active = s.pair.side[1].channel;
	s.listener = cm_listener(&s.pair.side[0], ps, "");
	s.client = cm_id(&s.pair.side[1], ps);
	cm_resolve(&s.pair.side[1], s.client, "10.0.0.1", cm_port(s.listener));
	cm_make_qp(&s.pair.side[1], s.client);
	return s;
}

/* Timewait may be over on a busy machine. */
static void expect_no_more(struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	while (poll(&wait, 1, 0) == 1)
		cm_expect_ack(channel, NULL, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

static void scene_close(struct scene *s)
{
	expect_no_more(s->passive);
	expect_no_more(s->active);
	if (s->server)
		cm_destroy(s->server);
	if (s->client)
		cm_destroy(s->client);
	cm_destroy(s->listener);
	cm_pair_close(&s->pair);
}

/* Up to a server that has the request and a QP. */
static void ask(struct scene *s)
{
	struct rdma_cm_event *event = cm_expect(s->passive, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	s->server = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s->pair.side[0], s->server);
}

static void establish(struct scene *s)
{
	CHECK_EQ(rdma_connect(s->client, NULL), 0);
	ask(s);
	CHECK_EQ(rdma_accept(s->server, NULL), 0);
	cm_expect_ack(s->active, s->client, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (!rdma_is_ud(s->client->qp_type))
		cm_expect_ack(s->passive, s->server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* --- once ---------------------------------------------------------------------------- */

TEST(a_message_that_is_lost_is_sent_again)
{
	for (uint64_t lost = 0; lost < MESSAGES; lost++) {
		struct scene s = scene_open(RDMA_PS_TCP);
		uint32_t fault = fault_lose(s.pair.fabric, lost);

		CHECK_EQ(rdma_connect(s.client, NULL), 0);
		if (lost == REQ) {
			await_hits(s.pair.fabric, fault, 1);
			pass(&s.pair, CM_RESPONSE_NS);
		}
		ask(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		if (lost == REP) {
			await_hits(s.pair.fabric, fault, 1);
			pass(&s.pair, CM_RESPONSE_NS);
		}
		cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		if (lost == RTU) {
			await_hits(s.pair.fabric, fault, 1);
			pass(&s.pair, CM_RESPONSE_NS);
		}
		cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
		CHECK_EQ(rdma_disconnect(s.client), 0);
		if (lost == DREQ) {
			await_hits(s.pair.fabric, fault, 1);
			pass(&s.pair, CM_RESPONSE_NS);
		}
		cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
		if (lost == DREP) {
			await_hits(s.pair.fabric, fault, 1);
			cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
		}
		cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
		scene_close(&s);
	}
}

TEST(a_datagram_service_is_asked_again)
{
	for (uint64_t lost = 0; lost < 2; lost++) {
		struct scene s = scene_open(RDMA_PS_UDP);
		uint32_t fault = fault_lose(s.pair.fabric, lost);

		CHECK_EQ(rdma_connect(s.client, NULL), 0);
		if (lost == 0) {
			await_hits(s.pair.fabric, fault, 1);
			pass(&s.pair, CM_RESPONSE_NS);
		}
		ask(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		if (lost == 1) {
			await_hits(s.pair.fabric, fault, 1);
			pass(&s.pair, CM_RESPONSE_NS);
		}
		cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		scene_close(&s);
	}
}

/* --- never --------------------------------------------------------------------------- */

/* All 16 of them are lost; only the last wait ends it. */
static void all_are_lost(struct scene *s, uint32_t fault, int side)
{
	uint64_t begun_ns = test_now_ns();

	for (uint64_t sent = 1; sent <= CM_RETRIES + 1; sent++) {
		await_hits(s->pair.fabric, fault, sent);
		expect_no_more(s->pair.side[side].channel);
		cm_pass(&s->pair.side[side], CM_RESPONSE_NS / 2);
		expect_no_more(s->pair.side[side].channel);
		/* Unless the machine stood still for the other half. */
		if (test_now_ns() - begun_ns < CM_RESPONSE_NS / 2)
			CHECK_EQ(fault_get(s->pair.fabric, fault).hits, sent);
		begun_ns = test_now_ns();
		cm_pass(&s->pair.side[side], CM_RESPONSE_NS / 2);
	}
}

static void a_request_is_given_up(enum rdma_port_space ps)
{
	struct scene s = scene_open(ps);
	struct nupa_fault_info drop = fault_of(NUPA_FAULT_DROP, 1);
	uint32_t fault = fault_add(s.pair.fabric, &drop);

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	all_are_lost(&s, fault, 1);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	scene_close(&s);
}

TEST(a_connection_request_is_given_up)
{
	a_request_is_given_up(RDMA_PS_TCP);
}

TEST(a_datagram_request_is_given_up)
{
	a_request_is_given_up(RDMA_PS_UDP);
}

TEST(a_reply_is_given_up)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	struct nupa_fault_info drop = fault_of(NUPA_FAULT_DROP, 1);
	uint32_t fault;

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	ask(&s);
	fault = fault_add(s.pair.fabric, &drop);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	all_are_lost(&s, fault, 0);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	scene_close(&s);
}

TEST(a_disconnection_is_given_up)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	struct nupa_fault_info drop = fault_of(NUPA_FAULT_DROP, 1);
	uint32_t fault;

	establish(&s);
	fault = fault_add(s.pair.fabric, &drop);
	CHECK_EQ(rdma_disconnect(s.client), 0);
	all_are_lost(&s, fault, 1);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	scene_close(&s);
}

/* --- twice --------------------------------------------------------------------------- */

TEST(duplicate_messages_are_executed_once)
{
	struct nupa_fault_info duplicate = fault_of(NUPA_FAULT_DUPLICATE, 1);

	for (int datagrams = 0; datagrams < 2; datagrams++) {
		struct scene s = scene_open(datagrams ? RDMA_PS_UDP : RDMA_PS_TCP);

		fault_add(s.pair.fabric, &duplicate);
		establish(&s);
		if (!datagrams) {
			CHECK_EQ(rdma_disconnect(s.client), 0);
			cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
			cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
		}
		scene_close(&s);
	}
}

/* The server's id is gone when the request comes again. */
TEST(a_server_that_rejected_and_forgot_rejects_again)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	uint32_t fault = fault_lose(s.pair.fabric, 1);

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	ask(&s);
	CHECK_EQ(rdma_reject(s.server, "no", 2), 0);
	cm_destroy(s.server);
	s.server = NULL;
	await_hits(s.pair.fabric, fault, 1);
	cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	scene_close(&s);
}

TEST(a_datagram_server_that_answered_and_forgot_answers_again)
{
	struct scene s = scene_open(RDMA_PS_UDP);
	uint32_t fault = fault_lose(s.pair.fabric, 1);

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	ask(&s);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_destroy(s.server);
	s.server = NULL;
	await_hits(s.pair.fabric, fault, 1);
	cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	scene_close(&s);
}

/* rdma_destroy_id disconnects, and is over at once. */
TEST(the_disconnection_of_a_destroyed_id_is_sent_again)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	uint32_t fault;

	establish(&s);
	fault = fault_lose(s.pair.fabric, 0);
	cm_destroy(s.client);
	s.client = NULL;
	await_hits(s.pair.fabric, fault, 1);
	cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	scene_close(&s);
}

TEST(remnants_end)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	struct nupa_cm *passive = nupa_engine_of(s.pair.side[0].context)->cm;
	struct nupa_cm *active = nupa_engine_of(s.pair.side[1].context)->cm;

	establish(&s);
	CHECK_EQ(rdma_disconnect(s.client), 0);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(s.client);
	cm_destroy(s.server);
	s.client = s.server = NULL;
	CHECK_EQ(active->n_left, 0);
	CHECK_EQ(passive->n_left, 1); /* the request may come again */
	cm_pass(&s.pair.side[0], (CM_RETRIES + 1) * CM_RESPONSE_NS);
	CHECK_EQ(passive->n_left, 0);
	scene_close(&s);
}

/* --- ids that there are not ---------------------------------------------------------- */

TEST(a_reply_to_a_destroyed_id_is_rejected)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	uint32_t fault;

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	ask(&s);
	fault = fault_lose(s.pair.fabric, 0);
	cm_destroy(s.client); /* its REJ is lost */
	s.client = NULL;
	await_hits(s.pair.fabric, fault, 1);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_ID);
	scene_close(&s);
}

TEST(a_destroyed_id_is_disconnected)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	uint32_t fault;

	establish(&s);
	fault = fault_lose(s.pair.fabric, 1); /* DREP */
	CHECK_EQ(rdma_disconnect(s.server), 0);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(s.client);
	s.client = NULL;
	await_hits(s.pair.fabric, fault, 1);
	cm_pass(&s.pair.side[0], CM_RESPONSE_NS);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
	scene_close(&s);
}

/* --- patience ------------------------------------------------------------------------ */

/* MRA: each repetition buys the program as much time as all of them together. */
TEST(a_program_that_is_slow_to_answer_is_waited_for)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	const struct nupa_cm_id *client = rdma_private_of(s.client)->cm;

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	ask(&s);
	for (int i = 0; i < 4; i++) {
		cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
		for (uint64_t until_ns = test_now_ns() + WAIT_NS;;) {
			bool extended;

			nupa_engine_lock(client->engine);
			extended = client->sent.extended;
			nupa_engine_unlock(client->engine);
			if (extended)
				break;
			CHECK(test_now_ns() < until_ns);
		}
		cm_pass(&s.pair.side[1], CM_RETRIES * CM_RESPONSE_NS);
		cm_expect_none(s.active);
		cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
	}
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	/* And the other way: the response waits for the program. */
	for (int i = 0; i < 4; i++)
		cm_pass(&s.pair.side[0], CM_RESPONSE_NS);
	cm_expect_none(s.passive);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_none(s.passive);
	scene_close(&s);
}

/* Messages that it has not taken are not lost, nor on a path with faults (K5). */
TEST(a_peer_that_is_stopped_is_waited_for)
{
	for (int faulty = 0; faulty < 2; faulty++) {
		struct scene s = scene_open(RDMA_PS_TCP);
		struct nupa_engine *server = nupa_engine_of(s.pair.side[0].context);
		struct nupa_fault_info delay = fault_of(NUPA_FAULT_DELAY, 1);

		if (faulty)
			fault_add(s.pair.fabric, &delay);
		nupa_engine_lock(server); /* stopped */
		CHECK_EQ(rdma_connect(s.client, NULL), 0);
		for (uint32_t i = 0; i < 4 * CM_RETRIES; i++)
			cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
		cm_expect_none(s.active);
		nupa_engine_unlock(server);
		ask(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
		nupa_engine_lock(server);
		CHECK_EQ(rdma_disconnect(s.client), 0);
		for (uint32_t i = 0; i < 4 * CM_RETRIES; i++)
			cm_pass(&s.pair.side[1], CM_RESPONSE_NS);
		cm_expect_none(s.active);
		nupa_engine_unlock(server);
		cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
		scene_close(&s);
	}
}

/* The answer came while we were stopped ourselves. */
TEST(an_answer_that_waits_in_our_ring_counts)
{
	struct scene s = scene_open(RDMA_PS_TCP);
	struct nupa_cm_id *client = rdma_private_of(s.client)->cm;
	struct nupa_channel *channel;

	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	ask(&s);
	for (uint64_t until_ns = test_now_ns() + WAIT_NS;;) {
		nupa_engine_lock(client->engine);
		channel = client->peer;
		if (channel->rx_open)
			break; /* stopped from here on */
		nupa_engine_unlock(client->engine);
		CHECK(test_now_ns() < until_ns);
	}
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	for (uint64_t until_ns = test_now_ns() + WAIT_NS; !nupa_rx_ready(&channel->rx);)
		CHECK(test_now_ns() < until_ns);
	client->sent.tries = 0;
	client->deadline_ns = 1;
	nupa_cm_run_timers(client->engine);
	CHECK_EQ(client->state, CM_REP_RECEIVED);
	nupa_engine_unlock(client->engine);
	cm_expect_ack(s.active, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(s.passive, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	scene_close(&s);
}
