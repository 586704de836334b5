/* SPDX-License-Identifier: BSD-3-Clause
 * The device, its port, and the port's counters: those of /sys/class/infiniband. */
#define _GNU_SOURCE
#include "shim/netlink/netlink.h"

#include "engine/device/device.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_NAME "nupa_rdma0"
#define PORTS 1u

typedef const struct nupa_shim_view view_t;
typedef const struct nupa_netlink_request request_t;
typedef struct nupa_netlink_writer writer_t;

static bool is_ethernet(view_t *view)
{
	return view->fabric->hosts[view->host].link_layer == NUPA_LINK_ETHERNET;
}

void nupa_netlink_put_device(writer_t *to)
{
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_DEV_INDEX, 0);
	nupa_netlink_put_text(to, RDMA_NLDEV_ATTR_DEV_NAME, DEVICE_NAME);
}

int nupa_netlink_device(view_t *view, request_t *request, writer_t *to)
{
	const uint64_t guid = be64toh(nupa_host_guid_be(view->fabric, view->host));

	(void)request;
	nupa_netlink_put_device(to);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_PORT_INDEX, PORTS);
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_CAP_FLAGS, nupa_device_caps());
	nupa_netlink_put_text(to, RDMA_NLDEV_ATTR_FW_VERSION, nupa_device_attr.fw_ver);
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_NODE_GUID, guid);
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, guid);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, IBV_NODE_CA);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_DEV_DIM, 0); /* none is moderated by itself */
	nupa_netlink_put_text(to, RDMA_NLDEV_ATTR_DEV_PROTOCOL, is_ethernet(view) ? "roce" : "ib");
	return 0;
}

int nupa_netlink_port(view_t *view, request_t *request, writer_t *to)
{
	const uint32_t netdev = nupa_host_netdev(view->fabric, view->host);
	struct ibv_port_attr attr;
	union ibv_gid gid;
	uint64_t prefix;

	(void)request;
	nupa_host_port_attr(view->fabric, view->host, &attr);
	nupa_netlink_put_device(to);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_PORT_INDEX, PORTS);
	/* ibv_query_port() alone shows IP_BASED_GIDS there. */
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_CAP_FLAGS,
			     attr.port_cap_flags & ~(uint32_t)IBV_PORT_IP_BASED_GIDS);
	if (!is_ethernet(view)) {
		nupa_host_gid(view->fabric, view->host, NUPA_GID_LINK, &gid);
		memcpy(&prefix, gid.raw, sizeof(prefix));
		nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_SUBNET_PREFIX, be64toh(prefix));
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_LID, attr.lid);
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_SM_LID, attr.sm_lid);
		nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_LMC, attr.lmc);
	}
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_PORT_STATE, (uint8_t)attr.state);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_PORT_PHYS_STATE, attr.phys_state);
	if (netdev) {
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_NDEV_INDEX, netdev);
		nupa_netlink_put_text(to, RDMA_NLDEV_ATTR_NDEV_NAME, "nupa_net0");
	}
	return 0;
}

int nupa_netlink_system(view_t *view, request_t *request, writer_t *to)
{
	(void)view;
	(void)request;
	/* A program has the device of its host in each network namespace. */
	nupa_netlink_put_u8(to, RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);
	/* IBV_FORK_UNNEEDED: ibv_is_fork_initialized(). */
	nupa_netlink_put_u8(to, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
	return 0;
}

/* --- counters ---------------------------------------------------------------------------- */

static void put_port(writer_t *to)
{
	nupa_netlink_put_device(to);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_PORT_INDEX, PORTS);
}

/* The files of hw_counters in sysfs, with their values or, for the status, their numbers. */
static void put_counters(view_t *view, bool status, writer_t *to)
{
	const uint32_t nest = nupa_netlink_nest(to, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
	uint32_t index = 0;

	for (uint32_t i = 0; i < nupa_shim_n_files; i++) {
		const struct nupa_shim_file *file = &nupa_shim_files[i];
		const char *name = strrchr(file->path, '/');
		char text[NUPA_SHIM_TEXT_MAX_BYTES];
		uint32_t entry;

		if (!file->say || !strstr(file->path, "/hw_counters/"))
			continue;
		entry = nupa_netlink_nest(to, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
		nupa_netlink_put_text(to, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name + 1);
		if (status) {
			nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX, index);
		} else {
			file->say(view, file->index, text, sizeof(text));
			nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE,
					     strtoull(text, NULL, 10));
		}
		nupa_netlink_nest_end(to, entry);
		index++;
	}
	nupa_netlink_nest_end(to, nest);
}

int nupa_netlink_counters(view_t *view, request_t *request, writer_t *to)
{
	(void)request;
	put_port(to);
	put_counters(view, false, to);
	return 0;
}

/* None is optional. */
int nupa_netlink_counter_status(view_t *view, request_t *request, writer_t *to)
{
	(void)request;
	put_port(to);
	put_counters(view, true, to);
	return 0;
}

/* QPs have no counters of their own. */
int nupa_netlink_counter_mode(view_t *view, request_t *request, writer_t *to)
{
	(void)view;
	if (request->given[RDMA_NLDEV_ATTR_STAT_COUNTER_ID])
		return -ENOENT;
	put_port(to);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_NONE);
	return 0;
}
