/* SPDX-License-Identifier: BSD-3-Clause
 * Forbidden accesses to memory are refused, and leave it unchanged: bounds, keys, access, PDs,
 * invalidation, deregistration while a peer writes. */
#include "base/atomics.h"
#include "tests/support/target.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define REGION_BYTES 4096u

/* Regions of b that a test needs beside the one of all. */
struct guarded {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct ibv_mr *mr; /* in the middle of b's memory */
	uint8_t *at;
};

static struct guarded guarded_open(enum nupa_mover mover, int access)
{
	struct guarded g = { .fabric = test_fabric() };
	struct end_options options = end_defaults;

	options.mover = mover;
	options.in_pool = mover == NUPA_MOVER_POOL;
	pair_open(g.fabric, &options, &g.a, &g.b);
	g.at = g.b->memory + 65536;
	memset(g.b->memory, 0xee, 1u << 20);
	g.mr = nupa_reg_mr(g.b->pd, g.at, REGION_BYTES, (uintptr_t)g.at, access);
	CHECK(g.mr);
	return g;
}

static void guarded_close(struct guarded *g)
{
	if (g->mr)
		CHECK_EQ(nupa_dereg_mr(g->mr), 0);
	pair_close(g->a, g->b);
	nupa_fabric_put(g->fabric);
}

static void reconnect(struct guarded *g)
{
	CHECK_EQ(end_modify(g->a, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(g->b, IBV_QPS_RESET), 0);
	end_connect(g->a, &g->b->self);
	end_connect(g->b, &g->a->self);
}

static void start(struct guarded *g, enum ibv_wr_opcode opcode, int64_t offset, uint32_t length,
		  uint32_t rkey)
{
	struct request request = request_of(g->a, opcode, 1, 0, length);

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = (uintptr_t)g->at + (uint64_t)offset;
		request.wr.wr.atomic.rkey = rkey;
		request.wr.wr.atomic.compare_add = 1;
	} else {
		request.wr.wr.rdma.remote_addr = (uintptr_t)g->at + (uint64_t)offset;
		request.wr.wr.rdma.rkey = rkey;
	}
	end_post(g->a, &request);
}

static void refused(struct guarded *g, enum ibv_wr_opcode opcode, int64_t offset, uint32_t length,
		    uint32_t rkey)
{
	start(g, opcode, offset, length, rkey);
	cq_expect(g->a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(end_state(g->a), IBV_QPS_ERR);
	CHECK_EQ(end_state(g->b), IBV_QPS_ERR);
	for (size_t i = 0; i < 1u << 20; i++)
		CHECK_EQ(g->b->memory[i], 0xee);
	reconnect(g);
}

static void allowed(struct guarded *g, enum ibv_wr_opcode opcode, int64_t offset, uint32_t length,
		    uint32_t rkey)
{
	memset(g->a->memory, 0xee, length);
	start(g, opcode, offset, length, rkey);
	cq_expect(g->a->send_cq, 1, IBV_WC_SUCCESS);
	memset(g->b->memory, 0xee, 1u << 20);
}

static const int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static void bounds(enum nupa_mover mover)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_RDMA_WRITE_WITH_IMM };
	struct guarded g = guarded_open(mover, all_access);

	for (int i = 0; i < 3; i++) {
		enum ibv_wr_opcode opcode = opcodes[i];

		if (opcode != IBV_WR_RDMA_WRITE_WITH_IMM) {
			allowed(&g, opcode, 0, REGION_BYTES, g.mr->rkey);
			allowed(&g, opcode, REGION_BYTES - 1, 1, g.mr->rkey);
			allowed(&g, opcode, REGION_BYTES, 0, g.mr->rkey);
		}
		refused(&g, opcode, 1, REGION_BYTES, g.mr->rkey);
		refused(&g, opcode, 0, REGION_BYTES + 1, g.mr->rkey);
		refused(&g, opcode, REGION_BYTES, 1, g.mr->rkey);
		refused(&g, opcode, -1, 1, g.mr->rkey);
		refused(&g, opcode, -1, REGION_BYTES, g.mr->rkey);
		refused(&g, opcode, INT64_MAX, 8, g.mr->rkey);
		refused(&g, opcode, -(int64_t)(uintptr_t)g.at - 4, 100000, g.mr->rkey);
		refused(&g, opcode, 0, 65536, g.mr->rkey);
	}
	allowed(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, REGION_BYTES - 8, 8, g.mr->rkey);
	refused(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, REGION_BYTES, 8, g.mr->rkey);
	refused(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, -8, 8, g.mr->rkey);
	guarded_close(&g);
}

TEST(one_byte_out_of_bounds_is_refused)
{
	bounds(NUPA_MOVER_LOCAL);
	bounds(NUPA_MOVER_RELAY);
	bounds(NUPA_MOVER_POOL);
	if (test_cma_works())
		bounds(NUPA_MOVER_CMA);
}

TEST(atomics_want_eight_aligned_bytes)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 2; i++) {
		struct guarded g = guarded_open(movers[i], all_access);
		struct request request = request_of(g.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 4);
		struct ibv_send_wr *bad = NULL;

		request.wr.sg_list = request.sge;
		CHECK_EQ(nupa_post_send(g.a->qp, &request.wr, &bad), EINVAL);
		start(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8, g.mr->rkey);
		cq_expect(g.a->send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
		CHECK_EQ(g.at[4], 0xee);
		guarded_close(&g);
	}
}

static void keys_and_access(enum nupa_mover mover)
{
	struct guarded g = guarded_open(mover, all_access);
	uint32_t rkey = g.mr->rkey, stale;
	struct ibv_pd *other_pd;
	struct ibv_mr *other;

	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, rkey ^ 1);
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, rkey ^ 0x80000000);
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, rkey + (1u << NUPA_KEY_VARIANT_BITS));
	refused(&g, IBV_WR_RDMA_READ, 0, 8, 0);
	refused(&g, IBV_WR_RDMA_READ, 0, 8, UINT32_MAX);
	refused(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, rkey ^ 1);

	/* Deregistered, and the same memory registered again: another key. */
	stale = rkey;
	CHECK_EQ(nupa_dereg_mr(g.mr), 0);
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, stale);
	for (int i = 0; i < 3000; i++) {
		g.mr = nupa_reg_mr(g.b->pd, g.at, REGION_BYTES, (uintptr_t)g.at, all_access);
		CHECK(g.mr && g.mr->rkey != stale);
		if (i < 2999)
			CHECK_EQ(nupa_dereg_mr(g.mr), 0);
	}
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, stale);
	allowed(&g, IBV_WR_RDMA_WRITE, 0, 8, g.mr->rkey);

	other_pd = nupa_alloc_pd(g.b->context);
	other = nupa_reg_mr(other_pd, g.at, REGION_BYTES, (uintptr_t)g.at, all_access);
	CHECK(other);
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, other->rkey);
	refused(&g, IBV_WR_RDMA_READ, 0, 8, other->rkey);
	refused(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, other->rkey);
	CHECK_EQ(nupa_dereg_mr(other), 0);
	CHECK_EQ(nupa_dealloc_pd(other_pd), 0);
	guarded_close(&g);

	g = guarded_open(mover, IBV_ACCESS_REMOTE_READ);
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, g.mr->rkey);
	refused(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, g.mr->rkey);
	allowed(&g, IBV_WR_RDMA_READ, 0, 8, g.mr->rkey);
	guarded_close(&g);
	g = guarded_open(mover, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
	refused(&g, IBV_WR_RDMA_READ, 0, 8, g.mr->rkey);
	refused(&g, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, g.mr->rkey);
	allowed(&g, IBV_WR_RDMA_WRITE, 0, 8, g.mr->rkey);
	/* The QP's flags count as well as the region's. */
	g.b->options.access = IBV_ACCESS_REMOTE_READ;
	reconnect(&g);
	refused(&g, IBV_WR_RDMA_WRITE, 0, 8, g.mr->rkey);
	guarded_close(&g);
}

TEST(wrong_keys_and_access_are_refused)
{
	keys_and_access(NUPA_MOVER_LOCAL);
	keys_and_access(NUPA_MOVER_RELAY);
	if (test_cma_works())
		keys_and_access(NUPA_MOVER_CMA);
}

TEST(a_wrong_local_key_is_a_local_error)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ };
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };

	for (int i = 0; i < 6; i++) {
		struct guarded g = guarded_open(movers[i / 3], all_access);
		struct ibv_mr *read_only =
		    nupa_reg_mr(g.a->pd, g.a->memory, 64, (uintptr_t)g.a->memory, 0);
		struct request request = request_of(g.a, opcodes[i % 3], 1, 0, 65);
		struct ibv_sge sge = { (uintptr_t)g.b->memory, 8, g.mr->lkey };
		struct ibv_recv_wr recv = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK(read_only);
		request.sge[0].lkey = read_only->lkey;
		end_post(g.a, &request); /* one byte too many */
		cq_expect(g.a->send_cq, 1, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(end_state(g.a), IBV_QPS_ERR);
		reconnect(&g);
		request.sge[0].length = 64;
		end_post_recv(g.b, 2, 0, 64);
		end_post(g.a, &request);
		cq_expect(g.a->send_cq, 1,
			  opcodes[i % 3] == IBV_WR_RDMA_READ ? IBV_WC_LOC_PROT_ERR
							     : IBV_WC_SUCCESS);
		/* A receive outside of its region. */
		reconnect(&g);
		CHECK_EQ(nupa_post_recv(g.b->qp, &recv, &bad), 0);
		end_start(g.a, IBV_WR_SEND, 3, 0, 8);
		cq_expect(g.b->recv_cq, 5, IBV_WC_LOC_PROT_ERR);
		cq_expect(g.a->send_cq, 3, IBV_WC_REM_OP_ERR);
		CHECK_EQ(nupa_dereg_mr(read_only), 0);
		guarded_close(&g);
	}
}

TEST(registration_refuses_what_cannot_be)
{
	struct guarded g = guarded_open(NUPA_MOVER_NONE, all_access);
	uint8_t *hole = mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(hole != MAP_FAILED);
	CHECK_EQ(munmap(hole + 4096, 4096), 0);
	CHECK(!nupa_reg_mr(g.b->pd, hole, 3 * 4096, 0, 0) && errno == EFAULT);
	CHECK(!nupa_reg_mr(g.b->pd, hole, 8, 0, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!nupa_reg_mr(g.b->pd, g.at, 8, 0, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!nupa_reg_mr(g.b->pd, g.at, SIZE_MAX, 0, 0) && errno == EINVAL);
	CHECK(!nupa_reg_mr(g.b->pd, g.at, 8, UINT64_MAX - 4, 0) && errno == EINVAL);
	CHECK_EQ(munmap(hole, 4096), 0);
	CHECK_EQ(munmap(hole + 8192, 4096), 0);
	guarded_close(&g);
}

TEST(a_region_is_addressed_by_its_iova)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY,
						  NUPA_MOVER_CMA };

	for (int i = 0; i < 2 + test_cma_works(); i++) {
		struct guarded g = guarded_open(movers[i], all_access);
		struct ibv_mr *zero =
		    nupa_reg_mr(g.b->pd, g.at, REGION_BYTES, 0, all_access | IBV_ACCESS_ZERO_BASED);
		struct ibv_mr *high =
		    nupa_reg_mr(g.b->pd, g.at, REGION_BYTES, UINT64_MAX - REGION_BYTES, all_access);
		struct request request = request_of(g.a, IBV_WR_RDMA_WRITE, 1, 0, 8);

		CHECK(zero && high);
		memset(g.a->memory, 1, 16);
		request.wr.wr.rdma.rkey = zero->rkey;
		request.wr.wr.rdma.remote_addr = REGION_BYTES - 8;
		end_post(g.a, &request);
		cq_expect(g.a->send_cq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(g.at[REGION_BYTES - 8], 1);
		request.wr.wr.rdma.rkey = high->rkey;
		request.wr.wr.rdma.remote_addr = UINT64_MAX - REGION_BYTES;
		end_post(g.a, &request);
		cq_expect(g.a->send_cq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(g.at[0], 1);
		memset(g.b->memory, 0xee, 1u << 20);
		g.a->memory[0] = 0xee;
		refused(&g, IBV_WR_RDMA_WRITE, 0, 8, zero->rkey);
		CHECK_EQ(nupa_dereg_mr(zero), 0);
		CHECK_EQ(nupa_dereg_mr(high), 0);
		guarded_close(&g);
	}
}

TEST(send_with_invalidate_ends_a_key)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY };
	static const uint32_t lengths[] = { 0, 8, 20000 };

	for (int i = 0; i < 6; i++) {
		struct guarded g = guarded_open(movers[i / 3], all_access);
		struct request request =
		    request_of(g.a, IBV_WR_SEND_WITH_INV, 1, 0, lengths[i % 3]);
		struct ibv_wc wc;

		request.wr.invalidate_rkey = g.mr->rkey;
		end_post_recv(g.b, 2, 200000, 20000);
		end_post(g.a, &request);
		cq_expect(g.a->send_cq, 1, IBV_WC_SUCCESS);
		wc = cq_expect(g.b->recv_cq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
		CHECK_EQ(wc.invalidated_rkey, g.mr->rkey);
		CHECK_EQ(wc.byte_len, lengths[i % 3]);
		memset(g.b->memory, 0xee, 1u << 20);
		refused(&g, IBV_WR_RDMA_WRITE, 0, 8, g.mr->rkey);
		/* A key that is none ends the connection. */
		request.wr.invalidate_rkey = g.mr->rkey ^ 1;
		end_post_recv(g.b, 3, 200000, 20000);
		end_post(g.a, &request);
		CHECK(cq_wait(g.a->send_cq).status != IBV_WC_SUCCESS);
		CHECK(cq_wait(g.b->recv_cq).status != IBV_WC_SUCCESS);
		guarded_close(&g);
	}
}

/* --- deregistration under writes ----------------------------------------------------- */

struct writer {
	struct end *end;
	uint32_t rkey; /* stored by the owner */
	uint64_t addr;
	bool stop, done;
	uint64_t writes, refusals;
};

static struct end_address writer_peer;

/* Writes for ever with the key that it is given.  A refusal ends the connection; the owner's side
 * makes a new one when it sees the end. */
static void *write_for_ever(void *arg)
{
	struct writer *writer = arg;

	while (!__atomic_load_n(&writer->stop, __ATOMIC_ACQUIRE)) {
		struct request request = request_of(writer->end, IBV_WR_RDMA_WRITE, 1, 0, 65536);
		struct ibv_wc wc;

		request.wr.wr.rdma.rkey = __atomic_load_n(&writer->rkey, __ATOMIC_ACQUIRE);
		request.wr.wr.rdma.remote_addr = __atomic_load_n(&writer->addr, __ATOMIC_ACQUIRE);
		end_post(writer->end, &request);
		wc = cq_wait(writer->end->send_cq);
		if (wc.status == IBV_WC_SUCCESS) {
			__atomic_fetch_add(&writer->writes, 1, __ATOMIC_ACQ_REL);
			continue;
		}
		writer->refusals++;
		CHECK_EQ(end_modify(writer->end, IBV_QPS_RESET), 0);
		end_connect(writer->end, &writer_peer);
	}
	__atomic_store_n(&writer->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Connects b anew if a refusal has ended it. */
static void heal(struct end *b, const struct end *a)
{
	struct ibv_wc wc;

	CHECK_EQ(nupa_poll_cq(b->recv_cq, 1, &wc), 0);
	if (end_state(b) != IBV_QPS_ERR)
		return;
	CHECK_EQ(end_modify(b, IBV_QPS_RESET), 0);
	end_to_init(b);
	end_to_rtr(b, &a->self); /* and no further: the next refusal may come at once */
}

/* After dereg returns, nothing is written any more: the memory is unmapped, or the program's. */
static void dereg_waits_for_writers(enum nupa_mover mover)
{
	enum { ROUNDS = 150 };
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct writer writer = { 0 };
	uint64_t writes = 0;
	pthread_t thread;
	struct end *a, *b;

	options.mover = mover;
	options.timeout = 18;
	pair_open(fabric, &options, &a, &b);
	writer.end = a;
	writer_peer = b->self;
	memset(a->memory, 7, 65536);
	for (int round = 0; round < ROUNDS; round++) {
		uint8_t *at =
		    mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *mr;

		CHECK(at != MAP_FAILED);
		mr = nupa_reg_mr(b->pd, at, 65536, (uintptr_t)at, all_access);
		CHECK(mr);
		__atomic_store_n(&writer.addr, (uintptr_t)at, __ATOMIC_RELEASE);
		__atomic_store_n(&writer.rkey, mr->rkey, __ATOMIC_RELEASE);
		if (round == 0)
			CHECK_EQ(pthread_create(&thread, NULL, write_for_ever, &writer), 0);
		/* The writer is at it with this key; then comes the end, at any moment. */
		while (__atomic_load_n(&writer.writes, __ATOMIC_ACQUIRE) == writes)
			heal(b, a);
		writes = __atomic_load_n(&writer.writes, __ATOMIC_ACQUIRE);
		for (int spins = round % 20; spins; spins--)
			nupa_cpu_pause();
		CHECK_EQ(nupa_dereg_mr(mr), 0);
		memset(at, 9, 65536);
		for (size_t i = 0; i < 65536; i += 257)
			CHECK_EQ(at[i], 9);
		CHECK_EQ(munmap(at, 65536), 0);
		heal(b, a);
	}
	__atomic_store_n(&writer.stop, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&writer.done, __ATOMIC_ACQUIRE))
		heal(b, a); /* its last write wants an answer */
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(writer.refusals > 0);
	pair_close(a, b);
	nupa_fabric_put(fabric);
}

TEST(dereg_waits_for_a_write_by_memcpy)
{
	dereg_waits_for_writers(NUPA_MOVER_LOCAL);
}

TEST(dereg_waits_for_a_write_by_cma)
{
	if (test_cma_works())
		dereg_waits_for_writers(NUPA_MOVER_CMA);
}

TEST(dereg_waits_for_a_write_by_relay)
{
	dereg_waits_for_writers(NUPA_MOVER_RELAY);
}
