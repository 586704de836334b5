/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations that nupa.verbs reads beside verbs_abi_types.h: names of the enumerations, whose
 * values are in nupa/verbs/enums; types of libc; devices; the inline functions.  The compiler
 * completes a declaration that ends in `...`.  Only cffi reads the marked part. */
#ifndef NUPA_VERBS_CDEF_H
#define NUPA_VERBS_CDEF_H

#include "engine/device/batch.h"
#include "engine/core/nupa.h"
#include "abi/verbs_abi_inline.h"

#if 0
/* cffi: begin */
enum ibv_node_type { IBV_NODE_CA, ... };
enum ibv_transport_type { IBV_TRANSPORT_IB, ... };
enum ibv_atomic_cap { IBV_ATOMIC_NONE, ... };
enum ibv_mtu { IBV_MTU_256, ... };
enum ibv_port_state { IBV_PORT_DOWN, ... };
enum ibv_event_type { IBV_EVENT_CQ_ERR, ... };
enum ibv_wc_status { IBV_WC_SUCCESS, ... };
enum ibv_wc_opcode { IBV_WC_SEND, ... };
enum ibv_srq_type { IBV_SRQT_BASIC, ... };
enum ibv_qp_type { IBV_QPT_RC, ... };
enum ibv_qp_state { IBV_QPS_RESET, ... };
enum ibv_mig_state { IBV_MIG_MIGRATED, ... };
enum ibv_wr_opcode { IBV_WR_RDMA_WRITE, ... };
enum ibv_mw_type { IBV_MW_TYPE_1, ... };
enum ibv_advise_mr_advice { IBV_ADVISE_MR_ADVICE_PREFETCH, ... };
enum ibv_counter_description { IBV_COUNTER_PACKETS, ... };
enum ibv_ops_wr_opcode { IBV_WR_TAG_ADD, ... };
enum ibv_wq_state { IBV_WQS_RESET, ... };
enum ibv_wq_type { IBV_WQT_RQ, ... };

typedef struct {
	...;
} pthread_mutex_t;
typedef struct {
	...;
} pthread_cond_t;
struct timespec {
	long tv_sec;
	long tv_nsec;
	...;
};

struct ibv_device {
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	char name[64];
	...;
};
struct ibv_context {
	struct ibv_device *device;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	...;
};

struct ibv_cq *ibv_cq_ex_to_cq(struct ibv_cq_ex *cq);
int ibv_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
int ibv_next_poll(struct ibv_cq_ex *cq);
void ibv_end_poll(struct ibv_cq_ex *cq);
enum ibv_wc_opcode ibv_wc_read_opcode(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_vendor_err(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_byte_len(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_imm_data(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_invalidated_rkey(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_qp_num(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_src_qp(struct ibv_cq_ex *cq);
unsigned int ibv_wc_read_wc_flags(struct ibv_cq_ex *cq);
uint32_t ibv_wc_read_slid(struct ibv_cq_ex *cq);
uint8_t ibv_wc_read_sl(struct ibv_cq_ex *cq);
uint8_t ibv_wc_read_dlid_path_bits(struct ibv_cq_ex *cq);
uint64_t ibv_wc_read_completion_ts(struct ibv_cq_ex *cq);
uint64_t ibv_wc_read_completion_wallclock_ns(struct ibv_cq_ex *cq);

void ibv_wr_start(struct ibv_qp_ex *qp);
int ibv_wr_complete(struct ibv_qp_ex *qp);
void ibv_wr_abort(struct ibv_qp_ex *qp);
void ibv_wr_send(struct ibv_qp_ex *qp);
void ibv_wr_send_imm(struct ibv_qp_ex *qp, uint32_t imm_data);
void ibv_wr_send_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey);
void ibv_wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
void ibv_wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
void ibv_wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			   uint32_t imm_data);
void ibv_wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			   uint64_t compare, uint64_t swap);
void ibv_wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			     uint64_t add);
void ibv_wr_local_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey);
void ibv_wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *bind_info);
void ibv_wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			 const void *atomic_wr);
void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t length,
		  uint8_t type, uint8_t level);
void ibv_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
			uint32_t remote_qkey);
void ibv_wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t remote_srqn);
void ibv_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length);
void ibv_wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list);
void ibv_wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length);
void ibv_wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf,
				 const struct ibv_data_buf *buf_list);
/* cffi: end */
#endif

#endif
