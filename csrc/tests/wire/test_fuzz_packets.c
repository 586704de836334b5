/* SPDX-License-Identifier: BSD-3-Clause
 * Forged packets (forge.h) to live queue pairs on a wire, by its own UDP sockets, most with a right
 * ICRC, alone and several in one datagram (UDP_SEGMENT, UDP_GRO).  A packet may cost its queue
 * pair, but no byte outside of the region that it may write, nor the process.  NUPA_FUZZ_SECONDS is
 * the duration; the seed is printed. */
#include "engine/core/qp.h"
#include "engine/wire/wire_internal.h"
#include "packet/roce.h"
#include "tests/wire/forge.h"
#include "tests/wire/keeper.h"
#include "wire/keeper_internal.h"

#include <endian.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define GUARD 0xa7
#define AREA_BYTES 65536u
#define INNER_FROM 16384u
#define INNER_BYTES 32768u
#define BATCH 16u
#define GROUP_PACKETS 24u
#define GROUP_BYTES 20000u /* that a socket's buffer has room for a batch */

/* One end, and the socket from which forged packets come to it. */
struct target {
	struct end *end;
	const struct keeper *keeper;
	uint8_t *area;
	struct ibv_mr *inner;
	struct nupa_icrc_base icrc;
	union nupa_keeper_address from, to;
	int fd;
	bool ipv4;
	uint16_t port;
};

struct scene {
	struct wired wired;
	struct target targets[2];
	uint64_t random, sent, grouped;
};

static uint32_t pick(struct scene *s, uint32_t below)
{
	return forge_pick(&s->random, below);
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
	socklen_t length = sizeof(t->from);
	uint8_t gid[16];

	t->end = end;
	t->keeper = keeper;
	t->area = malloc(AREA_BYTES);
	CHECK(t->area);
	memset(t->area, GUARD, AREA_BYTES);
	register_inner(t);
	t->ipv4 = nupa_keeper_is_ipv4(keeper->local);
	nupa_icrc_prepare(&t->icrc, from->local, keeper->local);
	nupa_keeper_address(keeper->local, NUPA_ROCE_PORT, &t->to);
	t->fd = wired_socket(from->local, 0);
	CHECK_EQ(getsockname(t->fd, &t->from.any, &length), 0);
	CHECK(nupa_keeper_gid(&t->from, gid, &t->port));
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

static struct forge forge_of(struct scene *s, const struct target *t)
{
	const struct nupa_qp *qp = container_of(t->end->qp, struct nupa_qp, ibv);
	struct forge forge = { .random = &s->random,
			       .type = t->end->options.type,
			       .qpn = t->end->qp->qp_num,
			       .qkey = TEST_QKEY,
			       .rkey = t->inner->rkey,
			       .memory = (uintptr_t)t->area + INNER_FROM,
			       .bytes = INNER_BYTES };

	nupa_engine_lock(qp->engine);
	forge.expected_psn = qp->expected_psn;
	forge.next_psn = qp->next_psn;
	nupa_engine_unlock(qp->engine);
	return forge;
}

/* The *nth* of a datagram's packets has that identification. */
static void seal(struct scene *s, const struct target *t, uint32_t nth, uint8_t *packet,
		 uint32_t length)
{
	const struct iovec covered = { packet, length - NUPA_ICRC_BYTES };
	uint32_t icrc;

	if (length < NUPA_BTH_BYTES + NUPA_ICRC_BYTES || !pick(s, 16))
		return;
	icrc = htole32(nupa_icrc_of(&t->icrc, t->port, (uint16_t)nth, &covered, 1));
	memcpy(packet + length - NUPA_ICRC_BYTES, &icrc, sizeof(icrc));
}

static void mark(struct scene *s, const struct target *t)
{
	const int tos = pick(s, 4) ? 2 : 3;

	CHECK_EQ(setsockopt(t->fd, t->ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
			    t->ipv4 ? IP_TOS : IPV6_TCLASS, &tos, sizeof(tos)),
		 0);
}

/* *segment*: how long packets are of which these bytes consist. */
static void transmit(const struct target *t, uint8_t *bytes, uint32_t length, uint32_t segment)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(uint16_t))];
	} control = { .header = { .cmsg_level = SOL_UDP,
				  .cmsg_type = UDP_SEGMENT,
				  .cmsg_len = CMSG_LEN(sizeof(uint16_t)) } };
	struct iovec piece = { bytes, length };
	const struct msghdr msg = { .msg_name = (void *)(uintptr_t)&t->to,
				    .msg_namelen = nupa_keeper_address_bytes(&t->to),
				    .msg_iov = &piece,
				    .msg_iovlen = 1,
				    .msg_control = segment < length ? &control : NULL,
				    .msg_controllen = segment < length ? sizeof(control) : 0 };

	memcpy(CMSG_DATA(&control.header), &(uint16_t){ (uint16_t)segment }, sizeof(uint16_t));
	CHECK_EQ(sendmsg(t->fd, &msg, 0), length);
}

/* A datagram of one packet or more of one shape; the last one may be shorter. */
static void send_forged(struct scene *s, const struct target *t)
{
	static uint8_t bytes[GROUP_BYTES + FORGE_BYTES];
	const struct forge forge = forge_of(s, t);
	const struct forge_shape shape = forge_shape(&forge), other = forge_shape(&forge);
	uint32_t most = pick(s, 2) ? 1 : 1 + pick(s, GROUP_PACKETS), n = 0, at = 0, segment = 0;

	do {
		const bool last = n + 1 >= most;
		uint32_t length =
		    forge_packet(&forge, last && n && !pick(s, 4) ? &other : &shape, n, bytes + at);

		if (!segment)
			segment = length;
		if (length > segment)
			length = segment;
		if (last && !pick(s, 16))
			length = pick(s, length + 1);
		seal(s, t, n, bytes + at, length);
		at += length;
		n += length || !n;
	} while (n < most && at + segment <= GROUP_BYTES && at == n * segment);
	mark(s, t);
	transmit(t, bytes, at, segment);
	s->sent += n;
	s->grouped += n > 1 ? n : 0;
}

/* What was sent before is in the sockets: loopback, too, has a queue. */
static void pass_loopback(const struct target *t)
{
	struct pollfd fd = { .fd = t->fd, .events = POLLIN };
	uint8_t byte = 0;

	CHECK_EQ(sendto(t->fd, &byte, 1, 0, &t->from.any, nupa_keeper_address_bytes(&t->from)), 1);
	CHECK_EQ(poll(&fd, 1, (int)(WAIT_NS / MS)), 1);
	CHECK_EQ(recv(t->fd, &byte, 1, 0), 1);
}

/* Whether nothing lies in the socket of an end: what came has been judged. */
static bool is_drained(const struct target *t)
{
	struct nupa_engine *engine = nupa_engine_of(t->end->context);
	struct pollfd fd = { .events = POLLIN };
	bool drained;

	nupa_engine_lock(engine);
	fd.fd = engine->wires->udp;
	drained = !poll(&fd, 1, 0);
	nupa_engine_unlock(engine);
	return drained;
}

/* No forged packet may come after the next reset. */
static void drain(struct scene *s)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	pass_loopback(&s->targets[0]);
	do {
		CHECK(test_now_ns() < until_ns);
		poll_all(s);
	} while (!is_drained(&s->targets[0]) || !is_drained(&s->targets[1]));
}

static void batch(struct scene *s)
{
	for (uint32_t i = 0; i < BATCH; i++)
		send_forged(s, &s->targets[pick(s, 2)]);
	drain(s);
}

/* The queue pairs work, after all that. */
static void check_alive(struct scene *s)
{
	struct end *a = s->targets[0].end, *b = s->targets[1].end;
	const uint32_t at = a->options.type == IBV_QPT_UD ? 40 : 0, bytes = 1000;

	begin_anew(s);
	poll_all(s);
	pattern_fill(a->memory, bytes, 5);
	end_post_recv(b, 1, 0, bytes + at);
	end_start(a, IBV_WR_SEND, 2, 0, bytes);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory + at, bytes, 5);
}

static void any_packet(enum ibv_qp_type type, bool ipv6)
{
	struct end_options options = end_defaults;
	struct scene s = { .random = test_seed() };
	const uint32_t mtu_bytes = type == IBV_QPT_UD || pick(&s, 2) ? 4096 : 1024; /* rxe's */
	struct nupa_wire_info info;
	uint64_t until_ns;

	forge_load(NUPA_TESTS_DATA "/rxe_eth0.pcap");
	forge_load(NUPA_TESTS_DATA "/rxe_more.pcap");
	options.type = type;
	options.timeout = 10;
	options.retry_cnt = 2;
	if (!ipv6)
		wired_open(&s.wired, &options, mtu_bytes);
	else if (!wired_open_ipv6(&s.wired, &options, mtu_bytes))
		return;
	open_target(&s.targets[0], s.wired.end_a, &s.wired.a, &s.wired.b);
	open_target(&s.targets[1], s.wired.end_b, &s.wired.b, &s.wired.a);
	/* The port to a wire is opened by the first that is sent. */
	check_alive(&s);
	until_ns = test_now_ns() + test_fuzz_ns(2);
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
	printf("  %llu forged, %llu of them in groups; at one end %llu came, %llu malformed, "
	       "%llu with a wrong ICRC, %llu marked, %llu notifications\n",
	       (unsigned long long)s.sent, (unsigned long long)s.grouped,
	       (unsigned long long)info.received_packets, (unsigned long long)info.malformed,
	       (unsigned long long)info.icrc_errors, (unsigned long long)info.ecn_marked,
	       (unsigned long long)info.cnp_handled);
	CHECK(info.icrc_errors < info.received_packets / 2); /* most get behind the ICRC */
	close_target(&s.targets[0]);
	close_target(&s.targets[1]);
	wired_close(&s.wired);
}

TEST(at_reliable_queue_pairs)
{
	any_packet(IBV_QPT_RC, false);
}

TEST(at_unreliable_queue_pairs)
{
	any_packet(IBV_QPT_UC, false);
}

TEST(at_datagram_queue_pairs)
{
	any_packet(IBV_QPT_UD, false);
}

TEST(at_queue_pairs_of_ipv6)
{
	any_packet(IBV_QPT_RC, true);
}
