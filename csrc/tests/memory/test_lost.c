/* SPDX-License-Identifier: BSD-3-Clause
 * Each operation, by each mover, on registered memory that its program has changed: no signal, and
 * the result that docs/verbs.md has in its table. */
#include "tests/memory/lost.h"
#include "tests/support/promoted.h"

#include <string.h>
#include <unistd.h>

enum side { LOCAL, REMOTE };

/* The use of a side's memory by an operation. */
enum role { SOURCE, TARGET, WORD };

struct operation {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t bytes;
	uint8_t pieces; /* of the local memory */
	bool srq;
};

static const struct operation operations[] = {
	{ "SEND in a line", IBV_QPT_RC, IBV_WR_SEND, 24, 1, false },
	{ "SEND of two pieces", IBV_QPT_RC, IBV_WR_SEND, 32, 2, false },
	{ "SEND", IBV_QPT_RC, IBV_WR_SEND, 4096, 1, false },
	{ "SEND that is pulled", IBV_QPT_RC, IBV_WR_SEND, 65536, 2, false },
	{ "SEND to an SRQ", IBV_QPT_RC, IBV_WR_SEND, 8, 1, true },
	{ "SEND by UC", IBV_QPT_UC, IBV_WR_SEND, 20000, 1, false },
	{ "SEND by UD", IBV_QPT_UD, IBV_WR_SEND, 1000, 1, false },
	{ "short SEND by UD", IBV_QPT_UD, IBV_WR_SEND, 16, 1, false },
	{ "short WRITE", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 8, 1, false },
	{ "WRITE", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 40000, 1, false },
	{ "WRITE of two pieces", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 9000, 2, false },
	{ "WRITE by UC", IBV_QPT_UC, IBV_WR_RDMA_WRITE, 3000, 1, false },
	{ "WRITE_WITH_IMM", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, 5000, 1, false },
	{ "READ", IBV_QPT_RC, IBV_WR_RDMA_READ, 40000, 1, false },
	{ "short READ", IBV_QPT_RC, IBV_WR_RDMA_READ, 8, 1, false },
	{ "CMP_AND_SWP", IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1, false },
	{ "FETCH_AND_ADD", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, false },
	{ "ATOMIC_WRITE", IBV_QPT_RC, IBV_WR_ATOMIC_WRITE, 8, 1, false },
};

#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static bool is_send(const struct operation *of)
{
	return of->opcode == IBV_WR_SEND;
}

static enum role role_of(const struct operation *of, enum side side)
{
	switch (of->opcode) {
	case IBV_WR_RDMA_READ:
		return side == LOCAL ? TARGET : SOURCE;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return side == LOCAL ? TARGET : WORD;
	default:
		return side == LOCAL ? SOURCE : TARGET;
	}
}

/* Peers that map a region's pages have them for as long as it is registered. */
static bool is_pinned(enum nupa_mover mover, const struct operation *of, enum side side,
		      enum way way)
{
	return mover == NUPA_MOVER_SHARED && side == REMOTE && way != WAY_TRUNCATE &&
	       !is_send(of) && of->opcode != IBV_WR_ATOMIC_WRITE;
}

static enum ibv_wc_status expected(enum nupa_mover mover, const struct operation *of,
				   enum side side, enum way way)
{
	enum role role = role_of(of, side);
	enum rest rest = way_leaves(way);

	if (role == TARGET || rest == REST_REPLACED || is_pinned(mover, of, side, way) ||
	    (role == SOURCE && rest == REST_PROTECTED))
		return IBV_WC_SUCCESS;
	return side == LOCAL ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR;
}

struct pair {
	struct nupa_fabric *fabric;
	struct end *a, *b;
};

static struct request request_on(const struct pair *pair, const struct operation *of,
				 const struct lost *local, const struct lost *remote)
{
	struct request request = request_of(pair->a, of->opcode, 1, 0, of->bytes);

	request.wr.num_sge = of->pieces;
	for (uint32_t i = 0; i < of->pieces; i++)
		request.sge[i] = (struct ibv_sge){ (uintptr_t)local->at + i * 65536u,
						   of->bytes / of->pieces, local->mr->lkey };
	if (of->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || of->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = (uintptr_t)remote->at;
		request.wr.wr.atomic.rkey = remote->mr->rkey;
	} else if (!is_send(of)) {
		request.wr.wr.rdma.remote_addr = (uintptr_t)remote->at;
		request.wr.wr.rdma.rkey = remote->mr->rkey;
	}
	return request;
}

static void post_recv(struct end *end, const struct lost *memory, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)memory->at, bytes, memory->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	CHECK_EQ(end->srq ? nupa_post_srq_recv(end->srq, &wr, &bad)
			  : nupa_post_recv(end->qp, &wr, &bad),
		 0);
}

/* Data that came into memory that was protected is there. */
static void check_data(const struct operation *of, const struct lost *local, struct lost *target,
		       enum side side)
{
	size_t grh = side == REMOTE && of->type == IBV_QPT_UD ? NUPA_GRH_BYTES : 0;

	if (role_of(of, side) != TARGET || way_leaves(target->way) != REST_PROTECTED ||
	    of->pieces != 1)
		return;
	lost_unprotect(target);
	if (of->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || of->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		CHECK_EQ(memcmp(target->at, local->at, 8), 0);
	else
		CHECK_PATTERN(target->at + grh, of->bytes, side == LOCAL ? 2 : 1);
}

/* It has taken the message, or, of a WRITE by UC, one behind that. */
static void check_receiver(const struct pair *pair, const struct operation *of,
			   enum ibv_wc_status status)
{
	bool takes = is_send(of) || of->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	if ((!takes && of->type == IBV_QPT_RC) || status != IBV_WC_SUCCESS)
		return;
	if (!takes) {
		end_start(pair->a, IBV_WR_SEND, 3, 0, 0);
		cq_expect(pair->a->send_cq, 3, IBV_WC_SUCCESS);
	}
	cq_expect(pair->b->recv_cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(end_state(pair->b), IBV_QPS_RTS);
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (nupa_poll_cq(cq, 1, &wc) == 1)
		;
}

static void reconnect(struct pair *pair)
{
	if (pair->a->ah)
		return;
	CHECK_EQ(end_modify(pair->a, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(pair->b, IBV_QPS_RESET), 0);
	end_connect(pair->a, &pair->b->self);
	end_connect(pair->b, &pair->a->self);
}

/* An RC pair settles on the express lane when an operation has succeeded. */
static void settle(const struct pair *pair)
{
	if (pair->a->options.type != IBV_QPT_RC)
		return;
	for (uint64_t i = 0; i < 2; i++) {
		end_post_recv(pair->b, 7, 0, 64);
		end_start(pair->a, IBV_WR_SEND, 8, 0, 8);
		cq_expect(pair->a->send_cq, 8, IBV_WC_SUCCESS);
		cq_expect(pair->b->recv_cq, 7, IBV_WC_SUCCESS);
	}
}

static void try_one(enum nupa_mover mover, const struct operation *of, enum side side, enum way way)
{
	enum ibv_wc_status wanted = expected(mover, of, side, way);
	struct pair pair = { .fabric = test_fabric() };
	struct end_options options = end_options_of(mover);
	struct lost memory[2];
	struct request request;
	struct ibv_wc wc;

	options.type = of->type;
	options.srq_wr = of->srq ? 16 : 0;
	pair_open(pair.fabric, &options, &pair.a, &pair.b);
	lost_expect_no_signals();
	lost_open(&memory[LOCAL], pair.a, LOCAL, way, 1);
	lost_open(&memory[REMOTE], pair.b, REMOTE, way, 2);
	settle(&pair);
	request = request_on(&pair, of, &memory[LOCAL], &memory[REMOTE]);
	post_recv(pair.b, &memory[REMOTE], is_send(of) ? of->bytes + NUPA_GRH_BYTES : 0);
	lost_lose(&memory[side]);
	end_post(pair.a, &request);
	wc = cq_wait(pair.a->send_cq);
	if (wc.status != wanted) {
		fprintf(stderr, "%s by mover %d after %s of the %s memory: status %d, not %d\n",
			of->name, (int)mover, way_names[way], side == LOCAL ? "local" : "remote",
			wc.status, wanted);
		abort();
	}
	check_receiver(&pair, of, wc.status);
	if (wc.status == IBV_WC_SUCCESS)
		check_data(of, &memory[LOCAL], &memory[side], side);
	drain(pair.a->send_cq);
	drain(pair.b->recv_cq);
	reconnect(&pair);
	lost_close(&memory[LOCAL]);
	lost_close(&memory[REMOTE]);
	fabric_close(pair.fabric, pair.a, pair.b);
}

static void try_all(enum nupa_mover mover)
{
	for (unsigned int i = 0; i < N_OPERATIONS; i++)
		for (int way = 0; way < N_WAYS; way++)
			for (int side = LOCAL; side <= REMOTE; side++)
				try_one(mover, &operations[i], (enum side)side, (enum way)way);
}

/* --- two processes --------------------------------------------------------------------- */

struct introduction {
	struct end_address end;
	uint64_t at;
	uint32_t rkey;
};

struct talk {
	int in, out;
};

static void tell(const struct talk *talk, const void *what, size_t bytes)
{
	CHECK_EQ(write(talk->out, what, bytes), (ssize_t)bytes);
}

static void hear(const struct talk *talk, void *what, size_t bytes)
{
	CHECK_EQ(read(talk->in, what, bytes), (ssize_t)bytes);
}

/* The other process, whose memory is lost. */
static void be_target(struct nupa_fabric *fabric, enum nupa_mover mover, const struct operation *of,
		      enum way way, const struct talk *talk)
{
	struct end_options options = end_options_of(mover);
	struct introduction ours = { 0 }, theirs;
	struct lost memory;
	struct end *end;
	char done = 0;

	options.host = 1;
	end = end_open(fabric, &options);
	lost_expect_no_signals();
	lost_open(&memory, end, REMOTE, way, 2);
	ours.end = end->self;
	ours.at = (uintptr_t)memory.at;
	ours.rkey = memory.mr->rkey;
	tell(talk, &ours, sizeof(ours));
	hear(talk, &theirs, sizeof(theirs));
	end_connect(end, &theirs.end);
	lost_lose(&memory);
	tell(talk, &done, 1);
	hear(talk, &done, 1);
	check_data(of, NULL, &memory, REMOTE);
	lost_close(&memory);
	end_close(end);
}

static void try_apart(enum nupa_mover mover, const struct operation *of, enum way way)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(mover);
	struct introduction ours = { 0 }, theirs;
	int there[2], back[2];
	struct request request;
	struct talk talk;
	struct end *end;
	char done = 0;
	pid_t pid;

	CHECK(!pipe(there) && !pipe(back));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		talk = (struct talk){ .in = there[0], .out = back[1] };
		be_target(fabric, mover, of, way, &talk);
		_exit(0);
	}
	talk = (struct talk){ .in = back[0], .out = there[1] };
	end = end_open(fabric, &options);
	pattern_fill(end->memory, of->bytes, 1);
	ours.end = end->self;
	hear(&talk, &theirs, sizeof(theirs));
	tell(&talk, &ours, sizeof(ours));
	end_connect(end, &theirs.end);
	hear(&talk, &done, 1);
	request = request_of(end, of->opcode, 1, 0, of->bytes);
	request.wr.wr.rdma.remote_addr = theirs.at;
	request.wr.wr.rdma.rkey = theirs.rkey;
	end_post(end, &request);
	cq_expect(end->send_cq, 1, expected(mover, of, REMOTE, way));
	tell(&talk, &done, 1);
	CHECK_CHILD(pid);
	end_close(end);
	CHECK(!close(there[0]) && !close(there[1]) && !close(back[0]) && !close(back[1]));
	nupa_fabric_put(fabric);
}

static void between_processes(enum nupa_mover mover)
{
	for (unsigned int i = 0; i < N_OPERATIONS; i++)
		for (int way = 0; way < N_WAYS; way++)
			if (operations[i].type == IBV_QPT_RC && operations[i].pieces == 1 &&
			    (operations[i].opcode == IBV_WR_RDMA_WRITE ||
			     operations[i].opcode == IBV_WR_RDMA_READ))
				try_apart(mover, &operations[i], (enum way)way);
}

TEST(between_processes_by_cma)
{
	if (test_cma_works())
		between_processes(NUPA_MOVER_CMA);
}

TEST(between_processes_by_relay)
{
	between_processes(NUPA_MOVER_RELAY);
}

TEST(between_processes_by_shared_pages)
{
	if (promotion_works())
		between_processes(NUPA_MOVER_SHARED);
}

/* --- one process ----------------------------------------------------------------------- */

TEST(within_a_process)
{
	try_all(NUPA_MOVER_LOCAL);
}

TEST(by_cma)
{
	if (test_cma_works())
		try_all(NUPA_MOVER_CMA);
}

TEST(by_relay)
{
	try_all(NUPA_MOVER_RELAY);
}

TEST(by_shared_pages)
{
	if (promotion_works())
		try_all(NUPA_MOVER_SHARED);
}
