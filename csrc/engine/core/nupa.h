/* SPDX-License-Identifier: BSD-3-Clause
 * The engine's verbs.  Each function has the arguments, results and errors of the ibv_ function of
 * the same name (man 3 ibv_...).  The drop-in libibverbs.so.1 and the cffi binding only forward to
 * them. */
#ifndef NUPA_H
#define NUPA_H

#include "segment/segment.h"
#include "abi/verbs_abi.h"

/* cffi: begin */
/* How bulk moves between two attachments, best first. */
enum nupa_mover {
	NUPA_MOVER_NONE = 0,
	NUPA_MOVER_LOCAL = 1,  /* both ends in one process: memcpy */
	NUPA_MOVER_POOL = 2,   /* the memory is the fabric's: load and store */
	NUPA_MOVER_SHARED = 3, /* the target has put its memory into a memfd: load and store */
	NUPA_MOVER_CMA = 4,    /* process_vm_readv, process_vm_writev */
	NUPA_MOVER_RELAY = 5,  /* through the channel; the target's engine copies */
};

/* Attaches this process to *host* of *fabric* and opens its device nupa_rdma0.  A failure returns
 * NULL with errno, and *why* filled.  Host -1 is the host of this process if it has one.  Otherwise
 * it is the host with the fewest live attachments, lowest first.  Mover NONE chooses the best.
 * LOCAL and CMA are used or the peer is not reached.  POOL moves pool memory directly and all else
 * by relay.  RELAY moves everything through the channel. */
struct ibv_context *nupa_open_host(struct nupa_fabric *fabric, int host, enum nupa_mover mover,
				   char *why, size_t why_bytes);
/* Host index, slot, fabric of an open device. */
int nupa_context_host(struct ibv_context *context);
int nupa_context_slot(struct ibv_context *context);
struct nupa_fabric *nupa_context_fabric(struct ibv_context *context);

/* Device list of this process, from the environment that `nupa run` sets.  NUPA_FABRIC: the
 * segment's path; without it the list is empty.  NUPA_HOST: name or number; unset: the next free.
 * NUPA_MOVER: cma, relay, ...  NUPA_LOOPBACK: see engine/cm/machine.c. */
struct ibv_device **nupa_get_device_list(int *num_devices);
void nupa_free_device_list(struct ibv_device **list);
const char *nupa_get_device_name(struct ibv_device *device);
uint64_t nupa_get_device_guid(struct ibv_device *device); /* big endian */
int nupa_get_device_index(struct ibv_device *device);
struct ibv_context *nupa_open_device(struct ibv_device *device);

int nupa_close_device(struct ibv_context *context);
int nupa_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size);
int nupa_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
		    size_t attr_size);
int nupa_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid);
int nupa_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t nupa_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size);
int nupa_query_pkey(struct ibv_context *context, uint8_t port_num, int index, uint16_t *pkey_be);
int nupa_query_rt_values_ex(struct ibv_context *context, struct ibv_values_ex *values);

int nupa_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void nupa_ack_async_event(struct ibv_async_event *event);

struct ibv_pd *nupa_alloc_pd(struct ibv_context *context);
int nupa_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *nupa_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int nupa_dealloc_td(struct ibv_td *td);
struct ibv_pd *nupa_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *attr);

struct ibv_mr *nupa_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
struct ibv_mr *nupa_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				  int fd, int access);
int nupa_dereg_mr(struct ibv_mr *mr);
/* 0, or an enum ibv_rereg_mr_err_code with errno beside it. */
int nupa_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		  int access);
struct ibv_mr *nupa_alloc_null_mr(struct ibv_pd *pd);
int nupa_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		   struct ibv_sge *sg_list, uint32_t num_sge);

struct ibv_mw *nupa_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int nupa_dealloc_mw(struct ibv_mw *mw);
int nupa_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

struct ibv_dm *nupa_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int nupa_free_dm(struct ibv_dm *dm);
struct ibv_mr *nupa_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset,
			      size_t length, unsigned int access);

struct ibv_context *nupa_import_device(int cmd_fd);
struct ibv_pd *nupa_import_pd(struct ibv_context *context, uint32_t handle);
void nupa_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *nupa_import_mr(struct ibv_pd *pd, uint32_t handle);
void nupa_unimport_mr(struct ibv_mr *mr);
struct ibv_dm *nupa_import_dm(struct ibv_context *context, uint32_t handle);
void nupa_unimport_dm(struct ibv_dm *dm);

struct ibv_comp_channel *nupa_create_comp_channel(struct ibv_context *context);
int nupa_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *nupa_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			      struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *nupa_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int nupa_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int nupa_resize_cq(struct ibv_cq *cq, int cqe);
int nupa_destroy_cq(struct ibv_cq *cq);
int nupa_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int nupa_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int nupa_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void nupa_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);

struct ibv_xrcd *nupa_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int nupa_close_xrcd(struct ibv_xrcd *xrcd);
int nupa_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
struct ibv_srq *nupa_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *nupa_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int nupa_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int nupa_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int nupa_destroy_srq(struct ibv_srq *srq);
int nupa_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

struct ibv_qp *nupa_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *nupa_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int nupa_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init_attr);
int nupa_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int nupa_destroy_qp(struct ibv_qp *qp);
int nupa_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int nupa_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_qp *nupa_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int nupa_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int nupa_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int nupa_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
struct ibv_qp_ex *nupa_qp_to_qp_ex(struct ibv_qp *qp);

struct ibv_ah *nupa_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int nupa_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			 struct ibv_grh *grh, struct ibv_ah_attr *attr);
struct ibv_ah *nupa_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				      uint8_t port_num);
int nupa_destroy_ah(struct ibv_ah *ah);
int nupa_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int nupa_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
/* cffi: end */

/* A call that the device lacks, named for stderr in a constant string: EOPNOTSUPP, also in errno.
 */
int nupa_unsupported(const char *call);

#endif
