/* SPDX-License-Identifier: BSD-3-Clause
 * A sender, or a connection, that ends while payloads are put: the partner gets messages as they
 * were sent, or not at all.  The trunks are turned by hand. */
#include "region/slot_life.h"
#include "segment/slot/slot.h"
#include "tests/trunk/two.h"

#include <string.h>

#define LARGE_BYTES 16384u /* put; one part */
#define SMALL_BYTES 2000u  /* in a packet, in the ring's DMA bytes */

static void turn(struct two *two, uint32_t machine)
{
	uint64_t due_ns;

	(void)nupa_trunk_turn(two->machines[machine].trunk, &due_ns);
}

/* The other machine's trunk has told ours where to put the payloads. */
static bool is_offered(struct two *two)
{
	struct nupa_pair_out *pair;

	two_pause(two, 0);
	pair = two->machines[0].trunk->peers[1].outs;
	while (pair && !pair->window)
		pair = pair->next;
	two_resume(two, 0);
	return pair;
}

/* Ends of UC, which takes messages behind lost ones, between which large payloads are put. */
static struct two *connect(bool by_ucx, struct end **a, struct end **b)
{
	struct end_options options = end_defaults;
	struct two *two = two_up(by_ucx);
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	options.type = IBV_QPT_UC;
	two_connect(two, &options, a, b);
	for (uint64_t i = 0; !is_offered(two); i++) {
		CHECK(test_now_ns() < until_ns);
		end_post_recv(*b, i, 0, LARGE_BYTES);
		end_start(*a, IBV_WR_SEND, i, 0, LARGE_BYTES);
		cq_expect((*a)->send_cq, i, IBV_WC_SUCCESS);
		cq_expect((*b)->recv_cq, i, IBV_WC_SUCCESS);
	}
	two_pause(two, 0);
	two_pause(two, 1);
	return two;
}

static void disconnect(struct two *two, struct end *a, struct end *b)
{
	two_resume(two, 0);
	two_resume(two, 1);
	pair_close(a, b);
	two_free(two);
}

/* Sends what is in the memory from there on. */
static void send_at(struct end *a, struct end *b, uint32_t at, uint32_t bytes)
{
	end_post_recv(b, at, at, bytes);
	end_start(a, IBV_WR_SEND, at, at, bytes);
	cq_expect(a->send_cq, at, IBV_WC_SUCCESS);
}

/* The bytes of the ring from the one end to the other, in the machine's copy. */
static uint8_t *payloads_of(struct two *two, uint32_t machine, const struct end *b)
{
	struct nupa_ring_header *ring =
	    nupa_trunk_ring_of(two->machines[machine].trunk, two->machines[0].trunk->first,
			       nupa_qpn_slot(&two->machines[0].fabric->geometry, b->self.qpn));

	CHECK(ring);
	return (uint8_t *)(ring + 1) + TEST_RING_LINES * sizeof(struct nupa_msg);
}

/* Another process has taken the slot, and cleared the payloads, but not the lines yet. */
static void half_clear_sender(struct two *two, const struct end *b)
{
	struct nupa_trunk *trunk = two->machines[0].trunk;
	struct nupa_slot *slot = &trunk->fabric->slots[trunk->first];
	const uint64_t claim = nupa_slot_claim(slot);

	nupa_store_release(&slot->claim, claim - NUPA_SLOT_LIVE + NUPA_SLOT_REAPING);
	memset(payloads_of(two, 0, b), 0, TEST_DMA_BYTES);
}

static void end_sender(struct two *two)
{
	CHECK(nupa_fabric_lose_slot(two->machines[0].fabric, two->machines[0].trunk->first));
}

static void progress(struct two *two, uint32_t machine)
{
	struct nupa_carrier *carrier = two->machines[machine].trunk->carrier;

	(void)carrier->ops->progress(carrier, test_now_ns());
}

static void let_packets_go(struct two *two)
{
	loop_slow(two->loop, 0, false);
	progress(two, 0);
}

TEST(a_message_behind_one_whose_sender_ended_is_not_taken_for_it)
{
	struct end *a, *b;
	struct two *two = connect(false, &a, &b);

	pattern_fill(a->memory, LARGE_BYTES + SMALL_BYTES, 1);
	loop_slow(two->loop, 0, true);
	send_at(a, b, 0, LARGE_BYTES);
	turn(two, 0);
	send_at(a, b, LARGE_BYTES, SMALL_BYTES);
	turn(two, 0);
	end_sender(two); /* while the first is read */
	let_packets_go(two);
	turn(two, 1);
	cq_expect_none(b->recv_cq, 20 * MS);
	disconnect(two, a, b);
}

TEST(a_message_that_was_cleared_while_it_was_read_is_not_sent)
{
	struct end *a, *b;
	struct two *two = connect(false, &a, &b);

	pattern_fill(a->memory, SMALL_BYTES, 3);
	send_at(a, b, 0, SMALL_BYTES);
	half_clear_sender(two, b);
	turn(two, 0);
	turn(two, 1);
	cq_expect_none(b->recv_cq, 20 * MS);
	end_sender(two);
	disconnect(two, a, b);
}

TEST(messages_of_a_sender_that_lives_go_behind_its_puts)
{
	struct end *a, *b;
	struct two *two = connect(false, &a, &b);

	pattern_fill(a->memory, LARGE_BYTES + SMALL_BYTES, 2);
	loop_slow(two->loop, 0, true);
	send_at(a, b, 0, LARGE_BYTES);
	turn(two, 0);
	send_at(a, b, LARGE_BYTES, SMALL_BYTES);
	turn(two, 0);
	let_packets_go(two);
	turn(two, 1);
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, LARGE_BYTES, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory, LARGE_BYTES + SMALL_BYTES, 2);
	disconnect(two, a, b);
}

/* Else it is put again by each turn, until there is room for the lines. */
TEST(a_payload_is_put_once_though_all_packets_are_on_their_way)
{
	struct end *a, *b;
	struct two *two = connect(false, &a, &b);
	const struct nupa_peer *peer = &two->machines[0].trunk->peers[1];
	const uint64_t before = loop_put_bytes(two->loop);
	uint32_t sent = 0;

	pattern_fill(a->memory, LARGE_BYTES, 4);
	loop_slow(two->loop, 0, true);
	for (; peer->on_way < NUPA_PACKETS_DATA; sent++) {
		send_at(a, b, LARGE_BYTES + sent, 1);
		turn(two, 0);
	}
	send_at(a, b, 0, LARGE_BYTES);
	for (uint32_t i = 0; i < 8; i++)
		turn(two, 0);
	let_packets_go(two);
	while (peer->on_way)
		progress(two, 0);
	turn(two, 0);
	turn(two, 1);
	for (uint32_t i = 0; i < sent; i++)
		cq_expect(b->recv_cq, LARGE_BYTES + i, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory, LARGE_BYTES, 4);
	CHECK_EQ(loop_put_bytes(two->loop) - before, LARGE_BYTES);
	disconnect(two, a, b);
}

/* The ring may be open again when the bytes of a former connection come. */
static void *lose_connection(void *arg)
{
	static uint8_t mark[TEST_DMA_BYTES];
	struct end *a, *b;
	struct two *two = connect(true, &a, &b);
	struct nupa_trunk *receiver = two->machines[1].trunk;
	const struct nupa_peer *peer = &two->machines[0].trunk->peers[1];
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	(void)arg;
	send_at(a, b, 0, LARGE_BYTES);
	turn(two, 0);
	CHECK(peer->put_on_way);
	nupa_peer_lose(receiver, &receiver->peers[0], "of the test", NUPA_MACHINE_DOWN);
	progress(two, 1);
	memset(mark, 0xee, sizeof(mark));
	memcpy(payloads_of(two, 1, b), mark, sizeof(mark));
	send_at(a, b, LARGE_BYTES, LARGE_BYTES);
	do {
		CHECK(test_now_ns() < until_ns);
		turn(two, 0);
		progress(two, 1);
	} while (peer->link && peer->put_on_way);
	CHECK_EQ(memcmp(payloads_of(two, 1, b), mark, sizeof(mark)), 0);
	disconnect(two, a, b);
	return NULL;
}

/* Not in the main thread: LeakSanitizer ends where that one has used UCX. */
TEST(what_was_put_before_a_connection_ended_does_not_land_behind_its_end)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, lose_connection, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}
