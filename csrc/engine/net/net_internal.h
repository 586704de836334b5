/* SPDX-License-Identifier: BSD-3-Clause
 * A queue of a network interface, for the files that make it: net.c, net_life.c. */
#ifndef NUPA_NET_INTERNAL_H
#define NUPA_NET_INTERNAL_H

#include "engine/net/net.h"
#include "engine/rate/rate.h"

struct nupa_net {
	struct nupa_engine *engine;
	struct nupa_net_counters *counters;
	const struct nupa_net_ops *ops;
	void *arg;
	struct nupa_net_siblings *siblings;
	uint32_t queue;

	/* Where frames for a host go: its slot, 0: nowhere.  As of net_epoch. */
	uint32_t epoch_seen;
	uint32_t slots[NUPA_HOSTS_MAX];
	/* Hosts that share no partition with this one.  As of port_epoch. */
	uint32_t partitions_seen[NUPA_HOSTS_MAX];
	bool parted[NUPA_HOSTS_MAX];
	/* A ring whose receiver's patience is over: how far it had come then, + 1. */
	uint64_t stalled[NUPA_HOSTS_MAX];

	uint32_t ahead; /* slot where the last frame went */
	/* Between lock and unlock: the channel in whose ring `room` is; NULL: it is `scratch`. */
	struct nupa_channel *room_channel;
	uint8_t *room;
	uint8_t *scratch;
	uint32_t kept_bytes; /* in scratch, waiting for room; 0: none is */
	uint32_t kept_host;
	uint64_t kept_since_ns;
	uint64_t waits_until_ns;     /* it waits for its rate; 0: not for that */
	struct nupa_net_pace *paces; /* by host; NULL: there never was a rate (net_pace.c) */
	/* Slots whose rings were sent to: to be woken at unlock; to be run after it. */
	struct nupa_channel *asleep[NUPA_SLOTS_MAX];
	struct nupa_net *idle[NUPA_SLOTS_MAX];
	uint32_t n_asleep, n_idle;
};

/* Whether the slot is a queue of a host's interface, and which. */
bool nupa_net_serves(const struct nupa_fabric *fabric, uint32_t slot, uint32_t *host,
		     uint32_t *queue);

/* net_pace.c; where engine->rates is not NULL: whether the frame may go now; else it is asked again
 * at waits_until_ns. */
bool nupa_net_may_go(struct nupa_net *net, uint32_t host, uint32_t frame_bytes);
/* A frame that waits for nothing counts all the same. */
void nupa_net_charge(struct nupa_net *net, uint32_t host, uint32_t frame_bytes);
bool nupa_net_is_rated(struct nupa_net *net, uint32_t host);

/* Changes while other threads look; their answer matters for slots that do not change then. */
static inline struct nupa_net *nupa_net_sibling(const struct nupa_net *net, uint32_t slot)
{
	return nupa_load_relaxed(&net->siblings->by_slot[slot]);
}

#endif
