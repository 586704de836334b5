/* SPDX-License-Identifier: BSD-3-Clause
 * Interfaces (interface.h).  The pump's thread reads frames from a TAP and sends them to the
 * fabric. The thread that runs the engine writes frames from the fabric to the TAP. */
#define _GNU_SOURCE
#include "netdev/interface.h"

#include "base/explain.h"
#include "netdev/forward.h"
#include "netdev/netdev.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>

#ifndef TUN_F_USO4 /* Linux 6.2 */
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

/* Frames read from one interface before its receivers and other interfaces have a turn. */
#define BUDGET_FRAMES 64u
#define BUDGET_BYTES (96u << 10)

#define COUNT(counters, counter) nupa_count(&(counters)->counter, 1)

/* --- from the fabric ----------------------------------------------------------------- */

static bool deliver(void *arg, const uint8_t *frame, uint32_t bytes)
{
	struct nupa_interface *interface = arg;
	struct nupa_net_counters *counters = nupa_net_count(interface->net);

	if (unlikely(!nupa_frame_valid(frame, bytes, interface->mtu_bytes))) {
		COUNT(counters, rx_invalid);
		return false;
	}
	/* EIO: it is down.  EINVAL: it rejects the header.  ENOMEM, EAGAIN: no memory. */
	if (unlikely(write(interface->fd, frame, bytes) < 0)) {
		COUNT(counters, rx_refused);
		return false;
	}
	return true;
}

static void set_carrier(void *arg, bool up)
{
	const struct nupa_interface *interface = arg;
	int carrier = up;

	if (interface->is_tap && ioctl(interface->fd, TUNSETCARRIER, &carrier))
		nupa_hint("cannot set the carrier of host %s's interface (%s)",
			  interface->fabric->hosts[nupa_net_host(interface->net)].name,
			  strerror(errno));
}

static void note_fenced(void *arg)
{
	struct nupa_interface *interface = arg;

	set_carrier(interface, false);
	nupa_store_release(&interface->fenced, true);
	(void)!write(interface->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

static const struct nupa_net_ops ops = {
	.deliver = deliver,
	.carrier = set_carrier,
	.fenced = note_fenced,
};

/* --- to the fabric ------------------------------------------------------------------- */

/* Whether it was a request that need not travel. */
static bool answer(struct nupa_interface *interface, const uint8_t *frame, uint32_t bytes)
{
	struct nupa_net *net = interface->net;
	struct nupa_net_counters *counters = nupa_net_count(net);
	uint8_t reply[NUPA_NEIGH_REPLY_MAX_BYTES];
	uint32_t host, reply_bytes;

	switch (nupa_neigh_ask(interface->fabric, nupa_net_host(net), frame, bytes, &host, reply,
			       &reply_bytes)) {
	case NUPA_NEIGH_NONE:
		return false;
	case NUPA_NEIGH_QUIET:
		return true;
	case NUPA_NEIGH_HOST:
		if (!nupa_net_shares(net, host))
			COUNT(counters, tx_partition);
		else if (!nupa_net_reaches(net, host))
			COUNT(counters, tx_down);
		else if (write(interface->fd, reply, reply_bytes) < 0)
			COUNT(counters, rx_refused);
		else
			COUNT(counters, tx_answered);
		return true;
	}
	return false;
}

static bool may_ask(const uint8_t *frame)
{
	const uint8_t *to = frame + NUPA_VNET_BYTES, *type = to + (size_t)2 * ETH_ALEN;

	/* ARP, to any host; ND has hop limit 255, which no routed packet has. */
	return (type[0] == ETH_P_ARP >> 8 && type[1] == (ETH_P_ARP & 0xff)) ||
	       (type[0] == ETH_P_IPV6 >> 8 && type[1] == (ETH_P_IPV6 & 0xff) && type[2 + 7] == 255);
}

/* False: it is kept until there is room. */
static bool handle(struct nupa_interface *interface, const uint8_t *frame, uint32_t bytes)
{
	struct nupa_net *net = interface->net;

	if (unlikely(!nupa_frame_valid(frame, bytes, interface->mtu_bytes))) {
		COUNT(nupa_net_count(net), tx_invalid);
		return true;
	}
	if (unlikely(bytes > NUPA_VNET_BYTES + ETH_HLEN + 8 && may_ask(frame)) &&
	    answer(interface, frame, bytes))
		return true;
	return nupa_forward(net, interface->fabric, frame, bytes);
}

/* Sends the coalesced datagrams: they are in their ring already, so this cannot fail. */
static void close_frame(struct nupa_interface *interface)
{
	uint32_t bytes = nupa_coalesce_end(&interface->open, interface->room);

	nupa_net_send(interface->net, interface->open_host, bytes);
	interface->room = nupa_net_room(interface->net);
}

static bool may_open(struct nupa_interface *interface, const uint8_t *frame, uint32_t bytes)
{
	if (!interface->coalesces || bytes < NUPA_VNET_BYTES + ETH_HLEN ||
	    !nupa_coalesce_begin(&interface->open, frame, bytes))
		return false;
	if (likely(nupa_frame_valid(frame, bytes, interface->mtu_bytes)) &&
	    nupa_frame_route(interface->fabric, frame + NUPA_VNET_BYTES, &interface->open_host) ==
		NUPA_FRAME_ONE &&
	    likely(nupa_net_may_coalesce(interface->net, interface->open_host)))
		return true;
	interface->open.bytes = 0;
	return false;
}

/* A frame was read behind the open ones, if any; false: it waits for room. */
static bool take(struct nupa_interface *interface, uint8_t *frame, uint32_t bytes)
{
	if (interface->open.bytes) {
		if (nupa_coalesce_join(&interface->open, interface->room, frame, bytes)) {
			if (interface->open.full)
				close_frame(interface);
			return true;
		}
		close_frame(interface);
		if (interface->room != frame) /* the end of the ring lay between */
			memmove(interface->room, frame, bytes);
	}
	if (may_open(interface, interface->room, bytes))
		return true;
	if (!handle(interface, interface->room, bytes))
		return false;
	interface->room = nupa_net_room(interface->net);
	return true;
}

static void read_frames(struct nupa_interface *interface)
{
	uint32_t frames = 0, bytes = 0;

	interface->room = nupa_net_room(interface->net);
	while (frames < BUDGET_FRAMES && bytes < BUDGET_BYTES) {
		/* Whole lines, as in the ring: it is in its place already. */
		uint8_t *frame = interface->room + ((interface->open.bytes + 63) & ~63u);
		ssize_t n = read(interface->fd, frame, NUPA_NET_FRAME_MAX_BYTES);

		if (unlikely(n <= 0)) {
			if (n < 0 && errno == EINTR)
				continue;
			interface->ready = false;
			/* EBADFD: the device was removed, with its namespace perhaps. */
			interface->lost = n == 0 || errno != EAGAIN;
			break;
		}
		frames++;
		bytes += (uint32_t)n;
		if (unlikely(!take(interface, frame, (uint32_t)n))) {
			interface->blocked = true;
			break;
		}
	}
	if (interface->open.bytes)
		close_frame(interface);
}

void nupa_interface_turn(struct nupa_interface *interface)
{
	nupa_net_lock(interface->net);
	if (interface->blocked)
		interface->blocked = !nupa_net_retry(interface->net);
	if (likely(!interface->blocked))
		read_frames(interface);
	nupa_net_unlock(interface->net);
	nupa_net_flush(interface->net);
}

/* --- life ---------------------------------------------------------------------------- */

/* The format of frames: a header of 12 bytes before each; checksums and segments are left to the
 * receiver. */
static int set_offloads(struct nupa_interface *interface)
{
	const unsigned long offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
	int header_bytes = NUPA_VNET_BYTES;

	if (ioctl(interface->fd, TUNSETVNETHDRSZ, &header_bytes))
		return -errno;
	interface->coalesces =
	    ioctl(interface->fd, TUNSETOFFLOAD, offloads | TUN_F_USO4 | TUN_F_USO6) == 0;
	return interface->coalesces || !ioctl(interface->fd, TUNSETOFFLOAD, offloads) ? 0 : -errno;
}

int nupa_interface_open(struct nupa_interface *interface, struct nupa_fabric *fabric, uint32_t host,
			uint32_t queue, struct nupa_net_siblings *siblings, int fd,
			uint32_t mtu_bytes, int wake, char *why, size_t why_bytes)
{
	struct ifreq request;
	int flags = fcntl(fd, F_GETFL), error;

	if (mtu_bytes < NUPA_NETDEV_MTU_MIN_BYTES || mtu_bytes > NUPA_NETDEV_MTU_MAX_BYTES)
		return nupa_explain(-EINVAL, why, why_bytes, "an MTU of %u bytes: choose %u to %u",
				    mtu_bytes, NUPA_NETDEV_MTU_MIN_BYTES,
				    NUPA_NETDEV_MTU_MAX_BYTES);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return nupa_explain(-errno, why, why_bytes, "descriptor %d: %s", fd,
				    strerror(errno));
	memset(interface, 0, sizeof(*interface));
	memset(&request, 0, sizeof(request));
	interface->fabric = fabric;
	interface->fd = fd;
	interface->wake = wake;
	interface->mtu_bytes = mtu_bytes;
	interface->is_tap = ioctl(fd, TUNGETIFF, &request) == 0;
	error = interface->is_tap ? set_offloads(interface) : 0;
	if (error)
		return nupa_explain(error, why, why_bytes, "the TAP's offloads: %s",
				    strerror(-error));
	interface->net = nupa_net_open(fabric, host, queue, interface->coalesces, siblings, &ops,
				       interface, why, why_bytes);
	if (!interface->net)
		return -errno;
	nupa_net_lock(interface->net);
	set_carrier(interface, nupa_net_port_is_up(interface->net));
	nupa_net_unlock(interface->net);
	return 0;
}

void nupa_interface_close(struct nupa_interface *interface)
{
	nupa_net_close(interface->net);
	close(interface->fd);
}
