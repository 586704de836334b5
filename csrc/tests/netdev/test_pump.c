/* SPDX-License-Identifier: BSD-3-Clause
 * A pump between interfaces: what is sent to one arrives at another, whole and in order, and what
 * cannot arrive is counted. */
#include "tests/netdev/lab.h"
#include "engine/net/net.h"
#include "region/region.h"

static const uint8_t everybody[ETH_ALEN] = { 255, 255, 255, 255, 255, 255 };

TEST(frames_of_every_length_arrive_whole_and_in_order)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 3);

	for (uint32_t bytes = LAB_HEADERS, i = 0; bytes <= LAB_HEADERS + LAB_MTU;
	     bytes += 1 + bytes / 7, i++) {
		lab_send(lab, 0, 1, bytes, i);
		lab_send(lab, 1, 0, bytes, ~i);
		lab_expect(lab, 1, bytes, i);
		lab_expect(lab, 0, bytes, ~i);
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(the_ring_may_end_anywhere)
{
	struct nupa_fabric *fabric = lab_fabric(1 << 20);
	struct lab *lab = lab_open(fabric, 3);
	uint64_t seed = test_seed();

	/* Some twenty laps of the DMA ring, in bursts. */
	for (uint32_t burst = 0; burst < 150; burst++) {
		uint32_t bytes[8];

		for (uint32_t i = 0; i < 8; i++) {
			bytes[i] = LAB_HEADERS +
				   (uint32_t)test_random(&seed) % (i & 1 ? LAB_MTU / 2 : 200);
			lab_send(lab, 0, 1, bytes[i], burst * 8 + i);
		}
		for (uint32_t i = 0; i < 8; i++)
			lab_expect(lab, 1, bytes[i], burst * 8 + i);
	}
	CHECK_EQ(lab_counters(fabric, 0).tx_packets, 1200);
	CHECK_EQ(lab_counters(fabric, 1).rx_packets, 1200);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(each_frame_goes_to_its_own_host)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7);

	for (uint32_t i = 0; i < 100; i++) { /* no two in a row go the same way */
		lab_send(lab, 0, 1 + i % 2, LAB_HEADERS + 100 + i, i);
		lab_send(lab, 1, i % 2 ? 0 : 2, LAB_HEADERS + 200 + i, i);
		lab_expect(lab, 1 + i % 2, LAB_HEADERS + 100 + i, i);
		lab_expect(lab, i % 2 ? 0 : 2, LAB_HEADERS + 200 + i, i);
	}
	CHECK(lab_counters(fabric, 0).tx_copied >= 99);
	lab_expect_silence(lab, 0);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_broadcast_reaches_all_others_once)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7);

	for (uint32_t i = 0; i < 50; i++) {
		lab_send(lab, 0, 1 + i % 2, LAB_HEADERS + 10, i);
		lab_send_to(lab, 0, everybody, LAB_HEADERS + 1000 + i, i);
		lab_expect(lab, 1 + i % 2, LAB_HEADERS + 10, i);
		lab_expect(lab, 1, LAB_HEADERS + 1000 + i, i);
		lab_expect(lab, 2, LAB_HEADERS + 1000 + i, i);
	}
	lab_expect_silence(lab, 0);
	CHECK_EQ(lab_counters(fabric, 0).tx_packets, 100);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_queue_sends_to_its_like_or_to_queue_0_where_there_is_none)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7 | 1u << LAB_QUEUE_1(0) | 1u << LAB_QUEUE_1(1));

	lab_send(lab, LAB_QUEUE_1(0), 1, LAB_HEADERS + 50, 1);
	lab_expect(lab, LAB_QUEUE_1(1), LAB_HEADERS + 50, 1);
	lab_send(lab, LAB_QUEUE_1(0), 2, LAB_HEADERS + 60, 2);
	lab_expect(lab, 2, LAB_HEADERS + 60, 2);
	lab_send(lab, 0, 1, LAB_HEADERS + 70, 3);
	lab_expect(lab, 1, LAB_HEADERS + 70, 3);
	lab_send_to(lab, LAB_QUEUE_1(1), everybody, LAB_HEADERS + 80, 4);
	lab_expect(lab, LAB_QUEUE_1(0), LAB_HEADERS + 80, 4);
	lab_expect(lab, 2, LAB_HEADERS + 80, 4);
	for (uint32_t side = 0; side < LAB_SIDES; side++)
		if (lab->side[side] >= 0)
			lab_expect_silence(lab, side);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(runts_and_frames_beyond_the_mtu_are_dropped)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 3);

	lab_send(lab, 0, 1, 1, 0);
	lab_send(lab, 0, 1, LAB_HEADERS - 1, 0);
	lab_send(lab, 0, 1, LAB_HEADERS + LAB_MTU + 1, 0);
	AWAIT_COUNT(fabric, 0, tx_invalid, 3);
	lab_send(lab, 0, 1, LAB_HEADERS + LAB_MTU, 9);
	lab_expect(lab, 1, LAB_HEADERS + LAB_MTU, 9);
	CHECK_EQ(lab_counters(fabric, 0).tx_packets, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(frames_to_addresses_that_nobody_has_are_dropped)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 3);

	lab_send_to(lab, 0, (uint8_t[]){ 2, 0, 10, 0, 0, 77 }, LAB_HEADERS + 50, 0);
	AWAIT_COUNT(fabric, 0, tx_unknown, 1);
	lab_send(lab, 0, 2, LAB_HEADERS + 50, 0); /* a host without an interface */
	AWAIT_COUNT(fabric, 0, tx_down, 1);
	lab_expect_silence(lab, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_port_that_is_down_lets_nothing_through)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 3);

	lab_send(lab, 0, 1, LAB_HEADERS + 50, 1);
	lab_expect(lab, 1, LAB_HEADERS + 50, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, LAB_HOSTS + 1, NUPA_PORT_DOWN), 0);
	lab_send(lab, 0, 1, LAB_HEADERS + 50, 2);
	AWAIT_COUNT(fabric, 0, tx_down, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, LAB_HOSTS + 1, NUPA_PORT_ACTIVE), 0);
	lab_send(lab, 0, 1, LAB_HEADERS + 50, 3);
	lab_expect(lab, 1, LAB_HEADERS + 50, 3);
	CHECK_EQ(lab_counters(fabric, 0).carrier_changes, 0);
	CHECK_EQ(nupa_fabric_set_port(fabric, 0, NUPA_PORT_DOWN), 0);
	AWAIT_COUNT(fabric, 0, carrier_changes, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, 0, NUPA_PORT_ACTIVE), 0);
	AWAIT_COUNT(fabric, 0, carrier_changes, 2);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(an_interface_that_takes_nothing_refuses)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 3);

	/* No program reads at host 1: its socket is full some time. */
	for (uint32_t i = 0; !lab_counters(fabric, 1).rx_refused; i++) {
		lab_send(lab, 0, 1, LAB_HEADERS + LAB_MTU, i);
		CHECK(i < 1000);
		AWAIT(lab_counters(fabric, 0).tx_packets == i + 1);
	}
	lab_send(lab, 1, 0, LAB_HEADERS + 9, 1); /* the other way works */
	lab_expect(lab, 0, LAB_HEADERS + 9, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}
