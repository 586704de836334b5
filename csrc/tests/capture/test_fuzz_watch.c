/* SPDX-License-Identifier: BSD-3-Clause
 * Rings of processes that are hostile, or died in the middle.  The packets that a watch makes of
 * them lie in its buffer, are no longer than they say, and come to an end.  NUPA_FUZZ_SECONDS is
 * the duration; the seed is printed. */
#include "tests/support/end.h"
#include "tests/support/recorder.h"
#include "capture/watch.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 100
#define BUFFER_BYTES (1u << 20)
#define READS_MAX 12 /* a record of 2 GiB has no end that a test waits for */

static uint64_t state;

static uint64_t any(uint64_t below)
{
	return test_random(&state) % below;
}

/* Mostly what makes sense, sometimes anything. */
static uint64_t number(uint64_t below)
{
	return any(20) ? any(below) : test_random(&state);
}

static void fill(void *to, size_t bytes)
{
	uint8_t *at = to;

	for (size_t i = 0; i < bytes; i++)
		at[i] = any(3) ? 0 : (uint8_t)test_random(&state);
}

static struct nupa_trace_data any_data(uint32_t *data_bytes)
{
	static const uint32_t sizes[] = { 0, 1, 7, 64, 255, 4096, 9000, 200000 };
	struct nupa_trace_data data = {
		.total_bytes = (uint32_t)number(any(2) ? 9000 : 300000),
		.mtu_bytes = any(30) ? 128u << any(6) : (uint32_t)test_random(&state),
	};

	data.piece_bytes = any(2) ? data.mtu_bytes : (uint32_t)number(200);
	*data_bytes = any(3) && data.total_bytes < 200000 ? data.total_bytes : sizes[any(8)];
	return data;
}

static uint32_t any_qpn(const struct recorder *of)
{
	return (uint32_t)(any(30) ? of->slot << 16 | any(4) : test_random(&state));
}

static void put_message(struct recorder *from, const struct recorder *to, uint8_t *data)
{
	uint32_t data_bytes = 0;
	struct nupa_trace_message body;
	struct nupa_trace_record record = { .kind = NUPA_TRACE_MESSAGE };

	memset(&body, 0, sizeof(body));
	fill(&body.msg.data, sizeof(body.msg.data));
	body.msg.tag = (uint32_t)number(4);
	body.msg.op = (uint8_t)number(NUPA_OP_MAX + 1);
	body.msg.flags = (uint8_t)test_random(&state);
	body.msg.syndrome = (uint8_t)number(7);
	body.msg.timer = (uint8_t)number(32);
	body.msg.src_qpn = any_qpn(from);
	body.msg.dest_qpn = any_qpn(to);
	body.msg.psn = (uint32_t)number(40);
	body.msg.ack_psn = (uint32_t)number(40);
	body.data = any_data(&data_bytes);
	body.msg.length_bytes = body.data.total_bytes;
	body.data.ahead = (uint32_t)number(66);
	body.line = (uint16_t)number(66);
	body.qp_type = (uint8_t)number(11);
	body.is_xrc = !any(8);
	body.dest_host = (uint32_t)(any(30) ? to->host : test_random(&state));
	record.peer = (uint16_t)(any(30) ? to->slot : test_random(&state));
	record.flags = any(4) ? 0 : (uint8_t)test_random(&state);
	record.transfer = any(2) ? NUPA_TRANSFER(body.msg.src_qpn, any(40)) : 0;
	recorder_put(from, record, 0, &body, sizeof(body), data, data_bytes);
}

static void put_direct(struct recorder *from, const struct recorder *to, uint8_t *data)
{
	uint32_t data_bytes = 0;
	struct nupa_trace_direct body;
	struct nupa_trace_record record = { .kind = NUPA_TRACE_DIRECT };

	memset(&body, 0, sizeof(body));
	body.opcode = (uint32_t)number(16);
	body.src_qpn = any_qpn(from);
	body.dest_qpn = any_qpn(to);
	body.dest_host = (uint32_t)(any(30) ? to->host : test_random(&state));
	body.raddr = any(2) ? any(1 << 20) & ~7u : test_random(&state);
	body.pool_off = any(2) ? UINT64_MAX : number(1 << 30);
	body.data = any_data(&data_bytes);
	body.offset_bytes = any(2) ? 0 : number(100000);
	body.message_bytes =
	    number(2) ? body.offset_bytes + body.data.total_bytes : number(UINT64_C(1) << 40);
	body.qp_type = (uint8_t)number(11);
	body.psn = (uint32_t)number(40);
	record.transfer = NUPA_TRANSFER(body.src_qpn, any(40));
	record.flags = any(4) ? 0 : (uint8_t)test_random(&state);
	recorder_put(from, record, 0, &body, sizeof(body), data, data_bytes);
}

/* The other kinds, all of whose fields may be anything. */
static void put_any(struct recorder *from, uint8_t *data)
{
	static const size_t sizes[] = {
		[NUPA_TRACE_WQE] = sizeof(struct nupa_trace_wqe),
		[NUPA_TRACE_DOORBELL] = sizeof(struct nupa_trace_doorbell),
		[NUPA_TRACE_CQE] = sizeof(struct nupa_trace_cqe),
		[NUPA_TRACE_FRAME] = sizeof(struct nupa_trace_frame),
		[NUPA_TRACE_PACKET] = sizeof(struct nupa_trace_packet),
	};
	static const uint8_t kinds[] = { NUPA_TRACE_WQE, NUPA_TRACE_DOORBELL, NUPA_TRACE_CQE,
					 NUPA_TRACE_FRAME, NUPA_TRACE_PACKET };
	uint8_t body[128];
	struct nupa_trace_record record = { .kind = kinds[any(5)],
					    .peer = (uint16_t)number(4),
					    .flags = (uint8_t)(any(3) ? 0 : test_random(&state)),
					    .transfer = any(2) ? test_random(&state) : 0 };
	struct nupa_trace_frame *frame = (void *)body;
	struct nupa_trace_packet *packet = (void *)body;
	uint32_t data_bytes = (uint32_t)any(700);

	fill(body, sizeof(body));
	/* Both begin with it. */
	if (record.kind >= NUPA_TRACE_FRAME && any(4))
		frame->data.total_bytes = any(2) ? data_bytes : (uint32_t)any(2000);
	if (record.kind == NUPA_TRACE_PACKET && any(8))
		packet->host = (uint16_t)any(2);
	recorder_put(from, record, any(40) ? 0 : test_random(&state), body, sizes[record.kind],
		     data, data_bytes);
}

/* Overwrites bytes of the ring, or of its header, at random. */
static void damage(struct recorder *recorder)
{
	uint8_t *ring = (uint8_t *)(recorder->header + 1);
	const uint64_t tail = recorder->header->tail;

	for (uint64_t n = any(6); n && tail; n--)
		ring[any(tail < NUPA_TRACE_BYTES ? tail : NUPA_TRACE_BYTES)] =
		    (uint8_t)test_random(&state);
	switch (any(12)) {
	case 0:
		recorder->header->begun = test_random(&state);
		break;
	case 1:
		recorder->header->tail = test_random(&state) & ~UINT64_C(7);
		break;
	case 2:
		recorder->header->tail += 8 * any(100000);
		break;
	case 3:
		recorder->header->epoch = (uint32_t)test_random(&state);
		break;
	default:
		break;
	}
}

static void check(const uint8_t *buffer, size_t bytes, uint32_t n, uint32_t snap_bytes)
{
	struct nupa_watch_packet packet;
	uint64_t last_ns = 0;
	size_t at = 0;

	for (; n; n--) {
		CHECK(bytes - at >= sizeof(packet));
		memcpy(&packet, buffer + at, sizeof(packet));
		at += sizeof(packet) + ((packet.captured_bytes + 7u) & ~7u);
		CHECK(at <= bytes);
		CHECK(packet.captured_bytes <= packet.original_bytes);
		CHECK(!snap_bytes || packet.captured_bytes <= snap_bytes);
		CHECK(packet.port < 4 && packet.host < 2);
		CHECK(packet.level >= 1 && packet.level <= 5);
		CHECK(packet.ts_ns >= last_ns);
		last_ns = packet.ts_ns;
	}
	CHECK_EQ(at, bytes);
}

static void one_round(struct nupa_fabric *fabric, uint8_t *data)
{
	static const uint16_t ports[] = { 0, 1, 2, 3 };
	const uint32_t snap_bytes = any(2) ? 0 : (uint32_t)any(300);
	struct recorder a = recorder_open(fabric, 0), b = recorder_open(fabric, 1);
	/* A buffer of exactly its size, so that ASan sees what goes beyond it. */
	uint8_t *buffer = malloc(BUFFER_BYTES);
	struct nupa_watch *watch;
	uint32_t n;
	char why[256];

	watch = nupa_watch_open(fabric, 1 + (uint32_t)any(31), snap_bytes, ports, any(2) ? 0 : 4,
				why, sizeof(why));
	CHECK(buffer && watch);
	for (uint64_t times = 1 + any(3); times; times--) {
		for (uint64_t i = any(300); i; i--) {
			struct recorder *from = any(2) ? &a : &b, *to = from == &a ? &b : &a;

			switch (any(4)) {
			case 0:
				put_direct(from, to, data);
				break;
			case 1:
				put_any(from, data);
				break;
			default:
				put_message(from, to, data);
				break;
			}
		}
		if (any(2))
			damage(&a);
		for (int i = 0; i < READS_MAX; i++) {
			size_t bytes = nupa_watch_read(watch, buffer, BUFFER_BYTES, &n);

			check(buffer, bytes, n, snap_bytes);
			if (!n)
				break;
		}
		a.header->tail = a.header->begun = 0; /* the watch goes on behind all of it */
		a.header->epoch = b.header->epoch;
	}
	nupa_watch_close(watch);
	free(buffer);
	recorder_close(&a);
	recorder_close(&b);
}

TEST(nonsense_in_rings_is_passed)
{
	const uint64_t ns = test_fuzz_ns(0), until_ns = test_now_ns() + ns;
	struct nupa_fabric *fabric = test_fabric();
	uint8_t *data = malloc(1 << 20);

	CHECK(data);
	state = test_seed();
	fill(data, 1 << 20);
	for (int i = 0; ns ? test_now_ns() < until_ns : i < ROUNDS; i++)
		one_round(fabric, data);
	free(data);
	nupa_fabric_put(fabric);
}
