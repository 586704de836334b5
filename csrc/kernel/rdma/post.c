// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Posting: each request of the kernel as one of the engine's.
 */
#include "kernel/rdma/user/user.h"

static_assert(sizeof(struct ib_sge) == sizeof(struct ibv_sge));
static_assert(offsetof(struct ib_sge, length) == offsetof(struct ibv_sge, length));
static_assert(offsetof(struct ib_sge, lkey) == offsetof(struct ibv_sge, lkey));

/* QP 1 of the kernel of a host; 0: none is attached there. */
static uint32_t find_gsi(struct ib_device *device, uint32_t host)
{
	const struct nupa_fabric *fabric = nupa_context_fabric(device_of(device)->context);

	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		const struct nupa_slot *slot = &fabric->slots[i];
		const uint32_t number = nupa_load_acquire(&slot->gsi_qpn);

		if (number >> NUPA_QP_INDEX_BITS == i && nupa_load_relaxed(&slot->host) == host &&
		    NUPA_CLAIM_STATE(nupa_slot_claim(slot)) == NUPA_SLOT_LIVE)
			return number;
	}
	return 0;
}

static void fill_datagram(struct ib_qp *ib, const struct ib_ud_wr *from, struct ibv_send_wr *to)
{
	const struct rdma_ah *ah = container_of(from->ah, struct rdma_ah, ib);

	to->wr.ud.ah = ah->own;
	to->wr.ud.remote_qkey = from->remote_qkey;
	to->wr.ud.remote_qpn =
	    from->remote_qpn == GSI_QPN ? find_gsi(ib->device, ah->host) : from->remote_qpn;
}

/* 0 or -EOPNOTSUPP. */
static int translate(struct ib_qp *ib, const struct ib_send_wr *from, struct ibv_send_wr *to)
{
	memset(to, 0, sizeof(*to));
	to->wr_id = from->wr_id;
	to->sg_list = (struct ibv_sge *)from->sg_list;
	to->num_sge = from->num_sge;
	to->opcode = (enum ibv_wr_opcode)from->opcode;
	to->send_flags = from->send_flags &
			 (IB_SEND_FENCE | IB_SEND_SIGNALED | IB_SEND_SOLICITED | IB_SEND_INLINE);
	to->imm_data = (__force uint32_t)from->ex.imm_data; /* or the key to invalidate */
	if (ib->qp_type == IB_QPT_UD || ib->qp_type == IB_QPT_GSI)
		fill_datagram(ib, ud_wr(from), to);
	switch (from->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND_WITH_INV:
		return 0;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
		to->wr.rdma.remote_addr = rdma_wr(from)->remote_addr;
		to->wr.rdma.rkey = rdma_wr(from)->rkey;
		return 0;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		to->wr.atomic.remote_addr = atomic_wr(from)->remote_addr;
		to->wr.atomic.compare_add = atomic_wr(from)->compare_add;
		to->wr.atomic.swap = atomic_wr(from)->swap;
		to->wr.atomic.rkey = atomic_wr(from)->rkey;
		return 0;
	case IB_WR_LOCAL_INV:
		to->num_sge = 0;
		return 0;
	case IB_WR_REG_MR:
		to->opcode = (enum ibv_wr_opcode)NUPA_WR_FAST_REG;
		to->num_sge = 0;
		to->bind_mw.rkey = reg_wr(from)->key;
		to->bind_mw.bind_info.addr = reg_wr(from)->mr->iova;
		to->bind_mw.bind_info.length = reg_wr(from)->mr->length;
		to->bind_mw.bind_info.mw_access_flags = reg_wr(from)->access & 0xf;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

int rdma_post_send_op(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	int error = 0;

	if (rdma_is_halted()) {
		*bad = wr;
		return -EIO;
	}
	if (qp_of(ib)->user)
		return user_post_send(qp_of(ib));
	for (; wr; wr = wr->next) {
		struct ibv_send_wr own, *refused;

		error = translate(ib, wr, &own);
		if (!error)
			error = -nupa_post_send(qp_of(ib)->own, &own, &refused);
		if (error)
			break;
	}
	if (error)
		*bad = wr;
	return error;
}

int rdma_post_recv_op(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	if (rdma_is_halted()) {
		*bad = wr;
		return -EIO;
	}
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr own = rdma_recv_wr(wr), *refused;
		int error = -nupa_post_recv(qp_of(ib)->own, &own, &refused);

		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}
