/* SPDX-License-Identifier: BSD-3-Clause
 * Identifiers as `rdma res show cm_id` lists them: those that are bound to the device, and
 * listeners of any address. */
#include "engine/cm/internal.h"

/* enum rdma_cm_state of the kernel's include/rdma/rdma_cm.h. */
enum {
	KERNEL_CM_ADDR_RESOLVED = 2,
	KERNEL_CM_ROUTE_RESOLVED = 4,
	KERNEL_CM_CONNECT = 5,
	KERNEL_CM_DISCONNECT = 6,
	KERNEL_CM_ADDR_BOUND = 7,
	KERNEL_CM_LISTEN = 8,
};

static uint8_t kernel_state(enum cm_state state)
{
	switch (state) {
	case CM_BOUND:
		return KERNEL_CM_ADDR_BOUND;
	case CM_LISTEN:
		return KERNEL_CM_LISTEN;
	case CM_ADDR_RESOLVED:
		return KERNEL_CM_ADDR_RESOLVED;
	case CM_ROUTE_RESOLVED:
		return KERNEL_CM_ROUTE_RESOLVED;
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
	case CM_CLOSED:
		return KERNEL_CM_DISCONNECT;
	default:
		return KERNEL_CM_CONNECT;
	}
}

void cm_enter(struct nupa_cm_id *id, enum cm_state state)
{
	struct nupa_resource_table *table = &id->engine->resources;
	struct nupa_resource_row row = { .kind = NUPA_RESOURCE_CM_ID };

	id->state = state;
	if (id->remnant)
		return;
	if (state == CM_DESTROYED) {
		if (id->shown)
			nupa_resource_drop(table, id->resource, NUPA_RESOURCE_CM_ID);
		id->shown = false;
		return;
	}
	if (!id->bound && state != CM_LISTEN && !id->shown)
		return;
	row.context = id->context ? nupa_context_number(id->context) : 0;
	row.cm.family = (uint8_t)id->src.ss_family;
	cm_addr_to_wire(&id->src, row.cm.src);
	row.cm.src_port = cm_addr_port(&id->src);
	if (id->dst.ss_family) {
		cm_addr_to_wire(&id->dst, row.cm.dst);
		row.cm.dst_port = cm_addr_port(&id->dst);
	}
	row.cm.ps = (uint16_t)id->ps;
	row.cm.state = kernel_state(state);
	row.cm.qpn = id->qpn;
	row.cm.qp_type = (uint8_t)id->qp_type;
	if (id->shown)
		nupa_resource_change(table, id->resource, &row);
	else
		id->resource = nupa_resource_add(table, &row);
	id->shown = true;
}
