/* SPDX-License-Identifier: BSD-3-Clause
 * Many peers: the descriptors of a process do not grow with them, and the death of each is told. */
#include "engine/attachment/attachment.h"
#include "tests/support/target.h"

#include <dirent.h>

#define PEERS 48u
#define DESCRIPTORS 80u /* for all of them together */

struct many {
	struct nupa_fabric *fabric;
	struct end *end;
	struct end ends[PEERS];
	struct target targets[PEERS];
};

static uint32_t descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t n = 0;

	CHECK(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* Each peer is a process, and has got a WRITE. */
static void many_open(struct many *m)
{
	struct end_options options = end_defaults;

	options.memory_bytes = 65536;
	options.timeout = 0; /* for ever: it is the death that counts */
	m->fabric = test_fabric_of(&(struct nupa_config){ .slots = PEERS + 4 });
	for (uint32_t i = 0; i < PEERS; i++)
		m->targets[i] = target_fork(m->fabric);
	m->end = end_open(m->fabric, &options);
	options.host = 1;
	for (uint32_t i = 0; i < PEERS; i++) {
		struct end *end = &m->ends[i];

		*end = *m->end;
		end->qp = end_make_qp(m->end);
		end->self.qpn = end->qp->qp_num;
		target_open(&m->targets[i], m->fabric, &options);
		target_connect(&m->targets[i], &end->self);
		end_connect(end, &m->targets[i].address);
		pattern_fill(end->memory, 4096, i);
		end_start(end, IBV_WR_RDMA_WRITE, i, 0, 4096);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
		target_check(&m->targets[i], 0, 4096, i);
	}
}

static void many_close(struct many *m)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		CHECK_EQ(nupa_destroy_qp(m->ends[i].qp), 0);
		if (m->targets[i].pid)
			target_close(&m->targets[i]);
	}
	end_close(m->end);
	nupa_fabric_put(m->fabric);
}

TEST(descriptors_do_not_grow_with_peers)
{
	struct many m;
	uint32_t before = descriptors() + PEERS; /* the targets' sockets */

	many_open(&m);
	printf("  %u descriptors for %u peers\n", descriptors() - before, PEERS);
	CHECK(descriptors() <= before + DESCRIPTORS);
	many_close(&m);
}

/* Of the first, which has descriptors; of the last, which has none; and with room again. */
TEST(the_death_of_each_is_told)
{
	static const uint32_t victims[] = { 0, PEERS - 1, PEERS - 2, 1 };
	struct many m;

	many_open(&m);
	for (uint32_t i = 0; i < sizeof(victims) / sizeof(victims[0]); i++) {
		struct end *end = &m.ends[victims[i]];

		end_start(end, IBV_WR_SEND, 1000, 0, 8); /* it has no receive */
		target_kill(&m.targets[victims[i]]);
		m.targets[victims[i]].pid = 0;
		cq_expect(end->send_cq, 1000, IBV_WC_RETRY_EXC_ERR);
	}
	for (uint32_t i = 2; i < PEERS - 2; i++) { /* the others live */
		end_start(&m.ends[i], IBV_WR_RDMA_WRITE, i, 0, 8);
		cq_expect(m.end->send_cq, i, IBV_WC_SUCCESS);
	}
	many_close(&m);
}

/* A program that spins looks at few of them in each turn (nupa_engine_turn). */
TEST(a_program_that_spins_hears_all)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	struct many m;
	struct ibv_wc wc;

	many_open(&m);
	while (!nupa_engine_looks_at_some(nupa_engine_of(m.end->context))) {
		CHECK_EQ(nupa_poll_cq(m.end->send_cq, 1, &wc), 0);
		CHECK(test_now_ns() < until_ns);
	}
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < PEERS; i++) { /* its acknowledgement has to come */
			target_post_recv(&m.targets[i], round, 0, 8);
			end_start(&m.ends[i], IBV_WR_SEND, i, 0, 8);
			cq_expect(m.end->send_cq, i, IBV_WC_SUCCESS);
			target_expect(&m.targets[i], round, IBV_WC_SUCCESS);
		}
	}
	many_close(&m);
}
