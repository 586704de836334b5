/* SPDX-License-Identifier: BSD-3-Clause
 * Memory windows: what they open, what they do not, and what binding refuses; by each mover. */
#include "tests/memory/windowed.h"

#include <errno.h>
#include <string.h>

/* --- access by a window ---------------------------------------------------------------- */

static void opens(enum nupa_mover mover)
{
	struct windowed w = windowed_open(mover, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)w.at + AT;

	CHECK(mw);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, w.mr->rkey);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, mw->rkey);
	windowed_allowed(&w, IBV_WR_RDMA_READ, at, BYTES, mw->rkey);
	windowed_allowed(&w, IBV_WR_ATOMIC_FETCH_AND_ADD, at + BYTES - 8, 8, mw->rkey);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at + BYTES - 1, 1, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at + BYTES, 1, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at - 1, 1, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_READ, at, BYTES + 1, mw->rkey);
	windowed_refused(&w, IBV_WR_ATOMIC_FETCH_AND_ADD, at + BYTES, 8, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, w.mr->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

TEST(a_window_opens_its_part_of_a_region_to_the_byte)
{
	opens(NUPA_MOVER_LOCAL);
	opens(NUPA_MOVER_RELAY);
	opens(NUPA_MOVER_POOL);
	if (test_cma_works())
		opens(NUPA_MOVER_CMA);
}

TEST(a_window_has_the_access_of_its_bind)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)w.at + AT;

	windowed_bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	windowed_refused(&w, IBV_WR_ATOMIC_FETCH_AND_ADD, at, 8, mw->rkey);
	windowed_bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

TEST(a_zero_based_window_counts_from_its_start)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);

	windowed_bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED,
		       IBV_WC_SUCCESS);
	memset(w.a->memory, 0x11, 8);
	CHECK_EQ(windowed_access_at(&w, IBV_WR_RDMA_WRITE, 4, 8, mw->rkey), IBV_WC_SUCCESS);
	CHECK_EQ(w.at[AT + 3], 0xee);
	CHECK_EQ(w.at[AT + 4], 0x11);
	CHECK_EQ(w.at[AT + 11], 0x11);
	CHECK_EQ(w.at[AT + 12], 0xee);
	memset(w.b->memory, 0xee, 1u << 20);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, BYTES, 1, mw->rkey);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, (uintptr_t)w.at + AT, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

/* --- keys ------------------------------------------------------------------------------ */

TEST(a_bind_ends_the_key_before_it)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)w.at + AT;
	uint32_t old;

	/* More than there are tags: none is ever 0, none works twice in a row. */
	for (int i = 0; i < 300; i++) {
		old = mw->rkey;
		windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_SUCCESS);
		CHECK(mw->rkey);
		CHECK_EQ(mw->rkey >> 8, old >> 8);
		windowed_allowed(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	}
	windowed_refused(&w, IBV_WR_RDMA_READ, at, 8, old);
	/* man ibv_alloc_mw: a bind of no bytes ends it. */
	old = mw->rkey;
	windowed_bind1(&w, mw, AT, 0, 0, IBV_WC_SUCCESS);
	windowed_refused(&w, IBV_WR_RDMA_READ, at, 8, old);
	windowed_refused(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

TEST(a_deallocated_window_is_closed_and_its_keys_stay_stale)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	uint64_t at = (uintptr_t)w.at + AT;

	for (int i = 0; i < 600; i++) {
		struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, i & 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		uint32_t key = mw->rkey ^ 0x7f;

		if (i & 1) {
			windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_SUCCESS);
			key = mw->rkey;
		} else {
			windowed_bind2(&w, mw, key, IBV_WC_SUCCESS);
		}
		CHECK_EQ(nupa_dealloc_mw(mw), 0);
		if (i % 50 < 2)
			windowed_refused(&w, IBV_WR_RDMA_READ, at, 8, key);
	}
	windowed_close(&w);
}

TEST(a_region_with_a_bound_window_stays)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_pd *pd;

	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(w.mr), EBUSY);
	CHECK_EQ(nupa_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, windowed_bindable),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(errno, EBUSY);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, (uintptr_t)w.at + AT, 8, mw->rkey);
	windowed_bind1(&w, mw, AT, 0, 0, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, windowed_bindable),
		 0);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	pd = nupa_alloc_pd(w.b->context);
	mw = nupa_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK_EQ(nupa_dealloc_pd(pd), EBUSY);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	windowed_close(&w);
}

/* --- refused bindings ------------------------------------------------------------------ */

TEST(a_bind_that_the_region_does_not_allow_fails)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_pd *pd = nupa_alloc_pd(w.b->context);
	struct ibv_mr *region = w.mr;
	struct ibv_mw *other;

	windowed_bind1(&w, mw, 0, REGION_BYTES + 1, windowed_remote, IBV_WC_MW_BIND_ERR);
	windowed_bind1(&w, mw, REGION_BYTES, 1, windowed_remote, IBV_WC_MW_BIND_ERR);
	windowed_bind1(&w, mw, UINT64_MAX, 2, windowed_remote, IBV_WC_MW_BIND_ERR);
	windowed_bind1(&w, mw, 8, UINT64_MAX, windowed_remote, IBV_WC_MW_BIND_ERR);
	/* A window of another PD, a region of another PD. */
	other = nupa_alloc_mw(pd, IBV_MW_TYPE_1);
	windowed_bind1(&w, other, AT, BYTES, windowed_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dealloc_mw(other), 0);
	w.mr = nupa_reg_mr(pd, w.at, REGION_BYTES, (uintptr_t)w.at, windowed_bindable);
	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	/* A region without MW_BIND; one that is not writable here; a zero-based one. */
	w.mr = nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, (uintptr_t)w.at, IBV_ACCESS_LOCAL_WRITE);
	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	w.mr = nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, (uintptr_t)w.at, IBV_ACCESS_MW_BIND);
	windowed_bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_WRITE, IBV_WC_MW_BIND_ERR);
	windowed_bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_ATOMIC, IBV_WC_MW_BIND_ERR);
	windowed_bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);
	windowed_bind1(&w, mw, AT, 0, 0, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	w.mr =
	    nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, 0, windowed_bindable | IBV_ACCESS_ZERO_BASED);
	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	/* A null region. */
	w.mr = nupa_alloc_null_mr(w.b->pd);
	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	w.mr = region;
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

TEST(a_bind_that_cannot_be_meant_is_not_posted)
{
	enum ibv_mw_type no_type;
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *one = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_mw *two = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = windowed_bind_of(&w, AT, BYTES, windowed_remote);
	struct ibv_send_wr wr = windowed_bind2_wr(&w, two, two->rkey ^ 0x100), *bad;

	CHECK_EQ(nupa_bind_mw(w.b->qp, two, &bind), EINVAL);
	CHECK_EQ(nupa_bind_mw(w.a->qp, one, &bind), EINVAL);
	CHECK_EQ(nupa_post_send(w.b->qp, &wr, &bad), EINVAL);
	wr.bind_mw.rkey = two->rkey;
	wr.bind_mw.bind_info.mr = NULL;
	CHECK_EQ(nupa_post_send(w.b->qp, &wr, &bad), EINVAL);
	bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
	CHECK_EQ(nupa_bind_mw(w.b->qp, one, &bind), EINVAL);
	memset(&no_type, 3, sizeof(no_type));
	CHECK(!nupa_alloc_mw(w.b->pd, no_type));
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(nupa_dealloc_mw(one), 0);
	CHECK_EQ(nupa_dealloc_mw(two), 0);
	windowed_close(&w);
}

TEST(a_window_deallocated_before_its_bind_fails_it)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = windowed_bind_of(&w, AT, BYTES, windowed_remote);

	/* Behind a send that finds no receive, the bind waits. */
	end_start(w.b, IBV_WR_SEND, 1, 0, 8);
	CHECK_EQ(nupa_bind_mw(w.b->qp, mw, &bind), 0);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	end_post_recv(w.a, 2, 0, 8);
	cq_expect(w.a->recv_cq, 2, IBV_WC_SUCCESS);
	cq_expect(w.b->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(w.b->send_cq, 7, IBV_WC_MW_BIND_ERR);
	windowed_close(&w);
}

TEST(a_window_has_no_local_use)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct request request;

	windowed_bind1(&w, mw, AT, BYTES, windowed_remote, IBV_WC_SUCCESS);
	request = request_of(w.b, IBV_WR_RDMA_READ, 9, 0, 8);
	request.sge[0].lkey = mw->rkey;
	request.sge[0].addr = (uintptr_t)w.at + AT;
	end_post(w.b, &request);
	cq_expect(w.b->send_cq, 9, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}
