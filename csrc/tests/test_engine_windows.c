/* SPDX-License-Identifier: BSD-3-Clause
 * Memory windows: what they open, what they do not, and what binding refuses; by each mover. */
#include "end.h"

#include <errno.h>
#include <string.h>

#define REGION_BYTES 4096u
#define AT 1024u /* where windows begin in the region, and how long they are */
#define BYTES 512u

/* A region of b that remote keys do not open, and windows on it. */
struct windowed {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct ibv_mr *mr;
	uint8_t *at;
};

static const int bindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
static const unsigned int all_remote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static struct windowed windowed_open(enum nupa_mover mover, int access)
{
	struct windowed w = { .fabric = test_fabric() };
	struct end_options options = end_options_of(mover);

	options.in_pool = mover == NUPA_MOVER_POOL;
	pair_open(w.fabric, &options, &w.a, &w.b);
	w.at = w.b->memory + 65536;
	memset(w.b->memory, 0xee, 1u << 20);
	w.mr = nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, (uintptr_t)w.at, access);
	CHECK(w.mr);
	return w;
}

static void windowed_close(struct windowed *w)
{
	CHECK_EQ(nupa_dereg_mr(w->mr), 0);
	fabric_close(w->fabric, w->a, w->b);
}

static void reconnect(struct windowed *w)
{
	CHECK_EQ(end_modify(w->a, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(w->b, IBV_QPS_RESET), 0);
	end_connect(w->a, &w->b->self);
	end_connect(w->b, &w->a->self);
}

static enum ibv_wc_status access_at(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr,
				    uint32_t bytes, uint32_t rkey)
{
	struct request request = request_of(w->a, opcode, 1, 0, bytes);
	struct ibv_wc wc;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = addr;
		request.wr.wr.atomic.rkey = rkey;
		request.wr.wr.atomic.compare_add = 1;
	} else {
		request.wr.wr.rdma.remote_addr = addr;
		request.wr.wr.rdma.rkey = rkey;
	}
	end_post(w->a, &request);
	wc = cq_wait(w->a->send_cq);
	CHECK_EQ(wc.wr_id, 1);
	if (wc.status != IBV_WC_SUCCESS)
		reconnect(w);
	return wc.status;
}

static void allowed(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t bytes,
		    uint32_t rkey)
{
	CHECK_EQ(access_at(w, opcode, addr, bytes, rkey), IBV_WC_SUCCESS);
	memset(w->b->memory, 0xee, 1u << 20);
}

static void refused(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t bytes,
		    uint32_t rkey)
{
	CHECK_EQ(access_at(w, opcode, addr, bytes, rkey), IBV_WC_REM_ACCESS_ERR);
	for (size_t i = 0; i < 1u << 20; i++)
		CHECK_EQ(w->b->memory[i], 0xee);
}

static struct ibv_mw_bind bind_of(struct windowed *w, uint64_t offset, uint64_t bytes,
				  unsigned int access)
{
	return (struct ibv_mw_bind){
		.wr_id = 7,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { w->mr, (uintptr_t)w->at + offset, bytes, access },
	};
}

static void bind1(struct windowed *w, struct ibv_mw *mw, uint64_t offset, uint64_t bytes,
		  unsigned int access, enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = bind_of(w, offset, bytes, access);
	uint32_t before = mw->rkey;
	struct ibv_wc wc;

	CHECK_EQ(nupa_bind_mw(w->b->qp, mw, &bind), 0);
	CHECK_EQ(mw->rkey, ibv_inc_rkey(before));
	wc = cq_expect(w->b->send_cq, 7, status);
	if (status == IBV_WC_SUCCESS) {
		CHECK_EQ(wc.opcode, IBV_WC_BIND_MW);
		return;
	}
	mw->rkey = before;
	reconnect(w);
}

static struct ibv_send_wr bind2_wr(struct windowed *w, struct ibv_mw *mw, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 7,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
	    (struct ibv_mw_bind_info){ w->mr, (uintptr_t)w->at + AT, BYTES, all_remote };
	return wr;
}

static void bind2(struct windowed *w, struct ibv_mw *mw, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = bind2_wr(w, mw, rkey), *bad;

	CHECK_EQ(nupa_post_send(w->b->qp, &wr, &bad), 0);
	cq_expect(w->b->send_cq, 7, status);
	if (status != IBV_WC_SUCCESS)
		reconnect(w);
}

static void invalidate(struct windowed *w, struct ibv_qp *qp, struct ibv_cq *cq, uint32_t rkey,
		       enum ibv_wc_status status)
{
	struct ibv_send_wr wr = {
		.wr_id = 8,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	};
	struct ibv_send_wr *bad;

	CHECK_EQ(nupa_post_send(qp, &wr, &bad), 0);
	cq_expect(cq, 8, status);
	if (status != IBV_WC_SUCCESS)
		reconnect(w);
}

/* --- what a window opens --------------------------------------------------------------- */

static void opens(enum nupa_mover mover)
{
	struct windowed w = windowed_open(mover, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)w.at + AT;

	CHECK(mw);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, w.mr->rkey);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, mw->rkey);
	allowed(&w, IBV_WR_RDMA_READ, at, BYTES, mw->rkey);
	allowed(&w, IBV_WR_ATOMIC_FETCH_AND_ADD, at + BYTES - 8, 8, mw->rkey);
	allowed(&w, IBV_WR_RDMA_WRITE, at + BYTES - 1, 1, mw->rkey);
	refused(&w, IBV_WR_RDMA_WRITE, at + BYTES, 1, mw->rkey);
	refused(&w, IBV_WR_RDMA_WRITE, at - 1, 1, mw->rkey);
	refused(&w, IBV_WR_RDMA_READ, at, BYTES + 1, mw->rkey);
	refused(&w, IBV_WR_ATOMIC_FETCH_AND_ADD, at + BYTES, 8, mw->rkey);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, w.mr->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

static void a_window_opens_its_part_of_a_region_to_the_byte(void)
{
	opens(NUPA_MOVER_LOCAL);
	opens(NUPA_MOVER_RELAY);
	opens(NUPA_MOVER_POOL);
	if (test_cma_works())
		opens(NUPA_MOVER_CMA);
}

static void a_window_has_the_access_of_its_bind(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)w.at + AT;

	bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	refused(&w, IBV_WR_ATOMIC_FETCH_AND_ADD, at, 8, mw->rkey);
	bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	refused(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

static void a_zero_based_window_counts_from_its_start(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);

	bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED, IBV_WC_SUCCESS);
	memset(w.a->memory, 0x11, 8);
	CHECK_EQ(access_at(&w, IBV_WR_RDMA_WRITE, 4, 8, mw->rkey), IBV_WC_SUCCESS);
	CHECK_EQ(w.at[AT + 3], 0xee);
	CHECK_EQ(w.at[AT + 4], 0x11);
	CHECK_EQ(w.at[AT + 11], 0x11);
	CHECK_EQ(w.at[AT + 12], 0xee);
	memset(w.b->memory, 0xee, 1u << 20);
	refused(&w, IBV_WR_RDMA_WRITE, BYTES, 1, mw->rkey);
	refused(&w, IBV_WR_RDMA_WRITE, (uintptr_t)w.at + AT, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

/* --- keys ------------------------------------------------------------------------------ */

static void a_bind_ends_the_key_before_it(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)w.at + AT;
	uint32_t old;

	/* More than there are tags: none is ever 0, none works twice in a row. */
	for (int i = 0; i < 300; i++) {
		old = mw->rkey;
		bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_SUCCESS);
		CHECK(mw->rkey);
		CHECK_EQ(mw->rkey >> 8, old >> 8);
		allowed(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	}
	refused(&w, IBV_WR_RDMA_READ, at, 8, old);
	/* man ibv_alloc_mw: a bind of no bytes ends it. */
	old = mw->rkey;
	bind1(&w, mw, AT, 0, 0, IBV_WC_SUCCESS);
	refused(&w, IBV_WR_RDMA_READ, at, 8, old);
	refused(&w, IBV_WR_RDMA_READ, at, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

static void a_deallocated_window_is_closed_and_its_keys_stay_stale(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	uint64_t at = (uintptr_t)w.at + AT;

	for (int i = 0; i < 600; i++) {
		struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, i & 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		uint32_t key = mw->rkey ^ 0x7f;

		if (i & 1) {
			bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_SUCCESS);
			key = mw->rkey;
		} else {
			bind2(&w, mw, key, IBV_WC_SUCCESS);
		}
		CHECK_EQ(nupa_dealloc_mw(mw), 0);
		if (i % 50 < 2)
			refused(&w, IBV_WR_RDMA_READ, at, 8, key);
	}
	windowed_close(&w);
}

static void a_region_with_a_bound_window_stays(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_pd *pd;

	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(w.mr), EBUSY);
	CHECK_EQ(nupa_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, bindable),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(errno, EBUSY);
	allowed(&w, IBV_WR_RDMA_WRITE, (uintptr_t)w.at + AT, 8, mw->rkey);
	bind1(&w, mw, AT, 0, 0, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, bindable), 0);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	pd = nupa_alloc_pd(w.b->context);
	mw = nupa_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK_EQ(nupa_dealloc_pd(pd), EBUSY);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	windowed_close(&w);
}

/* --- what binding refuses -------------------------------------------------------------- */

static void a_bind_that_the_region_does_not_allow_fails(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_pd *pd = nupa_alloc_pd(w.b->context);
	struct ibv_mr *region = w.mr;
	struct ibv_mw *other;

	bind1(&w, mw, 0, REGION_BYTES + 1, all_remote, IBV_WC_MW_BIND_ERR);
	bind1(&w, mw, REGION_BYTES, 1, all_remote, IBV_WC_MW_BIND_ERR);
	bind1(&w, mw, UINT64_MAX, 2, all_remote, IBV_WC_MW_BIND_ERR);
	bind1(&w, mw, 8, UINT64_MAX, all_remote, IBV_WC_MW_BIND_ERR);
	/* A window of another PD, a region of another PD. */
	other = nupa_alloc_mw(pd, IBV_MW_TYPE_1);
	bind1(&w, other, AT, BYTES, all_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dealloc_mw(other), 0);
	w.mr = nupa_reg_mr(pd, w.at, REGION_BYTES, (uintptr_t)w.at, bindable);
	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	/* A region without MW_BIND; one that is not writable here; a zero-based one. */
	w.mr = nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, (uintptr_t)w.at, IBV_ACCESS_LOCAL_WRITE);
	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	w.mr = nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, (uintptr_t)w.at, IBV_ACCESS_MW_BIND);
	bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_WRITE, IBV_WC_MW_BIND_ERR);
	bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_ATOMIC, IBV_WC_MW_BIND_ERR);
	bind1(&w, mw, AT, BYTES, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);
	bind1(&w, mw, AT, 0, 0, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	w.mr = nupa_reg_mr(w.b->pd, w.at, REGION_BYTES, 0, bindable | IBV_ACCESS_ZERO_BASED);
	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	/* A null region. */
	w.mr = nupa_alloc_null_mr(w.b->pd);
	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(nupa_dereg_mr(w.mr), 0);
	w.mr = region;
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

static void a_bind_that_cannot_be_meant_is_not_posted(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *one = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_mw *two = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = bind_of(&w, AT, BYTES, all_remote);
	struct ibv_send_wr wr = bind2_wr(&w, two, two->rkey ^ 0x100), *bad;

	CHECK_EQ(nupa_bind_mw(w.b->qp, two, &bind), EINVAL);
	CHECK_EQ(nupa_bind_mw(w.a->qp, one, &bind), EINVAL);
	CHECK_EQ(nupa_post_send(w.b->qp, &wr, &bad), EINVAL);
	wr.bind_mw.rkey = two->rkey;
	wr.bind_mw.bind_info.mr = NULL;
	CHECK_EQ(nupa_post_send(w.b->qp, &wr, &bad), EINVAL);
	bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
	CHECK_EQ(nupa_bind_mw(w.b->qp, one, &bind), EINVAL);
	CHECK(!nupa_alloc_mw(w.b->pd, (enum ibv_mw_type)3));
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(nupa_dealloc_mw(one), 0);
	CHECK_EQ(nupa_dealloc_mw(two), 0);
	windowed_close(&w);
}

static void a_window_deallocated_before_its_bind_fails_it(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = bind_of(&w, AT, BYTES, all_remote);

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

/* --- type 2 ---------------------------------------------------------------------------- */

static void works_on_its_qp_alone(enum nupa_mover mover)
{
	struct windowed w = windowed_open(mover, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	uint64_t at = (uintptr_t)w.at + AT;
	uint32_t key = mw->rkey ^ 0x55;
	struct end *x, *y;
	struct end_options options = end_options_of(mover);

	pair_open(w.fabric, &options, &x, &y);
	bind2(&w, mw, key, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key);
	allowed(&w, IBV_WR_RDMA_READ, at, BYTES, key);
	refused(&w, IBV_WR_RDMA_WRITE, at, BYTES + 1, key);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, mw->rkey);
	/* Another QP of the same PD: b's second one, connected to a's second one. */
	{
		struct windowed v = w;
		struct end a2 = *w.a, b2 = *w.b;

		a2.qp = end_make_qp(w.a);
		b2.qp = end_make_qp(w.b);
		a2.self.qpn = a2.qp->qp_num;
		b2.self.qpn = b2.qp->qp_num;
		v.a = &a2;
		v.b = &b2;
		end_connect(&a2, &b2.self);
		end_connect(&b2, &a2.self);
		refused(&v, IBV_WR_RDMA_WRITE, at, 8, key);
		/* Nor may it invalidate it. */
		invalidate(&v, b2.qp, b2.send_cq, key, IBV_WC_MW_BIND_ERR);
		CHECK_EQ(nupa_destroy_qp(a2.qp), 0);
		CHECK_EQ(nupa_destroy_qp(b2.qp), 0);
	}
	allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key);
	/* IBTA 10.6.7.2: it is bound when it is free, not when it is bound. */
	bind2(&w, mw, key ^ 1, IBV_WC_MW_BIND_ERR);
	allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key);
	invalidate(&w, w.b->qp, w.b->send_cq, key, IBV_WC_SUCCESS);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, key);
	invalidate(&w, w.b->qp, w.b->send_cq, key, IBV_WC_MW_BIND_ERR);
	bind2(&w, mw, key ^ 1, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_WRITE, at, BYTES, key ^ 1);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, key);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	pair_close(x, y);
	windowed_close(&w);
}

static void a_type_2_window_works_on_its_qp_alone(void)
{
	works_on_its_qp_alone(NUPA_MOVER_LOCAL);
	works_on_its_qp_alone(NUPA_MOVER_RELAY);
	works_on_its_qp_alone(NUPA_MOVER_POOL);
	if (test_cma_works())
		works_on_its_qp_alone(NUPA_MOVER_CMA);
}

static void the_peer_can_invalidate_a_type_2_window(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *two = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	struct ibv_mw *one = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct request request = request_of(w.a, IBV_WR_SEND_WITH_INV, 3, 0, 8);
	uint64_t at = (uintptr_t)w.at + AT;
	struct ibv_wc wc;

	bind2(&w, two, two->rkey, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_WRITE, at, 8, two->rkey);
	request.wr.invalidate_rkey = two->rkey;
	end_post_recv(w.b, 4, 0, 8);
	end_post(w.a, &request);
	wc = cq_expect(w.b->recv_cq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	CHECK_EQ(wc.invalidated_rkey, two->rkey);
	cq_expect(w.a->send_cq, 3, IBV_WC_SUCCESS);
	memset(w.b->memory, 0xee, 1u << 20);
	refused(&w, IBV_WR_RDMA_WRITE, at, 8, two->rkey);
	CHECK_EQ(nupa_dealloc_mw(two), 0);
	/* o10-37.2.26: a type 1 window is not invalidated, by neither end. */
	bind1(&w, one, AT, BYTES, all_remote, IBV_WC_SUCCESS);
	invalidate(&w, w.b->qp, w.b->send_cq, one->rkey, IBV_WC_MW_BIND_ERR);
	request = request_of(w.a, IBV_WR_SEND_WITH_INV, 3, 0, 8);
	request.wr.invalidate_rkey = one->rkey;
	end_post_recv(w.b, 4, 0, 8);
	end_post(w.a, &request);
	CHECK(cq_wait(w.a->send_cq).status != IBV_WC_SUCCESS);
	cq_expect(w.b->recv_cq, 4, IBV_WC_WR_FLUSH_ERR);
	reconnect(&w);
	memset(w.b->memory, 0xee, 1u << 20);
	allowed(&w, IBV_WR_RDMA_WRITE, at, 8, one->rkey);
	CHECK_EQ(nupa_dealloc_mw(one), 0);
	windowed_close(&w);
}

static void a_destroyed_qp_frees_the_windows_bound_on_it(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_2);
	struct end a2 = *w.a, b2 = *w.b;
	struct windowed v = w;

	a2.qp = end_make_qp(w.a);
	b2.qp = end_make_qp(w.b);
	a2.self.qpn = a2.qp->qp_num;
	b2.self.qpn = b2.qp->qp_num;
	v.a = &a2;
	v.b = &b2;
	end_connect(&a2, &b2.self);
	end_connect(&b2, &a2.self);
	bind2(&v, mw, mw->rkey, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(w.mr), EBUSY);
	CHECK_EQ(nupa_destroy_qp(a2.qp), 0);
	CHECK_EQ(nupa_destroy_qp(b2.qp), 0);
	bind2(&w, mw, mw->rkey, IBV_WC_SUCCESS);
	allowed(&w, IBV_WR_RDMA_WRITE, (uintptr_t)w.at + AT, 8, mw->rkey);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

static void a_window_has_no_local_use(void)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, bindable);
	struct ibv_mw *mw = nupa_alloc_mw(w.b->pd, IBV_MW_TYPE_1);
	struct request request;

	bind1(&w, mw, AT, BYTES, all_remote, IBV_WC_SUCCESS);
	request = request_of(w.b, IBV_WR_RDMA_READ, 9, 0, 8);
	request.sge[0].lkey = mw->rkey;
	request.sge[0].addr = (uintptr_t)w.at + AT;
	end_post(w.b, &request);
	cq_expect(w.b->send_cq, 9, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(nupa_dealloc_mw(mw), 0);
	windowed_close(&w);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(a_window_opens_its_part_of_a_region_to_the_byte),
		CASE(a_window_has_the_access_of_its_bind),
		CASE(a_zero_based_window_counts_from_its_start),
		CASE(a_bind_ends_the_key_before_it),
		CASE(a_deallocated_window_is_closed_and_its_keys_stay_stale),
		CASE(a_region_with_a_bound_window_stays),
		CASE(a_bind_that_the_region_does_not_allow_fails),
		CASE(a_bind_that_cannot_be_meant_is_not_posted),
		CASE(a_window_deallocated_before_its_bind_fails_it),
		CASE(a_type_2_window_works_on_its_qp_alone),
		CASE(the_peer_can_invalidate_a_type_2_window),
		CASE(a_destroyed_qp_frees_the_windows_bound_on_it),
		CASE(a_window_has_no_local_use),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
