/* SPDX-License-Identifier: BSD-3-Clause
 * Frames of hosts with a rate: they wait, none is lost, and other hosts' go on. */
#include "base/atomics.h"
#include "segment/control/rate.h"
#include "tests/netdev/lab.h"

#define FRAME_BYTES (LAB_HEADERS + 1000)

static void set_rate(struct nupa_fabric *fabric, uint32_t host, uint64_t bytes_per_s)
{
	char why[256] = "";

	CHECK_EQ(
	    nupa_rate_set(fabric, NUPA_RATE_MEMBER, 0, host, 0x7fff, bytes_per_s, why, sizeof(why)),
	    0);
}

static struct nupa_rate_info info_of(struct nupa_fabric *fabric)
{
	struct nupa_rate_info info = { 0 };

	CHECK(nupa_rate_list(fabric, &info, 1) >= 1);
	return info;
}

TEST(frames_keep_the_rate_and_none_is_lost)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 3);
	const uint64_t rate = 2000000;
	uint64_t start_ns, ns;

	set_rate(fabric, 0, rate);
	start_ns = test_now_ns();
	for (uint32_t i = 0; i < 200; i++)
		lab_send(lab, 0, 1, FRAME_BYTES, i);
	for (uint32_t i = 0; i < 200; i++)
		lab_expect(lab, 1, FRAME_BYTES, i);
	ns = test_now_ns() - start_ns;
	CHECK_EQ(info_of(fabric).bytes, 200 * (FRAME_BYTES + NUPA_RATE_HEADER_BYTES));
	CHECK((double)info_of(fabric).bytes <=
	      (double)rate * 1e-9 * (double)(ns + NUPA_RATE_AHEAD_NS + NUPA_RATE_BURST_NS) +
		  FRAME_BYTES + NUPA_RATE_HEADER_BYTES);
	CHECK_EQ(lab_counters(fabric, 0).tx_full, 0);
	CHECK_EQ(lab_counters(fabric, 0).tx_packets, 200);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_frame_that_waits_holds_no_other_host_back)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7);

	set_rate(fabric, 0, 1);
	lab_send(lab, 0, 1, FRAME_BYTES,
		 1); /* one goes early, and the next in a quarter of an hour */
	lab_send(lab, 0, 1, FRAME_BYTES, 2);
	lab_expect(lab, 1, FRAME_BYTES, 1);
	for (uint32_t i = 0; i < 100; i++) {
		lab_send(lab, 1, 0, FRAME_BYTES, i);
		lab_send(lab, 2, 1, FRAME_BYTES, i);
		lab_expect(lab, 0, FRAME_BYTES, i);
		lab_expect(lab, 1, FRAME_BYTES, i);
	}
	lab_expect_silence(lab, 1);
	set_rate(fabric, 0, 0); /* and at once */
	lab_expect(lab, 1, FRAME_BYTES, 2);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_broadcast_counts_for_each_host_and_waits_for_none)
{
	static const uint8_t everybody[ETH_ALEN] = { 255, 255, 255, 255, 255, 255 };
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7);

	set_rate(fabric, 0, 1000000);
	lab_send_to(lab, 0, everybody, FRAME_BYTES, 1);
	lab_expect(lab, 1, FRAME_BYTES, 1);
	lab_expect(lab, 2, FRAME_BYTES, 1);
	CHECK_EQ(info_of(fabric).bytes, 2 * (FRAME_BYTES + NUPA_RATE_HEADER_BYTES));
	lab_close(lab);
	nupa_fabric_put(fabric);
}
