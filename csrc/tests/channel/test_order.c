/* SPDX-License-Identifier: BSD-3-Clause
 * The promises of the labels of atomics.h, on a weakly ordered machine.  Tested are all executions
 * of a consumer whose loads happen out of order (ordered/weak.h), and the order of a producer's
 * stores.
 *
 *   P1, C1, C7  test_channel_order: ring lines, by the long way and by the express lane
 *   P2, C2      test_channel_order: the head is stored by release, behind the reads of the line
 *   P3 to P6    read-modify-writes with NUPA_FULL, or membarrier(2): by review, see atomics.h */
#include "tests/support/end.h"
#include "engine/device/device.h"
#include "tests/ordered/ordered.h"

#include <string.h>

#define N_LINES 64u
#define LAP 1u /* that the consumer is in: lines of lap 0 are there still */

struct ring {
	_Alignas(64) struct nupa_ring_header header;
	_Alignas(64) struct nupa_msg lines[N_LINES];
};

/* Contents of a line while a message comes and its sender dies. */
enum { OLD, STORED, TAGGED, CLEARED, N_STEPS };

struct story {
	struct nupa_msg steps[N_STEPS];
	const void *at[N_STEPS];
};

static void tell(struct story *story, const struct nupa_msg *msg)
{
	memset(story->steps, 0, sizeof(story->steps));
	memset(&story->steps[OLD], 0x77, sizeof(story->steps[OLD]));
	story->steps[OLD].tag = LAP;
	story->steps[TAGGED] = story->steps[STORED] = *msg;
	story->steps[STORED].tag = LAP;
	story->steps[TAGGED].tag = LAP + 1;
	for (int i = 0; i < N_STEPS; i++)
		story->at[i] = &story->steps[i];
}

static struct nupa_rx rx_of(struct ring *ring)
{
	struct nupa_rx rx;

	nupa_rx_init(&rx, &ring->header, N_LINES, 65536, 1);
	rx.head = rx.head_published = LAP * N_LINES;
	return rx;
}

static struct nupa_msg message(void)
{
	struct nupa_msg msg = { .op = NUPA_OP_SEND,
				.flags = NUPA_F_FIRST | NUPA_F_LAST,
				.dest_qpn = 0x111,
				.src_qpn = 0x222,
				.psn = 0x333,
				.length_bytes = sizeof(msg.data) };

	memset(msg.data, 0x5c, sizeof(msg.data));
	return msg;
}

TEST(a_line_is_taken_whole_or_not_at_all)
{
	static struct ring ring;
	struct nupa_msg msg = message();
	uint32_t taken = 0, runs = 0;
	struct story story;

	tell(&story, &msg);
	weak_begin(ring.lines, sizeof(msg), story.at, N_STEPS);
	while (weak_next()) {
		struct nupa_rx rx = rx_of(&ring);
		struct nupa_msg out;

		runs++;
		if (ordered_take(&rx, &out) != NUPA_RX_MESSAGE)
			continue;
		taken++;
		CHECK(!memcmp((uint8_t *)&out + 4, (uint8_t *)&msg + 4, sizeof(msg) - 4));
	}
	weak_end();
	CHECK(taken && taken < runs);
	printf("  %u executions, %u take the message\n", runs, taken);
}

TEST(a_tag_is_stored_behind_all_else_of_its_line)
{
	static struct ring ring;
	const struct weak_store *stores;
	struct nupa_msg msg = message();
	const uint32_t *n;
	struct nupa_tx tx;

	nupa_tx_init(&tx, &ring.header, N_LINES, 65536, 1);
	stores = weak_record(ring.lines, sizeof(msg), &n);
	ordered_publish(&tx, &msg);
	CHECK(*n > 1);
	for (uint32_t i = 0; i < *n; i++) {
		bool is_tag = stores[i].at == &ring.lines[0].tag;

		CHECK_EQ(is_tag, i + 1 == *n);
		CHECK(!is_tag || stores[i].release);
	}
	weak_end();
}

TEST(a_head_is_stored_by_release)
{
	static struct ring ring;
	struct nupa_rx rx = rx_of(&ring);
	const struct weak_store *stores;
	const uint32_t *n;

	stores = weak_record(&ring.header, sizeof(ring.header), &n);
	ordered_release(&rx);
	CHECK_EQ(*n, 2);
	for (uint32_t i = 0; i < *n; i++)
		CHECK(stores[i].release);
	weak_end();
}

/* --- the express lane ------------------------------------------------------------------ */

/* A QP that is ready for it; no other thread is in its engine. */
struct lane {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct nupa_engine *engine;
	struct nupa_qp *qp, before;
	struct nupa_cq *cq, cq_before;
	struct nupa_channel *channel;
	struct nupa_rx rx, rx_before;
};

static struct lane lane_open(struct ring *ring)
{
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct lane lane = { .fabric = test_fabric() };

	pair_open(lane.fabric, &options, &lane.a, &lane.b);
	for (uint64_t i = 0; i < 2; i++)
		end_post_recv(lane.b, i, 0, 64);
	end_start(lane.a, IBV_WR_SEND, 0, 0, 8);
	cq_expect(lane.b->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect(lane.a->send_cq, 0, IBV_WC_SUCCESS);
	lane.qp = container_of(lane.b->qp, struct nupa_qp, ibv);
	lane.cq = container_of(lane.b->recv_cq, struct nupa_cq, ibv);
	lane.engine = lane.qp->engine;
	nupa_engine_lock(lane.engine);
	CHECK(lane.qp->steady_rx);
	lane.channel = lane.qp->channel;
	lane.rx = lane.channel->rx;
	lane.channel->rx = lane.rx_before = rx_of(ring);
	nupa_list_del(&lane.qp->ack_link);
	lane.before = *lane.qp;
	lane.cq_before = *lane.cq;
	return lane;
}

/* As if the last execution had not been. */
static void lane_rewind(struct lane *lane)
{
	nupa_list_del(&lane->qp->ack_link);
	*lane->qp = lane->before;
	*lane->cq = lane->cq_before;
	lane->channel->rx = lane->rx_before;
	nupa_list_init(&lane->qp->ack_link);
	memset(lane->b->memory, 0, 64);
}

static void lane_close(struct lane *lane)
{
	lane_rewind(lane);
	lane->channel->rx = lane->rx;
	nupa_engine_unlock(lane->engine);
	fabric_close(lane->fabric, lane->a, lane->b);
}

static struct nupa_msg express_message(const struct lane *lane)
{
	struct nupa_msg msg = message();

	msg.dest_qpn = lane->qp->ibv.qp_num;
	msg.src_qpn = lane->qp->dest_qpn;
	msg.psn = nupa_psn_of(lane->qp->peer_incarnation, lane->qp->expected_psn);
	return msg;
}

TEST(the_express_lane_receives_what_was_sent_or_nothing)
{
	static struct ring ring;
	struct lane lane = lane_open(&ring);
	struct nupa_msg msg = express_message(&lane);
	uint32_t received = 0, runs = 0;
	struct story story;

	tell(&story, &msg);
	weak_begin(ring.lines, sizeof(msg), story.at, N_STEPS);
	while (weak_next()) {
		lane_rewind(&lane);
		runs++;
		if (ordered_receive(lane.engine, lane.channel)) {
			received++;
			CHECK(!memcmp(lane.b->memory, msg.data, sizeof(msg.data)));
		}
	}
	weak_end();
	CHECK(received && received < runs);
	printf("  %u executions, %u receive the message\n", runs, received);
	lane_close(&lane);
}
