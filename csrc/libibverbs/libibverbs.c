/* SPDX-License-Identifier: BSD-3-Clause
 * libibverbs.so.1: the public verbs that are functions.  Each forwards to the engine's verb of the
 * same name; exceptions have a comment. */
#include "engine/core/nupa.h"
#include "libibverbs/access.h"

#include <errno.h>

/* --- Devices ------------------------------------------------------------------------- */
struct ibv_device **ibv_get_device_list(int *num_devices)
{
	return nupa_get_device_list(num_devices);
}

void ibv_free_device_list(struct ibv_device **list)
{
	nupa_free_device_list(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return nupa_get_device_name(device);
}

uint64_t ibv_get_device_guid(struct ibv_device *device)
{
	return nupa_get_device_guid(device);
}

int ibv_get_device_index(struct ibv_device *device)
{
	return nupa_get_device_index(device);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return nupa_open_device(device);
}

int ibv_close_device(struct ibv_context *context)
{
	return nupa_close_device(context);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct ibv_device_attr_ex all;
	int ret = nupa_query_device_ex(context, NULL, &all, sizeof(all));

	if (ret == 0)
		*attr = all.orig_attr;
	return ret;
}

/* Programs before v20 and the fallback of younger ones pass the structure as it
 * was then: it ended before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *attr)
{
	return nupa_query_port(context, port_num, (struct ibv_port_attr *)(void *)attr,
			       offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* In 100 Mb/s: what rate a width and a speed of nupa_query_port stand for. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed)
{
	static const uint8_t lanes_of[] = { 1, 4, 8, 12, 2 }; /* by the bit that is set */
	static const uint16_t speed_of[] = { 25, 50, 100, 100, 140, 250, 500, 1000, 2000 };
	struct ibv_port_attr attr;
	int error = port_num > UINT8_MAX
			? EINVAL
			: nupa_query_port(context, (uint8_t)port_num, &attr, sizeof(attr));

	if (error)
		return error;
	*port_speed = (uint64_t)lanes_of[__builtin_ctz(attr.active_width)] *
		      speed_of[__builtin_ctz(attr.active_speed)];
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	return nupa_query_gid(context, port_num, index, gid);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	return nupa_query_gid_ex(context, port_num, gid_index, entry, flags, entry_size);
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	return nupa_query_gid_table(context, entries, max_entries, flags, entry_size);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, uint16_t *pkey_be)
{
	return nupa_query_pkey(context, port_num, index, pkey_be);
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, uint16_t pkey_be)
{
	uint16_t found;

	for (int i = 0; nupa_query_pkey(context, port_num, i, &found) == 0; i++)
		if (found == pkey_be)
			return i;
	errno = ENOENT;
	return -1;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	return nupa_get_async_event(context, event);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	nupa_ack_async_event(event);
}

/* --- Protection domains and memory --------------------------------------------------- */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return nupa_alloc_pd(context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return nupa_dealloc_pd(pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return nupa_reg_mr(pd, addr, length, (uintptr_t)addr, required_access(access));
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return nupa_reg_mr(pd, addr, length, iova, required_access(access));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	return nupa_reg_mr(pd, addr, length, iova, required_access((int)access));
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	return nupa_reg_dmabuf_mr(pd, offset, length, iova, fd, required_access(access));
}

/* Its errors are negative codes, with errno beside them. */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	return nupa_rereg_mr(mr, flags, pd, addr, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return nupa_dereg_mr(mr);
}

/* --- Import -------------------------------------------------------------------------- */
struct ibv_context *ibv_import_device(int cmd_fd)
{
	return nupa_import_device(cmd_fd);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	return nupa_import_pd(context, handle);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	nupa_unimport_pd(pd);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return nupa_import_mr(pd, handle);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	nupa_unimport_mr(mr);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	return nupa_import_dm(context, handle);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	nupa_unimport_dm(dm);
}

/* --- Fork ---------------------------------------------------------------------------- */
/* Registered memory is not pinned, so a fork copies it as any other: a child's writes never reach
 * the parent's registered memory. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

/* --- Completions --------------------------------------------------------------------- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	return nupa_create_comp_channel(context);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return nupa_destroy_comp_channel(channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	return nupa_create_cq(context, cqe, cq_context, channel, comp_vector);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return nupa_resize_cq(cq, cqe);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return nupa_destroy_cq(cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	return nupa_get_cq_event(channel, cq, cq_context);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	nupa_ack_cq_events(cq, nevents);
}

/* --- Queues -------------------------------------------------------------------------- */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return nupa_create_srq(pd, attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return nupa_modify_srq(srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return nupa_query_srq(srq, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	return nupa_destroy_srq(srq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return nupa_create_qp(pd, attr);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return nupa_qp_to_qp_ex(qp);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	return nupa_query_qp(qp, attr, mask, init_attr);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return nupa_modify_qp(qp, attr, mask);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	return nupa_destroy_qp(qp);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return nupa_query_qp_data_in_order(qp, op, flags);
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return nupa_set_ece(qp, ece);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return nupa_query_ece(qp, ece);
}

/* --- Addresses ----------------------------------------------------------------------- */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return nupa_create_ah(pd, attr);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	return nupa_init_ah_from_wc(context, port_num, wc, grh, attr);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num)
{
	return nupa_create_ah_from_wc(pd, wc, grh, port_num);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	return nupa_destroy_ah(ah);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return nupa_attach_mcast(qp, gid, lid);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return nupa_detach_mcast(qp, gid, lid);
}
