/* SPDX-License-Identifier: BSD-3-Clause
 * The device nupa_rdma0 and its one port: what they say of themselves. */
#include "engine/device/device.h"
#include "segment/control/pkey.h"
#include "segment/rate.h"
#include "segment/slot/counters.h"
#include "segment/wire.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define FW_VERSION "nupa-1"
#define SUBNET_TIMEOUT 18 /* IBTA 14.2.5.6: 4.096 us * 2^18, as subnet managers set it */

/* device_cap_flags_ex, as include/uapi/rdma/ib_user_verbs.h of Linux has them. */
#define CAP_FLUSH_GLOBAL (UINT64_C(1) << 38)
#define CAP_ATOMIC_WRITE (UINT64_C(1) << 40)

/* No other device says more of XRC, so tools have no names for the rest. */
#define ODP_XRC (~(uint32_t)(IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE))

const struct ibv_device_attr nupa_device_attr = {
	.fw_ver = FW_VERSION,
	.max_mr_size = UINT64_MAX,
	.page_size_cap = 0xfffff000,
	.vendor_id = NUPA_VENDOR_ID,
	.vendor_part_id = NUPA_PART_ID,
	.hw_ver = NUPA_HW_VERSION,
	.max_qp = NUPA_QP_MAX,
	.max_qp_wr = NUPA_QP_WR_MAX,
	.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_CURR_QP_STATE_MOD |
			    IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT |
			    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_MEM_MGT_EXTENSIONS |
			    IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
			    IBV_DEVICE_SRQ_RESIZE,
	.max_sge = NUPA_SGE_MAX,
	.max_sge_rd = NUPA_SGE_MAX,
	.max_cq = NUPA_CQ_MAX,
	.max_cqe = NUPA_CQE_MAX,
	.max_mr = NUPA_MR_MAX,
	.max_mw = NUPA_MR_MAX,
	.max_pd = NUPA_PD_MAX,
	.max_qp_rd_atom = NUPA_RD_ATOMIC_MAX,
	.max_res_rd_atom = NUPA_RD_ATOMIC_MAX * NUPA_QP_MAX,
	.max_qp_init_rd_atom = NUPA_RD_ATOMIC_MAX,
	.atomic_cap = IBV_ATOMIC_GLOB, /* real CPU atomics on the target's memory */
	.max_ah = NUPA_AH_MAX,
	.max_srq = NUPA_SRQ_MAX,
	.max_srq_wr = NUPA_SRQ_WR_MAX,
	.max_srq_sge = NUPA_SGE_MAX,
	.max_mcast_grp = NUPA_MCAST_GROUPS_MAX,
	.max_mcast_qp_attach = NUPA_MCAST_GROUP_QPS_MAX,
	.max_total_mcast_qp_attach = NUPA_MCAST_MEMBERSHIPS_MAX,
	.max_pkeys = NUPA_PKEYS_MAX,
	.local_ca_ack_delay = 15, /* 4.096 us * 2^15: a busy machine runs the port thread late */
	.phys_port_cnt = 1,
};

static const struct ibv_odp_caps odp_caps = {
	.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
	.per_transport_caps = {
		.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
			       IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC |
			       IBV_ODP_SUPPORT_SRQ_RECV | IBV_ODP_SUPPORT_FLUSH |
			       IBV_ODP_SUPPORT_ATOMIC_WRITE,
		.uc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
			       IBV_ODP_SUPPORT_SRQ_RECV,
		.ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
			       IBV_ODP_SUPPORT_SRQ_RECV,
	},
};

uint64_t nupa_device_caps(void)
{
	return nupa_device_attr.device_cap_flags | CAP_FLUSH_GLOBAL | CAP_ATOMIC_WRITE;
}

int nupa_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct ibv_device_attr_ex all = { 0 };

	if ((input && input->comp_mask) || attr_size < sizeof(attr->orig_attr))
		return EINVAL;
	all.orig_attr = nupa_device_attr;
	all.orig_attr.node_guid = all.orig_attr.sys_image_guid =
	    nupa_host_guid_be(engine->fabric, engine->host);
	all.orig_attr.max_qp = (int)engine->fabric->geometry.qp_entries;
	all.orig_attr.max_mr = all.orig_attr.max_mw = (int)engine->fabric->geometry.mr_entries;
	all.max_dm_size = engine->fabric->geometry.pool_bytes;
	all.odp_caps = odp_caps;
	all.xrc_odp_caps = odp_caps.per_transport_caps.rc_odp_caps & ODP_XRC;
	all.completion_timestamp_mask = UINT64_MAX;
	all.cq_mod_caps = (struct ibv_cq_moderation_caps){ UINT16_MAX, UINT16_MAX };
	all.hca_core_clock = 1000000; /* kHz: timestamps are nanoseconds */
	all.device_cap_flags_ex = nupa_device_caps();
	all.phys_port_cnt_ex = 1;
	memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
	return 0;
}

int nupa_query_rt_values_ex(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint64_t now_ns = nupa_clock_ns();

	(void)context;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	values->raw_clock.tv_sec = (time_t)(now_ns / 1000000000);
	values->raw_clock.tv_nsec = (long)(now_ns % 1000000000);
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	uint32_t mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 128u << mtu < bytes)
		mtu++;
	return (enum ibv_mtu)mtu;
}

void nupa_host_port_attr(const struct nupa_fabric *fabric, uint32_t index,
			 struct ibv_port_attr *attr)
{
	const struct nupa_host *host = &fabric->hosts[index];
	const struct nupa_port *port = &fabric->ports[host->port];
	bool ethernet = host->link_layer == NUPA_LINK_ETHERNET;
	bool active = nupa_load_relaxed(&port->state) == NUPA_PORT_ACTIVE;
	const struct nupa_port_rate rate = nupa_port_rate(port);

	*attr = (struct ibv_port_attr){
		.state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = ethernet ? mtu_of(nupa_wires_mtu_bytes(fabric)) : IBV_MTU_4096,
		.gid_tbl_len = NUPA_GID_TABLE_LEN,
		.port_cap_flags =
		    ethernet ? IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS : NUPA_INFINIBAND_CAPS,
		.max_msg_sz = NUPA_MSG_MAX_BYTES,
		.pkey_tbl_len = NUPA_PKEYS_MAX,
		.lid = ethernet ? 0 : host->lid,
		.sm_lid = ethernet ? 0 : nupa_host_sm_lid(fabric, index),
		.max_vl_num = 1,
		.subnet_timeout = ethernet ? 0 : SUBNET_TIMEOUT,
		.active_width = rate.width,
		.active_speed = rate.speed,
		.phys_state = active ? 5 : 3, /* LinkUp, Disabled */
		.link_layer = (uint8_t)host->link_layer,
	};
}

int nupa_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
		    size_t attr_size)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct nupa_hw_counters hw;
	struct ibv_port_attr all;

	if (port_num != 1)
		return EINVAL;
	nupa_host_port_attr(engine->fabric, engine->host, &all);
	if (!nupa_fabric_hw_counters(engine->fabric, engine->host, &hw)) {
		all.bad_pkey_cntr = (uint32_t)hw.pkey_violations;
		all.qkey_viol_cntr = (uint32_t)hw.qkey_violations;
	}
	memset(attr, 0, attr_size);
	memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
	return 0;
}

int nupa_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct nupa_engine *engine = nupa_engine_of(context);

	if (port_num != 1 || index < 0 || index >= NUPA_GID_TABLE_LEN) {
		errno = EINVAL;
		return -1;
	}
	if (index < nupa_gid_count(engine))
		nupa_host_gid(engine->fabric, engine->host, index, gid);
	else
		memset(gid, 0, sizeof(*gid));
	return 0;
}

uint32_t nupa_host_netdev(const struct nupa_fabric *fabric, uint32_t index)
{
	const struct nupa_host *host = &fabric->hosts[index];
	struct ifreq request = { .ifr_name = "nupa_net0" };
	int fd;
	uint32_t netdev = 0;

	if (host->link_layer != NUPA_LINK_ETHERNET)
		return 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* any: netdevice(7) */
	if (fd < 0)
		return 0;
	if (ioctl(fd, SIOCGIFHWADDR, &request) == 0 &&
	    !memcmp(request.ifr_hwaddr.sa_data, host->mac, sizeof(host->mac)) &&
	    ioctl(fd, SIOCGIFINDEX, &request) == 0)
		netdev = (uint32_t)request.ifr_ifindex;
	close(fd);
	return netdev;
}

static void fill_gid_entry(struct nupa_engine *engine, uint32_t index, uint32_t netdev,
			   struct ibv_gid_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	nupa_host_gid(engine->fabric, engine->host, (int)index, &entry->gid);
	entry->gid_index = index;
	entry->port_num = 1;
	entry->gid_type = nupa_gid_count(engine) > 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
	entry->ndev_ifindex = netdev;
}

int nupa_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	struct ibv_gid_entry all;

	if (port_num != 1 || flags || gid_index >= NUPA_GID_TABLE_LEN)
		return EINVAL;
	if (gid_index >= (uint32_t)nupa_gid_count(engine))
		return ENODATA;
	fill_gid_entry(engine, gid_index, nupa_host_netdev(engine->fabric, engine->host), &all);
	memcpy(entry, &all, entry_size < sizeof(all) ? entry_size : sizeof(all));
	return 0;
}

ssize_t nupa_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	size_t n = (size_t)nupa_gid_count(engine);
	uint32_t netdev;

	if (flags || n > max_entries)
		return -EINVAL;
	netdev = nupa_host_netdev(engine->fabric, engine->host); /* the same for all */
	for (size_t i = 0; i < n; i++) {
		struct ibv_gid_entry entry;

		fill_gid_entry(engine, (uint32_t)i, netdev, &entry);
		memcpy((uint8_t *)entries + i * entry_size, &entry,
		       entry_size < sizeof(entry) ? entry_size : sizeof(entry));
	}
	return (ssize_t)n;
}

int nupa_query_pkey(struct ibv_context *context, uint8_t port_num, int index, uint16_t *pkey_be)
{
	const struct nupa_engine *engine = nupa_engine_of(context);

	if (port_num != 1 || index < 0 || index >= (int)NUPA_PKEYS_MAX) {
		errno = EINVAL;
		return -1;
	}
	*pkey_be = htons(nupa_pkey_at(engine->fabric, engine->host, (uint32_t)index));
	return 0;
}
