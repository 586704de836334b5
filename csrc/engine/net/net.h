/* SPDX-License-Identifier: BSD-3-Clause
 * The core's face towards the netdev: frames between the network interfaces of hosts, through the
 * channels that verbs use.  It needs hosts, queues and bytes, and never looks into a frame.
 *
 * A queue of a host's interface is an attachment of its own.  Queue k sends to queue k of other
 * hosts, or to queue 0 where there is none.  One thread sends (the pump); the thread that runs the
 * engine delivers frames that arrive. */
#ifndef NUPA_NET_H
#define NUPA_NET_H

#include "engine/trace/publish.h"

/* The longest frame: IPv6's largest packet, behind Ethernet's header with a VLAN tag and
 * virtio_net_hdr_v1; whole lines. */
#define NUPA_NET_FRAME_MAX_BYTES 65664u
/* Room for one frame behind a short one. */
#define NUPA_NET_ROOM_BYTES (NUPA_NET_FRAME_MAX_BYTES + (16u << 10))
#define NUPA_NET_QUEUES_MAX 16u

struct nupa_net;

struct nupa_net_ops { /* both with the engine's lock held, so short */
	/* Gives a frame to the host.  It lies in memory that others may change meanwhile.  False:
	 * dropped and counted. */
	bool (*deliver)(void *arg, const uint8_t *frame, uint32_t frame_bytes);
	void (*carrier)(void *arg, bool up); /* the port's state has changed */
	/* Others declared this process dead (nupa_engine_fence): nothing comes or goes any more. */
	void (*fenced)(void *arg);
};

/* Nets of one pump, by their slots: one thread serves them all, so none needs a doorbell. */
struct nupa_net_siblings {
	struct nupa_net *by_slot[NUPA_SLOTS_MAX];
};

/* Attaches as *queue* of the host's interface.  A failure returns NULL with errno, and *why*
 * filled.  EBUSY: another process is that queue.  EMSGSIZE: the fabric's DMA channels are too small
 * for a frame.  Others: as nupa_open_host. */
struct nupa_net *nupa_net_open(struct nupa_fabric *fabric, uint32_t host, uint32_t queue,
			       bool takes_coalesced, struct nupa_net_siblings *siblings,
			       const struct nupa_net_ops *ops, void *arg, char *why,
			       size_t why_bytes);
void nupa_net_close(struct nupa_net *net);

bool nupa_net_port_is_up(struct nupa_net *net);
uint32_t nupa_net_host(const struct nupa_net *net);
struct nupa_net_counters *nupa_net_count(struct nupa_net *net); /* ours alone to change */

/* The one thread that sends calls these, between lock and unlock. */
void nupa_net_lock(struct nupa_net *net);
void nupa_net_unlock(struct nupa_net *net);

/* The place for the next frame, NUPA_NET_ROOM_BYTES: in the ring to the last frame's receiver,
 * since most go to the same one.  A frame to another receiver is copied there. */
uint8_t *nupa_net_room(struct nupa_net *net);
/* Whether the interface of *host* takes coalesced frames, and so separates datagrams. */
bool nupa_net_takes_coalesced(struct nupa_net *net, uint32_t host);
/* The same, and that room is in the ring to it. */
bool nupa_net_may_coalesce(struct nupa_net *net, uint32_t host);
/* Whether a queue of that host's interface is attached. */
bool nupa_net_reaches(struct nupa_net *net, uint32_t host);
/* Whether that host shares a partition with this one; otherwise neither learns of the other. */
bool nupa_net_shares(struct nupa_net *net, uint32_t host);
/* Sends the frame, or drops and counts it.  False: the receiver has no room or a rate does not
 * allow it yet, and the frame is kept.  Call nupa_net_retry until it returns true, before asking
 * for the next room. */
bool nupa_net_send(struct nupa_net *net, uint32_t host, uint32_t frame_bytes);
bool nupa_net_retry(struct nupa_net *net);
/* Drops the frame that is kept, if there is one. */
void nupa_net_forget(struct nupa_net *net);
/* When the frame that is kept may go by its rate, in ns; 0: it waits for room. */
uint64_t nupa_net_waits_until_ns(const struct nupa_net *net);
/* To all other hosts; who has no room loses it. */
void nupa_net_flood(struct nupa_net *net, uint32_t frame_bytes);

/* After unlock, which wakes receivers: runs those that are siblings. */
void nupa_net_flush(struct nupa_net *net);

/* Called by the engine.  False: nonsense. */
bool nupa_net_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		      const struct nupa_msg *msg, const uint8_t *payload);
/* Whether the producer's thread itself takes from this channel, so that no other thread looks. */
bool nupa_net_runs(const struct nupa_engine *engine, const struct nupa_channel *channel);
void nupa_net_port_changed(struct nupa_engine *engine, bool up);
void nupa_net_fenced(struct nupa_engine *engine);

#endif
