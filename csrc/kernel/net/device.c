// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The interface nupa_net0, of the kind "nupa":
 *
 *   ip link del nupa_net0
 *   ip link add nupa_net0 type nupa
 *
 * Its MAC address is that of the host, by which other interfaces reach it.  Its carrier is the
 * port.
 */
#include "kernel/net/net.h"

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/rtnetlink.h>

#define NAME "nupa_net%d"
#define SEGMENTED (NETIF_F_TSO | NETIF_F_TSO_ECN | NETIF_F_TSO6 | NETIF_F_GSO_UDP_L4)
#define FEATURES (NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA | NETIF_F_HW_CSUM | SEGMENTED)

static struct net_device *the_interface; /* with RTNL */

/* --- the engine's calls: with its lock ----------------------------------------------------- */

static void set_carrier(void *arg, bool up)
{
	struct net_port *port = arg;

	if (up)
		netif_carrier_on(port->dev);
	else
		netif_carrier_off(port->dev);
}

static void fenced(void *arg)
{
	set_carrier(arg, false);
}

static const struct nupa_net_ops calls = { net_deliver, set_carrier, fenced };

/* --- life ---------------------------------------------------------------------------------- */

static int net_attach(struct net_device *dev)
{
	struct net_port *port = netdev_priv(dev);
	const uint32_t host = nupa_engine_of(nupa_core_context())->host;
	char why[256] = "";

	if (the_interface) {
		pr_err("nupa_net: %s is the host's interface already\n", the_interface->name);
		return -EBUSY;
	}
	port->dev = dev;
	port->fabric = nupa_context_fabric(nupa_core_context());
	skb_queue_head_init(&port->received);
	hrtimer_init(&port->retry, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	port->retry.function = net_retry;
	eth_hw_addr_set(dev, port->fabric->hosts[host].mac);
	netif_napi_add(dev, &port->napi, net_poll);
	port->net = nupa_net_open(port->fabric, host, 0, true, &port->siblings, &calls, port, why,
				  sizeof(why));
	if (port->net) {
		the_interface = dev;
		return 0;
	}
	pr_err("nupa_net: no interface %s: %s\n", dev->name, why);
	netif_napi_del(&port->napi);
	return -nupa_errno;
}

static void net_detach(struct net_device *dev)
{
	struct net_port *port = netdev_priv(dev);

	nupa_kernel_net_close(port->net);
	port->net = NULL;
	the_interface = NULL;
	netif_napi_del(&port->napi);
}

static int net_open(struct net_device *dev)
{
	struct net_port *port = netdev_priv(dev);

	napi_enable(&port->napi);
	netif_start_queue(dev);
	nupa_net_lock(port->net);
	set_carrier(port,
		    !nupa_load_acquire(&nupa_kernel_halted) && nupa_net_port_is_up(port->net));
	nupa_net_unlock(port->net);
	return 0;
}

static int net_stop(struct net_device *dev)
{
	struct net_port *port = netdev_priv(dev);

	netif_stop_queue(dev);
	hrtimer_cancel(&port->retry);
	napi_disable(&port->napi);
	nupa_net_lock(port->net); /* a frame that is being delivered saw that this ran */
	nupa_net_forget(port->net);
	nupa_net_unlock(port->net);
	skb_queue_purge(&port->received);
	return 0;
}

#define COUNT(name) nupa_load_relaxed(&counters->name)

static void get_stats(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	const struct net_port *port = netdev_priv(dev);
	const struct nupa_net_counters *counters = nupa_net_count(port->net);

	stats->tx_packets = COUNT(tx_packets);
	stats->tx_bytes = COUNT(tx_bytes) - stats->tx_packets * NUPA_VNET_BYTES;
	stats->rx_packets = COUNT(rx_packets);
	stats->rx_bytes = COUNT(rx_bytes) - stats->rx_packets * NUPA_VNET_BYTES;
	stats->tx_dropped = COUNT(tx_unknown) + COUNT(tx_down) + COUNT(tx_full) +
			    COUNT(tx_partition) + COUNT(tx_invalid);
	stats->rx_dropped = COUNT(rx_invalid) + COUNT(rx_refused) + COUNT(rx_partition);
}

static const struct net_device_ops operations = {
	.ndo_init = net_attach,
	.ndo_uninit = net_detach,
	.ndo_open = net_open,
	.ndo_stop = net_stop,
	.ndo_start_xmit = net_transmit,
	.ndo_features_check = net_features,
	.ndo_get_stats64 = get_stats,
	.ndo_validate_addr = eth_validate_addr,
};

/* By which `nupa net up` knows it. */
static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "nupa_net", sizeof(info->driver));
}

static const struct ethtool_ops ethtool = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_ts_info = ethtool_op_get_ts_info,
};

static void setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &operations;
	dev->ethtool_ops = &ethtool;
	dev->needs_free_netdev = true;
	dev->features = dev->hw_features = dev->vlan_features = FEATURES;
	dev->min_mtu = NUPA_NETDEV_MTU_MIN_BYTES;
	dev->max_mtu = NUPA_NETDEV_MTU_MAX_BYTES;
	dev->mtu = NUPA_NETDEV_MTU_MAX_BYTES;
}

/* --- the kind ------------------------------------------------------------------------------ */

static struct rtnl_link_ops links = {
	.kind = "nupa",
	.priv_size = sizeof(struct net_port),
	.setup = setup,
};

static int __init net_init(void)
{
	struct net_device *dev;
	int error = rtnl_link_register(&links);

	if (error)
		return error;
	dev = alloc_netdev(sizeof(struct net_port), NAME, NET_NAME_ENUM, setup);
	if (dev) {
		dev->rtnl_link_ops = &links;
		error = register_netdev(dev);
	} else {
		error = -ENOMEM;
	}
	if (error) {
		rtnl_link_unregister(&links);
		if (dev)
			free_netdev(dev);
	}
	return error;
}

static void __exit net_exit(void)
{
	rtnl_link_unregister(&links); /* which removes its interfaces */
}

module_init(net_init);
module_exit(net_exit);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("NUPA: a network interface over a fabric in shared memory");
MODULE_ALIAS_RTNL_LINK("nupa");
