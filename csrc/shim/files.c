/* SPDX-License-Identifier: BSD-3-Clause
 * The files that clients of a kernel's RDMA device read, by their paths, and their content: words
 * and units as in the kernel's Documentation/ABI/stable/sysfs-class-infiniband. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "engine/device/device.h"
#include "mad/mad.h"
#include "segment/control/pkey.h"
#include "segment/gid.h"
#include "segment/rate.h"
#include "shim/umad.h"

#include <stdio.h>

#define PCI NUPA_SHIM_PCI_DEVICE
#define DEVICE PCI "/infiniband/nupa_rdma0"
#define PORT DEVICE "/ports/1"
#define VERBS PCI "/infiniband_verbs/uverbs0"
#define MAD PCI "/infiniband_mad/umad0"
#define ISSM PCI "/infiniband_mad/issm0"
#define NETDEV PCI "/net/nupa_net0"
#define CHARACTER_DEVICE "1:7\n" /* of /dev/full */

typedef const struct nupa_shim_view view_t;

static const struct nupa_host *host_of(view_t *view)
{
	return &view->fabric->hosts[view->host];
}

static const struct nupa_port *port_of(view_t *view)
{
	return &view->fabric->ports[host_of(view)->port];
}

static bool is_active(view_t *view)
{
	return nupa_load_relaxed(&port_of(view)->state) == NUPA_PORT_ACTIVE;
}

static bool is_ethernet(view_t *view)
{
	return host_of(view)->link_layer == NUPA_LINK_ETHERNET;
}

#define SAY(name) static void name(view_t *view, uint32_t index, char *text, size_t bytes)

SAY(guid)
{
	union ibv_gid gid;
	const uint8_t *b = &gid.raw[8];

	(void)index;
	nupa_host_gid(view->fabric, view->host, NUPA_GID_LINK, &gid);
	snprintf(text, bytes, "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[0], b[1], b[2], b[3], b[4],
		 b[5], b[6], b[7]);
}

SAY(gid)
{
	union ibv_gid gid = { 0 };
	size_t at = 0;

	if (index < nupa_host_gids(view->fabric, view->host))
		nupa_host_gid(view->fabric, view->host, (int)index, &gid);
	for (uint32_t i = 0; i < 16 && at < bytes; i += 2)
		at += (size_t)snprintf(text + at, bytes - at, "%02x%02x%c", gid.raw[i],
				       gid.raw[i + 1], i < 14 ? ':' : '\n');
}

/* Those of wires come and go.  UCX 1.13 takes no device where a type is empty. */
SAY(gid_type)
{
	(void)view;
	(void)index;
	snprintf(text, bytes, "RoCE v2\n");
}

SAY(gid_netdev)
{
	if (index < nupa_host_gids(view->fabric, view->host))
		snprintf(text, bytes, "nupa_net0\n");
}

SAY(pkey)
{
	snprintf(text, bytes, "0x%04x\n", nupa_pkey_at(view->fabric, view->host, index));
}

SAY(node_desc)
{
	(void)index;
	snprintf(text, bytes, "%.*s nupa_rdma0\n", (int)sizeof(host_of(view)->name),
		 host_of(view)->name);
}

SAY(state)
{
	(void)index;
	snprintf(text, bytes, is_active(view) ? "4: ACTIVE\n" : "1: DOWN\n");
}

SAY(phys_state)
{
	(void)index;
	snprintf(text, bytes, is_active(view) ? "5: LinkUp\n" : "3: Disabled\n");
}

SAY(rate_of_port)
{
	const struct nupa_port_rate rate = nupa_port_rate(port_of(view));

	(void)index;
	snprintf(text, bytes, "%u%s Gb/sec (%uX %s)\n", rate.mbps / 1000,
		 rate.mbps % 1000 ? ".5" : "", rate.lanes, rate.name);
}

SAY(link_layer)
{
	(void)index;
	snprintf(text, bytes, is_ethernet(view) ? "Ethernet\n" : "InfiniBand\n");
}

SAY(lid)
{
	(void)index;
	snprintf(text, bytes, "0x%x\n", is_ethernet(view) ? 0 : host_of(view)->lid);
}

SAY(sm_lid)
{
	(void)index;
	snprintf(text, bytes, "0x%x\n",
		 is_ethernet(view) ? 0u : nupa_host_sm_lid(view->fabric, view->host));
}

SAY(cap_mask)
{
	const struct nupa_subnet subnet = { .fabric = view->fabric, .is_sm = nupa_mailbox_is_sm };

	(void)index;
	snprintf(text, bytes, "0x%08x\n",
		 is_ethernet(view) ? IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS
				   : nupa_sma_cap_mask(&subnet, view->host));
}

SAY(mac)
{
	const uint8_t *mac = host_of(view)->mac;

	(void)index;
	snprintf(text, bytes, "%02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2], mac[3],
		 mac[4], mac[5]);
}

SAY(operstate)
{
	(void)index;
	snprintf(text, bytes, is_active(view) ? "up\n" : "down\n");
}

SAY(carrier)
{
	(void)index;
	snprintf(text, bytes, is_active(view) ? "1\n" : "0\n");
}

SAY(speed)
{
	(void)index;
	snprintf(text, bytes, "%u\n", nupa_port_rate(port_of(view)).mbps);
}

#define TEXT(at, constant)                                                                         \
	{                                                                                          \
		.path = (at), .text = (constant)                                                   \
	}
#define SAID(at, function, ...)                                                                    \
	{                                                                                          \
		.path = (at), .say = (function), __VA_ARGS__                                       \
	}
#define GID(number) SAID(PORT "/gids/" #number, gid, .index = (number))
#define WIRE_GID(number)                                                                           \
	SAID(PORT "/gids/" #number, gid, .index = (number), .live = true),                         \
	    SAID(PORT "/gid_attrs/types/" #number, gid_type, .index = (number), .live = true,      \
		 .ethernet_only = true),                                                           \
	    SAID(PORT "/gid_attrs/ndevs/" #number, gid_netdev, .index = (number), .live = true,    \
		 .ethernet_only = true)
#define PKEY(number) SAID(PORT "/pkeys/" #number, pkey, .index = (number), .live = true)
#define TEN_PKEYS(tens)                                                                            \
	PKEY(tens##0), PKEY(tens##1), PKEY(tens##2), PKEY(tens##3), PKEY(tens##4), PKEY(tens##5),  \
	    PKEY(tens##6), PKEY(tens##7), PKEY(tens##8), PKEY(tens##9)
#define COUNTER(name, which)                                                                       \
	SAID(PORT "/counters/" name, nupa_shim_counter, .index = (which), .live = true)
#define HW_AT(name) offsetof(struct nupa_hw_counters, name)
#define HW(name)                                                                                   \
	SAID(PORT "/hw_counters/" #name, nupa_shim_hw_counter, .index = HW_AT(name), .live = true)
#define ZERO(name) TEXT(PORT "/counters/" name, "0\n")
/* A name of the kernel's for a counter of ours. */
#define ALSO(at, function, which)                                                                  \
	SAID(PORT at, nupa_shim_##function, .index = (which), .live = true)
#define WIRE_COUNTER(name, field)                                                                  \
	SAID(PORT "/hw_counters/" name, nupa_shim_wire_counter,                                    \
	     .index = offsetof(struct nupa_wire_entry, field), .live = true,                       \
	     .ethernet_only = true)
#define PCI_BUS NUPA_SHIM_PCI_BUS "/pci_bus/4e55:00"
#define PCI_FILE(name, which) SAID(PCI "/" name, nupa_shim_pci, .index = NUPA_SHIM_PCI_##which)
#define LINK(at, to)                                                                               \
	{                                                                                          \
		.path = (at), .text = (to), .link = true                                           \
	}
#define ETHERNET_LINK(at, to)                                                                      \
	{                                                                                          \
		.path = (at), .text = (to), .link = true, .ethernet_only = true                    \
	}

const struct nupa_shim_file nupa_shim_files[] = {
	TEXT(DEVICE "/node_type", "1: CA\n"),
	TEXT(DEVICE "/hca_type", "NUPA\n"),
	TEXT(DEVICE "/board_id", "NUPA\n"),
	TEXT(DEVICE "/hw_rev", "1\n"),
	TEXT(DEVICE "/fw_ver", "nupa-1\n"),
	TEXT(DEVICE "/abi_version", "1\n"),
	SAID(DEVICE "/node_guid", guid, 0),
	SAID(DEVICE "/sys_image_guid", guid, 0),
	SAID(DEVICE "/node_desc", node_desc, 0),

	SAID(PORT "/state", state, .live = true),
	SAID(PORT "/phys_state", phys_state, .live = true),
	SAID(PORT "/rate", rate_of_port, 0),
	SAID(PORT "/link_layer", link_layer, 0),
	SAID(PORT "/lid", lid, 0),
	TEXT(PORT "/lid_mask_count", "0\n"),
	SAID(PORT "/sm_lid", sm_lid, .live = true),
	TEXT(PORT "/sm_sl", "0\n"),
	SAID(PORT "/cap_mask", cap_mask, .live = true),
	PKEY(0),
	PKEY(1),
	PKEY(2),
	PKEY(3),
	PKEY(4),
	PKEY(5),
	PKEY(6),
	PKEY(7),
	PKEY(8),
	PKEY(9),
	TEN_PKEYS(1),
	TEN_PKEYS(2),
	TEN_PKEYS(3),
	TEN_PKEYS(4),
	TEN_PKEYS(5),
	TEN_PKEYS(6),
	TEN_PKEYS(7),
	TEN_PKEYS(8),
	TEN_PKEYS(9),
	TEN_PKEYS(10),
	TEN_PKEYS(11),
	PKEY(120),
	PKEY(121),
	PKEY(122),
	PKEY(123),
	PKEY(124),
	PKEY(125),
	PKEY(126),
	PKEY(127),
	GID(0),
	GID(1),
	GID(2),
	WIRE_GID(3),
	WIRE_GID(4),
	WIRE_GID(5),
	WIRE_GID(6),
	WIRE_GID(7),
	{ .path = PORT "/gid_attrs/types/0", .text = "RoCE v2\n", .ethernet_only = true },
	{ .path = PORT "/gid_attrs/types/1", .text = "RoCE v2\n", .ethernet_only = true },
	{ .path = PORT "/gid_attrs/types/2", .text = "RoCE v2\n", .ethernet_only = true },
	{ .path = PORT "/gid_attrs/ndevs/0", .text = "nupa_net0\n", .ethernet_only = true },
	{ .path = PORT "/gid_attrs/ndevs/1", .text = "nupa_net0\n", .ethernet_only = true },
	{ .path = PORT "/gid_attrs/ndevs/2", .text = "nupa_net0\n", .ethernet_only = true },

	COUNTER("port_xmit_data", NUPA_SHIM_XMIT_DATA),
	COUNTER("port_xmit_packets", NUPA_SHIM_XMIT_PACKETS),
	COUNTER("port_rcv_data", NUPA_SHIM_RCV_DATA),
	COUNTER("port_rcv_packets", NUPA_SHIM_RCV_PACKETS),
	COUNTER("port_xmit_wait", NUPA_SHIM_XMIT_WAIT),
	COUNTER("port_xmit_discards", NUPA_SHIM_XMIT_DISCARDS),
	COUNTER("link_downed", NUPA_SHIM_LINK_DOWNED),
	ZERO("VL15_dropped"),
	ZERO("excessive_buffer_overrun_errors"),
	ZERO("link_error_recovery"),
	ZERO("local_link_integrity_errors"),
	ZERO("port_rcv_constraint_errors"),
	ZERO("port_rcv_errors"),
	ZERO("port_rcv_remote_physical_errors"),
	ZERO("port_rcv_switch_relay_errors"),
	ZERO("port_xmit_constraint_errors"),
	ZERO("symbol_error"),
	HW(rx_no_receive),
	HW(rx_out_of_sequence),
	HW(duplicate_request),
	HW(rx_invalid),
	HW(qkey_violations),
	HW(pkey_violations),
	HW(rx_icrc_errors),
	HW(rx_injected),
	HW(packet_seq_err),
	HW(local_ack_timeout_err),
	HW(fault_dropped),
	HW(fault_duplicated),
	HW(fault_reordered),
	HW(fault_delayed),
	HW(link_retries),
	HW(fault_poisoned),
	HW(fault_flaps),
	HW(fault_stuck),
	HW(fault_killed),
	HW(tx_no_room),
	HW(multicast_xmit_packets),
	HW(multicast_rcv_packets),
	HW(send_rnr_err),
	HW(rcvd_rnr_err),
	HW(retry_exceeded_err),
	HW(retry_rnr_exceeded_err),
	/* As adapters and the kernel's soft-RoCE (drivers/infiniband/sw/rxe/rxe_hw_counters.c) name
	 * them.  Its rdma_sends, rdma_recvs and ack_deferred would be counted in each call. */
	COUNTER("unicast_xmit_packets", NUPA_SHIM_UNICAST_XMIT),
	COUNTER("unicast_rcv_packets", NUPA_SHIM_UNICAST_RCV),
	ALSO("/counters/multicast_xmit_packets", hw_counter, HW_AT(multicast_xmit_packets)),
	ALSO("/counters/multicast_rcv_packets", hw_counter, HW_AT(multicast_rcv_packets)),
	ALSO("/hw_counters/sent_pkts", counter, NUPA_SHIM_XMIT_PACKETS),
	ALSO("/hw_counters/rcvd_pkts", counter, NUPA_SHIM_RCV_PACKETS),
	ALSO("/hw_counters/send_err", counter, NUPA_SHIM_XMIT_DISCARDS),
	ALSO("/hw_counters/link_downed", counter, NUPA_SHIM_LINK_DOWNED),
	ALSO("/hw_counters/completer_retry_err", counter, NUPA_SHIM_RETRIES),
	ALSO("/hw_counters/out_of_seq_request", hw_counter, HW_AT(rx_out_of_sequence)),
	ALSO("/hw_counters/rcvd_seq_err", hw_counter, HW_AT(packet_seq_err)),

	/* As mlx5 names them (drivers/infiniband/hw/mlx5/counters.c). */
	WIRE_COUNTER("np_ecn_marked_roce_packets", ecn_marked),
	WIRE_COUNTER("np_cnp_sent", cnp_sent),
	WIRE_COUNTER("rp_cnp_handled", cnp_handled),
	WIRE_COUNTER("rx_icrc_encapsulated", icrc_errors),
	/* As bnxt_re (drivers/infiniband/hw/bnxt_re/hw_counters.c) and efa (efa_verbs.c) do. */
	WIRE_COUNTER("rx_roce_errors", malformed),
	WIRE_COUNTER("rx_roce_discards", foreign),
	WIRE_COUNTER("tx_roce_errors", refused),
	WIRE_COUNTER("retrans_pkts", retransmitted),

	/* The PCI device and its place. */
	PCI_FILE("vendor", VENDOR),
	PCI_FILE("device", PART),
	PCI_FILE("subsystem_vendor", VENDOR),
	PCI_FILE("subsystem_device", PART),
	PCI_FILE("revision", REVISION),
	PCI_FILE("class", CLASS),
	PCI_FILE("uevent", UEVENT),
	PCI_FILE("modalias", MODALIAS),
	PCI_FILE("current_link_speed", SPEED),
	PCI_FILE("max_link_speed", SPEED),
	PCI_FILE("current_link_width", WIDTH),
	PCI_FILE("max_link_width", WIDTH),
	PCI_FILE("local_cpus", CPUS),
	PCI_FILE("local_cpulist", CPU_LIST),
	TEXT(PCI "/numa_node", "-1\n"), /* none: memory of the fabric is on any */
	TEXT(PCI "/enable", "1\n"),
	SAID(PCI_BUS "/cpuaffinity", nupa_shim_pci, .index = NUPA_SHIM_PCI_CPUS),
	SAID(PCI_BUS "/cpulistaffinity", nupa_shim_pci, .index = NUPA_SHIM_PCI_CPU_LIST),
	LINK("/sys/class/pci_bus/4e55:00", PCI_BUS),
	LINK(NUPA_SHIM_PCI_ON_BUS, PCI),
	LINK("/sys/bus/pci/drivers/nupa/" NUPA_SHIM_PCI, PCI),
	LINK(PCI "/subsystem", "/sys/bus/pci"),
	LINK(PCI "/driver", "/sys/bus/pci/drivers/nupa"),
	LINK("/sys/class/infiniband/nupa_rdma0", DEVICE),
	LINK(DEVICE "/device", PCI),
	LINK(DEVICE "/subsystem", "/sys/class/infiniband"),
	TEXT(DEVICE "/uevent", "NAME=nupa_rdma0\n"),

	TEXT("/sys/class/infiniband_verbs/abi_version", "6\n"),
	LINK("/sys/class/infiniband_verbs/uverbs0", VERBS),
	LINK(VERBS "/device", PCI),
	TEXT(VERBS "/abi_version", "1\n"),
	TEXT(VERBS "/ibdev", "nupa_rdma0\n"),
	TEXT(VERBS "/dev", CHARACTER_DEVICE),
	TEXT("/sys/class/infiniband_mad/abi_version", "5\n"),
	LINK("/sys/class/infiniband_mad/umad0", MAD),
	LINK(MAD "/device", PCI),
	TEXT(MAD "/ibdev", "nupa_rdma0\n"),
	TEXT(MAD "/port", "1\n"),
	{ .path = "/sys/class/infiniband_mad/issm0",
	  .text = ISSM,
	  .link = true,
	  .infiniband_only = true },
	{ .path = ISSM "/device", .text = PCI, .link = true, .infiniband_only = true },
	{ .path = ISSM "/ibdev", .text = "nupa_rdma0\n", .infiniband_only = true },
	{ .path = ISSM "/port", .text = "1\n", .infiniband_only = true },

	ETHERNET_LINK("/sys/class/net/nupa_net0", NETDEV),
	ETHERNET_LINK(NETDEV "/device", PCI),
	ETHERNET_LINK(NETDEV "/subsystem", "/sys/class/net"),
	{ .path = NETDEV "/address", .say = mac, .ethernet_only = true },
	{ .path = NETDEV "/addr_len", .text = "6\n", .ethernet_only = true },
	{ .path = NETDEV "/type", .text = "1\n", .ethernet_only = true }, /* ARPHRD_ETHER */
	{ .path = NETDEV "/dev_id", .text = "0x0\n", .ethernet_only = true },
	{ .path = NETDEV "/dev_port", .text = "0\n", .ethernet_only = true },
	{ .path = NETDEV "/operstate", .say = operstate, .live = true, .ethernet_only = true },
	{ .path = NETDEV "/carrier", .say = carrier, .live = true, .ethernet_only = true },
	{ .path = NETDEV "/speed", .say = speed, .ethernet_only = true },

	/* A character device that rejects each command: writing gives ENOSPC, an ioctl ENOTTY. The
	 * commands behind it are the kernel's, which are not emulated here.  There is no rdma_cm:
	 * a library that finds it goes on to speak to the kernel.  open of umad0 and issm0 is
	 * umad/'s. */
	{ .path = "/dev/infiniband/uverbs0", .text = "/dev/full", .link = true },
	{ .path = "/dev/infiniband/umad0", .text = "/dev/full", .link = true },
	{ .path = "/dev/infiniband/issm0",
	  .text = "/dev/full",
	  .link = true,
	  .infiniband_only = true },
};

const uint32_t nupa_shim_n_files = sizeof(nupa_shim_files) / sizeof(nupa_shim_files[0]);
