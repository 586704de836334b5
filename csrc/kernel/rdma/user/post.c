// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Requests that a process has put into a send queue, when it rings the doorbell.
 */
#include "kernel/rdma/user/user.h"

#define OPCODES                                                                                    \
	(1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_SEND |          \
	 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |   \
	 1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_SEND_WITH_INV)
#define FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

/* What it sends, or where READs and atomics go: 0 or EINVAL. */
static int translate_data(const struct user_qp *user, struct ibv_send_wr *to, struct ibv_sge *data)
{
	struct rxe_dma_info *from = &user->wqe->dma;

	if (to->send_flags & IBV_SEND_INLINE) {
		if (from->length > user->cap.max_inline_data)
			return -EINVAL;
		*data = (struct ibv_sge){ (uintptr_t)from->inline_data, from->length, 0 };
		to->sg_list = data;
		to->num_sge = 1;
		return 0;
	}
	if (from->num_sge > user->cap.max_send_sge)
		return -EINVAL;
	to->sg_list = (struct ibv_sge *)from->sge;
	to->num_sge = from->num_sge;
	return 0;
}

/* The copy as a request of the engine: 0 or EINVAL. */
static int translate(const struct rdma_qp *qp, struct ibv_send_wr *to, struct ibv_sge *data)
{
	const struct rxe_send_wr *from = &qp->user->wqe->wr;

	*to = (struct ibv_send_wr){
		.wr_id = from->wr_id,
		.opcode = (enum ibv_wr_opcode)from->opcode,
		.send_flags = from->send_flags & FLAGS,
		.imm_data = from->ex.invalidate_rkey, /* or immediate data */
	};
	/* Fast registrations are the kernel's. */
	if (from->opcode > IBV_WR_SEND_WITH_INV || !(OPCODES >> from->opcode & 1))
		return -EINVAL;
	if (qp->ib.qp_type == IB_QPT_UD) {
		to->wr.ud.remote_qpn = from->wr.ud.remote_qpn;
		to->wr.ud.remote_qkey = from->wr.ud.remote_qkey;
	} else if (from->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   from->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		to->wr.atomic.remote_addr = from->wr.atomic.remote_addr;
		to->wr.atomic.compare_add = from->wr.atomic.compare_add;
		to->wr.atomic.swap = from->wr.atomic.swap;
		to->wr.atomic.rkey = from->wr.atomic.rkey;
	} else {
		to->wr.rdma.remote_addr = from->wr.rdma.remote_addr;
		to->wr.rdma.rkey = from->wr.rdma.rkey;
	}
	return translate_data(qp->user, to, data);
}

/* The address handle is there until the engine has taken what it needs of it. */
static int post_datagram(struct rdma_qp *qp, struct ibv_send_wr *wr, uint32_t number)
{
	struct xarray *handles = &device_of(qp->ib.device)->handles;
	struct ibv_send_wr *refused;
	unsigned long flags;
	struct rdma_ah *ah;
	int error = -EINVAL;

	xa_lock_irqsave(handles, flags);
	ah = xa_load(handles, number);
	if (ah) {
		wr->wr.ud.ah = ah->own;
		error = -nupa_post_send(qp->own, wr, &refused);
	}
	xa_unlock_irqrestore(handles, flags);
	return error;
}

static int post(struct rdma_qp *qp)
{
	struct ibv_send_wr wr, *refused;
	struct ibv_sge data;
	int error = translate(qp, &wr, &data);

	if (error)
		return error;
	if (qp->ib.qp_type == IB_QPT_UD)
		return post_datagram(qp, &wr, qp->user->wqe->wr.wr.ud.ah_num);
	return -nupa_post_send(qp->own, &wr, &refused);
}

/* A request that the provider lets nobody post: it ends the queue pair (IBTA 10.8.2.2). */
static void refuse(struct rdma_qp *qp)
{
	const struct nupa_cqe cqe = {
		.wr_id = qp->user->wqe->wr.wr_id,
		.status = IBV_WC_LOC_QP_OP_ERR,
		.qp_num = qp->own->qp_num,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)nupa_modify_qp(qp->own, &attr, IBV_QP_STATE);
	user_cq_add(cq_of(qp->ib.send_cq), &cqe);
}

int user_post_send(struct rdma_qp *qp)
{
	struct user_qp *user = qp->user;
	struct nupa_qp *own = container_of(qp->own, struct nupa_qp, ibv);
	uint32_t left;
	int error = 0;

	spin_lock(&user->lock);
	left =
	    user_queue_waiting(user->sq); /* not what is posted meanwhile, or it might never end */
	if (READ_ONCE(own->state) < IBV_QPS_RTS)
		error = -EINVAL;
	for (; left && !error; left--) {
		memcpy(user->wqe, user_queue_entry(user->sq, user->sq->index),
		       (size_t)1 << user->sq->element_bits);
		user_queue_taken(user->sq);
		error = post(qp);
		if (error == -ENOMEM) { /* no provider goes that far */
			user->sq->index = (user->sq->index - 1) & user->sq->mask;
		} else if (error) {
			refuse(qp);
			error = 0;
		}
	}
	nupa_engine_lock(own->engine);
	user_qp_release(qp);
	nupa_engine_unlock(own->engine);
	spin_unlock(&user->lock);
	return error;
}
