/* SPDX-License-Identifier: BSD-3-Clause
 * Senders that notifications slow down, at a bottleneck that marks packets: all of it by a clock
 * that the test advances. */
#include "engine/transport/congestion.h"
#include "tests/support/runner.h"

#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define PACKET_BYTES 4096u
#define SENDERS_MAX 8u
#define STEP_NS 2000u
#define DELAY_NS 40000u /* of a notification */
#define DELAY_STEPS (DELAY_NS / STEP_NS)

/* A queue with a rate.  It marks packets by its length, as RED does. */
struct bottleneck {
	uint64_t bytes_per_s, queue_bytes, most_bytes, served_bytes;
	uint64_t budget; /* bytes * SECOND_NS */
	struct nupa_congestion senders[SENDERS_MAX];
	struct nupa_congestion receivers[SENDERS_MAX];
	uint64_t sent_bytes[SENDERS_MAX];
	uint8_t notified[DELAY_STEPS][SENDERS_MAX]; /* on their way */
	uint64_t now_ns, step, random;
	uint32_t n;
};

static bool is_marked(struct bottleneck *b)
{
	const uint64_t low = 60000, high = 200000;

	if (b->queue_bytes <= low)
		return false;
	return b->queue_bytes >= high ||
	       test_random(&b->random) % (10 * (high - low)) < b->queue_bytes - low;
}

static void send_packet(struct bottleneck *b, uint32_t i)
{
	if (b->senders[i].slow && nupa_congestion_due_ns(&b->senders[i], PACKET_BYTES, b->now_ns))
		return;
	b->sent_bytes[i] += PACKET_BYTES;
	b->queue_bytes += PACKET_BYTES;
	if (is_marked(b) && nupa_congestion_marked(&b->receivers[i], b->now_ns))
		b->notified[b->step % DELAY_STEPS][i] = 1;
}

static void step(struct bottleneck *b)
{
	uint8_t *notified = b->notified[++b->step % DELAY_STEPS];
	uint64_t served;

	b->now_ns += STEP_NS;
	for (uint32_t i = 0; i < b->n; i++) {
		if (notified[i])
			nupa_congestion_notified(&b->senders[i], b->now_ns, 2 * b->bytes_per_s);
		notified[i] = 0;
	}
	b->budget += b->bytes_per_s * STEP_NS;
	served = b->budget / SECOND_NS;
	if (served > b->queue_bytes)
		served = b->queue_bytes;
	b->budget = b->queue_bytes == served ? 0 : b->budget - served * SECOND_NS;
	b->queue_bytes -= served;
	b->served_bytes += served;
	for (uint32_t i = 0; i < b->n; i++) /* no faster than 2 GB/s by itself */
		send_packet(b, (uint32_t)(b->step + i) % b->n);
	if (b->queue_bytes > b->most_bytes)
		b->most_bytes = b->queue_bytes;
}

static void run(struct bottleneck *b, uint64_t ns)
{
	const uint64_t until_ns = b->now_ns + ns;

	while (b->now_ns < until_ns)
		step(b);
}

static struct bottleneck bottleneck_of(uint64_t bytes_per_s, uint32_t n)
{
	struct bottleneck b = { .bytes_per_s = bytes_per_s, .n = n, .now_ns = SECOND_NS };

	b.random = test_seed();
	return b;
}

static void check_shared(uint64_t bytes_per_s, uint32_t n)
{
	struct bottleneck b = bottleneck_of(bytes_per_s, n);
	uint64_t least = UINT64_MAX, most = 0;

	run(&b, SECOND_NS / 10); /* to where it has settled */
	b.served_bytes = b.most_bytes = 0;
	memset(b.sent_bytes, 0, sizeof(b.sent_bytes));
	run(&b, SECOND_NS);
	for (uint32_t i = 0; i < n; i++) {
		least = b.sent_bytes[i] < least ? b.sent_bytes[i] : least;
		most = b.sent_bytes[i] > most ? b.sent_bytes[i] : most;
	}
	printf("  %u at %llu MB/s: %llu MB/s, queue of at most %llu KB, shares %llu to %llu MB\n",
	       n, (unsigned long long)(bytes_per_s / 1000000),
	       (unsigned long long)(b.served_bytes / 1000000),
	       (unsigned long long)(b.most_bytes / 1000), (unsigned long long)(least / 1000000),
	       (unsigned long long)(most / 1000000));
	CHECK(b.served_bytes >= bytes_per_s * 8 / 10);
	CHECK(b.most_bytes < 1000000);
	CHECK(most < 2 * least);
}

TEST(one_sender_keeps_a_bottleneck_busy_and_its_queue_short)
{
	check_shared(125000000, 1);
	check_shared(1250000000, 1);
}

TEST(senders_share_a_bottleneck)
{
	check_shared(125000000, 2);
	check_shared(500000000, 4);
}

TEST(the_first_notification_halves_the_rate_that_was)
{
	struct nupa_congestion congestion = { 0 };

	nupa_congestion_notified(&congestion, SECOND_NS, 400000000);
	CHECK(congestion.slow);
	CHECK_EQ(congestion.flow.rate, 200000000);
	CHECK_EQ(congestion.flow.target, 400000000);
	nupa_congestion_notified(&congestion, SECOND_NS, 400000000);
	CHECK(congestion.flow.rate > 99000000 && congestion.flow.rate < 101000000);
}

TEST(the_rate_has_bounds)
{
	struct nupa_congestion congestion = { 0 };

	for (uint32_t i = 0; i < 100; i++)
		nupa_congestion_notified(&congestion, SECOND_NS + i, 0);
	CHECK_EQ(congestion.flow.rate, NUPA_CONGESTION_LEAST);
	/* Without further notifications it is free again, some time. */
	for (uint64_t ns = SECOND_NS; congestion.slow; ns += 1000000) {
		CHECK(ns < 10 * SECOND_NS);
		(void)nupa_congestion_due_ns(&congestion, PACKET_BYTES, ns);
	}
	CHECK_EQ(congestion.flow.rate, NUPA_CONGESTION_LINE);
}

TEST(packets_leave_at_the_rate)
{
	struct nupa_congestion congestion = { 0 };
	uint64_t now_ns = SECOND_NS, due_ns, bytes = 0;

	nupa_congestion_notified(&congestion, now_ns, 20000000);
	while (now_ns < SECOND_NS + 1000000) { /* before the rate rises */
		due_ns = nupa_congestion_due_ns(&congestion, 1000, now_ns);
		if (due_ns) {
			CHECK(due_ns > now_ns);
			now_ns = due_ns;
		} else {
			bytes += 1000;
		}
	}
	CHECK(bytes >= 10000 && bytes <= 11000);
	/* One who slept catches up a little. */
	now_ns += 400000;
	for (bytes = 0; !nupa_congestion_due_ns(&congestion, 100, now_ns); bytes += 100)
		CHECK(bytes <= 1100);
}

TEST(notifications_are_no_more_often_than_each_50_us)
{
	struct nupa_congestion congestion = { 0 };
	uint32_t sent = 0;

	for (uint64_t ns = SECOND_NS; ns < SECOND_NS + 500000; ns += 1000)
		sent += nupa_congestion_marked(&congestion, ns);
	CHECK_EQ(sent, 10);
}
