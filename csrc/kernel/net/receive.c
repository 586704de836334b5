// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Frames of the fabric: copied out of the ring by the engine, with its lock, and given to the
 * network stack by NAPI, without it, as the stack sends answers.
 */
#include "kernel/net/net.h"

#include <linux/etherdevice.h>

/* Frames that wait for the stack; further ones are dropped, as a NIC without buffers drops. */
#define BACKLOG_FRAMES 1024u
/* Longer frames have their headers here and the rest in pages. */
#define LINEAR_BYTES 2048u
#define HEADERS_BYTES 256u

static struct sk_buff *take(struct net_port *port, const uint8_t *frame, uint32_t bytes)
{
	const uint32_t linear = bytes <= LINEAR_BYTES ? bytes : HEADERS_BYTES;
	const uint32_t headroom = NET_SKB_PAD + NET_IP_ALIGN;
	struct sk_buff *skb;
	int error;

	skb = alloc_skb_with_frags(headroom + linear, bytes - linear, PAGE_ALLOC_COSTLY_ORDER,
				   &error, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	skb->dev = port->dev;
	skb_reserve(skb, headroom);
	skb_put(skb, linear);
	skb->data_len = bytes - linear;
	skb->len += skb->data_len;
	(void)skb_store_bits(skb, 0, frame, bytes); /* it has that length */
	return skb;
}

bool net_deliver(void *arg, const uint8_t *frame, uint32_t bytes)
{
	struct net_port *port = arg;
	struct nupa_net_counters *counters = nupa_net_count(port->net);
	struct virtio_net_hdr_v1 head;
	struct sk_buff *skb;

	if (!nupa_frame_valid(frame, bytes, READ_ONCE(port->dev->mtu))) {
		nupa_count(&counters->rx_invalid, 1);
		return false;
	}
	skb = netif_running(port->dev) && skb_queue_len_lockless(&port->received) < BACKLOG_FRAMES
		  ? take(port, frame + NUPA_VNET_BYTES, bytes - NUPA_VNET_BYTES)
		  : NULL;
	/* Its own copy is what it judges: the memory may change. */
	memcpy(&head, frame, sizeof(head));
	if (!skb || virtio_net_hdr_to_skb(skb, (struct virtio_net_hdr *)&head, true)) {
		dev_kfree_skb_any(skb);
		nupa_count(&counters->rx_refused, 1);
		return false;
	}
	skb->protocol = eth_type_trans(skb, port->dev);
	skb_queue_tail(&port->received, skb);
	napi_schedule(&port->napi);
	return true;
}

int net_poll(struct napi_struct *napi, int budget)
{
	struct net_port *port = container_of(napi, struct net_port, napi);
	struct sk_buff *skb;
	int done = 0;

	while (done < budget && (skb = skb_dequeue(&port->received))) {
		napi_gro_receive(napi, skb);
		done++;
	}
	/* A frame that comes in between schedules it again. */
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}
