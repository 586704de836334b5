/* SPDX-License-Identifier: BSD-3-Clause
 * QPs, SRQs and CQs of an id, and the transitions of a QP. */
#include "librdmacm/internal.h"

/* --- states -------------------------------------------------------------------------- */

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask)
{
	return rdma_result(nupa_cm_init_qp_attr(rdma_private_of(id)->cm, qp_attr, qp_attr_mask));
}

static int modify(struct rdma_private *id, struct ibv_qp_attr *attr, int mask)
{
	return rdma_result(ibv_modify_qp(id->id.qp, attr, mask));
}

int rdma_qp_to_rtr(struct rdma_private *id, uint8_t responder_resources)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	/* The parameters given when the QP was made may have changed since. */
	if (rdma_init_qp_attr(&id->id, &attr, &mask) || modify(id, &attr, mask))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	if (rdma_init_qp_attr(&id->id, &attr, &mask))
		return -1;
	if (responder_resources != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = responder_resources;
	return modify(id, &attr, mask);
}

int rdma_qp_to_rts(struct rdma_private *id, uint8_t initiator_depth)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int mask;

	if (rdma_init_qp_attr(&id->id, &attr, &mask))
		return -1;
	if (initiator_depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = initiator_depth;
	return modify(id, &attr, mask);
}

void rdma_qp_to_error(struct rdma_private *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (id->id.qp)
		(void)modify(id, &attr, IBV_QP_STATE);
}

static int to_init(struct rdma_private *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	if (rdma_init_qp_attr(&id->id, &attr, &mask))
		return -1;
	return rdma_result(ibv_modify_qp(qp, &attr, mask));
}

/* A QP for datagrams needs no peer: it is ready to send at once. */
static int ud_to_rts(struct rdma_private *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int error;

	if (to_init(id, qp))
		return -1;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!error)
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return rdma_result(error);
}

/* --- CQs ----------------------------------------------------------------------------- */

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->recv_cq) {
		ibv_destroy_cq(id->recv_cq);
		if (id->send_cq == id->recv_cq)
			id->send_cq = NULL;
	}
	if (id->send_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq_channel) {
		ibv_destroy_comp_channel(id->recv_cq_channel);
		if (id->send_cq_channel == id->recv_cq_channel)
			id->send_cq_channel = NULL;
	}
	if (id->send_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static struct ibv_cq *make_cq(struct rdma_cm_id *id, uint32_t entries,
			      struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return NULL;
	return ibv_create_cq(id->verbs, (int)entries, id, *channel, 0);
}

/* 0 entries: none is wanted. */
static int create_cqs(struct rdma_cm_id *id, uint32_t send_entries, uint32_t recv_entries)
{
	int error;

	if (send_entries && !id->send_cq)
		id->send_cq = make_cq(id, send_entries, &id->send_cq_channel);
	if (recv_entries && !id->recv_cq)
		id->recv_cq = make_cq(id, recv_entries, &id->recv_cq_channel);
	if ((!send_entries || id->send_cq) && (!recv_entries || id->recv_cq))
		return 0;
	error = errno;
	destroy_cqs(id);
	errno = error;
	return -1;
}

/* --- SRQs ---------------------------------------------------------------------------- */

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct rdma_private *priv = rdma_private_of(id);
	struct ibv_srq *srq;

	if (!id->verbs)
		return rdma_result(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return rdma_result(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->pd = id->pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	if (attr->srq_type == IBV_SRQT_XRC) {
		if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
			attr->xrcd = rdma_device_xrcd(priv->device);
			if (!attr->xrcd)
				return -1;
		}
		if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq) {
			if (create_cqs(id, 0, attr->attr.max_wr))
				return -1;
			attr->cq = id->recv_cq;
		}
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	}
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq) {
		int error = errno;

		if (!id->qp)
			destroy_cqs(id);
		return rdma_result(error);
	}
	if (!id->pd)
		id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd,
	};
	int ret = rdma_create_srq_ex(id, &ex);

	attr->attr = ex.attr;
	return ret;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (!id->qp)
		destroy_cqs(id);
}

/* --- QPs ----------------------------------------------------------------------------- */

static int choose_domains(struct rdma_private *id, struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->id.pd;
	} else if (attr->pd->context != id->id.verbs) {
		return EINVAL;
	}
	if (attr->qp_type == IBV_QPT_XRC_RECV && !(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)) {
		attr->xrcd = rdma_device_xrcd(id->device);
		if (!attr->xrcd)
			return errno;
		attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	}
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_private *priv = rdma_private_of(id);
	struct ibv_qp *qp;
	int error;

	if (id->qp || !id->verbs)
		return rdma_result(EINVAL);
	error = choose_domains(priv, attr);
	if (error)
		return rdma_result(error);
	if (create_cqs(id, attr->send_cq ? 0 : attr->cap.max_send_wr,
		       attr->recv_cq ? 0 : attr->cap.max_recv_wr))
		return -1;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (id->srq && !attr->srq)
		attr->srq = id->srq;
	qp = ibv_create_qp_ex(id->verbs, attr);
	if (qp && (rdma_is_ud(id->qp_type) ? ud_to_rts(priv, qp) : to_init(priv, qp))) {
		error = errno;
		ibv_destroy_qp(qp);
		qp = NULL;
		errno = error;
	}
	if (!qp) {
		error = errno;
		destroy_cqs(id);
		return rdma_result(error);
	}
	id->pd = qp->pd ? qp->pd : attr->pd;
	id->qp = qp;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = qp_init_attr->qp_context,
		.send_cq = qp_init_attr->send_cq,
		.recv_cq = qp_init_attr->recv_cq,
		.srq = qp_init_attr->srq,
		.cap = qp_init_attr->cap,
		.qp_type = qp_init_attr->qp_type,
		.sq_sig_all = qp_init_attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd ? pd : id->pd,
	};
	int ret = rdma_create_qp_ex(id, &attr);

	qp_init_attr->send_cq = attr.send_cq;
	qp_init_attr->recv_cq = attr.recv_cq;
	qp_init_attr->srq = attr.srq;
	qp_init_attr->cap = attr.cap;
	return ret;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

/* The reply has come: the QP becomes ready to send, and the other side may. */
int rdma_connection_ready(struct rdma_private *id)
{
	int error;

	if (rdma_qp_to_rtr(id, RDMA_MAX_RESP_RES) || rdma_qp_to_rts(id, RDMA_MAX_INIT_DEPTH))
		error = errno;
	else
		error = nupa_cm_ready(id->cm);
	if (!error)
		return 0;
	rdma_qp_to_error(id);
	(void)nupa_cm_reject(id->cm, false, NULL, 0); /* fails if the other side was faster */
	return rdma_result(error);
}
