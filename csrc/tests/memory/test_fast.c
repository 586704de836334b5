/* SPDX-License-Identifier: BSD-3-Clause
 * Fast registration: a work request gives a region its key, address, length and access; it ends by
 * invalidation, and may be registered again. */
#include "engine/memory/mr.h"
#include "tests/memory/windowed.h"

#include <errno.h>

#define IOVA UINT64_C(0x7000000000) /* any: peers name the memory by it */

static struct ibv_send_wr fast_wr(uint32_t key, uint64_t addr, uint64_t bytes, unsigned int access)
{
	struct ibv_send_wr wr = {
		.wr_id = 77,
		/* Not an opcode of libibverbs. */
		.opcode = (enum ibv_wr_opcode)NUPA_WR_FAST_REG, /* NOLINT */
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info.addr = addr;
	wr.bind_mw.bind_info.length = bytes;
	wr.bind_mw.bind_info.mw_access_flags = access;
	return wr;
}

static void registers(struct windowed *w, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = fast_wr(key, IOVA, BYTES, windowed_remote | IBV_ACCESS_LOCAL_WRITE);
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr.bind_mw.bind_info.mw_access_flags &= ~(unsigned int)IBV_ACCESS_ZERO_BASED;
	CHECK_EQ(nupa_post_send(w->b->qp, &wr, &bad), 0);
	wc = cq_wait(w->b->send_cq);
	CHECK_EQ(wc.status, status);
	if (status == IBV_WC_SUCCESS)
		CHECK_EQ((uint32_t)wc.opcode, NUPA_WC_FAST_REG);
	else
		windowed_reconnect(w);
}

static void works(enum nupa_mover mover)
{
	struct windowed w = windowed_open(mover, windowed_bindable);
	struct ibv_mr *mr = nupa_alloc_fast_mr(w.b->pd, w.at + AT);
	const uint32_t key = mr->lkey ^ 0x55, other = mr->lkey ^ 0x5a;

	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA, 8, mr->rkey); /* not registered yet */
	registers(&w, key, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, IOVA, BYTES, key);
	windowed_allowed(&w, IBV_WR_RDMA_READ, IOVA, BYTES, key);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA, BYTES + 1, key);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA - 1, 8, key);
	/* IBTA 10.6.4.3: not while it is registered. */
	registers(&w, other, IBV_WC_MW_BIND_ERR);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, IOVA, BYTES, key);
	windowed_invalidate(&w, w.b->qp, w.b->send_cq, key, IBV_WC_SUCCESS);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA, 8, key);
	registers(&w, other, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, IOVA, BYTES, other);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA, 8, key);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA, 8, other);
	windowed_close(&w);
}

TEST(a_fast_registration_works_until_it_is_invalidated)
{
	works(NUPA_MOVER_LOCAL);
	works(NUPA_MOVER_RELAY);
	if (test_cma_works())
		works(NUPA_MOVER_CMA);
}

/* I5: the table tells others of keys, and tells us nothing.  In a kernel the memory may be
 * another's by then. */
TEST(a_key_that_another_writes_back_is_none)
{
	struct windowed w = windowed_open(NUPA_MOVER_RELAY, windowed_bindable);
	const struct nupa_engine *engine = nupa_engine_of(w.b->context);
	struct ibv_mr *mr = nupa_alloc_fast_mr(w.b->pd, w.at + AT);
	const uint32_t key = mr->lkey ^ 0x55;
	struct nupa_mr_entry *entry = &engine->mr_entries[key >> NUPA_KEY_VARIANT_BITS];

	registers(&w, key, IBV_WC_SUCCESS);
	windowed_allowed(&w, IBV_WR_RDMA_WRITE, IOVA, BYTES, key);
	windowed_invalidate(&w, w.b->qp, w.b->send_cq, key, IBV_WC_SUCCESS);
	nupa_store_release(&entry->key, key);
	windowed_refused(&w, IBV_WR_RDMA_WRITE, IOVA, 8, key);
	windowed_refused(&w, IBV_WR_RDMA_READ, IOVA, 8, key);
	registers(&w, key, IBV_WC_SUCCESS); /* nor does it keep the place */
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	windowed_close(&w);
}

TEST(a_fast_registration_of_what_is_none_is_refused_at_once)
{
	struct windowed w = windowed_open(NUPA_MOVER_NONE, windowed_bindable);
	struct ibv_mr *mr = nupa_alloc_fast_mr(w.b->pd, w.at + AT);
	struct ibv_pd *pd = nupa_alloc_pd(w.b->pd->context);
	struct ibv_mr *foreign = nupa_alloc_fast_mr(pd, w.at + AT);
	const uint32_t beyond = UINT32_MAX;
	struct ibv_send_wr wrs[] = {
		fast_wr(0, IOVA, BYTES, IBV_ACCESS_REMOTE_READ),
		fast_wr(beyond, IOVA, BYTES, IBV_ACCESS_REMOTE_READ),
		fast_wr(w.mr->lkey, IOVA, BYTES, IBV_ACCESS_REMOTE_READ),
		fast_wr(mr->lkey ^ 0x100, IOVA, BYTES, IBV_ACCESS_REMOTE_READ),
		fast_wr(foreign->lkey, IOVA, BYTES, IBV_ACCESS_REMOTE_READ),
		fast_wr(mr->lkey, UINT64_MAX, 2, IBV_ACCESS_REMOTE_READ),
		fast_wr(mr->lkey, IOVA, BYTES, IBV_ACCESS_ON_DEMAND),
	};

	for (size_t i = 0; i < sizeof(wrs) / sizeof(wrs[0]); i++) {
		struct ibv_send_wr *bad = NULL;

		CHECK_EQ(nupa_post_send(w.b->qp, &wrs[i], &bad), EINVAL);
		CHECK(bad == &wrs[i]);
	}
	CHECK_EQ(nupa_dereg_mr(foreign), 0);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	windowed_close(&w);
}
