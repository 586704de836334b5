/* SPDX-License-Identifier: BSD-3-Clause
 * SRQs: their order among QPs, their limit, and QPs in error. */
#include "tests/support/end.h"
#include "engine/device/device.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* Another QP of the same end, to RTS with its peer. */
static struct end twin_of(struct end *end)
{
	struct end twin = *end;

	twin.qp = end_make_qp(end);
	twin.self.qpn = twin.qp->qp_num;
	return twin;
}

TEST(an_srq_serves_two_queue_pairs_in_the_order_of_arrival)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct ibv_recv_wr wr = { .wr_id = 99 }, *bad = NULL;
	struct end *a, *b, a_twin, b_twin;

	options.srq_wr = 16;
	pair_open(fabric, &options, &a, &b);
	a_twin = twin_of(a);
	b_twin = twin_of(b);
	end_connect(&a_twin, &b_twin.self);
	end_connect(&b_twin, &a_twin.self);
	CHECK_EQ(nupa_post_recv(b->qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
	for (uint64_t i = 0; i < 16; i++)
		end_post_recv(b, i, (uint32_t)i * 64, 64);
	CHECK_EQ(nupa_post_srq_recv(b->srq, &wr, &bad), ENOMEM);
	for (uint64_t i = 0; i < 16; i++) {
		struct ibv_wc wc;

		memset(a->memory, (int)i, 64);
		end_start(i % 3 ? a : &a_twin, IBV_WR_SEND, i, 0, 64);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		wc = cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.qp_num, (i % 3 ? b->qp : b_twin.qp)->qp_num);
		CHECK_EQ(b->memory[i * 64], i);
	}
	CHECK_EQ(nupa_destroy_srq(b->srq), EBUSY);
	CHECK_EQ(nupa_destroy_qp(a_twin.qp), 0);
	CHECK_EQ(nupa_destroy_qp(b_twin.qp), 0);
	fabric_close(fabric, a, b);
}

TEST(an_srq_that_falls_below_its_limit_says_so_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct end *a, *b;

	options.srq_wr = 8;
	pair_open(fabric, &options, &a, &b);
	attr.srq_limit = 8;
	CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.srq_limit = 3;
	for (uint64_t i = 0; i < 5; i++)
		end_post_recv(b, i, 0, 64);
	CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_LIMIT), 0);
	for (uint64_t i = 0; i < 5; i++) {
		struct pollfd readable = { .fd = b->context->async_fd, .events = POLLIN };

		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(poll(&readable, 1, 0), i == 2);
		if (i == 2) /* two are left */
			end_expect_event(b, IBV_EVENT_SRQ_LIMIT_REACHED);
		CHECK_EQ(nupa_query_srq(b->srq, &attr), 0);
		CHECK_EQ(attr.srq_limit, i < 2 ? 3 : 0);
	}
	fabric_close(fabric, a, b);
}

TEST(a_queue_pair_in_error_leaves_the_srq_to_the_others)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	options.srq_wr = 8;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 5; i++)
		end_post_recv(b, i, 0, 64);
	CHECK_EQ(end_modify(b, IBV_QPS_ERR), 0);
	end_expect_event(b, IBV_EVENT_QP_LAST_WQE_REACHED);
	cq_expect_none(b->recv_cq, MS);
	CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
	end_connect(a, &b->self);
	end_connect(b, &a->self);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}
