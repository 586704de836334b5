// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Frames of this kernel: copied into the ring to their receiver, segments and checksums left to
 * it.  A frame without room is kept, and the queue stops until the receiver has taken something.
 */
#include "kernel/net/net.h"

/* The interval at which a receiver is asked for room, as in netdev/pump.c. */
#define ROOM_POLL_NS 50000

/* Copies the frame to *room*; false: no receiver could use it. */
static bool put(const struct sk_buff *skb, uint32_t mtu_bytes, uint8_t *room)
{
	struct virtio_net_hdr_v1 head = {};

	if (virtio_net_hdr_from_skb(skb, (struct virtio_net_hdr *)&head, true, false, 0) ||
	    skb_copy_bits(skb, 0, room + NUPA_VNET_BYTES, skb->len))
		return false;
	memcpy(room, &head, sizeof(head));
	return nupa_frame_valid(room, NUPA_VNET_BYTES + skb->len, mtu_bytes);
}

/* False: it is kept. */
static bool forward(struct net_port *port, const struct sk_buff *skb)
{
	const uint32_t bytes = NUPA_VNET_BYTES + skb->len;
	uint8_t *room;

	if (bytes <= NUPA_NET_FRAME_MAX_BYTES) {
		room = nupa_net_room(port->net);
		if (put(skb, port->dev->mtu, room))
			return nupa_forward(port->net, port->fabric, room, bytes);
	}
	nupa_count(&nupa_net_count(port->net)->tx_invalid, 1);
	return true;
}

netdev_tx_t net_transmit(struct sk_buff *skb, struct net_device *dev)
{
	struct net_port *port = netdev_priv(dev);

	skb_tx_timestamp(skb);
	nupa_net_lock(port->net);
	if (nupa_load_acquire(&nupa_kernel_halted)) {
		dev_core_stats_tx_dropped_inc(dev);
	} else if (!forward(port, skb)) {
		netif_stop_queue(dev);
		hrtimer_start(&port->retry, ROOM_POLL_NS, HRTIMER_MODE_REL_SOFT);
	}
	nupa_net_unlock(port->net);
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

enum hrtimer_restart net_retry(struct hrtimer *timer)
{
	struct net_port *port = container_of(timer, struct net_port, retry);
	bool sent;

	nupa_net_lock(port->net);
	sent = nupa_load_acquire(&nupa_kernel_halted) || nupa_net_retry(port->net);
	if (sent)
		netif_wake_queue(port->dev);
	nupa_net_unlock(port->net);
	if (sent)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ROOM_POLL_NS);
	return HRTIMER_RESTART;
}

/* A host whose interface takes no coalesced datagrams cannot separate them either. */
netdev_features_t net_features(struct sk_buff *skb, struct net_device *dev, netdev_features_t all)
{
	struct net_port *port = netdev_priv(dev);
	uint32_t host;
	bool takes;

	if (!(skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4))
		return all;
	nupa_net_lock(port->net);
	takes = nupa_frame_route(port->fabric, skb->data, &host) == NUPA_FRAME_ONE &&
		nupa_net_takes_coalesced(port->net, host);
	nupa_net_unlock(port->net);
	return takes ? all : all & ~NETIF_F_GSO_MASK;
}
