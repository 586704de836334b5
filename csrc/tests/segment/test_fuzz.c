/* SPDX-License-Identifier: BSD-3-Clause
 * Random bytes in the segment, everywhere, while processes go on.  Their transfers may fail.  No
 * process crashes, hangs, or touches memory outside its region, for writing or for reading.  Memory
 * outside holds a number that must not turn up anywhere else.  NUPA_FUZZ_SECONDS is the duration;
 * the seed is printed. */
#include "tests/segment/party.h"
#include "tests/segment/scribble.h"
#include "tests/support/runner.h"
#include "tests/support/end.h"
#include "tests/support/secret.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_NS UINT64_C(3000000)
#define ATTACK_NS UINT64_C(20000000)
#define FINISH_NS UINT64_C(30000000000)
#define TABLES_EVERY 4096u /* writes: the tables are as they were at first */

/* Counts of what was asked for and of what was done. */
struct tally {
	uint64_t lives, good;
	/* READs beyond the region: all; refused; answered (which only the scribbler can do). */
	uint64_t attacks, refused, forged;
};

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
	const uint8_t *behind = memory + PARTY_GUARD_BYTES + PARTY_REGION_BYTES;

	CHECK_EQ(secret_match(secret, memory, PARTY_GUARD_BYTES), PARTY_GUARD_BYTES);
	CHECK_EQ(secret_match(secret, behind, PARTY_GUARD_BYTES), PARTY_GUARD_BYTES);
	CHECK_EQ(secret_find(secret, memory + PARTY_GUARD_BYTES, PARTY_REGION_BYTES),
		 PARTY_REGION_BYTES);
	if (pool)
		CHECK_EQ(secret_find(secret, pool, PARTY_REGION_BYTES), PARTY_REGION_BYTES);
}

/* A READ across an end of the peer's region, with the right key.  The data of a response, if any,
 * is checked with the rest of this party's region. */
static void attack(struct party *parties, uint64_t *random, struct tally *tally)
{
	struct party *party = &parties[0];
	uint32_t length = 16u << test_random(random) % 10, over = 8 + length / 4;
	uint64_t from = (uintptr_t)party_region(&parties[1]);
	struct ibv_sge sge = { (uintptr_t)party_region(party), length, party->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = PARTY_ATTACK,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .rkey = parties[1].mr->rkey },
	};
	uint64_t until_ns = test_now_ns() + ATTACK_NS;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr =
	    test_random(random) % 2 ? from - over : from + PARTY_REGION_BYTES - length + over;
	if (party->qp->qp_type != IBV_QPT_RC || nupa_post_send(party->qp, &wr, &bad))
		return;
	tally->attacks++;
	do {
		int n = nupa_poll_cq(party->cq, 1, &wc);

		(void)nupa_poll_cq(parties[1].cq, 0, NULL); /* drives its engine */
		if (n == 1 && wc.wr_id == PARTY_ATTACK) {
			tally->refused += wc.status == IBV_WC_REM_ACCESS_ERR;
			tally->forged += wc.status == IBV_WC_SUCCESS;
			return;
		}
		tally->good += n == 1 && wc.status == IBV_WC_SUCCESS;
	} while (test_now_ns() < until_ns);
}

/* One life: attach, connect, transfer all that goes, leave. */
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
			for (uint32_t i = 0; i < PARTY_RECVS; i++)
				party_post_recv(&parties[i % 2], test_random(random));
			for (int i = 0; i < 8; i++)
				party_post_send(&parties[i % 2], &parties[1 - i % 2], random);
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
		memory[i] = mmap(NULL, PARTY_REGION_BYTES + 2 * PARTY_GUARD_BYTES,
				 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(memory[i] != MAP_FAILED);
		secret_fill(&secret, memory[i], PARTY_REGION_BYTES + 2 * PARTY_GUARD_BYTES);
		memset(memory[i] + PARTY_GUARD_BYTES, PARTY_OPEN, PARTY_REGION_BYTES);
	}
	/* Both have to happen, regardless of the fuzzer and of the machine's speed. */
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

static void fuzz(struct nupa_fabric *fabric, uint64_t seed)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint8_t *tables = malloc(sb->slots_off);
	uint64_t random = seed;

	CHECK(tables);
	memcpy(tables, fabric->sb, sb->slots_off);
	for (;;) {
		uint32_t slot = 1 + (uint32_t)(test_random(&random) % (sb->n_slots - 1));
		uint32_t what = (uint32_t)(test_random(&random) % 1024);

		if (what == 0)
			scribble((uint8_t *)fabric->slots, sb->n_slots * sizeof(struct nupa_slot),
				 &random);
		else if (what == 1)
			scribble((uint8_t *)fabric->sb, sb->arenas_off, &random);
		else if (what == 2) /* a slot destroyed for good is of no use for more */
			nupa_store_release(&fabric->slots[slot].claim,
					   NUPA_CLAIM(0, test_random(&random), NUPA_SLOT_FREE));
		else if (what < 16)
			scribble_hazard(fabric, slot, &random);
		else
			scribble_in_arena(fabric, slot, &random);
		/* Something has to go well in between.  Nobody else mends the tables: a host that
		 * has become a wire's stays one. */
		if (test_random(&random) % 64 == 0)
			usleep((useconds_t)(test_random(&random) % 2000));
		if (test_random(&random) % TABLES_EVERY == 0)
			memcpy(fabric->sb, tables, sb->slots_off);
	}
}

static pid_t start(void (*run)(struct nupa_fabric *, enum nupa_mover, uint64_t, uint64_t),
		   struct nupa_fabric *fabric, enum nupa_mover mover, uint64_t seed,
		   uint64_t until_ns)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		alarm((unsigned int)((test_fuzz_ns(4) + FINISH_NS) / 1000000000));
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
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(4);
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

TEST(messages_and_tables_of_relays_and_pool)
{
	while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_RELAY, NUPA_MOVER_POOL }, 2);
}

TEST(messages_and_tables_of_system_calls)
{
	if (test_cma_works())
		while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_CMA, NUPA_MOVER_CMA }, 2);
}

TEST(messages_and_tables_of_one_process)
{
	while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_NONE, NUPA_MOVER_NONE }, 2);
}

TEST(messages_and_tables_of_promoted_memory)
{
	while_somebody_scribbles((enum nupa_mover[]){ NUPA_MOVER_SHARED, NUPA_MOVER_SHARED }, 2);
}

int main(int argc, char **argv)
{
#ifdef __SANITIZE_THREAD__
	printf("not under TSan: what is scribbled over orders nothing any more\n");
	return 0;
#endif
	/* Channels that carry nonsense are closed with a hint each. */
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
