// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The engine's verbs, for nupa_rdma, and its frames, for nupa_net.
 */
#include "base/reserve.h"
#include "kernel/core/core.h"
#include "engine/queue/queue.h"
#include "engine/transport/transport.h"
#include "segment/gid.h"
#include "netdev/forward.h"
#include "segment/slot/slot.h"

#include <linux/export.h>

EXPORT_SYMBOL_GPL(nupa_errno);
EXPORT_SYMBOL_GPL(nupa_kernel_halted);
EXPORT_SYMBOL_GPL(nupa_halted_post);
EXPORT_SYMBOL_GPL(nupa_halted_forget_qp);
EXPORT_SYMBOL_GPL(nupa_qp_has_faults);
EXPORT_SYMBOL_GPL(nupa_reserve_pledge);
EXPORT_SYMBOL_GPL(nupa_reserve_redeem);
EXPORT_SYMBOL_GPL(nupa_kernel_channel);
EXPORT_SYMBOL_GPL(nupa_kernel_polled);
EXPORT_SYMBOL_GPL(nupa_kernel_poll_cq);
EXPORT_SYMBOL_GPL(nupa_kernel_arm_cq);
EXPORT_SYMBOL_GPL(nupa_kernel_cq_forget);
EXPORT_SYMBOL_GPL(nupa_kernel_reg_all);
EXPORT_SYMBOL_GPL(nupa_kernel_reg_paged);
EXPORT_SYMBOL_GPL(nupa_cq_raise);
EXPORT_SYMBOL_GPL(nupa_event_raise);
EXPORT_SYMBOL_GPL(nupa_kernel_gsi_send);
EXPORT_SYMBOL_GPL(nupa_paged_add);
EXPORT_SYMBOL_GPL(nupa_paged_del);
EXPORT_SYMBOL_GPL(nupa_host_of_gid);
EXPORT_SYMBOL_GPL(nupa_host_guid_be);
EXPORT_SYMBOL_GPL(nupa_gid_is_unique_local);
EXPORT_SYMBOL_GPL(nupa_context_fabric);
EXPORT_SYMBOL_GPL(nupa_alloc_pd);
EXPORT_SYMBOL_GPL(nupa_dealloc_pd);
EXPORT_SYMBOL_GPL(nupa_alloc_fast_mr);
EXPORT_SYMBOL_GPL(nupa_dereg_mr);
EXPORT_SYMBOL_GPL(nupa_create_ah);
EXPORT_SYMBOL_GPL(nupa_destroy_ah);
EXPORT_SYMBOL_GPL(nupa_create_cq);
EXPORT_SYMBOL_GPL(nupa_destroy_cq);
EXPORT_SYMBOL_GPL(nupa_create_srq);
EXPORT_SYMBOL_GPL(nupa_modify_srq);
EXPORT_SYMBOL_GPL(nupa_query_srq);
EXPORT_SYMBOL_GPL(nupa_destroy_srq);
EXPORT_SYMBOL_GPL(nupa_post_srq_recv);
EXPORT_SYMBOL_GPL(nupa_create_qp);
EXPORT_SYMBOL_GPL(nupa_modify_qp);
EXPORT_SYMBOL_GPL(nupa_query_qp);
EXPORT_SYMBOL_GPL(nupa_destroy_qp);
EXPORT_SYMBOL_GPL(nupa_post_send);
EXPORT_SYMBOL_GPL(nupa_post_recv);

EXPORT_SYMBOL_GPL(nupa_net_open);
EXPORT_SYMBOL_GPL(nupa_kernel_net_close);
EXPORT_SYMBOL_GPL(nupa_net_port_is_up);
EXPORT_SYMBOL_GPL(nupa_net_count);
EXPORT_SYMBOL_GPL(nupa_net_lock);
EXPORT_SYMBOL_GPL(nupa_net_unlock);
EXPORT_SYMBOL_GPL(nupa_net_room);
EXPORT_SYMBOL_GPL(nupa_net_takes_coalesced);
EXPORT_SYMBOL_GPL(nupa_net_retry);
EXPORT_SYMBOL_GPL(nupa_net_forget);
EXPORT_SYMBOL_GPL(nupa_frame_valid);
EXPORT_SYMBOL_GPL(nupa_frame_route);
EXPORT_SYMBOL_GPL(nupa_forward);
