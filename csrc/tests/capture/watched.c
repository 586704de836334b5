/* SPDX-License-Identifier: BSD-3-Clause
 * A watch and what it watches, for tests. */
#include "tests/capture/watched.h"

#include "tests/support/end.h"

#include <string.h>

#define BUFFER_BYTES (1u << 20)

static uint8_t buffer[BUFFER_BYTES];
static char why[256];

struct seen packets[4096];
uint32_t n_packets;

void watched_read(struct nupa_watch *watch)
{
	uint32_t n;

	n_packets = 0;
	do {
		size_t bytes = nupa_watch_read(watch, buffer, sizeof(buffer), &n);
		size_t at = 0;

		for (uint32_t i = 0; i < n; i++) {
			struct seen *seen = &packets[n_packets];

			CHECK(n_packets < 4096);
			memcpy(&seen->head, buffer + at, sizeof(seen->head));
			memset(seen->data, 0, sizeof(seen->data));
			memcpy(seen->data, buffer + at + sizeof(seen->head),
			       seen->head.captured_bytes < sizeof(seen->data)
				   ? seen->head.captured_bytes
				   : sizeof(seen->data));
			at += sizeof(seen->head) + ((seen->head.captured_bytes + 7u) & ~7u);
			CHECK(!n_packets || seen->head.ts_ns >= seen[-1].head.ts_ns);
			n_packets++;
		}
		CHECK_EQ(at, bytes);
	} while (n);
}

struct nupa_watch *watched_open(struct nupa_fabric *fabric, uint32_t levels)
{
	struct nupa_watch *watch = nupa_watch_open(fabric, levels, 0, NULL, 0, why, sizeof(why));

	CHECK(watch);
	return watch;
}

uint32_t watched_opcode(const struct seen *seen)
{
	return seen->data[42];
}

uint32_t watched_psn(const struct seen *seen)
{
	return (uint32_t)seen->data[51] << 16 | (uint32_t)seen->data[52] << 8 | seen->data[53];
}

struct two two_open(uint32_t levels)
{
	struct two two = { .fabric = test_fabric() };

	two.a = recorder_open(two.fabric, 0);
	two.b = recorder_open(two.fabric, 1);
	two.watch = watched_open(two.fabric, levels);
	return two;
}

void two_close(struct two *two)
{
	nupa_watch_close(two->watch);
	recorder_close(&two->a);
	recorder_close(&two->b);
	nupa_fabric_put(two->fabric);
}

struct nupa_watch_counts two_counts(const struct two *two)
{
	struct nupa_watch_counts counts;

	nupa_watch_counts(two->watch, &counts);
	return counts;
}

void put_send(struct recorder *from, const struct recorder *to, uint32_t psn, uint32_t bytes)
{
	static uint8_t data[65536];
	struct nupa_msg msg = {
		.op = NUPA_OP_SEND,
		.flags = NUPA_F_FIRST | NUPA_F_LAST,
		.src_qpn = from->slot << 16 | 1,
		.dest_qpn = to->slot << 16 | 2,
		.psn = psn,
		.length_bytes = bytes,
	};

	recorder_message(from, to, msg, 2, data, bytes);
}

void put_frame(struct recorder *from, uint32_t to_host, uint8_t first, uint8_t gso_type,
	       uint8_t flags, uint64_t time_ns)
{
	uint8_t data[100] = { first, [12] = 0x08, [14] = 0x45, [16] = 0xaa, [17] = 0xbb };
	struct nupa_trace_frame body = {
		.data = { .total_bytes = 9000, .mtu_bytes = 9000, .piece_bytes = sizeof(data) },
		.gso_type = gso_type,
	};
	struct nupa_trace_record record = { .kind = NUPA_TRACE_FRAME,
					    .flags = flags,
					    .peer = (uint16_t)(to_host + 1) };

	recorder_put(from, record, time_ns, &body, sizeof(body), data, sizeof(data));
}
