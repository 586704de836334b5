/* SPDX-License-Identifier: BSD-3-Clause
 * What else goes by a wire: atomics, immediates, invalidation, UC, UD; and packets that get lost.
 */
#include "engine/channel/channel.h"
#include "engine/core/engine.h"
#include "region/region.h"
#include "tests/wire/keeper.h"

#include <errno.h>
#include <string.h>

static void check_memory(struct end *end, uint64_t value)
{
	uint64_t found;

	memcpy(&found, end->memory, sizeof(found));
	CHECK_EQ(found, value);
}

TEST(atomics_are_executed_once)
{
	struct end_options options = end_defaults;
	struct wired wired;
	struct request request;

	wired_open(&wired, &options, 4096);
	memset(wired.end_b->memory, 0, 64);
	for (uint64_t i = 0; i < 20; i++) {
		request = request_of(wired.end_a, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8);
		request.wr.wr.atomic.compare_add = 3;
		end_post(wired.end_a, &request);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		check_memory(wired.end_a, i * 3);
	}
	check_memory(wired.end_b, 60);
	request = request_of(wired.end_a, IBV_WR_ATOMIC_CMP_AND_SWP, 7, 0, 8);
	request.wr.wr.atomic.compare_add = 60;
	request.wr.wr.atomic.swap = 5;
	end_post(wired.end_a, &request);
	cq_expect(wired.end_a->send_cq, 7, IBV_WC_SUCCESS);
	check_memory(wired.end_a, 60);
	check_memory(wired.end_b, 5);
	wired_close(&wired);
}

TEST(an_atomic_write_is_answered)
{
	const struct end_options options = end_defaults;
	const uint64_t value = 0x1122334455667788;
	struct wired wired;
	struct request request;

	wired_open(&wired, &options, 4096);
	memcpy(wired.end_a->memory, &value, sizeof(value));
	request = request_of(wired.end_a, IBV_WR_ATOMIC_WRITE, 5, 0, 8);
	end_post(wired.end_a, &request);
	cq_expect(wired.end_a->send_cq, 5, IBV_WC_SUCCESS);
	check_memory(wired.end_b, value);
	wired_close(&wired);
}

TEST(immediates_and_writes_with_them)
{
	struct end_options options = end_defaults;
	struct wired wired;
	struct request request;
	struct ibv_wc wc;

	wired_open(&wired, &options, 1024);
	for (uint32_t length = 0; length < 10000; length += 3333) {
		end_post_recv(wired.end_b, 1, 0, 16384);
		end_post_recv(wired.end_b, 2, 0, 16384);
		pattern_fill(wired.end_a->memory, length, length);
		request = request_of(wired.end_a, IBV_WR_SEND_WITH_IMM, 1, 0, length);
		request.wr.imm_data = 0x11223344;
		end_post(wired.end_a, &request);
		request = request_of(wired.end_a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, length);
		request.wr.imm_data = 0x55667788;
		end_post(wired.end_a, &request);
		wc = cq_expect(wired.end_b->recv_cq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(wc.imm_data, 0x11223344);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
		wc = cq_expect(wired.end_b->recv_cq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(wc.imm_data, 0x55667788);
		CHECK_EQ(wc.byte_len, length);
		cq_expect(wired.end_a->send_cq, 1, IBV_WC_SUCCESS);
		cq_expect(wired.end_a->send_cq, 2, IBV_WC_SUCCESS);
		CHECK_PATTERN(wired.end_b->memory, length, length);
	}
	wired_close(&wired);
}

TEST(many_reads_at_once_keep_their_order)
{
	struct end_options options = end_defaults;
	struct wired wired;

	wired_open(&wired, &options, 1024);
	pattern_fill(wired.end_b->memory, 1u << 20, 9);
	for (uint32_t i = 0; i < 16; i++)
		end_start(wired.end_a, IBV_WR_RDMA_READ, i, i << 16, 1u << 16);
	for (uint32_t i = 0; i < 16; i++)
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
	CHECK_PATTERN(wired.end_a->memory, 1u << 20, 9);
	wired_close(&wired);
}

TEST(unreliable_messages_arrive)
{
	struct end_options options = end_defaults;
	struct wired wired;

	options.type = IBV_QPT_UC;
	wired_open(&wired, &options, 4096);
	for (uint32_t i = 0; i < 5; i++) {
		pattern_fill(wired.end_a->memory, 20000, i);
		end_post_recv(wired.end_b, i, 0, 20000);
		end_start(wired.end_a, IBV_WR_SEND, i, 0, 20000);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(wired.end_b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(wired.end_b->memory, 20000, i);
	}
	wired_close(&wired);
}

TEST(datagrams_arrive_with_their_source)
{
	struct end_options options = end_defaults;
	struct wired wired;
	struct ibv_wc wc;

	options.type = IBV_QPT_UD;
	wired_open(&wired, &options, 4096);
	for (uint32_t i = 0; i < 5; i++) {
		const uint32_t length = i * 1000;

		pattern_fill(wired.end_a->memory, length, i);
		end_post_recv(wired.end_b, i, 0, 8192);
		end_start(wired.end_a, IBV_WR_SEND, i, 0, length);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		wc = cq_expect(wired.end_b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, length + 40);
		CHECK_EQ(wc.src_qp, wired.end_a->qp->qp_num);
		CHECK(wc.wc_flags & IBV_WC_GRH);
		CHECK_PATTERN(wired.end_b->memory + 40, length, i);
	}
	wired_close(&wired);
}

TEST(a_receive_that_comes_late_is_waited_for)
{
	struct end_options options = end_defaults;
	struct wired wired;

	wired_open(&wired, &options, 4096);
	end_start(wired.end_a, IBV_WR_SEND, 1, 0, 10000);
	cq_expect_none(wired.end_a->send_cq, 20 * MS);
	end_post_recv(wired.end_b, 2, 0, 10000);
	cq_expect(wired.end_b->recv_cq, 2, IBV_WC_SUCCESS);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_SUCCESS);
	wired_close(&wired);
}

TEST(a_wrong_key_ends_the_connection)
{
	struct end_options options = end_defaults;
	struct wired wired;
	struct request request;

	wired_open(&wired, &options, 4096);
	request = request_of(wired.end_a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	request.wr.wr.rdma.rkey ^= 0x1000;
	end_post(wired.end_a, &request);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(end_state(wired.end_b), IBV_QPS_ERR);
	wired_close(&wired);
}

TEST(a_path_mtu_beyond_the_wire_is_refused)
{
	const struct end_options options = end_defaults;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_2048,
				    .ah_attr = { .is_global = 1, .port_num = 1 } };
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct wired wired;
	struct ibv_qp *qp;

	wired_open(&wired, &options, 1024);
	qp = wired.end_a->qp;
	CHECK_EQ(end_modify(wired.end_a, IBV_QPS_RESET), 0);
	end_to_init(wired.end_a);
	attr.ah_attr.grh.dgid = wired.end_b->self.gid;
	CHECK_EQ(nupa_modify_qp(qp, &attr, mask), EINVAL);
	attr.path_mtu = IBV_MTU_1024;
	CHECK_EQ(nupa_modify_qp(qp, &attr, mask), 0);
	wired_close(&wired);
}

TEST(a_datagram_longer_than_the_wire_carries_is_a_local_error)
{
	struct end_options options = end_defaults;
	struct wired wired;

	options.type = IBV_QPT_UD;
	wired_open(&wired, &options, 1024);
	end_post_recv(wired.end_b, 1, 0, 2048);
	end_start(wired.end_a, IBV_WR_SEND, 1, 0, 1024);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(wired.end_b->recv_cq, 1, IBV_WC_SUCCESS);
	end_start(wired.end_a, IBV_WR_SEND, 2, 0, 1025);
	cq_expect(wired.end_a->send_cq, 2, IBV_WC_LOC_LEN_ERR);
	wired_close(&wired);
}

static uint32_t drawn;

static uint32_t draw(void)
{
	return drawn++;
}

/* A key: the index of a region, which is drawn, and its variant, which is drawn among the others
 * than that of before. */
static void check_key(struct end *end, uint32_t index, uint32_t word)
{
	const struct nupa_engine *engine = nupa_engine_of(end->context);
	const uint32_t variants = (1u << NUPA_KEY_VARIANT_BITS) - 2;
	uint32_t before;
	struct ibv_mr *mr;

	while (engine->mrs[index % engine->mr_limit]) /* drawn before */
		index++;
	index %= engine->mr_limit;
	before = engine->epoch + engine->mr_entries[index].changes;
	mr = nupa_reg_mr(end->pd, end->memory, 4096, 0, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQ(mr->rkey >> NUPA_KEY_VARIANT_BITS, index);
	CHECK_EQ(mr->rkey & ((1u << NUPA_KEY_VARIANT_BITS) - 1),
		 (before + word % (variants - 1)) % variants + 1);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
}

/* Numbers of queue pairs and keys come of the engine's random words alone. */
TEST(numbers_are_drawn)
{
	static const uint32_t words[] = { 777, 4092, 4093, 123456789, UINT32_MAX - 1 };
	const struct end_options options = end_defaults;
	struct nupa_engine *engine;
	uint32_t index = 777;
	struct wired wired;
	struct ibv_qp *qp;

	wired_open(&wired, &options, 4096);
	engine = nupa_engine_of(wired.end_a->context);
	engine->random = draw;
	while (engine->qps[index]) /* drawn before */
		index++;
	drawn = index;
	qp = end_make_qp(wired.end_a);
	CHECK_EQ(qp->qp_num & 0xffff, index);
	CHECK_EQ(nupa_destroy_qp(qp), 0);
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		drawn = words[i];
		check_key(wired.end_a, words[i], words[i] + 1);
	}
	wired_close(&wired);
}

TEST(silence_ends_the_connection)
{
	struct end_options options = end_defaults;
	struct wired wired;

	options.timeout = 8; /* 1 ms */
	options.retry_cnt = 2;
	wired_open(&wired, &options, 4096);
	end_modify(wired.end_b, IBV_QPS_RESET);
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	wired_close(&wired);
}

TEST(a_port_that_is_down_is_waited_for_as_long_as_the_timer_takes)
{
	struct end_options options = end_defaults;
	struct nupa_fabric *fabric;
	struct wired wired;
	uint64_t start_ns;

	options.timeout = 10; /* 4 ms, and four times that on a wire */
	options.retry_cnt = 2;
	wired_open(&wired, &options, 4096);
	fabric = wired.a.fabric;
	CHECK_EQ(nupa_fabric_set_port(fabric, fabric->hosts[WIRE_HOST].port, NUPA_PORT_DOWN), 0);
	start_ns = test_now_ns();
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 1, 0, 100);
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK(test_now_ns() - start_ns >= 4 * 3 * (UINT64_C(4096) << 10));
	wired_close(&wired);
}

/* Queue pairs ask for their peers again and again, by numbers of another fabric. */
TEST(no_channel_leads_to_a_keeper_whose_wire_does_not_stand_yet)
{
	const struct end_options options = end_defaults;
	struct nupa_wire_entry *entry;
	struct nupa_channel *channel;
	struct nupa_engine *engine;
	struct wired wired;
	uint32_t keeper, qpn;

	wired_open(&wired, &options, 4096);
	engine = nupa_engine_of(wired.end_a->context);
	keeper = wired.a.engine->slot_index;
	qpn = nupa_qpn(&wired.a.fabric->geometry, keeper, 1);
	entry = &wired.a.fabric->sb->wires[wired.a.index];
	nupa_engine_lock(engine);
	channel = engine->channels[keeper];
	CHECK_EQ(nupa_channel_slot(engine, WIRE_HOST, qpn), keeper);
	engine->channels[keeper] = NULL;
	nupa_store_relaxed(&entry->epoch, entry->epoch + 1);
	CHECK_EQ(nupa_channel_slot(engine, WIRE_HOST, qpn), 0);
	CHECK(!nupa_channel_get(engine, keeper));
	nupa_store_relaxed(&entry->epoch, entry->epoch - 1);
	engine->channels[keeper] = channel;
	nupa_engine_unlock(engine);
	wired_close(&wired);
}
