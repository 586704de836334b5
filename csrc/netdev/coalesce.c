/* SPDX-License-Identifier: BSD-3-Clause
 * Coalescing of UDP datagrams (coalesce.h): only those whose checksum the kernel left to be
 * computed, since it leaves the receiver's to be verified, too. */
#include "netdev/coalesce.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>

#define IP_AT (NUPA_VNET_BYTES + ETH_HLEN)

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* Bytes of an IP header that UDP follows at once; 0: another packet.  Neither a fragment nor ever
 * to be one, so its identification has no meaning (RFC 6864 4.1). */
static uint32_t udp_in(const uint8_t *ip, uint32_t bytes)
{
	if (bytes >= sizeof(struct iphdr) + sizeof(struct udphdr) && ip[0] == 0x45 &&
	    get16(ip + offsetof(struct iphdr, frag_off)) == IP_DF &&
	    ip[offsetof(struct iphdr, protocol)] == IPPROTO_UDP &&
	    get16(ip + offsetof(struct iphdr, tot_len)) == bytes)
		return sizeof(struct iphdr);
	if (bytes >= sizeof(struct ip6_hdr) + sizeof(struct udphdr) && ip[0] >> 4 == 6 &&
	    ip[offsetof(struct ip6_hdr, ip6_nxt)] == IPPROTO_UDP &&
	    get16(ip + offsetof(struct ip6_hdr, ip6_plen)) == bytes - sizeof(struct ip6_hdr))
		return sizeof(struct ip6_hdr);
	return 0;
}

bool nupa_coalesce_begin(struct nupa_coalesced *c, const uint8_t *frame, uint32_t bytes)
{
	struct virtio_net_hdr_v1 vnet;
	const uint8_t *udp;
	uint32_t payload_bytes;

	memcpy(&vnet, frame, sizeof(vnet));
	if (vnet.flags != VIRTIO_NET_HDR_F_NEEDS_CSUM || vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE ||
	    vnet.csum_offset != offsetof(struct udphdr, check) ||
	    bytes > IP_AT + sizeof(struct ip6_hdr) + sizeof(struct udphdr) +
			NUPA_COALESCE_MAX_PAYLOAD_BYTES)
		return false;
	c->ip_bytes = udp_in(frame + IP_AT, bytes - IP_AT);
	c->headers_bytes = IP_AT + c->ip_bytes + (uint32_t)sizeof(struct udphdr);
	if (!c->ip_bytes || bytes <= c->headers_bytes)
		return false;
	udp = frame + IP_AT + c->ip_bytes;
	payload_bytes = bytes - c->headers_bytes;
	if (vnet.csum_start != ETH_HLEN + c->ip_bytes ||
	    get16(udp + offsetof(struct udphdr, len)) != payload_bytes + sizeof(struct udphdr))
		return false;
	c->bytes = bytes;
	c->payload_bytes = payload_bytes;
	c->segments = 1;
	c->full = false;
	return true;
}

/* All of the headers except lengths, checksums and IPv4's identification. */
static bool same_flow(const struct nupa_coalesced *c, const uint8_t *a, const uint8_t *b)
{
	const uint8_t *ip_a = a + IP_AT, *ip_b = b + IP_AT;

	if (memcmp(a, b, IP_AT) != 0 || memcmp(ip_a + c->ip_bytes, ip_b + c->ip_bytes, 4) != 0)
		return false;
	if (c->ip_bytes == sizeof(struct ip6_hdr))
		return !memcmp(ip_a, ip_b, 4) && !memcmp(ip_a + 6, ip_b + 6, c->ip_bytes - 6);
	return ip_a[1] == ip_b[1] && ip_a[8] == ip_b[8] && !memcmp(ip_a + 12, ip_b + 12, 8);
}

bool nupa_coalesce_join(struct nupa_coalesced *c, uint8_t *first, const uint8_t *frame,
			uint32_t bytes)
{
	struct nupa_coalesced it;

	if (!nupa_coalesce_begin(&it, frame, bytes) || it.ip_bytes != c->ip_bytes ||
	    it.payload_bytes > c->payload_bytes ||
	    c->bytes + it.payload_bytes > NUPA_COALESCE_MAX_BYTES || !same_flow(c, first, frame))
		return false;
	memmove(first + c->bytes, frame + it.headers_bytes, it.payload_bytes);
	c->bytes += it.payload_bytes;
	c->segments++;
	/* Only the last may be shorter. */
	c->full = it.payload_bytes < c->payload_bytes ||
		  c->segments == NUPA_COALESCE_MAX_SEGMENTS ||
		  c->bytes + c->payload_bytes > NUPA_COALESCE_MAX_BYTES;
	return true;
}

/* RFC 1071: a sum of 16 bits, as large as it may have grown. */
static uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

static void seal_ipv4(uint8_t *ip, uint32_t bytes)
{
	uint32_t sum = 0;

	put16(ip + offsetof(struct iphdr, tot_len), bytes);
	put16(ip + offsetof(struct iphdr, check), 0);
	for (uint32_t i = 0; i < sizeof(struct iphdr); i += 2)
		sum += get16(ip + i);
	put16(ip + offsetof(struct iphdr, check), (uint16_t)~fold(sum));
}

uint32_t nupa_coalesce_end(struct nupa_coalesced *c, uint8_t *first)
{
	uint8_t *ip = first + IP_AT, *udp = ip + c->ip_bytes;
	uint32_t bytes = c->bytes, datagram_bytes = bytes - IP_AT - c->ip_bytes;
	struct virtio_net_hdr_v1 vnet;

	c->bytes = 0;
	if (c->segments == 1)
		return bytes;
	memcpy(&vnet, first, sizeof(vnet));
	vnet.gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
	vnet.gso_size = (uint16_t)c->payload_bytes;
	vnet.hdr_len = (uint16_t)(c->headers_bytes - NUPA_VNET_BYTES);
	memcpy(first, &vnet, sizeof(vnet));
	if (c->ip_bytes == sizeof(struct iphdr))
		seal_ipv4(ip, c->ip_bytes + datagram_bytes);
	else
		put16(ip + offsetof(struct ip6_hdr, ip6_plen), datagram_bytes);
	/* The checksum holds the sum of the pseudo-header, of which the length is a part. */
	put16(udp + offsetof(struct udphdr, check),
	      fold((uint32_t)get16(udp + offsetof(struct udphdr, check)) + datagram_bytes +
		   (uint16_t)~get16(udp + offsetof(struct udphdr, len))));
	put16(udp + offsetof(struct udphdr, len), datagram_bytes);
	return bytes;
}
