/* SPDX-License-Identifier: BSD-3-Clause
 * Forged packets to live queue pairs on a wire, by its own UDP sockets: made ones and those of
 * Linux's rdma_rxe, either of them damaged, most with a right ICRC.  A packet may cost its queue
 * pair, but no byte outside of the region that it may write, nor the process.  NUPA_FUZZ_SECONDS is
 * the duration; the seed is printed. */
#include "engine/attachment/attachment.h"
#include "engine/core/qp.h"
#include "packet/roce.h"
#include "tests/wire/keeper.h"

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>
#include <unistd.h>

#define GUARD 0xa7
#define AREA_BYTES 65536u
#define INNER_FROM 16384u
#define INNER_BYTES 32768u
#define BATCH 16u
#define BATCH_WAIT_NS (20 * MS)
#define PACKET_BYTES 5200u
#define REAL_MAX 256u
#define PCAP_HEADER_BYTES 24u
#define RECORD_HEADER_BYTES 16u
#define ETHERTYPE_AT 12u
#define BTH_AT 42u

/* One end, and the socket from which forged packets come to it. */
struct target {
	struct end *end;
	const struct keeper *keeper;
	uint8_t *area;
	struct ibv_mr *inner;
	struct nupa_icrc_base icrc;
	struct sockaddr_in to;
	int fd;
	uint16_t port;
};

struct scene {
	struct wired wired;
	struct target targets[2];
	uint64_t random, sent;
};

/* Packets of the captures, from the BTH to the ICRC. */
static uint8_t captured[1 << 18];
static struct {
	const uint8_t *bytes;
	uint32_t length;
} real[REAL_MAX];
static uint32_t n_real;

static uint32_t pick(struct scene *s, uint32_t below)
{
	return (uint32_t)(test_random(&s->random) >> 16) % below;
}

/* --- packets of rdma_rxe ----------------------------------------------------------------- */

/* A classic pcap file of Ethernet, little endian; those of IPv4 are taken. */
static void load(const char *path)
{
	FILE *file = fopen(path, "rb");
	size_t bytes, at = PCAP_HEADER_BYTES;

	CHECK(file);
	bytes = fread(captured, 1, sizeof(captured), file);
	CHECK(bytes > PCAP_HEADER_BYTES && bytes < sizeof(captured));
	fclose(file);
	while (at + RECORD_HEADER_BYTES + BTH_AT < bytes && n_real < REAL_MAX) {
		const uint8_t *frame = captured + at + RECORD_HEADER_BYTES;
		uint32_t length;

		memcpy(&length, captured + at + 8, sizeof(length));
		length = le32toh(length);
		at += RECORD_HEADER_BYTES + length;
		CHECK(at <= bytes);
		if (frame[ETHERTYPE_AT] != 0x08 || frame[ETHERTYPE_AT + 1] != 0 ||
		    length < BTH_AT + NUPA_BTH_BYTES + NUPA_ICRC_BYTES)
			continue;
		real[n_real].bytes = frame + BTH_AT;
		real[n_real++].length = length - BTH_AT;
	}
	CHECK(n_real > 20);
}

/* --- ends -------------------------------------------------------------------------------- */

static void register_inner(struct target *t)
{
	t->inner = nupa_reg_mr(t->end->pd, t->area + INNER_FROM, INNER_BYTES,
			       (uintptr_t)t->area + INNER_FROM, (int)t->end->options.access);
	CHECK(t->inner);
}

static void open_target(struct target *t, struct end *end, const struct keeper *keeper,
			const struct keeper *from)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_addr = from->local };
	uint8_t src[16] = { [10] = 0xff, [11] = 0xff }, dst[16] = { [10] = 0xff, [11] = 0xff };
	const int discover = IP_PMTUDISC_DO;
	socklen_t length = sizeof(local);

	t->end = end;
	t->keeper = keeper;
	t->area = malloc(AREA_BYTES);
	CHECK(t->area);
	memset(t->area, GUARD, AREA_BYTES);
	register_inner(t);
	memcpy(src + 12, &from->local, 4);
	memcpy(dst + 12, &keeper->local, 4);
	nupa_icrc_prepare(&t->icrc, src, dst);
	t->to = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_port = htons(NUPA_ROCE_PORT),
				      .sin_addr = keeper->local };
	t->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(t->fd >= 0);
	CHECK_EQ(setsockopt(t->fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover)), 0);
	CHECK_EQ(bind(t->fd, (const struct sockaddr *)&local, sizeof(local)), 0);
	CHECK_EQ(getsockname(t->fd, (struct sockaddr *)&local, &length), 0);
	t->port = ntohs(local.sin_port);
}

static void close_target(struct target *t)
{
	for (uint32_t i = 0; i < AREA_BYTES; i++)
		if (i < INNER_FROM || i >= INNER_FROM + INNER_BYTES)
			CHECK_EQ(t->area[i], GUARD);
	CHECK_EQ(nupa_dereg_mr(t->inner), 0);
	free(t->area);
	close(t->fd);
}

static void post_receives(struct scene *s, const struct target *t)
{
	for (uint32_t i = 0; i < 8; i++) {
		struct ibv_sge sge = { (uintptr_t)t->area + INNER_FROM, pick(s, 9000),
				       t->inner->lkey };
		struct ibv_recv_wr *bad, recv = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };

		nupa_post_recv(t->end->qp, &recv, &bad);
	}
}

static void post_request(struct scene *s, const struct target *t)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	const enum ibv_qp_type type = t->end->options.type;
	const uint32_t op = pick(s, type == IBV_QPT_RC ? 4 : type == IBV_QPT_UC ? 2 : 1);
	struct request request = request_of(
	    t->end, opcodes[op], 7, 0, op == 3 ? 8 : pick(s, type == IBV_QPT_UD ? 4096 : 30000));
	struct ibv_send_wr *bad;

	request.wr.sg_list = request.sge;
	(void)nupa_post_send(t->end->qp, &request.wr, &bad);
}

static void begin_anew(struct scene *s)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct target *t = &s->targets[i];

		CHECK_EQ(end_modify(t->end, IBV_QPS_RESET), 0);
		CHECK_EQ(nupa_dereg_mr(t->inner), 0); /* a SEND may have invalidated it */
		register_inner(t);
		if (t->end->options.type == IBV_QPT_UD)
			CHECK_EQ(nupa_destroy_ah(t->end->ah), 0);
	}
	end_connect(s->targets[0].end, &s->targets[1].end->self);
	end_connect(s->targets[1].end, &s->targets[0].end->self);
}

static void poll_all(struct scene *s)
{
	struct ibv_wc wc[16];

	for (uint32_t i = 0; i < 2; i++)
		while (nupa_poll_cq(s->targets[i].end->recv_cq, 16, wc) > 0 ||
		       nupa_poll_cq(s->targets[i].end->send_cq, 16, wc) > 0)
			continue;
}

/* --- forged packets ---------------------------------------------------------------------- */

static uint32_t psn_of(struct scene *s, const struct target *t)
{
	const struct nupa_qp *qp = container_of(t->end->qp, struct nupa_qp, ibv);
	uint32_t expected, next;

	nupa_engine_lock(qp->engine);
	expected = qp->expected_psn;
	next = qp->next_psn;
	nupa_engine_unlock(qp->engine);
	return nupa_psn_add(pick(s, 3) ? expected : next, pick(s, 2) ? 0 : 0xfffff8 + pick(s, 12)) &
	       0xffffff;
}

static uint64_t address_of(struct scene *s, const struct target *t)
{
	const uint64_t from = (uintptr_t)t->area + INNER_FROM;

	switch (pick(s, 6)) {
	case 0:
		return from + INNER_BYTES - pick(s, 64);
	case 1:
		return from - pick(s, 64);
	case 2:
		return test_random(&s->random);
	default:
		return from + pick(s, INNER_BYTES - 8192) / 8 * 8;
	}
}

static uint8_t opcode_of(struct scene *s, const struct target *t)
{
	const enum ibv_qp_type type = t->end->options.type;
	uint8_t code;

	if (!pick(s, 8))
		return (uint8_t)test_random(&s->random);
	if (!pick(s, 16))
		return 0x81;
	do
		code = (uint8_t)((type == IBV_QPT_RC   ? 0
				  : type == IBV_QPT_UC ? 0x20
						       : 0x60) |
				 pick(s, 32));
	while (!nupa_opcode(code).known);
	return code;
}

static uint32_t make(struct scene *s, const struct target *t, uint8_t *out)
{
	static const uint32_t odd[] = { 0, 1, 3, 4, 8, 32, 1023, 1024, 4095, 4096, 4097, 5000 };
	const uint8_t opcode = opcode_of(s, t);
	const uint32_t bytes = nupa_opcode(opcode).payload || !pick(s, 8) ? odd[pick(s, 12)] : 0;
	const struct nupa_roce_packet packet = {
		.opcode = opcode,
		.version = !pick(s, 64),
		.pad_bytes = (uint8_t)(pick(s, 16) ? -bytes & 3 : pick(s, 4)),
		.syndrome = (uint8_t)test_random(&s->random),
		.flush = (uint8_t)pick(s, 64),
		.flags = (uint8_t)test_random(&s->random),
		.pkey = pick(s, 16) ? 0xffff : pick(s, 65536),
		.dqpn = pick(s, 16) ? t->end->qp->qp_num : t->end->qp->qp_num + pick(s, 4),
		.psn = psn_of(s, t),
		.rkey = pick(s, 8) ? t->inner->rkey : (uint32_t)test_random(&s->random),
		.dma_bytes = pick(s, 3) ? bytes + (pick(s, 2) ? 0 : pick(s, 9000))
					: (uint32_t)test_random(&s->random) >> pick(s, 32),
		.imm = (uint32_t)test_random(&s->random),
		.qkey = pick(s, 8) ? TEST_QKEY : (uint32_t)test_random(&s->random),
		.source_qpn = pick(s, 1 << 24),
		.srqn = pick(s, 1 << 24),
		.msn = pick(s, 1 << 24),
		.va = address_of(s, t),
		.swap = test_random(&s->random),
		.compare = test_random(&s->random),
		.original = test_random(&s->random),
	};
	uint32_t length = nupa_roce_write(out, &packet);

	memset(out + length, (int)pick(s, 256), bytes + packet.pad_bytes);
	return length + bytes + packet.pad_bytes + NUPA_ICRC_BYTES;
}

/* One of rdma_rxe, for this queue pair. */
static uint32_t take_real(struct scene *s, const struct target *t, uint8_t *out)
{
	const uint32_t which = pick(s, n_real), qpn = t->end->qp->qp_num, psn = psn_of(s, t);

	memcpy(out, real[which].bytes, real[which].length);
	for (uint32_t i = 0; i < 3; i++) {
		out[5 + i] = (uint8_t)(qpn >> 8 * (2 - i));
		out[9 + i] = (uint8_t)(psn >> 8 * (2 - i));
	}
	if (nupa_opcode(out[0]).headers & NUPA_HEADER_RETH && pick(s, 2)) {
		const uint64_t va = htobe64(address_of(s, t));
		const uint32_t rkey = htobe32(t->inner->rkey);

		memcpy(out + NUPA_BTH_BYTES, &va, sizeof(va));
		memcpy(out + NUPA_BTH_BYTES + 8, &rkey, sizeof(rkey));
	}
	return real[which].length;
}

static void forge(struct scene *s, const struct target *t)
{
	static uint8_t packet[PACKET_BYTES];
	uint32_t length = pick(s, 4) ? make(s, t, packet) : take_real(s, t, packet);
	const int tos = pick(s, 4) ? 2 : 3;

	for (uint32_t flips = pick(s, 4) ? 0 : pick(s, 4); flips; flips--)
		packet[pick(s, pick(s, 4) ? 40 : length)] ^= (uint8_t)(1u << pick(s, 8));
	if (!pick(s, 16))
		length = pick(s, length + 1);
	if (length >= NUPA_BTH_BYTES + NUPA_ICRC_BYTES && pick(s, 16)) {
		const struct iovec covered = { packet, length - NUPA_ICRC_BYTES };
		const uint32_t icrc = htole32(nupa_icrc_of(&t->icrc, t->port, 0, &covered, 1));

		memcpy(packet + length - NUPA_ICRC_BYTES, &icrc, sizeof(icrc));
	}
	CHECK_EQ(setsockopt(t->fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)), 0);
	CHECK_EQ(sendto(t->fd, packet, length, 0, (const struct sockaddr *)&t->to, sizeof(t->to)),
		 length);
	s->sent++;
}

static uint64_t received(const struct scene *s)
{
	return keeper_info(s->targets[0].keeper).received_packets +
	       keeper_info(s->targets[1].keeper).received_packets;
}

static void batch(struct scene *s)
{
	const uint64_t before = received(s), until_ns = test_now_ns() + BATCH_WAIT_NS;

	for (uint32_t i = 0; i < BATCH; i++)
		forge(s, &s->targets[pick(s, 2)]);
	do
		poll_all(s);
	while (received(s) < before + BATCH && test_now_ns() < until_ns);
}

/* The queue pairs work, after all that. */
static void check_alive(struct scene *s)
{
	struct end *a = s->targets[0].end, *b = s->targets[1].end;
	const uint32_t at = a->options.type == IBV_QPT_UD ? 40 : 0, bytes = 4000;

	begin_anew(s);
	poll_all(s);
	pattern_fill(a->memory, bytes, 5);
	end_post_recv(b, 1, 0, bytes + at);
	end_start(a, IBV_WR_SEND, 2, 0, bytes);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory + at, bytes, 5);
}

static void any_packet(enum ibv_qp_type type)
{
	const uint64_t until_ns = test_now_ns() + test_fuzz_ns(2);
	struct end_options options = end_defaults;
	struct scene s = { .random = test_seed() };
	struct nupa_wire_info info;

	load(NUPA_TESTS_DATA "/rxe_eth0.pcap");
	options.type = type;
	options.timeout = 10;
	options.retry_cnt = 2;
	wired_open(&s.wired, &options, 4096);
	open_target(&s.targets[0], s.wired.end_a, &s.wired.a, &s.wired.b);
	open_target(&s.targets[1], s.wired.end_b, &s.wired.b, &s.wired.a);
	/* The port to a wire is opened by the first that is sent. */
	check_alive(&s);
	while (test_now_ns() < until_ns) {
		if (!pick(&s, 4))
			post_receives(&s, &s.targets[pick(&s, 2)]);
		if (!pick(&s, 4))
			post_request(&s, &s.targets[pick(&s, 2)]);
		batch(&s);
		if ((end_state(s.targets[0].end) == IBV_QPS_ERR ||
		     end_state(s.targets[1].end) == IBV_QPS_ERR) &&
		    pick(&s, 4))
			begin_anew(&s);
	}
	check_alive(&s);
	info = keeper_info(s.targets[1].keeper);
	printf("  %llu forged; at one end %llu came, %llu malformed, %llu with a wrong ICRC, "
	       "%llu marked, %llu notifications\n",
	       (unsigned long long)s.sent, (unsigned long long)info.received_packets,
	       (unsigned long long)info.malformed, (unsigned long long)info.icrc_errors,
	       (unsigned long long)info.ecn_marked, (unsigned long long)info.cnp_handled);
	close_target(&s.targets[0]);
	close_target(&s.targets[1]);
	wired_close(&s.wired);
}

TEST(at_reliable_queue_pairs)
{
	any_packet(IBV_QPT_RC);
}

TEST(at_unreliable_queue_pairs)
{
	any_packet(IBV_QPT_UC);
}

TEST(at_datagram_queue_pairs)
{
	any_packet(IBV_QPT_UD);
}
