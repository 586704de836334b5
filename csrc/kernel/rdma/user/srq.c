// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Shared receive queues of processes.  The engine's has one entry.
 */
#include "kernel/rdma/user/user.h"

#include <linux/slab.h>
#include <linux/uaccess.h>

static struct nupa_srq *engine_srq(const struct rdma_srq *srq)
{
	return container_of(srq->own, struct nupa_srq, ibv);
}

int user_srq_init(struct rdma_srq *srq, const struct ib_srq_attr *attr, struct ib_udata *udata)
{
	struct nupa_engine *engine = nupa_engine_of(srq->own->context);
	struct rxe_create_srq_resp answer = { .srq_num = engine_srq(srq)->srq_num };
	struct user_queue *queue;

	if (udata->outlen < sizeof(answer))
		return -EINVAL;
	srq->user = kzalloc(sizeof(*srq->user), GFP_KERNEL);
	if (!srq->user)
		return -ENOMEM;
	queue = user_queue_new(udata, attr->max_wr, user_recv_bytes(attr->max_sge), &answer.mi);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	user_rq_init(srq->user, queue, attr->max_wr, attr->max_sge, &srq->ib);
	nupa_engine_lock(engine);
	engine_srq(srq)->rq.source = &srq->user->source;
	nupa_engine_unlock(engine);
	return ib_copy_to_udata(udata, &answer, sizeof(answer));
}

void user_srq_free(struct rdma_srq *srq)
{
	if (srq->user)
		user_queue_free(srq->user->queue);
	kfree(srq->user);
}

/* Receives that wait come along, as they are: they are judged when they are taken. */
static int move_receives(struct user_rq *rq, struct user_queue *to, uint32_t max_wr)
{
	const struct user_queue *from = rq->queue;
	const uint32_t n = user_queue_waiting(from);

	if (n > max_wr || rq->limit >= max_wr)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++)
		memcpy(user_queue_entry(to, i), user_queue_entry(from, from->index + i),
		       (size_t)1 << from->element_bits);
	smp_store_release(&to->shared->producer_index, n);
	return 0;
}

static int resize(struct rdma_srq *srq, uint32_t max_wr, struct ib_udata *udata)
{
	struct nupa_engine *engine = nupa_engine_of(srq->own->context);
	struct user_rq *rq = srq->user;
	struct rxe_modify_srq_cmd command;
	struct user_queue *queue;
	struct mminfo info;
	int error;

	if (udata->inlen < sizeof(command))
		return -EINVAL;
	error = ib_copy_from_udata(&command, udata, sizeof(command));
	if (error)
		return error;
	queue = user_queue_new(udata, max_wr, user_recv_bytes(rq->max_sge), &info);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	if (copy_to_user(u64_to_user_ptr(command.mmap_info_addr), &info, sizeof(info)))
		error = -EFAULT;
	nupa_engine_lock(engine);
	if (!error)
		error = move_receives(rq, queue, max_wr);
	if (!error) {
		swap(queue, rq->queue);
		rq->max_wr = max_wr;
	}
	nupa_engine_unlock(engine);
	user_queue_free(queue);
	return error;
}

int user_srq_modify(struct rdma_srq *srq, const struct ib_srq_attr *attr, int mask,
		    struct ib_udata *udata)
{
	struct nupa_engine *engine = nupa_engine_of(srq->own->context);
	const uint32_t max_wr = mask & IB_SRQ_MAX_WR ? attr->max_wr : srq->user->max_wr;
	int error = 0;

	if (!max_wr || max_wr > NUPA_SRQ_WR_MAX ||
	    (mask & IB_SRQ_LIMIT && attr->srq_limit >= max_wr))
		return -EINVAL;
	if (mask & IB_SRQ_MAX_WR)
		error = resize(srq, max_wr, udata);
	if (error || !(mask & IB_SRQ_LIMIT))
		return error;
	nupa_engine_lock(engine);
	srq->user->limit = attr->srq_limit;
	nupa_engine_unlock(engine);
	return 0;
}

void user_srq_query(struct rdma_srq *srq, struct ib_srq_attr *attr)
{
	const struct user_rq *rq = srq->user;

	*attr = (struct ib_srq_attr){ rq->max_wr, rq->max_sge, READ_ONCE(rq->limit) };
}
