// SPDX-License-Identifier: BSD-3-Clause
#include "wire/frames/ethernet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

#define ETHER_BYTES ((uint32_t)sizeof(struct ether_header))
#define IP4_BYTES ((uint32_t)sizeof(struct iphdr))
#define IP6_BYTES ((uint32_t)sizeof(struct ip6_hdr))
#define UDP_BYTES ((uint32_t)sizeof(struct udphdr))

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool nupa_frame_is_ipv4(const uint8_t address[16])
{
	return !memcmp(address, mapped, sizeof(mapped));
}

void nupa_frame_choose_mac(struct nupa_frame_link *link)
{
	static const uint8_t prefix[] = { 0x02, 0x4e, 0x55 }; /* locally administered */

	memcpy(link->mac, prefix, sizeof(prefix));
	memcpy(link->mac + sizeof(prefix), link->local + 13, 3);
}

uint32_t nupa_frame_sum(uint32_t sum, const uint8_t *data, uint32_t bytes)
{
	uint64_t total = sum;

	for (; bytes > 1; data += 2, bytes -= 2)
		total += (uint32_t)(data[0] << 8 | data[1]);
	if (bytes)
		total += (uint32_t)(data[0] << 8);
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return (uint32_t)total;
}

uint16_t nupa_frame_checksum(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

uint32_t nupa_frame_pseudo(const uint8_t src[16], const uint8_t dst[16], uint8_t protocol,
			   uint32_t bytes)
{
	uint32_t skip = nupa_frame_is_ipv4(src) ? 12 : 0;
	uint32_t sum = nupa_frame_sum(0, src + skip, 16 - skip);

	sum = nupa_frame_sum(sum, dst + skip, 16 - skip);
	return sum + protocol + (bytes >> 16) + (bytes & 0xffff);
}

/* The IP header: its bytes, with the payload's in *payload; 0: not an IP header of whole packets.
 * UDP alone is looked at. */
static uint32_t read_ip4(const uint8_t *at, uint32_t bytes, struct nupa_frame_packet *packet,
			 uint32_t *payload, uint8_t *protocol)
{
	struct iphdr ip;

	if (bytes < IP4_BYTES)
		return 0;
	memcpy(&ip, at, sizeof(ip));
	uint32_t head = ip.ihl * 4u, total = ntohs(ip.tot_len);
	if (ip.version != 4 || head < IP4_BYTES || total < head || total > bytes)
		return 0;
	if (nupa_frame_checksum(nupa_frame_sum(0, at, head)))
		return 0;
	if (ip.frag_off & htons(IP_MF | IP_OFFMASK))
		return 0;
	memcpy(packet->src, mapped, sizeof(mapped));
	memcpy(packet->dst, mapped, sizeof(mapped));
	memcpy(packet->src + 12, &ip.saddr, 4);
	memcpy(packet->dst + 12, &ip.daddr, 4);
	packet->identification = ntohs(ip.id);
	packet->tos = ip.tos;
	packet->ttl = ip.ttl;
	*payload = total - head;
	*protocol = ip.protocol;
	return head;
}

static uint32_t read_ip6(const uint8_t *at, uint32_t bytes, struct nupa_frame_packet *packet,
			 uint32_t *payload, uint8_t *protocol)
{
	struct ip6_hdr ip;

	if (bytes < IP6_BYTES)
		return 0;
	memcpy(&ip, at, sizeof(ip));
	uint32_t length = ntohs(ip.ip6_plen);
	if (ip.ip6_vfc >> 4 != 6 || length > bytes - IP6_BYTES)
		return 0;
	memcpy(packet->src, &ip.ip6_src, 16);
	memcpy(packet->dst, &ip.ip6_dst, 16);
	packet->identification = 0;
	packet->tos = (uint8_t)(ntohl(ip.ip6_flow) >> 20);
	packet->ttl = ip.ip6_hlim;
	*payload = length;
	*protocol = ip.ip6_nxt;
	return IP6_BYTES;
}

static enum nupa_frame_verdict read_udp(const struct nupa_frame_link *link, const uint8_t *at,
					uint32_t bytes, struct nupa_frame_packet *packet)
{
	struct udphdr udp;

	if (bytes < UDP_BYTES)
		return NUPA_FRAME_MALFORMED;
	memcpy(&udp, at, sizeof(udp));
	if (udp.dest != htons(NUPA_ROCE_PORT))
		return NUPA_FRAME_OTHER;
	if (ntohs(udp.len) != bytes || bytes < UDP_BYTES + NUPA_FRAME_ROCE_MIN_BYTES)
		return NUPA_FRAME_MALFORMED;
	/* 0: none.  IPv6 permits that, too, since the ICRC protects the packet (RFC 6935). */
	if (udp.check) {
		uint32_t sum = nupa_frame_pseudo(packet->src, packet->dst, IPPROTO_UDP, bytes);

		if (nupa_frame_checksum(nupa_frame_sum(sum, at, bytes)))
			return NUPA_FRAME_MALFORMED;
	}
	if (memcmp(packet->src, link->remote, 16) != 0)
		return NUPA_FRAME_FOREIGN;
	packet->src_port = ntohs(udp.source);
	packet->data = at + UDP_BYTES;
	packet->bytes = bytes - UDP_BYTES;
	return NUPA_FRAME_ROCE;
}

enum nupa_frame_verdict nupa_frame_read(const struct nupa_frame_link *link, const uint8_t *frame,
					uint32_t bytes, struct nupa_frame_packet *packet)
{
	struct ether_header ether;
	uint32_t head, payload = 0;
	uint8_t protocol = 0;

	if (bytes < ETHER_BYTES)
		return NUPA_FRAME_MALFORMED;
	memcpy(&ether, frame, sizeof(ether));
	if (memcmp(ether.ether_dhost, link->mac, ETHER_ADDR_LEN) != 0)
		return NUPA_FRAME_OTHER;
	if (ether.ether_type == htons(ETHERTYPE_IP))
		head =
		    read_ip4(frame + ETHER_BYTES, bytes - ETHER_BYTES, packet, &payload, &protocol);
	else if (ether.ether_type == htons(ETHERTYPE_IPV6))
		head =
		    read_ip6(frame + ETHER_BYTES, bytes - ETHER_BYTES, packet, &payload, &protocol);
	else
		return NUPA_FRAME_OTHER;
	if (!head)
		return NUPA_FRAME_MALFORMED;
	if (protocol != IPPROTO_UDP || memcmp(packet->dst, link->local, 16) != 0)
		return NUPA_FRAME_OTHER;
	return read_udp(link, frame + ETHER_BYTES + head, payload, packet);
}

static uint32_t write_ip4(const struct nupa_frame_link *link,
			  const struct nupa_frame_packet *packet, uint8_t *at)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = IP4_BYTES / 4,
		.tos = packet->tos,
		.tot_len = htons((uint16_t)(IP4_BYTES + UDP_BYTES + packet->bytes)),
		.id = htons(packet->identification),
		.frag_off = htons(IP_DF),
		.ttl = packet->ttl,
		.protocol = IPPROTO_UDP,
	};

	memcpy(&ip.saddr, link->local + 12, 4);
	memcpy(&ip.daddr, link->remote + 12, 4);
	memcpy(at, &ip, sizeof(ip));
	ip.check = nupa_frame_checksum(nupa_frame_sum(0, at, sizeof(ip)));
	memcpy(at, &ip, sizeof(ip));
	return IP4_BYTES;
}

static uint32_t write_ip6(const struct nupa_frame_link *link,
			  const struct nupa_frame_packet *packet, uint8_t *at)
{
	struct ip6_hdr ip = {
		.ip6_flow = htonl(6u << 28 | (uint32_t)packet->tos << 20),
		.ip6_plen = htons((uint16_t)(UDP_BYTES + packet->bytes)),
		.ip6_nxt = IPPROTO_UDP,
		.ip6_hlim = packet->ttl,
	};

	memcpy(&ip.ip6_src, link->local, 16);
	memcpy(&ip.ip6_dst, link->remote, 16);
	memcpy(at, &ip, sizeof(ip));
	return IP6_BYTES;
}

uint32_t nupa_frame_head(const struct nupa_frame_link *link, const struct nupa_frame_packet *packet,
			 uint8_t head[NUPA_FRAME_HEAD_BYTES])
{
	bool ipv4 = nupa_frame_is_ipv4(link->local);
	uint16_t bytes = (uint16_t)(UDP_BYTES + packet->bytes);
	struct ether_header ether = { .ether_type = htons(ipv4 ? ETHERTYPE_IP : ETHERTYPE_IPV6) };
	struct udphdr udp = { .source = htons(packet->src_port),
			      .dest = htons(NUPA_ROCE_PORT),
			      .len = htons(bytes) };
	uint32_t at = ETHER_BYTES;

	memcpy(ether.ether_dhost, link->remote_mac, ETHER_ADDR_LEN);
	memcpy(ether.ether_shost, link->mac, ETHER_ADDR_LEN);
	memcpy(head, &ether, sizeof(ether));
	at += ipv4 ? write_ip4(link, packet, head + at) : write_ip6(link, packet, head + at);
	if (!ipv4 && packet->data) { /* a kernel refuses 0 there unless a socket asks for it */
		uint32_t sum = nupa_frame_pseudo(link->local, link->remote, IPPROTO_UDP, bytes);

		sum = nupa_frame_sum(sum, (const uint8_t *)&udp, sizeof(udp));
		udp.check = nupa_frame_checksum(nupa_frame_sum(sum, packet->data, packet->bytes));
		if (!udp.check)
			udp.check = 0xffff;
	}
	memcpy(head + at, &udp, sizeof(udp));
	return at + UDP_BYTES;
}
