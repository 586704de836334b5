/* SPDX-License-Identifier: BSD-3-Clause
 * Messages to a process that never used rdma_cm, and events of a device that was closed. */
#include "tests/support/cm_end.h"
#include "engine/cm/internal.h"
#include "tests/support/end.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

static void send_plain(struct nupa_engine *engine, uint32_t slot, enum cm_message message,
		       uint32_t to)
{
	struct cm_wire wire = {
		.family = AF_INET, .ps = RDMA_PS_TCP, .dst_port = 1, .pkey = NUPA_PKEY_DEFAULT
	};

	nupa_engine_lock(engine);
	CHECK(cm_of(engine));
	cm_send(engine, nupa_channel_get(engine, slot), message, 0, to, 1, &wire);
	nupa_engine_unlock(engine);
}

static bool all_taken(struct nupa_engine *engine, uint32_t slot)
{
	bool taken;

	nupa_engine_lock(engine);
	taken = nupa_tx_drained(&engine->channels[slot]->tx);
	nupa_engine_unlock(engine);
	return taken;
}

TEST(a_process_that_never_used_rdma_cm_answers_each_message)
{
	struct cm_pair pair = cm_pair_open();
	struct nupa_engine *engine = nupa_engine_of(pair.side[1].context);
	const uint32_t slot = (uint32_t)nupa_context_slot(pair.side[0].context);
	struct rdma_cm_id *listener, *client, *server;

	CHECK(!nupa_engine_of(pair.side[0].context)->cm);
	for (uint32_t message = CM_REQ; message < CM_MESSAGE_MAX; message++)
		for (uint32_t to = 0; to < 3; to++)
			send_plain(engine, slot, (enum cm_message)message, to);
	for (uint64_t until = test_now_ns() + WAIT_NS; !all_taken(engine, slot);)
		CHECK(test_now_ns() < until);
	listener = cm_listener(&pair.side[0], RDMA_PS_TCP, "");
	client = cm_id(&pair.side[1], RDMA_PS_TCP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	cm_connect(&pair, listener, client, &server);
	cm_destroy(client);
	cm_expect_ack(pair.side[0].channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(server);
	cm_destroy(listener);
	cm_pair_close(&pair);
}

static void await_event(struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	CHECK_EQ(poll(&wait, 1, (int)(WAIT_NS / 1000000)), 1);
}

TEST(events_of_a_device_that_was_closed_are_gone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct cm_side side = cm_side_open(fabric, 0);
	struct rdma_cm_id *id = cm_id(&side, RDMA_PS_TCP);
	struct sockaddr_storage to;
	struct rdma_cm_event *event;

	CHECK_EQ(rdma_resolve_addr(id, NULL, cm_addr(&to, "10.0.0.200", 1), 100), 0);
	await_event(side.channel); /* ADDR_ERROR */
	CHECK_EQ(nupa_destroy_cq(side.cq), 0);
	CHECK_EQ(nupa_dealloc_pd(side.pd), 0);
	CHECK_EQ(nupa_close_device(side.context), 0);
	CHECK_EQ(fcntl(side.channel->fd, F_SETFL, O_NONBLOCK), 0);
	CHECK_EQ(rdma_get_cm_event(side.channel, &event), -1);
	CHECK_EQ(errno, EAGAIN);
	rdma_private_of(id)->cm = NULL; /* went with the device */
	rdma_private_free(rdma_private_of(id));
	rdma_destroy_event_channel(side.channel);
	nupa_fabric_put(fabric);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
