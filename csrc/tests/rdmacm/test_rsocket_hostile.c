/* SPDX-License-Identifier: BSD-3-Clause
 * Peers of an rsocket that speak verbs and lie: they end their connection, and harm no other. */
#include "tests/support/end.h"
#include "tests/rdmacm/rs_end.h"
#include "librdmacm/rsockets/wire.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

struct liar {
	struct nupa_fabric *fabric;
	struct cm_side side; /* on host 1 */
	struct rdma_cm_id *id;
	struct rs_wire_hello theirs;
	uint8_t memory[4096];
	struct ibv_mr *mr;
	int listener, fd; /* the rsocket that it connects to, on host 0 */
	uint16_t port;
};

static struct rs_wire_hello true_hello(void)
{
	return (struct rs_wire_hello){ .magic = htonl(RS_WIRE_MAGIC),
				       .version = htonl(RS_WIRE_VERSION),
				       .ring_bytes = htonl(65536),
				       .slots = htonl(16),
				       .slot_bytes = htonl(256) };
}

static struct liar *liar_open(void)
{
	struct liar *liar = calloc(1, sizeof(*liar));

	CHECK(liar);
	liar->fabric = test_fabric();
	rs_use_fabric(liar->fabric);
	liar->listener = rs_listener(&liar->port);
	liar->side = cm_side_open(liar->fabric, 1);
	liar->mr = nupa_reg_mr(liar->side.pd, liar->memory, sizeof(liar->memory),
			       (uintptr_t)liar->memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(liar->mr);
	liar->id = cm_id(&liar->side, RDMA_PS_TCP);
	cm_resolve(&liar->side, liar->id, "10.0.0.1", liar->port);
	cm_make_qp(&liar->side, liar->id);
	liar->fd = -1;
	return liar;
}

static void liar_close(struct liar *liar)
{
	if (liar->fd >= 0)
		CHECK_EQ(rclose(liar->fd), 0);
	cm_destroy(liar->id);
	CHECK_EQ(nupa_dereg_mr(liar->mr), 0);
	cm_side_close(&liar->side);
	CHECK_EQ(rclose(liar->listener), 0);
	nupa_fabric_put(liar->fabric);
	free(liar);
}

static void ask(struct liar *liar, const void *data, size_t bytes)
{
	struct rdma_conn_param param = { .private_data = data,
					 .private_data_len = (uint8_t)bytes,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };

	CHECK_EQ(rdma_connect(liar->id, &param), 0);
}

/* Connected, as an rsocket would be. */
static void be_accepted(struct liar *liar)
{
	struct rs_wire_hello hello = true_hello();
	struct rdma_cm_event *event;

	ask(liar, &hello, sizeof(hello));
	event = cm_expect(liar->side.channel, liar->id, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK(event->param.conn.private_data_len >= sizeof(liar->theirs));
	memcpy(&liar->theirs, event->param.conn.private_data, sizeof(liar->theirs));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	liar->fd = raccept(liar->listener, NULL, NULL);
	CHECK(liar->fd >= 0);
}

/* One request, awaited to its end, which may be an error. */
static void say(struct liar *liar, enum ibv_wr_opcode opcode, uint32_t immediate, uint32_t bytes,
		uint32_t offset)
{
	struct ibv_sge sge = { (uintptr_t)liar->memory, bytes, liar->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = bytes != 0,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(immediate),
		.wr.rdma = { be64toh(liar->theirs.ring_addr) + offset,
			     ntohl(liar->theirs.ring_rkey) },
	};
	uint64_t until_ns = test_now_ns() + WAIT_NS;
	struct ibv_wc wc;
	int n;

	CHECK_EQ(ibv_post_send(liar->id->qp, &wr, &bad), 0);
	while ((n = ibv_poll_cq(liar->side.cq, 1, &wc)) == 0)
		CHECK(test_now_ns() < until_ns);
	CHECK_EQ(n, 1);
}

static uint32_t of_kind(enum rs_wire_kind kind, uint32_t value)
{
	return (uint32_t)kind << RS_WIRE_KIND_SHIFT | value;
}

/* The socket tells its program, once, that the peer broke the rules. */
static void expect_broken(struct liar *liar)
{
	char bytes[4096];
	ssize_t n;

	while ((n = rrecv(liar->fd, bytes, sizeof(bytes), 0)) > 0)
		;
	CHECK_EQ(n, -1);
	CHECK_EQ(errno, EPROTO);
	CHECK_EQ(rrecv(liar->fd, bytes, 1, 0), 0);
	CHECK_EQ(rsend(liar->fd, bytes, 1, 0), -1);
	CHECK_EQ(errno, EPIPE);
}

TEST(a_request_that_is_no_rsockets_is_rejected)
{
	static const uint8_t noise[48] = { 1, 2, 3 };
	struct rs_wire_hello lies[5];
	struct liar *liar = liar_open();
	struct rdma_cm_event *event;

	for (int i = 0; i < 5; i++)
		lies[i] = true_hello();
	lies[0].version = htonl(99);
	lies[1].ring_bytes = 0;
	lies[2].ring_bytes = htonl(UINT32_MAX);
	lies[3].slots = 0;
	lies[4].slots = htonl(UINT32_MAX);
	for (int i = 0; i < 7; i++) {
		if (i) {
			cm_destroy(liar->id);
			liar->id = cm_id(&liar->side, RDMA_PS_TCP);
			cm_resolve(&liar->side, liar->id, "10.0.0.1", liar->port);
			cm_make_qp(&liar->side, liar->id);
		}
		if (i < 5)
			ask(liar, &lies[i], sizeof(lies[i]));
		else
			ask(liar, noise, i == 5 ? sizeof(noise) : 3);
		event = cm_next(liar->side.channel);
		CHECK_EQ(event->event, RDMA_CM_EVENT_REJECTED);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
	}
	liar_close(liar);
}

TEST(a_send_without_immediate_ends_the_connection)
{
	struct liar *liar = liar_open();

	be_accepted(liar);
	say(liar, IBV_WR_SEND, 0, 10, 0);
	expect_broken(liar);
	liar_close(liar);
}

TEST(a_credit_for_more_than_there_is_ends_the_connection)
{
	struct liar *liar = liar_open();

	be_accepted(liar);
	say(liar, IBV_WR_SEND_WITH_IMM, of_kind(RS_WIRE_CREDIT, 1), 0, 0);
	expect_broken(liar);
	liar_close(liar);
}

TEST(receives_that_were_never_used_are_not_taken_back)
{
	struct liar *liar = liar_open();

	be_accepted(liar);
	say(liar, IBV_WR_SEND_WITH_IMM, of_kind(RS_WIRE_SLOTS, RS_WIRE_VALUE_MASK), 0, 0);
	expect_broken(liar);
	liar_close(liar);
}

TEST(bytes_that_were_not_written_end_the_connection)
{
	struct liar *liar = liar_open();

	be_accepted(liar);
	say(liar, IBV_WR_RDMA_WRITE_WITH_IMM, 100, 10, 0);
	expect_broken(liar);
	liar_close(liar);
}

TEST(more_bytes_than_the_ring_has_end_the_connection)
{
	struct liar *liar = liar_open();
	uint32_t writes;

	be_accepted(liar);
	writes = ntohl(liar->theirs.ring_bytes) / sizeof(liar->memory);
	for (uint32_t i = 0; i <= writes; i++)
		say(liar, IBV_WR_RDMA_WRITE_WITH_IMM, sizeof(liar->memory), sizeof(liar->memory),
		    0);
	expect_broken(liar);
	liar_close(liar);
}

TEST(a_write_beyond_the_ring_ends_the_connection)
{
	struct liar *liar = liar_open();
	char byte;

	be_accepted(liar);
	say(liar, IBV_WR_RDMA_WRITE_WITH_IMM, 4096, 4096, ntohl(liar->theirs.ring_bytes) - 1000);
	CHECK_EQ(rrecv(liar->fd, &byte, 1, 0), -1);
	CHECK_EQ(errno, ECONNRESET);
	liar_close(liar);
}

TEST(a_reply_that_is_no_rsockets_fails_the_connect)
{
	struct nupa_fabric *fabric = test_fabric();
	struct cm_side side;
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct pollfd polled = { .events = POLLOUT };
	int code;
	socklen_t bytes = sizeof(code);

	rs_use_fabric(fabric);
	side = cm_side_open(fabric, 1);
	listener = cm_listener(&side, RDMA_PS_TCP, "10.0.0.2");
	polled.fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(polled.fd >= 0);
	CHECK_EQ(rs_connect(polled.fd, "10.0.0.2", cm_port(listener)), -1);
	CHECK_EQ(errno, EINPROGRESS);
	CHECK_EQ(rpoll(&polled, 1, 0), 0); /* sends the request */
	event = cm_expect(side.channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	cm_make_qp(&side, event->id);
	CHECK_EQ(rdma_accept(event->id, &param), 0);
	CHECK_EQ(rpoll(&polled, 1, 10000), 1);
	CHECK(polled.revents & POLLERR);
	CHECK_EQ(rgetsockopt(polled.fd, SOL_SOCKET, SO_ERROR, &code, &bytes), 0);
	CHECK_EQ(code, EPROTO);
	CHECK_EQ(rclose(polled.fd), 0);
	{
		struct rdma_cm_id *id = event->id;

		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_destroy(id);
	}
	CHECK_EQ(rdma_destroy_id(listener), 0);
	cm_side_close(&side);
	nupa_fabric_put(fabric);
}
