/* SPDX-License-Identifier: BSD-3-Clause
 * The structures of the verbs ABI, as rdma-core v59 has them.  Structures only ever grow at their
 * end (ibv_port_attr, ibv_qp_ex): a function that fills one for a program of unknown age takes the
 * caller's size. "be": big endian. */
#ifndef NUPA_VERBS_ABI_TYPES_H
#define NUPA_VERBS_ABI_TYPES_H

#include "abi/verbs_abi_enums.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* cffi: begin */
struct ibv_context;
struct ibv_device;
struct ibv_pd;
struct ibv_mr;
struct ibv_mw;
struct ibv_dm;
struct ibv_buf;
struct ibv_dmah;
struct ibv_td;
struct ibv_xrcd;
struct ibv_ah;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_qp;
struct ibv_qp_ex;
struct ibv_srq;
struct ibv_wq;
struct ibv_rwq_ind_table;
struct ibv_flow;
struct ibv_flow_action;
struct ibv_counters;

/* --- Ports and addresses ------------------------------------------------------------- */
union ibv_gid {
	uint8_t raw[16];
	struct {
		uint64_t subnet_prefix; /* be */
		uint64_t interface_id;  /* be */
	} global;
};

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index, port_num;
	uint32_t gid_type;     /* enum ibv_gid_type */
	uint32_t ndev_ifindex; /* 0: no network device */
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};

/* The 40 bytes before the payload of a UD receive (IBTA 8.3). */
struct ibv_grh {
	uint32_t version_tclass_flow; /* be: 4, 8 and 20 bits */
	uint16_t paylen;              /* be */
	uint8_t next_hdr, hop_limit;
	union ibv_gid sgid, dgid;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate;
	uint8_t is_global; /* grh is valid */
	uint8_t port_num;
};

struct ibv_port_attr {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu, active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz; /* bytes */
	uint32_t bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
	uint8_t active_width, active_speed, phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
	uint32_t active_speed_ex; /* since v59: speeds that active_speed cannot say */
};

/* --- Devices ------------------------------------------------------------------------- */
struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid;      /* be */
	uint64_t sys_image_guid; /* be */
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom;
	int max_qp_init_rd_atom, max_ee_init_rd_atom;
	enum ibv_atomic_cap atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
	int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_query_device_ex_input {
	uint32_t comp_mask;
};

struct ibv_odp_caps {
	uint64_t general_caps;
	struct {
		uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps;
	} per_transport_caps;
};

struct ibv_tso_caps {
	uint32_t max_tso, supported_qpts;
};

struct ibv_rss_caps {
	uint32_t supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};

struct ibv_packet_pacing_caps {
	uint32_t qp_rate_limit_min, qp_rate_limit_max; /* kbit/s */
	uint32_t supported_qpts;
};

struct ibv_tm_caps {
	uint32_t max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge;
};

struct ibv_cq_moderation_caps {
	uint16_t max_cq_count, max_cq_period; /* completions, µs */
};

struct ibv_pci_atomic_caps {
	uint16_t fetch_add, swap, compare_swap; /* enum ibv_pci_atomic_op_size */
};

struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct ibv_odp_caps odp_caps;
	uint64_t completion_timestamp_mask;
	uint64_t hca_core_clock; /* kHz */
	uint64_t device_cap_flags_ex;
	struct ibv_tso_caps tso_caps;
	struct ibv_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct ibv_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct ibv_tm_caps tm_caps;
	struct ibv_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size; /* bytes */
	struct ibv_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps;
	uint32_t phys_port_cnt_ex;
};

struct ibv_values_ex {
	uint32_t comp_mask;
	struct timespec raw_clock;
};

/* --- Protection domains and memory --------------------------------------------------- */
struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_td_init_attr {
	uint32_t comp_mask;
};

struct ibv_td {
	struct ibv_context *context;
};

struct ibv_parent_domain_init_attr {
	struct ibv_pd *pd;
	struct ibv_td *td;
	uint32_t comp_mask;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void *pd_context;
};

struct ibv_xrcd_init_attr {
	uint32_t comp_mask;
	int fd, oflags;
};

struct ibv_xrcd {
	struct ibv_context *context;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask; /* enum ibv_mr_init_attr_mask */
	uint64_t iova;
	void *addr;
	int fd; /* a dma-buf */
	uint64_t fd_offset;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf; /* since v64, of ibv_alloc_buf: addr lies in it */
};

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	enum ibv_mw_type type;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr, length;
	unsigned int mw_access_flags;
};

struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct ibv_mw_bind_info bind_info;
};

struct ibv_alloc_dm_attr {
	size_t length;
	uint32_t log_align_req, comp_mask;
};

struct ibv_dm {
	struct ibv_context *context;
	int (*memcpy_to_dm)(struct ibv_dm *dm, uint64_t dm_offset, const void *host_addr,
			    size_t length);
	int (*memcpy_from_dm)(void *host_addr, struct ibv_dm *dm, uint64_t dm_offset,
			      size_t length);
	uint32_t comp_mask, handle;
};

struct ibv_dmah_init_attr {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, tph_mem_type;
};

struct ibv_dmah {
	struct ibv_context *context;
};

/* --- Address handles ----------------------------------------------------------------- */
struct ibv_ah {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t handle;
};

/* --- Completions and events ---------------------------------------------------------- */
struct ibv_comp_channel {
	struct ibv_context *context;
	int fd; /* readable: an event waits */
	int refcnt;
};

struct ibv_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err, byte_len;
	union {
		uint32_t imm_data;         /* be; with IBV_WC_WITH_IMM */
		uint32_t invalidated_rkey; /* with IBV_WC_WITH_INV */
	};
	uint32_t qp_num, src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex; /* guards the counts; cond: one of them changed */
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};

struct ibv_poll_cq_attr {
	uint32_t comp_mask;
};

struct ibv_wc_tm_info {
	uint64_t tag;
	uint32_t priv;
};

/* Begins as struct ibv_cq; a pointer to one is a pointer to the other. */
struct ibv_cq_ex {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;

	uint32_t comp_mask;
	enum ibv_wc_status status; /* of the current completion, as is wr_id */
	uint64_t wr_id;
	int (*start_poll)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
	int (*next_poll)(struct ibv_cq_ex *cq);
	void (*end_poll)(struct ibv_cq_ex *cq);
	enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *cq);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *cq);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *cq);
	uint32_t (*read_imm_data)(struct ibv_cq_ex *cq); /* be, or the invalidated rkey */
	uint32_t (*read_qp_num)(struct ibv_cq_ex *cq);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *cq);
	unsigned int (*read_wc_flags)(struct ibv_cq_ex *cq);
	uint32_t (*read_slid)(struct ibv_cq_ex *cq);
	uint8_t (*read_sl)(struct ibv_cq_ex *cq);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *cq);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *cq);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *cq);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *cq);
	void (*read_tm_info)(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info);
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *cq);
};

struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags; /* enum ibv_create_cq_wc_flags */
	uint32_t comp_mask, flags;
	struct ibv_pd *parent_domain;
};

struct ibv_moderate_cq {
	uint16_t cq_count, cq_period; /* completions, µs */
};

struct ibv_modify_cq_attr {
	uint32_t attr_mask;
	struct ibv_moderate_cq moderate;
};

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		struct ibv_wq *wq;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

/* --- Work requests ------------------------------------------------------------------- */
struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_data_buf {
	void *addr;
	size_t length;
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags;
	union {
		uint32_t imm_data;        /* be; opcodes WITH_IMM */
		uint32_t invalidate_rkey; /* opcodes WITH_INV, LOCAL_INV */
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
	} wr;
	union {
		struct {
			uint32_t remote_srqn;
		} xrc;
	} qp_type;
	union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_mw_bind_info bind_info;
		} bind_mw;
		struct {
			void *hdr;
			uint16_t hdr_sz, mss;
		} tso;
	};
};

struct ibv_ops_wr {
	uint64_t wr_id;
	struct ibv_ops_wr *next;
	enum ibv_ops_wr_opcode opcode;
	int flags;
	struct {
		uint32_t unexpected_cnt, handle;
		struct {
			uint64_t recv_wr_id;
			struct ibv_sge *sg_list;
			int num_sge;
			uint64_t tag, mask;
		} add;
	} tm;
};

/* --- Queue pairs --------------------------------------------------------------------- */
struct ibv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge;
	uint32_t max_inline_data; /* bytes */
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};

struct ibv_rx_hash_conf {
	uint8_t rx_hash_function, rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

/* Begins as struct ibv_qp_init_attr. */
struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;

	uint32_t comp_mask; /* enum ibv_qp_init_attr_mask: which of the rest are set */
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	struct ibv_rwq_ind_table *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

struct ibv_qp_open_attr {
	uint32_t comp_mask, qp_num;
	struct ibv_xrcd *xrcd;
	void *qp_context;
	enum ibv_qp_type qp_type;
};

struct ibv_qp_attr {
	enum ibv_qp_state qp_state, cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	uint8_t min_rnr_timer; /* code of IBTA table 46 */
	uint8_t port_num;
	uint8_t timeout; /* 4.096 µs << timeout; 0: for ever */
	uint8_t retry_cnt, rnr_retry;
	uint8_t alt_port_num, alt_timeout;
	uint32_t rate_limit; /* kbit/s */
};

struct ibv_qp_rate_limit_attr {
	uint32_t rate_limit;     /* kbit/s */
	uint32_t max_burst_sz;   /* bytes */
	uint16_t typical_pkt_sz; /* bytes */
	uint32_t comp_mask;
};

struct ibv_ece {
	uint32_t vendor_id, options, comp_mask;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex; /* guards the count; cond: it changed */
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask;
	uint64_t wr_id; /* of the next request, as is wr_flags */
	unsigned int wr_flags;

	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				  uint64_t compare, uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				    uint64_t add);
	void (*wr_bind_mw)(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
			   const struct ibv_mw_bind_info *bind_info);
	void (*wr_local_inv)(struct ibv_qp_ex *qp, uint32_t invalidate_rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
	void (*wr_rdma_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				  uint32_t imm_data);
	void (*wr_send)(struct ibv_qp_ex *qp);
	void (*wr_send_imm)(struct ibv_qp_ex *qp, uint32_t imm_data);
	void (*wr_send_inv)(struct ibv_qp_ex *qp, uint32_t invalidate_rkey);
	void (*wr_send_tso)(struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz, uint16_t mss);
	void (*wr_set_ud_addr)(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
			       uint32_t remote_qkey);
	void (*wr_set_xrc_srqn)(struct ibv_qp_ex *qp, uint32_t remote_srqn);
	void (*wr_set_inline_data)(struct ibv_qp_ex *qp, void *addr, size_t length);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *qp, size_t num_buf,
					const struct ibv_data_buf *buf_list);
	void (*wr_set_sge)(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *qp, size_t num_sge,
				const struct ibv_sge *sg_list);
	void (*wr_start)(struct ibv_qp_ex *qp);
	int (*wr_complete)(struct ibv_qp_ex *qp);
	void (*wr_abort)(struct ibv_qp_ex *qp);
	void (*wr_atomic_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				const void *atomic_wr);
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
			 uint8_t type, uint8_t level); /* since v45 */
};

/* --- Shared receive queues ----------------------------------------------------------- */
struct ibv_srq_attr {
	uint32_t max_wr, max_sge, srq_limit;
};

struct ibv_srq_init_attr {
	void *srq_context;
	struct ibv_srq_attr attr;
};

struct ibv_tm_cap {
	uint32_t max_num_tags, max_ops;
};

/* Begins as struct ibv_srq_init_attr. */
struct ibv_srq_init_attr_ex {
	void *srq_context;
	struct ibv_srq_attr attr;
	uint32_t comp_mask;
	enum ibv_srq_type srq_type;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_tm_cap tm_cap;
};

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex; /* guards the count; cond: it changed */
	pthread_cond_t cond;
	uint32_t events_completed;
};

/* --- Work queues, flow steering, counters: named by the context's table, not offered - */
struct ibv_wq_init_attr {
	void *wq_context;
	enum ibv_wq_type wq_type;
	uint32_t max_wr, max_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t comp_mask, create_flags;
};

struct ibv_wq_attr {
	uint32_t attr_mask;
	enum ibv_wq_state wq_state, curr_wq_state;
	uint32_t flags, flags_mask;
};

struct ibv_wq {
	struct ibv_context *context;
	void *wq_context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t wq_num, handle;
	enum ibv_wq_state state;
	enum ibv_wq_type wq_type;
	int (*post_recv)(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed, comp_mask;
};

struct ibv_rwq_ind_table_init_attr {
	uint32_t log_ind_tbl_size;
	struct ibv_wq **ind_tbl;
	uint32_t comp_mask;
};

struct ibv_rwq_ind_table {
	struct ibv_context *context;
	int ind_tbl_handle, ind_tbl_num;
	uint32_t comp_mask;
};

struct ibv_flow {
	uint32_t comp_mask;
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_flow_action {
	struct ibv_context *context;
};

struct ibv_counters_init_attr {
	uint32_t comp_mask;
};

struct ibv_counters {
	struct ibv_context *context;
};

struct ibv_counter_attach_attr {
	enum ibv_counter_description counter_desc;
	uint32_t index, comp_mask;
};

/* Programs put the specifications behind it.  type: 0 to 3, as of ibv_flow_attr_type. */
struct ibv_flow_attr {
	uint32_t comp_mask, type;
	uint16_t size, priority;
	uint8_t num_of_specs, port;
	uint32_t flags;
};

/* Matches of a flow: what packets have where the mask has ones.  Numbers are big endian. */
struct ibv_flow_eth_filter {
	uint8_t dst_mac[6], src_mac[6];
	uint16_t ether_type, vlan_tag;
};

struct ibv_flow_spec_eth {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_eth_filter val, mask;
};

struct ibv_flow_ipv4_ext_filter {
	uint32_t src_ip, dst_ip;
	uint8_t proto, tos, ttl, flags;
};

struct ibv_flow_spec_ipv4_ext {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_ipv4_ext_filter val, mask;
};

struct ibv_flow_ipv6_filter {
	uint8_t src_ip[16], dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr, traffic_class, hop_limit;
};

struct ibv_flow_spec_ipv6 {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_ipv6_filter val, mask;
};

struct ibv_flow_tcp_udp_filter {
	uint16_t dst_port, src_port;
};

struct ibv_flow_spec_tcp_udp {
	uint32_t type;
	uint16_t size;
	struct ibv_flow_tcp_udp_filter val, mask;
};

struct ibv_flow_action_esp_attr;
/* cffi: end */

#endif
