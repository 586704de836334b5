/* SPDX-License-Identifier: BSD-3-Clause
 * Resources of a fabric's processes, as resource.h lists them: each is there from its creation to
 * its end, with what the verbs say of it.  Nonsense in the tables harms no reader. */
#include "engine/device/device.h"
#include "segment/layout/geometry.h"
#include "segment/resource/resource.h"
#include "segment/slot/slot.h"
#include "tests/support/cm_end.h"
#include "tests/support/target.h"

#include <string.h>

#define MANY 400u /* more than the first rows */

static struct nupa_resource_info infos[1024];

static uint32_t list(struct nupa_fabric *fabric, uint32_t kind, int32_t host, uint32_t at_once)
{
	uint64_t at = 0;
	uint32_t found = 0;
	int n;

	while ((n = nupa_fabric_resources(fabric, kind, host, &at, infos + found, at_once)) > 0)
		found += (uint32_t)n;
	CHECK_EQ(n, 0);
	return found;
}

static uint32_t counted(struct nupa_fabric *fabric, uint32_t kind, int32_t host)
{
	uint32_t counts[NUPA_RESOURCE_KINDS];

	CHECK_EQ(nupa_fabric_resource_counts(fabric, host, counts), 0);
	return counts[kind];
}

static void expect(struct nupa_fabric *fabric, uint32_t kind, int32_t host, uint32_t wanted)
{
	CHECK_EQ(list(fabric, kind, host, 64), wanted);
	CHECK_EQ(list(fabric, kind, host, 1), wanted);
	CHECK_EQ(counted(fabric, kind, host), wanted);
}

TEST(objects_are_listed_from_creation_to_destruction)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_SHARED);
	struct end *a, *b;

	options.srq_wr = 8;
	pair_open(fabric, &options, &a, &b);
	for (uint32_t kind = 1; kind < NUPA_RESOURCE_KINDS; kind++) {
		const uint32_t each = kind == NUPA_RESOURCE_CM_ID ? 0
				      : kind == NUPA_RESOURCE_CQ  ? 2
								  : 1;

		expect(fabric, kind, 0, each);
		expect(fabric, kind, 1, each);
		expect(fabric, kind, -1, 2 * each);
	}
	pair_close(a, b);
	for (uint32_t kind = 1; kind < NUPA_RESOURCE_KINDS; kind++)
		expect(fabric, kind, -1, 0);
	nupa_fabric_put(fabric);
}

TEST(a_connected_qp_names_its_partner_and_what_it_uses)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct nupa_resource_info qp, info;
	struct end *a, *b;

	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(nupa_fabric_resource(fabric, NUPA_RESOURCE_QP, 0, a->self.qpn, &qp), 0);
	CHECK_EQ(qp.type, IBV_QPT_RC);
	CHECK_EQ(qp.state, IBV_QPS_RTS);
	CHECK_EQ(qp.pid, getpid());
	CHECK_EQ(qp.dest_qpn, b->self.qpn);
	CHECK_EQ(qp.dest_host, 1);
	CHECK_EQ(qp.dest_slot, nupa_context_slot(b->context));
	CHECK_EQ(qp.mover, NUPA_MOVER_RELAY);
	CHECK_EQ(qp.sq_psn, a->self.psn);
	CHECK_EQ(qp.rq_psn, b->self.psn);
	CHECK_EQ(qp.pd, a->pd->handle);
	CHECK_EQ(nupa_fabric_resource(fabric, NUPA_RESOURCE_PD, 0, qp.pd, &info), 0);
	CHECK_EQ(info.users, 2); /* QP and MR */
	CHECK_EQ(nupa_fabric_resource(fabric, NUPA_RESOURCE_CQ, 0, qp.send_cq, &info), 0);
	CHECK_EQ(info.users, 1);
	CHECK_EQ(info.entries, a->send_cq->cqe);
	CHECK_EQ(nupa_fabric_resource(fabric, NUPA_RESOURCE_CTX, 0, qp.context, &info), 0);
	CHECK_EQ(nupa_fabric_resource(fabric, NUPA_RESOURCE_QP, 1, a->self.qpn, &info), -ENOENT);
	CHECK_EQ(end_modify(a, IBV_QPS_ERR), 0);
	CHECK_EQ(nupa_fabric_resource(fabric, NUPA_RESOURCE_QP, 0, a->self.qpn, &qp), 0);
	CHECK_EQ(qp.state, IBV_QPS_ERR);
	fabric_close(fabric, a, b);
}

TEST(regions_have_size_and_place_and_windows_say_so)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_POOL);
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED };
	struct end *a, *b;

	options.in_pool = true;
	options.access |= IBV_ACCESS_MW_BIND;
	pair_open(fabric, &options, &a, &b);
	CHECK_EQ(list(fabric, NUPA_RESOURCE_MR, 0, 64), 1);
	CHECK_EQ(infos[0].key, a->mr->lkey);
	CHECK_EQ(infos[0].length, a->mr->length);
	CHECK_EQ(infos[0].iova, (uintptr_t)a->memory);
	CHECK_EQ(infos[0].place, NUPA_MR_IN_POOL);
	CHECK_EQ(infos[0].window, 0);
	mw = a->context->ops.alloc_mw(a->pd, IBV_MW_TYPE_1);
	CHECK(mw);
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = a->mr,
		.addr = (uintptr_t)a->memory,
		.length = 64,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK_EQ(a->context->ops.bind_mw(a->qp, mw, &bind), 0);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(list(fabric, NUPA_RESOURCE_MR, 0, 64), 2);
	CHECK_EQ(infos[0].window + infos[1].window, 1);
	CHECK_EQ(a->context->ops.dealloc_mw(mw), 0);
	fabric_close(fabric, a, b);
}

TEST(a_table_grows_with_its_process_and_gives_rows_out_again)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;
	struct ibv_pd *pds[MANY];

	pair_open(fabric, &end_defaults, &a, &b);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < MANY; i++)
			CHECK((pds[i] = nupa_alloc_pd(a->context)));
		expect(fabric, NUPA_RESOURCE_PD, 0, MANY + 1);
		for (uint32_t i = 0; i < MANY; i++)
			CHECK_EQ(nupa_dealloc_pd(pds[i]), 0);
		expect(fabric, NUPA_RESOURCE_PD, 0, 1);
	}
	fabric_close(fabric, a, b);
}

TEST(more_objects_than_rows_are_counted_and_work)
{
	const struct nupa_config config = { .ring_lines = TEST_RING_LINES,
					    .dma_bytes = TEST_DMA_BYTES,
					    .qp_entries = 16 };
	struct nupa_fabric *fabric = test_fabric_of(&config);
	const uint32_t rows = nupa_resource_rows(&fabric->geometry);
	struct ibv_pd *pds[MANY];
	struct end *a, *b;

	pair_open(fabric, &end_defaults, &a, &b);
	for (uint32_t i = 0; i < rows; i++)
		CHECK((pds[i] = nupa_alloc_pd(a->context)));
	CHECK_EQ(counted(fabric, NUPA_RESOURCE_PD, 0), rows + 1);
	CHECK_EQ(list(fabric, NUPA_RESOURCE_PD, 0, 64), rows - 4); /* context, CQs, QP */
	for (uint32_t i = 0; i < rows; i++)
		CHECK_EQ(nupa_dealloc_pd(pds[i]), 0);
	expect(fabric, NUPA_RESOURCE_PD, 0, 1);
	fabric_close(fabric, a, b);
}

TEST(listeners_and_both_ends_of_a_connection_are_listed)
{
	struct cm_pair pair = cm_pair_open();
	struct rdma_cm_id *listener = cm_listener(&pair.side[0], RDMA_PS_TCP, ""), *server;
	struct rdma_cm_id *client = cm_id(&pair.side[1], RDMA_PS_TCP);
	const uint8_t address[4] = { 10, 0, 0, 1 };

	expect(pair.fabric, NUPA_RESOURCE_CM_ID, 0, 1);
	CHECK_EQ(infos[0].cm_state, 8); /* LISTEN */
	CHECK_EQ(infos[0].src_port, cm_port(listener));
	CHECK_EQ(infos[0].ps, RDMA_PS_TCP);
	cm_resolve(&pair.side[1], client, "10.0.0.1", cm_port(listener));
	expect(pair.fabric, NUPA_RESOURCE_CM_ID, 1, 1);
	CHECK_EQ(infos[0].cm_state, 4); /* ROUTE_RESOLVED */
	CHECK_EQ(infos[0].qpn, 0);
	cm_connect(&pair, listener, client, &server);
	expect(pair.fabric, NUPA_RESOURCE_CM_ID, 1, 1);
	CHECK_EQ(infos[0].cm_state, 5); /* CONNECT */
	CHECK_EQ(infos[0].qpn, client->qp->qp_num);
	CHECK_EQ(infos[0].dst_port, cm_port(listener));
	CHECK(memcmp(infos[0].dst, address, sizeof(address)) == 0);
	expect(pair.fabric, NUPA_RESOURCE_CM_ID, 0, 2);
	CHECK_EQ(infos[1].qpn, server->qp->qp_num);
	cm_destroy(client);
	cm_destroy(server);
	cm_destroy(listener);
	expect(pair.fabric, NUPA_RESOURCE_CM_ID, -1, 0);
	cm_pair_close(&pair);
}

TEST(a_dead_process_has_no_resources)
{
	struct nupa_fabric *fabric = test_fabric();
	struct target b = target_fork(fabric);
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);

	options.host = 1;
	target_open(&b, fabric, &options);
	expect(fabric, NUPA_RESOURCE_QP, 1, 1);
	CHECK_EQ(infos[0].pid, b.pid);
	target_kill(&b);
	expect(fabric, NUPA_RESOURCE_QP, 1, 0);
	nupa_fabric_put(fabric);
}

TEST(what_does_not_exist_is_refused)
{
	struct nupa_fabric *fabric = test_fabric();
	uint32_t counts[NUPA_RESOURCE_KINDS];
	uint64_t at = 0, end = UINT64_MAX;

	CHECK_EQ(nupa_fabric_resources(fabric, 0, -1, &at, infos, 1), -EINVAL);
	CHECK_EQ(nupa_fabric_resources(fabric, NUPA_RESOURCE_KINDS, -1, &at, infos, 1), -EINVAL);
	CHECK_EQ(nupa_fabric_resources(fabric, NUPA_RESOURCE_QP, 2, &at, infos, 1), -EINVAL);
	CHECK_EQ(nupa_fabric_resources(fabric, NUPA_RESOURCE_QP, -2, &at, infos, 1), -EINVAL);
	CHECK_EQ(nupa_fabric_resources(fabric, NUPA_RESOURCE_QP, -1, &end, infos, 1), 0);
	CHECK_EQ(nupa_fabric_resource_counts(fabric, 2, counts), -EINVAL);
	nupa_fabric_put(fabric);
}

TEST(random_bytes_in_the_tables_harm_no_reader)
{
	struct nupa_fabric *fabric = test_fabric();
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	uint64_t state = test_seed() | 1;
	struct end *a, *b;

	pair_open(fabric, &end_defaults, &a, &b);
	for (uint32_t round = 0; round < 300; round++) {
		uint8_t *arena = nupa_fabric_arena(fabric, (uint32_t)nupa_context_slot(a->context));
		uint64_t at;

		const uint32_t random = (uint32_t)test_random(&state);

		at = map.resources_off + (random >> 8) % NUPA_PAGE_BYTES / 4 * 4;
		*(uint32_t *)(void *)(arena + at) =
		    random & 1 ? random : random % NUPA_RESOURCE_KINDS;
		for (uint32_t kind = 1; kind < NUPA_RESOURCE_KINDS; kind++) {
			uint64_t from = (uint64_t)(random % 4) << 32 | random;
			const int n = nupa_fabric_resources(fabric, kind, -1, &from, infos, 64);

			CHECK(n >= 0 && n <= 64);
			for (int i = 0; i < n; i++) {
				CHECK_EQ(infos[i].kind, kind);
				CHECK(infos[i].dest_host >= -1 && infos[i].dest_host < 2);
				CHECK(memchr(infos[i].comm, 0, sizeof(infos[i].comm)));
			}
			CHECK(counted(fabric, kind, 0) || true);
		}
	}
	fabric_close(fabric, a, b);
}
