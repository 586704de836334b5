/* SPDX-License-Identifier: BSD-3-Clause
 * Objects of rdma_cm that name a peer, a channel, a QP or an event channel.  Each is tried against
 * each way in which those end (the table in engine/cm/internal.h).  Each way is tried at each stage
 * of a connection.  AddressSanitizer sees names that are left afterwards. */
#include "tests/support/cm_end.h"
#include "engine/device/device.h"
#include "engine/cm/internal.h"
#include "tests/support/end.h"
#include "region/region.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* --- stages -------------------------------------------------------------------------- */

enum stage {
	LISTENS,
	REQUESTED, /* the event waits */
	ASKED,     /* it was got */
	ACCEPTED,  /* the response waits */
	ESTABLISHED,
	DISCONNECTED, /* by the client; the server's event waits */
	REJECTED,     /* by the server; the client's event waits */
	LOOKED_UP,    /* a datagram service; the event waits */
	LOOKED_UP_ASKED,
	LOOKED_UP_ACCEPTED, /* the client's event waits */
	STAGES,
};

struct scene {
	struct cm_pair pair;
	struct rdma_cm_id *listener, *client, *server; /* NULL: none, or none any more */
	struct rdma_event_channel *spare;
};

static void await_event(struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	CHECK_EQ(poll(&wait, 1, (int)(WAIT_NS / 1000000)), 1);
}

static struct scene scene_open(enum stage stage)
{
	const bool datagrams = stage >= LOOKED_UP;
	const enum rdma_port_space ps = datagrams ? RDMA_PS_UDP : RDMA_PS_TCP;
	struct scene s = { .pair = cm_pair_open(), .spare = rdma_channel_open() };
	struct cm_side *passive = &s.pair.side[0], *active = &s.pair.side[1];
	struct rdma_cm_event *event;

	s.listener = cm_listener(passive, ps, "");
	s.client = cm_id(active, ps);
	cm_resolve(active, s.client, "10.0.0.1", cm_port(s.listener));
	cm_make_qp(active, s.client);
	if (stage == LISTENS)
		return s;
	CHECK_EQ(rdma_connect(s.client, NULL), 0);
	await_event(passive->channel);
	if (stage == REQUESTED || stage == LOOKED_UP)
		return s;
	event = cm_expect(passive->channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s.server = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	if (stage == ASKED || stage == LOOKED_UP_ASKED)
		return s;
	cm_make_qp(passive, s.server);
	if (stage == REJECTED)
		CHECK_EQ(rdma_reject(s.server, NULL, 0), 0);
	else
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
	await_event(active->channel);
	if (stage == ACCEPTED || stage == REJECTED || stage == LOOKED_UP_ACCEPTED)
		return s;
	cm_expect_ack(active->channel, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(passive->channel, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (stage == DISCONNECTED) {
		CHECK_EQ(rdma_disconnect(s.client), 0);
		await_event(passive->channel);
	}
	return s;
}

/* Takes what waits; ids of requests are destroyed. */
static void hear(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	CHECK_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	while (rdma_get_cm_event(channel, &event) == 0) {
		struct rdma_cm_id *child =
		    event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;

		CHECK_EQ(rdma_ack_cm_event(event), 0);
		if (child)
			cm_destroy(child);
	}
	CHECK_EQ(errno, EAGAIN);
}

static void drop(struct rdma_cm_id **id)
{
	if (*id)
		cm_destroy(*id);
	*id = NULL;
}

/* The pair serves another connection, and all is given back. */
static void scene_close(struct scene *s)
{
	drop(&s->server);
	drop(&s->client);
	drop(&s->listener);
	for (int side = 0; side < 2; side++)
		if (s->pair.side[side].channel)
			hear(s->pair.side[side].channel);
	if (s->spare)
		rdma_destroy_event_channel(s->spare);
	for (int side = 0; side < 2; side++) {
		CHECK_EQ(nupa_destroy_cq(s->pair.side[side].cq), 0);
		CHECK_EQ(nupa_dealloc_pd(s->pair.side[side].pd), 0);
		if (s->pair.side[side].channel)
			rdma_destroy_event_channel(s->pair.side[side].channel);
		CHECK_EQ(nupa_close_device(s->pair.side[side].context), 0);
	}
	nupa_fabric_put(s->pair.fabric);
}

/* Calls that programs make with ids whose other end is gone. */
static void use(struct rdma_cm_id *id)
{
	if (!id)
		return;
	(void)rdma_accept(id, NULL);
	(void)rdma_reject(id, NULL, 0);
	if (id->qp && id->qp_type != IBV_QPT_UD)
		(void)rdma_disconnect(id);
	(void)rdma_notify(id, IBV_EVENT_COMM_EST);
}

static void use_all(struct scene *s)
{
	use(s->client);
	use(s->server);
	for (int side = 0; side < 2; side++)
		if (s->pair.side[side].channel)
			hear(s->pair.side[side].channel);
}

/* --- ways to end --------------------------------------------------------------------- */

static void at_each_stage(void (*way)(struct scene *s))
{
	for (enum stage stage = 0; stage < STAGES; stage++) {
		struct scene s = scene_open(stage);

		way(&s);
		scene_close(&s);
	}
}

/* WAY(name) { ... } defines the case when_name, which runs its body at each stage. */
#define WAY(name)                                                                                  \
	static void name(struct scene *s);                                                         \
	TEST(when_##name)                                                                          \
	{                                                                                          \
		at_each_stage(name);                                                               \
	}                                                                                          \
	static void name(struct scene *s)

static void fail_channel(struct scene *s, int side)
{
	struct nupa_engine *engine = nupa_engine_of(s->pair.side[side].context);
	struct nupa_channel *channel;

	nupa_engine_lock(engine);
	channel = engine->channels[nupa_context_slot(s->pair.side[1 - side].context)];
	if (channel && !channel->broken) {
		nupa_channel_fail(engine, channel);
		for (struct nupa_list *at = engine->cm->ids.next; at != &engine->cm->ids;
		     at = at->next)
			CHECK(container_of(at, struct nupa_cm_id, link)->peer != channel);
		CHECK_EQ(engine->cm->n_left, 0);
		CHECK(nupa_list_empty(&engine->cm->owed));
	}
	nupa_engine_unlock(engine);
}

WAY(the_server_loses_its_peer)
{
	fail_channel(s, 0);
	use_all(s);
}

WAY(the_client_loses_its_peer)
{
	fail_channel(s, 1);
	use_all(s);
}

WAY(remnants_lose_their_peer)
{
	drop(&s->server);
	drop(&s->client);
	drop(&s->listener);
	fail_channel(s, 0);
	fail_channel(s, 1);
}

WAY(the_client_is_destroyed)
{
	drop(&s->client);
	use_all(s);
}

WAY(the_server_is_destroyed)
{
	drop(&s->server);
	use_all(s);
}

WAY(the_listener_is_destroyed)
{
	drop(&s->listener);
	use_all(s);
}

/* Its slot has another owner then, to which nothing of the old one applies. */
WAY(the_client_leaves_and_another_comes)
{
	const uint32_t slot = (uint32_t)nupa_context_slot(s->pair.side[1].context);

	drop(&s->client);
	cm_side_close(&s->pair.side[1]);
	s->pair.side[1] = cm_side_open(s->pair.fabric, 1);
	CHECK_EQ(nupa_context_slot(s->pair.side[1].context), slot);
	use_all(s);
}

WAY(qps_are_destroyed_before)
{
	struct rdma_cm_id *ids[] = { s->client, s->server };

	for (int i = 0; i < 2; i++)
		if (ids[i] && ids[i]->qp)
			rdma_destroy_qp(ids[i]);
	use_all(s);
}

WAY(ids_move_to_another_event_channel)
{
	struct rdma_cm_id *ids[] = { s->listener, s->client, s->server };
	struct rdma_cm_event *event;

	for (int i = 0; i < 3; i++)
		if (ids[i])
			CHECK_EQ(rdma_migrate_id(ids[i], s->spare), 0);
	for (int side = 0; side < 2; side++) {
		cm_expect_none(s->pair.side[side].channel);
		rdma_destroy_event_channel(s->pair.side[side].channel);
		s->pair.side[side].channel = NULL;
	}
	CHECK_EQ(fcntl(s->spare->fd, F_SETFL, O_NONBLOCK), 0);
	if (rdma_get_cm_event(s->spare, &event) == 0) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			s->server = event->id;
			CHECK(s->server->channel == s->spare);
		}
		CHECK_EQ(rdma_ack_cm_event(event), 0);
	}
	use_all(s);
	hear(s->spare);
}

/* man rdma_destroy_event_channel wants it last; programs do it at any time. */
WAY(event_channels_are_closed_before)
{
	for (int side = 0; side < 2; side++) {
		rdma_destroy_event_channel(s->pair.side[side].channel);
		s->pair.side[side].channel = NULL;
	}
	use_all(s);
	drop(&s->client);
	drop(&s->server);
}

/* The child has a private picture of it all. */
WAY(a_child_of_a_fork_gives_its_picture_back)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		drop(&s->server);
		drop(&s->client);
		drop(&s->listener);
		_exit(0);
	}
	CHECK_CHILD(pid);
	use_all(s);
}

/* Requests that were not got yet, too. */
TEST(requests_move_with_their_listener)
{
	struct scene s = scene_open(REQUESTED);
	struct rdma_cm_event *event;

	CHECK_EQ(rdma_migrate_id(s.listener, s.spare), 0);
	cm_expect_none(s.pair.side[0].channel);
	event = cm_expect(s.spare, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	s.server = event->id;
	CHECK(s.server->channel == s.spare);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_make_qp(&s.pair.side[0], s.server);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(s.pair.side[1].channel, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_ack(s.spare, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	cm_expect_none(s.pair.side[0].channel);
	scene_close(&s);
}

/* The QP may be gone when the event of a join is got, the id elsewhere, the group left. */
TEST(groups_end_before_their_events)
{
	for (int way = 0; way < 4; way++) {
		struct scene s = scene_open(LISTENS);
		struct cm_side *side = &s.pair.side[0];
		struct rdma_cm_id *id = cm_id(side, RDMA_PS_UDP);
		struct sockaddr_storage group;

		CHECK_EQ(cm_bind(id, "10.0.0.1", 0), 0);
		cm_make_qp(side, id);
		cm_addr(&group, "239.1.2.3", 0);
		CHECK_EQ(rdma_join_multicast(id, (void *)&group, NULL), 0);
		await_event(side->channel);
		switch (way) {
		case 0:
			rdma_destroy_qp(id);
			cm_expect_ack(side->channel, id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
			CHECK_EQ(rdma_leave_multicast(id, (void *)&group), 0);
			break;
		case 1:
			CHECK_EQ(rdma_leave_multicast(id, (void *)&group), 0);
			break;
		case 2:
			CHECK_EQ(rdma_migrate_id(id, s.spare), 0);
			cm_expect_ack(s.spare, id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
			CHECK_EQ(rdma_leave_multicast(id, (void *)&group), 0);
			break;
		default: /* with the id */
			break;
		}
		cm_destroy(id);
		cm_expect_none(side->channel);
		scene_close(&s);
	}
}

/* --- owed messages ------------------------------------------------------------------- */

TEST(messages_owed_to_a_peer_that_left_are_dropped)
{
	struct scene s = scene_open(ASKED);
	struct nupa_engine *engine = nupa_engine_of(s.pair.side[0].context);
	const int slot = nupa_context_slot(s.pair.side[1].context);
	struct nupa_channel *old, *now;

	old = engine->channels[slot];
	CHECK_EQ(nupa_fabric_set_port(s.pair.fabric, test_fabric_port(1), NUPA_PORT_DOWN), 0);
	CHECK_EQ(rdma_reject(s.server, NULL, 0), 0);
	nupa_engine_lock(engine);
	CHECK(!nupa_list_empty(&engine->cm->owed));
	nupa_engine_unlock(engine);
	drop(&s.client);
	cm_side_close(&s.pair.side[1]);
	for (uint64_t until = test_now_ns() + WAIT_NS;;) {
		nupa_engine_lock(engine);
		now = engine->channels[slot];
		if (!now)
			CHECK(nupa_list_empty(&engine->cm->owed));
		nupa_engine_unlock(engine);
		if (now != old)
			break;
		CHECK(test_now_ns() < until);
	}
	CHECK_EQ(nupa_fabric_set_port(s.pair.fabric, test_fabric_port(1), NUPA_PORT_ACTIVE), 0);
	s.pair.side[1] = cm_side_open(s.pair.fabric, 1);
	scene_close(&s);
}

/* A timer looks for an answer first, finds nonsense, and its channel fails. */
TEST(a_remnant_ends_with_the_channel_that_its_timer_drains)
{
	struct scene s = scene_open(ESTABLISHED);
	struct nupa_engine *server = nupa_engine_of(s.pair.side[0].context);
	struct nupa_engine *client = nupa_engine_of(s.pair.side[1].context);
	struct nupa_channel *channel;
	struct nupa_msg *msg;

	nupa_engine_lock(server); /* no DREP */
	drop(&s.client);
	nupa_engine_lock(client);
	CHECK_EQ(client->cm->n_left, 1);
	channel = server->channels[client->slot_index];
	msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	CHECK(msg);
	memset(&msg->op, 0, sizeof(*msg) - sizeof(msg->tag));
	msg->op = NUPA_OP_CM;
	nupa_channel_publish(channel, msg, 0);
	container_of(client->cm->left.next, struct nupa_cm_id, listener)->deadline_ns = 1;
	nupa_cm_run_timers(client);
	CHECK_EQ(client->cm->n_left, 0);
	nupa_engine_unlock(client);
	nupa_engine_unlock(server);
	scene_close(&s);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
