/* SPDX-License-Identifier: BSD-3-Clause
 * Every operation of RC, UC and UD, by every mover, within one process and between two. */
#include "tests/support/target.h"

#include <string.h>

#define GRH_BYTES 40u

/* Around every way that a message may go: in a line, staged, pulled, in parts (16 KiB each). */
static const uint32_t lengths[] = { 0,    1,    8,    9,     16,    17,    32,    33,
				    4096, 8192, 8193, 16384, 16385, 49152, 49153, 300000 };
#define N_LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

struct pair {
	struct nupa_fabric *fabric;
	struct end *end;
	struct target target;
};

static struct pair pair_of(bool fork_target, const struct end_options *options)
{
	struct pair pair = { .fabric = test_fabric() };

	pair.target = fork_target ? target_fork(pair.fabric) : target_here();
	pair.end = end_open(pair.fabric, options);
	target_open(&pair.target, pair.fabric, options);
	target_connect(&pair.target, &pair.end->self);
	end_connect(pair.end, &pair.target.address);
	return pair;
}

static void pair_end(struct pair *pair)
{
	/* Both ways round: who leaves first must not matter. */
	if (pair->target.pid)
		target_close(&pair->target);
	end_close(pair->end);
	if (!pair->target.pid)
		target_close(&pair->target);
	nupa_fabric_put(pair->fabric);
}

/* --- operations ---------------------------------------------------------------------- */

/* A datagram arrives behind its GRH. */
static uint32_t room_for(const struct pair *pair, uint32_t length)
{
	return length + (pair->end->options.type == IBV_QPT_UD ? GRH_BYTES : 0);
}

static void send_arrives(struct pair *pair, uint32_t length, unsigned int flags)
{
	struct request request = request_of(pair->end, IBV_WR_SEND_WITH_IMM, length, 0, length);
	uint32_t room = room_for(pair, length);
	struct ibv_wc wc;

	request.wr.send_flags |= flags;
	request.wr.imm_data = length + 5;
	pattern_fill(pair->end->memory, length, length);
	target_post_recv(&pair->target, length + 1, 100, room);
	end_post(pair->end, &request);
	if (flags & IBV_SEND_INLINE) /* the buffer is the program's again */
		memset(pair->end->memory, 0, length);
	wc = cq_expect(pair->end->send_cq, length, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_SEND);
	CHECK_EQ(wc.qp_num, pair->end->qp->qp_num);
	wc = target_expect(&pair->target, length + 1, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, room);
	CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, length + 5);
	CHECK_EQ(wc.qp_num, pair->target.address.qpn);
	CHECK_EQ(wc.src_qp, pair->end->qp->qp_num);
	target_check(&pair->target, 100 + room - length, length, length);
}

/* Several pieces, one of them empty, into several pieces. */
static void send_gathers(struct pair *pair, uint32_t length)
{
	struct request request = request_of(pair->end, IBV_WR_SEND, 1, 0, length / 3);
	struct ibv_sge all = request.sge[0];
	uint32_t room = room_for(pair, length);

	request.wr.num_sge = 4;
	request.sge[1] = (struct ibv_sge){ all.addr, 0, all.lkey };
	request.sge[2] = (struct ibv_sge){ all.addr + length / 3, 1, all.lkey };
	request.sge[3] =
	    (struct ibv_sge){ all.addr + length / 3 + 1, length - length / 3 - 1, all.lkey };
	pattern_fill(pair->end->memory, length, length);
	target_post_recv(&pair->target, 2, 0, room);
	end_post(pair->end, &request);
	cq_expect(pair->end->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(target_expect(&pair->target, 2, IBV_WC_SUCCESS).byte_len, room);
	target_check(&pair->target, room - length, length, length);
}

static void write_arrives(struct pair *pair, uint32_t length, bool with_imm)
{
	enum ibv_wr_opcode opcode = with_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	struct request request = request_of(pair->end, opcode, 3, 0, length);
	struct ibv_wc wc;

	request.wr.imm_data = 77;
	request.wr.wr.rdma.remote_addr += 64;
	pattern_fill(pair->end->memory, length, length + 1);
	if (with_imm)
		target_post_recv(&pair->target, 4, 0, 0);
	end_post(pair->end, &request);
	CHECK_EQ(cq_expect(pair->end->send_cq, 3, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
	if (with_imm) {
		wc = target_expect(&pair->target, 4, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_EQ(wc.byte_len, length);
		CHECK_EQ(wc.imm_data, 77);
	}
}

/* UC tells nothing of when a write is executed: a SEND behind it does. */
static void check_written(struct pair *pair, uint32_t length)
{
	if (pair->end->options.type == IBV_QPT_UC)
		send_arrives(pair, 0, 0);
	target_check(&pair->target, 64, length, length + 1);
}

static void read_arrives(struct pair *pair, uint32_t length)
{
	struct ibv_wc wc;

	target_fill(&pair->target, 0, length, length + 2);
	memset(pair->end->memory, 0, length + 1);
	end_start(pair->end, IBV_WR_RDMA_READ, 5, 0, length);
	wc = cq_expect(pair->end->send_cq, 5, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RDMA_READ);
	CHECK_EQ(wc.byte_len, length);
	CHECK_PATTERN(pair->end->memory, length, length + 2);
	CHECK_EQ(pair->end->memory[length], 0);
}

static uint64_t atomic(struct pair *pair, enum ibv_wr_opcode opcode, uint64_t compare_add,
		       uint64_t swap)
{
	struct request request = request_of(pair->end, opcode, 6, 8, 8);
	uint64_t original;

	request.wr.wr.atomic.compare_add = compare_add;
	request.wr.wr.atomic.swap = swap;
	end_post(pair->end, &request);
	CHECK_EQ(cq_expect(pair->end->send_cq, 6, IBV_WC_SUCCESS).opcode,
		 opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
	memcpy(&original, pair->end->memory + 8, sizeof(original));
	return original;
}

static void atomics_work(struct pair *pair)
{
	target_set_word(&pair->target, 8, 1000);
	CHECK_EQ(atomic(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0), 1000);
	CHECK_EQ(target_word(&pair->target, 8), 1005);
	CHECK_EQ(atomic(pair, IBV_WR_ATOMIC_CMP_AND_SWP, 1004, 9), 1005);
	CHECK_EQ(target_word(&pair->target, 8), 1005);
	CHECK_EQ(atomic(pair, IBV_WR_ATOMIC_CMP_AND_SWP, 1005, 9), 1005);
	CHECK_EQ(target_word(&pair->target, 8), 9);
	CHECK_EQ(atomic(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, UINT64_MAX, 0), 9);
	CHECK_EQ(target_word(&pair->target, 8), 8);
}

/* A mixture posted at once executes in order: each operation sees the one before it. */
static void operations_keep_their_order(struct pair *pair)
{
	struct end *end = pair->end;

	for (uint32_t round = 0; round < 20; round++) {
		uint32_t length = round & 1 ? 20000 : 64;

		target_post_recv(&pair->target, round, 0, length);
		target_fill(&pair->target, 0, length, 1);
		pattern_fill(end->memory, length, round);
		pattern_fill(end->memory + 100000, length, round + 1);
		memset(end->memory + 200000, 0, 2 * length);
		end_start(end, IBV_WR_SEND, 1, 0, length);
		struct request read_1 = request_of(end, IBV_WR_RDMA_READ, 2, 200000, length);
		struct request write = request_of(end, IBV_WR_RDMA_WRITE, 3, 100000, length);
		struct request read_2 =
		    request_of(end, IBV_WR_RDMA_READ, 4, 200000 + length, length);

		read_1.wr.wr.rdma.remote_addr = end->peer.memory;
		write.wr.wr.rdma.remote_addr = end->peer.memory;
		read_2.wr.wr.rdma.remote_addr = end->peer.memory;
		end_post(end, &read_1);
		end_post(end, &write);
		end_post(end, &read_2);
		for (uint64_t wr_id = 1; wr_id <= 4; wr_id++)
			cq_expect(end->send_cq, wr_id, IBV_WC_SUCCESS);
		target_expect(&pair->target, round, IBV_WC_SUCCESS);
		CHECK_PATTERN(end->memory + 200000, length, round);
		CHECK_PATTERN(end->memory + 200000 + length, length, round + 1);
		target_check(&pair->target, 0, length, round + 1);
	}
}

/* --- the matrix ---------------------------------------------------------------------- */

static void rc_works(bool fork_target, const struct end_options *base)
{
	struct pair pair = pair_of(fork_target, base);

	for (size_t i = 0; i < N_LENGTHS; i++) {
		send_arrives(&pair, lengths[i], 0);
		if (lengths[i] <= 256)
			send_arrives(&pair, lengths[i], IBV_SEND_INLINE);
		write_arrives(&pair, lengths[i], false);
		check_written(&pair, lengths[i]);
		write_arrives(&pair, lengths[i], true);
		check_written(&pair, lengths[i]);
		read_arrives(&pair, lengths[i]);
	}
	send_gathers(&pair, 30);
	send_gathers(&pair, 5000);
	send_gathers(&pair, 100000);
	atomics_work(&pair);
	operations_keep_their_order(&pair);
	pair_end(&pair);
}

static void uc_works(bool fork_target, const struct end_options *base)
{
	struct end_options options = *base;
	struct pair pair;

	options.type = IBV_QPT_UC;
	pair = pair_of(fork_target, &options);
	for (size_t i = 0; i < N_LENGTHS; i++) {
		send_arrives(&pair, lengths[i], 0);
		write_arrives(&pair, lengths[i], false);
		check_written(&pair, lengths[i]);
		write_arrives(&pair, lengths[i], true);
		check_written(&pair, lengths[i]);
	}
	send_gathers(&pair, 100000);
	pair_end(&pair);
}

static void ud_works(bool fork_target, const struct end_options *base)
{
	struct end_options options = *base;
	struct pair pair;

	options.type = IBV_QPT_UD;
	pair = pair_of(fork_target, &options);
	for (size_t i = 0; lengths[i] <= 4096; i++) {
		send_arrives(&pair, lengths[i], 0);
		if (lengths[i] <= 256)
			send_arrives(&pair, lengths[i], IBV_SEND_INLINE);
	}
	send_gathers(&pair, 4000);
	pair_end(&pair);
}

static void every_operation_works(bool fork_target, enum nupa_mover mover)
{
	struct end_options options = end_defaults;

	if (mover == NUPA_MOVER_CMA && !test_cma_works()) {
		printf("     not run: process_vm_readv is refused here\n");
		return;
	}
	options.mover = mover;
	options.in_pool = mover == NUPA_MOVER_POOL;
	rc_works(fork_target, &options);
	uc_works(fork_target, &options);
	ud_works(fork_target, &options);
}

TEST(in_one_process_by_memcpy)
{
	every_operation_works(false, NUPA_MOVER_LOCAL);
}

TEST(in_one_process_by_the_pool)
{
	every_operation_works(false, NUPA_MOVER_POOL);
}

TEST(in_one_process_by_cma)
{
	every_operation_works(false, NUPA_MOVER_CMA);
}

TEST(in_one_process_by_relay)
{
	every_operation_works(false, NUPA_MOVER_RELAY);
}

TEST(between_processes_by_the_pool)
{
	every_operation_works(true, NUPA_MOVER_POOL);
}

TEST(between_processes_by_cma)
{
	every_operation_works(true, NUPA_MOVER_CMA);
}

TEST(between_processes_by_relay)
{
	every_operation_works(true, NUPA_MOVER_RELAY);
}

TEST(between_processes_as_the_engine_chooses)
{
	every_operation_works(true, NUPA_MOVER_NONE);
}

/* Private memory and pool memory at once: the mover is chosen for each region. */
TEST(private_memory_is_sent_from_where_the_pool_is_the_target)
{
	struct end_options options = end_defaults;
	struct pair pair = { .fabric = test_fabric() };

	pair.target = target_fork(pair.fabric);
	pair.end = end_open(pair.fabric, &options);
	options.in_pool = true;
	target_open(&pair.target, pair.fabric, &options);
	target_connect(&pair.target, &pair.end->self);
	end_connect(pair.end, &pair.target.address);
	write_arrives(&pair, 100000, false);
	check_written(&pair, 100000);
	read_arrives(&pair, 100000);
	atomics_work(&pair);
	send_arrives(&pair, 100000, 0);
	pair_end(&pair);
}

TEST(a_mover_that_cannot_reach_the_peer_is_not_replaced_by_another)
{
	struct end_options options = end_defaults;
	struct pair pair = { .fabric = test_fabric() };

	pair.target = target_fork(pair.fabric);
	options.mover = NUPA_MOVER_LOCAL;
	options.timeout = 8;
	options.retry_cnt = 1;
	pair.end = end_open(pair.fabric, &options);
	target_open(&pair.target, pair.fabric, &options);
	target_connect(&pair.target, &pair.end->self);
	end_connect(pair.end, &pair.target.address);
	end_start(pair.end, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(pair.end->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	pair_end(&pair);
}
