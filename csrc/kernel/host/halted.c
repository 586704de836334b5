// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * What is left of an engine whose slot is not this kernel's any more.  Its queue pairs are in
 * error, so that their users end them as they would on an adapter that is gone.  Nothing here
 * writes to the segment: it may be another attachment's.
 */
#include "kernel/host/host.h"
#include "engine/device/device.h"
#include "engine/transport/transport.h"
#include "engine/transport/sq.h"

/* Where they would be in the slot. */
static struct nupa_hw_counters counters;
static struct nupa_qp_entry entry;

static const struct nupa_engine *halted; /* its queue pairs have ended */

static void end(struct nupa_qp *qp)
{
	qp->entry = &entry;
	qp->state = IBV_QPS_ERR;
	nupa_store_relaxed(&qp->ibv.state, IBV_QPS_ERR);
	nupa_qp_unsettle(qp);
	nupa_requester_flush(qp);
	nupa_qp_flush_rq(qp);
}

void nupa_kernel_halt(struct nupa_engine *engine)
{
	if (halted == engine || nupa_list_empty(&engine->contexts))
		return; /* or it is that of the network interface */
	halted = engine;
	counters = *engine->hw;
	engine->hw = &counters;
	engine->trace = 0;
	for (struct nupa_list *at = engine->cqs.next; at != &engine->cqs; at = at->next)
		container_of(at, struct nupa_cq, link)->notes &= NUPA_CQ_HANDED_ON;
	for (uint32_t i = 0; i < engine->fabric->geometry.qp_entries; i++)
		if (engine->qps[i])
			end(engine->qps[i]);
}

static struct nupa_engine *lock_halted(struct ibv_context *context)
{
	struct nupa_engine *engine = nupa_engine_of(context);

	nupa_engine_lock(engine);
	nupa_kernel_halt(engine);
	return engine;
}

void nupa_halted_post(struct ibv_qp *ibv, uint64_t wr_id, bool receive)
{
	struct nupa_qp *qp = container_of(ibv, struct nupa_qp, ibv);
	struct nupa_engine *engine = lock_halted(ibv->context);
	struct nupa_cq *cq = receive ? qp->recv_cq : qp->send_cq;
	struct nupa_cqe *cqe = nupa_cq_reserve(cq, qp);

	if (cqe) {
		*cqe = (struct nupa_cqe){
			.wr_id = wr_id,
			.qp = qp,
			.status = IBV_WC_WR_FLUSH_ERR,
			.opcode = receive ? IBV_WC_RECV : IBV_WC_SEND,
			.qp_num = ibv->qp_num,
		};
		nupa_cq_commit(cq, true);
	}
	nupa_engine_unlock(engine);
}

void nupa_halted_forget_qp(struct ibv_qp *ibv)
{
	struct nupa_qp *qp = container_of(ibv, struct nupa_qp, ibv);
	struct nupa_engine *engine = lock_halted(ibv->context);
	struct nupa_context *context = container_of(ibv->context, struct nupa_context, ibv.context);

	nupa_cq_purge(qp->send_cq, qp);
	nupa_cq_purge(qp->recv_cq, qp);
	nupa_event_drop(context, ibv);
	ibv->qp_context = NULL;
	nupa_engine_unlock(engine);
	nupa_event_wait_acked(context, &qp->async_pending);
}
