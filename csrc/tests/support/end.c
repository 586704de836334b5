/* SPDX-License-Identifier: BSD-3-Clause
 * One end of a connection for tests: see end.h. */
#define _GNU_SOURCE
#include "tests/support/end.h"
#include "region/pool.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define N_HOSTS 2u
#define N_PORTS 4u
#define POOL_BYTES (8u << 20)
#define INLINE_BYTES 256u
#define FIRST_PSN 0xfffff0u /* goes round soon */

const struct end_options end_defaults = {
	.type = IBV_QPT_RC,
	.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC,
	.send_wr = 64,
	.recv_wr = 64,
	.send_cqe = 256,
	.recv_cqe = 256,
	.memory_bytes = 1u << 20,
	.timeout = 14,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.max_rd_atomic = 4,
};

struct nupa_fabric *test_fabric_of(const struct nupa_config *config)
{
	static const struct nupa_host hosts[N_HOSTS] = {
		{ .name = "host0",
		  .port = 0,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000001,
		  .mac = { 2, 0, 0, 0, 0, 1 } },
		{ .name = "host1",
		  .port = 3,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000002,
		  .mac = { 2, 0, 0, 0, 0, 2 } },
	};
	static const struct nupa_port ports[N_PORTS] = {
		{ "host0/1", 1, 0, 0, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
		{ "switch0/1", 0, 1, 0, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
		{ "switch0/2", 3, 1, 0, 2, 4, 32000, NUPA_PORT_ACTIVE, 0 },
		{ "host1/1", 2, 0, 1, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
	};
	static const struct nupa_route routes[N_HOSTS * N_HOSTS] = {
		{ .hops = 0 },
		{ .hops = 4, .port = { 0, 1, 2, 3 } },
		{ .hops = 4, .port = { 3, 2, 1, 0 } },
		{ .hops = 0 },
	};
	struct nupa_fabric *fabric = NULL;
	char why[512] = "";

	if (nupa_fabric_create(NULL, "test", config, hosts, N_HOSTS, ports, N_PORTS, routes,
			       &fabric, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	return fabric;
}

struct nupa_fabric *test_fabric(void)
{
	return test_fabric_of_lines(TEST_RING_LINES);
}

struct nupa_fabric *test_fabric_of_lines(uint32_t ring_lines)
{
	const struct nupa_config config = {
		.slots = 8,
		.ring_lines = ring_lines,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 1024,
		.mr_entries = 1024,
		.extent_bytes = 4096,
		.pool_bytes = POOL_BYTES,
	};

	return test_fabric_of(&config);
}

uint32_t test_fabric_port(uint32_t host)
{
	return host ? N_PORTS - 1 : 0;
}

bool test_cma_works(void)
{
	uint64_t from = 42, to = 0;
	struct iovec local = { &to, sizeof(to) }, remote = { &from, sizeof(from) };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)sizeof(to);
}

/* --- objects ------------------------------------------------------------------------- */

static void take_memory(struct end *end)
{
	size_t bytes = end->options.memory_bytes;

	if (end->options.in_pool) {
		void *at = NULL;

		CHECK_EQ(nupa_pool_alloc(end->fabric, (uint32_t)nupa_context_slot(end->context),
					 bytes, &at),
			 0);
		end->memory = at;
		return;
	}
	end->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(end->memory != MAP_FAILED);
}

static void give_memory_back(struct end *end)
{
	if (end->options.in_pool)
		CHECK_EQ(nupa_pool_free(end->fabric, (uint32_t)nupa_context_slot(end->context),
					end->memory, end->options.memory_bytes),
			 0);
	else
		CHECK_EQ(munmap(end->memory, end->options.memory_bytes), 0);
}

struct ibv_qp *end_make_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.qp_context = end,
		.send_cq = end->send_cq,
		.recv_cq = end->recv_cq,
		.srq = end->srq,
		.cap = { .max_send_wr = end->options.send_wr,
			 .max_recv_wr = end->options.recv_wr,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = INLINE_BYTES },
		.qp_type = end->options.type,
	};
	struct ibv_qp *qp = nupa_create_qp(end->pd, &init);

	CHECK(qp);
	return qp;
}

struct end *end_open(struct nupa_fabric *fabric, const struct end_options *options)
{
	struct end *end = calloc(1, sizeof(*end));
	char why[512] = "";

	CHECK(end);
	end->options = *options;
	end->fabric = fabric;
	end->context = nupa_open_host(fabric, options->host, options->mover, why, sizeof(why));
	if (!end->context) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	end->pd = nupa_alloc_pd(end->context);
	CHECK(end->pd);
	if (options->events)
		CHECK(end->channel = nupa_create_comp_channel(end->context));
	end->send_cq = nupa_create_cq(end->context, options->send_cqe, end, end->channel, 0);
	end->recv_cq = nupa_create_cq(end->context, options->recv_cqe, end, end->channel, 0);
	CHECK(end->send_cq && end->recv_cq);
	if (options->srq_wr) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = options->srq_wr,
							    .max_sge = 4 } };

		CHECK(end->srq = nupa_create_srq(end->pd, &init));
	}
	take_memory(end);
	end->mr = nupa_reg_mr(end->pd, end->memory, options->memory_bytes, (uintptr_t)end->memory,
			      (int)options->access);
	CHECK(end->mr);
	end->qp = end_make_qp(end);
	end->self = (struct end_address){
		.qpn = end->qp->qp_num,
		.psn = FIRST_PSN,
		.host = (uint32_t)options->host,
		.rkey = end->mr->rkey,
		.memory = (uintptr_t)end->memory,
	};
	CHECK_EQ(nupa_query_gid(end->context, 1, 1, &end->self.gid), 0);
	return end;
}

void end_close(struct end *end)
{
	if (end->qp)
		CHECK_EQ(nupa_destroy_qp(end->qp), 0);
	if (end->ah)
		CHECK_EQ(nupa_destroy_ah(end->ah), 0);
	if (end->mr)
		CHECK_EQ(nupa_dereg_mr(end->mr), 0);
	give_memory_back(end);
	if (end->srq)
		CHECK_EQ(nupa_destroy_srq(end->srq), 0);
	if (end->send_cq)
		CHECK_EQ(nupa_destroy_cq(end->send_cq), 0);
	CHECK_EQ(nupa_destroy_cq(end->recv_cq), 0);
	if (end->channel)
		CHECK_EQ(nupa_destroy_comp_channel(end->channel), 0);
	CHECK_EQ(nupa_dealloc_pd(end->pd), 0);
	if (end->context)
		CHECK_EQ(nupa_close_device(end->context), 0);
	free(end);
}

/* --- states -------------------------------------------------------------------------- */

static struct ibv_ah_attr path_to(const struct end_address *peer)
{
	return (struct ibv_ah_attr){
		.grh = { .dgid = peer->gid, .sgid_index = 1, .hop_limit = 64 },
		.is_global = 1,
		.port_num = 1,
	};
}

void end_to_init(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = TEST_QKEY,
		.qp_access_flags = end->options.access,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   (end->options.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);

	CHECK_EQ(nupa_modify_qp(end->qp, &attr, mask), 0);
}

void end_to_rtr(struct end *end, const struct end_address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = end->options.mtu ? end->options.mtu : IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = end->options.max_rd_atomic,
		.min_rnr_timer = end->options.min_rnr_timer,
		.ah_attr = path_to(peer),
	};
	int mask = IBV_QP_STATE;

	end->peer = *peer;
	if (end->options.type == IBV_QPT_UD)
		CHECK(end->ah = nupa_create_ah(end->pd, &attr.ah_attr));
	else
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (end->options.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK_EQ(nupa_modify_qp(end->qp, &attr, mask), 0);
}

void end_to_rts(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = end->self.psn,
		.timeout = end->options.timeout,
		.retry_cnt = end->options.retry_cnt,
		.rnr_retry = end->options.rnr_retry,
		.max_rd_atomic = end->options.max_rd_atomic,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (end->options.type == IBV_QPT_RC)
		mask |=
		    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK_EQ(nupa_modify_qp(end->qp, &attr, mask), 0);
}

void end_connect(struct end *end, const struct end_address *peer)
{
	end_to_init(end);
	end_to_rtr(end, peer);
	end_to_rts(end);
}

int end_modify(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return nupa_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state end_state(struct end *end)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK_EQ(nupa_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void pair_open(struct nupa_fabric *fabric, const struct end_options *options, struct end **a,
	       struct end **b)
{
	struct end_options b_options = *options;

	b_options.host = 1;
	*a = end_open(fabric, options);
	*b = end_open(fabric, &b_options);
	end_connect(*a, &(*b)->self);
	end_connect(*b, &(*a)->self);
}

void pair_close(struct end *a, struct end *b)
{
	end_close(a);
	end_close(b);
}

/* --- work ---------------------------------------------------------------------------- */

struct request request_of(struct end *end, enum ibv_wr_opcode opcode, uint64_t wr_id,
			  uint32_t offset, uint32_t length)
{
	struct request request = {
		.wr = { .wr_id = wr_id,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED },
		.sge = { { (uintptr_t)end->memory + offset, length, end->mr->lkey } },
	};

	if (end->options.type == IBV_QPT_UD) {
		request.wr.wr.ud.ah = end->ah;
		request.wr.wr.ud.remote_qpn = end->peer.qpn;
		request.wr.wr.ud.remote_qkey = TEST_QKEY;
	} else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = end->peer.memory + offset;
		request.wr.wr.atomic.rkey = end->peer.rkey;
	} else {
		request.wr.wr.rdma.remote_addr = end->peer.memory + offset;
		request.wr.wr.rdma.rkey = end->peer.rkey;
	}
	return request;
}

void end_post(struct end *end, struct request *request)
{
	struct ibv_send_wr *bad = NULL;

	request->wr.sg_list = request->sge;
	CHECK_EQ(nupa_post_send(end->qp, &request->wr, &bad), 0);
}

void end_start(struct end *end, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t offset,
	       uint32_t length)
{
	struct request request = request_of(end, opcode, wr_id, offset, length);

	end_post(end, &request);
}

void end_post_recv(struct end *end, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + offset, length, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad = NULL;

	if (end->srq)
		CHECK_EQ(nupa_post_srq_recv(end->srq, &wr, &bad), 0);
	else
		CHECK_EQ(nupa_post_recv(end->qp, &wr, &bad), 0);
}

struct ibv_wc cq_wait(struct ibv_cq *cq)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;
	struct ibv_wc wc;

	for (;;) {
		int n = nupa_poll_cq(cq, 1, &wc);

		CHECK(n >= 0);
		if (n == 1)
			return wc;
		if (test_now_ns() > deadline_ns)
			break;
	}
	fprintf(stderr, "no completion came\n");
	abort();
}

struct ibv_wc cq_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = cq_wait(cq);

	if (wc.status != status)
		fprintf(stderr, "completion %llu has status %d instead of %d\n",
			(unsigned long long)wc.wr_id, wc.status, status);
	CHECK_EQ(wc.wr_id, wr_id);
	CHECK_EQ(wc.status, status);
	return wc;
}

void cq_expect_none(struct ibv_cq *cq, uint64_t ns)
{
	uint64_t until_ns = test_now_ns() + ns;
	struct ibv_wc wc;

	do {
		if (nupa_poll_cq(cq, 1, &wc) == 0)
			continue;
		fprintf(stderr, "completion %llu came, with status %d\n",
			(unsigned long long)wc.wr_id, wc.status);
		abort();
	} while (test_now_ns() < until_ns);
}

void end_expect_event(struct end *end, enum ibv_event_type type)
{
	struct pollfd readable = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	CHECK_EQ(poll(&readable, 1, (int)(WAIT_NS / 1000000)), 1);
	CHECK_EQ(nupa_get_async_event(end->context, &event), 0);
	CHECK_EQ(event.event_type, type);
	nupa_ack_async_event(&event);
}

void pattern_fill(uint8_t *at, size_t bytes, uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < bytes; i++) {
		x = x * 1664525u + 1013904223u;
		at[i] = (uint8_t)(x >> 24);
	}
}

size_t pattern_match(const uint8_t *at, size_t bytes, uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < bytes; i++) {
		x = x * 1664525u + 1013904223u;
		if (at[i] != (uint8_t)(x >> 24))
			return i;
	}
	return bytes;
}

struct end_options end_options_of(enum nupa_mover mover)
{
	struct end_options options = end_defaults;

	options.mover = mover;
	return options;
}

void fabric_close(struct nupa_fabric *fabric, struct end *a, struct end *b)
{
	pair_close(a, b);
	nupa_fabric_put(fabric);
}
