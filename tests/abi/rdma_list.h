/* SPDX-License-Identifier: BSD-3-Clause
 * Parts of the rdma_cm ABI that are compared between csrc/abi/rdma_abi.h and the system's
 * <rdma/rdma_cma.h>: sizes, fields, constants. */
#ifndef NUPA_RDMA_LIST_H
#define NUPA_RDMA_LIST_H

/* clang-format off */
#define RDMA_ABI \
	SIZE(struct ibv_sa_path_rec) \
	FIELD(struct ibv_sa_path_rec, dgid) \
	FIELD(struct ibv_sa_path_rec, sgid) \
	FIELD(struct ibv_sa_path_rec, dlid) \
	FIELD(struct ibv_sa_path_rec, slid) \
	FIELD(struct ibv_sa_path_rec, raw_traffic) \
	FIELD(struct ibv_sa_path_rec, flow_label) \
	FIELD(struct ibv_sa_path_rec, hop_limit) \
	FIELD(struct ibv_sa_path_rec, traffic_class) \
	FIELD(struct ibv_sa_path_rec, reversible) \
	FIELD(struct ibv_sa_path_rec, numb_path) \
	FIELD(struct ibv_sa_path_rec, pkey) \
	FIELD(struct ibv_sa_path_rec, sl) \
	FIELD(struct ibv_sa_path_rec, mtu_selector) \
	FIELD(struct ibv_sa_path_rec, mtu) \
	FIELD(struct ibv_sa_path_rec, rate_selector) \
	FIELD(struct ibv_sa_path_rec, rate) \
	FIELD(struct ibv_sa_path_rec, packet_life_time_selector) \
	FIELD(struct ibv_sa_path_rec, packet_life_time) \
	FIELD(struct ibv_sa_path_rec, preference) \
	SIZE(struct rdma_ib_addr) \
	FIELD(struct rdma_ib_addr, sgid) \
	FIELD(struct rdma_ib_addr, dgid) \
	FIELD(struct rdma_ib_addr, pkey) \
	SIZE(struct rdma_addr) \
	FIELD(struct rdma_addr, src_addr) \
	FIELD(struct rdma_addr, src_sin) \
	FIELD(struct rdma_addr, src_sin6) \
	FIELD(struct rdma_addr, src_storage) \
	FIELD(struct rdma_addr, dst_addr) \
	FIELD(struct rdma_addr, dst_sin) \
	FIELD(struct rdma_addr, dst_sin6) \
	FIELD(struct rdma_addr, dst_storage) \
	FIELD(struct rdma_addr, addr.ibaddr) \
	SIZE(struct rdma_route) \
	FIELD(struct rdma_route, addr) \
	FIELD(struct rdma_route, path_rec) \
	FIELD(struct rdma_route, num_paths) \
	SIZE(struct rdma_event_channel) \
	FIELD(struct rdma_event_channel, fd) \
	SIZE(struct rdma_cm_id) \
	FIELD(struct rdma_cm_id, verbs) \
	FIELD(struct rdma_cm_id, channel) \
	FIELD(struct rdma_cm_id, context) \
	FIELD(struct rdma_cm_id, qp) \
	FIELD(struct rdma_cm_id, route) \
	FIELD(struct rdma_cm_id, ps) \
	FIELD(struct rdma_cm_id, port_num) \
	FIELD(struct rdma_cm_id, event) \
	FIELD(struct rdma_cm_id, send_cq_channel) \
	FIELD(struct rdma_cm_id, send_cq) \
	FIELD(struct rdma_cm_id, recv_cq_channel) \
	FIELD(struct rdma_cm_id, recv_cq) \
	FIELD(struct rdma_cm_id, srq) \
	FIELD(struct rdma_cm_id, pd) \
	FIELD(struct rdma_cm_id, qp_type) \
	SIZE(struct rdma_conn_param) \
	FIELD(struct rdma_conn_param, private_data) \
	FIELD(struct rdma_conn_param, private_data_len) \
	FIELD(struct rdma_conn_param, responder_resources) \
	FIELD(struct rdma_conn_param, initiator_depth) \
	FIELD(struct rdma_conn_param, flow_control) \
	FIELD(struct rdma_conn_param, retry_count) \
	FIELD(struct rdma_conn_param, rnr_retry_count) \
	FIELD(struct rdma_conn_param, srq) \
	FIELD(struct rdma_conn_param, qp_num) \
	SIZE(struct rdma_ud_param) \
	FIELD(struct rdma_ud_param, private_data) \
	FIELD(struct rdma_ud_param, private_data_len) \
	FIELD(struct rdma_ud_param, ah_attr) \
	FIELD(struct rdma_ud_param, qp_num) \
	FIELD(struct rdma_ud_param, qkey) \
	SIZE(struct rdma_cm_event) \
	FIELD(struct rdma_cm_event, id) \
	FIELD(struct rdma_cm_event, listen_id) \
	FIELD(struct rdma_cm_event, event) \
	FIELD(struct rdma_cm_event, status) \
	FIELD(struct rdma_cm_event, param.conn) \
	FIELD(struct rdma_cm_event, param.ud) \
	SIZE(struct rdma_addrinfo) \
	FIELD(struct rdma_addrinfo, ai_flags) \
	FIELD(struct rdma_addrinfo, ai_family) \
	FIELD(struct rdma_addrinfo, ai_qp_type) \
	FIELD(struct rdma_addrinfo, ai_port_space) \
	FIELD(struct rdma_addrinfo, ai_src_len) \
	FIELD(struct rdma_addrinfo, ai_dst_len) \
	FIELD(struct rdma_addrinfo, ai_src_addr) \
	FIELD(struct rdma_addrinfo, ai_dst_addr) \
	FIELD(struct rdma_addrinfo, ai_src_canonname) \
	FIELD(struct rdma_addrinfo, ai_dst_canonname) \
	FIELD(struct rdma_addrinfo, ai_route_len) \
	FIELD(struct rdma_addrinfo, ai_route) \
	FIELD(struct rdma_addrinfo, ai_connect_len) \
	FIELD(struct rdma_addrinfo, ai_connect) \
	FIELD(struct rdma_addrinfo, ai_next) \
	SIZE(struct rdma_cm_join_mc_attr_ex) \
	FIELD(struct rdma_cm_join_mc_attr_ex, comp_mask) \
	FIELD(struct rdma_cm_join_mc_attr_ex, join_flags) \
	FIELD(struct rdma_cm_join_mc_attr_ex, addr) \
	CONSTANT(RDMA_CM_EVENT_ADDR_RESOLVED) \
	CONSTANT(RDMA_CM_EVENT_ADDR_ERROR) \
	CONSTANT(RDMA_CM_EVENT_ROUTE_RESOLVED) \
	CONSTANT(RDMA_CM_EVENT_ROUTE_ERROR) \
	CONSTANT(RDMA_CM_EVENT_CONNECT_REQUEST) \
	CONSTANT(RDMA_CM_EVENT_CONNECT_RESPONSE) \
	CONSTANT(RDMA_CM_EVENT_CONNECT_ERROR) \
	CONSTANT(RDMA_CM_EVENT_UNREACHABLE) \
	CONSTANT(RDMA_CM_EVENT_REJECTED) \
	CONSTANT(RDMA_CM_EVENT_ESTABLISHED) \
	CONSTANT(RDMA_CM_EVENT_DISCONNECTED) \
	CONSTANT(RDMA_CM_EVENT_DEVICE_REMOVAL) \
	CONSTANT(RDMA_CM_EVENT_MULTICAST_JOIN) \
	CONSTANT(RDMA_CM_EVENT_MULTICAST_ERROR) \
	CONSTANT(RDMA_CM_EVENT_ADDR_CHANGE) \
	CONSTANT(RDMA_CM_EVENT_TIMEWAIT_EXIT) \
	CONSTANT(RDMA_PS_IPOIB) \
	CONSTANT(RDMA_PS_TCP) \
	CONSTANT(RDMA_PS_UDP) \
	CONSTANT(RDMA_PS_IB) \
	CONSTANT(RDMA_MAX_RESP_RES) \
	CONSTANT(RDMA_MAX_INIT_DEPTH) \
	CONSTANT(RAI_PASSIVE) \
	CONSTANT(RAI_NUMERICHOST) \
	CONSTANT(RAI_NOROUTE) \
	CONSTANT(RAI_FAMILY) \
	CONSTANT(RDMA_OPTION_ID) \
	CONSTANT(RDMA_OPTION_IB) \
	CONSTANT(RDMA_OPTION_ID_TOS) \
	CONSTANT(RDMA_OPTION_ID_REUSEADDR) \
	CONSTANT(RDMA_OPTION_ID_AFONLY) \
	CONSTANT(RDMA_OPTION_ID_ACK_TIMEOUT) \
	CONSTANT(RDMA_OPTION_IB_PATH) \
	CONSTANT(RDMA_CM_JOIN_MC_ATTR_ADDRESS) \
	CONSTANT(RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) \
	CONSTANT(RDMA_CM_JOIN_MC_ATTR_RESERVED) \
	CONSTANT(RDMA_MC_JOIN_FLAG_FULLMEMBER) \
	CONSTANT(RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) \
	CONSTANT(RDMA_MC_JOIN_FLAG_RESERVED) \
	CONSTANT(RDMA_UDP_QKEY) \
	CONSTANT(RDMA_IB_IP_PS_MASK) \
	CONSTANT(RDMA_IB_IP_PORT_MASK)

/* More of v60 and v65. */
#define RDMA_ABI_V65 \
	FIELD(struct rdma_cm_event, param.arg) \
	CONSTANT(RDMA_CM_EVENT_ADDRINFO_RESOLVED) \
	CONSTANT(RDMA_CM_EVENT_ADDRINFO_ERROR) \
	CONSTANT(RDMA_CM_EVENT_USER) \
	CONSTANT(RDMA_CM_EVENT_INTERNAL) \
	CONSTANT(RAI_SA) \
	CONSTANT(RAI_DNS)
/* clang-format on */

#endif
