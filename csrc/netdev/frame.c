/* SPDX-License-Identifier: BSD-3-Clause
 * Frames: the checks before the kernel gets one from the fabric, or the fabric one from the kernel,
 * and their routing by destination address. */
#include "netdev/frame.h"

#include "engine/net/net.h"

static bool gso_valid(const struct virtio_net_hdr_v1 *vnet, uint32_t bytes, uint32_t mtu_bytes)
{
	switch (vnet->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		return vnet->gso_size > 0 && vnet->gso_size <= mtu_bytes && vnet->hdr_len <= bytes;
	default:
		return false;
	}
}

bool nupa_frame_valid(const uint8_t *frame, uint32_t bytes, uint32_t mtu_bytes)
{
	struct virtio_net_hdr_v1 vnet;
	uint16_t type;

	if (bytes < NUPA_VNET_BYTES + ETH_HLEN || bytes > NUPA_NET_FRAME_MAX_BYTES)
		return false;
	memcpy(&vnet, frame, sizeof(vnet));
	memcpy(&type, frame + NUPA_VNET_BYTES + 2 * ETH_ALEN, sizeof(type));
	bytes -= NUPA_VNET_BYTES;
	if (vnet.flags & ~(VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID))
		return false;
	if (vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
	    (vnet.csum_start < ETH_HLEN ||
	     (uint32_t)vnet.csum_start + vnet.csum_offset + sizeof(uint16_t) > bytes))
		return false;
	if (vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return gso_valid(&vnet, bytes, mtu_bytes);
	if (type == __builtin_bswap16(ETH_P_8021Q))
		mtu_bytes += NUPA_VLAN_BYTES;
	return bytes <= mtu_bytes + ETH_HLEN;
}

/* The last byte of a host's address is its number, which is its place in the table. */
static bool find_host(const struct nupa_fabric *fabric, const uint8_t mac[ETH_ALEN], uint32_t *host)
{
	const uint32_t n_hosts = fabric->geometry.n_hosts;
	uint32_t guess = mac[ETH_ALEN - 1] - 1u;

	if (likely(guess < n_hosts && !memcmp(fabric->hosts[guess].mac, mac, ETH_ALEN))) {
		*host = guess;
		return true;
	}
	for (*host = 0; *host < n_hosts; ++*host)
		if (!memcmp(fabric->hosts[*host].mac, mac, ETH_ALEN))
			return true;
	return false;
}

enum nupa_frame_way nupa_frame_route(const struct nupa_fabric *fabric, const uint8_t to[ETH_ALEN],
				     uint32_t *host)
{
	if (to[0] & 1)
		return NUPA_FRAME_ALL;
	return find_host(fabric, to, host) ? NUPA_FRAME_ONE : NUPA_FRAME_UNKNOWN;
}
