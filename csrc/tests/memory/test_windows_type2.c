/* SPDX-License-Identifier: BSD-3-Clause
 * Memory windows of type 2: bound on one QP, ended by invalidation. */
#include "tests/memory/windowed.h"

#include <errno.h>
#include <string.h>

/* A second QP of each end, connected to each other: *w* with those. */
static struct windowed second_qps(const struct windowed *w, struct end ends[2])
{
	struct windowed second = *w;

	ends[0] = *w->a;
	ends[1] = *w->b;
	for (int i = 0; i < 2; i++) {
		ends[i].qp = end_make_qp(i ? w->b : w->a);
		ends[i].self.qpn = ends[i].qp->qp_num;
	}
	end_connect(&ends[0], &ends[1].self);
	end_connect(&ends[1], &ends[0].self);
	second.a = &ends[0];
	second.b = &ends[1];
	return second;
}

static void works_on_its_qp_alone(enum nupa_mover mover)
{
	struct windowed w = windowed_open(mover, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	uint64_t at = (uintptr_t)w.at + AT;
	uint32_t key = mw->rkey ^ 0x55;
	struct end *x, *y;
	struct end_options options = end_options_of(mover);

	pair_open(w.fabric, &options, &x, &y);
	windowed_bind2(&w, mw, key, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key);
	windowed_allowed(&w, IBV_WR_RDMA_READ, at, BYTES, key);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, BYTES + 1, key);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	/* Another QP of the same PD: b's second one, connected to a's second one. */
	{
		struct end ends[2];
		struct windowed v = second_qps(&w, ends);

		windowed_refused(&v, IBV_WR_RDMA_WRITE, at, 8, key);
		/* Nor may it invalidate it. */
		windowed_invalidate(&v, v.b->qp, v.b->send_cq, key, IBV_WC_MW_BIND_ERR);
		CHECK_EQ(nupa_destroy_qp(v.a->qp), 0);
		CHECK_EQ(nupa_destroy_qp(v.b->qp), 0);
	}
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key);
	/* IBTA 10.6.7.2: it is bound when it is free, not when it is bound. */
	windowed_bind2(&w, mw, key ^ 1, IBV_WC_MW_BIND_ERR);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key);
	windowed_invalidate(&w, w.b->qp, w.b->send_cq, key, IBV_WC_SUCCESS);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, key);
	windowed_invalidate(&w, w.b->qp, w.b->send_cq, key, IBV_WC_MW_BIND_ERR);
	windowed_bind2(&w, mw, key ^ 1, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key ^ 1);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, key);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	pair_close(x, y);
	windowed_close(&w);
}

TEST(a_type_2_window_works_on_its_qp_alone)
{
	works_on_its_qp_alone(NUPA_MOVER_LOCAL);
	works_on_its_qp_alone(NUPA_MOVER_RELAY);
	works_on_its_qp_alone(NUPA_MOVER_POOL);
	if (test_cma_works())
		works_on_its_qp_alone(NUPA_MOVER_CMA);
}

TEST(the_peer_can_invalidate_a_type_2_window)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *two = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	struct ibv_mw *one = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct request request = request_of(w.a, IBV_WR_SEND_WITH_INV, 3, 0, 8);
	uint64_t at = (uintptr_t)w.at + AT;
	struct ibv_wc wc;

	windowed_bind2(&w, two, two->rkey, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, 8, two->rkey);
	request.wr.invalidate_rkey = two->rkey;
	end_post_recv(w.b, 4, 0, 8);
	end_post(w.a, &request);
	wc = cq_expect(w.b->recv_cq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	CHECK_EQ(wc.invalidated_rkey, two->rkey);
	cq_expect(w.a->send_cq, 3, IBV_WC_SUCCESS);
	memset(w.b->memory, 0xee, 1u << 20);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, two->rkey);
	CHECK_EQ(nupa_dealloc_mw(two), 0);
	/* o10-37.2.26: a type 1 window is not invalidated, by neither end. */
	windowed_bind1(&w, one, AT, BYTES, windowed_remote, IBV_WC_SUCCESS);
	windowed_invalidate(&w, w.b->qp, w.b->send_cq, one->rkey, IBV_WC_MW_BIND_ERR);
	request = request_of(w.a, IBV_WR_SEND_WITH_INV, 3, 0, 8);
	request.wr.invalidate_rkey = one->rkey;
	end_post_recv(w.b, 4, 0, 8);
	end_post(w.a, &request);
	CHECK(cq_wait(w.a->send_cq).status != IBV_WC_SUCCESS);
	cq_expect(w.b->recv_cq, 4, IBV_WC_WR_FLUSH_ERR);
	windowed_reconnect(&w);
	memset(w.b->memory, 0xee, 1u << 20);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, 8, one->rkey);
	CHECK_EQ(nupa_dealloc_mw(one), 0);
	windowed_close(&w);
}

TEST(a_destroyed_qp_frees_the_windows_bound_on_it)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	struct end ends[2];
	struct windowed v = second_qps(&w, ends);

	windowed_bind2(&v, mw, mw->rkey, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(w.mr), EBUSY);
	CHECK_EQ(nupa_destroy_qp(v.a->qp), 0);
	CHECK_EQ(nupa_destroy_qp(v.b->qp), 0);
	windowed_bind2(&w, mw, mw->rkey, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, (uintptr_t)w.at + AT, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}
