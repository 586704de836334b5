// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Completion queues of processes.  The engine's has one entry, as each completion is handed on to
 * the ring that the process polls, with the engine's lock.
 */
#include "kernel/rdma/user/user.h"

#include <linux/slab.h>

/* The provider takes an entry as a struct ibv_wc, whose values are the engine's, too. */
static_assert(sizeof(struct ib_uverbs_wc) == sizeof(struct ibv_wc));

static void fill(struct ib_uverbs_wc *to, const struct nupa_cqe *from)
{
	*to = (struct ib_uverbs_wc){
		.wr_id = from->wr_id,
		.status = from->status,
		.opcode = from->opcode,
		.vendor_err = from->vendor_err,
		.byte_len = from->byte_len,
		.ex.invalidate_rkey = from->imm, /* or immediate data */
		.qp_num = from->qp_num,
		.src_qp = from->src_qp,
		.wc_flags = from->wc_flags,
		.pkey_index = from->pkey_index,
		.slid = from->slid,
		.sl = from->sl,
		.port_num = 1,
	};
}

/* IBTA 10.10.2.4: queue pairs that complete here later are in error. */
static void overrun(struct rdma_cq *cq)
{
	struct nupa_cq *own = container_of(cq->own, struct nupa_cq, ibv);
	struct ibv_async_event event = { .element.cq = cq->own, .event_type = IBV_EVENT_CQ_ERR };

	if (own->overrun)
		return;
	own->overrun = true;
	nupa_event_raise(container_of(own->ibv.context, struct nupa_context, ibv.context), &event);
}

static void add(struct rdma_cq *cq, const struct nupa_cqe *cqe)
{
	struct ib_uverbs_wc *place = user_queue_place(cq->user->queue);

	if (cqe->qp && qp_of(cqe->qp->ibv.qp_context)->user)
		user_qp_release(qp_of(cqe->qp->ibv.qp_context));
	if (!place) {
		overrun(cq);
		return;
	}
	fill(place, cqe);
	user_queue_placed(cq->user->queue);
}

static void hand_on(struct nupa_cq *own)
{
	nupa_store_relaxed(&nupa_kernel_polled, own->arm == NUPA_ARM_NONE);
	while (own->head != own->tail)
		add(cq_of(own->ibv.cq_context), &own->ring[own->head++ & own->mask]);
}

void user_cq_add(struct rdma_cq *cq, const struct nupa_cqe *cqe)
{
	struct nupa_engine *engine = nupa_engine_of(cq->own->context);
	struct nupa_cq *own = container_of(cq->own, struct nupa_cq, ibv);

	nupa_engine_lock(engine);
	add(cq, cqe);
	if (own->arm != NUPA_ARM_NONE)
		nupa_cq_raise(own);
	nupa_engine_unlock(engine);
}

int user_cq_init(struct rdma_cq *cq, uint32_t cqe, struct ib_udata *udata)
{
	struct nupa_cq *own = container_of(cq->own, struct nupa_cq, ibv);
	struct nupa_engine *engine = nupa_engine_of(cq->own->context);
	struct rxe_create_cq_resp answer = {};
	struct user_queue *queue;

	if (udata->outlen < sizeof(answer))
		return -EINVAL;
	cq->user = kzalloc(sizeof(*cq->user), GFP_KERNEL);
	if (!cq->user)
		return -ENOMEM;
	queue = user_queue_new(udata, cqe, sizeof(struct ib_uverbs_wc), &answer.mi);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	cq->user->queue = queue;
	nupa_engine_lock(engine);
	own->hand_on = hand_on;
	own->notes |= NUPA_CQ_HANDED_ON;
	nupa_engine_unlock(engine);
	return ib_copy_to_udata(udata, &answer, sizeof(answer));
}

void user_cq_free(struct rdma_cq *cq)
{
	if (cq->user)
		user_queue_free(cq->user->queue);
	kfree(cq->user);
}

/* What has not been polled comes along, as far as the process says so: 0, or EINVAL, it is more. */
static int move(struct user_queue *to, const struct user_queue *from, uint32_t room)
{
	uint32_t at = READ_ONCE(from->shared->consumer_index) & from->mask;

	if (((from->index - at) & from->mask) > room)
		return -EINVAL;
	for (; at != from->index; at = (at + 1) & from->mask) {
		memcpy(user_queue_entry(to, to->index), user_queue_entry(from, at),
		       sizeof(struct ib_uverbs_wc));
		user_queue_placed(to);
	}
	return 0;
}

int user_resize_cq_op(struct ib_cq *ib, int cqe, struct ib_udata *udata)
{
	struct rdma_cq *cq = cq_of(ib);
	struct nupa_engine *engine = nupa_engine_of(cq->own->context);
	struct rxe_resize_cq_resp answer = {};
	struct user_queue *queue;
	int error;

	if (!cq->user || !udata || udata->outlen < sizeof(answer))
		return -EOPNOTSUPP;
	if (cqe < 1 || cqe > ib->device->attrs.max_cqe)
		return -EINVAL;
	queue = user_queue_new(udata, cqe, sizeof(struct ib_uverbs_wc), &answer.mi);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	error = ib_copy_to_udata(udata, &answer, sizeof(answer));
	nupa_engine_lock(engine);
	if (!error)
		error = move(queue, cq->user->queue, cqe);
	if (!error) {
		swap(queue, cq->user->queue);
		ib->cqe = cqe;
	}
	nupa_engine_unlock(engine);
	user_queue_free(queue);
	return error;
}
