/* SPDX-License-Identifier: BSD-3-Clause
 * Answers requests for link addresses (ARP, neighbour discovery) from the table of hosts.  The
 * reply is made from the request on the spot; the request never travels. */
#include "netdev/frame.h"

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip6.h>

#define ND_HOPS 255 /* RFC 4861 7.1: any other limit came from beyond the link */

struct neigh_advert {
	struct virtio_net_hdr_v1 vnet;
	struct ethhdr eth;
	struct ip6_hdr ip;
	struct nd_neighbor_advert na;
	struct nd_opt_hdr option;
	uint8_t option_mac[ETH_ALEN];
} __attribute__((packed));
NUPA_ASSERT_SIZE(struct neigh_advert, NUPA_NEIGH_REPLY_MAX_BYTES);

struct arp_reply {
	struct virtio_net_hdr_v1 vnet;
	struct ethhdr eth;
	struct ether_arp arp;
} __attribute__((packed));

static int host_of_ipv4(const struct nupa_fabric *fabric, uint32_t ipv4_be)
{
	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++)
		if (htonl(fabric->hosts[host].ipv4) == ipv4_be)
			return (int)host;
	return -ENOENT;
}

static int answer_arp(const struct nupa_fabric *fabric, const uint8_t *packet, uint32_t bytes,
		      uint8_t *to, uint32_t *to_bytes)
{
	struct arp_reply *reply = (struct arp_reply *)(void *)to;
	struct ether_arp ask;
	uint32_t target_be;
	int host;

	if (bytes < sizeof(ask))
		return -ENOMSG;
	memcpy(&ask, packet, sizeof(ask));
	if (ask.arp_hrd != htons(ARPHRD_ETHER) || ask.arp_pro != htons(ETH_P_IP) ||
	    ask.arp_hln != ETH_ALEN || ask.arp_pln != sizeof(uint32_t) ||
	    ask.arp_op != htons(ARPOP_REQUEST))
		return -ENOMSG;
	memcpy(&target_be, ask.arp_tpa, sizeof(target_be));
	host = host_of_ipv4(fabric, target_be);
	if (host < 0)
		return host;
	memset(reply, 0, sizeof(*reply));
	memcpy(reply->eth.h_dest, ask.arp_sha, ETH_ALEN);
	memcpy(reply->eth.h_source, fabric->hosts[host].mac, ETH_ALEN);
	reply->eth.h_proto = htons(ETH_P_ARP);
	reply->arp = ask;
	reply->arp.arp_op = htons(ARPOP_REPLY);
	memcpy(reply->arp.arp_sha, fabric->hosts[host].mac, ETH_ALEN);
	memcpy(reply->arp.arp_spa, ask.arp_tpa, sizeof(ask.arp_tpa));
	memcpy(reply->arp.arp_tha, ask.arp_sha, ETH_ALEN);
	memcpy(reply->arp.arp_tpa, ask.arp_spa, sizeof(ask.arp_spa));
	*to_bytes = sizeof(*reply);
	return host;
}

/* RFC 4443 2.3: over the pseudo-header and the message, whose checksum is 0. */
static uint16_t icmp6_checksum(const struct neigh_advert *reply)
{
	const uint16_t bytes = sizeof(*reply) - offsetof(struct neigh_advert, na);
	const uint8_t *parts[] = { reply->ip.ip6_src.s6_addr, reply->ip.ip6_dst.s6_addr,
				   (const uint8_t *)&reply->na };
	const uint32_t lengths[] = { 16, 16, bytes };
	uint32_t sum = bytes + IPPROTO_ICMPV6;

	for (int part = 0; part < 3; part++)
		for (uint32_t i = 0; i < lengths[part]; i += 2)
			sum += (uint32_t)parts[part][i] << 8 | parts[part][i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

static int answer_nd(const struct nupa_fabric *fabric, const uint8_t *packet, uint32_t bytes,
		     const uint8_t *asker_mac, uint8_t *to, uint32_t *to_bytes)
{
	static const struct in6_addr all_nodes = { { { 0xff, 2, [15] = 1 } } };
	static const uint8_t all_nodes_mac[ETH_ALEN] = { 0x33, 0x33, 0, 0, 0, 1 };
	struct neigh_advert *reply = (struct neigh_advert *)(void *)to;
	struct nd_neighbor_solicit ask;
	struct ip6_hdr ip;
	union ibv_gid target;
	bool probes; /* RFC 4862 5.4: duplicate address detection; the sender has no address yet */
	int host;

	if (bytes < sizeof(ip) + sizeof(ask))
		return -ENOMSG;
	memcpy(&ip, packet, sizeof(ip));
	memcpy(&ask, packet + sizeof(ip), sizeof(ask));
	if (ip.ip6_nxt != IPPROTO_ICMPV6 || ip.ip6_hlim != ND_HOPS ||
	    ask.nd_ns_type != ND_NEIGHBOR_SOLICIT || ask.nd_ns_code != 0)
		return -ENOMSG;
	memcpy(target.raw, &ask.nd_ns_target, sizeof(target.raw));
	host = nupa_host_of_gid(fabric, &target);
	if (host < 0)
		return host;
	probes = IN6_IS_ADDR_UNSPECIFIED(&ip.ip6_src);
	memset(reply, 0, sizeof(*reply));
	memcpy(reply->eth.h_dest, probes ? all_nodes_mac : asker_mac, ETH_ALEN);
	memcpy(reply->eth.h_source, fabric->hosts[host].mac, ETH_ALEN);
	reply->eth.h_proto = htons(ETH_P_IPV6);
	reply->ip.ip6_flow = htonl(UINT32_C(6) << 28);
	reply->ip.ip6_plen = htons(sizeof(*reply) - offsetof(struct neigh_advert, na));
	reply->ip.ip6_nxt = IPPROTO_ICMPV6;
	reply->ip.ip6_hlim = ND_HOPS;
	reply->ip.ip6_src = ask.nd_ns_target;
	reply->ip.ip6_dst = probes ? all_nodes : ip.ip6_src;
	reply->na.nd_na_type = ND_NEIGHBOR_ADVERT;
	reply->na.nd_na_flags_reserved = ND_NA_FLAG_OVERRIDE | (probes ? 0 : ND_NA_FLAG_SOLICITED);
	reply->na.nd_na_target = ask.nd_ns_target;
	reply->option.nd_opt_type = ND_OPT_TARGET_LINKADDR;
	reply->option.nd_opt_len = 1;
	memcpy(reply->option_mac, fabric->hosts[host].mac, ETH_ALEN);
	reply->na.nd_na_cksum = icmp6_checksum(reply);
	*to_bytes = sizeof(*reply);
	return host;
}

enum nupa_neigh nupa_neigh_ask(const struct nupa_fabric *fabric, uint32_t asker,
			       const uint8_t *frame, uint32_t bytes, uint32_t *host,
			       uint8_t reply[NUPA_NEIGH_REPLY_MAX_BYTES], uint32_t *reply_bytes)
{
	const uint8_t *packet = frame + NUPA_VNET_BYTES + ETH_HLEN;
	uint32_t packet_bytes = bytes - NUPA_VNET_BYTES - ETH_HLEN;
	struct ethhdr eth;
	int found = -ENOMSG;

	memcpy(&eth, frame + NUPA_VNET_BYTES, sizeof(eth));
	if (eth.h_proto == htons(ETH_P_ARP))
		found = answer_arp(fabric, packet, packet_bytes, reply, reply_bytes);
	else if (eth.h_proto == htons(ETH_P_IPV6))
		found = answer_nd(fabric, packet, packet_bytes, eth.h_source, reply, reply_bytes);
	if (found < 0)
		return NUPA_NEIGH_NONE;
	*host = (uint32_t)found;
	return *host == asker ? NUPA_NEIGH_QUIET : NUPA_NEIGH_HOST;
}
