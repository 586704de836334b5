/* SPDX-License-Identifier: BSD-3-Clause
 * Flows with a rate: each operation keeps it, in any length, and no byte of it is lost. */
#include "tests/rate/rated.h"

#include <string.h>

/* A process that is off its core for longer cannot use the time. */
#define GAP_NS (2 * MS)

#ifdef __SANITIZE_THREAD__
#define HAS_TIME false /* a request may take longer than its part of the rate */
#else
#define HAS_TIME true
#endif

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
	struct nupa_rate_info after = rate_get(fabric);
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
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(type);
	struct end *a, *b;

	options.mover = mover;
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < (type == IBV_QPT_UD ? 2 : 5); i++) {
		uint32_t length = type == IBV_QPT_UD && i == 1 ? 4000 : lengths[i];
		uint64_t rate = length > 1u << 20 ? 1500000000 : length > 64 ? 200000000 : 4000000;
		struct nupa_rate_info before;
		struct run run;

		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, rate);
		before = rate_get(fabric);
		run = send_for(a, b, opcode, length, 100 * MS);
		keeps(fabric, &run, length,
		      HAS_TIME && !is_send(opcode) && mover == NUPA_MOVER_NONE, &before);
		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 0);
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
		struct nupa_fabric *fabric = rated_fabric();
		struct end_options options = rated_options(IBV_QPT_RC);
		struct end *a, *b;

		options.mover = movers[m];
		pair_open(fabric, &options, &a, &b);
		rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 100000000);
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
	struct nupa_fabric *fabric = rated_fabric();
	struct end_options options = rated_options(IBV_QPT_RC);
	struct request request;
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	rate_set(fabric, NUPA_RATE_TENANT, 0, 0, 100000000);
	memset(a->memory, 1, RATED_MEMORY_BYTES);
	request = request_of(a, IBV_WR_RDMA_WRITE, 1, 0, 1u << 20);
	request.wr.wr.rdma.remote_addr += RATED_MEMORY_BYTES - (1u << 20) + 1;
	end_post(a, &request);
	cq_expect(a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 0; i < RATED_MEMORY_BYTES; i++)
		CHECK_EQ(b->memory[i], 0);
	fabric_close(fabric, a, b);
}
