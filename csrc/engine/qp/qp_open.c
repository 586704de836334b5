/* SPDX-License-Identifier: BSD-3-Clause
 * Handles of XRC's receiving QPs, of this process or of another (man ibv_open_qp). */
#include "engine/qp/verbs.h"

#include <errno.h>
#include <stdlib.h>

struct nupa_qp *nupa_qp_blank(void)
{
	struct nupa_qp *qp = aligned_alloc(_Alignof(struct nupa_qp), sizeof(*qp));

	return qp ? memset(qp, 0, sizeof(*qp)) : NULL;
}

/* One of ours: its own handle and those opened are alike, and it goes with the last. */
static struct nupa_qp *open_own(struct nupa_engine *engine, const struct nupa_xrcd *xrcd,
				uint32_t qpn)
{
	struct nupa_qp *real = nupa_qp_find(engine, qpn);

	if (!real || real->ibv.qp_type != IBV_QPT_XRC_RECV ||
	    !nupa_xrcd_same(&real->xrc_part->xrcd->id, &xrcd->id))
		return NULL;
	real->opens++;
	return real;
}

/* Of another process of our host: it can be looked at. */
static const struct nupa_qp_entry *find_other(struct nupa_engine *engine,
					      const struct nupa_xrcd *xrcd, uint32_t qpn)
{
	const struct nupa_qp_entry *entry = nupa_xrc_target(engine, qpn, &xrcd->id);

	return entry && nupa_qpn_slot(&engine->fabric->geometry, qpn) != engine->slot_index ? entry
											    : NULL;
}

struct ibv_qp *nupa_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed =
	    IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_qp *handle;
	struct nupa_qp_xrc *part;
	bool found;

	if ((attr->comp_mask & needed) != needed ||
	    attr->comp_mask & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT) ||
	    attr->qp_type != IBV_QPT_XRC_RECV || attr->xrcd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	handle = nupa_qp_blank();
	part = calloc(1, sizeof(*part));
	if (!handle || !part) {
		free(handle);
		free(part);
		errno = ENOMEM;
		return NULL;
	}
	handle->engine = engine;
	handle->xrc_part = part;
	handle->is_handle = true;
	handle->ibv.context = context;
	handle->ibv.qp_num = handle->ibv.handle = attr->qp_num;
	handle->ibv.qp_type = IBV_QPT_XRC_RECV;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		handle->ibv.qp_context = attr->qp_context;
	part->xrcd = container_of(attr->xrcd, struct nupa_xrcd, ibv);
	nupa_engine_lock(engine);
	part->real = open_own(engine, part->xrcd, attr->qp_num);
	part->peer_entry = part->real ? NULL : find_other(engine, part->xrcd, attr->qp_num);
	found = part->real || part->peer_entry;
	part->xrcd->users += found;
	nupa_engine_unlock(engine);
	if (!found) {
		free(part);
		free(handle);
		errno = EINVAL; /* as the kernel has it, for an unused number */
		return NULL;
	}
	return &handle->ibv;
}

/* Gives up a handle; the QP that goes with it, or NULL. */
struct nupa_qp *nupa_xrc_close_handle(struct nupa_qp *handle)
{
	struct nupa_qp *real = handle->xrc_part->real;

	handle->xrc_part->xrcd->users--;
	free(handle->xrc_part);
	free(handle);
	return real && --real->opens == 0 && real->orphan ? real : NULL;
}

/* Answers by the entry that the owner of another process's QP publishes. */
void nupa_xrc_query_handle(const struct nupa_qp *handle, struct ibv_qp_attr *attr,
			   struct ibv_qp_init_attr *init)
{
	const struct nupa_qp_entry *entry = handle->xrc_part->peer_entry;
	uint8_t state = nupa_load_acquire(&entry->state);

	if (nupa_load_relaxed(&entry->qpn) != handle->ibv.qp_num || state > IBV_QPS_ERR)
		state = IBV_QPS_ERR; /* it is gone */
	*attr = (struct ibv_qp_attr){
		.qp_state = state,
		.cur_qp_state = state,
		.dest_qp_num = nupa_load_relaxed(&entry->dest_qpn),
		.qp_access_flags = nupa_load_relaxed(&entry->access),
		.min_rnr_timer = nupa_load_relaxed(&entry->min_rnr_timer),
		.port_num = 1,
	};
	*init = (struct ibv_qp_init_attr){ .qp_context = handle->ibv.qp_context,
					   .qp_type = IBV_QPT_XRC_RECV };
}
