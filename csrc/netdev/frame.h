/* SPDX-License-Identifier: BSD-3-Clause
 * Frames as the pump sees them: their validity and their destination.  Plain functions of bytes.  A
 * frame is a virtio_net_hdr_v1 with an Ethernet frame behind it. */
#ifndef NUPA_FRAME_H
#define NUPA_FRAME_H

#include "engine/device/device.h"

#include <linux/if_ether.h>
#include <linux/virtio_net.h>

#define NUPA_VNET_BYTES ((uint32_t)sizeof(struct virtio_net_hdr_v1))
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4 /* Linux 6.2 */
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#define NUPA_VLAN_BYTES 4u

/* Not a runt, not longer than the MTU permits, with offsets inside it: a kernel may be given it.
 * The frame may change meanwhile: then the kernel's own checks remain. */
bool nupa_frame_valid(const uint8_t *frame, uint32_t bytes, uint32_t mtu_bytes);

enum nupa_frame_way {
	NUPA_FRAME_ONE,     /* to *host */
	NUPA_FRAME_ALL,     /* broadcast, multicast */
	NUPA_FRAME_UNKNOWN, /* an address without a host */
};
/* By the destination address, with which an Ethernet frame begins. */
enum nupa_frame_way nupa_frame_route(const struct nupa_fabric *fabric, const uint8_t to[ETH_ALEN],
				     uint32_t *host);

/* neigh.c: is it a request for the link address of a host (ARP, RFC 826; ND, RFC 4861)? */
#define NUPA_NEIGH_REPLY_MAX_BYTES 98u /* a Neighbor Advertisement with its option */
enum nupa_neigh {
	NUPA_NEIGH_NONE,  /* no such request, or about an address of no host */
	NUPA_NEIGH_HOST,  /* about *host; the answer is in *reply* */
	NUPA_NEIGH_QUIET, /* no answer: about the requester itself */
};
enum nupa_neigh nupa_neigh_ask(const struct nupa_fabric *fabric, uint32_t asker,
			       const uint8_t *frame, uint32_t bytes, uint32_t *host,
			       uint8_t reply[NUPA_NEIGH_REPLY_MAX_BYTES], uint32_t *reply_bytes);

#endif
