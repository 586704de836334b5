/* SPDX-License-Identifier: BSD-3-Clause
 * Rings that begin small (ring.h I6): both ends go on at the same places, whatever was under way.
 */
#include "tests/channel/ring_ends.h"

#include <pthread.h>
#include <sched.h>

#define MOST_LINES 1024u
#define MOST_DMA_BYTES (1u << 20)
#define FIRST_LINES 32u
#define FIRST_DMA_BYTES (32u << 10)
#define EPOCH 7u

static struct ring ring_new(void)
{
	const size_t bytes =
	    sizeof(struct nupa_ring_header) + MOST_LINES * sizeof(struct nupa_msg) + MOST_DMA_BYTES;
	struct ring ring = { .header = aligned_alloc(64, bytes) };

	CHECK(ring.header);
	/* Another consumer had it: each line has a tag that one would wait for. */
	memset(ring.header, 0, bytes);
	for (uint32_t i = FIRST_LINES; i < MOST_LINES; i++)
		((struct nupa_msg *)(ring.header + 1))[i].tag = 1;
	ring.header->head = NUPA_HEAD(EPOCH, 0);
	ring.header->dma_head = NUPA_HEAD(EPOCH, 0);
	nupa_tx_init(&ring.tx, ring.header, MOST_LINES, MOST_DMA_BYTES, EPOCH);
	nupa_rx_init(&ring.rx, ring.header, MOST_LINES, MOST_DMA_BYTES, EPOCH);
	nupa_tx_begin_small(&ring.tx);
	nupa_rx_begin_small(&ring.rx);
	CHECK(ring.tx.n_lines == FIRST_LINES && ring.tx.dma_bytes == FIRST_DMA_BYTES);
	return ring;
}

TEST(a_full_ring_grows_until_it_is_as_large_as_it_may_be)
{
	struct ring ring = ring_new();
	uint32_t sent = 0;

	for (uint32_t lines = FIRST_LINES; lines < MOST_LINES; lines *= 2) {
		CHECK_EQ(ring.tx.n_lines, lines);
		while (ring.tx.n_lines == lines)
			CHECK(put(&ring.tx, sent++, 0));
	}
	while (put(&ring.tx, sent, 0))
		sent++;
	CHECK_EQ(sent, MOST_LINES - 5); /* a line for each growth */
	CHECK(!nupa_tx_drained(&ring.tx));
	for (uint32_t i = 0; i < sent; i++)
		CHECK(get(&ring.rx, i, 0));
	CHECK(!get(&ring.rx, 0, 0));
	nupa_rx_publish(&ring.rx);
	CHECK(nupa_tx_drained(&ring.tx));
	/* From now on it is a ring as any other. */
	for (uint32_t i = 0; i < 3 * MOST_LINES; i++)
		CHECK(put(&ring.tx, i, 0) && get(&ring.rx, i, 0));
	for (uint32_t i = 0; i < MOST_LINES; i++)
		CHECK(put(&ring.tx, i, 0) || i + MOST_LINES / 8 > MOST_LINES);
	free(ring.header);
}

TEST(payloads_make_the_dma_bytes_grow_and_one_that_is_large_at_once)
{
	struct ring ring = ring_new();
	uint32_t sent = 0, got = 0;

	for (; ring.tx.dma_bytes < MOST_DMA_BYTES; sent++)
		CHECK(put(&ring.tx, sent, 4096));
	CHECK(ring.tx.n_lines <= 2 * sent);
	for (; got < sent; got++)
		CHECK(get(&ring.rx, got, 4096));
	CHECK_EQ(ring.rx.dma_bytes, MOST_DMA_BYTES);
	free(ring.header);

	ring = ring_new();
	CHECK(!put(&ring.tx, 0, MOST_DMA_BYTES / 4 + 1));
	CHECK(put(&ring.tx, 0, MOST_DMA_BYTES / 4));
	CHECK_EQ(ring.tx.dma_bytes, MOST_DMA_BYTES);
	CHECK(get(&ring.rx, 0, MOST_DMA_BYTES / 4));
	free(ring.header);
}

/* With one line left there is none for the message behind the line that says so. */
TEST(dma_bytes_grow_with_the_lines_or_wait_for_one)
{
	for (uint32_t used = 0;; used++) {
		struct ring ring = ring_new();
		uint32_t i = 0;

		while (i < used && put(&ring.tx, i, 0))
			i++;
		if (i < used) {
			free(ring.header);
			break; /* not a line was left */
		}
		if (!put(&ring.tx, used, FIRST_DMA_BYTES)) {
			CHECK(used + 7 > MOST_LINES);
			for (i = 0; i < used; i++)
				CHECK(get(&ring.rx, i, 0));
			CHECK(put(&ring.tx, used, FIRST_DMA_BYTES));
		}
		for (i = i == used && ring.rx.head ? used : 0; i < used; i++)
			CHECK(get(&ring.rx, i, 0));
		CHECK(get(&ring.rx, used, FIRST_DMA_BYTES));
		free(ring.header);
	}
}

/* Any mixture: growth falls into any place of a lap, with any number of messages under way. */
TEST(messages_keep_their_order_and_bytes_wherever_a_ring_grows)
{
	uint64_t random = test_seed();

	for (uint32_t round = 0; round < 60; round++) {
		static uint32_t sizes[8192];
		struct ring ring = ring_new();
		uint32_t sent = 0, got = 0, total = 200 + (uint32_t)test_random(&random) % 5000;

		while (got < total) {
			uint32_t puts = (uint32_t)test_random(&random) % (round % 2 ? 40 : 400);
			uint32_t gets = (uint32_t)test_random(&random) % (round % 3 ? 40 : 400);

			for (; puts && sent < total; puts--, sent++) {
				sizes[sent] = test_random(&random) % 8
						  ? 0
						  : (uint32_t)test_random(&random) % 9000;
				if (!put(&ring.tx, sent, sizes[sent]))
					break;
			}
			for (; gets && get(&ring.rx, got, sizes[got]); gets--)
				got++;
			if (got == sent)
				CHECK(!get(&ring.rx, got, 0));
			if (gets)
				nupa_rx_publish(&ring.rx);
			CHECK_EQ(nupa_tx_drained(&ring.tx),
				 got == sent && ring.rx.head == ring.rx.head_published);
		}
		CHECK(ring.tx.head_seen <= ring.tx.tail);
		free(ring.header);
	}
}

/* What the producer saw taken stays taken, across positions that were left out. */
TEST(positions_never_go_back)
{
	struct ring ring = ring_new();
	uint64_t tail = 0, head = 0;
	uint32_t sent = 0, got = 0;

	while (ring.tx.n_lines < MOST_LINES) {
		for (uint32_t i = 0; i < 40 && put(&ring.tx, sent, 0); i++)
			sent++;
		for (uint32_t i = 0; i < 37 && get(&ring.rx, got, 0); i++)
			got++;
		CHECK(ring.tx.tail > tail && ring.tx.head_seen >= head);
		tail = ring.tx.tail;
		head = ring.tx.head_seen;
	}
	free(ring.header);
}

TEST(heads_that_lie_make_no_room_beyond_the_ring)
{
	uint64_t random = test_seed();

	for (uint32_t round = 0; round < 100; round++) {
		struct ring ring = ring_new();

		for (uint32_t i = 0; i < 2 * MOST_LINES; i++) {
			struct nupa_msg *line;
			uint8_t *payload = NULL;
			uint32_t bytes = test_random(&random) % 2
					     ? 0
					     : 1 + (uint32_t)test_random(&random) % 8192;

			ring.header->head =
			    NUPA_HEAD(EPOCH, ring.tx.head_seen + test_random(&random) % 300);
			ring.header->dma_head =
			    NUPA_HEAD(EPOCH, ring.tx.dma_head_seen + test_random(&random) % 70000);
			line = nupa_tx_reserve(&ring.tx, bytes, &payload);
			if (!line)
				continue;
			CHECK(line >= ring.tx.lines && line < ring.tx.lines + ring.tx.n_lines);
			CHECK(!payload || (payload >= ring.tx.dma &&
					   payload + bytes <= ring.tx.dma + ring.tx.dma_bytes));
			nupa_tx_publish(&ring.tx, line, bytes);
		}
		free(ring.header);
	}
}

TEST(a_growth_that_cannot_be_is_corrupt)
{
	static const struct {
		uint32_t lines, dma_bytes;
	} cases[] = {
		{ FIRST_LINES, FIRST_DMA_BYTES },         /* nothing grows */
		{ FIRST_LINES / 2, 2 * FIRST_DMA_BYTES }, /* less */
		{ 2 * FIRST_LINES, FIRST_DMA_BYTES / 2 },
		{ 4 * FIRST_LINES, FIRST_DMA_BYTES }, /* by more than twice */
		{ 2 * FIRST_LINES - 1, FIRST_DMA_BYTES },
		{ FIRST_LINES, 2 * FIRST_DMA_BYTES + 64 },
		{ FIRST_LINES, 2 * MOST_DMA_BYTES },
		{ 0, 0 },
		{ UINT32_MAX, UINT32_MAX },
		{ 2 * FIRST_LINES, 0x80000000u },
	};
	const uint8_t *payload;
	struct nupa_msg out;
	struct ring ring;

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nupa_msg *msg;

		ring = ring_new();
		msg = nupa_tx_reserve(&ring.tx, 0, NULL);
		msg->op = NUPA_OP_GROW;
		msg->imm = cases[i].lines;
		msg->length_bytes = cases[i].dma_bytes;
		nupa_tx_publish(&ring.tx, msg, 0);
		CHECK_EQ(nupa_rx_take(&ring.rx, &out, &payload), NUPA_RX_CORRUPT);
		CHECK(ring.rx.n_lines == FIRST_LINES && ring.rx.dma_bytes == FIRST_DMA_BYTES);
		free(ring.header);
	}
	/* A ring that is all there does not grow. */
	ring = ring_new();
	nupa_rx_init(&ring.rx, ring.header, MOST_LINES, MOST_DMA_BYTES, EPOCH);
	ring.tx.lines[0].op = NUPA_OP_GROW;
	ring.tx.lines[0].imm = 2 * MOST_LINES;
	ring.tx.lines[0].length_bytes = MOST_DMA_BYTES;
	nupa_store_release(&ring.tx.lines[0].tag, 1);
	CHECK_EQ(nupa_rx_take(&ring.rx, &out, &payload), NUPA_RX_CORRUPT);
	free(ring.header);
}

/* --- two threads --------------------------------------------------------------------- */

#define STREAM_MESSAGES 20000u
#define ROUNDS 5u

static uint32_t stream_bytes(uint64_t *random)
{
	uint64_t r = test_random(random);

	return r % 16 == 0 ? (uint32_t)(r >> 32) % 8192 : r & 1 ? 0 : (uint32_t)(r >> 32) % 200;
}

struct stream {
	struct ring ring;
	uint64_t seed;
};

static void *produce(void *arg)
{
	struct stream *stream = arg;
	uint64_t random = stream->seed;

	for (uint32_t i = 0; i < STREAM_MESSAGES; i++) {
		uint32_t bytes = stream_bytes(&random);

		while (!put(&stream->ring.tx, i, bytes))
			sched_yield();
	}
	return NULL;
}

TEST(two_threads_pass_messages_in_order_while_the_ring_grows)
{
	uint64_t seed = test_seed();

	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct stream stream = { .ring = ring_new(), .seed = seed + round };
		uint64_t random = stream.seed;
		pthread_t producer;

		CHECK_EQ(pthread_create(&producer, NULL, produce, &stream), 0);
		for (uint32_t i = 0; i < STREAM_MESSAGES; i++) {
			uint32_t bytes = stream_bytes(&random);

			while (!get(&stream.ring.rx, i, bytes)) {
				nupa_rx_publish(&stream.ring.rx);
				sched_yield();
			}
		}
		CHECK_EQ(pthread_join(producer, NULL), 0);
		nupa_rx_publish(&stream.ring.rx);
		CHECK(nupa_tx_drained(&stream.ring.tx));
		free(stream.ring.header);
	}
}
