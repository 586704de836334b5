/* SPDX-License-Identifier: BSD-3-Clause
 * See windowed.h. */
#include "tests/memory/windowed.h"

#include <string.h>

const int windowed_bindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
const unsigned int windowed_remote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct windowed windowed_open(enum nupa_mover mover, int access)
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

void windowed_close(struct windowed *w)
{
	CHECK_EQ(nupa_dereg_mr(w->mr), 0);
	fabric_close(w->fabric, w->a, w->b);
}

void windowed_reconnect(struct windowed *w)
{
	CHECK_EQ(end_modify(w->a, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(w->b, IBV_QPS_RESET), 0);
	end_connect(w->a, &w->b->self);
	end_connect(w->b, &w->a->self);
}

enum ibv_wc_status windowed_access_at(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr,
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
		windowed_reconnect(w);
	return wc.status;
}

void windowed_allowed(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t bytes,
		      uint32_t rkey)
{
	CHECK_EQ(windowed_access_at(w, opcode, addr, bytes, rkey), IBV_WC_SUCCESS);
	memset(w->b->memory, 0xee, 1u << 20);
}

void windowed_refused(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t bytes,
		      uint32_t rkey)
{
	CHECK_EQ(windowed_access_at(w, opcode, addr, bytes, rkey), IBV_WC_REM_ACCESS_ERR);
	for (size_t i = 0; i < 1u << 20; i++)
		CHECK_EQ(w->b->memory[i], 0xee);
}

struct ibv_mw_bind windowed_bind_of(struct windowed *w, uint64_t offset, uint64_t bytes,
				    unsigned int access)
{
	return (struct ibv_mw_bind){
		.wr_id = 7,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { w->mr, (uintptr_t)w->at + offset, bytes, access },
	};
}

void windowed_bind1(struct windowed *w, struct ibv_mw *mw, uint64_t offset, uint64_t bytes,
		    unsigned int access, enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = windowed_bind_of(w, offset, bytes, access);
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
	windowed_reconnect(w);
}

struct ibv_send_wr windowed_bind2_wr(struct windowed *w, struct ibv_mw *mw, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 7,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
	    (struct ibv_mw_bind_info){ w->mr, (uintptr_t)w->at + AT, BYTES, windowed_remote };
	return wr;
}

void windowed_bind2(struct windowed *w, struct ibv_mw *mw, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = windowed_bind2_wr(w, mw, rkey), *bad;

	CHECK_EQ(nupa_post_send(w->b->qp, &wr, &bad), 0);
	cq_expect(w->b->send_cq, 7, status);
	if (status != IBV_WC_SUCCESS)
		windowed_reconnect(w);
}

void windowed_invalidate(struct windowed *w, struct ibv_qp *qp, struct ibv_cq *cq, uint32_t rkey,
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
		windowed_reconnect(w);
}
