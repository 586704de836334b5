/* SPDX-License-Identifier: BSD-3-Clause
 * An engine's counters of messages dropped, repeated or rejected.  Each counter changes by the
 * event that it counts, and no other one with it.  Counters outlive their attachment. */
#include "engine/device/device.h"
#include "segment/layout/geometry.h"
#include "segment/slot/counters.h"
#include "tests/support/target.h"

#include <string.h>

static struct nupa_qp *qp_of(const struct end *end)
{
	return container_of(end->qp, struct nupa_qp, ibv);
}

/* RNR NAKs are part of ordinary traffic: how many there are depends on who is first. */
static void forget_rnr(struct nupa_hw_counters *counters)
{
	counters->send_rnr_err = counters->rcvd_rnr_err = 0;
}

/* The counters of a host are these, or will be. */
static void counted(struct nupa_fabric *fabric, uint32_t host,
		    const struct nupa_hw_counters *wanted)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;
	struct nupa_hw_counters found;

	do {
		CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &found), 0);
		forget_rnr(&found);
	} while (memcmp(&found, wanted, sizeof(found)) != 0 && test_now_ns() < deadline_ns);
	for (unsigned int i = 0; i < NUPA_HW_COUNTERS; i++)
		CHECK_EQ(((const uint64_t *)&found)[i], ((const uint64_t *)wanted)[i]);
}

#define COUNTED(fabric, host, ...)                                                                 \
	counted(fabric, host, &(const struct nupa_hw_counters){ __VA_ARGS__ })

static void pair_of(enum ibv_qp_type type, enum nupa_mover mover, struct nupa_fabric **fabric,
		    struct end **a, struct end **b)
{
	struct end_options options = end_options_of(mover);

	options.type = type;
	*fabric = test_fabric();
	pair_open(*fabric, &options, a, b);
}

/* A message from a to b, which arrives: so the channel is there, and all before it was handled. */
static void send_one(struct end *a, struct end *b)
{
	end_post_recv(b, 1, 0, 1000);
	end_start(a, IBV_WR_SEND, 1, 0, 100);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
}

static void publish(struct nupa_channel *channel, struct nupa_msg *line, const struct nupa_msg *msg)
{
	const size_t at = sizeof(msg->tag); /* P1 */

	memcpy((uint8_t *)line + at, (const uint8_t *)msg + at, sizeof(*msg) - at);
	nupa_channel_publish(channel, line, 0);
}

/* Puts a line into a's ring to b that says what *msg* says, *ahead* of a's next PSN, from a's QP.
 */
static void forge(struct end *a, struct end *b, struct nupa_msg *msg, uint32_t ahead)
{
	struct nupa_engine *engine = nupa_engine_of(a->context);
	struct nupa_qp *qp = qp_of(a);
	struct nupa_channel *channel;
	struct nupa_msg *line;

	nupa_engine_lock(engine);
	channel = engine->channels[nupa_context_slot(b->context)];
	line = nupa_tx_reserve(&channel->tx, 0, NULL);
	CHECK(line);
	msg->dest_qpn = msg->dest_qpn ? msg->dest_qpn : b->self.qpn;
	msg->src_qpn = a->self.qpn;
	msg->psn = nupa_psn_of(qp->incarnation, nupa_psn_add(qp->next_psn, ahead));
	publish(channel, line, msg);
	nupa_engine_unlock(engine);
}

/* --- datagrams ----------------------------------------------------------------------- */

TEST(a_datagram_that_finds_no_receive)
{
	struct nupa_fabric *fabric;
	struct end *a, *b;

	pair_of(IBV_QPT_UD, NUPA_MOVER_NONE, &fabric, &a, &b);
	for (uint64_t i = 1; i <= 3; i++) {
		end_start(a, IBV_WR_SEND, i, 0, 100);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		COUNTED(fabric, 1, .rx_no_receive = i);
	}
	send_one(a, b);
	COUNTED(fabric, 1, .rx_no_receive = 3);
	COUNTED(fabric, 0, 0);
	fabric_close(fabric, a, b);
}

TEST(a_datagram_with_another_qkey)
{
	struct ibv_port_attr port;
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct request request;

	pair_of(IBV_QPT_UD, NUPA_MOVER_NONE, &fabric, &a, &b);
	end_post_recv(b, 7, 0, 1000);
	request = request_of(a, IBV_WR_SEND, 2, 0, 100);
	request.wr.wr.ud.remote_qkey = TEST_QKEY + 1;
	end_post(a, &request);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	COUNTED(fabric, 1, .qkey_violations = 1);
	end_start(a, IBV_WR_SEND, 3, 0, 200);
	CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len, 240);
	COUNTED(fabric, 1, .qkey_violations = 1);
	CHECK_EQ(nupa_query_port(b->context, 1, &port, sizeof(port)), 0);
	CHECK_EQ(port.qkey_viol_cntr, 1);
	CHECK_EQ(port.bad_pkey_cntr, 0);
	fabric_close(fabric, a, b);
}

TEST(a_datagram_to_no_queue_pair_or_one_that_is_not_ready)
{
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct request request;

	pair_of(IBV_QPT_UD, NUPA_MOVER_NONE, &fabric, &a, &b);
	request = request_of(a, IBV_WR_SEND, 1, 0, 100);
	request.wr.wr.ud.remote_qpn = b->self.qpn + 1;
	end_post(a, &request);
	COUNTED(fabric, 1, .rx_invalid = 1);
	CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
	end_to_init(b);
	end_start(a, IBV_WR_SEND, 2, 0, 100);
	COUNTED(fabric, 1, .rx_invalid = 2);
	fabric_close(fabric, a, b);
}

TEST(datagrams_that_no_requester_would_send)
{
	const struct nupa_deth deth = { .qkey = TEST_QKEY, .pkey = NUPA_PKEY_DEFAULT };
	const struct nupa_deth group = { .qkey = TEST_QKEY,
					 .pkey = NUPA_PKEY_DEFAULT,
					 .is_global = NUPA_DETH_MULTICAST };
	const uint8_t whole = NUPA_F_FIRST | NUPA_F_LAST;
	struct nupa_msg messages[] = {
		{ .op = NUPA_OP_SEND, .flags = NUPA_F_FIRST, .length_bytes = 8, .deth = deth },
		{ .op = NUPA_OP_SEND,
		  .flags = whole,
		  .length_bytes = NUPA_UD_INLINE_BYTES + 1,
		  .deth = deth },
		{ .op = NUPA_OP_SEND, .flags = whole, .deth = group }, /* it joined none */
		{ .op = NUPA_OP_WRITE, .flags = whole },
		{ .op = NUPA_OP_READ, .flags = whole },
	};
	const uint32_t n = sizeof(messages) / sizeof(messages[0]);
	struct nupa_fabric *fabric;
	struct end *a, *b;

	pair_of(IBV_QPT_UD, NUPA_MOVER_NONE, &fabric, &a, &b);
	send_one(a, b);
	end_post_recv(b, 7, 0, 1000);
	for (uint32_t i = 0; i < n; i++)
		forge(a, b, &messages[i], 0);
	COUNTED(fabric, 1, .rx_invalid = n, .multicast_rcv_packets = 1);
	end_start(a, IBV_WR_SEND, 2, 0, 200);
	CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len, 240);
	fabric_close(fabric, a, b);
}

/* --- unreliable connections ---------------------------------------------------------- */

/* One count for a message, however many parts it has. */
TEST(unreliable_messages_that_find_no_receive)
{
	struct nupa_fabric *fabric;
	struct end *a, *b;

	pair_of(IBV_QPT_UC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	end_start(a, IBV_WR_SEND, 2, 0, 100);
	COUNTED(fabric, 1, .rx_no_receive = 1);
	end_start(a, IBV_WR_SEND, 3, 0, 200000);
	end_start(a, IBV_WR_RDMA_WRITE_WITH_IMM, 4, 0, 100);
	for (uint64_t i = 2; i <= 4; i++)
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	COUNTED(fabric, 1, .rx_no_receive = 3);
	send_one(a, b);
	COUNTED(fabric, 1, .rx_no_receive = 3);
	fabric_close(fabric, a, b);
}

TEST(an_unreliable_message_with_a_gap_in_it)
{
	struct nupa_msg first = { .op = NUPA_OP_SEND, .flags = NUPA_F_FIRST, .length_bytes = 32 };
	struct nupa_msg middle = { .op = NUPA_OP_SEND, .length_bytes = 32 };
	struct nupa_msg last = { .op = NUPA_OP_SEND, .flags = NUPA_F_LAST, .length_bytes = 32 };
	struct nupa_fabric *fabric;
	struct end *a, *b;

	pair_of(IBV_QPT_UC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	send_one(a, b);
	end_post_recv(b, 7, 0, 1000);
	forge(a, b, &first, 0);
	forge(a, b, &middle, 2); /* the message 1 ahead is lost */
	forge(a, b, &last, 3);
	COUNTED(fabric, 1, .rx_out_of_sequence = 1);
	end_start(a, IBV_WR_SEND, 2, 0, 200);
	CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len, 200);
	COUNTED(fabric, 1, .rx_out_of_sequence = 1);
	fabric_close(fabric, a, b);
}

TEST(unreliable_messages_that_no_requester_would_send)
{
	const uint8_t whole = NUPA_F_FIRST | NUPA_F_LAST;
	struct nupa_msg messages[] = {
		{ .op = NUPA_OP_READ, .flags = whole },
		{ .op = NUPA_OP_ATOMIC, .flags = whole },
		{ .op = NUPA_OP_SEND, .flags = NUPA_F_LAST }, /* of a message that did not begin */
		{ .op = NUPA_OP_SEND, .flags = whole, .length_bytes = NUPA_SEND_INLINE_BYTES + 1 },
	};
	const uint32_t n = sizeof(messages) / sizeof(messages[0]);
	struct nupa_fabric *fabric;
	struct end *a, *b;

	pair_of(IBV_QPT_UC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	send_one(a, b);
	end_post_recv(b, 7, 0, 1000);
	for (uint32_t i = 0; i < n; i++)
		forge(a, b, &messages[i], i);
	COUNTED(fabric, 1, .rx_invalid = n);
	end_start(a, IBV_WR_SEND, 2, 0, 200);
	CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len, 200);
	fabric_close(fabric, a, b);
}

/* It reaches beyond the region with its last part: refused at the first, no byte changes. */
TEST(an_unreliable_write_beyond_the_region)
{
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct request request;
	const uint32_t bytes = 100000;

	pair_of(IBV_QPT_UC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	memset(a->memory, 0x77, bytes);
	request = request_of(a, IBV_WR_RDMA_WRITE, 2, 0, bytes);
	request.wr.wr.rdma.remote_addr = b->self.memory + b->options.memory_bytes - (bytes - 100);
	end_post(a, &request);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	COUNTED(fabric, 1, .rx_invalid = 1);
	send_one(a, b);
	for (size_t i = b->options.memory_bytes - bytes; i < b->options.memory_bytes; i++)
		CHECK_EQ(b->memory[i], 0);
	COUNTED(fabric, 1, .rx_invalid = 1);
	fabric_close(fabric, a, b);
}

/* --- reliable connections ------------------------------------------------------------ */

/* While b does nothing, a is told that its request did not arrive, and sends it again. */
TEST(a_request_that_is_sent_again_although_it_arrived)
{
	struct nupa_msg nak = { .op = NUPA_OP_NAK, .syndrome = NUPA_NAK_PSN };
	struct nupa_fabric *fabric;
	struct nupa_engine *engine;
	struct nupa_msg *line;
	struct end *a, *b;

	pair_of(IBV_QPT_RC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	send_one(a, b);
	end_post_recv(b, 7, 0, 1000);
	engine = nupa_engine_of(b->context);
	nupa_engine_lock(engine);
	nak.psn = nupa_psn_of(qp_of(a)->incarnation, qp_of(a)->next_psn);
	nak.ack_psn = nak.psn;
	nak.dest_qpn = a->self.qpn;
	nak.src_qpn = b->self.qpn;
	end_start(a, IBV_WR_SEND, 2, 0, 200);
	line = nupa_tx_reserve(&engine->channels[nupa_context_slot(a->context)]->tx, 0, NULL);
	CHECK(line);
	publish(engine->channels[nupa_context_slot(a->context)], line, &nak);
	COUNTED(fabric, 0, .packet_seq_err = 1);
	nupa_engine_unlock(engine);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len, 200);
	COUNTED(fabric, 1, .duplicate_request = 1);
	send_one(a, b);
	fabric_close(fabric, a, b);
}

/* The first is NAKed, those behind it are dropped; what comes then is in its turn. */
TEST(reliable_requests_out_of_sequence)
{
	struct nupa_msg msg = { .op = NUPA_OP_SEND, .flags = NUPA_F_FIRST | NUPA_F_LAST };
	struct nupa_fabric *fabric;
	struct end *a, *b;

	pair_of(IBV_QPT_RC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	send_one(a, b);
	end_post_recv(b, 7, 0, 1000);
	forge(a, b, &msg, 1);
	forge(a, b, &msg, 2);
	COUNTED(fabric, 1, .rx_out_of_sequence = 2);
	for (int i = 0; i < 2; i++) /* the NAK comes before the second, and says nothing to a */
		send_one(b, a);
	end_start(a, IBV_WR_SEND, 2, 0, 200);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS).byte_len, 200);
	COUNTED(fabric, 1, .rx_out_of_sequence = 2);
	COUNTED(fabric, 0, 0);
	fabric_close(fabric, a, b);
}

TEST(requests_to_a_queue_pair_that_is_not_the_one)
{
	struct nupa_msg msg = { .op = NUPA_OP_SEND, .flags = NUPA_F_FIRST | NUPA_F_LAST };
	struct nupa_fabric *fabric;
	struct ibv_qp *other;
	struct end *a, *b;

	pair_of(IBV_QPT_RC, NUPA_MOVER_RELAY, &fabric, &a, &b);
	send_one(a, b);
	other = end_make_qp(b); /* in RESET */
	msg.dest_qpn = other->qp_num;
	forge(a, b, &msg, 0);
	msg.dest_qpn = other->qp_num + 1;
	forge(a, b, &msg, 0);
	COUNTED(fabric, 1, .rx_invalid = 2);
	send_one(a, b);
	CHECK_EQ(nupa_destroy_qp(other), 0);
	fabric_close(fabric, a, b);
}

/* A missing receive is not an error of RC, and neither are the messages behind that one. */
TEST(ordinary_requests_count_no_error)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_SEND,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric;
		struct end *a, *b;

		pair_of(IBV_QPT_RC, movers[i], &fabric, &a, &b);
		send_one(a, b);
		for (uint64_t n = 0; n < 12; n++)
			end_start(a, opcodes[n % 4], n, 0, n % 4 == 3 ? 8 : 40000);
		for (uint64_t n = 0; n < 3; n++) /* it was refused before: RNR */
			end_post_recv(b, n, 65536, 40000);
		for (uint64_t n = 0; n < 12; n++)
			cq_expect(a->send_cq, n, IBV_WC_SUCCESS);
		for (uint64_t n = 0; n < 3; n++)
			cq_expect(b->recv_cq, n, IBV_WC_SUCCESS);
		COUNTED(fabric, 0, 0);
		COUNTED(fabric, 1, 0);
		fabric_close(fabric, a, b);
	}
}

/* The responder without a receive answers RNR NAK, until the requester gives up. */
TEST(a_request_that_finds_no_receive_as_often_as_it_may)
{
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_hw_counters found[2];
	struct end *a, *b;

	options.rnr_retry = 2;
	pair_open(fabric, &options, &a, &b);
	end_start(a, IBV_WR_SEND, 2, 0, 200);
	cq_expect(a->send_cq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	COUNTED(fabric, 0, .retry_rnr_exceeded_err = 1);
	for (uint32_t host = 0; host < 2; host++)
		CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &found[host]), 0);
	CHECK_EQ(found[0].rcvd_rnr_err, 3);
	CHECK_EQ(found[1].send_rnr_err, 3);
	fabric_close(fabric, a, b);
}

/* --- afterwards ---------------------------------------------------------------------- */

TEST(counters_outlive_a_process_that_is_killed_and_one_that_leaves)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct target killed = target_fork(fabric), leaving = target_fork(fabric);

	options.type = IBV_QPT_UD;
	for (uint64_t i = 0; i < 2; i++) {
		struct target *target = i ? &leaving : &killed;
		struct end *a = end_open(fabric, &options);

		target_open(target, fabric, &options);
		target_connect(target, &a->self);
		end_connect(a, &target->address);
		end_start(a, IBV_WR_SEND, i, 0, 100);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		COUNTED(fabric, 1, .rx_no_receive = i + 1);
		if (i) {
			target_close(target);
		} else {
			target_kill(target);
			nupa_fabric_reap(fabric);
		}
		end_close(a);
		COUNTED(fabric, 1, .rx_no_receive = i + 1);
	}
	COUNTED(fabric, 0, 0);
	nupa_fabric_put(fabric);
}

/* With any content of a slot: sums wrap, no memory beyond the table is touched, an owner starts at
 * 0. */
TEST(counters_that_a_hostile_process_has_filled_in)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint64_t hw_off = nupa_arena_map(&fabric->geometry).hw_off;
	const uint32_t n_hosts = fabric->geometry.n_hosts;
	struct nupa_hw_counters found;
	uint32_t slot;

	for (uint64_t round = 1; round <= 3; round++) {
		struct nupa_hw_counters *hw;

		CHECK_EQ(nupa_fabric_claim_slot(fabric, 1, &slot), 0);
		CHECK_EQ(nupa_fabric_back(fabric, nupa_arena_offset(fabric, slot), NUPA_PAGE_BYTES),
			 0);
		hw = (struct nupa_hw_counters *)(void *)(nupa_fabric_arena(fabric, slot) + hw_off);
		CHECK_EQ(hw->rx_invalid, 0);
		memset(hw, 0xff, sizeof(*hw));
		CHECK_EQ(nupa_fabric_hw_counters(fabric, 1, &found), 0);
		CHECK_EQ(found.rx_invalid, -(int64_t)round);
		CHECK_EQ(nupa_fabric_free_slot(fabric, slot), 0);
		CHECK_EQ(nupa_fabric_hw_counters(fabric, 1, &found), 0);
		CHECK_EQ(found.reserved[3], -(int64_t)round);
		COUNTED(fabric, 0, 0);
	}
	CHECK_EQ(nupa_fabric_claim_slot(fabric, 1, &slot), 0);
	memset(nupa_fabric_arena(fabric, slot), 0xff, NUPA_PAGE_BYTES);
	for (uint32_t host = n_hosts; host; host *= 16) { /* hosts that do not exist */
		fabric->slots[slot].host = host;
		CHECK_EQ(nupa_fabric_hw_counters(fabric, 1, &found), 0);
		CHECK_EQ(found.rx_invalid, -3);
		CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &found), -EINVAL);
	}
	fabric->slots[slot].host = UINT32_MAX;
	CHECK_EQ(nupa_fabric_free_slot(fabric, slot), 0);
	CHECK_EQ(nupa_fabric_hw_counters(fabric, 1, &found), 0);
	CHECK_EQ(found.rx_invalid, -3);
	COUNTED(fabric, 0, 0);
	nupa_fabric_put(fabric);
}
