/* SPDX-License-Identifier: BSD-3-Clause
 * Failures around rdma_cm: processes that die or stop, links that are down, answers that never
 * come, messages that lie. */
#include "tests/support/cm_end.h"
#include "engine/cm/internal.h"
#include "tests/support/end.h"
#include "region/region.h"
#include "region/slot_life.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT 4713

/* --- another process, which serves --------------------------------------------------- */

enum habit { IGNORES_REQUESTS, ACCEPTS };

struct server {
	pid_t pid;
	int go[2];    /* a byte: begin */
	int ready[2]; /* a byte: it listens, or got an event */
};

/* On host 0.  To be forked before this process has an attachment. */
static struct server server_fork(struct nupa_fabric *fabric, enum habit habit)
{
	struct server server;
	struct rdma_cm_id *listener;
	struct cm_side side;
	char byte;

	CHECK_EQ(pipe(server.go), 0);
	CHECK_EQ(pipe(server.ready), 0);
	server.pid = fork();
	CHECK(server.pid >= 0);
	if (server.pid)
		return server;
	CHECK_EQ(close(server.go[1]), 0);
	if (read(server.go[0], &byte, 1) != 1) /* not needed */
		_exit(0);
	side = cm_side_open(fabric, 0);
	listener = cm_id(&side, RDMA_PS_TCP);
	CHECK_EQ(cm_bind(listener, "", PORT), 0);
	CHECK_EQ(rdma_listen(listener, 0), 0);
	for (;;) {
		struct rdma_cm_event *event;

		CHECK_EQ(write(server.ready[1], "", 1), 1);
		CHECK_EQ(rdma_get_cm_event(side.channel, &event), 0);
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && habit == ACCEPTS) {
			cm_make_qp(&side, event->id);
			CHECK_EQ(rdma_accept(event->id, NULL), 0);
		}
		CHECK_EQ(rdma_ack_cm_event(event), 0);
	}
}

static void await(const struct server *server)
{
	char byte;

	CHECK_EQ(read(server->ready[0], &byte, 1), 1);
}

static void begin(const struct server *server)
{
	CHECK_EQ(write(server->go[1], "", 1), 1);
	await(server);
}

static void end(const struct server *server)
{
	CHECK_EQ(kill(server->pid, SIGKILL), 0);
	CHECK_EQ(waitpid(server->pid, NULL, 0), server->pid);
}

struct scene {
	struct nupa_fabric *fabric;
	struct cm_side side;
	struct server server, next;
	struct rdma_cm_id *client;
};

/* The request of scene->client is on its way. */
static struct scene scene_open(enum habit habit)
{
	struct scene scene = { .fabric = test_fabric() };

	scene.server = server_fork(scene.fabric, habit);
	scene.next = server_fork(scene.fabric, ACCEPTS);
	begin(&scene.server);
	scene.side = cm_side_open(scene.fabric, 1);
	scene.client = cm_id(&scene.side, RDMA_PS_TCP);
	cm_resolve(&scene.side, scene.client, "10.0.0.1", PORT);
	cm_make_qp(&scene.side, scene.client);
	CHECK_EQ(rdma_connect(scene.client, NULL), 0);
	return scene;
}

/* The port can be served again, and is. */
static void scene_close(struct scene *scene)
{
	struct rdma_cm_id *next;

	cm_destroy(scene->client);
	begin(&scene->next);
	next = cm_id(&scene->side, RDMA_PS_TCP);
	cm_resolve(&scene->side, next, "10.0.0.1", PORT);
	cm_make_qp(&scene->side, next);
	CHECK_EQ(rdma_connect(next, NULL), 0);
	cm_expect_ack(scene->side.channel, next, RDMA_CM_EVENT_ESTABLISHED, 0);
	end(&scene->next);
	cm_expect_ack(scene->side.channel, next, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(next);
	cm_side_close(&scene->side);
	nupa_fabric_put(scene->fabric);
}

TEST(a_server_that_dies_with_the_request_rejects_it)
{
	struct scene scene = scene_open(IGNORES_REQUESTS);

	await(&scene.server); /* it got the request */
	end(&scene.server);
	cm_expect_ack(scene.side.channel, scene.client, RDMA_CM_EVENT_REJECTED, 28);
	CHECK_EQ(cm_qp_state(scene.client), IBV_QPS_ERR);
	scene_close(&scene);
}

TEST(a_server_that_dies_disconnects)
{
	struct scene scene = scene_open(ACCEPTS);

	cm_expect_ack(scene.side.channel, scene.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	end(&scene.server);
	cm_expect_ack(scene.side.channel, scene.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK_EQ(rdma_disconnect(scene.client), 0);
	scene_close(&scene);
}

struct connector {
	struct rdma_cm_id *client;
	bool begins;
};

static void *connects(void *given)
{
	struct connector *connector = given;

	nupa_store_release(&connector->begins, true);
	CHECK_EQ(rdma_connect(connector->client, NULL), 0);
	return NULL;
}

/* A request goes to the server that has the slot now, though nobody here has noticed the death of
 * the one before.  The lock keeps the port thread from it; either may have it next. */
TEST(a_successor_in_the_slot_is_asked_before_the_death_is_noticed)
{
	struct server servers[9];
	struct scene scene = { .fabric = test_fabric() };
	struct rdma_cm_id *clients[9];

	for (int i = 0; i < 9; i++)
		servers[i] = server_fork(scene.fabric, ACCEPTS);
	scene.side = cm_side_open(scene.fabric, 1);
	for (int i = 0; i < 9; i++) {
		struct nupa_engine *engine = nupa_engine_of(scene.side.context);
		struct connector connector = { 0 };
		bool disconnected = i == 0;
		pthread_t thread;

		connector.client = clients[i] = cm_id(&scene.side, RDMA_PS_TCP);
		cm_resolve(&scene.side, clients[i], "10.0.0.1", PORT);
		cm_make_qp(&scene.side, clients[i]);
		nupa_engine_lock(engine);
		if (i > 0) {
			end(&servers[i - 1]);
			CHECK_EQ(nupa_fabric_reap(scene.fabric), 1);
		}
		begin(&servers[i]);
		CHECK_EQ(pthread_create(&thread, NULL, connects, &connector), 0);
		while (!nupa_load_acquire(&connector.begins))
			sched_yield();
		nupa_engine_unlock(engine);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		for (bool established = false; !established || !disconnected;) {
			struct rdma_cm_event *event = cm_next(scene.side.channel);

			if (event->id == clients[i])
				CHECK_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
			else
				CHECK_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
			established |= event->id == clients[i];
			disconnected |= event->id != clients[i];
			CHECK_EQ(rdma_ack_cm_event(event), 0);
		}
	}
	end(&servers[8]);
	cm_expect_ack(scene.side.channel, clients[8], RDMA_CM_EVENT_DISCONNECTED, 0);
	for (int i = 0; i < 9; i++)
		cm_destroy(clients[i]);
	cm_side_close(&scene.side);
	nupa_fabric_put(scene.fabric);
}

/* At any step of the server's end, the client gets an event of it. */
TEST(a_server_that_dies_at_any_time_is_noticed)
{
	uint64_t random = test_seed();

	for (int i = 0; i < 20; i++) {
		struct scene scene = scene_open(ACCEPTS);
		struct timespec pause = { 0, (long)(test_random(&random) % 300000) };
		enum rdma_cm_event_type last;

		nanosleep(&pause, NULL);
		end(&scene.server);
		do {
			struct rdma_cm_event *event = cm_next(scene.side.channel);

			last = event->event;
			CHECK_EQ(rdma_ack_cm_event(event), 0);
		} while (last == RDMA_CM_EVENT_ESTABLISHED);
		/* CONNECT_ERROR: it died between its reply and our taking it. */
		CHECK(last == RDMA_CM_EVENT_REJECTED || last == RDMA_CM_EVENT_DISCONNECTED ||
		      last == RDMA_CM_EVENT_CONNECT_ERROR);
		scene_close(&scene);
	}
}

TEST(a_server_that_stops_is_waited_for)
{
	struct scene scene = scene_open(ACCEPTS);
	struct rdma_cm_id *next = cm_id(&scene.side, RDMA_PS_TCP);

	cm_expect_ack(scene.side.channel, scene.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQ(kill(scene.server.pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(scene.server.pid, NULL, WUNTRACED), scene.server.pid);
	cm_resolve(&scene.side, next, "10.0.0.1", PORT);
	cm_make_qp(&scene.side, next);
	CHECK_EQ(rdma_connect(next, NULL), 0);
	CHECK_EQ(poll(&(struct pollfd){ scene.side.channel->fd, POLLIN, 0 }, 1, 50), 0);
	CHECK_EQ(kill(scene.server.pid, SIGCONT), 0);
	cm_expect_ack(scene.side.channel, next, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_destroy(next);
	end(&scene.server);
	cm_expect_ack(scene.side.channel, scene.client, RDMA_CM_EVENT_DISCONNECTED, 0);
	scene_close(&scene);
}

/* --- time ---------------------------------------------------------------------------- */

/* As if the answer had been waited for long enough, and nothing were to be repeated. */
static void let_time_pass(struct rdma_cm_id *id)
{
	struct nupa_cm_id *core = rdma_private_of(id)->cm;
	struct nupa_engine *engine = core->engine;

	nupa_engine_lock(engine);
	CHECK(core->deadline_ns > engine->now_ns());
	core->deadline_ns = 1;
	core->sent.tries = 0;
	cm_timer_at(engine, 1);
	nupa_engine_unlock(engine);
	nupa_port_wake(engine);
}

TEST(requests_without_an_answer_are_unreachable)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);
	struct rdma_cm_event *event;

	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(rdma_connect(client, &(struct rdma_conn_param){ 0 }), 0);
	event = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	let_time_pass(client);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	cm_destroy(event->id);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_destroy(client);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

TEST(a_link_that_is_down_holds_requests_back)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	struct rdma_cm_id *early = cm_id(&pair.side[1], RDMA_PS_TCP);
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP), *server;

	cm_resolve(&pair.side[1], early, "10.0.0.1", cm_port(listener));
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, test_fabric_port(0), NUPA_PORT_DOWN), 0);
	CHECK_EQ(rdma_connect(early, &(struct rdma_conn_param){ 0 }), 0);
	let_time_pass(early);
	cm_expect_ack(pair.side[1].channel, early, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	cm_make_qp(&pair.side[1], client);
	CHECK_EQ(rdma_connect(client, NULL), 0);
	cm_expect_none(pair.side[0].channel);
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, test_fabric_port(0), NUPA_PORT_ACTIVE), 0);
	server = cm_expect(pair.side[0].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0)->id;
	cm_make_qp(&pair.side[0], server);
	CHECK_EQ(rdma_accept(server, NULL), 0);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_ESTABLISHED, 0);

	/* A disconnection that cannot be told. */
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, test_fabric_port(0), NUPA_PORT_DOWN), 0);
	CHECK_EQ(rdma_disconnect(client), 0);
	let_time_pass(client);
	cm_expect_ack(pair.side[1].channel, client, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	CHECK_EQ(nupa_fabric_set_port(pair.fabric, test_fabric_port(0), NUPA_PORT_ACTIVE), 0);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	_exit(0);
}

/* --- lies ---------------------------------------------------------------------------- */

static void send_raw(struct nupa_engine *engine, uint32_t slot, const struct nupa_msg *msg,
		     const void *payload, uint32_t bytes)
{
	struct nupa_channel *channel;
	struct nupa_msg *line = NULL;
	uint8_t *to = NULL;

	while (!line) {
		nupa_engine_lock(engine);
		channel = nupa_channel_get(engine, slot);
		CHECK(channel);
		if (!channel->dma_backed)
			CHECK_EQ(nupa_channel_back_dma(engine, channel), 0);
		line = nupa_tx_reserve(&channel->tx, bytes, &to);
		if (line) {
			memcpy((uint8_t *)line + sizeof(msg->tag),
			       (const uint8_t *)msg + sizeof(msg->tag),
			       sizeof(*msg) - sizeof(msg->tag));
			line->length_bytes = bytes;
			if (bytes)
				memcpy(to, payload, bytes);
			nupa_channel_publish(channel, line, bytes);
		}
		nupa_engine_unlock(engine);
	}
}

/* A connection between the sides of a pair, and a third party that lies to side 0. */
struct trial {
	struct cm_pair pair;
	struct ibv_context *liar;
	struct rdma_cm_id *listener, *client, *server;
};

static struct trial trial_open(void)
{
	struct trial trial = { .pair = cm_pair_open() };
	char why[256];

	trial.listener = cm_listener(&trial.pair.side[0], RDMA_PS_TCP, "");
	trial.client = cm_id(&trial.pair.side[1], RDMA_PS_TCP);
	cm_resolve(&trial.pair.side[1], trial.client, "10.0.0.1", cm_port(trial.listener));
	cm_connect(&trial.pair, trial.listener, trial.client, &trial.server);
	/* Another mover: an attachment of its own. */
	trial.liar = nupa_open_host(trial.pair.fabric, 1, NUPA_MOVER_RELAY, why, sizeof(why));
	CHECK(trial.liar);
	return trial;
}

/* Requests that the lies made are there to be taken; nothing happened to the connection. */
static void trial_close(struct trial *trial)
{
	struct pollfd wait = { .fd = trial->pair.side[0].channel->fd, .events = POLLIN };

	while (poll(&wait, 1, 0) == 1) {
		struct rdma_cm_event *event = cm_next(trial->pair.side[0].channel);

		CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		cm_destroy(event->id);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
	}
	cm_expect_none(trial->pair.side[1].channel);
	CHECK_EQ(cm_qp_state(trial->client), IBV_QPS_RTS);
	CHECK_EQ(cm_qp_state(trial->server), IBV_QPS_RTS);
	CHECK_EQ(rdma_disconnect(trial->client), 0);
	cm_expect_ack(trial->pair.side[1].channel, trial->client, RDMA_CM_EVENT_DISCONNECTED, 0);
	_exit(0);
}

static void random_bytes(uint64_t *random, void *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)test_random(random);
}

/* Well-formed messages that name the ids of others, in any order. */
TEST(lies_about_others_connections_are_ignored)
{
	struct trial trial = trial_open();
	uint32_t slot = (uint32_t)nupa_context_slot(trial.pair.side[0].context);
	uint64_t random = test_seed();

	for (int i = 0; i < 20000; i++) {
		struct nupa_msg msg = { .op = NUPA_OP_CM };
		struct cm_wire wire;
		uint32_t bytes = 0;

		random_bytes(&random, &wire, sizeof(wire));
		wire.family = test_random(&random) & 1 ? AF_INET : AF_INET6;
		wire.dst_kind %= CM_ADDR_KINDS;
		wire.param.private_bytes %= sizeof(wire.param.private_data) + 1;
		if (test_random(&random) & 1) {
			wire.ps = RDMA_PS_TCP;
			wire.dst_port = cm_port(trial.listener);
			wire.qp_type = IBV_QPT_RC;
		}
		msg.syndrome = (uint8_t)(1 + test_random(&random) % (CM_MESSAGE_MAX - 1));
		msg.timer = (uint8_t)test_random(&random);
		msg.dest_qpn = test_random(&random) & 1 ? rdma_private_of(trial.server)->cm->local
							: (uint32_t)test_random(&random) % 8;
		msg.src_qpn = (uint32_t)test_random(&random) % 4;
		if (msg.syndrome == CM_REQ || msg.syndrome == CM_SIDR_REQ ||
		    test_random(&random) & 1) {
			msg.flags = NUPA_F_DMA;
			bytes = sizeof(wire);
		}
		send_raw(nupa_engine_of(trial.liar), slot, &msg, &wire, bytes);
	}
	trial_close(&trial);
}

/* A message that no CM of this engine sends ends its channel, and no other. */
TEST(nonsense_ends_the_channel_it_came_by)
{
	struct trial trial = trial_open();
	uint32_t slot = (uint32_t)nupa_context_slot(trial.pair.side[0].context);
	struct nupa_engine *victim = nupa_engine_of(trial.pair.side[0].context);
	struct nupa_engine *liar = nupa_engine_of(trial.liar);
	uint64_t random = test_seed();
	const struct nupa_msg messages[] = {
		{ .op = NUPA_OP_CM, .syndrome = 0 },
		{ .op = NUPA_OP_CM, .syndrome = CM_MESSAGE_MAX },
		{ .op = NUPA_OP_CM, .syndrome = 255 },
		{ .op = NUPA_OP_CM, .syndrome = CM_REQ }, /* without payload */
		{ .op = NUPA_OP_CM, .syndrome = CM_SIDR_REQ },
		{ .op = NUPA_OP_CM, .syndrome = CM_REQ, .flags = NUPA_F_DMA },
		{ .op = NUPA_OP_CM, .syndrome = CM_REP, .flags = NUPA_F_DMA },
	};

	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		uint8_t payload[600];
		bool broken = false;

		random_bytes(&random, payload, sizeof(payload));
		send_raw(liar, slot, &messages[i], payload,
			 messages[i].flags ? (uint32_t)(1 + test_random(&random) % 600) : 0);
		for (uint64_t until = test_now_ns() + WAIT_NS; !broken;) {
			struct nupa_channel *channel;

			nupa_engine_lock(victim);
			channel = victim->channels[liar->slot_index];
			broken = channel && channel->broken;
			nupa_engine_unlock(victim);
			CHECK(test_now_ns() < until);
		}
		CHECK_EQ(nupa_close_device(trial.liar), 0);
		trial.liar =
		    nupa_open_host(trial.pair.fabric, 1, NUPA_MOVER_RELAY, (char[8]){ 0 }, 8);
		CHECK(trial.liar);
		liar = nupa_engine_of(trial.liar);
	}
	trial_close(&trial);
}
