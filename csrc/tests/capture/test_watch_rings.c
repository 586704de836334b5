/* SPDX-License-Identifier: BSD-3-Clause
 * A watch and the rings of attachments: the order of records, lost records, rings of dead
 * processes. Frames, faults and messages are larger than the reader's buffer, too. */
#include "tests/support/end.h"
#include "segment/segment_internal.h"
#include "tests/capture/watched.h"

#include <string.h>

static uint8_t buffer[1 << 20];

TEST(rings_are_merged_by_time)
{
	struct two two = two_open(NUPA_TRACE_NET);
	uint64_t now_ns = test_now_ns();

	for (uint32_t i = 0; i < 100; i++)
		put_frame(i % 3 ? &two.a : &two.b, i % 3 ? 1 : 0, (uint8_t)(2 * i), 0, 0,
			  now_ns + i);
	do
		watched_read(two.watch);
	while (!n_packets);
	CHECK_EQ(n_packets, 100);
	for (uint32_t i = 0; i < 100; i++) {
		CHECK_EQ(packets[i].data[0], 2 * i & 255);
		CHECK_EQ(packets[i].head.host, i % 3 ? 0 : 1);
	}
	two_close(&two);
}

TEST(overwritten_records_are_counted)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	uint32_t n_records = 0, first;

	for (; two.a.header->tail < 3 * (uint64_t)NUPA_TRACE_BYTES + 500000; n_records++)
		put_send(&two.a, &two.b, n_records, 20000);
	watched_read(two.watch);
	CHECK_EQ(two_counts(&two).invalid, 0);
	CHECK_EQ(two_counts(&two).lost + two_counts(&two).records, n_records);
	CHECK(two_counts(&two).records > 20 && two_counts(&two).lost > 100);
	/* The records are whole, and so is the end. */
	first = watched_psn(&packets[0]);
	for (uint32_t i = 0; i < n_packets; i++)
		CHECK_EQ(watched_psn(&packets[i]), first + i);
	two_close(&two);
}

TEST(records_of_an_owner_that_ended_are_read)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct recorder again;
	uint32_t slot = two.a.slot;

	put_send(&two.a, &two.b, 1, 10);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 1);
	put_send(&two.a, &two.b, 2, 10);
	recorder_close(&two.a);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 1);
	/* The next owner of the slot is another one. */
	again = recorder_open(two.fabric, 0);
	CHECK_EQ(again.slot, slot);
	put_send(&again, &two.b, 0x1000007, 10);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 1);
	CHECK_EQ(watched_psn(&packets[0]), 7);
	CHECK_EQ(two_counts(&two).lost, 0);
	two.a = again;
	two_close(&two);
}

TEST(memory_of_the_dead_is_given_back_when_nobody_watches)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct nupa_fabric *fabric = nupa_fabric_get(two.fabric);
	uint32_t slot = two.a.slot;

	put_send(&two.a, &two.b, 1, 10);
	recorder_close(&two.a);
	CHECK(nupa_fabric_arena_held(fabric, slot));
	nupa_watch_close(two.watch);
	CHECK(!nupa_fabric_arena_held(fabric, slot));
	recorder_close(&two.b);
	nupa_fabric_put(two.fabric);
	nupa_fabric_put(fabric);
}

TEST(a_stopped_watch_shows_nothing_new)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);

	put_send(&two.a, &two.b, 1, 10);
	nupa_watch_stop(two.watch);
	put_send(&two.a, &two.b, 2, 10);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 1);
	CHECK_EQ(watched_psn(&packets[0]), 1);
	two_close(&two);
}

TEST(nonsense_is_counted_and_passed)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct nupa_trace_record *record = (void *)(two.a.header + 1);

	put_send(&two.a, &two.b, 1, 10);
	record->bytes = 12;
	put_send(&two.b, &two.a, 5, 10);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 1);
	CHECK_EQ(watched_psn(&packets[0]), 5);
	CHECK_EQ(two_counts(&two).invalid, 1);
	put_send(&two.a, &two.b, 2, 10);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 1);
	two_close(&two);
}

TEST(a_message_larger_than_the_buffer_comes_in_parts)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct nupa_trace_message body = {
		.msg = { .op = NUPA_OP_WRITE,
			 .flags = NUPA_F_FIRST | NUPA_F_LAST,
			 .src_qpn = two.a.slot << 16,
			 .dest_qpn = two.b.slot << 16,
			 .psn = 0xfffff0,
			 .reth = { 0x1000, 7, 20000000 } },
		.data = { .total_bytes = 20000000, .mtu_bytes = 1024, .piece_bytes = 8 },
		.qp_type = 2,
		.dest_host = 1,
	};
	struct nupa_trace_record record = { .kind = NUPA_TRACE_MESSAGE, .peer = 2, .transfer = 9 };
	static uint8_t data[19532 * 8];
	uint32_t n, total = 0;

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i / 8);
	recorder_put(&two.a, record, 0, &body, sizeof(body), data, sizeof(data));
	for (;;) {
		size_t bytes = nupa_watch_read(two.watch, buffer, sizeof(buffer), &n);
		struct nupa_watch_packet *packet = (void *)buffer;

		if (!bytes)
			break;
		for (uint32_t i = 0; i < n; i++, total++) {
			uint8_t *at = (uint8_t *)(packet + 1);
			uint32_t headers = total ? 54 : 70;

			CHECK_EQ(packet->sequence, total);
			CHECK_EQ((at[51] << 16 | at[52] << 8 | at[53]),
				 (0xfffff0 + total) & 0xffffff);
			CHECK_EQ(packet->captured_bytes, headers + 8);
			CHECK_EQ(at[headers], total & 255);
			packet = (void *)(at + ((packet->captured_bytes + 7u) & ~7u));
		}
	}
	CHECK_EQ(total, 19532);
	two_close(&two);
}

TEST(a_super_frame_has_its_own_length)
{
	struct two two = two_open(NUPA_TRACE_NET);

	put_frame(&two.a, 1, 2, 1, 0, 0);
	put_frame(&two.a, 1, 2, 0, 0, 0);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 2);
	CHECK_EQ(packets[0].head.captured_bytes, 100);
	CHECK_EQ(packets[0].head.original_bytes, 9000);
	CHECK_EQ(packets[0].data[16] << 8 | packets[0].data[17], 9000 - 14);
	CHECK_EQ(packets[1].data[16] << 8 | packets[1].data[17], 0xaabb);
	two_close(&two);
}

TEST(a_frame_to_all_leaves_its_source_once)
{
	struct two two = two_open(NUPA_TRACE_NET);

	put_frame(&two.a, 1, 0xff, 0, 0, 0);
	put_frame(&two.a, 0, 0xff, 0, 0, 0);
	put_frame(&two.a, 1, 0xff, 0, 0, 0); /* the next one: host 1 has had the first */
	watched_read(two.watch);
	CHECK_EQ(n_packets, 2);
	two_close(&two);
}

TEST(a_fault_is_seen_where_it_happened)
{
	struct two two = two_open(NUPA_TRACE_NET | NUPA_TRACE_TRANSPORT);
	struct nupa_trace_message body = {
		.msg = { .op = NUPA_OP_SEND, .flags = 3, .src_qpn = two.a.slot << 16, .psn = 4 },
		.data = { .mtu_bytes = 4096, .piece_bytes = 4096 },
		.qp_type = 2,
		.dest_host = 1,
	};
	struct nupa_trace_record record = { .kind = NUPA_TRACE_MESSAGE,
					    .flags = NUPA_TRACE_DROPPED,
					    .peer = (uint16_t)two.a.slot };

	put_frame(&two.b, 1, 2, 0, NUPA_TRACE_CORRUPT, 0);
	recorder_put(&two.b, record, 0, &body, sizeof(body), NULL, 0);
	watched_read(two.watch);
	CHECK_EQ(n_packets, 2);
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(packets[i].head.port, test_fabric_port(1));
		CHECK_EQ(packets[i].head.host, 1);
		CHECK_EQ(packets[i].head.direction, 1);
	}
	CHECK_EQ(packets[0].head.flags, 8);
	CHECK_EQ(packets[1].head.flags & 32, 32);
	CHECK_EQ(watched_psn(&packets[1]), 4);
	two_close(&two);
}
