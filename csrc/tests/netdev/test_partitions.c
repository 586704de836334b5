/* SPDX-License-Identifier: BSD-3-Clause
 * Partitions and network interfaces: hosts that share none neither hear nor find each other. */
#include "tests/netdev/lab.h"
#include "tests/support/pkeys.h"

#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t everybody[ETH_ALEN] = { 255, 255, 255, 255, 255, 255 };

/* Host 2 is in another partition than 0 and 1. */
static struct nupa_fabric *parted_fabric(void)
{
	struct nupa_fabric *fabric = lab_fabric(0);

	pkey_set(fabric, 2, 0, RED);
	return fabric;
}

TEST(frames_to_another_partition_are_dropped_and_counted)
{
	struct nupa_fabric *fabric = parted_fabric();
	struct lab *lab = lab_open(fabric, 7);

	for (uint32_t i = 0; i < 3; i++) {
		lab_send(lab, 0, 2, LAB_HEADERS + 50, i);
		lab_send(lab, 2, 1, LAB_HEADERS + 50, i);
		lab_send(lab, 0, 1, LAB_HEADERS + 60, i);
		lab_expect(lab, 1, LAB_HEADERS + 60, i);
	}
	AWAIT_COUNT(fabric, 0, tx_partition, 3);
	AWAIT_COUNT(fabric, 2, tx_partition, 3);
	lab_expect_silence(lab, 2);
	CHECK_EQ(lab_counters(fabric, 0).tx_down, 0);
	CHECK_EQ(lab_counters(fabric, 0).tx_packets, 3);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_broadcast_stays_in_its_partitions)
{
	struct nupa_fabric *fabric = parted_fabric();
	struct lab *lab = lab_open(fabric, 7);

	lab_send_to(lab, 0, everybody, LAB_HEADERS + 100, 1);
	lab_expect(lab, 1, LAB_HEADERS + 100, 1);
	lab_send_to(lab, 2, everybody, LAB_HEADERS + 100, 2);
	lab_expect_silence(lab, 2);
	lab_expect_silence(lab, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_change_of_partitions_acts_on_the_next_frame)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7);

	for (uint32_t i = 0; i < 5; i++) {
		lab_send(lab, 0, 1, LAB_HEADERS + 50, i);
		lab_expect(lab, 1, LAB_HEADERS + 50, i);
		pkey_set(fabric, 1, 0, RED);
		lab_send(lab, 0, 1, LAB_HEADERS + 50, i);
		AWAIT_COUNT(fabric, 0, tx_partition, i + 1);
		pkey_set(fabric, 0, 7, RED); /* a second one */
		lab_send(lab, 0, 1, LAB_HEADERS + 51, i);
		lab_expect(lab, 1, LAB_HEADERS + 51, i);
		pkey_set(fabric, 0, 7, 0);
		pkey_set(fabric, 1, 0, NUPA_PKEY_DEFAULT);
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

/* A request for the address of a host. */
static void ask(const struct lab *lab, uint32_t from, uint32_t to)
{
	uint8_t frame[LAB_HEADERS + sizeof(struct ether_arp)] = { 0 };
	const struct nupa_host *hosts = lab->fabric->hosts;
	const uint32_t spa = htonl(hosts[from].ipv4), tpa = htonl(hosts[to].ipv4);
	struct ether_arp arp = { 0 };

	arp.arp_hrd = htons(ARPHRD_ETHER);
	arp.arp_pro = htons(ETH_P_IP);
	arp.arp_hln = ETH_ALEN;
	arp.arp_pln = sizeof(uint32_t);
	arp.arp_op = htons(ARPOP_REQUEST);
	memcpy(arp.arp_sha, hosts[from].mac, ETH_ALEN);
	memcpy(arp.arp_spa, &spa, sizeof(spa));
	memcpy(arp.arp_tpa, &tpa, sizeof(tpa));
	memcpy(frame + NUPA_VNET_BYTES, everybody, ETH_ALEN);
	memcpy(frame + NUPA_VNET_BYTES + ETH_ALEN, hosts[from].mac, ETH_ALEN);
	frame[NUPA_VNET_BYTES + 12] = ETH_P_ARP >> 8;
	frame[NUPA_VNET_BYTES + 13] = ETH_P_ARP & 0xff;
	memcpy(frame + LAB_HEADERS, &arp, sizeof(arp));
	CHECK_EQ(send(lab->side[from], frame, sizeof(frame), 0), sizeof(frame));
}

TEST(a_host_of_another_partition_has_no_address)
{
	struct nupa_fabric *fabric = parted_fabric();
	struct lab *lab = lab_open(fabric, 7);

	ask(lab, 0, 1);
	lab_expect(lab, 0, LAB_HEADERS + sizeof(struct ether_arp), ANY_SEED);
	AWAIT_COUNT(fabric, 0, tx_answered, 1);
	ask(lab, 0, 2);
	AWAIT_COUNT(fabric, 0, tx_partition, 1);
	lab_expect_silence(lab, 0);
	lab_expect_silence(lab, 2);
	CHECK_EQ(lab_counters(fabric, 0).tx_answered, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}
