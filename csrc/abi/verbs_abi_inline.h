/* SPDX-License-Identifier: BSD-3-Clause
 * The verbs that have no symbol: each only calls a function that the context,
 * the QP or the CQ carries.  The tests and the C examples use them as a program
 * compiled against <infiniband/verbs.h> does. */
#ifndef NUPA_VERBS_ABI_INLINE_H
#define NUPA_VERBS_ABI_INLINE_H

#ifndef NUPA_VERBS_ABI_H
#error "include verbs_abi.h"
#endif

/* cffi: begin */
/* name, parameters, arguments: ibv_<name>(parameters) calls object-><name>(arguments). */
#define NUPA_WR_OPS(X)                                                                             \
	X(wr_start, (struct ibv_qp_ex * qp), (qp))                                                 \
	X(wr_abort, (struct ibv_qp_ex * qp), (qp))                                                 \
	X(wr_send, (struct ibv_qp_ex * qp), (qp))                                                  \
	X(wr_send_imm, (struct ibv_qp_ex * qp, uint32_t imm_data), (qp, imm_data))                 \
	X(wr_send_inv, (struct ibv_qp_ex * qp, uint32_t rkey), (qp, rkey))                         \
	X(wr_rdma_write, (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr), (qp, rkey, addr))  \
	X(wr_rdma_write_imm,                                                                       \
	  (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, uint32_t imm_data),                \
	  (qp, rkey, addr, imm_data))                                                              \
	X(wr_rdma_read, (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr), (qp, rkey, addr))   \
	X(wr_atomic_cmp_swp,                                                                       \
	  (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap),  \
	  (qp, rkey, addr, compare, swap))                                                         \
	X(wr_atomic_fetch_add,                                                                     \
	  (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, uint64_t add),                     \
	  (qp, rkey, addr, add))                                                                   \
	X(wr_atomic_write,                                                                         \
	  (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, const void *value),                \
	  (qp, rkey, addr, value))                                                                 \
	X(wr_flush,                                                                                \
	  (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, size_t length, uint8_t type,       \
	   uint8_t level),                                                                         \
	  (qp, rkey, addr, length, type, level))                                                   \
	X(wr_local_inv, (struct ibv_qp_ex * qp, uint32_t rkey), (qp, rkey))                        \
	X(wr_bind_mw,                                                                              \
	  (struct ibv_qp_ex * qp, struct ibv_mw * mw, uint32_t rkey,                               \
	   const struct ibv_mw_bind_info *info),                                                   \
	  (qp, mw, rkey, info))                                                                    \
	X(wr_set_ud_addr,                                                                          \
	  (struct ibv_qp_ex * qp, struct ibv_ah * ah, uint32_t qpn, uint32_t qkey),                \
	  (qp, ah, qpn, qkey))                                                                     \
	X(wr_set_xrc_srqn, (struct ibv_qp_ex * qp, uint32_t srqn), (qp, srqn))                     \
	X(wr_set_sge, (struct ibv_qp_ex * qp, uint32_t lkey, uint64_t addr, uint32_t length),      \
	  (qp, lkey, addr, length))                                                                \
	X(wr_set_sge_list, (struct ibv_qp_ex * qp, size_t n, const struct ibv_sge *list),          \
	  (qp, n, list))                                                                           \
	X(wr_set_inline_data, (struct ibv_qp_ex * qp, void *addr, size_t length),                  \
	  (qp, addr, length))                                                                      \
	X(wr_set_inline_data_list,                                                                 \
	  (struct ibv_qp_ex * qp, size_t n, const struct ibv_data_buf *list), (qp, n, list))

#define NUPA_WR_INLINE(name, params, args)                                                         \
	static inline void ibv_##name params                                                       \
	{                                                                                          \
		qp->name args;                                                                     \
	}
NUPA_WR_OPS(NUPA_WR_INLINE)
#undef NUPA_WR_INLINE

static inline int ibv_wr_complete(struct ibv_qp_ex *qp)
{
	return qp->wr_complete(qp);
}

/* type of the result, field */
#define NUPA_WC_READS(X)                                                                           \
	X(enum ibv_wc_opcode, opcode)                                                              \
	X(uint32_t, vendor_err)                                                                    \
	X(uint32_t, byte_len)                                                                      \
	X(uint32_t, imm_data)                                                                      \
	X(uint32_t, qp_num)                                                                        \
	X(uint32_t, src_qp)                                                                        \
	X(unsigned int, wc_flags)                                                                  \
	X(uint32_t, slid)                                                                          \
	X(uint8_t, sl)                                                                             \
	X(uint8_t, dlid_path_bits)                                                                 \
	X(uint64_t, completion_ts)                                                                 \
	X(uint64_t, completion_wallclock_ns)

#define NUPA_WC_INLINE(type, field)                                                                \
	static inline type ibv_wc_read_##field(struct ibv_cq_ex *cq)                               \
	{                                                                                          \
		return cq->read_##field(cq);                                                       \
	}
NUPA_WC_READS(NUPA_WC_INLINE)
#undef NUPA_WC_INLINE

static inline int ibv_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return cq->start_poll(cq, attr);
}

static inline int ibv_next_poll(struct ibv_cq_ex *cq)
{
	return cq->next_poll(cq);
}

static inline void ibv_end_poll(struct ibv_cq_ex *cq)
{
	cq->end_poll(cq);
}

static inline struct ibv_cq *ibv_cq_ex_to_cq(struct ibv_cq_ex *cq)
{
	return (struct ibv_cq *)(void *)cq;
}

static inline int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return cq->context->ops.poll_cq(cq, num_entries, wc);
}

static inline int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return cq->context->ops.req_notify_cq(cq, solicited_only);
}

static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return qp->context->ops.post_send(qp, wr, bad);
}

static inline int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return qp->context->ops.post_recv(qp, wr, bad);
}

static inline int ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				    struct ibv_recv_wr **bad)
{
	return srq->context->ops.post_srq_recv(srq, wr, bad);
}
/* cffi: end */

/* The rkey of a type 2 window that is bound anew: its low byte, the tag, plus one. */
static inline uint32_t ibv_inc_rkey(uint32_t rkey)
{
	return (rkey & ~UINT32_C(0xff)) | ((rkey + 1) & 0xff);
}

#endif
