/* SPDX-License-Identifier: BSD-3-Clause
 * A network that loses, repeats, delays and changes packets: every request is executed once, with
 * all its bytes. */
#include "engine/core/qp.h"
#include "tests/wire/keeper.h"

#include <string.h>

#define ROUNDS 40u
#define REGION 65536u
#define READS 8u
#define READ_PIECE_BYTES 8192u /* of an MTU of 256 */
#define READ_BYTES (6 * READ_PIECE_BYTES)

static bool is_harmless(const struct lossy *lossy)
{
	return !lossy->lose && !lossy->repeat && !lossy->delay && !lossy->change;
}

static struct end_options patient(const struct lossy *lossy)
{
	struct end_options options = end_defaults;

	/* 34 ms; 4 s where nothing may be sent again, on a busy machine either */
	options.timeout = is_harmless(lossy) ? 20 : 13;
	options.retry_cnt = 7;
	return options;
}

/* SENDs, WRITEs, READs and atomics in one queue. */
static void mix(struct lossy *lossy, uint32_t mtu_bytes)
{
	const struct end_options options = patient(lossy);
	const bool harmless = is_harmless(lossy);
	struct wired wired;
	struct nupa_wire_info info;
	struct end *a, *b;
	uint64_t sum, random = test_seed();

	wired_open_lossy(&wired, &options, mtu_bytes, lossy);
	a = wired.end_a;
	b = wired.end_b;
	memset(b->memory, 0, 64);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		const uint32_t bytes = 1 + (uint32_t)(test_random(&random) % (REGION - 1));
		struct request add = request_of(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, 8);

		add.wr.wr.atomic.compare_add = 1;
		pattern_fill(a->memory + REGION, bytes, i);
		end_post_recv(b, 1, 2 * REGION, REGION);
		end_start(a, IBV_WR_SEND, 1, REGION, bytes);
		end_start(a, IBV_WR_RDMA_WRITE, 2, REGION, bytes);
		end_post(a, &add);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		CHECK_EQ(cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS).byte_len, bytes);
		cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, 4, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory + 2 * REGION, bytes, i);
		CHECK_PATTERN(b->memory + REGION, bytes, i);
		memset(a->memory + REGION, 0, bytes);
		end_start(a, IBV_WR_RDMA_READ, 3, REGION, bytes);
		cq_expect(a->send_cq, 3, IBV_WC_SUCCESS);
		CHECK_PATTERN(a->memory + REGION, bytes, i);
	}
	memcpy(&sum, b->memory, sizeof(sum));
	CHECK_EQ(sum, ROUNDS);
	info = keeper_info(&wired.a);
	if (harmless || lossy->lose) { /* what is only late may be sent again, or not */
		CHECK_EQ(info.retransmitted > 0, !harmless);
		CHECK_EQ(info.lost > 0, !harmless);
	}
	if (!lossy->change)
		CHECK_EQ(info.icrc_errors + info.malformed, 0);
	wired_close(&wired);
}

/* PSNs of READs, half-open, and whether an acknowledgement named one. */
static struct {
	uint32_t from[ROUNDS], to[ROUNDS], n, acknowledged, acks;
} reads;

static bool notes_reads(struct lossy *lossy, uint32_t from, const uint8_t *bth)
{
	const uint32_t psn = (uint32_t)bth[9] << 16 | (uint32_t)bth[10] << 8 | bth[11];
	const uint32_t bytes =
	    (uint32_t)bth[24] << 24 | (uint32_t)bth[25] << 16 | (uint32_t)bth[26] << 8 | bth[27];

	(void)lossy;
	if (!from && bth[0] == BTH_READ_REQUEST && reads.n < ROUNDS) {
		reads.from[reads.n] = psn;
		reads.to[reads.n++] = psn + nupa_packets(bytes, 1024);
	}
	if (!from || bth[0] != BTH_ACK)
		return false;
	reads.acks++;
	for (uint32_t i = 0; i < reads.n; i++)
		reads.acknowledged += psn >= reads.from[i] && psn < reads.to[i];
	return false;
}

/* IBTA 9.7.5.1.2.  rdma_rxe takes a READ for complete whose last PSN is acknowledged. */
TEST(a_read_is_acknowledged_by_its_data_alone)
{
	struct lossy lossy = { .loses = notes_reads };
	struct end_options options = end_defaults;
	struct wired wired;
	struct end *a;

	options.timeout = 20;
	wired_open_lossy(&wired, &options, 1024, &lossy);
	a = wired.end_a;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 3000);
		end_start(a, IBV_WR_RDMA_READ, 2, 8192, 3000);
		cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	}
	wired_close(&wired);
	CHECK_EQ(reads.n, ROUNDS);
	CHECK(reads.acks > 0);
	CHECK_EQ(reads.acknowledged, 0);
}

/* READs of which a responder has to know that they may be asked for again. */
static struct {
	uint32_t asked, answered, most;
} kept;

static bool notes_kept(struct lossy *lossy, uint32_t from, const uint8_t *bth)
{
	(void)lossy;
	if (!from && bth[0] == BTH_READ_REQUEST) {
		kept.asked++;
		if (kept.asked - kept.answered > kept.most)
			kept.most = kept.asked - kept.answered;
	}
	if (from && bth[0] == BTH_READ_RESPONSE_LAST)
		kept.answered++;
	return false;
}

/* A READ is asked for in pieces.  rdma_rxe forgets the oldest piece of more than it has said. */
TEST(no_more_is_asked_for_than_the_responder_keeps)
{
	struct lossy lossy = { .loses = notes_kept };
	struct end_options options = end_defaults;
	struct wired wired;
	struct end *a, *b;

	options.timeout = 20;
	wired_open_lossy(&wired, &options, 256, &lossy);
	a = wired.end_a;
	b = wired.end_b;
	pattern_fill(b->memory, REGION, 1);
	for (uint32_t i = 0; i < READS; i++)
		end_start(a, IBV_WR_RDMA_READ, i, 0, READ_BYTES);
	for (uint32_t i = 0; i < READS; i++)
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	CHECK_PATTERN(a->memory, READ_BYTES, 1);
	wired_close(&wired);
	CHECK(kept.answered >= READS * (READ_BYTES / READ_PIECE_BYTES));
	CHECK(kept.most > 1 && kept.most <= options.max_rd_atomic);
}

TEST(without_loss)
{
	struct lossy lossy = { 0 };

	mix(&lossy, 4096);
}

TEST(packets_get_lost)
{
	struct lossy lossy = { .lose = 200 };

	mix(&lossy, 1024);
}

TEST(packets_come_twice)
{
	struct lossy lossy = { .repeat = 2000 };

	mix(&lossy, 1024);
}

TEST(packets_change_places)
{
	struct lossy lossy = { .delay = 300 };

	mix(&lossy, 1024);
}

TEST(packets_are_changed)
{
	struct lossy lossy = { .change = 200 };

	mix(&lossy, 2048);
}

TEST(all_of_that)
{
	struct lossy lossy = { .lose = 100, .repeat = 100, .delay = 100, .change = 100 };

	mix(&lossy, 256);
}

/* However small its window is after a loss, the requester gets an answer without its timer. */
TEST(what_is_acknowledged_only_if_it_asks)
{
	struct lossy lossy = { .loses = lossy_unasked };

	mix(&lossy, 1024);
}

TEST(what_gets_lost_and_is_acknowledged_only_if_it_asks)
{
	struct lossy lossy = { .loses = lossy_unasked, .lose = 100 };

	mix(&lossy, 256);
}

/* Between a WRITE with an immediate and its repetition: acknowledgements, and a READ's end. */
static bool loses_an_end(struct lossy *lossy, uint32_t from, const uint8_t *bth)
{
	(void)from;
	lossy->n_marks += bth[0] == BTH_WRITE_ONLY_IMM;
	return lossy->n_marks == 1 && (bth[0] == BTH_ACK || bth[0] == BTH_READ_RESPONSE_LAST);
}

/* The READ has got most of its data when the WRITE before it goes again.  It keeps its PSNs, and so
 * do the WRITEs behind it: with less, they would be taken for executed. */
TEST(a_read_goes_again_with_what_is_before_it)
{
	struct lossy lossy = { .loses = loses_an_end };
	struct end_options options = end_defaults;
	struct wired wired;

	options.timeout = 13; /* 34 ms */
	wired_open_lossy(&wired, &options, 256, &lossy);
	pattern_fill(wired.end_a->memory, 600, 1);
	pattern_fill(wired.end_b->memory + REGION, 1000, 2);
	end_post_recv(wired.end_b, 1, 0, 0);
	end_start(wired.end_a, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 100);
	end_start(wired.end_a, IBV_WR_RDMA_READ, 1, REGION, 1000);
	for (uint32_t i = 1; i < 6; i++)
		end_start(wired.end_a, IBV_WR_RDMA_WRITE, 1 + i, i * 100, 100);
	for (uint32_t i = 0; i < 7; i++)
		cq_expect(wired.end_a->send_cq, i, IBV_WC_SUCCESS);
	cq_expect(wired.end_b->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(wired.end_b->memory, 600, 1);
	CHECK_PATTERN(wired.end_a->memory + REGION, 1000, 2);
	wired_close(&wired);
	CHECK(lossy.n_marks > 1);
}
