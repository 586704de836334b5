/* SPDX-License-Identifier: BSD-3-Clause
 * Traffic of two kernels for tests: see apart_work.h. */
#include "tests/segment/apart_work.h"

#include "segment/slot/counters.h"
#include "tests/support/cm_end.h"
#include "engine/net/net.h"
#include "region/region.h"

#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_BYTES 900u
#define CM_PORT 7471u

/* Each has to be over soon. */
void begin_step(const struct kernel *k)
{
	alarm(k->patience_s);
}

static void swap(const struct kernel *k, const void *mine, void *theirs, size_t bytes)
{
	CHECK_EQ(send(k->socket, mine, bytes, MSG_NOSIGNAL), bytes);
	CHECK_EQ(recv(k->socket, theirs, bytes, MSG_WAITALL), bytes);
}

/* Memory is ours, then the other one's, who reaches it through our port thread: TSan sees no socket
 * in that, but a lock. */
static void take_turns(const struct kernel *k)
{
	if (k->end)
		(void)end_state(k->end);
}

void meet(const struct kernel *k)
{
	char mine = 1, theirs;

	take_turns(k);
	swap(k, &mine, &theirs, 1);
	take_turns(k);
	begin_step(k);
}

struct ibv_wc await(struct ibv_cq *cq, enum ibv_wc_status status)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	struct ibv_wc wc;
	int n;

	while ((n = nupa_poll_cq(cq, 1, &wc)) == 0)
		nanosleep(&pause, NULL);
	CHECK_EQ(n, 1);
	CHECK_EQ(wc.status, status);
	return wc;
}

void join(struct kernel *k)
{
	struct end_options options = end_defaults;
	struct end_address peer;

	options.host = k->host;
	options.memory_bytes = AT_ONCE * LARGE_BYTES;
	k->end = end_open(k->fabric, &options);
	swap(k, &k->end->self, &peer, sizeof(peer));
	end_connect(k->end, &peer);
	meet(k);
}

void leave(struct kernel *k)
{
	end_close(k->end);
	k->end = NULL;
	meet(k);
}

static void pour_out(struct kernel *k, uint32_t bytes, uint32_t messages)
{
	for (uint32_t sent = 0; sent < messages; sent += AT_ONCE) {
		for (uint32_t i = 0; i < AT_ONCE; i++)
			pattern_fill(k->end->memory + i * bytes, bytes, sent + i);
		meet(k);
		for (uint32_t i = 0; i < AT_ONCE; i++)
			end_start(k->end, IBV_WR_SEND, i, i * bytes, bytes);
		for (uint32_t i = 0; i < AT_ONCE; i++)
			CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, i);
		meet(k);
	}
}

static void take_in(struct kernel *k, uint32_t bytes, uint32_t messages)
{
	for (uint32_t taken = 0; taken < messages; taken += AT_ONCE) {
		for (uint32_t i = 0; i < AT_ONCE; i++)
			end_post_recv(k->end, i, i * bytes, bytes);
		meet(k);
		for (uint32_t i = 0; i < AT_ONCE; i++) {
			struct ibv_wc wc = await(k->end->recv_cq, IBV_WC_SUCCESS);

			CHECK_EQ(wc.wr_id, i);
			CHECK_EQ(wc.byte_len, bytes);
			CHECK_PATTERN(k->end->memory + i * bytes, bytes, taken + i);
		}
		meet(k);
	}
}

void converse(struct kernel *k, uint32_t bytes, uint32_t messages)
{
	for (int host = 0; host < 2; host++)
		if (host == k->host)
			pour_out(k, bytes, messages);
		else
			take_in(k, bytes, messages);
}

void reach_into_memory(struct kernel *k)
{
	struct request add = request_of(k->end, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, 8);
	uint64_t *word = (uint64_t *)(void *)k->end->memory;

	pattern_fill(k->end->memory, LARGE_BYTES, 7 + (uint32_t)k->host);
	meet(k);
	if (k->host == 0) {
		end_start(k->end, IBV_WR_RDMA_WRITE, 1, 0, LARGE_BYTES);
		CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, 1);
	}
	meet(k);
	CHECK_PATTERN(k->end->memory, LARGE_BYTES, 7);
	pattern_fill(k->end->memory, LARGE_BYTES, 17 + (uint32_t)k->host);
	meet(k);
	if (k->host == 1) {
		end_start(k->end, IBV_WR_RDMA_READ, 2, 0, LARGE_BYTES);
		CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, 2);
		CHECK_PATTERN(k->end->memory, LARGE_BYTES, 17);
	}
	meet(k);
	*word = 40;
	meet(k);
	if (k->host == 1) {
		add.wr.wr.atomic.compare_add = 2;
		end_post(k->end, &add);
		CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, 3);
	}
	meet(k);
	CHECK_EQ(*word, k->host == 0 ? 42 : 40);
}

/* By the word of the peer's slot, of which no message tells. */
void see_ports(struct kernel *k)
{
	const uint32_t port = test_fabric_port(1);

	meet(k);
	if (k->host == 0) {
		CHECK_EQ(nupa_fabric_set_port(k->fabric, port, NUPA_PORT_DOWN), 0);
		meet(k);
		CHECK_EQ(nupa_fabric_set_port(k->fabric, port, NUPA_PORT_ACTIVE), 0);
	} else {
		CHECK_EQ(nupa_fabric_set_port(k->fabric, port, NUPA_PORT_DOWN), -EREMOTE);
		end_expect_event(k->end, IBV_EVENT_PORT_ERR);
		meet(k);
		end_expect_event(k->end, IBV_EVENT_PORT_ACTIVE);
	}
	meet(k);
}

void see_counters(struct kernel *k)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint32_t slot = (uint32_t)nupa_context_slot(k->end->context), theirs;
	struct nupa_flow_info flow = { 0 };

	swap(k, &slot, &theirs, sizeof(slot));
	begin_step(k);
	while (flow.xmit_bytes < SMALL_BYTES * SMALL_MESSAGES) {
		CHECK_EQ(nupa_fabric_flow(k->fabric, theirs, (uint32_t)k->host, &flow), 0);
		nanosleep(&pause, NULL);
	}
	meet(k);
}

void connect_by_cm(struct kernel *k)
{
	struct cm_side side = cm_side_open(k->fabric, k->host);
	struct rdma_cm_id *id = cm_id(&side, RDMA_PS_TCP), *server;
	struct rdma_cm_event *event;

	if (k->host == 1) {
		CHECK_EQ(cm_bind(id, "10.0.0.2", CM_PORT), 0);
		CHECK_EQ(rdma_listen(id, 0), 0);
	}
	meet(k);
	if (k->host == 0) {
		cm_resolve(&side, id, "10.0.0.2", CM_PORT);
		cm_make_qp(&side, id);
		CHECK_EQ(rdma_connect(id, NULL), 0);
		cm_expect_ack(side.channel, id, RDMA_CM_EVENT_ESTABLISHED, 0);
	} else {
		event = cm_expect(side.channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		server = event->id;
		cm_make_qp(&side, server);
		CHECK_EQ(rdma_accept(server, NULL), 0);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_expect_ack(side.channel, server, RDMA_CM_EVENT_ESTABLISHED, 0);
		cm_expect_ack(side.channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_destroy(server);
	}
	if (k->host == 0)
		CHECK_EQ(rdma_disconnect(id), 0);
	meet(k);
	if (k->host == 0)
		cm_expect_ack(side.channel, id, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(id);
	cm_side_close(&side);
	meet(k);
}

/* --- the netdev ---------------------------------------------------------------------- */

static int frames[2]; /* a pipe */

static bool deliver(void *arg, const uint8_t *frame, uint32_t frame_bytes)
{
	const bool same =
	    frame_bytes == FRAME_BYTES && pattern_match(frame, FRAME_BYTES, 5) == FRAME_BYTES;

	(void)arg;
	return write(frames[1], &same, sizeof(same)) == sizeof(same);
}

static void carrier(void *arg, bool up)
{
	(void)arg;
	(void)up;
}

static void fenced(void *arg)
{
	(void)arg;
}

void pass_frame(struct kernel *k)
{
	static const struct nupa_net_ops ops = { deliver, carrier, fenced };
	const struct timespec pause = { .tv_nsec = 100000 };
	struct nupa_net_siblings siblings = { 0 };
	char why[256] = "";
	struct nupa_net *net = nupa_net_open(k->fabric, (uint32_t)k->host, 0, false, &siblings,
					     &ops, NULL, why, sizeof(why));
	bool same = false, reached = false;

	CHECK(net);
	CHECK_EQ(pipe(frames), 0);
	meet(k);
	while (k->host == 0 && !reached) {
		nupa_net_lock(net);
		reached = nupa_net_reaches(net, 1);
		if (reached) {
			pattern_fill(nupa_net_room(net), FRAME_BYTES, 5);
			CHECK(nupa_net_send(net, 1, FRAME_BYTES));
		}
		nupa_net_unlock(net);
		nupa_net_flush(net);
		nanosleep(&pause, NULL);
	}
	if (k->host == 1) {
		CHECK_EQ(read(frames[0], &same, sizeof(same)), sizeof(same));
		CHECK(same);
	}
	meet(k);
	nupa_net_close(net);
	close(frames[0]);
	close(frames[1]);
}
