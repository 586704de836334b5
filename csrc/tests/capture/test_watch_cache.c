/* SPDX-License-Identifier: BSD-3-Clause
 * Lines of the fast channel as CXL.cache messages in a watch: their order, the states of both
 * caches, and the bytes in the segment. */
#include "capture/expand/cache_line.h"
#include "tests/support/end.h"
#include "segment/ring/ring.h"
#include "segment/segment_internal.h"
#include "capture/expand/expand.h"
#include "engine/channel/channel.h"
#include "engine/core/engine.h"
#include "tests/capture/watched.h"

#include <string.h>

enum { D2H_REQ = 1, D2H_RSP, D2H_DATA, H2D_REQ, H2D_RSP, H2D_DATA };
enum { INVALID, SHARED, EXCLUSIVE, MODIFIED };
#define FRONT 24u /* of NUPA's header */

static uint64_t number(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static uint8_t channel_of(const struct seen *seen)
{
	return seen->data[FRONT];
}

static uint64_t line_of(const struct seen *seen)
{
	return number(seen->data + FRONT + 8, 8);
}

/* Channel and opcode, as 0x12 for D2H Req RdOwn. */
static uint32_t code_of(const struct seen *seen)
{
	static const uint8_t shift[] = { 0, 2, 2, 8, 4, 3, 8 };
	const uint8_t channel = channel_of(seen);

	return (uint32_t)channel << 4 | (seen->data[FRONT + 16] & 0x7fu) >> shift[channel];
}

static uint32_t id_of(const struct seen *seen)
{
	return (uint32_t)number(seen->data + FRONT + (channel_of(seen) == H2D_RSP ? 19 : 17), 2) >>
	       4;
}

/* 64 bytes of the segment, in the arena of the slot that wrote them. */
static const uint8_t *in_segment(struct nupa_fabric *fabric, uint32_t slot, uint64_t at)
{
	return nupa_fabric_arena(fabric, slot) + (at - nupa_arena_offset(fabric, slot));
}

/* --- the caches of both hosts -------------------------------------------------------- */

static struct {
	uint64_t at;
	uint8_t states[2]; /* by host */
} lines[256];
static uint32_t n_lines;

static uint8_t *states_of(uint64_t at)
{
	for (uint32_t i = 0; i < n_lines; i++)
		if (lines[i].at == at)
			return lines[i].states;
	CHECK(n_lines < 256);
	lines[n_lines].at = at;
	return lines[n_lines++].states;
}

/* The messages continue from the earlier ones; two caches never contradict each other; only the
 * store of an owner goes unseen. */
static void messages_follow_from_one_another(void)
{
	for (uint32_t i = 0; i < n_packets; i++) {
		const struct seen *seen = &packets[i];
		const uint8_t *front = seen->data + FRONT;
		const uint32_t host = seen->head.host, peer = (uint32_t)number(front + 6, 2);
		const uint8_t states[2] = { front[4], front[5] };
		uint8_t *known = states_of(line_of(seen));

		CHECK_EQ(seen->head.level, NUPA_LEVEL_CACHE);
		CHECK_EQ(seen->head.kind, NUPA_KIND_CXL_CACHE);
		CHECK_EQ(seen->head.direction,
			 channel_of(seen) <= D2H_DATA ? NUPA_OUTBOUND : NUPA_INBOUND);
		CHECK(host < 2 && peer == !host && line_of(seen) % 64 == 0);
		for (uint32_t k = 0; k < 2; k++) {
			uint8_t *state = &known[k ? peer : host];

			if (*state == EXCLUSIVE && states[k] >> 4 == MODIFIED)
				*state = MODIFIED;
			CHECK_EQ(states[k] >> 4, *state);
			*state = states[k] & 15;
		}
		CHECK(known[0] < EXCLUSIVE || known[1] == INVALID);
		CHECK(known[1] < EXCLUSIVE || known[0] == INVALID);
	}
}

/* --- tests --------------------------------------------------------------------------- */

static void begin(struct nupa_fabric *fabric, struct end **a, struct end **b)
{
	n_lines = 0;
	pair_open(fabric, &end_defaults, a, b);
}

static void send(struct end *a, struct end *b, uint64_t id, uint32_t bytes)
{
	end_post_recv(b, id, 0, 8192);
	end_start(a, IBV_WR_SEND, id, 0, bytes);
	cq_expect(a->send_cq, id, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, id, IBV_WC_SUCCESS);
}

TEST(a_line_goes_from_the_producers_cache_to_the_consumers)
{
	static const uint32_t codes[] = { 0x12, 0x54, 0x60, 0x13, 0x41, 0x27, 0x30, 0x54, 0x60 };
	static const uint8_t hosts[] = { 0, 0, 0, 1, 0, 0, 0, 1, 1 };
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;
	struct nupa_watch *watch;
	const uint8_t *there;

	begin(fabric, &a, &b);
	watch = watched_open(fabric, NUPA_WATCH_CACHE);
	pattern_fill(a->memory, 20, 1);
	send(a, b, 1, 20);
	watched_read(watch);
	CHECK_EQ(n_packets, 18); /* the message and its acknowledgement, each in a new line */
	for (uint32_t i = 0; i < n_packets; i++) {
		CHECK_EQ(code_of(&packets[i]), codes[i % 9]);
		CHECK_EQ(packets[i].head.host, hosts[i % 9] ^ (i / 9));
		CHECK_EQ(packets[i].head.sequence, i);
		CHECK_EQ(packets[i].head.transfer, packets[0].head.transfer);
		CHECK_EQ(!!(packets[i].head.flags & NUPA_FLAG_FIRST), i == 0);
		CHECK_EQ(!!(packets[i].head.flags & NUPA_FLAG_LAST), i == 17);
		CHECK_EQ(line_of(&packets[i]), line_of(&packets[i / 9 * 9]));
	}
	CHECK(packets[0].head.transfer);
	messages_follow_from_one_another();
	/* The line is what stands in the segment: all 32 bytes in front, and the payload. */
	there = in_segment(fabric, a->self.qpn >> 16, line_of(&packets[0]));
	CHECK(!memcmp(packets[6].data + FRONT + 20, there, 32 + 20));
	CHECK(!memcmp(packets[8].data + FRONT + 20, there, 32 + 20));
	there = in_segment(fabric, b->self.qpn >> 16, line_of(&packets[9]));
	CHECK(!memcmp(packets[15].data + FRONT + 20, there, 32));
	/* Requests and responses have the same ids. */
	CHECK_EQ(id_of(&packets[0]), id_of(&packets[1]));
	CHECK_EQ(id_of(&packets[3]), id_of(&packets[8]));
	CHECK_EQ(id_of(&packets[4]), id_of(&packets[6]));
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

TEST(the_next_laps_take_lines_back_and_look_at_the_head)
{
	/* The head first, which the producer has not looked at before: 3 and 6; then a line that
	 * both had: 4 and 6. */
	static const uint32_t codes[] = { 0x12, 0x54, 0x60, 0x13, 0x41, 0x27, 0x30,
					  0x54, 0x60, 0x15, 0x42, 0x25, 0x54, 0x13,
					  0x41, 0x27, 0x30, 0x54, 0x60 };
	struct nupa_fabric *fabric = test_fabric_of_lines(16); /* too few to grow */
	uint32_t heads = 0, again = 0, last = 0, n_ring;
	struct end *a, *b;
	struct nupa_watch *watch;
	uint64_t word, head = 0;

	begin(fabric, &a, &b);
	n_ring = fabric->geometry.ring_lines;
	watch = watched_open(fabric, NUPA_WATCH_CACHE);
	for (uint32_t i = 0; i < 4 * n_ring; i++) {
		send(a, b, i, 8);
		watched_read(watch);
		messages_follow_from_one_another();
		if (packets[0].data[FRONT + 2] != NUPA_CACHE_HEAD)
			continue;
		CHECK(packets[0].head.host == 1 && packets[9].head.host == 0);
		if (!heads++) {
			for (uint32_t k = 0; k < sizeof(codes) / sizeof(codes[0]); k++)
				CHECK_EQ(code_of(&packets[k]), codes[k]);
			CHECK_EQ(i, n_ring);
		} else {
			CHECK_EQ(code_of(&packets[0]), 0x15);
			again++;
		}
		/* The consumer's published position, and none beyond what it can have taken. */
		memcpy(&word, packets[heads > 1 ? 9 : 8].data + FRONT + 20, 8);
		word &= NUPA_COUNT_MASK;
		CHECK(word > head && word <= i && i - last <= n_ring);
		head = word;
		last = i;
	}
	CHECK(heads >= 3 && again == heads - 1);
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

TEST(a_ring_that_grows_shows_the_line_that_says_so)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint32_t n_ring = fabric->geometry.ring_lines;
	const struct nupa_tx *tx;
	struct end *a, *b;
	struct nupa_watch *watch;

	begin(fabric, &a, &b);
	watch = watched_open(fabric, NUPA_WATCH_CACHE);
	tx = &nupa_engine_of(a->context)->channels[nupa_context_slot(b->context)]->tx;
	send(a, b, 1, 8); /* they know each other */
	for (uint32_t i = 0; i < n_ring / 2; i++)
		end_post_recv(b, i, 0, 8192);
	nupa_engine_lock(nupa_engine_of(b->context)); /* it takes nothing */
	for (uint32_t i = 0; i < n_ring / 2; i++)
		end_start(a, IBV_WR_SEND, i, 0, 8);
	CHECK_EQ(tx->n_lines, n_ring);
	nupa_engine_unlock(nupa_engine_of(b->context));
	for (uint32_t i = 0; i < n_ring / 2; i++) {
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	watched_read(watch);
	messages_follow_from_one_another();
	for (uint32_t i = 0; i < 4 * n_ring; i++) {
		send(a, b, i, 8);
		watched_read(watch);
		messages_follow_from_one_another();
	}
	CHECK(n_lines >= n_ring);
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

TEST(a_port_shows_its_own_messages)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint16_t port = (uint16_t)test_fabric_port(1);
	char why[256];
	struct end *a, *b;
	struct nupa_watch *watch;

	begin(fabric, &a, &b);
	watch = nupa_watch_open(fabric, NUPA_WATCH_CACHE, 0, &port, 1, why, sizeof(why));
	CHECK(watch);
	send(a, b, 1, 20);
	watched_read(watch);
	CHECK_EQ(n_packets, 3 + 6); /* reads the message; writes the answer */
	for (uint32_t i = 0; i < n_packets; i++)
		CHECK(packets[i].head.port == port && packets[i].head.host == 1 &&
		      packets[i].head.sequence == i);
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

TEST(a_snap_length_cuts_the_line_and_nothing_else)
{
	struct nupa_fabric *fabric = test_fabric();
	char why[256];
	struct end *a, *b;
	struct nupa_watch *watch;

	begin(fabric, &a, &b);
	watch = nupa_watch_open(fabric, NUPA_WATCH_CACHE, 60, NULL, 0, why, sizeof(why));
	CHECK(watch);
	send(a, b, 1, 20);
	watched_read(watch);
	CHECK_EQ(n_packets, 18);
	for (uint32_t i = 0; i < n_packets; i++) {
		const uint32_t bytes = packets[i].head.original_bytes;

		CHECK_EQ(packets[i].head.captured_bytes, bytes < 60 ? bytes : 60);
	}
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

TEST(lines_that_cannot_be_are_not_shown)
{
	struct two two = two_open(NUPA_WATCH_CACHE);
	const uint32_t n_ring = two.fabric->geometry.ring_lines;
	const struct {
		uint32_t tag, ahead;
		uint16_t line, peer;
		uint32_t n;
	} cases[] = {
		{ 1, 0, 0, (uint16_t)two.b.slot, 9 },
		{ 0, 0, 0, (uint16_t)two.b.slot, 0 }, /* recorded by a receiver */
		{ 1, 1, 0, (uint16_t)two.b.slot, 0 }, /* more taken than sent */
		{ 1, 0, (uint16_t)n_ring, (uint16_t)two.b.slot, 0 },
		{ 1, 0, 0, 0, 0 },
		{ 1, 0, 0, 0xffff, 0 },
		{ UINT32_MAX, 0, 1, (uint16_t)two.b.slot,
		  10 + 9 }, /* the head: once, as a first time */
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nupa_trace_message body = {
			.msg = { .tag = cases[i].tag, .op = NUPA_OP_GONE },
			.data = { .mtu_bytes = 4096, .piece_bytes = 4096, .ahead = cases[i].ahead },
			.line = cases[i].line,
			.line_shift = (uint8_t)__builtin_ctz(n_ring),
			.is_fresh = cases[i].tag == 1,
			.dest_host = 1,
		};
		struct nupa_trace_record record = { .kind = NUPA_TRACE_MESSAGE,
						    .peer = cases[i].peer };

		recorder_put(&two.a, record, 0, &body, sizeof(body), NULL, 0);
		watched_read(two.watch);
		CHECK_EQ(n_packets, cases[i].n);
	}
	CHECK_EQ(two_counts(&two).invalid, 0);
	two_close(&two);
}
