/* SPDX-License-Identifier: BSD-3-Clause
 * Frames in the netdev, without an interface: those it passes on, their destination, those it
 * answers itself, and datagrams that become one frame. */
#include "netdev/coalesce.h"
#include "tests/support/end.h"
#include "engine/net/net.h"

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

#define MTU 1500u
#define IP_AT (NUPA_VNET_BYTES + ETH_HLEN)

static struct virtio_net_hdr_v1 *vnet_of(uint8_t *frame)
{
	return (struct virtio_net_hdr_v1 *)(void *)frame;
}

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* RFC 1071 over *bytes*: 0xffff where a checksum within is right. */
static uint32_t sum16(const uint8_t *at, uint32_t bytes, uint32_t sum)
{
	for (uint32_t i = 0; i + 1 < bytes; i += 2)
		sum += get16(at + i);
	if (bytes & 1)
		sum += (uint32_t)at[bytes - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Ethernet from host *from* to host *to*. */
static uint8_t *ethernet(uint8_t *frame, const struct nupa_fabric *fabric, uint32_t from,
			 uint32_t to, uint16_t type)
{
	uint8_t *eth = frame + NUPA_VNET_BYTES;

	memset(frame, 0, IP_AT);
	memcpy(eth, fabric->hosts[to].mac, ETH_ALEN);
	memcpy(eth + ETH_ALEN, fabric->hosts[from].mac, ETH_ALEN);
	eth[12] = (uint8_t)(type >> 8);
	eth[13] = (uint8_t)type;
	return frame + IP_AT;
}

/* A datagram as the kernel gives it with checksum offload; its length in bytes. */
static uint32_t datagram(uint8_t *frame, const struct nupa_fabric *fabric, bool ipv6,
			 uint16_t payload_bytes, uint16_t id)
{
	uint8_t *ip = ethernet(frame, fabric, 0, 1, ipv6 ? ETH_P_IPV6 : ETH_P_IP);
	uint32_t ip_bytes = ipv6 ? sizeof(struct ip6_hdr) : sizeof(struct iphdr);
	uint16_t udp_bytes = (uint16_t)(sizeof(struct udphdr) + payload_bytes);
	struct udphdr udp = { .source = htons(1000), .dest = htons(2000), .len = htons(udp_bytes) };

	if (ipv6) {
		struct ip6_hdr header = { .ip6_flow = htonl(UINT32_C(6) << 28),
					  .ip6_plen = htons(udp_bytes),
					  .ip6_nxt = IPPROTO_UDP,
					  .ip6_hlim = 64 };

		header.ip6_src.s6_addr[15] = 1;
		header.ip6_dst.s6_addr[15] = 2;
		memcpy(ip, &header, sizeof(header));
		udp.check = htons((uint16_t)sum16(ip + 8, 32, IPPROTO_UDP + (uint32_t)udp_bytes));
	} else {
		struct iphdr header = { .version = 4,
					.ihl = 5,
					.tot_len = htons((uint16_t)(ip_bytes + udp_bytes)),
					.id = htons(id),
					.frag_off = htons(IP_DF),
					.ttl = 64,
					.protocol = IPPROTO_UDP,
					.saddr = htonl(0x0a000001),
					.daddr = htonl(0x0a000002) };

		memcpy(ip, &header, sizeof(header));
		header.check = htons((uint16_t)~sum16(ip, sizeof(header), 0));
		memcpy(ip, &header, sizeof(header));
		udp.check = htons((uint16_t)sum16(ip + 12, 8, IPPROTO_UDP + (uint32_t)udp_bytes));
	}
	memcpy(ip + ip_bytes, &udp, sizeof(udp));
	pattern_fill(ip + ip_bytes + sizeof(udp), payload_bytes, id);
	vnet_of(frame)->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	vnet_of(frame)->csum_start = (uint16_t)(ETH_HLEN + ip_bytes);
	vnet_of(frame)->csum_offset = offsetof(struct udphdr, check);
	return (uint32_t)(IP_AT + ip_bytes + udp_bytes);
}

/* --- valid ones ---------------------------------------------------------------------- */

TEST(a_frame_has_at_least_its_headers_and_at_most_the_mtu)
{
	static uint8_t frame[NUPA_VNET_BYTES + ETH_HLEN + MTU + 8];

	CHECK(!nupa_frame_valid(frame, 0, MTU));
	CHECK(!nupa_frame_valid(frame, IP_AT - 1, MTU));
	CHECK(nupa_frame_valid(frame, IP_AT, MTU));
	CHECK(nupa_frame_valid(frame, IP_AT + MTU, MTU));
	CHECK(!nupa_frame_valid(frame, IP_AT + MTU + 1, MTU));
	frame[NUPA_VNET_BYTES + 12] = ETH_P_8021Q >> 8;
	frame[NUPA_VNET_BYTES + 13] = ETH_P_8021Q & 0xff;
	CHECK(nupa_frame_valid(frame, IP_AT + MTU + 4, MTU));
	CHECK(!nupa_frame_valid(frame, IP_AT + MTU + 5, MTU));
}

TEST(offsets_of_a_header_lie_inside_its_frame)
{
	static uint8_t frame[IP_AT + 4096];
	struct virtio_net_hdr_v1 *vnet = vnet_of(frame);
	const uint32_t bytes = IP_AT + 100, inside = ETH_HLEN + 100;

	vnet->flags = 4; /* RSC_INFO: not asked for */
	CHECK(!nupa_frame_valid(frame, bytes, MTU));
	vnet->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	CHECK(!nupa_frame_valid(frame, bytes, MTU)); /* begins in Ethernet's header */
	vnet->csum_start = ETH_HLEN;
	vnet->csum_offset = (uint16_t)(inside - ETH_HLEN - 2);
	CHECK(nupa_frame_valid(frame, bytes, MTU));
	vnet->csum_offset++;
	CHECK(!nupa_frame_valid(frame, bytes, MTU));
	vnet->csum_offset = 0xffff;
	CHECK(!nupa_frame_valid(frame, bytes, MTU));
}

TEST(segments_have_a_kind_and_a_size_within_the_mtu)
{
	static uint8_t frame[NUPA_NET_FRAME_MAX_BYTES + 1];
	struct virtio_net_hdr_v1 *vnet = vnet_of(frame);
	const uint32_t bytes = IP_AT + 4096; /* more than the MTU: that is what they are for */

	for (int type = 0; type < 256; type++) {
		int kind = type & ~VIRTIO_NET_HDR_GSO_ECN;
		bool known = kind == VIRTIO_NET_HDR_GSO_TCPV4 || kind == VIRTIO_NET_HDR_GSO_TCPV6 ||
			     kind == VIRTIO_NET_HDR_GSO_UDP_L4;

		*vnet = (struct virtio_net_hdr_v1){ .gso_type = (uint8_t)type,
						    .gso_size = MTU,
						    .hdr_len = ETH_HLEN + 4096 };
		CHECK_EQ(nupa_frame_valid(frame, bytes, MTU), known);
		CHECK_EQ(nupa_frame_valid(frame, NUPA_NET_FRAME_MAX_BYTES, MTU), known);
		CHECK(!nupa_frame_valid(frame, NUPA_NET_FRAME_MAX_BYTES + 1, MTU));
		vnet->gso_size = MTU + 1;
		CHECK(!nupa_frame_valid(frame, bytes, MTU));
		vnet->gso_size = 0;
		CHECK(!nupa_frame_valid(frame, bytes, MTU));
		vnet->gso_size = 1;
		vnet->hdr_len++;
		CHECK(!nupa_frame_valid(frame, bytes, MTU));
	}
}

TEST(random_bytes_are_refused_or_harmless)
{
	struct nupa_fabric *fabric = test_fabric();
	uint64_t seed = test_seed();
	uint8_t reply[NUPA_NEIGH_REPLY_MAX_BYTES];

	for (int i = 0; i < 200000; i++) {
		uint32_t bytes = (uint32_t)test_random(&seed) % 160, host, reply_bytes;
		uint8_t *frame = malloc(bytes ? bytes : 1); /* its own, so that ASan sees */
		struct nupa_coalesced c = { 0 };

		for (uint32_t at = 0; at < bytes; at++)
			frame[at] = (uint8_t)(test_random(&seed) >> 30);
		if (bytes >= IP_AT) {
			static const uint16_t types[] = { ETH_P_IP, ETH_P_IPV6, ETH_P_ARP };
			uint8_t *ip = ethernet(frame, fabric, 0, 1, types[i % 3]);

			if (bytes > IP_AT + 9)
				ip[9] = IPPROTO_UDP;
			if (bytes > IP_AT + 7 && i & 1)
				ip[7] = 255;
		}
		if (nupa_frame_valid(frame, bytes, MTU)) {
			nupa_frame_route(fabric, frame + NUPA_VNET_BYTES, &host);
			nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes);
			nupa_coalesce_begin(&c, frame, bytes);
		}
		free(frame);
	}
	nupa_fabric_put(fabric);
}

/* --- ways ---------------------------------------------------------------------------- */

TEST(an_address_leads_to_its_host)
{
	struct nupa_fabric *fabric = test_fabric();
	uint8_t frame[IP_AT] = { 0 };
	uint32_t host;

	for (uint32_t i = 0; i < fabric->geometry.n_hosts; i++) {
		ethernet(frame, fabric, 0, i, ETH_P_IP);
		CHECK_EQ(nupa_frame_route(fabric, frame + NUPA_VNET_BYTES, &host), NUPA_FRAME_ONE);
		CHECK_EQ(host, i);
	}
	frame[NUPA_VNET_BYTES + 1] ^= 1; /* its number is right, the rest is not */
	CHECK_EQ(nupa_frame_route(fabric, frame + NUPA_VNET_BYTES, &host), NUPA_FRAME_UNKNOWN);
	frame[NUPA_VNET_BYTES] |= 1;
	CHECK_EQ(nupa_frame_route(fabric, frame + NUPA_VNET_BYTES, &host), NUPA_FRAME_ALL);
	nupa_fabric_put(fabric);
}

/* --- address resolution -------------------------------------------------------------- */

static uint32_t arp_request(uint8_t *frame, const struct nupa_fabric *fabric, uint32_t target)
{
	uint8_t *at = ethernet(frame, fabric, 0, 1, ETH_P_ARP);
	uint32_t target_be = htonl(target), sender_be = htonl(fabric->hosts[0].ipv4);
	struct ether_arp arp = { 0 };

	memset(frame + NUPA_VNET_BYTES, 0xff, ETH_ALEN);
	arp.arp_hrd = htons(ARPHRD_ETHER);
	arp.arp_pro = htons(ETH_P_IP);
	arp.arp_hln = ETH_ALEN;
	arp.arp_pln = 4;
	arp.arp_op = htons(ARPOP_REQUEST);
	memcpy(arp.arp_sha, fabric->hosts[0].mac, ETH_ALEN);
	memcpy(arp.arp_spa, &sender_be, 4);
	memcpy(arp.arp_tpa, &target_be, 4);
	memcpy(at, &arp, sizeof(arp));
	return IP_AT + sizeof(arp);
}

TEST(arp_is_answered_for_hosts_alone)
{
	struct nupa_fabric *fabric = test_fabric();
	uint8_t frame[128], reply[NUPA_NEIGH_REPLY_MAX_BYTES];
	uint32_t host, reply_bytes, bytes = arp_request(frame, fabric, fabric->hosts[1].ipv4);
	struct ether_arp arp;

	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
		 NUPA_NEIGH_HOST);
	CHECK_EQ(host, 1);
	CHECK_EQ(reply_bytes, IP_AT + sizeof(arp));
	CHECK(nupa_frame_valid(reply, reply_bytes, MTU));
	memcpy(&arp, reply + IP_AT, sizeof(arp));
	CHECK_EQ(ntohs(arp.arp_op), ARPOP_REPLY);
	CHECK(!memcmp(arp.arp_sha, fabric->hosts[1].mac, ETH_ALEN));
	CHECK(!memcmp(arp.arp_tha, fabric->hosts[0].mac, ETH_ALEN));
	CHECK(!memcmp(reply + NUPA_VNET_BYTES, fabric->hosts[0].mac, ETH_ALEN));
	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes - 1, &host, reply, &reply_bytes),
		 NUPA_NEIGH_NONE);
	bytes = arp_request(frame, fabric, fabric->hosts[0].ipv4);
	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
		 NUPA_NEIGH_QUIET);
	bytes = arp_request(frame, fabric, 0x0a0000c8); /* may be an address of the user's own */
	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
		 NUPA_NEIGH_NONE);
	nupa_fabric_put(fabric);
}

static uint32_t solicitation(uint8_t *frame, const struct nupa_fabric *fabric,
			     const union ibv_gid *from, const union ibv_gid *target)
{
	uint8_t *at = ethernet(frame, fabric, 0, 1, ETH_P_IPV6);
	struct nd_neighbor_solicit ask = { .nd_ns_type = ND_NEIGHBOR_SOLICIT };
	struct ip6_hdr ip = { .ip6_flow = htonl(UINT32_C(6) << 28),
			      .ip6_plen = htons(sizeof(ask)),
			      .ip6_nxt = IPPROTO_ICMPV6,
			      .ip6_hlim = 255 };

	memcpy(&ip.ip6_src, from->raw, 16);
	memcpy(&ask.nd_ns_target, target->raw, 16);
	memcpy(at, &ip, sizeof(ip));
	memcpy(at + sizeof(ip), &ask, sizeof(ask));
	return (uint32_t)(IP_AT + sizeof(ip) + sizeof(ask));
}

TEST(nd_is_answered_with_a_right_checksum)
{
	struct nupa_fabric *fabric = test_fabric();
	uint8_t frame[256], reply[NUPA_NEIGH_REPLY_MAX_BYTES];
	const uint8_t *ip = reply + IP_AT, *na = ip + sizeof(struct ip6_hdr);
	union ibv_gid from, target, nobody = { .raw = { 0 } };
	uint32_t host, reply_bytes, bytes;

	nupa_host_gid(fabric, 0, 0, &from);
	nupa_host_gid(fabric, 1, 0, &target);
	for (int probes = 0; probes < 2; probes++) {
		bytes = solicitation(frame, fabric, probes ? &nobody : &from, &target);
		CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
			 NUPA_NEIGH_HOST);
		CHECK_EQ(host, 1);
		CHECK_EQ(reply_bytes, NUPA_NEIGH_REPLY_MAX_BYTES);
		CHECK(nupa_frame_valid(reply, reply_bytes, MTU));
		CHECK_EQ(na[0], ND_NEIGHBOR_ADVERT);
		CHECK_EQ(na[4], probes ? 0x20 : 0x60); /* RFC 4861 4.4: S and O */
		CHECK(!memcmp(na + 8, target.raw, 16));
		CHECK(!memcmp(na + 26, fabric->hosts[1].mac, ETH_ALEN));
		CHECK_EQ(reply[NUPA_VNET_BYTES] == 0x33, probes);
		CHECK_EQ(sum16(na, 32, sum16(ip + 8, 32, 32 + IPPROTO_ICMPV6)), 0xffff);
	}
	bytes = solicitation(frame, fabric, &nobody, &from); /* its own address, which is free */
	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
		 NUPA_NEIGH_QUIET);
	bytes = solicitation(frame, fabric, &from, &nobody);
	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
		 NUPA_NEIGH_NONE);
	bytes = solicitation(frame, fabric, &from, &target);
	frame[IP_AT + 7] = 254; /* from beyond the link */
	CHECK_EQ(nupa_neigh_ask(fabric, 0, frame, bytes, &host, reply, &reply_bytes),
		 NUPA_NEIGH_NONE);
	nupa_fabric_put(fabric);
}

/* --- many in one --------------------------------------------------------------------- */

TEST(datagrams_of_a_flow_become_one_frame)
{
	static const uint16_t lengths[] = { 100, 100, 100, 33 };
	struct nupa_fabric *fabric = test_fabric();
	static uint8_t first[IP_AT + MTU], next[IP_AT + MTU];

	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		struct nupa_coalesced c = { 0 };
		uint32_t ip_bytes = ipv6 ? sizeof(struct ip6_hdr) : sizeof(struct iphdr);
		uint32_t bytes = datagram(first, fabric, ipv6, lengths[0], 7), udp_bytes;
		const uint8_t *udp = first + IP_AT + ip_bytes, *payload = udp + 8;

		CHECK(nupa_coalesce_begin(&c, first, bytes));
		for (uint16_t i = 1; i < 4; i++) {
			CHECK(!c.full);
			bytes = datagram(next, fabric, ipv6, lengths[i], (uint16_t)(7 + i));
			CHECK(nupa_coalesce_join(&c, first, next, bytes));
		}
		CHECK(c.full); /* only the last is shorter */
		bytes = nupa_coalesce_end(&c, first);
		CHECK_EQ(c.bytes, 0);
		CHECK(nupa_frame_valid(first, bytes, MTU));
		CHECK_EQ(vnet_of(first)->gso_type, VIRTIO_NET_HDR_GSO_UDP_L4);
		CHECK_EQ(vnet_of(first)->gso_size, 100);
		CHECK_EQ(vnet_of(first)->hdr_len, ETH_HLEN + ip_bytes + 8);
		udp_bytes = 8 + 333;
		CHECK_EQ(bytes, IP_AT + ip_bytes + udp_bytes);
		CHECK_EQ(get16(udp + 4), udp_bytes);
		for (uint32_t i = 0, at = 0; i < 4; at += lengths[i++])
			CHECK_PATTERN(payload + at, lengths[i], 7 + i);
		/* The part that the kernel completes: the sum of the pseudo-header. */
		CHECK_EQ(get16(udp + 6), sum16(first + IP_AT + (ipv6 ? 8 : 12), ipv6 ? 32 : 8,
					       IPPROTO_UDP + udp_bytes));
		if (ipv6) {
			CHECK_EQ(get16(first + IP_AT + 4), udp_bytes);
		} else {
			CHECK_EQ(get16(first + IP_AT + 2), ip_bytes + udp_bytes);
			CHECK_EQ(sum16(first + IP_AT, ip_bytes, 0), 0xffff);
		}
	}
	nupa_fabric_put(fabric);
}

TEST(a_single_datagram_stays_as_it_was)
{
	struct nupa_fabric *fabric = test_fabric();
	uint8_t frame[256], before[256];
	struct nupa_coalesced c = { 0 };
	uint32_t bytes = datagram(frame, fabric, false, 50, 1);

	memcpy(before, frame, bytes);
	CHECK(nupa_coalesce_begin(&c, frame, bytes));
	CHECK_EQ(nupa_coalesce_end(&c, frame), bytes);
	CHECK(!memcmp(before, frame, bytes));
	nupa_fabric_put(fabric);
}

/* Flips what makes a datagram another flow's, one thing after the other. */
TEST(datagrams_that_differ_do_not_join)
{
	static const uint32_t ipv4_parts[] = { 0, 1, 6, 8, 9, 12, 16, 20, 22 };
	static const uint32_t ipv6_parts[] = { 0, 1, 6, 7, 8, 24, 40, 42 };
	struct nupa_fabric *fabric = test_fabric();
	uint8_t first[512], next[512];

	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		const uint32_t *parts = ipv6 ? ipv6_parts : ipv4_parts;
		size_t n = ipv6 ? sizeof(ipv6_parts) / 4 : sizeof(ipv4_parts) / 4;
		struct nupa_coalesced c = { 0 };
		uint32_t bytes;

		for (size_t i = 0; i <= n; i++) {
			bytes = datagram(first, fabric, ipv6, 64, 1);
			CHECK(nupa_coalesce_begin(&c, first, bytes));
			bytes = datagram(next, fabric, ipv6, 64, 2);
			if (i < n)
				next[IP_AT + parts[i]] ^= 2;
			CHECK_EQ(nupa_coalesce_join(&c, first, next, bytes), i == n);
		}
		bytes = datagram(next, fabric, ipv6, 65, 3); /* larger than those before */
		CHECK(!nupa_coalesce_join(&c, first, next, bytes));
		bytes = datagram(next, fabric, ipv6, 64, 3);
		next[NUPA_VNET_BYTES + 6] ^= 1; /* from another station */
		CHECK(!nupa_coalesce_join(&c, first, next, bytes));
	}
	nupa_fabric_put(fabric);
}

TEST(only_whole_unfragmented_datagrams_may_be_joined)
{
	struct nupa_fabric *fabric = test_fabric();
	static uint8_t frame[IP_AT + 4096];
	struct nupa_coalesced c = { 0 };
	uint32_t bytes = datagram(frame, fabric, false, 64, 1);

	vnet_of(frame)->flags = 0; /* with a checksum of its own */
	CHECK(!nupa_coalesce_begin(&c, frame, bytes));
	bytes = datagram(frame, fabric, false, 64, 1);
	frame[IP_AT + 6] = 0; /* may be fragmented */
	CHECK(!nupa_coalesce_begin(&c, frame, bytes));
	bytes = datagram(frame, fabric, false, 64, 1);
	CHECK(!nupa_coalesce_begin(&c, frame, bytes - 1)); /* cut off */
	CHECK(!nupa_coalesce_begin(&c, frame, bytes + 1)); /* padded */
	bytes = datagram(frame, fabric, false, 0, 1);
	CHECK(!nupa_coalesce_begin(&c, frame, bytes));
	bytes = datagram(frame, fabric, false, NUPA_COALESCE_MAX_PAYLOAD_BYTES + 21, 1);
	CHECK(!nupa_coalesce_begin(&c, frame, bytes));
	nupa_fabric_put(fabric);
}

TEST(no_more_than_a_kernel_takes_are_joined)
{
	struct nupa_fabric *fabric = test_fabric();
	static uint8_t first[NUPA_COALESCE_MAX_BYTES + 4096], next[4096];

	for (uint16_t payload_bytes = 10; payload_bytes <= 2000; payload_bytes += 199) {
		struct nupa_coalesced c = { 0 };
		uint32_t bytes = datagram(first, fabric, false, payload_bytes, 1), n = 1;

		CHECK(nupa_coalesce_begin(&c, first, bytes));
		while (!c.full && n < 1000) {
			bytes = datagram(next, fabric, false, payload_bytes, 1);
			CHECK(nupa_coalesce_join(&c, first, next, bytes));
			n++;
		}
		CHECK(n <= NUPA_COALESCE_MAX_SEGMENTS);
		CHECK(n == NUPA_COALESCE_MAX_SEGMENTS ||
		      c.bytes + payload_bytes > NUPA_COALESCE_MAX_BYTES);
		CHECK(nupa_coalesce_end(&c, first) <= NUPA_COALESCE_MAX_BYTES);
	}
	nupa_fabric_put(fabric);
}
