/* SPDX-License-Identifier: BSD-3-Clause
 * Flows with a rate: each operation keeps it, in any length; a change holds at once; without a rate
 * the express lane is open again. */
#include "engine/core/engine.h"
#include "segment/control/rate.h"
#include "tests/support/end.h"

#include <string.h>

#define MEMORY_BYTES (8u << 20)
#define TENANT 1u
/* A process that is off its core for longer cannot use the time. */
#define GAP_NS (2 * MS)

static void set_rate(struct nupa_fabric *fabric, uint32_t scope, uint32_t host, uint32_t pkey,
		     uint64_t bytes_per_s)
{
	char why[256] = "";

	if (nupa_rate_set(fabric, scope, scope == NUPA_RATE_TENANT ? TENANT : 0, host, pkey,
			  bytes_per_s, why, sizeof(why)))
		fprintf(stderr, "%s\n", why);
	CHECK_EQ(why[0], 0);
}

static struct nupa_rate_info info_of(struct nupa_fabric *fabric)
{
	struct nupa_rate_info info[4] = { 0 };

	CHECK(nupa_rate_list(fabric, info, 4) >= 1);
	return info[0];
}

static struct nupa_fabric *fabric_of_tenant(void)
{
	const struct nupa_config config = { .slots = 8, .qp_entries = 64, .mr_entries = 64 };
	struct nupa_fabric *fabric = test_fabric_of(&config);

	for (uint32_t host = 0; host < 2; host++)
		nupa_store_relaxed(&fabric->controls[host].tenant, TENANT);
	return fabric;
}

static struct end_options options_of(enum ibv_qp_type type)
{
	struct end_options options = end_defaults;

	options.type = type;
	options.memory_bytes = MEMORY_BYTES;
	return options;
}

static bool is_send(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND;
}

/* What went while a sender always had something to send. */
struct run {
	uint64_t bytes, ns;
	uint64_t away_ns; /* in which this process had no core, beyond GAP_NS each time */
};

static void poll_one(struct ibv_cq *cq, uint32_t length, uint64_t *bytes, uint32_t *pending)
{
	struct ibv_wc wc;

	while (nupa_poll_cq(cq, 1, &wc) == 1) {
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		*bytes += length;
		(*pending)--;
	}
}

static struct run send_for(struct end *a, struct end *b, enum ibv_wr_opcode opcode, uint32_t length,
			   uint64_t ns)
{
	const uint32_t deep = length < 4096 ? 60 : 16, grh = a->options.type == IBV_QPT_UD ? 40 : 0;
	uint64_t start_ns = test_now_ns(), seen_ns = start_ns, received = 0;
	uint32_t pending = 0, posted_recv = 0;
	struct run run = { 0 };

	while (test_now_ns() < start_ns + ns || pending || posted_recv) {
		uint64_t now_ns = test_now_ns();

		if (now_ns - seen_ns > GAP_NS)
			run.away_ns += now_ns - seen_ns - GAP_NS;
		seen_ns = now_ns;
		while (now_ns < start_ns + ns && pending < deep && posted_recv < deep) {
			if (is_send(opcode)) {
				end_post_recv(b, 1, 0, length + grh);
				posted_recv++;
			}
			end_start(a, opcode, 1, 0, length);
			pending++;
		}
		poll_one(a->send_cq, length, &run.bytes, &pending);
		if (is_send(opcode))
			poll_one(b->recv_cq, length, &received, &posted_recv);
		if (now_ns < start_ns + ns)
			run.ns = test_now_ns() - start_ns;
	}
	/* What was pending at the end of the time went later. */
	run.ns = test_now_ns() - start_ns;
	return run;
}

/* Never more than the rate (R2).  Never less (R3), while the sender has a core and needs no other
 * thread: `alone`. */
static void keeps(struct nupa_fabric *fabric, const struct run *run, uint32_t length, bool alone,
		  const struct nupa_rate_info *before)
{
	struct nupa_rate_info after = info_of(fabric);
	uint32_t piece = nupa_rate_piece_bytes(after.bytes_per_s) + NUPA_RATE_HEADER_BYTES;
	uint64_t booked = after.bytes - before->bytes, idle_ns = after.idle_ns - before->idle_ns;
	double ns = (double)run->ns, rate = (double)after.bytes_per_s * 1e-9;
	double n = (double)run->bytes / length;

	if (booked < run->bytes + (uint64_t)n * NUPA_RATE_HEADER_BYTES ||
	    (double)booked >
		rate * (ns + (double)(NUPA_RATE_AHEAD_NS + NUPA_RATE_BURST_NS)) + piece ||
	    (alone && (double)idle_ns > 0.05 * ns + (double)run->away_ns + (double)GAP_NS)) {
		fprintf(stderr,
			"length %u: %llu bytes of messages, %llu booked, %.0f us, %llu us "
			"idle, %llu us away\n",
			length, (unsigned long long)run->bytes, (unsigned long long)booked,
			ns * 1e-3, (unsigned long long)idle_ns / 1000,
			(unsigned long long)run->away_ns / 1000);
		CHECK(false);
	}
}

static void each_length(enum ibv_qp_type type, enum ibv_wr_opcode opcode, enum nupa_mover mover)
{
	static const uint32_t lengths[] = { 64, 4096, 65536, 1u << 20, 8u << 20 };
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(type);
	struct end *a, *b;

	options.mover = mover;
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < (type == IBV_QPT_UD ? 2 : 5); i++) {
		uint32_t length = type == IBV_QPT_UD && i == 1 ? 4000 : lengths[i];
		uint64_t rate = length > 1u << 20 ? 1500000000 : length > 64 ? 200000000 : 4000000;
		struct nupa_rate_info before;
		struct run run;

		set_rate(fabric, NUPA_RATE_TENANT, 0, 0, rate);
		before = info_of(fabric);
		run = send_for(a, b, opcode, length, 100 * MS);
		keeps(fabric, &run, length, !is_send(opcode) && mover == NUPA_MOVER_NONE, &before);
		set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 0);
	}
	fabric_close(fabric, a, b);
}

TEST(writes_keep_the_rate)
{
	each_length(IBV_QPT_RC, IBV_WR_RDMA_WRITE, NUPA_MOVER_NONE);
}

TEST(writes_by_messages_keep_the_rate)
{
	each_length(IBV_QPT_RC, IBV_WR_RDMA_WRITE, NUPA_MOVER_RELAY);
}

TEST(reads_keep_the_rate)
{
	each_length(IBV_QPT_RC, IBV_WR_RDMA_READ, NUPA_MOVER_NONE);
}

TEST(reads_by_messages_keep_the_rate)
{
	each_length(IBV_QPT_RC, IBV_WR_RDMA_READ, NUPA_MOVER_RELAY);
}

TEST(sends_keep_the_rate)
{
	each_length(IBV_QPT_RC, IBV_WR_SEND, NUPA_MOVER_NONE);
}

TEST(sends_by_messages_keep_the_rate)
{
	each_length(IBV_QPT_RC, IBV_WR_SEND, NUPA_MOVER_RELAY);
}

TEST(unreliable_writes_and_datagrams_keep_the_rate)
{
	each_length(IBV_QPT_UC, IBV_WR_RDMA_WRITE, NUPA_MOVER_NONE);
	each_length(IBV_QPT_UD, IBV_WR_SEND, NUPA_MOVER_NONE);
}

/* --- bytes --------------------------------------------------------------------------- */

TEST(what_goes_in_pieces_arrives_whole)
{
	static const enum nupa_mover movers[] = { NUPA_MOVER_NONE, NUPA_MOVER_RELAY };

	for (uint32_t m = 0; m < 2; m++) {
		struct nupa_fabric *fabric = fabric_of_tenant();
		struct end_options options = options_of(IBV_QPT_RC);
		struct end *a, *b;

		options.mover = movers[m];
		pair_open(fabric, &options, &a, &b);
		set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 100000000);
		for (uint32_t i = 0; i < 3; i++) {
			struct request request = request_of(
			    a, i ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, i, 0, 0);
			uint32_t length = 300001, at = 13;

			if (i == 2)
				request.wr.opcode = IBV_WR_RDMA_READ;
			pattern_fill(i == 2 ? b->memory : a->memory, 4 * length, i);
			memset(i == 2 ? a->memory : b->memory, 0, 4 * length);
			for (uint32_t s = 0; s < 3; s++) { /* of uneven spans, one of them empty */
				request.sge[s].addr = (uintptr_t)a->memory + at;
				request.sge[s].length = s == 1 ? 0 : length;
				request.sge[s].lkey = a->mr->lkey;
				at += s == 1 ? 0 : length;
			}
			request.wr.sg_list = request.sge;
			request.wr.num_sge = 3;
			request.wr.wr.rdma.remote_addr = (uintptr_t)b->memory + 13;
			request.wr.wr.rdma.rkey = b->mr->rkey;
			if (i == 1)
				end_post_recv(b, 9, 0, 0);
			end_post(a, &request);
			cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
			if (i == 1)
				cq_expect(b->recv_cq, 9, IBV_WC_SUCCESS);
			CHECK(!memcmp(a->memory + 13, b->memory + 13, 2 * (size_t)length));
		}
		fabric_close(fabric, a, b);
	}
}

TEST(a_write_beyond_the_region_changes_no_byte)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	struct request request;
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 100000000);
	memset(a->memory, 1, MEMORY_BYTES);
	request = request_of(a, IBV_WR_RDMA_WRITE, 1, 0, 1u << 20);
	request.wr.wr.rdma.remote_addr += MEMORY_BYTES - (1u << 20) + 1;
	end_post(a, &request);
	cq_expect(a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 0; i < MEMORY_BYTES; i++)
		CHECK_EQ(b->memory[i], 0);
	fabric_close(fabric, a, b);
}

/* --- changes ------------------------------------------------------------------------- */

TEST(a_request_that_would_take_hours_goes_at_once_by_a_new_rate)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	uint64_t start_ns = test_now_ns();
	struct end *a, *b;

	options.timeout = 1; /* 8 us, seven times: no peer is slow */
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < 2; i++) {
		set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 1);
		pattern_fill(a->memory, 100000, i);
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 100000);
		cq_expect_none(a->send_cq, 20 * MS);
		set_rate(fabric, NUPA_RATE_TENANT, 0, 0, i ? 0 : 1000000000);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory, 100000, i);
	}
	CHECK(test_now_ns() - start_ns < WAIT_NS);
	fabric_close(fabric, a, b);
}

static struct nupa_qp *qp_of(const struct end *end)
{
	return container_of(end->qp, struct nupa_qp, ibv);
}

static void write_once(struct end *a)
{
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 64);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
}

/* The peer may not have opened its direction yet. */
static void write_until_express(struct end *a)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	while (!qp_of(a)->steady_tx) {
		CHECK(test_now_ns() < deadline_ns);
		write_once(a);
	}
}

TEST(without_a_rate_the_express_lane_is_open_again)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	write_until_express(a);
	set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 1000000000);
	CHECK(!qp_of(a)->steady_tx && qp_of(a)->rated);
	write_once(a);
	write_once(a);
	CHECK(!qp_of(a)->steady_tx);
	CHECK_EQ(info_of(fabric).bytes, 2 * (64 + NUPA_RATE_HEADER_BYTES));
	set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 0);
	CHECK(!qp_of(a)->rated);
	write_until_express(a);
	fabric_close(fabric, a, b);
}

/* --- scopes -------------------------------------------------------------------------- */

TEST(each_rate_holds_for_its_own_hosts_and_partition)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	nupa_store_relaxed(&fabric->controls[1].tenant, 0);
	set_rate(fabric, NUPA_RATE_PARTITION, 0, 0x1234, 1000000); /* another P_Key */
	CHECK(!qp_of(a)->rated && !qp_of(b)->rated);
	set_rate(fabric, NUPA_RATE_MEMBER, 1, 0x7fff, 1000000); /* READs of a fetch from there */
	CHECK(qp_of(a)->rated && qp_of(b)->rated);
	write_once(a);
	set_rate(fabric, NUPA_RATE_MEMBER, 1, 0x7fff, 0);
	set_rate(fabric, NUPA_RATE_PARTITION, 0, 0x7fff, 1000000000);
	CHECK(qp_of(a)->rated && qp_of(b)->rated);
	set_rate(fabric, NUPA_RATE_PARTITION, 0, 0x7fff, 0);
	set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 1000000000);
	CHECK(qp_of(a)->rated && qp_of(b)->rated); /* b: what it fetches of host 0 */
	fabric_close(fabric, a, b);
}

TEST(all_rates_of_a_flow_let_it_pass)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	struct nupa_rate_info all[3];
	uint64_t start_ns;
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 4000000000);
	set_rate(fabric, NUPA_RATE_PARTITION, 0, 0x7fff, 50000000);
	set_rate(fabric, NUPA_RATE_MEMBER, 0, 0x7fff, 2000000000);
	start_ns = test_now_ns();
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 4u << 20);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK(test_now_ns() - start_ns >= 79 * MS); /* 84 by the slowest, less 4, and a piece */
	CHECK_EQ(nupa_rate_list(fabric, all, 3), 3);
	CHECK_EQ(all[0].bytes, all[1].bytes);
	CHECK_EQ(all[1].bytes, all[2].bytes);
	fabric_close(fabric, a, b);
}

TEST(a_flow_that_waits_holds_no_other_back)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	struct end *a, *b, *c, *d;

	/* Of the same hosts and rings, but another partition. */
	nupa_store_relaxed(&fabric->controls[0].pkeys[1], 0x8012);
	nupa_store_relaxed(&fabric->controls[1].pkeys[1], 0x8012);
	pair_open(fabric, &options, &a, &b);
	pair_open(fabric, &options, &c, &d);
	qp_of(a)->attr.pkey_index = 1;
	qp_of(b)->attr.pkey_index = 1;
	set_rate(fabric, NUPA_RATE_PARTITION, 0, 0x12, 1);
	CHECK(qp_of(a)->rated && !qp_of(c)->rated);
	end_post_recv(b, 1, 0, 1u << 20);
	end_start(a, IBV_WR_SEND, 1, 0, 1u << 20);
	for (uint32_t i = 0; i < 100; i++) {
		end_post_recv(d, i, 0, 64);
		end_start(c, IBV_WR_SEND, i, 0, 64);
		cq_expect(c->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(d->recv_cq, i, IBV_WC_SUCCESS);
	}
	cq_expect_none(a->send_cq, 5 * MS);
	set_rate(fabric, NUPA_RATE_PARTITION, 0, 0x12, 0);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	pair_close(c, d);
	fabric_close(fabric, a, b);
}

TEST(a_sleeping_program_is_served_by_the_timer)
{
	struct nupa_fabric *fabric = fabric_of_tenant();
	struct end_options options = options_of(IBV_QPT_RC);
	struct ibv_cq *cq;
	void *context;
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	set_rate(fabric, NUPA_RATE_TENANT, 0, 0, 10000000);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(nupa_req_notify_cq(a->send_cq, 0), 0);
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 200000);
		CHECK_EQ(nupa_get_cq_event(a->channel, &cq, &context), 0);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		nupa_ack_cq_events(a->send_cq, 1);
	}
	fabric_close(fabric, a, b);
}
