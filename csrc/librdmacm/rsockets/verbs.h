/* SPDX-License-Identifier: BSD-3-Clause
 * The verbs that rsockets call beyond those of verbs_calls.h. */
#ifndef NUPA_RS_VERBS_H
#define NUPA_RS_VERBS_H

#include "abi/verbs_abi_inline.h"
#include "librdmacm/verbs_calls.h"

#ifdef NUPA_RDMACM_STATIC
#define ibv_reg_mr(pd, addr, length, access)                                                       \
	nupa_reg_mr(pd, addr, length, (uintptr_t)(addr), access)
#define ibv_dereg_mr nupa_dereg_mr
#define ibv_get_cq_event nupa_get_cq_event
#define ibv_ack_cq_events nupa_ack_cq_events
#define ibv_create_qp nupa_create_qp
#define ibv_create_ah nupa_create_ah
#define ibv_destroy_ah nupa_destroy_ah
#define ibv_create_ah_from_wc nupa_create_ah_from_wc
#else
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
int ibv_dereg_mr(struct ibv_mr *mr);
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int ibv_destroy_ah(struct ibv_ah *ah);
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num);
#endif

#endif
