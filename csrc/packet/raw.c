/* SPDX-License-Identifier: BSD-3-Clause */
#include "packet/raw.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>

#define GSO_UDP 5 /* VIRTIO_NET_HDR_GSO_UDP_L4, which older headers do not have */

struct headers {
	struct iphdr ip;
	struct udphdr udp;
};

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* How long the link's header is: 0 for a tunnel. */
static bool find_link_bytes(struct msghdr *msg, uint32_t *bytes)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(msg); at; at = CMSG_NXTHDR(msg, at)) {
		struct tpacket_auxdata aux;

		if (at->cmsg_level != SOL_PACKET || at->cmsg_type != PACKET_AUXDATA ||
		    at->cmsg_len != CMSG_LEN(sizeof(aux)))
			continue;
		memcpy(&aux, CMSG_DATA(at), sizeof(aux));
		*bytes = (uint32_t)aux.tp_net - aux.tp_mac;
		return aux.tp_net >= aux.tp_mac;
	}
	return false;
}

/* Whether the IP packet is whole, within *n* bytes, and as the ICRC takes it to be. */
static bool is_roce(const struct headers *headers, uint32_t n)
{
	const uint32_t ip_bytes = ntohs(headers->ip.tot_len);

	return headers->ip.version == 4 && headers->ip.ihl == sizeof(headers->ip) / 4 &&
	       headers->ip.protocol == IPPROTO_UDP && headers->ip.frag_off == htons(IP_DF) &&
	       ip_bytes > sizeof(*headers) && ip_bytes <= n &&
	       ntohs(headers->udp.len) == ip_bytes - sizeof(headers->ip);
}

bool nupa_raw_read(struct msghdr *msg, uint32_t n, struct nupa_packets *packets)
{
	const uint8_t *bytes = msg->msg_iov->iov_base;
	struct virtio_net_hdr virtio;
	struct headers headers;
	uint32_t at;

	if (msg->msg_flags & MSG_TRUNC || !find_link_bytes(msg, &at))
		return false;
	at += (uint32_t)sizeof(virtio);
	if (n < at + sizeof(headers))
		return false;
	memcpy(&virtio, bytes, sizeof(virtio));
	memcpy(&headers, bytes + at, sizeof(headers));
	if (!is_roce(&headers, n - at))
		return false;
	*packets = (struct nupa_packets){
		.path = { .src_port = ntohs(headers.udp.source),
			  .identification = ntohs(headers.ip.id),
			  .tos = headers.ip.tos,
			  .ttl = headers.ip.ttl },
		.bytes = bytes + at + sizeof(headers),
		.n = ntohs(headers.ip.tot_len) - (uint32_t)sizeof(headers),
	};
	memcpy(packets->path.src, mapped, sizeof(mapped));
	memcpy(packets->path.dst, mapped, sizeof(mapped));
	memcpy(packets->path.src + 12, &headers.ip.saddr, 4);
	memcpy(packets->path.dst + 12, &headers.ip.daddr, 4);
	packets->segment =
	    virtio.gso_type == GSO_UDP && virtio.gso_size ? virtio.gso_size : packets->n;
	return true;
}
