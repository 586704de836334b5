/* SPDX-License-Identifier: BSD-3-Clause
 * SENDs that the receiver fetches: from regions that it maps, from those that are shared because
 * much is sent from them, and from those that are not. */
#define _GNU_SOURCE
#include "engine/core/engine.h"
#include "engine/memory/mr.h"
#include "segment/slot/counters.h"
#include "tests/support/promoted.h"
#include "tests/support/target.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION_BYTES 65536u
#define OFTEN 16u /* times all of a region, after which it is shared (mr_late.c) */

struct pair {
	struct nupa_fabric *fabric;
	struct end *end;
	struct target target;
	uint64_t sent;
};

static bool can_share(void)
{
	return promotion_works() && sees_system_calls() && test_cma_works();
}

/* The sender's region is for local use, and the receiver is another process. */
static struct pair open_pair(void)
{
	struct end_options options = end_defaults;
	struct pair pair = { .fabric = test_fabric() };

	options.memory_bytes = REGION_BYTES;
	options.access = IBV_ACCESS_LOCAL_WRITE;
	pair.target = target_fork(pair.fabric);
	pair.end = end_open(pair.fabric, &options);
	options.host = 1;
	target_open(&pair.target, pair.fabric, &options);
	target_connect(&pair.target, &pair.end->self);
	end_connect(pair.end, &pair.target.address);
	return pair;
}

static void close_pair(struct pair *pair)
{
	end_close(pair->end);
	target_close(&pair->target);
	nupa_fabric_put(pair->fabric);
}

static struct nupa_engine *engine_of(const struct pair *pair)
{
	return nupa_engine_of(pair->end->context);
}

static struct nupa_mr *region_of(const struct pair *pair)
{
	return container_of(pair->end->mr, struct nupa_mr, ibv);
}

/* One message, with other bytes each time. */
static void send_one(struct pair *pair, uint32_t offset, uint32_t bytes)
{
	const uint64_t id = ++pair->sent;

	pattern_fill(pair->end->memory + offset, bytes, (uint32_t)id);
	target_post_recv(&pair->target, id, offset, bytes);
	end_start(pair->end, IBV_WR_SEND, id, offset, bytes);
	cq_expect(pair->end->send_cq, id, IBV_WC_SUCCESS);
	CHECK_EQ(target_expect(&pair->target, id, IBV_WC_SUCCESS).byte_len, bytes);
	target_check(&pair->target, offset, bytes, (uint32_t)id);
}

/* How the target reaches this process's memory. */
static int mover_of_target(const struct pair *pair)
{
	return nupa_fabric_mover(pair->fabric, pair->target.address.qpn / NUPA_QP_MAX,
				 (uint32_t)nupa_context_slot(pair->end->context));
}

static bool is_shared(const struct pair *pair)
{
	bool shared;

	nupa_engine_lock(engine_of(pair));
	shared = region_of(pair)->pages != NULL;
	nupa_engine_unlock(engine_of(pair));
	return shared;
}

/* Sends until the port thread has shared the region. */
static void send_until_shared(struct pair *pair, uint32_t bytes)
{
	const uint64_t end_ns = test_now_ns() + WAIT_NS;

	while (!is_shared(pair)) {
		CHECK(test_now_ns() < end_ns);
		send_one(pair, 0, bytes);
	}
}

static void send_all_sizes(struct pair *pair)
{
	static const uint32_t sizes[] = { 33,          64, 1024, 4096, 8192, 8193, REGION_BYTES - 1,
					  REGION_BYTES };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		send_one(pair, REGION_BYTES - sizes[i], sizes[i]);
}

TEST(memory_that_much_is_sent_from_is_shared_and_fetched_by_mapping)
{
	struct pair pair;

	if (!can_share())
		return;
	pair = open_pair();
	send_all_sizes(&pair);
	CHECK(!is_shared(&pair));
	CHECK_EQ(mover_of_target(&pair), NUPA_MOVER_CMA);
	send_until_shared(&pair, REGION_BYTES);
	CHECK(pair.sent >= OFTEN);
	send_all_sizes(&pair);
	CHECK_EQ(mover_of_target(&pair), NUPA_MOVER_SHARED);
	CHECK_EQ(bytes_in_memfd(), REGION_BYTES);
	CHECK_EQ(nupa_dereg_mr(pair.end->mr), 0);
	pair.end->mr = NULL;
	CHECK_EQ(bytes_in_memfd(), 0);
	close_pair(&pair);
}

/* The receiver has a mapping of pages that are not the region's any more. */
TEST(a_fork_makes_shared_memory_private_and_what_is_sent_then_is_right)
{
	struct pair pair;
	pid_t child;

	if (!can_share())
		return;
	pair = open_pair();
	send_until_shared(&pair, 2000);
	for (int i = 0; i < 3; i++) {
		send_all_sizes(&pair);
		child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(0);
		send_all_sizes(&pair);
		CHECK_EQ(waitpid(child, NULL, 0), child);
	}
	close_pair(&pair);
}

TEST(a_region_that_is_changed_is_shared_anew)
{
	struct pair pair;

	if (!can_share())
		return;
	pair = open_pair();
	send_until_shared(&pair, REGION_BYTES);
	CHECK_EQ(nupa_rereg_mr(pair.end->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			       IBV_ACCESS_LOCAL_WRITE),
		 0);
	CHECK(!is_shared(&pair));
	send_all_sizes(&pair);
	send_until_shared(&pair, REGION_BYTES);
	send_all_sizes(&pair);
	close_pair(&pair);
}

/* The port thread comes to it when the region is gone, or another one. */
TEST(a_region_that_goes_before_it_is_shared_is_left_alone)
{
	struct pair pair;
	struct nupa_engine *engine;
	uint32_t lkey;

	if (!can_share())
		return;
	pair = open_pair();
	engine = engine_of(&pair);
	lkey = pair.end->mr->lkey;
	CHECK_EQ(nupa_dereg_mr(pair.end->mr), 0);
	pair.end->mr = NULL;
	nupa_store_relaxed(&engine->late_key, lkey);
	nupa_mr_share_late(engine);
	CHECK_EQ(engine->late_key, 0);
	nupa_store_relaxed(&engine->late_key, UINT32_MAX);
	nupa_mr_share_late(engine);
	CHECK_EQ(engine->late_key, 0);
	CHECK_EQ(bytes_in_memfd(), 0);
	close_pair(&pair);
}

/* System calls that write to memory just being shared would fail. */
TEST(an_ordinary_users_memory_is_not_shared_because_much_is_sent)
{
	struct pair pair;
	struct nupa_engine *engine;

	become_nobody();
	if (!promotion_works() || !test_cma_works() || sees_system_calls())
		return;
	pair = open_pair();
	engine = engine_of(&pair);
	for (uint32_t i = 0; i < 2 * OFTEN; i++)
		send_one(&pair, 0, REGION_BYTES);
	nupa_mr_share_late(engine);
	CHECK(!is_shared(&pair));
	close_pair(&pair);
}

TEST(a_region_of_16_MiB_is_shared_and_a_larger_one_is_not)
{
	const size_t bytes = (16u << 20) + page();
	struct end_options options = end_defaults;
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &options);
	struct nupa_engine *engine = nupa_engine_of(end->context);
	uint8_t *memory = map_pages(bytes / page(), PROT_READ | PROT_WRITE);

	for (size_t over = 0; over < 2; over++) {
		const size_t length = (16u << 20) + over;
		struct ibv_mr *mr = nupa_reg_mr(end->pd, memory, length, (uintptr_t)memory, 0);
		const struct ibv_sge sge = { (uintptr_t)memory, 16u << 20, mr->lkey };

		nupa_engine_lock(engine);
		nupa_store_relaxed(&engine->late_key, 0);
		for (uint32_t i = 0; i < OFTEN; i++)
			(void)nupa_mr_sends(engine, &sge);
		CHECK_EQ(engine->late_key, over ? 0 : mr->lkey);
		nupa_store_relaxed(&engine->late_key, 0);
		nupa_engine_unlock(engine);
		CHECK_EQ(nupa_dereg_mr(mr), 0);
	}
	end_close(end);
	nupa_fabric_put(fabric);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
