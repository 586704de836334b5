/* SPDX-License-Identifier: BSD-3-Clause
 * Captures at both ends of a wire: each shows the packets as they went, and both show the same. */
#include "tests/wire/keeper.h"

#include "base/bytes.h"
#include "capture/watch.h"
#include "packet/roce.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (1u << 20)
#define PACKETS_MAX 600u
#define PACKET_MAX_BYTES 4300u
#define ETHERNET_BYTES 14u
#define HEAD_BYTES 42u
#define LEVEL_TRANSPORT 4u
#define KIB 1024u

struct shown {
	struct nupa_watch_packet head;
	uint8_t data[PACKET_MAX_BYTES];
};

struct capture {
	struct nupa_watch *watch;
	uint32_t n;
	struct shown shown[PACKETS_MAX];
};

static struct capture *capture_open(struct nupa_fabric *fabric)
{
	struct capture *capture = calloc(1, sizeof(*capture));
	char why[256];

	CHECK(capture);
	capture->watch = nupa_watch_open(fabric, LEVEL_TRANSPORT, 0, NULL, 0, why, sizeof(why));
	CHECK(capture->watch);
	return capture;
}

/* All that there is, in order of time. */
static void capture_read(struct capture *capture)
{
	static uint8_t buffer[BUFFER_BYTES];
	struct nupa_watch_counts counts;
	uint32_t n;

	do {
		size_t at = 0;

		(void)nupa_watch_read(capture->watch, buffer, sizeof(buffer), &n);
		for (uint32_t i = 0; i < n; i++) {
			struct shown *shown = &capture->shown[capture->n++];

			CHECK(capture->n <= PACKETS_MAX);
			memcpy(&shown->head, buffer + at, sizeof(shown->head));
			at += sizeof(shown->head);
			CHECK(shown->head.captured_bytes <= PACKET_MAX_BYTES);
			memcpy(shown->data, buffer + at, shown->head.captured_bytes);
			at += (shown->head.captured_bytes + 7u) & ~7u;
		}
	} while (n);
	nupa_watch_counts(capture->watch, &counts);
	CHECK_EQ(counts.lost + counts.invalid, 0);
}

static void capture_close(struct capture *capture)
{
	nupa_watch_close(capture->watch);
	free(capture);
}

static uint8_t opcode_of(const struct shown *shown)
{
	return shown->data[HEAD_BYTES];
}

static bool has_right_icrc(const struct shown *shown)
{
	const uint32_t bytes = shown->head.captured_bytes - ETHERNET_BYTES - NUPA_ICRC_BYTES;
	const uint32_t icrc = htole32(nupa_icrc_of_frame(
	    NUPA_ICRC_IPV4, shown->data + ETHERNET_BYTES, 20, HEAD_BYTES - ETHERNET_BYTES, bytes));

	CHECK_EQ(shown->head.captured_bytes, shown->head.original_bytes);
	CHECK_EQ(shown->data[ETHERNET_BYTES + 8], 64); /* TTL */
	return !memcmp(shown->data + shown->head.captured_bytes - NUPA_ICRC_BYTES, &icrc,
		       sizeof(icrc));
}

/* The next packet from this address, from *at on. */
static const struct shown *next_from(const struct capture *capture, const uint8_t from[4],
				     uint32_t *at)
{
	while (*at < capture->n) {
		const struct shown *shown = &capture->shown[(*at)++];

		if (!memcmp(shown->data + ETHERNET_BYTES + 12, from, 4))
			return shown;
	}
	return NULL;
}

/* Both show the same packets from this address, from IP's header on; how many. */
static uint32_t compare(const struct capture *a, const struct capture *b, const uint8_t from[4])
{
	uint32_t at_a = 0, at_b = 0;

	for (uint32_t n = 0;; n++) {
		const struct shown *one = next_from(a, from, &at_a);
		const struct shown *other = next_from(b, from, &at_b);

		CHECK_EQ(one != NULL, other != NULL);
		if (!one)
			return n;
		CHECK_EQ(one->head.captured_bytes, other->head.captured_bytes);
		CHECK(!memcmp(one->data + ETHERNET_BYTES, other->data + ETHERNET_BYTES,
			      one->head.captured_bytes - ETHERNET_BYTES));
	}
}

static void talk(struct wired *wired, uint32_t bytes, uint64_t wr_id)
{
	struct end *a = wired->end_a, *b = wired->end_b;
	struct request add = request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id + 3, 0, 8);

	add.wr.wr.atomic.compare_add = 1;
	pattern_fill(a->memory, bytes, (uint32_t)wr_id);
	end_post_recv(b, wr_id, 0, bytes);
	end_start(a, IBV_WR_SEND, wr_id, 0, bytes);
	cq_expect(b->recv_cq, wr_id, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, wr_id, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_RDMA_WRITE, wr_id + 1, 0, bytes);
	cq_expect(a->send_cq, wr_id + 1, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_RDMA_READ, wr_id + 2, 0, bytes);
	cq_expect(a->send_cq, wr_id + 2, IBV_WC_SUCCESS);
	end_post(a, &add);
	cq_expect(a->send_cq, wr_id + 3, IBV_WC_SUCCESS);
}

TEST(both_ends_show_the_same_packets)
{
	static const uint32_t lengths[] = { 0, 1, 1500, 4096, 10000, 100 * KIB };
	struct end_options options = end_defaults;
	struct capture *a, *b;
	struct wired wired;
	uint32_t requests, answers;

	wired_open(&wired, &options, 1024);
	a = capture_open(wired.a.fabric);
	b = capture_open(wired.b.fabric);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		talk(&wired, lengths[i], 10u * i);
	capture_read(a);
	capture_read(b);
	requests = compare(a, b, wired.a.local + 12);
	answers = compare(a, b, wired.b.local + 12);
	/* SENDs and WRITEs; READs and atomics of one packet each at least. */
	CHECK(requests >= 2 * (1 + 1 + 2 + 4 + 10 + 100) + 12);
	CHECK(answers >= 1 + 1 + 2 + 4 + 10 + 100 + 6);
	CHECK_EQ(requests + answers, a->n);
	CHECK_EQ(a->n, b->n);
	for (uint32_t i = 0; i < a->n; i++)
		CHECK(has_right_icrc(&a->shown[i]));
	CHECK_EQ(a->n, keeper_info(&wired.a).sent_packets + keeper_info(&wired.a).received_packets);
	capture_close(a);
	capture_close(b);
	wired_close(&wired);
}

TEST(packets_have_the_transfer_of_their_request)
{
	struct end_options options = end_defaults;
	struct capture *capture;
	struct wired wired;
	uint64_t transfer = 0;

	wired_open(&wired, &options, 1024);
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 1, 0, 8); /* before it: unknown to it */
	cq_expect(wired.end_a->send_cq, 1, IBV_WC_SUCCESS);
	capture = capture_open(wired.a.fabric);
	end_start(wired.end_a, IBV_WR_RDMA_READ, 2, 0, 3000);
	cq_expect(wired.end_a->send_cq, 2, IBV_WC_SUCCESS);
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 3, 0, 3000);
	cq_expect(wired.end_a->send_cq, 3, IBV_WC_SUCCESS);
	capture_read(capture);
	/* READ, its response, a WRITE; an ACK of it, and one on the way where the PSN asks for it.
	 */
	CHECK(capture->n >= 4 + 3 + 1);
	CHECK_EQ(opcode_of(&capture->shown[0]), 0x0c);
	for (uint32_t i = 0; i < capture->n; i++) {
		const struct nupa_watch_packet *head = &capture->shown[i].head;
		const bool is_first = i == 0 || i == 4;

		CHECK(head->transfer);
		CHECK_EQ(head->transfer != transfer, is_first);
		CHECK_EQ(head->flags & 1, is_first);
		CHECK_EQ(head->flags >> 1 & 1, i == 3 || i == capture->n - 1);
		transfer = head->transfer;
	}
	capture_close(capture);
	wired_close(&wired);
}

TEST(retransmissions_are_shown)
{
	struct lossy lossy = { .lose = 500 };
	struct end_options options = end_defaults;
	struct capture *capture;
	struct wired wired;
	uint32_t again = 0;

	options.timeout = 13;
	options.retry_cnt = 7;
	wired_open_lossy(&wired, &options, 1024, &lossy);
	capture = capture_open(wired.a.fabric);
	for (uint32_t i = 0; i < 20; i++) {
		end_start(wired.end_a, IBV_WR_RDMA_WRITE, i, 0, 10000);
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
	}
	capture_read(capture);
	for (uint32_t i = 0; i < capture->n; i++)
		again += capture->shown[i].head.flags >> 2 & 1;
	CHECK(again > 0);
	capture_close(capture);
	wired_close(&wired);
}
