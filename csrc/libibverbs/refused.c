/* SPDX-License-Identifier: BSD-3-Clause
 * libibverbs.so.1: the symbols without function that must exist for a program or a driver to load.
 * Verbs return EOPNOTSUPP, or NULL with that errno.  Verbs of the ABI before 2007 (IBVERBS_1.0)
 * return ENOSYS in the same way.  Their ibv_get_device_list is the first to fail. */
#include "engine/core/nupa.h"
#include "libibverbs/symver.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* Called with any arguments: on the ABIs of Linux the caller removes them from the stack. */
#define NUPA_REFUSAL static __attribute__((used))

NUPA_REFUSAL int unsupported(void)
{
	return EOPNOTSUPP;
}

NUPA_REFUSAL void *unsupported_null(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

NUPA_REFUSAL int unsupported_negative(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

/* Where a program calls it, and no driver, it is named on stderr. */
#define NUPA_NAMED(type, name, result)                                                             \
	NUPA_REFUSAL type refused_##name(void)                                                     \
	{                                                                                          \
		nupa_unsupported(#name);                                                           \
		return result;                                                                     \
	}                                                                                          \
	NUPA_ALIAS(refused_##name, name);

NUPA_REFUSAL void ignore(void)
{
}

NUPA_REFUSAL int unsupported_old(void)
{
	return ENOSYS;
}

NUPA_REFUSAL void *unsupported_old_null(void)
{
	errno = ENOSYS;
	return NULL;
}

/* clang-format off */
/* --- Public verbs: functions of the extended tables are refused by being NULL there -- */
#define NUPA_PUBLIC_REFUSED(X) \
	X(ibv_dealloc_dmah) X(_ibv_query_comp_cntr_caps) X(ibv_destroy_comp_cntr) \
	X(ibv_inc_comp_cntr) X(ibv_inc_err_comp_cntr) X(ibv_qp_attach_comp_cntr) \
	X(ibv_read_comp_cntr) X(ibv_read_err_comp_cntr) X(ibv_set_comp_cntr) \
	X(ibv_set_err_comp_cntr)
#define NUPA_PUBLIC_REFUSED_NULL(X) \
	X(ibv_alloc_dmah) X(ibv_create_comp_cntr)
#define NUPA_PUBLIC_REFUSED_NEGATIVE(X) \
	X(ibv_dm_export_dmabuf_fd)
#define NUPA_PUBLIC_IGNORED(X) \
	X(ibv_register_driver)

/* --- IBVERBS_1.0 --------------------------------------------------------------------- */
#define NUPA_OLD_REFUSED(X) \
	X(ibv_attach_mcast) X(ibv_close_device) X(ibv_dealloc_pd) X(ibv_dereg_mr) \
	X(ibv_destroy_ah) X(ibv_destroy_cq) X(ibv_destroy_qp) X(ibv_destroy_srq) \
	X(ibv_detach_mcast) X(ibv_get_async_event) X(ibv_get_cq_event) X(ibv_modify_qp) \
	X(ibv_modify_srq) X(ibv_query_device) X(ibv_query_gid) X(ibv_query_pkey) \
	X(ibv_query_port) X(ibv_query_qp) X(ibv_query_srq) X(ibv_resize_cq)
#define NUPA_OLD_REFUSED_NULL(X) \
	X(ibv_alloc_pd) X(ibv_create_ah) X(ibv_create_cq) X(ibv_create_qp) \
	X(ibv_create_srq) X(ibv_get_device_guid) X(ibv_get_device_list) \
	X(ibv_get_device_name) X(ibv_open_device) X(ibv_reg_mr)
#define NUPA_OLD_IGNORED(X) \
	X(ibv_ack_async_event) X(ibv_ack_cq_events) X(ibv_free_device_list)

/* --- IBVERBS_PRIVATE: what drivers call ---------------------------------------------- */
#define NUPA_PRIVATE_REFUSED(X) \
	X(__ioctl_final_num_attrs) X(execute_ioctl) X(ibv_cmd_advise_mr) \
	X(ibv_cmd_alloc_dm) X(ibv_cmd_alloc_dmah) X(ibv_cmd_alloc_mw) X(ibv_cmd_alloc_pd) \
	X(ibv_cmd_attach_mcast) X(ibv_cmd_close_xrcd) X(ibv_cmd_create_ah) \
	X(ibv_cmd_create_comp_cntr) X(ibv_cmd_create_counters) X(ibv_cmd_create_cq) X(ibv_cmd_create_cq_ex) \
	X(ibv_cmd_create_cq_ex2) X(ibv_cmd_create_flow) X(ibv_cmd_create_flow_action_esp) \
	X(ibv_cmd_create_qp) X(ibv_cmd_create_qp_ex2) X(ibv_cmd_create_qp_ex) \
	X(ibv_cmd_create_rwq_ind_table) X(ibv_cmd_create_srq) X(ibv_cmd_create_srq_ex) \
	X(ibv_cmd_create_wq) X(ibv_cmd_dealloc_mw) X(ibv_cmd_dealloc_pd) \
	X(ibv_cmd_dereg_mr) X(ibv_cmd_destroy_ah) X(ibv_cmd_destroy_comp_cntr) X(ibv_cmd_destroy_counters) \
	X(ibv_cmd_destroy_cq) X(ibv_cmd_destroy_flow) X(ibv_cmd_destroy_flow_action) \
	X(ibv_cmd_destroy_qp) X(ibv_cmd_destroy_rwq_ind_table) X(ibv_cmd_destroy_srq) \
	X(ibv_cmd_destroy_wq) X(ibv_cmd_detach_mcast) X(ibv_cmd_export_dmabuf_fd) X(ibv_cmd_free_dm) \
	X(ibv_cmd_free_dmah) X(ibv_cmd_get_context) X(ibv_cmd_inc_comp_cntr) \
	X(ibv_cmd_inc_err_comp_cntr) X(ibv_cmd_modify_cq) \
	X(ibv_cmd_modify_flow_action_esp) X(ibv_cmd_modify_qp) X(ibv_cmd_modify_qp_ex) \
	X(ibv_cmd_modify_srq) X(ibv_cmd_modify_wq) X(ibv_cmd_open_qp) \
	X(ibv_cmd_open_xrcd) X(ibv_cmd_poll_cq) X(ibv_cmd_post_recv) X(ibv_cmd_post_send) \
	X(ibv_cmd_post_srq_recv) X(ibv_cmd_qp_attach_comp_cntr) \
	X(ibv_cmd_query_comp_cntr_caps) X(ibv_cmd_query_context) X(ibv_cmd_query_device_any) \
	X(ibv_cmd_query_mr) X(ibv_cmd_query_port) X(ibv_cmd_query_port_speed) X(ibv_cmd_query_qp) \
	X(ibv_cmd_query_srq) X(ibv_cmd_read_comp_cntr) X(ibv_cmd_read_counters) \
	X(ibv_cmd_read_err_comp_cntr) X(ibv_cmd_reg_dm_mr) \
	X(ibv_cmd_reg_dmabuf_mr) X(ibv_cmd_reg_mr) X(ibv_cmd_reg_mr_ex) \
	X(ibv_cmd_req_notify_cq) X(ibv_cmd_rereg_mr) X(ibv_cmd_resize_cq) \
	X(ibv_cmd_set_comp_cntr) X(ibv_cmd_set_err_comp_cntr)
#define NUPA_PRIVATE_REFUSED_NULL(X) \
	X(_verbs_init_and_alloc_context) X(ibv_dmabuf_heap_alloc) \
	X(ibv_dmabuf_heap_cc_shared_init) X(verbs_open_device)
#define NUPA_PRIVATE_REFUSED_NEGATIVE(X) \
	X(ibv_read_ibdev_sysfs_file)
#define NUPA_PRIVATE_IGNORED(X) \
	X(__verbs_log) X(ibv_dmabuf_heap_destroy) X(ibv_dmabuf_heap_free) X(verbs_init_cq) X(verbs_set_ops) X(verbs_uninit_context)
/* clang-format on */

#define NUPA_REFUSE(name) NUPA_ALIAS(unsupported, name);
#define NUPA_REFUSE_NULL(name) NUPA_NAMED(void *, name, NULL)
#define NUPA_REFUSE_NEGATIVE(name) NUPA_NAMED(int, name, -1)
#define NUPA_IGNORE(name) NUPA_ALIAS(ignore, name);
NUPA_PUBLIC_REFUSED(NUPA_REFUSE)
NUPA_PUBLIC_REFUSED_NULL(NUPA_REFUSE_NULL)
NUPA_PUBLIC_REFUSED_NEGATIVE(NUPA_REFUSE_NEGATIVE)
NUPA_PUBLIC_IGNORED(NUPA_IGNORE)

#define NUPA_OLD(name) NUPA_VERSION(unsupported_old, name, "@IBVERBS_1.0", 1_0);
#define NUPA_OLD_NULL(name) NUPA_VERSION(unsupported_old_null, name, "@IBVERBS_1.0", 1_0);
#define NUPA_OLD_VOID(name) NUPA_VERSION(ignore, name, "@IBVERBS_1.0", 1_0);
NUPA_OLD_REFUSED(NUPA_OLD)
NUPA_OLD_REFUSED_NULL(NUPA_OLD_NULL)
NUPA_OLD_IGNORED(NUPA_OLD_VOID)

/* All driver ABIs have the same names, so the same refusals. */
#define NUPA_PRIVATE(name) NUPA_DRIVER_SYMBOL(unsupported, name)
#define NUPA_PRIVATE_NULL(name) NUPA_DRIVER_SYMBOL(unsupported_null, name)
#define NUPA_PRIVATE_NEGATIVE(name) NUPA_DRIVER_SYMBOL(unsupported_negative, name)
#define NUPA_PRIVATE_VOID(name) NUPA_DRIVER_SYMBOL(ignore, name)
NUPA_PRIVATE_REFUSED(NUPA_PRIVATE)
NUPA_PRIVATE_REFUSED_NULL(NUPA_PRIVATE_NULL)
NUPA_PRIVATE_REFUSED_NEGATIVE(NUPA_PRIVATE_NEGATIVE)
NUPA_PRIVATE_IGNORED(NUPA_PRIVATE_VOID)

/* A driver registers when it is loaded; no device of it will be found. */
NUPA_ALIAS(ignore, verbs_register_driver_34);
NUPA_ALIAS(ignore, verbs_register_driver_57);
NUPA_ALIAS(ignore, verbs_register_driver_59);
NUPA_ALIAS(ignore, verbs_register_driver_64);
NUPA_ALIAS(ignore, verbs_register_driver_65);

static __attribute__((used)) bool disassociate_destroy;
NUPA_DRIVER_SYMBOL(disassociate_destroy, verbs_allow_disassociate_destroy)
