/* SPDX-License-Identifier: BSD-3-Clause
 * A process that writes random bytes into the segment, everywhere, while others go on: their
 * transfers may fail, but none of them crashes, hangs, or touches memory that is not its region's,
 * for writing or for reading: that holds a number which must not turn up anywhere else.
 * NUPA_FUZZ_SECONDS says for how long; the seed is printed. */
#include "engine/device/device.h"
#include "tests/support/runner.h"
#include "tests/support/end.h"
#include "tests/support/secret.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES 65536u
#define GUARD_BYTES 4096u
#define OPEN 0x11 /* what a region holds at first */
#define RECVS 8u
#define POLL_NS UINT64_C(3000000)
#define ATTACK 99u /* wr_id */
#define ATTACK_NS UINT64_C(20000000)
#define TABLE_ENTRIES 256u /* as many as are backed */
#define TABLE_ENTRY_BYTES sizeof(struct nupa_mr_entry)
#define FINISH_NS UINT64_C(30000000000)

static uint64_t fuzz_ns(void)
{
	const char *text = getenv("NUPA_FUZZ_SECONDS");

	return (uint64_t)((text ? strtod(text, NULL) : 4) * 1e9);
}

/* --- those who go on ------------------------------------------------------------------- */

struct party {
	struct nupa_fabric *fabric;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory; /* guard, region, guard */
	void *pool;
	union ibv_gid gid;
};

static uint8_t *region_of(const struct party *party)
{
	return party->pool ? party->pool : party->memory + GUARD_BYTES;
}

static void party_close(struct party *party)
{
	if (party->qp)
		nupa_destroy_qp(party->qp);
	/* EBUSY: a hazard of a peer that never ends, in the segment as it is now. */
	if (party->mr)
		nupa_dereg_mr(party->mr);
	if (party->cq)
		nupa_destroy_cq(party->cq);
	if (party->pd)
		nupa_dealloc_pd(party->pd);
	if (party->pool)
		nupa_pool_free(party->fabric, (uint32_t)nupa_context_slot(party->context),
			       party->pool, REGION_BYTES);
	if (party->context)
		nupa_close_device(party->context);
}

static bool party_open(struct party *party, struct nupa_fabric *fabric, int host,
		       enum nupa_mover mover, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .cap = { 16, RECVS, 2, 2, 64 }, .qp_type = type };
	char why[512];

	party->fabric = fabric;
	party->context = nupa_open_host(fabric, host, mover, why, sizeof(why));
	if (!party->context)
		return false;
	if (mover == NUPA_MOVER_POOL)
		nupa_pool_alloc(fabric, (uint32_t)nupa_context_slot(party->context), REGION_BYTES,
				&party->pool);
	party->pd = nupa_alloc_pd(party->context);
	party->cq = nupa_create_cq(party->context, 256, NULL, NULL, 0);
	CHECK(party->pd && party->cq);
	party->mr = nupa_reg_mr(party->pd, region_of(party), REGION_BYTES,
				(uintptr_t)region_of(party), (int)end_defaults.access);
	init.send_cq = init.recv_cq = party->cq;
	party->qp = party->mr ? nupa_create_qp(party->pd, &init) : NULL;
	return party->qp && nupa_query_gid(party->context, 1, 1, &party->gid) == 0;
}

static bool party_connect(struct party *party, const struct party *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = end_defaults.access };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	bool reliable = party->qp->qp_type == IBV_QPT_RC;

	if (nupa_modify_qp(party->qp, &attr, mask))
		return false;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.ah_attr = { .grh = { .dgid = peer->gid, .sgid_index = 1, .hop_limit = 64 },
			     .is_global = 1,
			     .port_num = 1 },
	};
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (nupa_modify_qp(party->qp, &attr,
			   reliable ? mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
				    : mask))
		return false;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 8,
				     .retry_cnt = 2,
				     .rnr_retry = 2,
				     .max_rd_atomic = 4 };
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	return nupa_modify_qp(party->qp, &attr,
			      reliable ? mask | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
				       : mask) == 0;
}

/* Counts of what was asked for and of what was done. */
struct tally {
	uint64_t lives, good;
	/* READs beyond the region: all; refused; answered by the scribbler, if by anybody. */
	uint64_t attacks, refused, forged;
};

static void post_recv(struct party *party, uint64_t random)
{
	struct ibv_sge sge = { (uintptr_t)region_of(party) + random % 1000, 40000,
			       party->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	nupa_post_recv(party->qp, &wr, &bad);
}

static void post_send(struct party *party, const struct party *peer, uint64_t *random)
{
	static const uint32_t lengths[] = { 0, 1, 8, 32, 33, 1000, 8192, 8193, 40000 };
	uint32_t length = lengths[test_random(random) % 9];
	uint64_t r = test_random(random);
	struct ibv_sge sge = { (uintptr_t)region_of(party) + r % 1000, length, party->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = (enum ibv_wr_opcode)(r >> 20) % 7, /* WRITE to FETCH_AND_ADD */
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = (uintptr_t)region_of(peer) + (r >> 30) % 1000 * 8;
		wr.wr.atomic.rkey = peer->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)region_of(peer) + (r >> 30) % 20000;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	nupa_post_send(party->qp, &wr, &bad);
}

static uint64_t poll_for(struct party *parties, uint64_t ns)
{
	uint64_t until_ns = test_now_ns() + ns, good = 0;
	struct ibv_wc wc[16];

	do {
		for (int i = 0; i < 2; i++) {
			int n = nupa_poll_cq(parties[i].cq, 16, wc);

			for (int j = 0; j < n; j++)
				good += wc[j].status == IBV_WC_SUCCESS;
		}
	} while (test_now_ns() < until_ns);
	return good;
}

/* The guards are as they were, and nothing of them is in the region, whichever way it came. */
static void check_memory(const uint8_t *memory, const uint8_t *pool, const struct secret *secret)
{
	const uint8_t *behind = memory + GUARD_BYTES + REGION_BYTES;

	CHECK_EQ(secret_match(secret, memory, GUARD_BYTES), GUARD_BYTES);
	CHECK_EQ(secret_match(secret, behind, GUARD_BYTES), GUARD_BYTES);
	CHECK_EQ(secret_find(secret, memory + GUARD_BYTES, REGION_BYTES), REGION_BYTES);
	if (pool)
		CHECK_EQ(secret_find(secret, pool, REGION_BYTES), REGION_BYTES);
}

/* A READ across an end of the peer's region, with the right key.  What comes back, if anything
 * does, is looked at with the rest of our region. */
static void attack(struct party *parties, uint64_t *random, struct tally *tally)
{
	struct party *party = &parties[0];
	uint32_t length = 16u << test_random(random) % 10, over = 8 + length / 4;
	uint64_t from = (uintptr_t)region_of(&parties[1]);
	struct ibv_sge sge = { (uintptr_t)region_of(party), length, party->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = ATTACK,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .rkey = parties[1].mr->rkey },
	};
	uint64_t until_ns = test_now_ns() + ATTACK_NS;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr =
	    test_random(random) % 2 ? from - over : from + REGION_BYTES - length + over;
	if (party->qp->qp_type != IBV_QPT_RC || nupa_post_send(party->qp, &wr, &bad))
		return;
	tally->attacks++;
	do {
		int n = nupa_poll_cq(party->cq, 1, &wc);

		(void)nupa_poll_cq(parties[1].cq, 0, NULL); /* drives its engine */
		if (n == 1 && wc.wr_id == ATTACK) {
			tally->refused += wc.status == IBV_WC_REM_ACCESS_ERR;
			tally->forged += wc.status == IBV_WC_SUCCESS;
			return;
		}
		tally->good += n == 1 && wc.status == IBV_WC_SUCCESS;
	} while (test_now_ns() < until_ns);
}

/* One life: attach, connect, transfer whatever goes, leave. */
static void live_once(struct nupa_fabric *fabric, enum nupa_mover mover, uint8_t *memory[2],
		      const struct secret *secret, uint64_t *random, struct tally *tally)
{
	enum ibv_qp_type type = test_random(random) % 4 ? IBV_QPT_RC : IBV_QPT_UC;
	struct party parties[2] = { { .memory = memory[0] }, { .memory = memory[1] } };

	if (party_open(&parties[0], fabric, 0, mover, type) &&
	    party_open(&parties[1], fabric, 1, mover, type) &&
	    party_connect(&parties[0], &parties[1]) && party_connect(&parties[1], &parties[0])) {
		if (test_random(random) % 2) /* or at its end, when much is amiss */
			attack(parties, random, tally);
		for (int round = 0; round < 20; round++) {
			for (uint32_t i = 0; i < RECVS; i++)
				post_recv(&parties[i % 2], test_random(random));
			for (int i = 0; i < 8; i++)
				post_send(&parties[i % 2], &parties[1 - i % 2], random);
			tally->good += poll_for(parties, POLL_NS / 20);
		}
		attack(parties, random, tally);
	}
	for (int i = 0; i < 2; i++) {
		check_memory(memory[i], parties[i].pool, secret);
		party_close(&parties[i]);
		check_memory(memory[i], NULL, secret);
	}
	tally->lives++;
}

static void live(struct nupa_fabric *fabric, enum nupa_mover mover, uint64_t seed,
		 uint64_t until_ns)
{
	struct tally tally = { 0 };
	uint64_t random = seed;
	struct secret secret = secret_of(&random);
	uint8_t *memory[2];

	for (int i = 0; i < 2; i++) {
		memory[i] = mmap(NULL, REGION_BYTES + 2 * GUARD_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(memory[i] != MAP_FAILED);
		secret_fill(&secret, memory[i], REGION_BYTES + 2 * GUARD_BYTES);
		memset(memory[i] + GUARD_BYTES, OPEN, REGION_BYTES);
	}
	/* Both have to happen, whatever the fuzzer does, and however slow the machine is. */
	while (test_now_ns() < until_ns || !tally.good || !tally.refused)
		live_once(fabric, mover, memory, &secret, &random, &tally);
	printf(
	    "  mover %d: %llu lives, %llu requests went well, %llu of %llu attacks were refused\n",
	    (int)mover, (unsigned long long)tally.lives, (unsigned long long)tally.good,
	    (unsigned long long)tally.refused, (unsigned long long)tally.attacks);
	fflush(stdout);
	CHECK(tally.forged <= 1 + tally.refused / 8);
	_exit(0);
}

/* --- the one that scribbles ------------------------------------------------------------ */

static void scribble(uint8_t *at, uint64_t bytes, uint64_t *random)
{
	uint64_t offset = test_random(random) % bytes;
	uint64_t value = test_random(random);
	uint32_t n = 1u << (test_random(random) % 4);

	if (offset > bytes - 8)
		offset = bytes - 8;
	/* Small numbers, flipped bits and all ones find more than noise does. */
	switch (test_random(random) % 4) {
	case 0:
		value %= 256;
		break;
	case 1:
		memcpy(&value, at + offset, 8);
		value ^= UINT64_C(1) << (test_random(random) % 64);
		break;
	case 2:
		value = UINT64_MAX;
		break;
	default:
		break;
	}
	memcpy(at + offset, &value, n);
}

/* A message with the tag that the consumer waits for, and plausible or random content. */
static void forge(struct nupa_fabric *fabric, struct nupa_ring_header *header, uint32_t from,
		  uint32_t to, uint64_t *random)
{
	uint32_t n_lines = fabric->geometry.ring_lines;
	struct nupa_msg *lines = (struct nupa_msg *)(header + 1);
	uint64_t count = nupa_load_relaxed(&header->head) & NUPA_COUNT_MASK;
	uint64_t index = count + test_random(random) % 4;
	struct nupa_msg msg, *line = &lines[index & (n_lines - 1)];
	uint64_t words[8] = { 0 };

	for (int i = 0; i < 8; i++)
		words[i] = test_random(random) % 3 ? test_random(random) : words[0] % 64;
	memcpy(&msg, line, sizeof(msg)); /* what was sent there once is plausible */
	for (int i = 0; i < 8; i++)
		if (test_random(random) % 3 == 0)
			memcpy((uint8_t *)&msg + i * 8, &words[i], 8);
	msg.op = (uint8_t)(test_random(random) % (NUPA_OP_MAX + 1));
	if (test_random(random) % 2) {
		msg.dest_qpn = to << NUPA_QP_INDEX_BITS | (uint32_t)(test_random(random) % 64);
		msg.src_qpn = from << NUPA_QP_INDEX_BITS | (uint32_t)(test_random(random) % 64);
	}
	if (test_random(random) % 2)
		msg.length_bytes = (uint32_t)(test_random(random) % 70000);
	msg.tag = (uint32_t)(index / n_lines) + 1;
	memcpy((uint8_t *)line + 4, (uint8_t *)&msg + 4, sizeof(msg) - 4);
	nupa_store_release(&line->tag, msg.tag);
}

/* An entry of a table in whose first word is something, if one is easily found. */
static uint8_t *entry_in_use(uint8_t *table, uint64_t *random)
{
	uint8_t *entry = table;

	for (int tries = 0; tries < 64; tries++) {
		entry = table + test_random(random) % TABLE_ENTRIES * TABLE_ENTRY_BYTES;
		if (nupa_load_relaxed((uint32_t *)(void *)entry))
			break;
	}
	return entry;
}

static void scribble_in_arena(struct nupa_fabric *fabric, uint32_t slot, uint64_t *random)
{
	struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	uint8_t *arena = nupa_fabric_arena(fabric, slot);
	uint32_t to = 1 + (uint32_t)(test_random(random) % (fabric->geometry.n_slots - 1));
	uint8_t *ring = arena + map.rings_off + to * map.ring_stride;

	switch (test_random(random) % 8) {
	case 0:
		scribble(arena, map.qps_off, random);
		break;
	case 1:
		scribble(entry_in_use(arena + map.qps_off, random), TABLE_ENTRY_BYTES, random);
		break;
	case 2:
		scribble(entry_in_use(arena + map.mrs_off, random), TABLE_ENTRY_BYTES, random);
		break;
	case 3:
		scribble(ring, sizeof(struct nupa_ring_header), random);
		break;
	case 4:
		scribble(ring + sizeof(struct nupa_ring_header),
			 map.ring_stride - sizeof(struct nupa_ring_header), random);
		break;
	default:
		forge(fabric, (struct nupa_ring_header *)(void *)ring, slot, to, random);
		break;
	}
}

static void hazard(struct nupa_slot *slot, uint64_t *random)
{
	nupa_store_relaxed(&slot->hazard,
			   (test_random(random) % 8) << 32 | (test_random(random) % 32));
}

static void fuzz(struct nupa_fabric *fabric, uint64_t seed)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint64_t random = seed;

	for (;;) {
		uint32_t slot = 1 + (uint32_t)(test_random(&random) % (sb->n_slots - 1));
		uint32_t what = (uint32_t)(test_random(&random) % 1024);

		if (what == 0)
			scribble((uint8_t *)fabric->slots, sb->n_slots * sizeof(struct nupa_slot),
				 &random);
		else if (what == 1)
			scribble((uint8_t *)fabric->sb, sb->arenas_off, &random);
		else if (what == 2) /* what was destroyed for good is of no use for more */
			nupa_store_release(&fabric->slots[slot].claim,
					   NUPA_CLAIM(0, test_random(&random), NUPA_SLOT_FREE));
		else if (what < 16)
			hazard(&fabric->slots[slot], &random);
		else
			scribble_in_arena(fabric, slot, &random);
		/* Something has to go well in between. */
		if (test_random(&random) % 64 == 0)
			usleep((useconds_t)(test_random(&random) % 2000));
	}
}

/* --- all of them ------------------------------------------------------------------------- */

static pid_t start(void (*run)(struct nupa_fabric *, enum nupa_mover, uint64_t, uint64_t),
		   struct nupa_fabric *fabric, enum nupa_mover mover, uint64_t seed,
		   uint64_t until_ns)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		alarm((unsigned int)((fuzz_ns() + FINISH_NS) / 1000000000));
		run(fabric, mover, seed, until_ns);
		_exit(0);
	}
	return pid;
}

static void be_fuzzer(struct nupa_fabric *fabric, enum nupa_mover mover, uint64_t seed,
		      uint64_t until_ns)
{
	(void)mover;
	(void)until_ns;
	fuzz(fabric, seed);
}

static void while_somebody_scribbles(const enum nupa_mover *movers, uint32_t n)
{
	struct nupa_fabric *fabric = test_fabric();
	uint64_t seed = test_seed();
	uint64_t until_ns = test_now_ns() + fuzz_ns();
	pid_t pids[4], fuzzer;
	int status;

	CHECK(n <= 4);
	fuzzer = start(be_fuzzer, fabric, NUPA_MOVER_NONE, seed, 0);
	for (uint32_t i = 0; i < n; i++)
		pids[i] = start(live, fabric, movers[i], seed + i + 1, until_ns);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		if (status)
			fprintf(stderr, "the process with mover %d: status 0x%x\n", (int)movers[i],
				(unsigned int)status);
		CHECK_EQ(status, 0);
	}
	CHECK_EQ(kill(fuzzer, SIGKILL), 0);
	CHECK_EQ(waitpid(fuzzer, &status, 0), fuzzer);
	nupa_fabric_put(fabric);
}

static void messages_and_tables_of_relays_and_pool(void)
{
	while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_RELAY, NUPA_MOVER_POOL }, 2);
}

static void messages_and_tables_of_system_calls(void)
{
	if (test_cma_works())
		while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_CMA, NUPA_MOVER_CMA }, 2);
}

static void messages_and_tables_of_one_process(void)
{
	while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_NONE, NUPA_MOVER_NONE }, 2);
}

static void messages_and_tables_of_promoted_memory(void)
{
	while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_SHARED, NUPA_MOVER_SHARED }, 2);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(messages_and_tables_of_relays_and_pool),
		CASE(messages_and_tables_of_system_calls),
		CASE(messages_and_tables_of_one_process),
		CASE(messages_and_tables_of_promoted_memory),
	};

#ifdef __SANITIZE_THREAD__
	printf("not under TSan: what is scribbled over orders nothing any more\n");
	return 0;
#endif
	/* Channels that carry nonsense are closed with a hint each. */
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
