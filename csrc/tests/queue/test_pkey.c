/* SPDX-License-Identifier: BSD-3-Clause
 * Partitions: P_Key tables as programs see them, QPs of different partitions, and QPs whose P_Key
 * is taken away. */
#include "tests/support/end.h"
#include "tests/support/pkeys.h"
#include "engine/device/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#define PROMPT_NS (100 * MS) /* from the change of a table to the error state */

static int init_by(struct end *end, uint16_t index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = index,
		.port_num = 1,
		.qkey = TEST_QKEY,
		.qp_access_flags = end->options.access,
	};

	return nupa_modify_qp(
	    end->qp, &attr,
	    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		(end->options.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static void connect_by(struct end *end, const struct end *peer, uint16_t index)
{
	CHECK_EQ(init_by(end, index), 0);
	end_to_rtr(end, &peer->self);
	end_to_rts(end);
}

/* Host 0 by an entry of its table, host 1 by one of its. */
static void pair_by(struct nupa_fabric *fabric, const struct end_options *options, uint16_t at_a,
		    uint16_t at_b, struct end **a, struct end **b)
{
	struct end_options b_options = *options;

	b_options.host = 1;
	*a = end_open(fabric, options);
	*b = end_open(fabric, &b_options);
	connect_by(*a, *b, at_a);
	connect_by(*b, *a, at_b);
}

/* Gives up after 33 ms. */
static struct end_options hasty(enum nupa_mover mover)
{
	struct end_options options = end_options_of(mover);

	options.timeout = 11;
	options.retry_cnt = 3;
	return options;
}

static void expect_no_event(struct end *end)
{
	struct pollfd wait = { .fd = end->context->async_fd, .events = POLLIN };

	CHECK_EQ(poll(&wait, 1, 0), 0);
}

/* --- tables -------------------------------------------------------------------------- */

TEST(a_port_has_a_table_of_128_entries)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults);
	struct ibv_device_attr_ex device;
	struct ibv_port_attr port;
	uint16_t pkey;

	pkey_set(fabric, 0, 127, RED);
	CHECK_EQ(nupa_query_device_ex(end->context, NULL, &device, sizeof(device)), 0);
	CHECK_EQ(device.orig_attr.max_pkeys, 128);
	CHECK_EQ(nupa_query_port(end->context, 1, &port, sizeof(port)), 0);
	CHECK_EQ(port.pkey_tbl_len, 128);
	CHECK_EQ(nupa_query_pkey(end->context, 1, 0, &pkey), 0);
	CHECK_EQ(pkey, 0xffff);
	CHECK_EQ(nupa_query_pkey(end->context, 1, 1, &pkey), 0);
	CHECK_EQ(pkey, 0);
	CHECK_EQ(nupa_query_pkey(end->context, 1, 127, &pkey), 0);
	CHECK_EQ(ntohs(pkey), RED);
	for (int index = -1; index <= 128; index += 129) {
		errno = 0;
		CHECK_EQ(nupa_query_pkey(end->context, 1, index, &pkey), -1);
		CHECK_EQ(errno, EINVAL);
	}
	CHECK_EQ(nupa_query_pkey(end->context, 2, 0, &pkey), -1);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(a_table_is_not_written_beyond_its_end)
{
	struct nupa_fabric *fabric = test_fabric();
	uint16_t pkeys[NUPA_PKEYS_MAX + 1] = { RED };
	char why[256];

	CHECK_EQ(nupa_pkey_table_set(fabric, 1, 0, pkeys, NUPA_PKEYS_MAX, why, sizeof(why)), 0);
	CHECK_EQ(nupa_pkey_table_set(fabric, 1, 0, pkeys, NUPA_PKEYS_MAX + 1, why, sizeof(why)),
		 -EINVAL);
	CHECK_EQ(nupa_pkey_table_set(fabric, 1, NUPA_PKEYS_MAX, pkeys, 1, why, sizeof(why)),
		 -EINVAL);
	CHECK_EQ(nupa_pkey_table_set(fabric, 2, 0, pkeys, 1, why, sizeof(why)), -EINVAL);
	CHECK_EQ(nupa_pkey_at(fabric, 1, 0), RED);
	CHECK_EQ(nupa_pkey_at(fabric, 0, 0), 0xffff);
	nupa_fabric_put(fabric);
}

TEST(a_queue_pair_takes_only_an_entry_that_is_there)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a = end_open(fabric, &end_defaults), *b;
	struct end_options options = end_defaults;
	struct ibv_qp_attr attr = { .alt_port_num = 1, .alt_pkey_index = 1 };
	struct ibv_qp_init_attr init;

	options.host = 1;
	b = end_open(fabric, &options);
	CHECK_EQ(init_by(a, 1), EINVAL);
	CHECK_EQ(init_by(a, 128), EINVAL);
	CHECK_EQ(init_by(a, UINT16_MAX), EINVAL);
	CHECK_EQ(end_state(a), IBV_QPS_RESET);
	pkey_set(fabric, 0, 1, 0x8000); /* IBTA 10.9.2: invalid, too */
	CHECK_EQ(init_by(a, 1), EINVAL);
	pkey_set(fabric, 0, 1, RED);
	CHECK_EQ(init_by(a, 1), 0);
	CHECK_EQ(nupa_query_qp(a->qp, &attr, IBV_QP_PKEY_INDEX, &init), 0);
	CHECK_EQ(attr.pkey_index, 1);
	CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
	connect_by(a, b, 0);
	attr = (struct ibv_qp_attr){
		.alt_port_num = 1,
		.alt_pkey_index = 2,
		.alt_ah_attr = { .grh = { .dgid = b->self.gid, .sgid_index = 1 },
				 .is_global = 1,
				 .port_num = 1 },
	};
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_ALT_PATH), EINVAL);
	attr.alt_pkey_index = 1;
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_ALT_PATH), 0);
	fabric_close(fabric, a, b);
}

/* --- partitions ---------------------------------------------------------------------- */

static const enum ibv_wr_opcode one_sided[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						IBV_WR_ATOMIC_FETCH_AND_ADD,
						IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND };

/* Each operation ends as if there were no such QP, and touches nothing. */
static void check_apart(struct nupa_fabric *fabric, enum nupa_mover mover, uint16_t at_a,
			uint16_t at_b)
{
	for (size_t i = 0; i < sizeof(one_sided) / sizeof(one_sided[0]); i++) {
		const struct end_options options = hasty(mover);
		const uint64_t before = pkey_violations(fabric, 1);
		struct end *a, *b;
		uint64_t start_ns;

		pair_by(fabric, &options, at_a, at_b, &a, &b);
		end_post_recv(b, 9, 4096, 64);
		memset(a->memory, 0x55, 64);
		memset(b->memory, 0xaa, 64);
		start_ns = test_now_ns();
		end_start(a, one_sided[i], 1, 0, 8);
		end_start(a, IBV_WR_SEND, 2, 0, 8);
		cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		CHECK(test_now_ns() - start_ns >= 33 * MS);
		cq_expect(a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(end_state(a), IBV_QPS_ERR);
		CHECK_EQ(end_state(b), IBV_QPS_RTS);
		CHECK_EQ(a->memory[0], 0x55);
		CHECK_EQ(b->memory[0], 0xaa);
		CHECK(pkey_violations(fabric, 1) > before);
		CHECK_EQ(pkey_violations(fabric, 0), 0);
		pair_close(a, b);
	}
}

TEST(queue_pairs_of_different_partitions_do_not_reach_each_other)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();

		for (uint32_t host = 0; host < 2; host++) {
			pkey_set(fabric, host, 1, RED);
			pkey_set(fabric, host, 2, BLUE);
		}
		check_apart(fabric, movers[i], 1, 2);
		nupa_fabric_put(fabric);
	}
}

TEST(hosts_that_share_no_partition_do_not_reach_each_other)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();

		pkey_set(fabric, 0, 0, RED);
		pkey_set(fabric, 1, 0, BLUE);
		check_apart(fabric, movers[i], 0, 0);
		nupa_fabric_put(fabric);
	}
}

TEST(limited_members_reach_full_members_alone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;

	pkey_set(fabric, 0, 0, BLUE_LIMITED);
	pkey_set(fabric, 1, 0, BLUE_LIMITED);
	pkey_set(fabric, 1, 1, BLUE);
	check_apart(fabric, NUPA_MOVER_LOCAL, 0, 0);
	pair_by(fabric, &end_defaults, 0, 1, &a, &b);
	end_post_recv(b, 9, 4096, 64);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	end_start(a, IBV_WR_SEND, 2, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 9, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

TEST(unreliable_messages_to_another_partition_are_lost_and_counted)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_defaults;
		struct end *a, *b;

		pkey_set(fabric, 0, 1, RED);
		pkey_set(fabric, 1, 1, BLUE);
		pkey_set(fabric, 1, 2, RED);
		options.type = types[i];
		pair_by(fabric, &options, 1, 1, &a, &b);
		end_post_recv(b, 9, 4096, 128);
		for (uint64_t n = 1; n <= 3; n++) {
			end_start(a, IBV_WR_SEND, n, 0, 8);
			cq_expect(a->send_cq, n, IBV_WC_SUCCESS);
		}
		for (uint64_t until = test_now_ns() + WAIT_NS; pkey_violations(fabric, 1) != 3;)
			CHECK(test_now_ns() < until);
		cq_expect_none(b->recv_cq, 0);
		pair_close(a, b);

		pair_by(fabric, &options, 1, 2, &a, &b);
		end_post_recv(b, 9, 4096, 128);
		end_start(a, IBV_WR_SEND, 4, 0, 8);
		CHECK_EQ(cq_expect(b->recv_cq, 9, IBV_WC_SUCCESS).pkey_index,
			 types[i] == IBV_QPT_UD ? 2 : 0);
		CHECK_EQ(pkey_violations(fabric, 1), 3);
		fabric_close(fabric, a, b);
	}
}

/* IBTA 10.3.1: in SQD a QP goes to another partition, and its partner has to follow. */
TEST(a_drained_queue_pair_changes_its_partition)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };
	struct ibv_qp_attr attr = { .pkey_index = 1 };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		const struct end_options options = hasty(movers[i]);
		struct end *a, *b;

		pkey_set(fabric, 0, 1, RED);
		pkey_set(fabric, 1, 1, RED);
		pair_by(fabric, &options, 0, 0, &a, &b);
		for (int round = 0; round < 3; round++) {
			end_post_recv(b, 9, 4096, 64);
			end_start(a, IBV_WR_SEND, 1, 0, 8);
			end_start(a, IBV_WR_RDMA_WRITE, 2, 0, 8);
			cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
			cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
			CHECK_EQ(end_modify(a, IBV_QPS_SQD), 0);
			CHECK_EQ(end_modify(b, IBV_QPS_SQD), 0);
			attr.pkey_index = round == 0 || round == 2;
			CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_PKEY_INDEX), 0);
			if (round < 2) /* the third time it stays behind */
				CHECK_EQ(nupa_modify_qp(b->qp, &attr, IBV_QP_PKEY_INDEX), 0);
			CHECK_EQ(end_modify(a, IBV_QPS_RTS), 0);
			CHECK_EQ(end_modify(b, IBV_QPS_RTS), 0);
		}
		CHECK_EQ(pkey_violations(fabric, 1), 0);
		end_start(a, IBV_WR_SEND, 3, 0, 8);
		cq_expect(a->send_cq, 3, IBV_WC_RETRY_EXC_ERR);
		end_start(b, IBV_WR_RDMA_WRITE, 4, 0, 8);
		cq_expect(b->send_cq, 4, IBV_WC_RETRY_EXC_ERR);
		CHECK(pkey_violations(fabric, 1) > 0);
		fabric_close(fabric, a, b);
	}
}

/* --- taken away ---------------------------------------------------------------------- */

/* The program sleeps: the port thread does it.  Returns how long that took. */
static uint64_t take_away(struct nupa_fabric *fabric)
{
	struct end_options options = hasty(NUPA_MOVER_LOCAL);
	struct ibv_qp *in_reset;
	struct end *a, *b;
	uint64_t ns;

	pkey_set(fabric, 0, 1, RED);
	pkey_set(fabric, 1, 1, RED);
	pair_by(fabric, &options, 1, 1, &a, &b);
	end_post_recv(b, 9, 0, 64);
	in_reset = end_make_qp(b);
	ns = test_now_ns();
	pkey_set(fabric, 1, 1, 0);
	end_expect_event(b, IBV_EVENT_QP_FATAL);
	ns = test_now_ns() - ns;
	end_expect_event(b, IBV_EVENT_PKEY_CHANGE);
	CHECK_EQ(end_state(b), IBV_QPS_ERR);
	cq_expect(b->recv_cq, 9, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(a), IBV_QPS_RTS); /* as on hardware, its next request tells */
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	expect_no_event(b);
	CHECK_EQ(nupa_destroy_qp(in_reset), 0);
	pair_close(a, b);
	return ns;
}

TEST(a_queue_pair_whose_entry_is_gone_fails_at_once)
{
	struct nupa_fabric *fabric = test_fabric();
	uint64_t best_ns = UINT64_MAX;

	/* A busy machine may not run the port thread for as long, now and then. */
	for (int i = 0; i < 5 && best_ns > PROMPT_NS; i++) {
		const uint64_t ns = take_away(fabric);

		best_ns = ns < best_ns ? ns : best_ns;
	}
	CHECK(best_ns <= PROMPT_NS);
	nupa_fabric_put(fabric);
}

TEST(a_queue_pair_in_init_goes_on_with_a_valid_entry_alone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end *a, *b;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .dest_qp_num = 5, .path_mtu = 5 };

	options.host = 1;
	a = end_open(fabric, &end_defaults);
	b = end_open(fabric, &options);
	pkey_set(fabric, 0, 1, RED);
	CHECK_EQ(init_by(a, 1), 0);
	end_expect_event(a, IBV_EVENT_PKEY_CHANGE);
	pkey_set(fabric, 0, 1, 0);
	end_expect_event(a, IBV_EVENT_PKEY_CHANGE);
	expect_no_event(a); /* one for each change */
	CHECK_EQ(end_state(a), IBV_QPS_INIT);
	attr.ah_attr = (struct ibv_ah_attr){ .grh = { .dgid = b->self.gid, .sgid_index = 1 },
					     .is_global = 1,
					     .port_num = 1 };
	CHECK_EQ(nupa_modify_qp(a->qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
		 EINVAL);
	CHECK_EQ(end_state(a), IBV_QPS_INIT);
	pkey_set(fabric, 0, 1, BLUE); /* its index has another one now */
	pkey_set(fabric, 1, 1, BLUE);
	end_to_rtr(a, &b->self);
	end_to_rts(a);
	connect_by(b, a, 1);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}

/* The process there does not see the change: it is stopped, say. */
TEST(a_host_that_is_removed_is_not_reached_even_before_it_sees_that)
{
	static const uint16_t entries[] = { 0, 1 }; /* the other entry stays, or there is none */

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = hasty(NUPA_MOVER_LOCAL);
		struct end *a, *b;

		if (entries[i]) {
			pkey_set(fabric, 0, 1, RED);
			pkey_set(fabric, 1, 1, RED);
		}
		pair_by(fabric, &options, entries[i], entries[i], &a, &b);
		end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		nupa_engine_lock(nupa_engine_of(b->context));
		memset(b->memory, 0xaa, 64);
		memset(a->memory, 0x55, 64);
		pkey_set(fabric, 1, entries[i], 0);
		end_start(a, IBV_WR_RDMA_READ, 2, 64, 8);
		cq_expect(a->send_cq, 2, IBV_WC_RETRY_EXC_ERR);
		CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
		connect_by(a, b, entries[i]);
		end_start(a, IBV_WR_RDMA_WRITE, 3, 0, 8);
		cq_expect(a->send_cq, 3, IBV_WC_RETRY_EXC_ERR);
		CHECK_EQ(b->memory[0], 0xaa);
		nupa_engine_unlock(nupa_engine_of(b->context));
		fabric_close(fabric, a, b);
	}
}

TEST(other_changes_leave_queue_pairs_alone)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;

	pkey_set(fabric, 0, 1, RED);
	pkey_set(fabric, 1, 1, RED);
	pair_by(fabric, &end_defaults, 1, 1, &a, &b);
	for (uint64_t i = 0; i < 20; i++) {
		pkey_set(fabric, 0, 2 + (uint32_t)i % 3, i % 2 ? BLUE : 0);
		end_post_recv(b, i, 4096, 64);
		end_start(a, i % 3 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
	expect_no_event(b); /* its own table is as it was */
	CHECK_EQ(pkey_violations(fabric, 0) + pkey_violations(fabric, 1), 0);
	fabric_close(fabric, a, b);
}

/* As `nupa host remove` does. */
TEST(a_host_with_an_empty_table_keeps_no_queue_pair)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 3; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = end_defaults;
		struct end *a, *b;

		options.type = types[i];
		pair_by(fabric, &options, 0, 0, &a, &b);
		pkey_set(fabric, 1, 0, 0);
		end_expect_event(b, IBV_EVENT_QP_FATAL);
		CHECK_EQ(end_state(b), IBV_QPS_ERR);
		CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
		CHECK_EQ(init_by(b, 0), EINVAL);
		fabric_close(fabric, a, b);
	}
}
