/* SPDX-License-Identifier: BSD-3-Clause
 * The ring of ring.h: filled, wrapped, lied to, and driven by two threads. */
#include "tests/channel/ring_ends.h"

#include <pthread.h>
#include <sched.h>

#define N_LINES 16u
#define DMA_BYTES 4096u
#define EPOCH 7u

static struct ring ring_new(uint32_t n_lines, uint32_t dma_bytes)
{
	size_t bytes =
	    sizeof(struct nupa_ring_header) + n_lines * sizeof(struct nupa_msg) + dma_bytes;
	struct ring ring = { .header = aligned_alloc(64, bytes) };

	CHECK(ring.header);
	memset(ring.header, 0, bytes);
	ring.header->head = NUPA_HEAD(EPOCH, 0);
	ring.header->dma_head = NUPA_HEAD(EPOCH, 0);
	nupa_tx_init(&ring.tx, ring.header, n_lines, dma_bytes, EPOCH);
	nupa_rx_init(&ring.rx, ring.header, n_lines, dma_bytes, EPOCH);
	return ring;
}

TEST(a_full_ring_takes_no_more_until_the_consumer_publishes)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);

	CHECK(!nupa_rx_ready(&ring.rx));
	for (uint32_t i = 0; i < N_LINES; i++)
		CHECK(put(&ring.tx, i, 0));
	CHECK(!put(&ring.tx, N_LINES, 0));
	CHECK(nupa_rx_ready(&ring.rx));
	/* An eighth of the ring later the producer learns of it by itself. */
	CHECK(get(&ring.rx, 0, 0));
	CHECK(!put(&ring.tx, N_LINES, 0));
	CHECK(get(&ring.rx, 1, 0));
	CHECK(put(&ring.tx, N_LINES, 0));
	CHECK(put(&ring.tx, N_LINES + 1, 0));
	CHECK(!put(&ring.tx, N_LINES + 2, 0));
	for (uint32_t i = 2; i < N_LINES + 2; i++)
		CHECK(get(&ring.rx, i, 0));
	CHECK(!get(&ring.rx, 0, 0));
	CHECK(!nupa_rx_ready(&ring.rx));
	nupa_rx_publish(&ring.rx);
	CHECK(nupa_tx_drained(&ring.tx));
	free(ring.header);
}

TEST(lines_and_payloads_wrap_many_times)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);
	uint32_t lengths[] = { 0, 1, 64, 65, 1000, 1023, 1024, 3 };
	uint32_t sent = 0, got = 0;

	while (got < 10000) {
		while (sent < 10000 && put(&ring.tx, sent, lengths[sent % 8]))
			sent++;
		CHECK(sent > got);
		while (got < sent && get(&ring.rx, got, lengths[got % 8]))
			got++;
		nupa_rx_publish(&ring.rx);
	}
	CHECK(nupa_tx_drained(&ring.tx));
	CHECK_EQ(ring.tx.dma_tail, ring.rx.dma_head);
	free(ring.header);
}

TEST(full_dma_bytes_hold_back_payloads_but_not_bare_messages)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);
	uint32_t payload_max = nupa_dma_payload_max(DMA_BYTES);

	for (uint32_t i = 0; i < 4; i++)
		CHECK(put(&ring.tx, i, payload_max));
	CHECK(!put(&ring.tx, 4, 1));
	CHECK(put(&ring.tx, 4, 0));
	for (uint32_t i = 0; i < 4; i++)
		CHECK(get(&ring.rx, i, payload_max));
	CHECK(get(&ring.rx, 4, 0));
	CHECK(put(&ring.tx, 5, payload_max));
	CHECK(get(&ring.rx, 5, payload_max));
	free(ring.header);
}

TEST(a_gap_at_the_wrap_is_counted_by_both_ends)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);

	/* 3 * 1024 + 64 used: 960 left before the end, so 1024 go to the start. */
	for (uint32_t i = 0; i < 3; i++)
		CHECK(put(&ring.tx, i, 1024));
	CHECK(put(&ring.tx, 3, 1));
	for (uint32_t i = 0; i < 3; i++)
		CHECK(get(&ring.rx, i, 1024));
	CHECK(get(&ring.rx, 3, 1));
	CHECK(put(&ring.tx, 4, 1024));
	CHECK_EQ(ring.tx.dma_tail, DMA_BYTES + 1024);
	CHECK(get(&ring.rx, 4, 1024));
	CHECK_EQ(ring.rx.dma_head, DMA_BYTES + 1024);
	free(ring.header);
}

TEST(a_payload_length_that_cannot_be_is_corrupt)
{
	static const uint32_t lengths[] = {
		0, DMA_BYTES / 4 + 1, DMA_BYTES, DMA_BYTES + 64, UINT32_MAX - 63, UINT32_MAX
	};

	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct ring ring = ring_new(N_LINES, DMA_BYTES);
		struct nupa_msg *msg = nupa_tx_reserve(&ring.tx, 0, NULL);
		struct nupa_msg out;
		const uint8_t *payload;

		msg->flags = NUPA_F_DMA;
		msg->length_bytes = lengths[i];
		nupa_tx_publish(&ring.tx, msg, 0);
		CHECK_EQ(nupa_rx_take(&ring.rx, &out, &payload), NUPA_RX_CORRUPT);
		free(ring.header);
	}
}

TEST(a_line_of_another_lap_is_no_message)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);
	static const uint32_t tags[] = { 0, 2, 3, UINT32_MAX };

	for (unsigned int i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		ring.tx.lines[0].tag = tags[i];
		CHECK(!nupa_rx_ready(&ring.rx));
		CHECK(!get(&ring.rx, 0, 0));
	}
	free(ring.header);
}

/* For any position that the consumer claims, the producer never overwrites unconsumed lines. */
TEST(impossible_heads_leave_a_full_ring_full)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);
	const uint64_t heads[] = {
		NUPA_HEAD(EPOCH, N_LINES + 1),     /* ahead of the tail */
		NUPA_HEAD(EPOCH, NUPA_COUNT_MASK), /* behind 0 */
		NUPA_HEAD(EPOCH - 1, N_LINES),     /* another epoch */
		NUPA_HEAD(EPOCH + 1, 4),           0, UINT64_MAX, N_LINES,
	};

	for (uint32_t i = 0; i < N_LINES; i++)
		CHECK(put(&ring.tx, i, 128));
	for (unsigned int i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		ring.header->head = heads[i];
		ring.header->dma_head = heads[i];
		CHECK(!put(&ring.tx, 99, 0));
		CHECK(!nupa_tx_drained(&ring.tx));
		CHECK_EQ(ring.tx.head_seen, 0);
	}
	ring.header->head = NUPA_HEAD(EPOCH, 3);
	CHECK(put(&ring.tx, 99, 0));
	CHECK_EQ(ring.tx.head_seen, 3);
	ring.header->head = NUPA_HEAD(EPOCH, 2); /* back again */
	CHECK(put(&ring.tx, 99, 0) && put(&ring.tx, 99, 0) && !put(&ring.tx, 99, 0));
	free(ring.header);
}

TEST(impossible_dma_heads_leave_full_dma_bytes_full)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);

	for (uint32_t i = 0; i < 4; i++)
		CHECK(put(&ring.tx, i, DMA_BYTES / 4));
	ring.header->dma_head = NUPA_HEAD(EPOCH, DMA_BYTES + 64);
	CHECK(!put(&ring.tx, 4, 64));
	ring.header->dma_head = NUPA_HEAD(EPOCH + 1, 64);
	CHECK(!put(&ring.tx, 4, 64));
	ring.header->dma_head = NUPA_HEAD(EPOCH, 64);
	CHECK(put(&ring.tx, 4, 64));
	CHECK(!put(&ring.tx, 5, 1));
	free(ring.header);
}

/* Counts have 40 bits on the way: start just before they, and the tag, go round. */
TEST(counts_go_round_at_forty_bits)
{
	struct ring ring = ring_new(N_LINES, DMA_BYTES);
	uint64_t start = NUPA_COUNT_MASK + 1 - N_LINES;
	uint32_t number = 0;

	ring.tx.tail = ring.tx.head_seen = start;
	ring.rx.head = ring.rx.head_published = start;
	ring.tx.dma_tail = ring.tx.dma_head_seen = NUPA_COUNT_MASK + 1 - DMA_BYTES;
	ring.rx.dma_head = ring.rx.dma_head_published = ring.tx.dma_tail;
	ring.header->head = NUPA_HEAD(EPOCH, start);
	ring.header->dma_head = NUPA_HEAD(EPOCH, ring.tx.dma_tail);
	for (uint32_t lap = 0; lap < 8; lap++) {
		uint32_t first = number;

		for (uint32_t i = 0; i < N_LINES; i++)
			CHECK(put(&ring.tx, number++, 64));
		CHECK(!put(&ring.tx, number, 64));
		while (first < number)
			CHECK(get(&ring.rx, first++, 64));
	}
	free(ring.header);
}

/* --- two threads --------------------------------------------------------------------- */

#define STREAM_MESSAGES 1000000u

struct stream {
	struct ring ring;
	uint64_t seed;
};

/* Most payloads are small, some as large as can be. */
static uint32_t stream_length(uint64_t *random, uint32_t dma_bytes)
{
	uint64_t r = test_random(random);

	if (r % 64 == 0)
		return (uint32_t)(r >> 32) % (nupa_dma_payload_max(dma_bytes) + 1);
	return r & 1 ? 0 : (uint32_t)(r >> 32) % 200;
}

static void *produce(void *arg)
{
	struct stream *stream = arg;
	uint64_t random = stream->seed;

	for (uint32_t i = 0; i < STREAM_MESSAGES; i++) {
		uint32_t length = stream_length(&random, DMA_BYTES);

		while (!put(&stream->ring.tx, i, length))
			sched_yield();
	}
	return NULL;
}

TEST(two_threads_pass_a_million_messages_in_order)
{
	struct stream stream = { .ring = ring_new(N_LINES * 4, DMA_BYTES), .seed = test_seed() };
	uint64_t random = stream.seed;
	pthread_t producer;

	CHECK_EQ(pthread_create(&producer, NULL, produce, &stream), 0);
	for (uint32_t i = 0; i < STREAM_MESSAGES; i++) {
		uint32_t length = stream_length(&random, DMA_BYTES);

		while (!get(&stream.ring.rx, i, length)) {
			nupa_rx_publish(&stream.ring.rx);
			sched_yield();
		}
	}
	CHECK_EQ(pthread_join(producer, NULL), 0);
	nupa_rx_publish(&stream.ring.rx);
	CHECK(nupa_tx_drained(&stream.ring.tx));
	free(stream.ring.header);
}
