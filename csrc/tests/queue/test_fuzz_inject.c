/* SPDX-License-Identifier: BSD-3-Clause
 * Packets that no QP would send, injected at a queue pair of each type in each state.  Each has its
 * verdict, and none touches memory beyond its region.  NUPA_FUZZ_SECONDS is the duration; the seed
 * is printed. */
#include "packet/crc.h"
#include "tests/support/end.h"
#include "capture/inject_frame.h"
#include "engine/device/device.h"
#include "engine/inject/inject_internal.h"
#include "packet/opcodes.h"

#include <endian.h>
#include <string.h>

#define GUARD 0x5a
#define INNER_FROM 262144u /* the region that packets know of, inside the end's memory */
#define INNER_BYTES 262144u

#define IP_AT 14u
#define UDP_AT (IP_AT + 20u)
#define BTH_AT (UDP_AT + 8u)
#define HEADERS_AT (BTH_AT + 12u)
#define FRAME_MAX_BYTES 8192u

struct scene {
	struct nupa_fabric *fabric;
	struct end *a, *b; /* packets come in a's name, b gets them */
	struct ibv_mr *inner;
	struct nupa_injector *injector;
	struct nupa_engine *entry; /* the injector's */
	uint64_t *random;
	uint64_t verdicts[NUPA_INJECT_DROPPED + 1];
};

struct frame {
	uint8_t bytes[FRAME_MAX_BYTES];
	uint32_t length;
};

static uint32_t pick(struct scene *s, uint32_t n)
{
	return (uint32_t)(test_random(s->random) >> 20) % n;
}

/* --- the scene --------------------------------------------------------------------------- */

static struct nupa_engine *injectors_engine(void)
{
	for (struct nupa_engine *engine = nupa_engines; engine; engine = engine->next)
		if (engine->injector)
			return engine;
	return NULL;
}

static void register_inner(struct scene *s)
{
	s->inner = nupa_reg_mr(s->b->pd, s->b->memory + INNER_FROM, INNER_BYTES,
			       (uintptr_t)s->b->memory + INNER_FROM, (int)s->b->options.access);
	CHECK(s->inner);
}

static void open_scene(struct scene *s, enum ibv_qp_type type, bool with_srq)
{
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	char why[256];

	options.type = type;
	options.srq_wr = with_srq ? 64 : 0;
	pair_open(s->fabric, &options, &s->a, &s->b);
	memset(s->b->memory, GUARD, options.memory_bytes);
	register_inner(s);
	s->injector = nupa_injector_open(s->fabric, 0, why, sizeof(why));
	CHECK(s->injector);
	s->entry = injectors_engine();
	CHECK(s->entry);
}

static void close_scene(struct scene *s)
{
	const uint8_t *memory = s->b->memory;

	for (uint32_t i = 0; i < s->b->options.memory_bytes; i++)
		if (i < INNER_FROM || i >= INNER_FROM + INNER_BYTES)
			CHECK_EQ(memory[i], GUARD);
	nupa_injector_close(s->injector);
	CHECK_EQ(nupa_dereg_mr(s->inner), 0);
	pair_close(s->a, s->b);
}

static void post_receives(struct scene *s)
{
	struct end *b = s->b;

	for (uint32_t i = 0; i < 8; i++) {
		struct ibv_sge sge = { (uintptr_t)b->memory + INNER_FROM, pick(s, 9000),
				       s->inner->lkey };
		struct ibv_recv_wr *bad, recv = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };

		if (b->srq)
			nupa_post_srq_recv(b->srq, &recv, &bad);
		else
			nupa_post_recv(b->qp, &recv, &bad);
	}
}

static void begin_anew(struct scene *s)
{
	CHECK_EQ(end_modify(s->b, IBV_QPS_RESET), 0);
	/* A SEND may have invalidated it. */
	CHECK_EQ(nupa_dereg_mr(s->inner), 0);
	register_inner(s);
	if (s->b->options.type == IBV_QPT_UD) {
		CHECK_EQ(nupa_destroy_ah(s->b->ah), 0);
		end_connect(s->b, &s->a->self);
		return;
	}
	CHECK_EQ(end_modify(s->a, IBV_QPS_RESET), 0);
	end_connect(s->a, &s->b->self);
	end_connect(s->b, &s->a->self);
}

/* --- packets ----------------------------------------------------------------------------- */

static void put(struct frame *f, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		f->bytes[f->length++] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static void set16(struct frame *f, uint32_t at, uint32_t value)
{
	f->bytes[at] = (uint8_t)(value >> 8);
	f->bytes[at + 1] = (uint8_t)value;
}

static uint8_t opcode_of(struct scene *s)
{
	static const uint8_t codes[] = { 0x04, 0x04, 0x00, 0x01, 0x02, 0x06, 0x07, 0x08, 0x09,
					 0x0a, 0x0b, 0x0c, 0x10, 0x11, 0x12, 0x13, 0x14, 0x1c };
	enum ibv_qp_type type = s->b->options.type;
	uint8_t service = type == IBV_QPT_RC ? 0x00 : type == IBV_QPT_UC ? 0x20 : 0x60;

	if (!pick(s, 16))
		return (uint8_t)pick(s, 256);
	return service | (type == IBV_QPT_UD ? 0x04 : codes[pick(s, sizeof(codes))]);
}

static uint32_t psn_of(struct scene *s)
{
	const struct nupa_qp *qp = container_of(s->b->qp, struct nupa_qp, ibv);
	struct nupa_inject_result result;

	CHECK_EQ(nupa_inject_ask(s->injector, s->b->qp->qp_num, WAIT_NS, &result), 0);
	if (result.expected_psn == UINT32_MAX)
		return nupa_psn_add(qp->next_psn, pick(s, 8));
	return nupa_psn_add(result.expected_psn, pick(s, 4) ? 0 : 0xfffffe + pick(s, 5));
}

static uint64_t address_of(struct scene *s)
{
	uint64_t from = (uintptr_t)s->b->memory + INNER_FROM;

	switch (pick(s, 6)) {
	case 0:
		return from + INNER_BYTES - pick(s, 64);
	case 1:
		return from - pick(s, 64);
	case 2:
		return test_random(s->random);
	default:
		return from + pick(s, INNER_BYTES - 8192) / 8 * 8;
	}
}

static uint32_t payload_of(struct scene *s, uint8_t opcode)
{
	static const uint32_t odd[] = { 0, 1, 3, 4, 8, 32, 33, 4095, 4096, 4097, 5000 };
	uint8_t code = opcode & 31;

	if (!nupa_opcode(opcode).payload && pick(s, 8))
		return 0;
	if (code == 0x00 || code == 0x01 || code == 0x06 || code == 0x07) /* first and middle */
		return pick(s, 8) ? NUPA_MTU_BYTES : odd[pick(s, 11)];
	return odd[pick(s, 11)];
}

/* The extended headers that the opcode has, mostly with what would be good. */
static void put_headers(struct scene *s, struct frame *f, uint8_t opcode, uint32_t payload_bytes)
{
	uint32_t rkey = pick(s, 8) ? s->inner->rkey : (uint32_t)test_random(s->random);
	uint32_t dma_bytes = pick(s, 4) ? payload_bytes + (uint32_t)(opcode & 3 ? 0 : pick(s, 9000))
					: (uint32_t)test_random(s->random) >> pick(s, 32);
	uint16_t headers = nupa_opcode(opcode).headers;

	if (headers & (NUPA_HEADER_RDETH | NUPA_HEADER_XRCETH))
		put(f, pick(s, 1u << 24), 4);
	if (headers & NUPA_HEADER_DETH) {
		put(f, pick(s, 8) ? TEST_QKEY : test_random(s->random), 4);
		put(f, pick(s, 1u << 24), 4);
	}
	if (headers & NUPA_HEADER_FETH)
		put(f, pick(s, 64), 4);
	if (headers & (NUPA_HEADER_RETH | NUPA_HEADER_ATOMICETH)) {
		put(f, address_of(s), 8);
		put(f, rkey, 4);
	}
	if (headers & NUPA_HEADER_RETH)
		put(f, dma_bytes, 4);
	if (headers & NUPA_HEADER_ATOMICETH) {
		put(f, test_random(s->random), 8);
		put(f, test_random(s->random), 8);
	}
	if (headers & NUPA_HEADER_AETH)
		put(f, test_random(s->random), 4);
	if (headers & NUPA_HEADER_ATOMICACKETH)
		put(f, test_random(s->random), 8);
	if (headers & NUPA_HEADER_IMMDT)
		put(f, test_random(s->random), 4);
	if (headers & NUPA_HEADER_IETH)
		put(f, rkey, 4);
	if (headers & NUPA_HEADER_CNP) {
		put(f, 0, 8);
		put(f, 0, 8);
	}
}

/* IBTA A17.3.3, over a packet of IPv4. */
static uint32_t icrc_of(const struct frame *f)
{
	uint8_t head[HEADERS_AT];
	uint8_t ones[8];
	uint32_t crc;

	memset(ones, 0xff, sizeof(ones));
	memcpy(head, f->bytes, sizeof(head));
	head[IP_AT + 1] = head[IP_AT + 8] = head[BTH_AT + 4] = 0xff;
	memset(head + IP_AT + 10, 0xff, 2);
	memset(head + UDP_AT + 6, 0xff, 2);
	crc = nupa_crc32(0, ones, sizeof(ones));
	crc = nupa_crc32(crc, head + IP_AT, sizeof(head) - IP_AT);
	return nupa_crc32(crc, f->bytes + HEADERS_AT, f->length - HEADERS_AT);
}

static void finish(struct frame *f, bool right_icrc)
{
	uint32_t sum = 0, crc;

	set16(f, IP_AT + 2, f->length + 4 - IP_AT);
	set16(f, UDP_AT + 4, f->length + 4 - UDP_AT);
	for (uint32_t i = IP_AT; i < UDP_AT; i += 2)
		sum += (uint32_t)f->bytes[i] << 8 | f->bytes[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	set16(f, IP_AT + 10, ~(sum + (sum >> 16)));
	crc = htole32(icrc_of(f) ^ !right_icrc);
	memcpy(f->bytes + f->length, &crc, sizeof(crc));
	f->length += 4;
}

static void make(struct scene *s, struct frame *f)
{
	uint8_t opcode = opcode_of(s);
	uint32_t payload_bytes = payload_of(s, opcode);
	uint32_t pad = pick(s, 16) ? -payload_bytes & 3 : pick(s, 4);
	uint32_t pkey = pick(s, 16) ? 0xffff : pick(s, 65536);

	f->length = 0;
	put(f, UINT64_C(0x02000a000002), 6);
	put(f, UINT64_C(0x02000a000001), 6);
	put(f, 0x0800, 2);
	put(f, 0x45000000, 4);
	put(f, 0x00004000, 4);
	put(f, 0x40110000, 4);
	put(f, 0x0a000001 + (pick(s, 16) ? 0 : pick(s, 3)), 4);
	put(f, 0x0a000002, 4);
	put(f, 0xc00012b7, 4); /* ports */
	put(f, 0, 4);
	put(f, opcode, 1);
	put(f, (pick(s, 2) ? 0x80 : 0) | pad << 4 | (pick(s, 16) ? 0 : pick(s, 16)), 1);
	put(f, pkey, 2);
	put(f, pick(s, 32) ? s->b->qp->qp_num : s->b->qp->qp_num + pick(s, 4), 4);
	put(f, psn_of(s), 4);
	put_headers(s, f, opcode, payload_bytes);
	memset(f->bytes + f->length, (int)pick(s, 256), payload_bytes + pad);
	f->length += payload_bytes + pad;
	finish(f, pick(s, 16) != 0);
}

/* --- their treatment --------------------------------------------------------------------- */

/* By the way that all packets take. */
static void send(struct scene *s, const struct frame *f)
{
	struct nupa_inject_result result;

	CHECK_EQ(nupa_inject_frame(s->injector, f->bytes, f->length, WAIT_NS, &result), 0);
	CHECK(result.verdict <= NUPA_INJECT_DROPPED);
	CHECK(result.reason < NUPA_INJECT_REASONS);
	CHECK_EQ(result.reason != NUPA_INJECT_NONE, result.verdict == NUPA_INJECT_DROPPED);
	CHECK_EQ(result.syndrome != 0, result.verdict == NUPA_INJECT_NAKED);
	s->verdicts[result.verdict]++;
}

static void flip_bits(struct scene *s, struct frame *f, uint32_t most_bytes)
{
	for (uint32_t flips = pick(s, 4); flips; flips--)
		f->bytes[pick(s, pick(s, 4) ? most_bytes : f->length)] ^=
		    (uint8_t)(1u << pick(s, 8));
}

/* A message as no injector sends it: the packet of a frame, either of them broken. */
static struct frame forged(struct scene *s, struct frame *f)
{
	struct nupa_roce_packet packet;
	const uint8_t *payload;
	struct frame out;

	flip_bits(s, f, HEADERS_AT);
	if (!pick(s, 4))
		f->length = 1 + pick(s, f->length);
	if (!nupa_inject_decode(f->bytes, f->length, &packet, &payload)) {
		packet.dqpn = s->b->qp->qp_num;
		packet.payload_bytes = pick(s, f->length);
		payload = f->bytes;
	}
	out.length = (uint32_t)sizeof(packet) + packet.payload_bytes;
	CHECK(out.length <= sizeof(out.bytes));
	memcpy(out.bytes, &packet, sizeof(packet));
	memcpy(out.bytes + sizeof(packet), payload, packet.payload_bytes);
	flip_bits(s, &out, (uint32_t)sizeof(packet));
	if (pick(s, 2))
		out.length = 1 + pick(s, out.length);
	return out;
}

/* Past the injector's decoder. */
static void forge(struct scene *s, struct frame *of)
{
	const struct frame message = forged(s, of), *f = &message;
	struct nupa_inject_result result;
	struct nupa_channel *channel;
	uint8_t *payload = NULL;
	struct nupa_msg *msg;

	nupa_engine_lock(s->entry);
	channel = s->entry->channels[nupa_context_slot(s->b->context)];
	CHECK(channel && !channel->broken);
	if (!channel->dma_backed)
		CHECK_EQ(nupa_channel_back_dma(s->entry, channel), 0);
	msg = nupa_tx_reserve(&channel->tx, f->length, &payload);
	if (msg && payload) {
		memcpy(payload, f->bytes, f->length);
		msg->op = NUPA_OP_INJECT;
		msg->flags = NUPA_F_DMA | (uint8_t)pick(s, 256);
		msg->dest_qpn = (uint32_t)test_random(s->random);
		msg->psn = (uint32_t)test_random(s->random);
		msg->length_bytes = f->length;
		nupa_tx_publish(&channel->tx, msg, f->length);
		nupa_channel_bell(channel);
	}
	nupa_engine_unlock(s->entry);
	/* It is judged when this, behind it, is answered. */
	CHECK_EQ(nupa_inject_ask(s->injector, s->b->qp->qp_num, WAIT_NS, &result), 0);
}

static void poll_all(struct scene *s)
{
	struct ibv_wc wc[16];

	while (nupa_poll_cq(s->b->recv_cq, 16, wc) > 0 || nupa_poll_cq(s->b->send_cq, 16, wc) > 0)
		continue;
}

static void any_packet(enum ibv_qp_type type, bool with_srq)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(2);
	uint64_t random = test_seed();
	struct scene s = { .fabric = test_fabric(), .random = &random };
	static struct frame frame;

	open_scene(&s, type, with_srq);
	/* However little of the time a busy machine gives us: some are of each kind. */
	while (test_now_ns() < until_ns || !s.verdicts[NUPA_INJECT_EXECUTED] ||
	       !s.verdicts[NUPA_INJECT_DROPPED]) {
		if (!pick(&s, 4))
			post_receives(&s);
		if (!pick(&s, 64))
			CHECK_EQ(end_modify(s.b, IBV_QPS_ERR), 0);
		make(&s, &frame);
		if (pick(&s, 4))
			send(&s, &frame);
		else
			forge(&s, &frame);
		poll_all(&s);
		if (end_state(s.b) == IBV_QPS_ERR && pick(&s, 4))
			begin_anew(&s);
	}
	close_scene(&s);
	printf("  %llu executed, %llu NAKed, %llu dropped\n", (unsigned long long)s.verdicts[0],
	       (unsigned long long)s.verdicts[1], (unsigned long long)s.verdicts[2]);
	nupa_fabric_put(s.fabric);
}

TEST(at_a_reliable_queue_pair)
{
	any_packet(IBV_QPT_RC, false);
}

TEST(at_a_reliable_queue_pair_with_shared_receives)
{
	any_packet(IBV_QPT_RC, true);
}

TEST(at_an_unreliable_queue_pair)
{
	any_packet(IBV_QPT_UC, false);
}

TEST(at_a_datagram_queue_pair)
{
	any_packet(IBV_QPT_UD, false);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
