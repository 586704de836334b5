/* SPDX-License-Identifier: BSD-3-Clause
 * A process that goes on while the segment is damaged: see party.h. */
#include "tests/segment/party.h"
#include "tests/support/runner.h"
#include "tests/support/end.h"
#include "tests/support/secret.h"

#include <errno.h>

uint8_t *party_region(const struct party *party)
{
	return party->pool ? party->pool : party->memory + PARTY_GUARD_BYTES;
}

void party_close(struct party *party)
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
			       party->pool, PARTY_REGION_BYTES);
	if (party->context)
		nupa_close_device(party->context);
}

bool party_open(struct party *party, struct nupa_fabric *fabric, int host, enum nupa_mover mover,
		enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .cap = { 16, PARTY_RECVS, 2, 2, 64 }, .qp_type = type };
	char why[512];

	party->fabric = fabric;
	party->context = nupa_open_host(fabric, host, mover, why, sizeof(why));
	if (!party->context)
		return false;
	if (mover == NUPA_MOVER_POOL)
		nupa_pool_alloc(fabric, (uint32_t)nupa_context_slot(party->context),
				PARTY_REGION_BYTES, &party->pool);
	party->pd = nupa_alloc_pd(party->context);
	party->cq = nupa_create_cq(party->context, 256, NULL, NULL, 0);
	CHECK(party->pd && party->cq);
	party->mr = nupa_reg_mr(party->pd, party_region(party), PARTY_REGION_BYTES,
				(uintptr_t)party_region(party), (int)end_defaults.access);
	init.send_cq = init.recv_cq = party->cq;
	party->qp = party->mr ? nupa_create_qp(party->pd, &init) : NULL;
	return party->qp && nupa_query_gid(party->context, 1, 1, &party->gid) == 0;
}

bool party_connect(struct party *party, const struct party *peer)
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

void party_post_recv(struct party *party, uint64_t random)
{
	struct ibv_sge sge = { (uintptr_t)party_region(party) + random % 1000, 40000,
			       party->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	nupa_post_recv(party->qp, &wr, &bad);
}

void party_post_send(struct party *party, const struct party *peer, uint64_t *random)
{
	static const uint32_t lengths[] = { 0, 1, 8, 32, 33, 1000, 8192, 8193, 40000 };
	uint32_t length = lengths[test_random(random) % 9];
	uint64_t r = test_random(random);
	struct ibv_sge sge = { (uintptr_t)party_region(party) + r % 1000, length, party->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = (enum ibv_wr_opcode)(r >> 20) % 7, /* WRITE to FETCH_AND_ADD */
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = (uintptr_t)party_region(peer) + (r >> 30) % 1000 * 8;
		wr.wr.atomic.rkey = peer->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)party_region(peer) + (r >> 30) % 20000;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	nupa_post_send(party->qp, &wr, &bad);
}
