/* SPDX-License-Identifier: BSD-3-Clause
 * The state of a QP, as its peers and its program see it. */
#include "engine/transport/xrc.h"

/* Orders the program's later stores to its buffers behind this change of the QP.  A peer that has
 * fetched from them looks at the QP (nupa_responder_awaited). */
static void settle_buffers(void)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Of a receiving QP of XRC: its domain. */
static void publish_domain(const struct nupa_qp *qp)
{
	nupa_store_relaxed(&qp->entry->xrcd_dev, qp->xrc_part->xrcd->id.dev);
	nupa_store_relaxed(&qp->entry->xrcd_ino, qp->xrc_part->xrcd->id.ino);
	nupa_store_relaxed(&qp->entry->min_rnr_timer, qp->attr.min_rnr_timer);
}

/* For those that look on (segment/resource). */
static void show(struct nupa_qp *qp)
{
	struct nupa_resource_table *table = &qp->engine->resources;
	const struct nupa_resource_row row = {
		.kind = NUPA_RESOURCE_QP,
		.number = qp->ibv.qp_num,
		.context = nupa_context_number(qp->ibv.context),
		.pd = qp->ibv.pd ? qp->ibv.pd->handle : 0,
		.qp.send_cq = nupa_cq_number(qp->send_cq),
		.qp.recv_cq = nupa_cq_number(qp->recv_cq),
		.qp.srq = qp->srq ? nupa_resource_number(table, qp->srq->resource) : 0,
		.qp.rq_psn = qp->attr.rq_psn,
		.qp.sq_psn = qp->attr.sq_psn,
		.qp.dest_host = qp->type != IBV_QPT_UD && qp->dest_qpn ? qp->dest_host + 1 : 0,
		.qp.path_mig_state = qp->attr.path_mig_state,
	};

	if (qp->resource)
		nupa_resource_change(table, qp->resource, &row);
	else if (!qp->shown)
		qp->resource = nupa_resource_add(table, &row);
	qp->shown = true;
}

/* Publishes the entry (P5): peers check `state` first and last. */
void nupa_qp_publish(struct nupa_qp *qp)
{
	struct nupa_qp_entry *entry = qp->entry;

	nupa_pace_look(qp);
	nupa_qp_unsettle(qp);
	nupa_store_relaxed(&entry->state, (uint8_t)IBV_QPS_RESET);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* before any of what follows */
	nupa_store_relaxed(&entry->qpn, qp->ibv.qp_num);
	nupa_store_relaxed(&entry->type, (uint8_t)qp->ibv.qp_type);
	nupa_store_relaxed(&entry->pkey, qp->pkey);
	nupa_store_relaxed(&entry->access, qp->attr.qp_access_flags);
	nupa_store_relaxed(&entry->dest_qpn, qp->dest_qpn);
	nupa_store_relaxed(&entry->pd, qp->ibv.pd ? qp->ibv.pd->handle : 0);
	if (qp->xrc == NUPA_XRC_TARGET)
		publish_domain(qp);
	nupa_store_relaxed(&entry->qkey, qp->attr.qkey);
	nupa_store_relaxed(&entry->incarnation, qp->incarnation);
	nupa_store_release(&entry->state, qp->state);
	nupa_qp_entry_flush(qp->engine->fabric, qp->entry);
	settle_buffers();
	show(qp);
}

void nupa_qp_set_state(struct nupa_qp *qp, enum ibv_qp_state state)
{
	qp->state = (uint8_t)state;
	nupa_store_relaxed(&qp->ibv.state, state); /* programs look at it */
	nupa_qp_unsettle(qp);
	nupa_store_release(&qp->entry->state, qp->state);
	nupa_qp_entry_flush(qp->engine->fabric, qp->entry);
	settle_buffers();
}
