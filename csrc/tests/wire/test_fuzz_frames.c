/* SPDX-License-Identifier: BSD-3-Clause
 * Frames of a guest that were damaged, cut off or never were any, each in memory of exactly its
 * size: packets lie in their frame, answers have room, intact frames are understood.
 * NUPA_FUZZ_SECONDS is the duration; the seed is printed. */
#include "tests/support/runner.h"
#include "wire/frames/neighbour.h"

#include <string.h>

#define FRAME_BYTES_MAX 300u
#define ROUNDS 5000

static struct nupa_frame_link ends[2][2]; /* [IPv6][which end] */
static uint8_t *reply;

static uint32_t below(uint64_t *random, uint32_t limit)
{
	return (uint32_t)(test_random(random) >> 20) % limit;
}

static void make_ends(void)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	for (int end = 0; end < 2; end++) {
		struct nupa_frame_link *four = &ends[0][end], *six = &ends[1][end];
		uint8_t ours = end ? 2 : 1, theirs = end ? 1 : 2;

		memcpy(four->local, mapped, 12);
		memcpy(four->remote, mapped, 12);
		memcpy(four->local + 12, (uint8_t[]){ 10, 1, 0, ours }, 4);
		memcpy(four->remote + 12, (uint8_t[]){ 10, 1, 0, theirs }, 4);
		six->local[0] = six->remote[0] = 0xfd;
		six->local[15] = ours;
		six->remote[15] = theirs;
	}
	for (int i = 0; i < 4; i++)
		nupa_frame_choose_mac(&ends[i / 2][i % 2]);
	for (int i = 0; i < 4; i++)
		memcpy(ends[i / 2][i % 2].remote_mac, ends[i / 2][1 - i % 2].mac, ETHER_ADDR_LEN);
}

/* A frame of the second end for the first: its bytes.  *kind says what it is. */
static uint32_t make_frame(uint64_t *random, bool six, uint8_t *frame, uint32_t *kind)
{
	const struct nupa_frame_link *from = &ends[six][1];
	uint8_t load[FRAME_BYTES_MAX - NUPA_FRAME_HEAD_BYTES];
	struct nupa_frame_packet packet = { .src_port = 0xc123, .tos = 2, .ttl = 64, .data = load };

	*kind = below(random, 2);
	if (*kind)
		return nupa_neighbour_ask(from, frame);
	packet.identification = six ? 0 : (uint16_t)(test_random(random) >> 20);
	packet.bytes =
	    NUPA_FRAME_ROCE_MIN_BYTES + below(random, sizeof(load) - NUPA_FRAME_ROCE_MIN_BYTES + 1);
	for (uint32_t i = 0; i < packet.bytes; i++)
		load[i] = (uint8_t)(test_random(random) >> 20);
	uint32_t head = nupa_frame_head(from, &packet, frame);
	memcpy(frame + head, load, packet.bytes);
	return head + packet.bytes;
}

static void check_intact(bool six, const uint8_t *frame, uint32_t bytes, uint32_t kind)
{
	struct nupa_frame_link link = ends[six][0];
	struct nupa_frame_packet packet;
	bool learned;

	if (!kind) {
		CHECK_EQ(nupa_frame_read(&link, frame, bytes, &packet), NUPA_FRAME_ROCE);
		CHECK_EQ(packet.src_port, 0xc123);
		CHECK_EQ(packet.tos, 2);
		CHECK(packet.data + packet.bytes == frame + bytes);
		return;
	}
	memset(link.remote_mac, 0, ETHER_ADDR_LEN);
	CHECK(nupa_neighbour_answer(&link, frame, bytes, reply, &learned) > 0);
	CHECK(learned);
	CHECK(!memcmp(link.remote_mac, ends[six][1].mac, ETHER_ADDR_LEN));
	/* The answer teaches the asker. */
	struct nupa_frame_link asker = ends[six][1];
	memset(asker.remote_mac, 0, ETHER_ADDR_LEN);
	CHECK_EQ(nupa_neighbour_answer(&asker, reply, six ? 86 : 42, reply, &learned), 0);
	CHECK(learned);
	CHECK(!memcmp(asker.remote_mac, link.mac, ETHER_ADDR_LEN));
}

static void check_damaged(bool six, uint8_t *frame, uint32_t bytes)
{
	struct nupa_frame_link link = ends[six][0];
	struct nupa_frame_packet packet;
	bool learned;

	if (nupa_frame_read(&link, frame, bytes, &packet) == NUPA_FRAME_ROCE) {
		CHECK(packet.bytes >= NUPA_FRAME_ROCE_MIN_BYTES);
		CHECK(packet.data > frame && packet.data + packet.bytes <= frame + bytes);
		CHECK(!memcmp(packet.src, link.remote, 16));
	}
	CHECK(nupa_neighbour_answer(&link, frame, bytes, reply, &learned) <= NUPA_FRAME_MAX_BYTES);
}

static void damage(uint64_t *random, bool six, const uint8_t *made, uint32_t bytes)
{
	uint32_t kept = below(random, 4) ? bytes : below(random, bytes + 1);
	uint8_t *frame = malloc(kept ? kept : 1);

	CHECK(frame != NULL);
	memcpy(frame, made, kept);
	for (uint32_t n = below(random, 6); n && kept; n--)
		frame[below(random, kept)] = (uint8_t)(test_random(random) >> 20);
	check_damaged(six, frame, kept);
	free(frame);
}

TEST(frames_are_understood_and_damaged_ones_are_read_within_their_bounds)
{
	uint64_t random = test_seed(), until_ns = test_now_ns() + test_fuzz_ns(1);
	uint8_t made[FRAME_BYTES_MAX];

	make_ends();
	reply = malloc(NUPA_FRAME_MAX_BYTES);
	CHECK(reply != NULL);
	do {
		for (int i = 0; i < ROUNDS; i++) {
			bool six = below(&random, 2);
			uint32_t kind, bytes = make_frame(&random, six, made, &kind);

			check_intact(six, made, bytes, kind);
			damage(&random, six, made, bytes);
		}
	} while (test_now_ns() < until_ns);
	free(reply);
}
