/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that no requester would send, to a queue pair of each type in each state.  The receiver
 * may fail its connection.  It neither touches memory beyond its region nor sends data from there.
 * NUPA_FUZZ_SECONDS is the duration; the seed is printed. */
#include "engine/device/device.h"
#include "tests/support/end.h"
#include "tests/support/runner.h"
#include "tests/support/secret.h"

#include <string.h>

#define OPEN 0x11          /* READs may bring it back */
#define INNER_FROM 262144u /* the region that messages know of, inside the end's memory */
#define INNER_BYTES 262144u
#define MESSAGES 48
#define WORK 6

struct scene {
	struct nupa_fabric *fabric;
	struct end *a, *b; /* a's messages are forged, b gets them */
	struct ibv_mr *inner;
	struct ibv_srq *srq;
	uint64_t *random;
	struct secret secret;           /* the rest of b's memory */
	uint64_t answers, answer_bytes; /* that b sent to a */
};

static uint32_t pick(struct scene *s, uint32_t n)
{
	return (uint32_t)(test_random(s->random) >> 20) % n;
}

static struct nupa_qp *qp_of(const struct end *end)
{
	return container_of(end->qp, struct nupa_qp, ibv);
}

static struct nupa_channel *channel_between(const struct end *from, const struct end *to)
{
	return nupa_engine_of(from->context)->channels[nupa_context_slot(to->context)];
}

static void open_scene(struct scene *s, enum ibv_qp_type type, bool with_srq)
{
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);

	options.type = type;
	options.srq_wr = with_srq ? 64 : 0;
	options.timeout = 1;
	options.retry_cnt = options.rnr_retry = 1;
	pair_open(s->fabric, &options, &s->a, &s->b);
	s->secret = secret_of(s->random);
	secret_fill(&s->secret, s->b->memory, options.memory_bytes);
	memset(s->b->memory + INNER_FROM, OPEN, INNER_BYTES);
	s->inner = nupa_reg_mr(s->b->pd, s->b->memory + INNER_FROM, INNER_BYTES,
			       (uintptr_t)s->b->memory + INNER_FROM, (int)options.access);
	CHECK(s->inner);
}

static void close_scene(struct scene *s)
{
	const uint8_t *memory = s->b->memory;

	const uint32_t end = INNER_FROM + INNER_BYTES;
	const size_t left = s->b->options.memory_bytes - end;

	CHECK_EQ(secret_match(&s->secret, memory, INNER_FROM), INNER_FROM);
	CHECK_EQ(secret_match(&s->secret, memory + end, left), left);
	CHECK_EQ(nupa_dereg_mr(s->inner), 0);
	pair_close(s->a, s->b);
}

/* --- b's requests ------------------------------------------------------------------------ */

static void post_work(struct scene *s)
{
	struct end *b = s->b;

	for (uint32_t i = 0; i < WORK; i++) {
		struct request r =
		    request_of(b,
			       b->options.type == IBV_QPT_RC ? (enum ibv_wr_opcode)pick(s, 7)
							     : (enum ibv_wr_opcode)(pick(s, 2) * 2),
			       i, INNER_FROM + pick(s, 1000) * 8, 8 + pick(s, 2) * 20000);
		struct ibv_sge sge = { (uintptr_t)b->memory + INNER_FROM, pick(s, 60000),
				       s->inner->lkey };
		struct ibv_recv_wr *bad_recv, recv = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };
		struct ibv_send_wr *bad;

		if (b->options.type == IBV_QPT_UD) {
			r.wr.opcode = IBV_WR_SEND;
			r.sge[0].length = 100;
		}
		r.wr.sg_list = r.sge;
		r.sge[0].lkey = s->inner->lkey;
		nupa_post_send(b->qp, &r.wr, &bad);
		if (b->srq)
			nupa_post_srq_recv(b->srq, &recv, &bad_recv);
		else
			nupa_post_recv(b->qp, &recv, &bad_recv);
	}
}

static void to_some_state(struct scene *s)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTS,
						    IBV_QPS_SQD, IBV_QPS_ERR, IBV_QPS_RESET };
	enum ibv_qp_state to = states[pick(s, 6)];

	if (end_state(s->b) != IBV_QPS_RTS) /* SQE: its own work failed */
		return;
	if (to != IBV_QPS_RTS)
		CHECK_EQ(end_modify(s->b, to), 0);
	if (to == IBV_QPS_RESET && pick(s, 2))
		end_to_init(s->b);
}

/* --- forgery ----------------------------------------------------------------------------- */

static uint32_t psn_near(struct scene *s, uint32_t incarnation, uint32_t psn)
{
	if (pick(s, 8) == 0)
		return (uint32_t)test_random(s->random);
	if (pick(s, 3) == 0)
		psn = nupa_psn_add(psn, 0xffffff - 4 + pick(s, 9));
	return nupa_psn_of(incarnation, psn);
}

static uint32_t bytes_of(struct scene *s, uint32_t max)
{
	static const uint32_t odd[] = { 0, 1, 8, 15, 16, 17, 32, 33, 4096 };
	uint32_t bytes = pick(s, 3) ? odd[pick(s, 9)] : pick(s, max + 1);

	return bytes < max ? bytes : max;
}

static uint64_t address_near(struct scene *s)
{
	uint64_t from = (uintptr_t)s->b->memory + INNER_FROM;

	switch (pick(s, 4)) {
	case 0:
		return from + INNER_BYTES - pick(s, 64);
	case 1:
		return from - pick(s, 64);
	case 2:
		return pick(s, 2) ? test_random(s->random) : UINT64_MAX - pick(s, 64);
	default:
		return from + pick(s, INNER_BYTES) / 8 * 8;
	}
}

static void fill_body(struct scene *s, struct nupa_msg *msg)
{
	uint32_t rkey = pick(s, 8) ? s->inner->rkey : (uint32_t)test_random(s->random);

	switch (msg->op) {
	case NUPA_OP_WRITE:
	case NUPA_OP_READ:
		msg->reth = (struct nupa_reth){ address_near(s), rkey,
						pick(s, 3) ? msg->length_bytes
							   : (uint32_t)test_random(s->random) };
		break;
	case NUPA_OP_ATOMIC:
		msg->atomic.raddr = address_near(s);
		msg->atomic.rkey = rkey;
		msg->atomic.kind = pick(s, 5);
		break;
	default:
		if (s->b->options.type == IBV_QPT_UD) {
			msg->deth.qkey = pick(s, 4) ? TEST_QKEY : 0;
			break;
		}
		msg->original = test_random(s->random);
		msg->total_bytes =
		    pick(s, 2) ? msg->length_bytes : test_random(s->random) >> pick(s, 64);
		msg->offset_bytes = pick(s, 2) ? 0 : test_random(s->random) >> pick(s, 64);
		break;
	}
}

/* Puts one message into a's ring, with a's lock. */
static void forge(struct scene *s, struct nupa_channel *channel)
{
	const struct nupa_qp *qp = qp_of(s->b);
	uint32_t op =
	    pick(s, 64) ? 1 + pick(s, NUPA_OP_ATOMIC_RESP + 2) : (uint32_t)test_random(s->random);
	uint32_t dma_max = nupa_dma_payload_max(channel->tx.dma_bytes);
	bool dma = pick(s, 2) && channel->dma_backed;
	uint32_t bytes = bytes_of(s, dma ? dma_max : NUPA_SEND_INLINE_BYTES * 2);
	bool answer = op > NUPA_OP_ATOMIC;
	uint32_t words[8];
	struct nupa_msg *msg;
	uint8_t *payload = NULL;

	bytes += dma && !bytes;
	msg = nupa_tx_reserve(&channel->tx, dma ? bytes : 0, &payload);
	if (!msg)
		return;
	for (uint32_t i = 0; i < 8; i++)
		words[i] = (uint32_t)test_random(s->random);
	memcpy(msg->data, words, sizeof(words));
	if (dma)
		memset(payload, (int)words[0], bytes);
	msg->op = (uint8_t)op;
	msg->flags = (uint8_t)(words[1] & (uint32_t)~NUPA_F_DMA) | (dma ? NUPA_F_DMA : 0);
	if (pick(s, 2)) /* a whole message, mostly */
		msg->flags |= NUPA_F_FIRST | NUPA_F_LAST;
	if (pick(s, 4))
		msg->flags &= (uint8_t)~NUPA_F_PULL;
	msg->syndrome = (uint8_t)(pick(s, 8) ? pick(s, 7) : words[2]);
	msg->timer = (uint8_t)words[3];
	msg->dest_qpn = pick(s, 16) ? s->b->qp->qp_num : words[4];
	msg->src_qpn = pick(s, 16) ? s->a->qp->qp_num : words[5];
	msg->psn =
	    answer ? psn_near(s, qp->incarnation, nupa_psn_add(qp->next_psn, 0xffffff - pick(s, 4)))
		   : psn_near(s, qp_of(s->a)->incarnation, qp->expected_psn);
	msg->ack_psn = psn_near(s, qp->incarnation, qp->next_psn);
	msg->length_bytes = bytes;
	msg->imm = pick(s, 4) ? words[6] : s->inner->rkey;
	fill_body(s, msg);
	nupa_tx_publish(&channel->tx, msg, dma ? bytes : 0);
}

static void lock_both(const struct scene *s)
{
	nupa_engine_lock(nupa_engine_of(s->a->context));
	nupa_engine_lock(nupa_engine_of(s->b->context));
}

static void unlock(const struct end *end)
{
	nupa_engine_unlock(nupa_engine_of(end->context));
}

/* --- b's messages ------------------------------------------------------------------------- */

/* With both locks: what lies in the ring for a, as far as a reader without manners gets it.  all:
 * takes it, too. */
static void look_at_answers(struct scene *s, bool all,
			    void (*each)(void *arg, const struct nupa_msg *msg,
					 const uint8_t *payload),
			    void *arg)
{
	struct nupa_channel *channel = channel_between(s->a, s->b);
	const uint8_t *payload;
	struct nupa_msg msg;
	struct nupa_rx rx;

	if (!channel || channel->broken || !channel->rx_open)
		return;
	rx = channel->rx;
	CHECK(rx.dma);
	while (nupa_rx_take(&rx, &msg, &payload) == NUPA_RX_MESSAGE) {
		s->answers++;
		s->answer_bytes += msg.length_bytes;
		if (payload)
			CHECK_EQ(secret_find(&s->secret, payload, msg.length_bytes),
				 msg.length_bytes);
		CHECK_EQ(secret_find(&s->secret, msg.data, sizeof(msg.data)), sizeof(msg.data));
		if (each)
			each(arg, &msg, payload);
		rx.head++;
		rx.dma_head += rx.dma_pending;
	}
	if (!all)
		return;
	channel->rx = rx;
	nupa_rx_publish(&channel->rx);
}

static void forge_and_look(struct scene *s)
{
	struct ibv_wc wc[16];

	for (int i = 0; i < MESSAGES; i++) {
		struct nupa_channel *channel;

		/* While its lock is held, a does not answer. */
		lock_both(s);
		channel = channel_between(s->a, s->b);
		if (channel && !channel->broken)
			forge(s, channel);
		unlock(s->b);
		for (int j = 0; j < 2; j++) {
			CHECK(nupa_poll_cq(s->b->recv_cq, 16, wc) >= 0);
			CHECK(nupa_poll_cq(s->b->send_cq, 16, wc) >= 0);
		}
		look_at_answers(s, false, NULL, NULL);
		unlock(s->a);
	}
}

/* Backs a's DMA channel, and opens b's direction. */
static void warm_up(struct scene *s)
{
	struct ibv_wc wc;

	if (s->b->options.type == IBV_QPT_UD)
		return;
	end_post_recv(s->b, 0, INNER_FROM, 100);
	end_start(s->a, IBV_WR_SEND, 0, 0, 100);
	wc = cq_wait(s->b->recv_cq);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	cq_expect(s->a->send_cq, 0, IBV_WC_SUCCESS);
	secret_fill(&s->secret, s->b->memory, INNER_FROM);
}

/* The same ends in a new incarnation; false: their channel was closed for nonsense. */
static bool begin_anew(struct scene *s)
{
	const struct nupa_channel *there, *back;
	bool open;

	lock_both(s);
	there = channel_between(s->a, s->b);
	back = channel_between(s->b, s->a);
	open = there && !there->broken && back && !back->broken;
	unlock(s->b);
	unlock(s->a);
	if (!open)
		return false;
	if (s->b->options.type == IBV_QPT_UD)
		return end_state(s->b) == IBV_QPS_RTS;
	CHECK_EQ(end_modify(s->a, IBV_QPS_RESET), 0);
	CHECK_EQ(end_modify(s->b, IBV_QPS_RESET), 0);
	end_connect(s->a, &s->b->self);
	end_connect(s->b, &s->a->self);
	return true;
}

static void any_message(enum ibv_qp_type type, bool with_srq)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(2);
	uint64_t random = test_seed(), rounds = 0;
	struct scene s = { .fabric = test_fabric(), .random = &random };

	while (test_now_ns() < until_ns) {
		open_scene(&s, type, with_srq);
		warm_up(&s);
		do {
			post_work(&s);
			to_some_state(&s);
			forge_and_look(&s);
			rounds++;
		} while (test_now_ns() < until_ns && begin_anew(&s));
		close_scene(&s);
	}
	printf("  %llu messages, %llu answers of %llu bytes\n",
	       (unsigned long long)rounds * MESSAGES, (unsigned long long)s.answers,
	       (unsigned long long)s.answer_bytes);
	CHECK(type == IBV_QPT_UD || s.answers > 0);
	nupa_fabric_put(s.fabric);
}

/* --- READs of all that there is ----------------------------------------------------------- */

struct reading {
	struct nupa_msg request;
	uint64_t bytes; /* that came back */
	bool refused;
};

static void take_answer(void *arg, const struct nupa_msg *msg, const uint8_t *payload)
{
	struct reading *reading = arg;

	reading->refused |= msg->op == NUPA_OP_NAK && msg->syndrome != NUPA_NAK_PSN;
	if (msg->op != NUPA_OP_READ_RESP)
		return;
	CHECK_EQ(msg->offset_bytes, reading->bytes);
	for (uint32_t i = 0; i < msg->length_bytes; i++)
		CHECK_EQ(payload[i], OPEN);
	reading->bytes += msg->length_bytes;
}

/* One READ, across the region's ends as often as within; its key may be wrong. */
static struct reading forge_read(struct scene *s, struct nupa_channel *channel)
{
	const struct nupa_qp *qp = qp_of(s->b);
	struct nupa_msg *msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	uint64_t from = (uintptr_t)s->b->memory + INNER_FROM;
	uint32_t bytes = 1 + bytes_of(s, pick(s, 4) ? 70000 : INNER_BYTES + 64);
	struct reading reading = { 0 };

	CHECK(msg);
	memset((uint8_t *)msg + 4, 0, sizeof(*msg) - 4);
	msg->op = NUPA_OP_READ;
	msg->flags = NUPA_F_FIRST | NUPA_F_LAST;
	msg->dest_qpn = s->b->qp->qp_num;
	msg->src_qpn = s->a->qp->qp_num;
	msg->psn = nupa_psn_of(qp_of(s->a)->incarnation, qp->expected_psn);
	msg->reth.raddr = address_near(s);
	msg->reth.rkey = pick(s, 16) ? s->inner->rkey : s->inner->rkey + 1 + pick(s, 4096);
	msg->reth.total_bytes = bytes;
	if (pick(s, 2) && bytes <= INNER_BYTES) /* up to the last byte that it may have */
		msg->reth.raddr =
		    from + (pick(s, 2) ? INNER_BYTES - bytes : pick(s, INNER_BYTES - bytes + 1));
	reading.request = *msg;
	nupa_tx_publish(&channel->tx, msg, 0);
	return reading;
}

static bool is_allowed(const struct scene *s, const struct nupa_reth *reth)
{
	uint64_t from = (uintptr_t)s->b->memory + INNER_FROM;

	return reth->rkey == s->inner->rkey && reth->raddr >= from &&
	       reth->raddr - from <= INNER_BYTES &&
	       reth->total_bytes <= INNER_BYTES - (reth->raddr - from);
}

/* True: it was answered in full. */
static bool read_and_check(struct scene *s)
{
	struct nupa_channel *channel;
	struct reading reading;
	struct ibv_wc wc;

	lock_both(s);
	look_at_answers(s, true, NULL, NULL);
	channel = channel_between(s->a, s->b);
	CHECK(channel && !channel->broken);
	reading = forge_read(s, channel);
	unlock(s->b);
	for (uint64_t until_ns = test_now_ns() + WAIT_NS;
	     !reading.refused && reading.bytes < reading.request.reth.total_bytes;) {
		CHECK_EQ(nupa_poll_cq(s->b->send_cq, 1, &wc), 0);
		look_at_answers(s, true, take_answer, &reading);
		CHECK(test_now_ns() < until_ns);
	}
	unlock(s->a);
	CHECK_EQ(!reading.refused, is_allowed(s, &reading.request.reth));
	CHECK(!reading.refused || !reading.bytes);
	CHECK(reading.refused || reading.bytes == reading.request.reth.total_bytes);
	return !reading.refused;
}

TEST(reads_bring_back_what_they_may_and_nothing_else)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(2);
	uint64_t random = test_seed(), allowed = 0, refused = 0;
	struct scene s = { .fabric = test_fabric(), .random = &random };

	open_scene(&s, IBV_QPT_RC, false);
	warm_up(&s);
	do {
		/* Open again: the warm-up may have received there. */
		memset(s.b->memory + INNER_FROM, OPEN, INNER_BYTES);
		if (read_and_check(&s)) {
			allowed++;
		} else {
			refused++; /* which is the end of the connection */
			CHECK(begin_anew(&s));
		}
	} while (test_now_ns() < until_ns || !allowed || !refused);
	printf("  %llu READs answered, %llu refused\n", (unsigned long long)allowed,
	       (unsigned long long)refused);
	close_scene(&s);
	nupa_fabric_put(s.fabric);
}

TEST(to_a_reliable_queue_pair)
{
	any_message(IBV_QPT_RC, false);
}

TEST(to_a_reliable_queue_pair_with_shared_receives)
{
	any_message(IBV_QPT_RC, true);
}

TEST(to_an_unreliable_queue_pair)
{
	any_message(IBV_QPT_UC, false);
}

TEST(to_a_datagram_queue_pair)
{
	any_message(IBV_QPT_UD, false);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
