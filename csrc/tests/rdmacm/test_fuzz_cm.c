/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of connection management that no partner would send, to listeners and to identifiers in
 * each state.  Connections may fail or come out of nowhere; nothing else happens.
 * NUPA_FUZZ_SECONDS is the duration; the seed is printed. */
#include "tests/support/cm_end.h"
#include "engine/cm/internal.h"
#include "engine/device/device.h"

#include <fcntl.h>
#include <string.h>

#define MESSAGES 64

struct scene {
	struct cm_pair pair;
	struct rdma_cm_id *listener, *client; /* of hosts 0 and 1 */
	uint64_t random;
};

static uint32_t pick(struct scene *s, uint32_t n)
{
	return (uint32_t)(test_random(&s->random) >> 20) % n;
}

/* Numbers of identifiers are small; a message without payload is one as well. */
static void forge(struct scene *s, struct nupa_channel *channel)
{
	bool whole = pick(s, 8) && channel->dma_backed;
	uint32_t bytes =
	    whole ? (pick(s, 32) ? (uint32_t)sizeof(struct cm_wire) : 1 + pick(s, 600)) : 0;
	struct cm_wire wire = { 0 };
	uint8_t *payload = NULL;
	struct nupa_msg *msg = nupa_tx_reserve(&channel->tx, bytes, &payload);

	if (!msg)
		return;
	cm_wire_of(rdma_private_of(s->client)->cm, &wire);
	for (uint32_t i = 0; i < sizeof(wire) / 4; i++) {
		uint32_t word = (uint32_t)test_random(&s->random);

		if (pick(s, 16) == 0)
			memcpy((uint8_t *)&wire + i * 4, &word, sizeof(word));
	}
	if (pick(s, 2))
		wire.dst_port = (uint16_t)cm_port(s->listener);
	if (bytes)
		memcpy(payload, &wire, bytes < sizeof(wire) ? bytes : sizeof(wire));
	memset(&msg->op, 0, sizeof(*msg) - 4);
	msg->op = NUPA_OP_CM;
	msg->flags = bytes ? NUPA_F_DMA : 0;
	msg->syndrome = (uint8_t)(pick(s, 64) ? 1 + pick(s, CM_MESSAGE_MAX - 1) : pick(s, 256));
	msg->timer = (uint8_t)pick(s, 64);
	msg->dest_qpn = pick(s, 4) ? pick(s, 16) : (uint32_t)test_random(&s->random);
	msg->src_qpn = pick(s, 4) ? pick(s, 16) : (uint32_t)test_random(&s->random);
	msg->length_bytes = bytes;
	nupa_tx_publish(&channel->tx, msg, bytes);
}

static bool forge_from(struct scene *s, int from)
{
	struct nupa_engine *engine = nupa_engine_of(s->pair.side[from].context);
	int peer = nupa_context_slot(s->pair.side[1 - from].context);
	struct nupa_channel *channel;
	bool open;

	nupa_engine_lock(engine);
	channel = engine->channels[peer];
	open = channel && !channel->broken;
	if (open)
		forge(s, channel);
	nupa_engine_unlock(engine);
	return open;
}

/* --- reactions of programs ---------------------------------------------------------------- */

static void answer(struct scene *s, struct rdma_cm_id *child)
{
	struct rdma_conn_param param = { .qp_num = pick(s, 1000) };

	switch (pick(s, 3)) {
	case 0:
		rdma_accept(child, &param);
		break;
	case 1:
		rdma_reject(child, NULL, 0);
		break;
	default:
		break;
	}
	if (pick(s, 2))
		rdma_disconnect(child);
}

static void hear(struct scene *s, struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(channel, &event) == 0) {
		struct rdma_cm_id *id = event->id;
		bool child = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;

		CHECK(event->event <= RDMA_CM_EVENT_TIMEWAIT_EXIT);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		if (child) {
			answer(s, id);
			CHECK_EQ(rdma_destroy_id(id), 0);
		}
	}
}

/* One client's life among forgeries, in both directions; false: the channel was closed for them. */
static bool live(struct scene *s)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	bool open = true;

	s->client = cm_id(&s->pair.side[1], RDMA_PS_TCP);
	cm_resolve(&s->pair.side[1], s->client, "10.0.0.1", cm_port(s->listener));
	cm_make_qp(&s->pair.side[1], s->client);
	rdma_connect(s->client, &param);
	for (uint32_t i = pick(s, MESSAGES); i < MESSAGES && open; i++) {
		open = forge_from(s, pick(s, 4) ? 1 : 0);
		for (int side = 0; side < 2; side++) {
			struct ibv_wc wc;

			/* Polling drives the engine. */
			CHECK(nupa_poll_cq(s->pair.side[side].cq, 1, &wc) >= 0);
			if (pick(s, 4) == 0)
				hear(s, s->pair.side[side].channel);
		}
		if (pick(s, 32) == 0)
			rdma_disconnect(s->client);
	}
	for (int side = 0; side < 2; side++)
		hear(s, s->pair.side[side].channel);
	cm_destroy(s->client);
	return open;
}

TEST(to_listeners_and_identifiers)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(3);
	struct scene s = { .random = test_seed() };
	uint64_t lives = 0;

	while (test_now_ns() < until_ns) {
		s.pair = cm_pair_open();
		s.listener = cm_listener(&s.pair.side[0], RDMA_PS_TCP, "");
		for (int side = 0; side < 2; side++)
			CHECK_EQ(fcntl(s.pair.side[side].channel->fd, F_SETFL, O_NONBLOCK), 0);
		do
			lives++;
		while (live(&s) && test_now_ns() < until_ns);
		hear(&s, s.pair.side[0].channel);
		CHECK_EQ(rdma_destroy_id(s.listener), 0);
		cm_pair_close(&s.pair);
	}
	printf("  %llu clients\n", (unsigned long long)lives);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
