/* SPDX-License-Identifier: BSD-3-Clause
 * Regions that change, that may not be there, that are nothing, device memory, second handles; and
 * keys that are taken away while a peer writes. */
#include "base/atomics.h"
#include "tests/support/target.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define ALL                                                                                        \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static const enum nupa_mover movers[] = { NUPA_MOVER_LOCAL, NUPA_MOVER_RELAY, NUPA_MOVER_CMA };

/* Those that work here. */
static int n_movers(void)
{
	return test_cma_works() ? 3 : 2;
}

struct ends {
	struct nupa_fabric *fabric;
	struct end *a, *b;
};

static struct ends ends_open(enum nupa_mover mover)
{
	struct ends e = { .fabric = test_fabric() };
	struct end_options options = end_options_of(mover);

	pair_open(e.fabric, &options, &e.a, &e.b);
	return e;
}

static void ends_close(struct ends *e)
{
	fabric_close(e->fabric, e->a, e->b);
}

static void reconnect(struct ends *e)
{
	CHECK_EQ(end_modify(e->a, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(e->b, IBV_QPS_RESET), 0);
	end_connect(e->a, &e->b->self);
	end_connect(e->b, &e->a->self);
}

static enum ibv_wc_status ask(struct ends *e, enum ibv_wr_opcode opcode, uint32_t rkey,
			      const void *at, uint32_t bytes)
{
	struct request request = request_of(e->a, opcode, 1, 0, bytes);
	struct ibv_wc wc;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = (uintptr_t)at;
		request.wr.wr.atomic.rkey = rkey;
		request.wr.wr.atomic.compare_add = 1;
	} else {
		request.wr.wr.rdma.remote_addr = (uintptr_t)at;
		request.wr.wr.rdma.rkey = rkey;
	}
	end_post(e->a, &request);
	wc = cq_wait(e->a->send_cq);
	CHECK_EQ(wc.wr_id, 1);
	if (wc.status != IBV_WC_SUCCESS)
		reconnect(e);
	return wc.status;
}

/* --- on demand ------------------------------------------------------------------------- */

static const enum ibv_wr_opcode asked[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
					    IBV_WR_ATOMIC_FETCH_AND_ADD };

static void missing_memory(enum nupa_mover mover)
{
	struct ends e = ends_open(mover);
	uint8_t *at =
	    mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	CHECK(at != MAP_FAILED);
	mr = nupa_reg_mr(e.b->pd, at, 2 * PAGE, (uintptr_t)at, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(ask(&e, asked[i], mr->rkey, at + PAGE, 8), IBV_WC_SUCCESS);
		CHECK_EQ(mprotect(at + PAGE, PAGE, PROT_NONE), 0);
		CHECK_EQ(ask(&e, asked[i], mr->rkey, at + PAGE, 8), IBV_WC_REM_OP_ERR);
		if (i < 2)
			CHECK_EQ(ask(&e, asked[i], mr->rkey, at, 2 * PAGE), IBV_WC_REM_OP_ERR);
		CHECK_EQ(mprotect(at + PAGE, PAGE, PROT_READ), 0);
		CHECK_EQ(ask(&e, asked[i], mr->rkey, at + PAGE, 8),
			 asked[i] == IBV_WR_RDMA_READ ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
		CHECK_EQ(ask(&e, asked[i], mr->rkey, at + 2 * PAGE - 4, 8),
			 asked[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_REM_INV_REQ_ERR
								 : IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(mprotect(at + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	}
	CHECK_EQ(munmap(at, 2 * PAGE), 0);
	CHECK_EQ(ask(&e, IBV_WR_RDMA_WRITE, mr->rkey, at, 8), IBV_WC_REM_OP_ERR);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	ends_close(&e);
}

TEST(memory_that_is_not_there_fails_the_request)
{
	for (int i = 0; i < n_movers(); i++)
		missing_memory(movers[i]);
}

TEST(an_implicit_region_reaches_everything_and_falls_nowhere)
{
	for (int i = 0; i < n_movers(); i++) {
		struct ends e = ends_open(movers[i]);
		uint64_t word[3] = { 0 };
		struct ibv_mr *mr =
		    nupa_reg_mr(e.b->pd, NULL, SIZE_MAX, 0, ALL | IBV_ACCESS_ON_DEMAND);

		CHECK(mr);
		memset(e.a->memory, 0x3c, 24);
		CHECK_EQ(ask(&e, IBV_WR_RDMA_WRITE, mr->rkey, &word[1], 8), IBV_WC_SUCCESS);
		CHECK_EQ(word[0], 0);
		CHECK_EQ(word[1], 0x3c3c3c3c3c3c3c3c);
		CHECK_EQ(word[2], 0);
		CHECK_EQ(ask(&e, IBV_WR_RDMA_WRITE, mr->rkey, (void *)64, 8), IBV_WC_REM_OP_ERR);
		CHECK_EQ(ask(&e, IBV_WR_RDMA_READ, mr->rkey, (void *)(UINTPTR_MAX - 63), 8),
			 IBV_WC_REM_OP_ERR);
		CHECK_EQ(ask(&e, IBV_WR_RDMA_READ, mr->rkey, (void *)(UINTPTR_MAX - 3), 8),
			 IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(nupa_dereg_mr(mr), 0);
		ends_close(&e);
	}
}

TEST(a_region_of_everything_is_on_demand_and_from_zero)
{
	struct ends e = ends_open(NUPA_MOVER_NONE);

	CHECK(!nupa_reg_mr(e.b->pd, NULL, SIZE_MAX, 0, ALL));
	CHECK_EQ(errno, EFAULT);
	CHECK(!nupa_reg_mr(e.b->pd, NULL, SIZE_MAX, PAGE, ALL | IBV_ACCESS_ON_DEMAND));
	CHECK_EQ(errno, EINVAL);
	CHECK(!nupa_reg_mr(e.b->pd, (void *)PAGE, SIZE_MAX, 0, ALL | IBV_ACCESS_ON_DEMAND));
	CHECK_EQ(errno, EINVAL);
	ends_close(&e);
}

/* --- the null region ------------------------------------------------------------------- */

TEST(a_null_region_gives_zeros_and_takes_anything)
{
	for (int i = 0; i < n_movers(); i++) {
		struct ends e = ends_open(movers[i]);
		struct ibv_mr *null = nupa_alloc_null_mr(e.a->pd);
		struct request request;

		CHECK(null);
		memset(e.b->memory, 0x77, 1u << 20);
		for (uint32_t bytes = 1; bytes <= 1u << 20; bytes <<= 5) {
			request = request_of(e.a, IBV_WR_RDMA_WRITE, 1, 0, bytes);
			request.wr.wr.rdma.remote_addr = e.b->self.memory;
			request.wr.wr.rdma.rkey = e.b->self.rkey;
			request.sge[0] = (struct ibv_sge){ UINT64_MAX - bytes, bytes, null->lkey };
			end_post(e.a, &request);
			cq_expect(e.a->send_cq, 1, IBV_WC_SUCCESS);
			for (uint32_t at = 0; at < bytes; at++)
				CHECK_EQ(e.b->memory[at], 0);
			request.wr.opcode = IBV_WR_RDMA_READ;
			memset(e.b->memory, 0x77, bytes);
			end_post(e.a, &request);
			cq_expect(e.a->send_cq, 1, IBV_WC_SUCCESS);
		}
		CHECK_EQ(nupa_dereg_mr(null), 0);
		ends_close(&e);
	}
}

/* --- second handles -------------------------------------------------------------------- */

TEST(second_handles_end_with_their_object)
{
	struct ends e = ends_open(NUPA_MOVER_NONE);
	struct ibv_context *context = nupa_import_device(dup(e.b->context->cmd_fd));
	struct ibv_pd *pd, *own = nupa_alloc_pd(e.b->context);
	struct ibv_mr *mr, *region;
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_dm *dm = nupa_alloc_dm(e.b->context, &attr), *other;

	CHECK(context && own && dm);
	CHECK_EQ(nupa_context_slot(context), nupa_context_slot(e.b->context));
	pd = nupa_import_pd(context, own->handle);
	CHECK(pd && pd != own);
	region = nupa_reg_mr(own, e.b->memory, PAGE, 0, ALL);
	mr = nupa_import_mr(pd, region->handle);
	CHECK(region && mr && !mr->addr);
	CHECK_EQ(mr->rkey, region->rkey);
	CHECK_EQ(nupa_dealloc_pd(pd), EBUSY);
	CHECK_EQ(nupa_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	CHECK_EQ(nupa_dereg_mr(region), EINVAL);
	nupa_unimport_mr(region);
	CHECK_EQ(nupa_dealloc_pd(pd), 0);
	CHECK_EQ(nupa_dealloc_pd(own), EINVAL);
	nupa_unimport_pd(own);
	other = nupa_import_dm(context, dm->handle);
	CHECK(other);
	CHECK_EQ(nupa_free_dm(other), 0);
	CHECK_EQ(nupa_free_dm(dm), EINVAL);
	nupa_unimport_dm(dm);
	CHECK_EQ(nupa_close_device(context), 0);
	ends_close(&e);
}

TEST(a_pd_that_is_let_go_of_lives_as_long_as_its_users)
{
	struct ends e = ends_open(NUPA_MOVER_NONE);
	struct ibv_context *context = nupa_import_device(dup(e.b->context->cmd_fd));
	struct ibv_pd *pd = nupa_import_pd(context, e.b->pd->handle);
	struct ibv_mr *mr = nupa_reg_mr(pd, e.b->memory, PAGE, (uintptr_t)e.b->memory, ALL);

	CHECK(mr);
	nupa_unimport_pd(pd);
	CHECK_EQ(ask(&e, IBV_WR_RDMA_READ, mr->rkey, e.b->memory, 8), IBV_WC_SUCCESS);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	CHECK_EQ(nupa_close_device(context), 0);
	ends_close(&e);
}

/* A descriptor is input like any other. */
TEST(a_strange_descriptor_is_not_imported)
{
	struct ends e = ends_open(NUPA_MOVER_NONE);
	uint8_t card[1024] = { 0 };
	ssize_t bytes = pread(e.b->context->cmd_fd, card, sizeof(card), 0);

	CHECK(bytes > 0);
	for (ssize_t at = 0; at < bytes; at++) {
		int fd = memfd_create("strange", MFD_CLOEXEC);
		struct ibv_context *context;

		card[at] ^= 0xff;
		CHECK_EQ(write(fd, card, (size_t)bytes), bytes);
		card[at] ^= 0xff;
		context = nupa_import_device(fd);
		/* The mover, the pid and the path are only looked at where they are needed. */
		if (context)
			CHECK_EQ(nupa_close_device(context), 0);
		else
			close(fd);
	}
	CHECK(!nupa_import_device(open("/dev/zero", O_RDONLY | O_CLOEXEC)));
	CHECK_EQ(errno, EINVAL);
	ends_close(&e);
}

/* --- keys that change while a peer writes ---------------------------------------------- */

struct writer {
	struct ends *ends;
	uint8_t *at;
	uint32_t rkey; /* stored by the other thread */
	bool stop, done;
	uint64_t writes, refusals;
};

static void *write_on(void *arg)
{
	struct writer *writer = arg;
	struct ends *e = writer->ends;

	while (!nupa_load_acquire(&writer->stop)) {
		struct request request = request_of(e->a, IBV_WR_RDMA_WRITE, 1, 0, 16384);
		struct ibv_wc wc;

		request.wr.wr.rdma.rkey = nupa_load_acquire(&writer->rkey);
		request.wr.wr.rdma.remote_addr = (uintptr_t)writer->at;
		end_post(e->a, &request);
		wc = cq_wait(e->a->send_cq);
		if (wc.status == IBV_WC_SUCCESS) {
			nupa_fetch_add_seq(&writer->writes, 1);
			continue;
		}
		writer->refusals++;
		CHECK_EQ(end_modify(e->a, IBV_QPS_RESET), 0);
		end_connect(e->a, &e->b->self);
	}
	nupa_store_release(&writer->done, true);
	return NULL;
}

/* The QP that a refusal has ended, anew: no further than RTR, for the next may come at once. */
static void heal(struct ends *e)
{
	struct ibv_wc wc;

	CHECK_EQ(nupa_poll_cq(e->b->recv_cq, 1, &wc), 0);
	if (end_state(e->b) != IBV_QPS_ERR)
		return;
	CHECK_EQ(end_modify(e->b, IBV_QPS_RESET), 0);
	end_to_init(e->b);
	end_to_rtr(e->b, &e->a->self);
}

static void wait_for_writes(struct writer *writer)
{
	uint64_t writes = nupa_load_acquire(&writer->writes);

	while (nupa_load_acquire(&writer->writes) == writes)
		heal(writer->ends);
}

/* After rereg returns, what it took away is not written any more. */
static void rereg_waits_for(enum nupa_mover mover)
{
	struct ends e = ends_open(mover);
	uint8_t *at = e.b->memory;
	struct ibv_mr *mr = nupa_reg_mr(e.b->pd, at, 16384, (uintptr_t)at, ALL);
	struct writer writer = { .ends = &e, .at = at };
	pthread_t thread;

	CHECK(mr);
	memset(e.a->memory, 1, 16384);
	writer.rkey = mr->rkey;
	CHECK_EQ(pthread_create(&thread, NULL, write_on, &writer), 0);
	for (int round = 0; round < 60; round++) {
		wait_for_writes(&writer);
		CHECK_EQ(nupa_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
			 0);
		memset(at, 9, 16384);
		for (int i = 0; i < 5; i++)
			heal(&e);
		for (size_t i = 0; i < 16384; i += 61)
			CHECK_EQ(at[i], 9);
		CHECK_EQ(nupa_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL), 0);
	}
	nupa_store_release(&writer.stop, true);
	while (!nupa_load_acquire(&writer.done))
		heal(&e); /* its last write wants an answer */
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	ends_close(&e);
}

TEST(memory_that_rereg_takes_away_is_not_written_any_more)
{
	for (int i = 0; i < n_movers(); i++)
		rereg_waits_for(movers[i]);
}
