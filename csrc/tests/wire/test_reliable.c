/* SPDX-License-Identifier: BSD-3-Clause
 * RC between two fabrics by RoCE v2 in UDP over loopback. */
#include "engine/core/engine.h"
#include "tests/wire/keeper.h"

#include <string.h>

#define KIB 1024u

static const uint32_t lengths[] = { 0, 1, 8, 33, 255, 4096, 4097, 8192, 100000, 512 * KIB };

#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

TEST(sends_arrive_whole_and_in_order)
{
	struct end_options options = end_defaults;
	struct wired wired;

	wired_open(&wired, &options, 4096);
	for (uint32_t i = 0; i < N_LENGTHS; i++) {
		struct ibv_wc wc;

		pattern_fill(wired.end_a->memory, lengths[i], i);
		end_post_recv(wired.end_b, i, 0, 512 * KIB);
		end_start(wired.end_a, IBV_WR_SEND, i, 0, lengths[i]);
		wc = cq_expect(wired.end_b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, lengths[i]);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(wired.end_b->memory, lengths[i], i);
	}
	CHECK(keeper_info(&wired.a).sent_packets > 0);
	CHECK(keeper_info(&wired.b).received_packets > 0);
	CHECK_EQ(keeper_info(&wired.b).icrc_errors, 0);
	wired_close(&wired);
}

TEST(writes_and_reads_move_all_bytes)
{
	struct end_options options = end_defaults;
	struct wired wired;

	wired_open(&wired, &options, 4096);
	for (uint32_t i = 0; i < N_LENGTHS; i++) {
		pattern_fill(wired.end_a->memory, lengths[i], i);
		end_start(wired.end_a, IBV_WR_RDMA_WRITE, i, 0, lengths[i]);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(wired.end_b->memory, lengths[i], i);
		memset(wired.end_a->memory, 0, lengths[i]);
		end_start(wired.end_a, IBV_WR_RDMA_READ, i, 0, lengths[i]);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(wired.end_a->memory, lengths[i], i);
	}
	wired_close(&wired);
}

/* Both programs sleep: polls would run the engines of the whole process. */
TEST(a_process_that_sleeps_acknowledges_at_once)
{
	struct end_options options = end_defaults;
	struct wired wired;
	struct nupa_engine *asking;

	options.events = true;
	wired_open(&wired, &options, 4096);
	asking = nupa_engine_of(wired.end_a->context);
	for (uint32_t i = 0; i < 50; i++) {
		struct ibv_cq *cq;
		void *context;

		CHECK_EQ(nupa_req_notify_cq(wired.end_a->send_cq, 0), 0);
		end_start(wired.end_a, IBV_WR_RDMA_WRITE, i, 0, 8);
		CHECK_EQ(nupa_get_cq_event(wired.end_a->channel, &cq, &context), 0);
		CHECK(cq == wired.end_a->send_cq);
		nupa_ack_cq_events(cq, 1);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
	}
	CHECK_EQ(nupa_load_relaxed(&asking->hw->local_ack_timeout_err), 0);
	wired_close(&wired);
}
