/* SPDX-License-Identifier: BSD-3-Clause
 * As many attachments as a fabric can have, and QPs in the highest of them. */
#include "engine/attachment/attachment.h"
#include "segment/layout/geometry.h"
#include "segment/layout/qpn.h"
#include "segment/segment_internal.h"
#include "tests/support/end.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__ /* each thread that starts costs it milliseconds for each that runs */
#define SLOTS (NUPA_SLOTS_FEW + 1)
#else
#define SLOTS NUPA_SLOTS_MAX
_Static_assert(SLOTS > 1000, "a thousand");
#endif
#define ATTACHMENTS (SLOTS - 1)
#define QPS 1024u

static struct nupa_fabric *large_fabric(void)
{
	const struct nupa_config config = {
		.slots = SLOTS,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.mr_entries = 1024,
		.extent_bytes = 4096,
		.pool_bytes = 65536,
	};

	return test_fabric_of(&config);
}

/* QPs beside the one that the end has: their numbers are its own, and all different. */
static void make_qps(struct end *end, struct nupa_fabric *fabric, struct ibv_qp **qps)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint32_t slot = (uint32_t)nupa_context_slot(end->context);
	static bool seen[1u << NUPA_QP_INDEX_BITS_MANY];
	struct ibv_qp_init_attr init = {
		.send_cq = end->send_cq,
		.recv_cq = end->recv_cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i + 1 < QPS; i++) {
		qps[i] = nupa_create_qp(end->pd, &init);
		CHECK(qps[i]);
		CHECK(qps[i]->qp_num < NUPA_QPN_MULTICAST);
		CHECK_EQ(nupa_qpn_slot(sb, qps[i]->qp_num), slot);
		CHECK(!seen[nupa_qpn_index(sb, qps[i]->qp_num)]);
		seen[nupa_qpn_index(sb, qps[i]->qp_num)] = true;
	}
}

static void exchange(struct end *a, struct end *b)
{
	for (uint32_t i = 0; i < 3; i++) {
		const uint32_t bytes = i ? 8 : 5000;

		pattern_fill(a->memory, bytes, i);
		end_post_recv(b, i, 0, bytes);
		end_start(a, IBV_WR_SEND, i, 0, bytes);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory, bytes, i);
	}
	end_start(b, IBV_WR_RDMA_WRITE, 9, 64, 4000);
	cq_expect(b->send_cq, 9, IBV_WC_SUCCESS);
}

TEST(a_thousand_attachments_of_which_the_last_have_a_thousand_queue_pairs)
{
	static struct nupa_engine *engines[ATTACHMENTS - 2];
	static struct ibv_qp *qps[2][QPS];
	struct nupa_fabric *fabric = large_fabric();
	char why[512] = "", expected[64];
	struct end *a, *b;

	for (uint32_t i = 0; i < ATTACHMENTS - 2; i++) {
		engines[i] = nupa_engine_attach(fabric, i % 2, why, sizeof(why));
		CHECK(engines[i]);
	}
	pair_open(fabric, &end_defaults, &a, &b);
	CHECK_EQ(nupa_context_slot(b->context), SLOTS - 1);
	CHECK(!nupa_engine_attach(fabric, 0, why, sizeof(why)));
	CHECK_EQ(errno, EUSERS);
	snprintf(expected, sizeof(expected), "all %u attachments", ATTACHMENTS);
	CHECK(strstr(why, expected));

	make_qps(a, fabric, qps[0]);
	make_qps(b, fabric, qps[1]);
	exchange(a, b);
	for (uint32_t i = 0; i + 1 < QPS; i++)
		CHECK(nupa_destroy_qp(qps[0][i]) == 0 && nupa_destroy_qp(qps[1][i]) == 0);
	end_close(a);
	end_close(b);
	for (uint32_t i = 0; i < ATTACHMENTS - 2; i++)
		nupa_engine_detach(engines[i]);
	nupa_fabric_put(fabric);
}

/* Numbers of queue pairs are 24 bits: with more slots there are fewer of each. */
TEST(more_slots_leave_fewer_queue_pairs_each)
{
	struct nupa_superblock sb = { 0 };
	struct nupa_config config = { .slots = NUPA_SLOTS_FEW, .qp_entries = NUPA_QP_MAX };
	char why[256] = "";

	CHECK_EQ(nupa_geometry_plan(&config, 2, 2, &sb, why, sizeof(why)), 0);
	config.slots = NUPA_SLOTS_FEW + 1;
	CHECK_EQ(nupa_geometry_plan(&config, 2, 2, &sb, why, sizeof(why)), -EINVAL);
	CHECK(!strcmp(why, "qp_entries is 65536: choose 1 to 16384"));
	config.qp_entries = 0;
	CHECK_EQ(nupa_geometry_plan(&config, 2, 2, &sb, why, sizeof(why)), 0);
	CHECK_EQ(sb.qp_entries, 16384);
	config.slots = NUPA_SLOTS_MAX + 1;
	CHECK_EQ(nupa_geometry_plan(&config, 2, 2, &sb, why, sizeof(why)), -EINVAL);
	CHECK(!strcmp(why, "slots is 1024: choose 2 to 1023"));
}
