/* SPDX-License-Identifier: BSD-3-Clause
 * Functions that librdmacm calls to convert the kernel's structures (include/uapi/rdma of Linux) to
 * the ABI's and back. */
#include "abi/verbs_abi.h"

struct kernel_route {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class, reserved;
};

struct ib_uverbs_ah_attr {
	struct kernel_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num, reserved;
};

struct ib_uverbs_qp_attr {
	uint32_t qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
	struct ib_uverbs_ah_attr ah_attr, alt_ah_attr;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic;
	uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry;
	uint8_t alt_port_num, alt_timeout, reserved[5];
};
_Static_assert(sizeof(struct ib_uverbs_ah_attr) == 32, "kernel ABI");
_Static_assert(sizeof(struct ib_uverbs_qp_attr) == 144, "kernel ABI");

/* A path record: the kernel's and, with other places for the same fields, the ABI's. */
struct ib_user_path_rec {
	uint8_t dgid[16], sgid[16];
	uint16_t dlid, slid;
	uint32_t raw_traffic, flow_label, reversible, mtu;
	uint16_t pkey;
	uint8_t hop_limit, traffic_class, numb_path, sl, mtu_selector, rate_selector, rate;
	uint8_t packet_life_time_selector, packet_life_time, preference;
};
_Static_assert(sizeof(struct ib_user_path_rec) == 64, "kernel ABI");

struct ibv_sa_path_rec {
	union ibv_gid dgid, sgid;
	uint16_t dlid, slid;
	int raw_traffic;
	uint32_t flow_label;
	uint8_t hop_limit, traffic_class;
	int reversible;
	uint8_t numb_path;
	uint16_t pkey;
	uint8_t sl, mtu_selector, mtu, rate_selector, rate;
	uint8_t packet_life_time_selector, packet_life_time, preference;
};
_Static_assert(sizeof(struct ibv_sa_path_rec) == 64, "infiniband/sa.h");

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src)
{
	memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof(src->grh.dgid));
	dst->grh.flow_label = src->grh.flow_label;
	dst->grh.sgid_index = src->grh.sgid_index;
	dst->grh.hop_limit = src->grh.hop_limit;
	dst->grh.traffic_class = src->grh.traffic_class;
	dst->dlid = src->dlid;
	dst->sl = src->sl;
	dst->src_path_bits = src->src_path_bits;
	dst->static_rate = src->static_rate;
	dst->is_global = src->is_global;
	dst->port_num = src->port_num;
}

/* All but qp_state and rate_limit, which the caller sets itself. */
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src)
{
	dst->cur_qp_state = (enum ibv_qp_state)src->cur_qp_state;
	dst->path_mtu = (enum ibv_mtu)src->path_mtu;
	dst->path_mig_state = (enum ibv_mig_state)src->path_mig_state;
	dst->qkey = src->qkey;
	dst->rq_psn = src->rq_psn;
	dst->sq_psn = src->sq_psn;
	dst->dest_qp_num = src->dest_qp_num;
	dst->qp_access_flags = src->qp_access_flags;
	dst->cap = (struct ibv_qp_cap){
		.max_send_wr = src->max_send_wr,
		.max_recv_wr = src->max_recv_wr,
		.max_send_sge = src->max_send_sge,
		.max_recv_sge = src->max_recv_sge,
		.max_inline_data = src->max_inline_data,
	};
	ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
	ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
	dst->pkey_index = src->pkey_index;
	dst->alt_pkey_index = src->alt_pkey_index;
	dst->en_sqd_async_notify = src->en_sqd_async_notify;
	dst->sq_draining = src->sq_draining;
	dst->max_rd_atomic = src->max_rd_atomic;
	dst->max_dest_rd_atomic = src->max_dest_rd_atomic;
	dst->min_rnr_timer = src->min_rnr_timer;
	dst->port_num = src->port_num;
	dst->timeout = src->timeout;
	dst->retry_cnt = src->retry_cnt;
	dst->rnr_retry = src->rnr_retry;
	dst->alt_port_num = src->alt_port_num;
	dst->alt_timeout = src->alt_timeout;
}

/* The fields that have one name in both, but for the GIDs. */
/* clang-format off */
#define NUPA_PATH_FIELDS(X)                                                                        \
	X(dlid) X(slid) X(flow_label) X(hop_limit) X(traffic_class) X(numb_path) X(pkey) X(sl)     \
	X(mtu_selector) X(rate_selector) X(rate) X(packet_life_time_selector) X(packet_life_time)  \
	X(preference)
/* clang-format on */
#define NUPA_COPY(field) dst->field = src->field;

void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src)
{
	memcpy(dst->dgid.raw, src->dgid, sizeof(src->dgid));
	memcpy(dst->sgid.raw, src->sgid, sizeof(src->sgid));
	NUPA_PATH_FIELDS(NUPA_COPY)
	dst->raw_traffic = (int)src->raw_traffic;
	dst->reversible = (int)src->reversible;
	dst->mtu = (uint8_t)src->mtu;
}

void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src)
{
	memcpy(dst->dgid, src->dgid.raw, sizeof(dst->dgid));
	memcpy(dst->sgid, src->sgid.raw, sizeof(dst->sgid));
	NUPA_PATH_FIELDS(NUPA_COPY)
	dst->raw_traffic = (uint32_t)src->raw_traffic;
	dst->reversible = (uint32_t)src->reversible;
	dst->mtu = src->mtu;
}
