/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * nupa_net: a network interface of this kernel.  It is queue 0 of the host's interface, an
 * attachment of its own, and speaks the messages of the pump (csrc/netdev). */
#ifndef NUPA_KERNEL_NET_H
#define NUPA_KERNEL_NET_H

#include "kernel/core/core.h"
#include "netdev/forward.h"
#include "netdev/netdev.h"

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

struct net_port {
	struct net_device *dev;
	struct nupa_fabric *fabric;
	struct nupa_net *net; /* NULL: it is not registered */
	struct nupa_net_siblings siblings;
	struct napi_struct napi;
	struct sk_buff_head received; /* what the engine has delivered, for napi */
	struct hrtimer retry;         /* runs while a frame is kept */
};

/* transmit.c */
netdev_tx_t net_transmit(struct sk_buff *skb, struct net_device *dev);
enum hrtimer_restart net_retry(struct hrtimer *timer);
netdev_features_t net_features(struct sk_buff *skb, struct net_device *dev, netdev_features_t all);

/* receive.c: with the engine's lock; and what follows, in a soft interrupt. */
bool net_deliver(void *arg, const uint8_t *frame, uint32_t bytes);
int net_poll(struct napi_struct *napi, int budget);

#endif
