// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The device of this kernel's attachment, beside a network interface whose addresses are its GIDs:
 *
 *   rdma link add nupa_rdma0 type nupa netdev nupa_net0
 */
#include "kernel/rdma/user/user.h"
#include "segment/gid.h"

#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/rdma_netlink.h>

#define GIDS 32
#define FAST_PAGES_MAX 1024

static char *netdev = "";
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "a link is made beside this interface as soon as it is up");

static struct rdma_device *the_device;
static DEFINE_SPINLOCK(pointer_lock); /* of the_device */
static DEFINE_MUTEX(link_lock);       /* of making one */

static void set_device(struct rdma_device *device)
{
	spin_lock(&pointer_lock);
	WRITE_ONCE(the_device, device);
	spin_unlock(&pointer_lock);
}

/* With a reference; NULL: it is not registered, or somebody unregisters it. */
static struct rdma_device *get_registered(void)
{
	struct rdma_device *device;

	spin_lock(&pointer_lock);
	device = the_device;
	if (device && !ib_device_try_get(&device->ib))
		device = NULL;
	spin_unlock(&pointer_lock);
	return device;
}

static struct nupa_engine *engine_of(struct ib_device *ib)
{
	return nupa_engine_of(device_of(ib)->context);
}

static int query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	const struct nupa_superblock *sb = &engine_of(ib)->fabric->geometry;

	*attr = (struct ib_device_attr){
		.fw_ver = 1,
		.sys_image_guid = ib->node_guid,
		.max_mr_size = U64_MAX,
		.page_size_cap = PAGE_SIZE,
		.vendor_id = 0x0cf5,
		.vendor_part_id = 1,
		.hw_ver = 1,
		.max_qp = sb->qp_entries,
		.max_qp_wr = 8192,
		.device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS | IB_DEVICE_RC_RNR_NAK_GEN |
				    IB_DEVICE_SYS_IMAGE_GUID,
		.kernel_cap_flags = IBK_ALLOW_USER_UNREG, /* by rdma link delete */
		.max_send_sge = NUPA_SGE_MAX,
		.max_recv_sge = NUPA_SGE_MAX,
		.max_sge_rd = min(NUPA_SGE_MAX, 16u), /* NFS cuts its depth with more */
		.max_cq = 65536,
		.max_cqe = 1u << 16,
		.max_mr = sb->mr_entries,
		.max_pd = 65536,
		.max_srq = NUPA_SRQ_MAX,
		.max_srq_wr = NUPA_SRQ_WR_MAX,
		.max_srq_sge = NUPA_SGE_MAX,
		.max_qp_rd_atom = NUPA_RD_ATOMIC_MAX,
		.max_qp_init_rd_atom = NUPA_RD_ATOMIC_MAX,
		.max_res_rd_atom = sb->qp_entries * NUPA_RD_ATOMIC_MAX,
		.atomic_cap = IB_ATOMIC_HCA,
		.max_ah = 65536,
		.max_pkeys = 1,
		.max_fast_reg_page_list_len = FAST_PAGES_MAX,
		.local_ca_ack_delay = 15,
	};
	return 0;
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	const struct nupa_engine *engine = engine_of(ib);
	const struct nupa_fabric *fabric = engine->fabric;
	const struct net_device *beside = device_of(ib)->netdev;
	const bool up = !rdma_is_halted() &&
			nupa_load_relaxed(&fabric->ports[fabric->hosts[engine->host].port].state) ==
			    NUPA_PORT_ACTIVE &&
			netif_running(beside) && netif_carrier_ok(beside);

	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->gid_tbl_len = GIDS;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = NUPA_MSG_MAX_BYTES;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->active_speed = IB_SPEED_NDR;
	attr->active_width = IB_WIDTH_1X;
	return 0;
}

static int port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->pkey_tbl_len = 1;
	immutable->gid_tbl_len = GIDS;
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = IB_DEFAULT_PKEY_FULL;
	return index ? -EINVAL : 0;
}

/* The last reference is gone, by whichever way it was unregistered. */
static void dealloc_driver(struct ib_device *ib)
{
	nupa_core_set_user(NULL);
	xa_destroy(&device_of(ib)->handles);
	set_device(NULL);
}

static const struct ib_device_ops operations = {
	.owner = THIS_MODULE,
	/* That of the ABI that processes speak. */
	.driver_id = RDMA_DRIVER_RXE,
	.uverbs_abi_ver = 2,
	.alloc_ucontext = user_alloc_context_op,
	.dealloc_ucontext = user_dealloc_context_op,
	.disassociate_ucontext = user_disassociate_op,
	.mmap = user_mmap_op,
	.mmap_free = user_mmap_free_op,
	.query_device = query_device,
	.query_port = query_port,
	.get_port_immutable = port_immutable,
	.get_link_layer = link_layer,
	.query_pkey = query_pkey,
	.alloc_pd = rdma_alloc_pd_op,
	.dealloc_pd = rdma_dealloc_pd_op,
	.dealloc_driver = dealloc_driver,
	.create_ah = rdma_create_ah_op,
	.create_user_ah = user_create_ah_op,
	.destroy_ah = rdma_destroy_ah_op,
	.create_cq = rdma_create_cq_op,
	.destroy_cq = rdma_destroy_cq_op,
	.resize_cq = user_resize_cq_op,
	.poll_cq = rdma_poll_cq_op,
	.req_notify_cq = rdma_req_notify_op,
	.create_srq = rdma_create_srq_op,
	.modify_srq = rdma_modify_srq_op,
	.query_srq = rdma_query_srq_op,
	.destroy_srq = rdma_destroy_srq_op,
	.post_srq_recv = rdma_post_srq_recv_op,
	.create_qp = rdma_create_qp_op,
	.modify_qp = rdma_modify_qp_op,
	.query_qp = rdma_query_qp_op,
	.destroy_qp = rdma_destroy_qp_op,
	.post_send = rdma_post_send_op,
	.post_recv = rdma_post_recv_op,
	.get_dma_mr = rdma_dma_mr_op,
	.alloc_mr = rdma_alloc_mr_op,
	.map_mr_sg = rdma_map_mr_op,
	.reg_user_mr = user_reg_mr_op,
	.dereg_mr = rdma_dereg_mr_op,
	.alloc_hw_port_stats = rdma_alloc_stats_op,
	.get_hw_stats = rdma_get_stats_op,
	INIT_RDMA_OBJ_SIZE(ib_ah, rdma_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, rdma_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, rdma_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, rdma_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, rdma_srq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, user_context, ib),
};

/* --- events ------------------------------------------------------------------------------ */

static void completion(void *cq_context)
{
	struct ib_cq *cq = cq_context;

	cq->comp_handler(cq, cq->cq_context);
}

static void event_of_qp(const struct ibv_async_event *from)
{
	struct ib_qp *qp = from->element.qp->qp_context;
	struct ib_event event = { .device = qp->device,
				  .element.qp = qp,
				  .event = (enum ib_event_type)from->event_type };

	if (qp->event_handler)
		qp->event_handler(&event, qp->qp_context);
}

static void event_of_cq(const struct ibv_async_event *from)
{
	struct ib_cq *cq = from->element.cq->cq_context;
	struct ib_event event = { .device = cq->device,
				  .element.cq = cq,
				  .event = IB_EVENT_CQ_ERR };

	if (cq->event_handler)
		cq->event_handler(&event, cq->cq_context);
}

static void event_of_srq(const struct ibv_async_event *from)
{
	struct ib_srq *srq = from->element.srq->srq_context;
	struct ib_event event = { .device = srq->device,
				  .element.srq = srq,
				  .event = (enum ib_event_type)from->event_type };

	if (srq->event_handler)
		srq->event_handler(&event, srq->srq_context);
}

static void asynchronous(const struct ibv_async_event *from)
{
	struct ib_event event = { .element.port_num = 1,
				  .event = (enum ib_event_type)from->event_type };

	switch (from->event_type) {
	case IBV_EVENT_CQ_ERR:
		event_of_cq(from);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		event_of_qp(from);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event_of_srq(from);
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		if (!the_device)
			break;
		event.device = &the_device->ib;
		ib_dispatch_event(&event);
		break;
	default:
		break;
	}
}

static const struct nupa_kernel_user user = { completion, asynchronous };

/* --- the link ---------------------------------------------------------------------------- */

static int register_device(const char *name, struct net_device *beside)
{
	struct ibv_context *context = nupa_core_context();
	struct nupa_engine *engine = nupa_engine_of(context);
	struct rdma_device *device = ib_alloc_device(rdma_device, ib);
	int error;

	if (!device)
		return -ENOMEM;
	device->context = context;
	device->netdev = beside;
	xa_init_flags(&device->handles, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
	device->ib.node_type = RDMA_NODE_IB_CA;
	device->ib.phys_port_cnt = 1;
	device->ib.num_comp_vectors = 1;
	device->ib.node_guid = (__force __be64)nupa_host_guid_be(engine->fabric, engine->host);
	/* What the provider asks for by a call: doorbells and notifications. */
	device->ib.uverbs_cmd_mask |=
	    BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) | BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	strscpy(device->ib.node_desc, "nupa", sizeof(device->ib.node_desc));
	ib_set_device_ops(&device->ib, &operations);
	nupa_core_set_user(&user);
	set_device(device);
	error = ib_device_set_netdev(&device->ib, beside, 1);
	/* No DMA: addresses are the kernel's own. */
	if (!error)
		error = ib_register_device(&device->ib, name, NULL);
	if (error)
		ib_dealloc_device(&device->ib);
	return error;
}

static int new_link(const char *name, struct net_device *beside)
{
	int error;

	mutex_lock(&link_lock);
	error = READ_ONCE(the_device) ? -EEXIST : register_device(name, beside);
	mutex_unlock(&link_lock);
	return error;
}

static struct rdma_link_ops link_operations = { .type = "nupa", .newlink = new_link };

/* --- the network interface --------------------------------------------------------------- */

/* The interface that was named has come: not under RTNL, which registering takes. */
static void link_named(struct work_struct *work)
{
	struct net_device *found = dev_get_by_name(&init_net, netdev);
	int error = found ? new_link("nupa_rdma%d", found) : 0;

	if (error && error != -EEXIST)
		pr_err("nupa_rdma: no device beside %s: error %d\n", netdev, error);
	dev_put(found);
}

static DECLARE_WORK(linking, link_named);

static int netdev_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *changed = netdev_notifier_info_to_dev(data);
	struct rdma_device *device = event == NETDEV_UNREGISTER ? get_registered() : NULL;

	if (event == NETDEV_UP && netdev[0] && !strcmp(changed->name, netdev) &&
	    net_eq(dev_net(changed), &init_net))
		schedule_work(&linking);
	if (device && device->netdev == changed)
		ib_unregister_device_queued(&device->ib);
	if (device)
		ib_device_put(&device->ib);
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = netdev_event };

static int __init rdma_init(void)
{
	int error = register_netdevice_notifier(&notifier);

	if (error)
		return error;
	rdma_link_register(&link_operations);
	return 0;
}

static void __exit rdma_exit(void)
{
	struct rdma_device *device;

	rdma_link_unregister(&link_operations);
	unregister_netdevice_notifier(&notifier);
	cancel_work_sync(&linking);
	device = get_registered();
	if (device)
		ib_unregister_device_and_put(&device->ib);
	/* Or another thread is at it. */
	while (READ_ONCE(the_device))
		fsleep(1000);
}

module_init(rdma_init);
module_exit(rdma_exit);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("NUPA: an RDMA device over a fabric in shared memory");
MODULE_ALIAS_RDMA_LINK("nupa");
