/* SPDX-License-Identifier: BSD-3-Clause
 * Parts of the verbs ABI that are compared between csrc/abi/verbs_abi.h and the
 * system's <infiniband/verbs.h>: sizes, fields, constants. */
#ifndef NUPA_ABI_LIST_H
#define NUPA_ABI_LIST_H

/* clang-format off */
/* In every header from rdma-core v44 on. */
#define ABI_V44 \
	SIZE(union ibv_gid) \
	FIELD(union ibv_gid, raw) \
	FIELD(union ibv_gid, global.subnet_prefix) \
	FIELD(union ibv_gid, global.interface_id) \
	SIZE(struct ibv_gid_entry) \
	FIELD(struct ibv_gid_entry, gid) \
	FIELD(struct ibv_gid_entry, gid_index) \
	FIELD(struct ibv_gid_entry, port_num) \
	FIELD(struct ibv_gid_entry, gid_type) \
	FIELD(struct ibv_gid_entry, ndev_ifindex) \
	SIZE(struct ibv_global_route) \
	FIELD(struct ibv_global_route, dgid) \
	FIELD(struct ibv_global_route, flow_label) \
	FIELD(struct ibv_global_route, sgid_index) \
	FIELD(struct ibv_global_route, hop_limit) \
	FIELD(struct ibv_global_route, traffic_class) \
	SIZE(struct ibv_grh) \
	FIELD(struct ibv_grh, version_tclass_flow) \
	FIELD(struct ibv_grh, paylen) \
	FIELD(struct ibv_grh, next_hdr) \
	FIELD(struct ibv_grh, hop_limit) \
	FIELD(struct ibv_grh, sgid) \
	FIELD(struct ibv_grh, dgid) \
	SIZE(struct ibv_ah_attr) \
	FIELD(struct ibv_ah_attr, grh) \
	FIELD(struct ibv_ah_attr, dlid) \
	FIELD(struct ibv_ah_attr, sl) \
	FIELD(struct ibv_ah_attr, src_path_bits) \
	FIELD(struct ibv_ah_attr, static_rate) \
	FIELD(struct ibv_ah_attr, is_global) \
	FIELD(struct ibv_ah_attr, port_num) \
	FIELD(struct ibv_port_attr, state) \
	FIELD(struct ibv_port_attr, max_mtu) \
	FIELD(struct ibv_port_attr, active_mtu) \
	FIELD(struct ibv_port_attr, gid_tbl_len) \
	FIELD(struct ibv_port_attr, port_cap_flags) \
	FIELD(struct ibv_port_attr, max_msg_sz) \
	FIELD(struct ibv_port_attr, bad_pkey_cntr) \
	FIELD(struct ibv_port_attr, qkey_viol_cntr) \
	FIELD(struct ibv_port_attr, pkey_tbl_len) \
	FIELD(struct ibv_port_attr, lid) \
	FIELD(struct ibv_port_attr, sm_lid) \
	FIELD(struct ibv_port_attr, lmc) \
	FIELD(struct ibv_port_attr, max_vl_num) \
	FIELD(struct ibv_port_attr, sm_sl) \
	FIELD(struct ibv_port_attr, subnet_timeout) \
	FIELD(struct ibv_port_attr, init_type_reply) \
	FIELD(struct ibv_port_attr, active_width) \
	FIELD(struct ibv_port_attr, active_speed) \
	FIELD(struct ibv_port_attr, phys_state) \
	FIELD(struct ibv_port_attr, link_layer) \
	FIELD(struct ibv_port_attr, flags) \
	FIELD(struct ibv_port_attr, port_cap_flags2) \
	SIZE(struct ibv_device_attr) \
	FIELD(struct ibv_device_attr, fw_ver) \
	FIELD(struct ibv_device_attr, node_guid) \
	FIELD(struct ibv_device_attr, sys_image_guid) \
	FIELD(struct ibv_device_attr, max_mr_size) \
	FIELD(struct ibv_device_attr, page_size_cap) \
	FIELD(struct ibv_device_attr, vendor_id) \
	FIELD(struct ibv_device_attr, vendor_part_id) \
	FIELD(struct ibv_device_attr, hw_ver) \
	FIELD(struct ibv_device_attr, max_qp) \
	FIELD(struct ibv_device_attr, max_qp_wr) \
	FIELD(struct ibv_device_attr, device_cap_flags) \
	FIELD(struct ibv_device_attr, max_sge) \
	FIELD(struct ibv_device_attr, max_sge_rd) \
	FIELD(struct ibv_device_attr, max_cq) \
	FIELD(struct ibv_device_attr, max_cqe) \
	FIELD(struct ibv_device_attr, max_mr) \
	FIELD(struct ibv_device_attr, max_pd) \
	FIELD(struct ibv_device_attr, max_qp_rd_atom) \
	FIELD(struct ibv_device_attr, max_ee_rd_atom) \
	FIELD(struct ibv_device_attr, max_res_rd_atom) \
	FIELD(struct ibv_device_attr, max_qp_init_rd_atom) \
	FIELD(struct ibv_device_attr, max_ee_init_rd_atom) \
	FIELD(struct ibv_device_attr, atomic_cap) \
	FIELD(struct ibv_device_attr, max_ee) \
	FIELD(struct ibv_device_attr, max_rdd) \
	FIELD(struct ibv_device_attr, max_mw) \
	FIELD(struct ibv_device_attr, max_raw_ipv6_qp) \
	FIELD(struct ibv_device_attr, max_raw_ethy_qp) \
	FIELD(struct ibv_device_attr, max_mcast_grp) \
	FIELD(struct ibv_device_attr, max_mcast_qp_attach) \
	FIELD(struct ibv_device_attr, max_total_mcast_qp_attach) \
	FIELD(struct ibv_device_attr, max_ah) \
	FIELD(struct ibv_device_attr, max_fmr) \
	FIELD(struct ibv_device_attr, max_map_per_fmr) \
	FIELD(struct ibv_device_attr, max_srq) \
	FIELD(struct ibv_device_attr, max_srq_wr) \
	FIELD(struct ibv_device_attr, max_srq_sge) \
	FIELD(struct ibv_device_attr, max_pkeys) \
	FIELD(struct ibv_device_attr, local_ca_ack_delay) \
	FIELD(struct ibv_device_attr, phys_port_cnt) \
	SIZE(struct ibv_query_device_ex_input) \
	FIELD(struct ibv_query_device_ex_input, comp_mask) \
	SIZE(struct ibv_odp_caps) \
	FIELD(struct ibv_odp_caps, general_caps) \
	FIELD(struct ibv_odp_caps, per_transport_caps.rc_odp_caps) \
	FIELD(struct ibv_odp_caps, per_transport_caps.uc_odp_caps) \
	FIELD(struct ibv_odp_caps, per_transport_caps.ud_odp_caps) \
	SIZE(struct ibv_tso_caps) \
	FIELD(struct ibv_tso_caps, max_tso) \
	FIELD(struct ibv_tso_caps, supported_qpts) \
	SIZE(struct ibv_rss_caps) \
	FIELD(struct ibv_rss_caps, supported_qpts) \
	FIELD(struct ibv_rss_caps, max_rwq_indirection_tables) \
	FIELD(struct ibv_rss_caps, max_rwq_indirection_table_size) \
	FIELD(struct ibv_rss_caps, rx_hash_fields_mask) \
	FIELD(struct ibv_rss_caps, rx_hash_function) \
	SIZE(struct ibv_packet_pacing_caps) \
	FIELD(struct ibv_packet_pacing_caps, qp_rate_limit_min) \
	FIELD(struct ibv_packet_pacing_caps, qp_rate_limit_max) \
	FIELD(struct ibv_packet_pacing_caps, supported_qpts) \
	SIZE(struct ibv_tm_caps) \
	FIELD(struct ibv_tm_caps, max_rndv_hdr_size) \
	FIELD(struct ibv_tm_caps, max_num_tags) \
	FIELD(struct ibv_tm_caps, flags) \
	FIELD(struct ibv_tm_caps, max_ops) \
	FIELD(struct ibv_tm_caps, max_sge) \
	SIZE(struct ibv_cq_moderation_caps) \
	FIELD(struct ibv_cq_moderation_caps, max_cq_count) \
	FIELD(struct ibv_cq_moderation_caps, max_cq_period) \
	SIZE(struct ibv_pci_atomic_caps) \
	FIELD(struct ibv_pci_atomic_caps, fetch_add) \
	FIELD(struct ibv_pci_atomic_caps, swap) \
	FIELD(struct ibv_pci_atomic_caps, compare_swap) \
	SIZE(struct ibv_device_attr_ex) \
	FIELD(struct ibv_device_attr_ex, orig_attr) \
	FIELD(struct ibv_device_attr_ex, comp_mask) \
	FIELD(struct ibv_device_attr_ex, odp_caps) \
	FIELD(struct ibv_device_attr_ex, completion_timestamp_mask) \
	FIELD(struct ibv_device_attr_ex, hca_core_clock) \
	FIELD(struct ibv_device_attr_ex, device_cap_flags_ex) \
	FIELD(struct ibv_device_attr_ex, tso_caps) \
	FIELD(struct ibv_device_attr_ex, rss_caps) \
	FIELD(struct ibv_device_attr_ex, max_wq_type_rq) \
	FIELD(struct ibv_device_attr_ex, packet_pacing_caps) \
	FIELD(struct ibv_device_attr_ex, raw_packet_caps) \
	FIELD(struct ibv_device_attr_ex, tm_caps) \
	FIELD(struct ibv_device_attr_ex, cq_mod_caps) \
	FIELD(struct ibv_device_attr_ex, max_dm_size) \
	FIELD(struct ibv_device_attr_ex, pci_atomic_caps) \
	FIELD(struct ibv_device_attr_ex, xrc_odp_caps) \
	FIELD(struct ibv_device_attr_ex, phys_port_cnt_ex) \
	SIZE(struct ibv_values_ex) \
	FIELD(struct ibv_values_ex, comp_mask) \
	FIELD(struct ibv_values_ex, raw_clock) \
	SIZE(struct ibv_pd) \
	FIELD(struct ibv_pd, context) \
	FIELD(struct ibv_pd, handle) \
	SIZE(struct ibv_td_init_attr) \
	FIELD(struct ibv_td_init_attr, comp_mask) \
	SIZE(struct ibv_td) \
	FIELD(struct ibv_td, context) \
	SIZE(struct ibv_parent_domain_init_attr) \
	FIELD(struct ibv_parent_domain_init_attr, pd) \
	FIELD(struct ibv_parent_domain_init_attr, td) \
	FIELD(struct ibv_parent_domain_init_attr, comp_mask) \
	FIELD(struct ibv_parent_domain_init_attr, alloc) \
	FIELD(struct ibv_parent_domain_init_attr, free) \
	FIELD(struct ibv_parent_domain_init_attr, pd_context) \
	SIZE(struct ibv_xrcd_init_attr) \
	FIELD(struct ibv_xrcd_init_attr, comp_mask) \
	FIELD(struct ibv_xrcd_init_attr, fd) \
	FIELD(struct ibv_xrcd_init_attr, oflags) \
	SIZE(struct ibv_xrcd) \
	FIELD(struct ibv_xrcd, context) \
	SIZE(struct ibv_mr) \
	FIELD(struct ibv_mr, context) \
	FIELD(struct ibv_mr, pd) \
	FIELD(struct ibv_mr, addr) \
	FIELD(struct ibv_mr, length) \
	FIELD(struct ibv_mr, handle) \
	FIELD(struct ibv_mr, lkey) \
	FIELD(struct ibv_mr, rkey) \
	SIZE(struct ibv_mw) \
	FIELD(struct ibv_mw, context) \
	FIELD(struct ibv_mw, pd) \
	FIELD(struct ibv_mw, rkey) \
	FIELD(struct ibv_mw, handle) \
	FIELD(struct ibv_mw, type) \
	SIZE(struct ibv_mw_bind_info) \
	FIELD(struct ibv_mw_bind_info, mr) \
	FIELD(struct ibv_mw_bind_info, addr) \
	FIELD(struct ibv_mw_bind_info, length) \
	FIELD(struct ibv_mw_bind_info, mw_access_flags) \
	SIZE(struct ibv_mw_bind) \
	FIELD(struct ibv_mw_bind, wr_id) \
	FIELD(struct ibv_mw_bind, send_flags) \
	FIELD(struct ibv_mw_bind, bind_info) \
	SIZE(struct ibv_alloc_dm_attr) \
	FIELD(struct ibv_alloc_dm_attr, length) \
	FIELD(struct ibv_alloc_dm_attr, log_align_req) \
	FIELD(struct ibv_alloc_dm_attr, comp_mask) \
	SIZE(struct ibv_dm) \
	FIELD(struct ibv_dm, context) \
	FIELD(struct ibv_dm, memcpy_to_dm) \
	FIELD(struct ibv_dm, memcpy_from_dm) \
	FIELD(struct ibv_dm, comp_mask) \
	FIELD(struct ibv_dm, handle) \
	SIZE(struct ibv_ah) \
	FIELD(struct ibv_ah, context) \
	FIELD(struct ibv_ah, pd) \
	FIELD(struct ibv_ah, handle) \
	SIZE(struct ibv_comp_channel) \
	FIELD(struct ibv_comp_channel, context) \
	FIELD(struct ibv_comp_channel, fd) \
	FIELD(struct ibv_comp_channel, refcnt) \
	SIZE(struct ibv_wc) \
	FIELD(struct ibv_wc, wr_id) \
	FIELD(struct ibv_wc, status) \
	FIELD(struct ibv_wc, opcode) \
	FIELD(struct ibv_wc, vendor_err) \
	FIELD(struct ibv_wc, byte_len) \
	FIELD(struct ibv_wc, imm_data) \
	FIELD(struct ibv_wc, invalidated_rkey) \
	FIELD(struct ibv_wc, qp_num) \
	FIELD(struct ibv_wc, src_qp) \
	FIELD(struct ibv_wc, wc_flags) \
	FIELD(struct ibv_wc, pkey_index) \
	FIELD(struct ibv_wc, slid) \
	FIELD(struct ibv_wc, sl) \
	FIELD(struct ibv_wc, dlid_path_bits) \
	SIZE(struct ibv_cq) \
	FIELD(struct ibv_cq, context) \
	FIELD(struct ibv_cq, channel) \
	FIELD(struct ibv_cq, cq_context) \
	FIELD(struct ibv_cq, handle) \
	FIELD(struct ibv_cq, cqe) \
	FIELD(struct ibv_cq, mutex) \
	FIELD(struct ibv_cq, cond) \
	FIELD(struct ibv_cq, comp_events_completed) \
	FIELD(struct ibv_cq, async_events_completed) \
	SIZE(struct ibv_poll_cq_attr) \
	FIELD(struct ibv_poll_cq_attr, comp_mask) \
	SIZE(struct ibv_wc_tm_info) \
	FIELD(struct ibv_wc_tm_info, tag) \
	FIELD(struct ibv_wc_tm_info, priv) \
	SIZE(struct ibv_cq_ex) \
	FIELD(struct ibv_cq_ex, context) \
	FIELD(struct ibv_cq_ex, channel) \
	FIELD(struct ibv_cq_ex, cq_context) \
	FIELD(struct ibv_cq_ex, handle) \
	FIELD(struct ibv_cq_ex, cqe) \
	FIELD(struct ibv_cq_ex, mutex) \
	FIELD(struct ibv_cq_ex, cond) \
	FIELD(struct ibv_cq_ex, comp_events_completed) \
	FIELD(struct ibv_cq_ex, async_events_completed) \
	FIELD(struct ibv_cq_ex, comp_mask) \
	FIELD(struct ibv_cq_ex, status) \
	FIELD(struct ibv_cq_ex, wr_id) \
	FIELD(struct ibv_cq_ex, start_poll) \
	FIELD(struct ibv_cq_ex, next_poll) \
	FIELD(struct ibv_cq_ex, end_poll) \
	FIELD(struct ibv_cq_ex, read_opcode) \
	FIELD(struct ibv_cq_ex, read_vendor_err) \
	FIELD(struct ibv_cq_ex, read_byte_len) \
	FIELD(struct ibv_cq_ex, read_imm_data) \
	FIELD(struct ibv_cq_ex, read_qp_num) \
	FIELD(struct ibv_cq_ex, read_src_qp) \
	FIELD(struct ibv_cq_ex, read_wc_flags) \
	FIELD(struct ibv_cq_ex, read_slid) \
	FIELD(struct ibv_cq_ex, read_sl) \
	FIELD(struct ibv_cq_ex, read_dlid_path_bits) \
	FIELD(struct ibv_cq_ex, read_completion_ts) \
	FIELD(struct ibv_cq_ex, read_cvlan) \
	FIELD(struct ibv_cq_ex, read_flow_tag) \
	FIELD(struct ibv_cq_ex, read_tm_info) \
	FIELD(struct ibv_cq_ex, read_completion_wallclock_ns) \
	SIZE(struct ibv_cq_init_attr_ex) \
	FIELD(struct ibv_cq_init_attr_ex, cqe) \
	FIELD(struct ibv_cq_init_attr_ex, cq_context) \
	FIELD(struct ibv_cq_init_attr_ex, channel) \
	FIELD(struct ibv_cq_init_attr_ex, comp_vector) \
	FIELD(struct ibv_cq_init_attr_ex, wc_flags) \
	FIELD(struct ibv_cq_init_attr_ex, comp_mask) \
	FIELD(struct ibv_cq_init_attr_ex, flags) \
	FIELD(struct ibv_cq_init_attr_ex, parent_domain) \
	SIZE(struct ibv_moderate_cq) \
	FIELD(struct ibv_moderate_cq, cq_count) \
	FIELD(struct ibv_moderate_cq, cq_period) \
	SIZE(struct ibv_modify_cq_attr) \
	FIELD(struct ibv_modify_cq_attr, attr_mask) \
	FIELD(struct ibv_modify_cq_attr, moderate) \
	SIZE(struct ibv_async_event) \
	FIELD(struct ibv_async_event, element.cq) \
	FIELD(struct ibv_async_event, element.qp) \
	FIELD(struct ibv_async_event, element.srq) \
	FIELD(struct ibv_async_event, element.wq) \
	FIELD(struct ibv_async_event, element.port_num) \
	FIELD(struct ibv_async_event, event_type) \
	SIZE(struct ibv_sge) \
	FIELD(struct ibv_sge, addr) \
	FIELD(struct ibv_sge, length) \
	FIELD(struct ibv_sge, lkey) \
	SIZE(struct ibv_data_buf) \
	FIELD(struct ibv_data_buf, addr) \
	FIELD(struct ibv_data_buf, length) \
	SIZE(struct ibv_recv_wr) \
	FIELD(struct ibv_recv_wr, wr_id) \
	FIELD(struct ibv_recv_wr, next) \
	FIELD(struct ibv_recv_wr, sg_list) \
	FIELD(struct ibv_recv_wr, num_sge) \
	SIZE(struct ibv_send_wr) \
	FIELD(struct ibv_send_wr, wr_id) \
	FIELD(struct ibv_send_wr, next) \
	FIELD(struct ibv_send_wr, sg_list) \
	FIELD(struct ibv_send_wr, num_sge) \
	FIELD(struct ibv_send_wr, opcode) \
	FIELD(struct ibv_send_wr, send_flags) \
	FIELD(struct ibv_send_wr, imm_data) \
	FIELD(struct ibv_send_wr, invalidate_rkey) \
	FIELD(struct ibv_send_wr, wr.rdma.remote_addr) \
	FIELD(struct ibv_send_wr, wr.rdma.rkey) \
	FIELD(struct ibv_send_wr, wr.atomic.remote_addr) \
	FIELD(struct ibv_send_wr, wr.atomic.compare_add) \
	FIELD(struct ibv_send_wr, wr.atomic.swap) \
	FIELD(struct ibv_send_wr, wr.atomic.rkey) \
	FIELD(struct ibv_send_wr, wr.ud.ah) \
	FIELD(struct ibv_send_wr, wr.ud.remote_qpn) \
	FIELD(struct ibv_send_wr, wr.ud.remote_qkey) \
	FIELD(struct ibv_send_wr, qp_type.xrc.remote_srqn) \
	FIELD(struct ibv_send_wr, bind_mw.mw) \
	FIELD(struct ibv_send_wr, bind_mw.rkey) \
	FIELD(struct ibv_send_wr, bind_mw.bind_info) \
	FIELD(struct ibv_send_wr, tso.hdr) \
	FIELD(struct ibv_send_wr, tso.hdr_sz) \
	FIELD(struct ibv_send_wr, tso.mss) \
	SIZE(struct ibv_ops_wr) \
	FIELD(struct ibv_ops_wr, wr_id) \
	FIELD(struct ibv_ops_wr, next) \
	FIELD(struct ibv_ops_wr, opcode) \
	FIELD(struct ibv_ops_wr, flags) \
	FIELD(struct ibv_ops_wr, tm.unexpected_cnt) \
	FIELD(struct ibv_ops_wr, tm.handle) \
	FIELD(struct ibv_ops_wr, tm.add.recv_wr_id) \
	FIELD(struct ibv_ops_wr, tm.add.sg_list) \
	FIELD(struct ibv_ops_wr, tm.add.num_sge) \
	FIELD(struct ibv_ops_wr, tm.add.tag) \
	FIELD(struct ibv_ops_wr, tm.add.mask) \
	SIZE(struct ibv_qp_cap) \
	FIELD(struct ibv_qp_cap, max_send_wr) \
	FIELD(struct ibv_qp_cap, max_recv_wr) \
	FIELD(struct ibv_qp_cap, max_send_sge) \
	FIELD(struct ibv_qp_cap, max_recv_sge) \
	FIELD(struct ibv_qp_cap, max_inline_data) \
	SIZE(struct ibv_qp_init_attr) \
	FIELD(struct ibv_qp_init_attr, qp_context) \
	FIELD(struct ibv_qp_init_attr, send_cq) \
	FIELD(struct ibv_qp_init_attr, recv_cq) \
	FIELD(struct ibv_qp_init_attr, srq) \
	FIELD(struct ibv_qp_init_attr, cap) \
	FIELD(struct ibv_qp_init_attr, qp_type) \
	FIELD(struct ibv_qp_init_attr, sq_sig_all) \
	SIZE(struct ibv_rx_hash_conf) \
	FIELD(struct ibv_rx_hash_conf, rx_hash_function) \
	FIELD(struct ibv_rx_hash_conf, rx_hash_key_len) \
	FIELD(struct ibv_rx_hash_conf, rx_hash_key) \
	FIELD(struct ibv_rx_hash_conf, rx_hash_fields_mask) \
	SIZE(struct ibv_qp_init_attr_ex) \
	FIELD(struct ibv_qp_init_attr_ex, qp_context) \
	FIELD(struct ibv_qp_init_attr_ex, send_cq) \
	FIELD(struct ibv_qp_init_attr_ex, recv_cq) \
	FIELD(struct ibv_qp_init_attr_ex, srq) \
	FIELD(struct ibv_qp_init_attr_ex, cap) \
	FIELD(struct ibv_qp_init_attr_ex, qp_type) \
	FIELD(struct ibv_qp_init_attr_ex, sq_sig_all) \
	FIELD(struct ibv_qp_init_attr_ex, comp_mask) \
	FIELD(struct ibv_qp_init_attr_ex, pd) \
	FIELD(struct ibv_qp_init_attr_ex, xrcd) \
	FIELD(struct ibv_qp_init_attr_ex, create_flags) \
	FIELD(struct ibv_qp_init_attr_ex, max_tso_header) \
	FIELD(struct ibv_qp_init_attr_ex, rwq_ind_tbl) \
	FIELD(struct ibv_qp_init_attr_ex, rx_hash_conf) \
	FIELD(struct ibv_qp_init_attr_ex, source_qpn) \
	FIELD(struct ibv_qp_init_attr_ex, send_ops_flags) \
	SIZE(struct ibv_qp_open_attr) \
	FIELD(struct ibv_qp_open_attr, comp_mask) \
	FIELD(struct ibv_qp_open_attr, qp_num) \
	FIELD(struct ibv_qp_open_attr, xrcd) \
	FIELD(struct ibv_qp_open_attr, qp_context) \
	FIELD(struct ibv_qp_open_attr, qp_type) \
	SIZE(struct ibv_qp_attr) \
	FIELD(struct ibv_qp_attr, qp_state) \
	FIELD(struct ibv_qp_attr, cur_qp_state) \
	FIELD(struct ibv_qp_attr, path_mtu) \
	FIELD(struct ibv_qp_attr, path_mig_state) \
	FIELD(struct ibv_qp_attr, qkey) \
	FIELD(struct ibv_qp_attr, rq_psn) \
	FIELD(struct ibv_qp_attr, sq_psn) \
	FIELD(struct ibv_qp_attr, dest_qp_num) \
	FIELD(struct ibv_qp_attr, qp_access_flags) \
	FIELD(struct ibv_qp_attr, cap) \
	FIELD(struct ibv_qp_attr, ah_attr) \
	FIELD(struct ibv_qp_attr, alt_ah_attr) \
	FIELD(struct ibv_qp_attr, pkey_index) \
	FIELD(struct ibv_qp_attr, alt_pkey_index) \
	FIELD(struct ibv_qp_attr, en_sqd_async_notify) \
	FIELD(struct ibv_qp_attr, sq_draining) \
	FIELD(struct ibv_qp_attr, max_rd_atomic) \
	FIELD(struct ibv_qp_attr, max_dest_rd_atomic) \
	FIELD(struct ibv_qp_attr, min_rnr_timer) \
	FIELD(struct ibv_qp_attr, port_num) \
	FIELD(struct ibv_qp_attr, timeout) \
	FIELD(struct ibv_qp_attr, retry_cnt) \
	FIELD(struct ibv_qp_attr, rnr_retry) \
	FIELD(struct ibv_qp_attr, alt_port_num) \
	FIELD(struct ibv_qp_attr, alt_timeout) \
	FIELD(struct ibv_qp_attr, rate_limit) \
	SIZE(struct ibv_qp_rate_limit_attr) \
	FIELD(struct ibv_qp_rate_limit_attr, rate_limit) \
	FIELD(struct ibv_qp_rate_limit_attr, max_burst_sz) \
	FIELD(struct ibv_qp_rate_limit_attr, typical_pkt_sz) \
	FIELD(struct ibv_qp_rate_limit_attr, comp_mask) \
	SIZE(struct ibv_ece) \
	FIELD(struct ibv_ece, vendor_id) \
	FIELD(struct ibv_ece, options) \
	FIELD(struct ibv_ece, comp_mask) \
	SIZE(struct ibv_qp) \
	FIELD(struct ibv_qp, context) \
	FIELD(struct ibv_qp, qp_context) \
	FIELD(struct ibv_qp, pd) \
	FIELD(struct ibv_qp, send_cq) \
	FIELD(struct ibv_qp, recv_cq) \
	FIELD(struct ibv_qp, srq) \
	FIELD(struct ibv_qp, handle) \
	FIELD(struct ibv_qp, qp_num) \
	FIELD(struct ibv_qp, state) \
	FIELD(struct ibv_qp, qp_type) \
	FIELD(struct ibv_qp, mutex) \
	FIELD(struct ibv_qp, cond) \
	FIELD(struct ibv_qp, events_completed) \
	FIELD(struct ibv_qp_ex, qp_base) \
	FIELD(struct ibv_qp_ex, comp_mask) \
	FIELD(struct ibv_qp_ex, wr_id) \
	FIELD(struct ibv_qp_ex, wr_flags) \
	FIELD(struct ibv_qp_ex, wr_atomic_cmp_swp) \
	FIELD(struct ibv_qp_ex, wr_atomic_fetch_add) \
	FIELD(struct ibv_qp_ex, wr_bind_mw) \
	FIELD(struct ibv_qp_ex, wr_local_inv) \
	FIELD(struct ibv_qp_ex, wr_rdma_read) \
	FIELD(struct ibv_qp_ex, wr_rdma_write) \
	FIELD(struct ibv_qp_ex, wr_rdma_write_imm) \
	FIELD(struct ibv_qp_ex, wr_send) \
	FIELD(struct ibv_qp_ex, wr_send_imm) \
	FIELD(struct ibv_qp_ex, wr_send_inv) \
	FIELD(struct ibv_qp_ex, wr_send_tso) \
	FIELD(struct ibv_qp_ex, wr_set_ud_addr) \
	FIELD(struct ibv_qp_ex, wr_set_xrc_srqn) \
	FIELD(struct ibv_qp_ex, wr_set_inline_data) \
	FIELD(struct ibv_qp_ex, wr_set_inline_data_list) \
	FIELD(struct ibv_qp_ex, wr_set_sge) \
	FIELD(struct ibv_qp_ex, wr_set_sge_list) \
	FIELD(struct ibv_qp_ex, wr_start) \
	FIELD(struct ibv_qp_ex, wr_complete) \
	FIELD(struct ibv_qp_ex, wr_abort) \
	FIELD(struct ibv_qp_ex, wr_atomic_write) \
	SIZE(struct ibv_srq_attr) \
	FIELD(struct ibv_srq_attr, max_wr) \
	FIELD(struct ibv_srq_attr, max_sge) \
	FIELD(struct ibv_srq_attr, srq_limit) \
	SIZE(struct ibv_srq_init_attr) \
	FIELD(struct ibv_srq_init_attr, srq_context) \
	FIELD(struct ibv_srq_init_attr, attr) \
	SIZE(struct ibv_tm_cap) \
	FIELD(struct ibv_tm_cap, max_num_tags) \
	FIELD(struct ibv_tm_cap, max_ops) \
	SIZE(struct ibv_srq_init_attr_ex) \
	FIELD(struct ibv_srq_init_attr_ex, srq_context) \
	FIELD(struct ibv_srq_init_attr_ex, attr) \
	FIELD(struct ibv_srq_init_attr_ex, comp_mask) \
	FIELD(struct ibv_srq_init_attr_ex, srq_type) \
	FIELD(struct ibv_srq_init_attr_ex, pd) \
	FIELD(struct ibv_srq_init_attr_ex, xrcd) \
	FIELD(struct ibv_srq_init_attr_ex, cq) \
	FIELD(struct ibv_srq_init_attr_ex, tm_cap) \
	SIZE(struct ibv_srq) \
	FIELD(struct ibv_srq, context) \
	FIELD(struct ibv_srq, srq_context) \
	FIELD(struct ibv_srq, pd) \
	FIELD(struct ibv_srq, handle) \
	FIELD(struct ibv_srq, mutex) \
	FIELD(struct ibv_srq, cond) \
	FIELD(struct ibv_srq, events_completed) \
	SIZE(struct ibv_wq_init_attr) \
	FIELD(struct ibv_wq_init_attr, wq_context) \
	FIELD(struct ibv_wq_init_attr, wq_type) \
	FIELD(struct ibv_wq_init_attr, max_wr) \
	FIELD(struct ibv_wq_init_attr, max_sge) \
	FIELD(struct ibv_wq_init_attr, pd) \
	FIELD(struct ibv_wq_init_attr, cq) \
	FIELD(struct ibv_wq_init_attr, comp_mask) \
	FIELD(struct ibv_wq_init_attr, create_flags) \
	SIZE(struct ibv_wq_attr) \
	FIELD(struct ibv_wq_attr, attr_mask) \
	FIELD(struct ibv_wq_attr, wq_state) \
	FIELD(struct ibv_wq_attr, curr_wq_state) \
	FIELD(struct ibv_wq_attr, flags) \
	FIELD(struct ibv_wq_attr, flags_mask) \
	SIZE(struct ibv_wq) \
	FIELD(struct ibv_wq, context) \
	FIELD(struct ibv_wq, wq_context) \
	FIELD(struct ibv_wq, pd) \
	FIELD(struct ibv_wq, cq) \
	FIELD(struct ibv_wq, wq_num) \
	FIELD(struct ibv_wq, handle) \
	FIELD(struct ibv_wq, state) \
	FIELD(struct ibv_wq, wq_type) \
	FIELD(struct ibv_wq, post_recv) \
	FIELD(struct ibv_wq, mutex) \
	FIELD(struct ibv_wq, cond) \
	FIELD(struct ibv_wq, events_completed) \
	FIELD(struct ibv_wq, comp_mask) \
	SIZE(struct ibv_rwq_ind_table_init_attr) \
	FIELD(struct ibv_rwq_ind_table_init_attr, log_ind_tbl_size) \
	FIELD(struct ibv_rwq_ind_table_init_attr, ind_tbl) \
	FIELD(struct ibv_rwq_ind_table_init_attr, comp_mask) \
	SIZE(struct ibv_rwq_ind_table) \
	FIELD(struct ibv_rwq_ind_table, context) \
	FIELD(struct ibv_rwq_ind_table, ind_tbl_handle) \
	FIELD(struct ibv_rwq_ind_table, ind_tbl_num) \
	FIELD(struct ibv_rwq_ind_table, comp_mask) \
	SIZE(struct ibv_flow) \
	FIELD(struct ibv_flow, comp_mask) \
	FIELD(struct ibv_flow, context) \
	FIELD(struct ibv_flow, handle) \
	SIZE(struct ibv_flow_action) \
	FIELD(struct ibv_flow_action, context) \
	SIZE(struct ibv_flow_attr) \
	FIELD(struct ibv_flow_attr, comp_mask) \
	FIELD(struct ibv_flow_attr, type) \
	FIELD(struct ibv_flow_attr, size) \
	FIELD(struct ibv_flow_attr, priority) \
	FIELD(struct ibv_flow_attr, num_of_specs) \
	FIELD(struct ibv_flow_attr, port) \
	FIELD(struct ibv_flow_attr, flags) \
	SIZE(struct ibv_flow_eth_filter) \
	FIELD(struct ibv_flow_eth_filter, dst_mac) \
	FIELD(struct ibv_flow_eth_filter, src_mac) \
	FIELD(struct ibv_flow_eth_filter, ether_type) \
	FIELD(struct ibv_flow_eth_filter, vlan_tag) \
	SIZE(struct ibv_flow_spec_eth) \
	FIELD(struct ibv_flow_spec_eth, type) \
	FIELD(struct ibv_flow_spec_eth, size) \
	FIELD(struct ibv_flow_spec_eth, val) \
	FIELD(struct ibv_flow_spec_eth, mask) \
	SIZE(struct ibv_flow_ipv4_ext_filter) \
	FIELD(struct ibv_flow_ipv4_ext_filter, src_ip) \
	FIELD(struct ibv_flow_ipv4_ext_filter, dst_ip) \
	FIELD(struct ibv_flow_ipv4_ext_filter, proto) \
	FIELD(struct ibv_flow_ipv4_ext_filter, tos) \
	FIELD(struct ibv_flow_ipv4_ext_filter, ttl) \
	FIELD(struct ibv_flow_ipv4_ext_filter, flags) \
	SIZE(struct ibv_flow_spec_ipv4_ext) \
	FIELD(struct ibv_flow_spec_ipv4_ext, type) \
	FIELD(struct ibv_flow_spec_ipv4_ext, size) \
	FIELD(struct ibv_flow_spec_ipv4_ext, val) \
	FIELD(struct ibv_flow_spec_ipv4_ext, mask) \
	SIZE(struct ibv_flow_ipv6_filter) \
	FIELD(struct ibv_flow_ipv6_filter, src_ip) \
	FIELD(struct ibv_flow_ipv6_filter, dst_ip) \
	FIELD(struct ibv_flow_ipv6_filter, flow_label) \
	FIELD(struct ibv_flow_ipv6_filter, next_hdr) \
	FIELD(struct ibv_flow_ipv6_filter, traffic_class) \
	FIELD(struct ibv_flow_ipv6_filter, hop_limit) \
	SIZE(struct ibv_flow_spec_ipv6) \
	FIELD(struct ibv_flow_spec_ipv6, type) \
	FIELD(struct ibv_flow_spec_ipv6, size) \
	FIELD(struct ibv_flow_spec_ipv6, val) \
	FIELD(struct ibv_flow_spec_ipv6, mask) \
	SIZE(struct ibv_flow_tcp_udp_filter) \
	FIELD(struct ibv_flow_tcp_udp_filter, dst_port) \
	FIELD(struct ibv_flow_tcp_udp_filter, src_port) \
	SIZE(struct ibv_flow_spec_tcp_udp) \
	FIELD(struct ibv_flow_spec_tcp_udp, type) \
	FIELD(struct ibv_flow_spec_tcp_udp, size) \
	FIELD(struct ibv_flow_spec_tcp_udp, val) \
	FIELD(struct ibv_flow_spec_tcp_udp, mask) \
	SIZE(struct ibv_counters_init_attr) \
	FIELD(struct ibv_counters_init_attr, comp_mask) \
	SIZE(struct ibv_counters) \
	FIELD(struct ibv_counters, context) \
	SIZE(struct ibv_counter_attach_attr) \
	FIELD(struct ibv_counter_attach_attr, counter_desc) \
	FIELD(struct ibv_counter_attach_attr, index) \
	FIELD(struct ibv_counter_attach_attr, comp_mask) \
	SIZE(struct _ibv_device_ops) \
	FIELD(struct _ibv_device_ops, _dummy1) \
	FIELD(struct _ibv_device_ops, _dummy2) \
	SIZE(struct ibv_device) \
	FIELD(struct ibv_device, _ops) \
	FIELD(struct ibv_device, node_type) \
	FIELD(struct ibv_device, transport_type) \
	FIELD(struct ibv_device, name) \
	FIELD(struct ibv_device, dev_name) \
	FIELD(struct ibv_device, dev_path) \
	FIELD(struct ibv_device, ibdev_path) \
	SIZE(struct ibv_context_ops) \
	FIELD(struct ibv_context_ops, _compat_query_device) \
	FIELD(struct ibv_context_ops, _compat_query_port) \
	FIELD(struct ibv_context_ops, _compat_alloc_pd) \
	FIELD(struct ibv_context_ops, _compat_dealloc_pd) \
	FIELD(struct ibv_context_ops, _compat_reg_mr) \
	FIELD(struct ibv_context_ops, _compat_rereg_mr) \
	FIELD(struct ibv_context_ops, _compat_dereg_mr) \
	FIELD(struct ibv_context_ops, alloc_mw) \
	FIELD(struct ibv_context_ops, bind_mw) \
	FIELD(struct ibv_context_ops, dealloc_mw) \
	FIELD(struct ibv_context_ops, _compat_create_cq) \
	FIELD(struct ibv_context_ops, poll_cq) \
	FIELD(struct ibv_context_ops, req_notify_cq) \
	FIELD(struct ibv_context_ops, _compat_cq_event) \
	FIELD(struct ibv_context_ops, _compat_resize_cq) \
	FIELD(struct ibv_context_ops, _compat_destroy_cq) \
	FIELD(struct ibv_context_ops, _compat_create_srq) \
	FIELD(struct ibv_context_ops, _compat_modify_srq) \
	FIELD(struct ibv_context_ops, _compat_query_srq) \
	FIELD(struct ibv_context_ops, _compat_destroy_srq) \
	FIELD(struct ibv_context_ops, post_srq_recv) \
	FIELD(struct ibv_context_ops, _compat_create_qp) \
	FIELD(struct ibv_context_ops, _compat_query_qp) \
	FIELD(struct ibv_context_ops, _compat_modify_qp) \
	FIELD(struct ibv_context_ops, _compat_destroy_qp) \
	FIELD(struct ibv_context_ops, post_send) \
	FIELD(struct ibv_context_ops, post_recv) \
	FIELD(struct ibv_context_ops, _compat_create_ah) \
	FIELD(struct ibv_context_ops, _compat_destroy_ah) \
	FIELD(struct ibv_context_ops, _compat_attach_mcast) \
	FIELD(struct ibv_context_ops, _compat_detach_mcast) \
	FIELD(struct ibv_context_ops, _compat_async_event) \
	SIZE(struct ibv_context) \
	FIELD(struct ibv_context, device) \
	FIELD(struct ibv_context, ops) \
	FIELD(struct ibv_context, cmd_fd) \
	FIELD(struct ibv_context, async_fd) \
	FIELD(struct ibv_context, num_comp_vectors) \
	FIELD(struct ibv_context, mutex) \
	FIELD(struct ibv_context, abi_compat) \
	FIELD(struct verbs_context, query_port) \
	FIELD(struct verbs_context, advise_mr) \
	FIELD(struct verbs_context, alloc_null_mr) \
	FIELD(struct verbs_context, read_counters) \
	FIELD(struct verbs_context, attach_counters_point_flow) \
	FIELD(struct verbs_context, create_counters) \
	FIELD(struct verbs_context, destroy_counters) \
	FIELD(struct verbs_context, reg_dm_mr) \
	FIELD(struct verbs_context, alloc_dm) \
	FIELD(struct verbs_context, free_dm) \
	FIELD(struct verbs_context, modify_flow_action_esp) \
	FIELD(struct verbs_context, destroy_flow_action) \
	FIELD(struct verbs_context, create_flow_action_esp) \
	FIELD(struct verbs_context, modify_qp_rate_limit) \
	FIELD(struct verbs_context, alloc_parent_domain) \
	FIELD(struct verbs_context, dealloc_td) \
	FIELD(struct verbs_context, alloc_td) \
	FIELD(struct verbs_context, modify_cq) \
	FIELD(struct verbs_context, post_srq_ops) \
	FIELD(struct verbs_context, destroy_rwq_ind_table) \
	FIELD(struct verbs_context, create_rwq_ind_table) \
	FIELD(struct verbs_context, destroy_wq) \
	FIELD(struct verbs_context, modify_wq) \
	FIELD(struct verbs_context, create_wq) \
	FIELD(struct verbs_context, query_rt_values) \
	FIELD(struct verbs_context, create_cq_ex) \
	FIELD(struct verbs_context, priv) \
	FIELD(struct verbs_context, query_device_ex) \
	FIELD(struct verbs_context, ibv_destroy_flow) \
	FIELD(struct verbs_context, ABI_placeholder2) \
	FIELD(struct verbs_context, ibv_create_flow) \
	FIELD(struct verbs_context, ABI_placeholder1) \
	FIELD(struct verbs_context, open_qp) \
	FIELD(struct verbs_context, create_qp_ex) \
	FIELD(struct verbs_context, get_srq_num) \
	FIELD(struct verbs_context, create_srq_ex) \
	FIELD(struct verbs_context, open_xrcd) \
	FIELD(struct verbs_context, close_xrcd) \
	FIELD(struct verbs_context, _ABI_placeholder3) \
	FIELD(struct verbs_context, sz) \
	FIELD(struct verbs_context, context) \
	CONSTANT(IBV_PORT_NOP) \
	CONSTANT(IBV_PORT_DOWN) \
	CONSTANT(IBV_PORT_INIT) \
	CONSTANT(IBV_PORT_ARMED) \
	CONSTANT(IBV_PORT_ACTIVE) \
	CONSTANT(IBV_PORT_ACTIVE_DEFER) \
	CONSTANT(IBV_LINK_LAYER_UNSPECIFIED) \
	CONSTANT(IBV_LINK_LAYER_INFINIBAND) \
	CONSTANT(IBV_LINK_LAYER_ETHERNET) \
	CONSTANT(IBV_MTU_256) \
	CONSTANT(IBV_MTU_512) \
	CONSTANT(IBV_MTU_1024) \
	CONSTANT(IBV_MTU_2048) \
	CONSTANT(IBV_MTU_4096) \
	CONSTANT(IBV_GID_TYPE_IB) \
	CONSTANT(IBV_GID_TYPE_ROCE_V1) \
	CONSTANT(IBV_GID_TYPE_ROCE_V2) \
	CONSTANT(IBV_QPF_GRH_REQUIRED) \
	CONSTANT(IBV_PORT_SM) \
	CONSTANT(IBV_PORT_NOTICE_SUP) \
	CONSTANT(IBV_PORT_TRAP_SUP) \
	CONSTANT(IBV_PORT_OPT_IPD_SUP) \
	CONSTANT(IBV_PORT_AUTO_MIGR_SUP) \
	CONSTANT(IBV_PORT_SL_MAP_SUP) \
	CONSTANT(IBV_PORT_MKEY_NVRAM) \
	CONSTANT(IBV_PORT_PKEY_NVRAM) \
	CONSTANT(IBV_PORT_LED_INFO_SUP) \
	CONSTANT(IBV_PORT_SYS_IMAGE_GUID_SUP) \
	CONSTANT(IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP) \
	CONSTANT(IBV_PORT_EXTENDED_SPEEDS_SUP) \
	CONSTANT(IBV_PORT_CAP_MASK2_SUP) \
	CONSTANT(IBV_PORT_CM_SUP) \
	CONSTANT(IBV_PORT_SNMP_TUNNEL_SUP) \
	CONSTANT(IBV_PORT_REINIT_SUP) \
	CONSTANT(IBV_PORT_DEVICE_MGMT_SUP) \
	CONSTANT(IBV_PORT_VENDOR_CLASS_SUP) \
	CONSTANT(IBV_PORT_DR_NOTICE_SUP) \
	CONSTANT(IBV_PORT_CAP_MASK_NOTICE_SUP) \
	CONSTANT(IBV_PORT_BOOT_MGMT_SUP) \
	CONSTANT(IBV_PORT_LINK_LATENCY_SUP) \
	CONSTANT(IBV_PORT_CLIENT_REG_SUP) \
	CONSTANT(IBV_PORT_IP_BASED_GIDS) \
	CONSTANT(IBV_PORT_SET_NODE_DESC_SUP) \
	CONSTANT(IBV_PORT_INFO_EXT_SUP) \
	CONSTANT(IBV_PORT_VIRT_SUP) \
	CONSTANT(IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP) \
	CONSTANT(IBV_PORT_LINK_WIDTH_2X_SUP) \
	CONSTANT(IBV_PORT_LINK_SPEED_HDR_SUP) \
	CONSTANT(IBV_PORT_LINK_SPEED_NDR_SUP) \
	CONSTANT(IBV_RATE_MAX) \
	CONSTANT(IBV_RATE_2_5_GBPS) \
	CONSTANT(IBV_RATE_10_GBPS) \
	CONSTANT(IBV_RATE_30_GBPS) \
	CONSTANT(IBV_RATE_5_GBPS) \
	CONSTANT(IBV_RATE_20_GBPS) \
	CONSTANT(IBV_RATE_40_GBPS) \
	CONSTANT(IBV_RATE_60_GBPS) \
	CONSTANT(IBV_RATE_80_GBPS) \
	CONSTANT(IBV_RATE_120_GBPS) \
	CONSTANT(IBV_RATE_14_GBPS) \
	CONSTANT(IBV_RATE_56_GBPS) \
	CONSTANT(IBV_RATE_112_GBPS) \
	CONSTANT(IBV_RATE_168_GBPS) \
	CONSTANT(IBV_RATE_25_GBPS) \
	CONSTANT(IBV_RATE_100_GBPS) \
	CONSTANT(IBV_RATE_200_GBPS) \
	CONSTANT(IBV_RATE_300_GBPS) \
	CONSTANT(IBV_RATE_28_GBPS) \
	CONSTANT(IBV_RATE_50_GBPS) \
	CONSTANT(IBV_RATE_400_GBPS) \
	CONSTANT(IBV_RATE_600_GBPS) \
	CONSTANT(IBV_RATE_800_GBPS) \
	CONSTANT(IBV_RATE_1200_GBPS) \
	CONSTANT(IBV_SYSFS_NAME_MAX) \
	CONSTANT(IBV_SYSFS_PATH_MAX) \
	CONSTANT(IBV_NODE_UNKNOWN) \
	CONSTANT(IBV_NODE_CA) \
	CONSTANT(IBV_NODE_SWITCH) \
	CONSTANT(IBV_NODE_ROUTER) \
	CONSTANT(IBV_NODE_RNIC) \
	CONSTANT(IBV_NODE_USNIC) \
	CONSTANT(IBV_NODE_USNIC_UDP) \
	CONSTANT(IBV_NODE_UNSPECIFIED) \
	CONSTANT(IBV_TRANSPORT_UNKNOWN) \
	CONSTANT(IBV_TRANSPORT_IB) \
	CONSTANT(IBV_TRANSPORT_IWARP) \
	CONSTANT(IBV_TRANSPORT_USNIC) \
	CONSTANT(IBV_TRANSPORT_USNIC_UDP) \
	CONSTANT(IBV_TRANSPORT_UNSPECIFIED) \
	CONSTANT(IBV_FORK_DISABLED) \
	CONSTANT(IBV_FORK_ENABLED) \
	CONSTANT(IBV_FORK_UNNEEDED) \
	CONSTANT(IBV_ATOMIC_NONE) \
	CONSTANT(IBV_ATOMIC_HCA) \
	CONSTANT(IBV_ATOMIC_GLOB) \
	CONSTANT(IBV_DEVICE_RESIZE_MAX_WR) \
	CONSTANT(IBV_DEVICE_BAD_PKEY_CNTR) \
	CONSTANT(IBV_DEVICE_BAD_QKEY_CNTR) \
	CONSTANT(IBV_DEVICE_RAW_MULTI) \
	CONSTANT(IBV_DEVICE_AUTO_PATH_MIG) \
	CONSTANT(IBV_DEVICE_CHANGE_PHY_PORT) \
	CONSTANT(IBV_DEVICE_UD_AV_PORT_ENFORCE) \
	CONSTANT(IBV_DEVICE_CURR_QP_STATE_MOD) \
	CONSTANT(IBV_DEVICE_SHUTDOWN_PORT) \
	CONSTANT(IBV_DEVICE_INIT_TYPE) \
	CONSTANT(IBV_DEVICE_PORT_ACTIVE_EVENT) \
	CONSTANT(IBV_DEVICE_SYS_IMAGE_GUID) \
	CONSTANT(IBV_DEVICE_RC_RNR_NAK_GEN) \
	CONSTANT(IBV_DEVICE_SRQ_RESIZE) \
	CONSTANT(IBV_DEVICE_N_NOTIFY_CQ) \
	CONSTANT(IBV_DEVICE_MEM_WINDOW) \
	CONSTANT(IBV_DEVICE_UD_IP_CSUM) \
	CONSTANT(IBV_DEVICE_XRC) \
	CONSTANT(IBV_DEVICE_MEM_MGT_EXTENSIONS) \
	CONSTANT(IBV_DEVICE_MEM_WINDOW_TYPE_2A) \
	CONSTANT(IBV_DEVICE_MEM_WINDOW_TYPE_2B) \
	CONSTANT(IBV_DEVICE_RC_IP_CSUM) \
	CONSTANT(IBV_DEVICE_RAW_IP_CSUM) \
	CONSTANT(IBV_DEVICE_MANAGED_FLOW_STEERING) \
	CONSTANT(IBV_ODP_SUPPORT) \
	CONSTANT(IBV_ODP_SUPPORT_IMPLICIT) \
	CONSTANT(IBV_ODP_SUPPORT_SEND) \
	CONSTANT(IBV_ODP_SUPPORT_RECV) \
	CONSTANT(IBV_ODP_SUPPORT_WRITE) \
	CONSTANT(IBV_ODP_SUPPORT_READ) \
	CONSTANT(IBV_ODP_SUPPORT_ATOMIC) \
	CONSTANT(IBV_ODP_SUPPORT_SRQ_RECV) \
	CONSTANT(IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP) \
	CONSTANT(IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP) \
	CONSTANT(IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP) \
	CONSTANT(IBV_TM_CAP_RC) \
	CONSTANT(IBV_VALUES_MASK_RAW_CLOCK) \
	CONSTANT(IBV_VALUES_MASK_RESERVED) \
	CONSTANT(IBV_ACCESS_LOCAL_WRITE) \
	CONSTANT(IBV_ACCESS_REMOTE_WRITE) \
	CONSTANT(IBV_ACCESS_REMOTE_READ) \
	CONSTANT(IBV_ACCESS_REMOTE_ATOMIC) \
	CONSTANT(IBV_ACCESS_MW_BIND) \
	CONSTANT(IBV_ACCESS_ZERO_BASED) \
	CONSTANT(IBV_ACCESS_ON_DEMAND) \
	CONSTANT(IBV_ACCESS_HUGETLB) \
	CONSTANT(IBV_ACCESS_RELAXED_ORDERING) \
	CONSTANT(IBV_ACCESS_OPTIONAL_FIRST) \
	CONSTANT(IBV_ACCESS_OPTIONAL_RANGE) \
	CONSTANT(IBV_REREG_MR_CHANGE_TRANSLATION) \
	CONSTANT(IBV_REREG_MR_CHANGE_PD) \
	CONSTANT(IBV_REREG_MR_CHANGE_ACCESS) \
	CONSTANT(IBV_REREG_MR_FLAGS_SUPPORTED) \
	CONSTANT(IBV_REREG_MR_ERR_INPUT) \
	CONSTANT(IBV_REREG_MR_ERR_DONT_FORK_NEW) \
	CONSTANT(IBV_REREG_MR_ERR_DO_FORK_OLD) \
	CONSTANT(IBV_REREG_MR_ERR_CMD) \
	CONSTANT(IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW) \
	CONSTANT(IBV_MW_TYPE_1) \
	CONSTANT(IBV_MW_TYPE_2) \
	CONSTANT(IBV_DM_MASK_HANDLE) \
	CONSTANT(IBV_ADVISE_MR_ADVICE_PREFETCH) \
	CONSTANT(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE) \
	CONSTANT(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) \
	CONSTANT(IBV_ADVISE_MR_FLAG_FLUSH) \
	CONSTANT(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) \
	CONSTANT(IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) \
	CONSTANT(IBV_XRCD_INIT_ATTR_FD) \
	CONSTANT(IBV_XRCD_INIT_ATTR_OFLAGS) \
	CONSTANT(IBV_XRCD_INIT_ATTR_RESERVED) \
	CONSTANT(IBV_WC_SUCCESS) \
	CONSTANT(IBV_WC_LOC_LEN_ERR) \
	CONSTANT(IBV_WC_LOC_QP_OP_ERR) \
	CONSTANT(IBV_WC_LOC_EEC_OP_ERR) \
	CONSTANT(IBV_WC_LOC_PROT_ERR) \
	CONSTANT(IBV_WC_WR_FLUSH_ERR) \
	CONSTANT(IBV_WC_MW_BIND_ERR) \
	CONSTANT(IBV_WC_BAD_RESP_ERR) \
	CONSTANT(IBV_WC_LOC_ACCESS_ERR) \
	CONSTANT(IBV_WC_REM_INV_REQ_ERR) \
	CONSTANT(IBV_WC_REM_ACCESS_ERR) \
	CONSTANT(IBV_WC_REM_OP_ERR) \
	CONSTANT(IBV_WC_RETRY_EXC_ERR) \
	CONSTANT(IBV_WC_RNR_RETRY_EXC_ERR) \
	CONSTANT(IBV_WC_LOC_RDD_VIOL_ERR) \
	CONSTANT(IBV_WC_REM_INV_RD_REQ_ERR) \
	CONSTANT(IBV_WC_REM_ABORT_ERR) \
	CONSTANT(IBV_WC_INV_EECN_ERR) \
	CONSTANT(IBV_WC_INV_EEC_STATE_ERR) \
	CONSTANT(IBV_WC_FATAL_ERR) \
	CONSTANT(IBV_WC_RESP_TIMEOUT_ERR) \
	CONSTANT(IBV_WC_GENERAL_ERR) \
	CONSTANT(IBV_WC_TM_ERR) \
	CONSTANT(IBV_WC_TM_RNDV_INCOMPLETE) \
	CONSTANT(IBV_WC_SEND) \
	CONSTANT(IBV_WC_RDMA_WRITE) \
	CONSTANT(IBV_WC_RDMA_READ) \
	CONSTANT(IBV_WC_COMP_SWAP) \
	CONSTANT(IBV_WC_FETCH_ADD) \
	CONSTANT(IBV_WC_BIND_MW) \
	CONSTANT(IBV_WC_LOCAL_INV) \
	CONSTANT(IBV_WC_TSO) \
	CONSTANT(IBV_WC_ATOMIC_WRITE) \
	CONSTANT(IBV_WC_RECV) \
	CONSTANT(IBV_WC_RECV_RDMA_WITH_IMM) \
	CONSTANT(IBV_WC_TM_ADD) \
	CONSTANT(IBV_WC_TM_DEL) \
	CONSTANT(IBV_WC_TM_SYNC) \
	CONSTANT(IBV_WC_TM_RECV) \
	CONSTANT(IBV_WC_TM_NO_TAG) \
	CONSTANT(IBV_WC_DRIVER1) \
	CONSTANT(IBV_WC_DRIVER2) \
	CONSTANT(IBV_WC_DRIVER3) \
	CONSTANT(IBV_WC_IP_CSUM_OK_SHIFT) \
	CONSTANT(IBV_WC_GRH) \
	CONSTANT(IBV_WC_WITH_IMM) \
	CONSTANT(IBV_WC_IP_CSUM_OK) \
	CONSTANT(IBV_WC_WITH_INV) \
	CONSTANT(IBV_WC_TM_SYNC_REQ) \
	CONSTANT(IBV_WC_TM_MATCH) \
	CONSTANT(IBV_WC_TM_DATA_VALID) \
	CONSTANT(IBV_WC_EX_WITH_BYTE_LEN) \
	CONSTANT(IBV_WC_EX_WITH_IMM) \
	CONSTANT(IBV_WC_EX_WITH_QP_NUM) \
	CONSTANT(IBV_WC_EX_WITH_SRC_QP) \
	CONSTANT(IBV_WC_EX_WITH_SLID) \
	CONSTANT(IBV_WC_EX_WITH_SL) \
	CONSTANT(IBV_WC_EX_WITH_DLID_PATH_BITS) \
	CONSTANT(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) \
	CONSTANT(IBV_WC_EX_WITH_CVLAN) \
	CONSTANT(IBV_WC_EX_WITH_FLOW_TAG) \
	CONSTANT(IBV_WC_EX_WITH_TM_INFO) \
	CONSTANT(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) \
	CONSTANT(IBV_WC_STANDARD_FLAGS) \
	CONSTANT(IBV_CREATE_CQ_SUP_WC_FLAGS) \
	CONSTANT(IBV_CQ_INIT_ATTR_MASK_FLAGS) \
	CONSTANT(IBV_CQ_INIT_ATTR_MASK_PD) \
	CONSTANT(IBV_CREATE_CQ_ATTR_SINGLE_THREADED) \
	CONSTANT(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) \
	CONSTANT(IBV_CQ_ATTR_MODERATE) \
	CONSTANT(IBV_CQ_ATTR_RESERVED) \
	CONSTANT(IBV_EVENT_CQ_ERR) \
	CONSTANT(IBV_EVENT_QP_FATAL) \
	CONSTANT(IBV_EVENT_QP_REQ_ERR) \
	CONSTANT(IBV_EVENT_QP_ACCESS_ERR) \
	CONSTANT(IBV_EVENT_COMM_EST) \
	CONSTANT(IBV_EVENT_SQ_DRAINED) \
	CONSTANT(IBV_EVENT_PATH_MIG) \
	CONSTANT(IBV_EVENT_PATH_MIG_ERR) \
	CONSTANT(IBV_EVENT_DEVICE_FATAL) \
	CONSTANT(IBV_EVENT_PORT_ACTIVE) \
	CONSTANT(IBV_EVENT_PORT_ERR) \
	CONSTANT(IBV_EVENT_LID_CHANGE) \
	CONSTANT(IBV_EVENT_PKEY_CHANGE) \
	CONSTANT(IBV_EVENT_SM_CHANGE) \
	CONSTANT(IBV_EVENT_SRQ_ERR) \
	CONSTANT(IBV_EVENT_SRQ_LIMIT_REACHED) \
	CONSTANT(IBV_EVENT_QP_LAST_WQE_REACHED) \
	CONSTANT(IBV_EVENT_CLIENT_REREGISTER) \
	CONSTANT(IBV_EVENT_GID_CHANGE) \
	CONSTANT(IBV_EVENT_WQ_FATAL) \
	CONSTANT(IBV_QPT_RC) \
	CONSTANT(IBV_QPT_UC) \
	CONSTANT(IBV_QPT_UD) \
	CONSTANT(IBV_QPT_RAW_PACKET) \
	CONSTANT(IBV_QPT_XRC_SEND) \
	CONSTANT(IBV_QPT_XRC_RECV) \
	CONSTANT(IBV_QPT_DRIVER) \
	CONSTANT(IBV_QPS_RESET) \
	CONSTANT(IBV_QPS_INIT) \
	CONSTANT(IBV_QPS_RTR) \
	CONSTANT(IBV_QPS_RTS) \
	CONSTANT(IBV_QPS_SQD) \
	CONSTANT(IBV_QPS_SQE) \
	CONSTANT(IBV_QPS_ERR) \
	CONSTANT(IBV_QPS_UNKNOWN) \
	CONSTANT(IBV_MIG_MIGRATED) \
	CONSTANT(IBV_MIG_REARM) \
	CONSTANT(IBV_MIG_ARMED) \
	CONSTANT(IBV_QP_STATE) \
	CONSTANT(IBV_QP_CUR_STATE) \
	CONSTANT(IBV_QP_EN_SQD_ASYNC_NOTIFY) \
	CONSTANT(IBV_QP_ACCESS_FLAGS) \
	CONSTANT(IBV_QP_PKEY_INDEX) \
	CONSTANT(IBV_QP_PORT) \
	CONSTANT(IBV_QP_QKEY) \
	CONSTANT(IBV_QP_AV) \
	CONSTANT(IBV_QP_PATH_MTU) \
	CONSTANT(IBV_QP_TIMEOUT) \
	CONSTANT(IBV_QP_RETRY_CNT) \
	CONSTANT(IBV_QP_RNR_RETRY) \
	CONSTANT(IBV_QP_RQ_PSN) \
	CONSTANT(IBV_QP_MAX_QP_RD_ATOMIC) \
	CONSTANT(IBV_QP_ALT_PATH) \
	CONSTANT(IBV_QP_MIN_RNR_TIMER) \
	CONSTANT(IBV_QP_SQ_PSN) \
	CONSTANT(IBV_QP_MAX_DEST_RD_ATOMIC) \
	CONSTANT(IBV_QP_PATH_MIG_STATE) \
	CONSTANT(IBV_QP_CAP) \
	CONSTANT(IBV_QP_DEST_QPN) \
	CONSTANT(IBV_QP_RATE_LIMIT) \
	CONSTANT(IBV_QP_INIT_ATTR_PD) \
	CONSTANT(IBV_QP_INIT_ATTR_XRCD) \
	CONSTANT(IBV_QP_INIT_ATTR_CREATE_FLAGS) \
	CONSTANT(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) \
	CONSTANT(IBV_QP_INIT_ATTR_IND_TABLE) \
	CONSTANT(IBV_QP_INIT_ATTR_RX_HASH) \
	CONSTANT(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) \
	CONSTANT(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) \
	CONSTANT(IBV_QP_CREATE_SCATTER_FCS) \
	CONSTANT(IBV_QP_CREATE_CVLAN_STRIPPING) \
	CONSTANT(IBV_QP_CREATE_SOURCE_QPN) \
	CONSTANT(IBV_QP_CREATE_PCI_WRITE_END_PADDING) \
	CONSTANT(IBV_QP_EX_WITH_RDMA_WRITE) \
	CONSTANT(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) \
	CONSTANT(IBV_QP_EX_WITH_SEND) \
	CONSTANT(IBV_QP_EX_WITH_SEND_WITH_IMM) \
	CONSTANT(IBV_QP_EX_WITH_RDMA_READ) \
	CONSTANT(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) \
	CONSTANT(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) \
	CONSTANT(IBV_QP_EX_WITH_LOCAL_INV) \
	CONSTANT(IBV_QP_EX_WITH_BIND_MW) \
	CONSTANT(IBV_QP_EX_WITH_SEND_WITH_INV) \
	CONSTANT(IBV_QP_EX_WITH_TSO) \
	CONSTANT(IBV_QP_EX_WITH_ATOMIC_WRITE) \
	CONSTANT(IBV_QP_OPEN_ATTR_NUM) \
	CONSTANT(IBV_QP_OPEN_ATTR_XRCD) \
	CONSTANT(IBV_QP_OPEN_ATTR_CONTEXT) \
	CONSTANT(IBV_QP_OPEN_ATTR_TYPE) \
	CONSTANT(IBV_QP_OPEN_ATTR_RESERVED) \
	CONSTANT(IBV_WR_RDMA_WRITE) \
	CONSTANT(IBV_WR_RDMA_WRITE_WITH_IMM) \
	CONSTANT(IBV_WR_SEND) \
	CONSTANT(IBV_WR_SEND_WITH_IMM) \
	CONSTANT(IBV_WR_RDMA_READ) \
	CONSTANT(IBV_WR_ATOMIC_CMP_AND_SWP) \
	CONSTANT(IBV_WR_ATOMIC_FETCH_AND_ADD) \
	CONSTANT(IBV_WR_LOCAL_INV) \
	CONSTANT(IBV_WR_BIND_MW) \
	CONSTANT(IBV_WR_SEND_WITH_INV) \
	CONSTANT(IBV_WR_TSO) \
	CONSTANT(IBV_WR_DRIVER1) \
	CONSTANT(IBV_WR_ATOMIC_WRITE) \
	CONSTANT(IBV_SEND_FENCE) \
	CONSTANT(IBV_SEND_SIGNALED) \
	CONSTANT(IBV_SEND_SOLICITED) \
	CONSTANT(IBV_SEND_INLINE) \
	CONSTANT(IBV_SEND_IP_CSUM) \
	CONSTANT(IBV_WR_TAG_ADD) \
	CONSTANT(IBV_WR_TAG_DEL) \
	CONSTANT(IBV_WR_TAG_SYNC) \
	CONSTANT(IBV_OPS_SIGNALED) \
	CONSTANT(IBV_OPS_TM_SYNC) \
	CONSTANT(IBV_SRQT_BASIC) \
	CONSTANT(IBV_SRQT_XRC) \
	CONSTANT(IBV_SRQT_TM) \
	CONSTANT(IBV_SRQ_MAX_WR) \
	CONSTANT(IBV_SRQ_LIMIT) \
	CONSTANT(IBV_SRQ_INIT_ATTR_TYPE) \
	CONSTANT(IBV_SRQ_INIT_ATTR_PD) \
	CONSTANT(IBV_SRQ_INIT_ATTR_XRCD) \
	CONSTANT(IBV_SRQ_INIT_ATTR_CQ) \
	CONSTANT(IBV_SRQ_INIT_ATTR_TM) \
	CONSTANT(IBV_SRQ_INIT_ATTR_RESERVED) \
	CONSTANT(IBV_WQT_RQ) \
	CONSTANT(IBV_WQS_RESET) \
	CONSTANT(IBV_WQS_RDY) \
	CONSTANT(IBV_WQS_ERR) \
	CONSTANT(IBV_WQS_UNKNOWN) \
	CONSTANT(IBV_COUNTER_PACKETS) \
	CONSTANT(IBV_COUNTER_BYTES) \
	CONSTANT(IBV_DEVICE_RAW_SCATTER_FCS) \
	CONSTANT(IBV_DEVICE_PCI_WRITE_END_PADDING)

/* Younger than v44, and the sizes of what grew since. */
#define ABI_V59 \
	SIZE(struct ibv_port_attr) \
	FIELD(struct ibv_port_attr, active_speed_ex) \
	FIELD(struct ibv_mr_init_attr, length) \
	FIELD(struct ibv_mr_init_attr, access) \
	FIELD(struct ibv_mr_init_attr, comp_mask) \
	FIELD(struct ibv_mr_init_attr, iova) \
	FIELD(struct ibv_mr_init_attr, addr) \
	FIELD(struct ibv_mr_init_attr, fd) \
	FIELD(struct ibv_mr_init_attr, fd_offset) \
	FIELD(struct ibv_mr_init_attr, dmah) \
	SIZE(struct ibv_dmah_init_attr) \
	FIELD(struct ibv_dmah_init_attr, comp_mask) \
	FIELD(struct ibv_dmah_init_attr, cpu_id) \
	FIELD(struct ibv_dmah_init_attr, ph) \
	FIELD(struct ibv_dmah_init_attr, tph_mem_type) \
	SIZE(struct ibv_dmah) \
	FIELD(struct ibv_dmah, context) \
	SIZE(struct ibv_qp_ex) \
	FIELD(struct ibv_qp_ex, wr_flush) \
	FIELD(struct verbs_context, reg_mr_ex) \
	FIELD(struct verbs_context, dealloc_dmah) \
	FIELD(struct verbs_context, alloc_dmah) \
	CONSTANT(IBV_PORT_LINK_SPEED_XDR_SUP) \
	CONSTANT(IBV_ODP_SUPPORT_FLUSH) \
	CONSTANT(IBV_ODP_SUPPORT_ATOMIC_WRITE) \
	CONSTANT(IBV_ACCESS_FLUSH_GLOBAL) \
	CONSTANT(IBV_ACCESS_FLUSH_PERSISTENT) \
	CONSTANT(IBV_REG_MR_MASK_IOVA) \
	CONSTANT(IBV_REG_MR_MASK_ADDR) \
	CONSTANT(IBV_REG_MR_MASK_FD) \
	CONSTANT(IBV_REG_MR_MASK_FD_OFFSET) \
	CONSTANT(IBV_REG_MR_MASK_DMAH) \
	CONSTANT(IBV_WC_FLUSH) \
	CONSTANT(IBV_QP_EX_WITH_FLUSH) \
	CONSTANT(IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS) \
	CONSTANT(IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG) \
	CONSTANT(IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES) \
	CONSTANT(IBV_WR_FLUSH) \
	CONSTANT(IBV_FLUSH_GLOBAL) \
	CONSTANT(IBV_FLUSH_PERSISTENT) \
	CONSTANT(IBV_FLUSH_RANGE) \
	CONSTANT(IBV_FLUSH_MR)

/* More of v62 and v64. */
#define ABI_V65 \
	SIZE(struct ibv_mr_init_attr) \
	FIELD(struct ibv_mr_init_attr, buf) \
	SIZE(struct verbs_context) \
	FIELD(struct verbs_context, free_buf) \
	FIELD(struct verbs_context, alloc_buf) \
	FIELD(struct verbs_context, dm_export_dmabuf_fd) \
	CONSTANT(IBV_REG_MR_MASK_BUF) \
	CONSTANT(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC) \
	CONSTANT(IBV_EVENT_DEVICE_SPEED_CHANGE)
/* clang-format on */

#endif
