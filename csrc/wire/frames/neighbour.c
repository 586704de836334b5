// SPDX-License-Identifier: BSD-3-Clause
#include "wire/frames/neighbour.h"

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#define ETHER_BYTES ((uint32_t)sizeof(struct ether_header))
#define ND_HOPS 255 /* RFC 4861 7.1: any other limit came from beyond the link */
#define HOPS 64

/* A neighbour solicitation or advertisement with one option, the sender's link address. */
struct discovery {
	struct ether_header ether;
	struct ip6_hdr ip;
	struct nd_neighbor_advert nd; /* a solicitation has the same fields */
	struct nd_opt_hdr option;
	uint8_t mac[ETHER_ADDR_LEN];
} __attribute__((packed));
_Static_assert(sizeof(struct discovery) == NUPA_NEIGHBOUR_ASK_BYTES, "struct discovery");

struct arp {
	struct ether_header ether;
	struct ether_arp arp;
} __attribute__((packed));

static struct ether_header ether_to(const struct nupa_frame_link *link, const uint8_t *mac,
				    uint16_t type)
{
	struct ether_header ether = { .ether_type = htons(type) };

	memcpy(ether.ether_dhost, mac, ETHER_ADDR_LEN);
	memcpy(ether.ether_shost, link->mac, ETHER_ADDR_LEN);
	return ether;
}

/* A frame can go to a MAC that is of one interface. */
static bool learn(struct nupa_frame_link *link, const uint8_t *mac)
{
	static const uint8_t none[ETHER_ADDR_LEN];

	if (mac[0] & 1 || !memcmp(mac, none, sizeof(none)))
		return false;
	memcpy(link->remote_mac, mac, ETHER_ADDR_LEN);
	return true;
}

static struct arp arp_of(const struct nupa_frame_link *link, uint16_t op, const uint8_t *to)
{
	static const uint8_t all[ETHER_ADDR_LEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct arp arp = {
		.ether = ether_to(link, to ? to : all, ETHERTYPE_ARP),
		.arp = { .arp_hrd = htons(ARPHRD_ETHER),
			 .arp_pro = htons(ETHERTYPE_IP),
			 .arp_hln = ETHER_ADDR_LEN,
			 .arp_pln = 4,
			 .arp_op = htons(op) },
	};

	memcpy(arp.arp.arp_sha, link->mac, ETHER_ADDR_LEN);
	memcpy(arp.arp.arp_spa, link->local + 12, 4);
	if (to)
		memcpy(arp.arp.arp_tha, to, ETHER_ADDR_LEN);
	return arp;
}

static uint32_t answer_arp(struct nupa_frame_link *link, const uint8_t *frame, uint32_t bytes,
			   uint8_t *reply, bool *learned)
{
	struct arp ask, answer;

	if (bytes < sizeof(ask) || !nupa_frame_is_ipv4(link->local))
		return 0;
	memcpy(&ask, frame, sizeof(ask));
	if (ask.arp.arp_hrd != htons(ARPHRD_ETHER) || ask.arp.arp_pro != htons(ETHERTYPE_IP) ||
	    ask.arp.arp_hln != ETHER_ADDR_LEN || ask.arp.arp_pln != 4)
		return 0;
	if (!memcmp(ask.arp.arp_spa, link->remote + 12, 4))
		*learned = learn(link, ask.arp.arp_sha);
	if (ask.arp.arp_op != htons(ARPOP_REQUEST) ||
	    memcmp(ask.arp.arp_tpa, link->local + 12, 4) != 0)
		return 0;
	answer = arp_of(link, ARPOP_REPLY, ask.arp.arp_sha);
	memcpy(answer.arp.arp_tpa, ask.arp.arp_spa, 4);
	memcpy(reply, &answer, sizeof(answer));
	return sizeof(answer);
}

static struct discovery discovery_of(const struct nupa_frame_link *link, const uint8_t *mac,
				     const uint8_t *to, const uint8_t *target, uint8_t type)
{
	bool solicits = type == ND_NEIGHBOR_SOLICIT;
	uint16_t length = sizeof(struct discovery) - ETHER_BYTES - sizeof(struct ip6_hdr);
	struct discovery found = {
		.ether = ether_to(link, mac, ETHERTYPE_IPV6),
		.ip = { .ip6_flow = htonl(6u << 28),
			.ip6_plen = htons(length),
			.ip6_nxt = IPPROTO_ICMPV6,
			.ip6_hlim = ND_HOPS },
		.nd.nd_na_hdr.icmp6_type = type,
		.option = { .nd_opt_type =
				solicits ? ND_OPT_SOURCE_LINKADDR : ND_OPT_TARGET_LINKADDR,
			    .nd_opt_len = 1 },
	};

	if (!solicits)
		found.nd.nd_na_flags_reserved = ND_NA_FLAG_SOLICITED | ND_NA_FLAG_OVERRIDE;
	memcpy(&found.ip.ip6_src, link->local, 16);
	memcpy(&found.ip.ip6_dst, to, 16);
	memcpy(&found.nd.nd_na_target, target, 16);
	memcpy(found.mac, link->mac, ETHER_ADDR_LEN);
	uint32_t sum = nupa_frame_pseudo(link->local, to, IPPROTO_ICMPV6, length);
	found.nd.nd_na_cksum =
	    nupa_frame_checksum(nupa_frame_sum(sum, (const uint8_t *)&found.nd, length));
	return found;
}

/* The link address in an option of that type; NULL: none. */
static const uint8_t *option_of(const uint8_t *at, uint32_t bytes, uint8_t type)
{
	while (bytes >= 8 && at[1]) {
		uint32_t length = at[1] * 8u;

		if (length > bytes)
			return NULL;
		if (at[0] == type)
			return at + 2;
		at += length;
		bytes -= length;
	}
	return NULL;
}

static uint32_t answer_discovery(struct nupa_frame_link *link, const struct ip6_hdr *ip,
				 const uint8_t *icmp, uint32_t bytes, uint8_t *reply, bool *learned)
{
	struct nd_neighbor_advert nd;
	bool solicits = icmp[0] == ND_NEIGHBOR_SOLICIT;

	if (bytes < sizeof(nd) || ip->ip6_hlim != ND_HOPS)
		return 0;
	memcpy(&nd, icmp, sizeof(nd));
	const uint8_t *mac = option_of(icmp + sizeof(nd), bytes - (uint32_t)sizeof(nd),
				       solicits ? ND_OPT_SOURCE_LINKADDR : ND_OPT_TARGET_LINKADDR);
	const void *speaker = solicits ? (const void *)&ip->ip6_src : &nd.nd_na_target;
	if (mac && !memcmp(speaker, link->remote, 16))
		*learned = learn(link, mac);
	/* Without a source address it asks whether the address is free: it is not, but the
	 * remote's address differs from ours. */
	if (!solicits || !mac || memcmp(&nd.nd_na_target, link->local, 16) != 0)
		return 0;
	struct discovery answer =
	    discovery_of(link, mac, (const uint8_t *)&ip->ip6_src, link->local, ND_NEIGHBOR_ADVERT);
	memcpy(reply, &answer, sizeof(answer));
	return sizeof(answer);
}

/* The same ICMP message with another type and checksum; type and code are its first bytes. */
static void echo_icmp(uint8_t *icmp, uint32_t bytes, uint8_t type, uint32_t pseudo)
{
	icmp[0] = type;
	memset(icmp + 2, 0, 2);
	uint16_t sum = nupa_frame_checksum(nupa_frame_sum(pseudo, icmp, bytes));
	memcpy(icmp + 2, &sum, sizeof(sum));
}

static uint32_t answer_ip6(struct nupa_frame_link *link, const uint8_t *frame, uint32_t bytes,
			   uint8_t *reply, bool *learned)
{
	uint32_t head = ETHER_BYTES + (uint32_t)sizeof(struct ip6_hdr);
	struct ip6_hdr ip;

	if (bytes < head + 8 || nupa_frame_is_ipv4(link->local))
		return 0;
	memcpy(&ip, frame + ETHER_BYTES, sizeof(ip));
	uint32_t length = ntohs(ip.ip6_plen);
	const uint8_t *icmp = frame + head, *src = (const uint8_t *)&ip.ip6_src,
		      *dst = (const uint8_t *)&ip.ip6_dst;
	if (ip.ip6_nxt != IPPROTO_ICMPV6 || length < 8 || length > bytes - head)
		return 0;
	uint32_t pseudo = nupa_frame_pseudo(src, dst, IPPROTO_ICMPV6, length);
	if (nupa_frame_checksum(nupa_frame_sum(pseudo, icmp, length)))
		return 0;
	if (icmp[0] == ND_NEIGHBOR_SOLICIT || icmp[0] == ND_NEIGHBOR_ADVERT)
		return answer_discovery(link, &ip, icmp, length, reply, learned);
	if (icmp[0] != ICMP6_ECHO_REQUEST || memcmp(dst, link->local, 16) != 0 ||
	    memcmp(src, link->remote, 16) != 0)
		return 0;
	struct ether_header ether =
	    ether_to(link, frame + ETHER_ADDR_LEN /* its source */, ETHERTYPE_IPV6);
	memcpy(reply, &ether, sizeof(ether));
	memcpy(&ip.ip6_src, link->local, 16);
	memcpy(&ip.ip6_dst, link->remote, 16);
	ip.ip6_hlim = HOPS;
	memcpy(reply + ETHER_BYTES, &ip, sizeof(ip));
	memcpy(reply + head, icmp, length);
	/* The pseudo header has the same sum with its addresses exchanged. */
	echo_icmp(reply + head, length, ICMP6_ECHO_REPLY, pseudo);
	return head + length;
}

static uint32_t answer_ip4(const struct nupa_frame_link *link, const uint8_t *frame, uint32_t bytes,
			   uint8_t *reply)
{
	uint32_t head = ETHER_BYTES + (uint32_t)sizeof(struct iphdr);
	struct iphdr ip;

	if (bytes < head + 8)
		return 0;
	memcpy(&ip, frame + ETHER_BYTES, sizeof(ip));
	uint32_t length = ntohs(ip.tot_len);
	if (ip.version != 4 || ip.ihl * 4u != sizeof(ip) || length > bytes - ETHER_BYTES ||
	    length < sizeof(ip) + 8 || ip.protocol != IPPROTO_ICMP ||
	    ip.frag_off & htons(IP_MF | IP_OFFMASK) ||
	    nupa_frame_checksum(nupa_frame_sum(0, (const uint8_t *)&ip, sizeof(ip))))
		return 0;
	length -= (uint32_t)sizeof(ip);
	if (memcmp(&ip.daddr, link->local + 12, 4) != 0 ||
	    memcmp(&ip.saddr, link->remote + 12, 4) != 0 || frame[head] != ICMP_ECHO ||
	    nupa_frame_checksum(nupa_frame_sum(0, frame + head, length)))
		return 0;
	struct ether_header ether = ether_to(link, frame + ETHER_ADDR_LEN, ETHERTYPE_IP);
	memcpy(reply, &ether, sizeof(ether));
	memcpy(&ip.saddr, link->local + 12, 4);
	memcpy(&ip.daddr, link->remote + 12, 4);
	ip.ttl = HOPS;
	ip.check = 0;
	ip.check = nupa_frame_checksum(nupa_frame_sum(0, (const uint8_t *)&ip, sizeof(ip)));
	memcpy(reply + ETHER_BYTES, &ip, sizeof(ip));
	memcpy(reply + head, frame + head, length);
	echo_icmp(reply + head, length, ICMP_ECHOREPLY, 0);
	return head + length;
}

uint32_t nupa_neighbour_answer(struct nupa_frame_link *link, const uint8_t *frame, uint32_t bytes,
			       uint8_t *reply, bool *learned)
{
	struct ether_header ether;

	*learned = false;
	if (bytes < ETHER_BYTES || bytes > NUPA_FRAME_MAX_BYTES)
		return 0;
	memcpy(&ether, frame, sizeof(ether));
	switch (ntohs(ether.ether_type)) {
	case ETHERTYPE_ARP:
		return answer_arp(link, frame, bytes, reply, learned);
	case ETHERTYPE_IP:
		return answer_ip4(link, frame, bytes, reply);
	case ETHERTYPE_IPV6:
		return answer_ip6(link, frame, bytes, reply, learned);
	default:
		return 0;
	}
}

uint32_t nupa_neighbour_ask(const struct nupa_frame_link *link,
			    uint8_t ask[NUPA_NEIGHBOUR_ASK_BYTES])
{
	/* The solicited-node address ff02::1:ffXX:XXXX (RFC 4291 2.7.1), and its MAC. */
	uint8_t all[16] = { 0xff, 0x02, [11] = 1, [12] = 0xff }, mac[6] = { 0x33, 0x33, 0xff };

	if (nupa_frame_is_ipv4(link->local)) {
		struct arp arp = arp_of(link, ARPOP_REQUEST, NULL);

		memcpy(arp.arp.arp_tpa, link->remote + 12, 4);
		memcpy(ask, &arp, sizeof(arp));
		return sizeof(arp);
	}
	memcpy(all + 13, link->remote + 13, 3);
	memcpy(mac + 3, link->remote + 13, 3);
	struct discovery found = discovery_of(link, mac, all, link->remote, ND_NEIGHBOR_SOLICIT);
	memcpy(ask, &found, sizeof(found));
	return sizeof(found);
}
