// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Queue pairs of processes: what they have besides the engine's.
 */
#include "kernel/rdma/user/user.h"

#include <linux/slab.h>

static struct nupa_qp *engine_qp(const struct rdma_qp *qp)
{
	return container_of(qp->own, struct nupa_qp, ibv);
}

static int make_sq(struct user_qp *user, const struct ib_qp_cap *cap, struct ib_udata *udata,
		   struct mminfo *info)
{
	const size_t data =
	    max_t(size_t, cap->max_send_sge * sizeof(struct rxe_sge), cap->max_inline_data);
	struct user_queue *queue;

	queue = user_queue_new(udata, cap->max_send_wr, sizeof(struct rxe_send_wqe) + data, info);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	user->sq = queue;
	user->wqe = kmalloc((size_t)1 << queue->element_bits, GFP_KERNEL);
	return user->wqe ? 0 : -ENOMEM;
}

static int make_rq(struct user_qp *user, const struct ib_qp_cap *cap, struct ib_udata *udata,
		   struct mminfo *info)
{
	struct user_queue *queue =
	    user_queue_new(udata, cap->max_recv_wr, user_recv_bytes(cap->max_recv_sge), info);

	if (IS_ERR(queue))
		return PTR_ERR(queue);
	user_rq_init(&user->rq, queue, cap->max_recv_wr, cap->max_recv_sge, NULL);
	return 0;
}

int user_qp_init(struct rdma_qp *qp, const struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct rxe_create_qp_resp answer = {};
	struct user_qp *user;
	int error;

	if (udata->outlen < sizeof(answer))
		return -EINVAL;
	user = qp->user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return -ENOMEM;
	spin_lock_init(&user->lock);
	user->cap = init->cap;
	error = make_sq(user, &init->cap, udata, &answer.sq_mi);
	if (!error && !init->srq)
		error = make_rq(user, &init->cap, udata, &answer.rq_mi);
	if (!error)
		error = ib_copy_to_udata(udata, &answer, sizeof(answer));
	if (error)
		return error;
	if (!init->srq) {
		nupa_engine_lock(engine_qp(qp)->engine);
		engine_qp(qp)->rq.source = &user->rq.source;
		nupa_engine_unlock(engine_qp(qp)->engine);
	}
	return 0;
}

void user_qp_free(struct rdma_qp *qp)
{
	struct user_qp *user = qp->user;

	if (!user)
		return;
	user_queue_free(user->sq);
	user_queue_free(user->rq.queue);
	kfree(user->wqe);
	kfree(user);
}

static void discard(struct user_queue *queue)
{
	queue->index = (queue->index + user_queue_waiting(queue)) & queue->mask;
	user_queue_release(queue, queue->index);
}

void user_qp_reset(struct rdma_qp *qp)
{
	struct user_qp *user = qp->user;

	spin_lock(&user->lock);
	nupa_engine_lock(engine_qp(qp)->engine);
	discard(user->sq);
	if (user->rq.queue)
		discard(user->rq.queue);
	nupa_engine_unlock(engine_qp(qp)->engine);
	spin_unlock(&user->lock);
}

void user_qp_release(struct rdma_qp *qp)
{
	const struct nupa_sq *sq = &engine_qp(qp)->sq;

	user_queue_release(qp->user->sq, qp->user->sq->index - (uint32_t)(sq->posted - sq->acked));
}
