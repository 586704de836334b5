/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations of csrc/librdmacm/internal.h that nupa.verbs calls beside those of rdma_abi.h: a
 * channel and an id, even without a device in the environment. */
#ifndef NUPA_RDMA_CDEF_H
#define NUPA_RDMA_CDEF_H

#include "abi/rdma_abi.h"

/* cffi: begin */
struct rdma_event_channel *rdma_channel_open(void);
int rdma_create_id_on(struct ibv_context *verbs, struct rdma_event_channel *channel,
		      struct rdma_cm_id **id, void *context, enum rdma_port_space ps,
		      enum ibv_qp_type qp_type);
/* cffi: end */

#endif
