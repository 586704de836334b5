// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Posting: each request of the kernel as one of the engine's.
 */
#include "kernel/rdma/user/user.h"

#include <rdma/ib_mad.h>

static_assert(sizeof(struct ib_sge) == sizeof(struct ibv_sge));
static_assert(offsetof(struct ib_sge, length) == offsetof(struct ibv_sge, length));
static_assert(offsetof(struct ib_sge, lkey) == offsetof(struct ibv_sge, lkey));

/* Where a datagram of QP 1 has to go; processes take it at once, and the request then has no
 * destination and completes. */
static uint32_t send_mad(struct rdma_device *device, const struct rdma_ah *ah,
			 const struct ib_ud_wr *from)
{
	uint8_t mad[IB_MGMT_MAD_SIZE];
	uint32_t bytes = 0;

	for (int i = 0; i < from->wr.num_sge; i++) {
		const struct ib_sge *sge = &from->wr.sg_list[i];

		if (sge->length > sizeof(mad) - bytes) {
			bytes = 0;
			break;
		}
		memcpy(mad + bytes, (const void *)(uintptr_t)sge->addr, sge->length);
		bytes += sge->length;
	}
	return nupa_kernel_gsi_send(device->context, ah->host, ah->gid_index, bytes ? mad : NULL,
				    bytes);
}

static void fill_datagram(struct ib_qp *ib, const struct ib_ud_wr *from, struct ibv_send_wr *to)
{
	const struct rdma_ah *ah = container_of(from->ah, struct rdma_ah, ib);

	to->wr.ud.ah = ah->own;
	to->wr.ud.remote_qkey = from->remote_qkey;
	to->wr.ud.remote_qpn = ib->qp_type == IB_QPT_GSI ? send_mad(device_of(ib->device), ah, from)
							 : from->remote_qpn;
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

	*bad = wr;
	if (qp_of(ib)->user)
		return rdma_is_halted() ? -EIO : user_post_send(qp_of(ib));
	if (rdma_is_halted()) {
		for (; wr; wr = wr->next)
			nupa_halted_post(qp_of(ib)->own, wr->wr_id, false);
		return 0;
	}
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
		for (; wr; wr = wr->next)
			nupa_halted_post(qp_of(ib)->own, wr->wr_id, true);
		return 0;
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
