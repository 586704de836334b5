/* SPDX-License-Identifier: BSD-3-Clause
 * A keeper under packets, hellos, envelopes and requests that were damaged or never were any, in
 * any order, with hang-ups in between.  It keeps its memory to itself, leaks nothing, and answers a
 * probe afterwards.  NUPA_FUZZ_SECONDS is the duration; the seed is printed. */
#define _GNU_SOURCE
#include "engine/cm/wire/mad.h"
#include "packet/roce.h"
#include "segment/port_protocol.h"
#include "tests/wire/keeper.h"
#include "wire/keeper.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PEERS 6
#define ROUNDS 200
#define GSI_SEND_ONLY 0x64

struct stage {
	struct nupa_fabric *fabric;
	struct nupa_keeper *keeper;
	struct end *end; /* so that there is a slot of ours */
	uint8_t local[16], remote[16];
	struct sockaddr_in to;
	struct sockaddr_un path;
	int far;          /* the socket of the other end */
	int peers[PEERS]; /* connections to the keeper; -1: none */
	uint64_t random;
};

static uint32_t below(struct stage *stage, uint32_t limit)
{
	return (uint32_t)(test_random(&stage->random) >> 20) % limit;
}

/* --- packets ------------------------------------------------------------------------- */

static uint32_t seal(const struct stage *stage, uint8_t *packet, uint32_t bytes)
{
	struct nupa_roce_path path = { .src_port = NUPA_WIRE_UDP_PORT };
	const struct iovec piece = { packet, bytes };
	uint32_t icrc;

	memcpy(path.src, stage->remote, 16);
	memcpy(path.dst, stage->local, 16);
	icrc = htole32(nupa_icrc(&path, &piece, 1));
	memcpy(packet + bytes, &icrc, sizeof(icrc));
	return bytes + (uint32_t)sizeof(icrc);
}

static uint32_t make_mad(const struct stage *stage, uint8_t *packet, const struct nupa_cm_mad *mad)
{
	const struct nupa_roce_packet head = { .opcode = GSI_SEND_ONLY,
					       .pkey = NUPA_PKEY_DEFAULT,
					       .dqpn = NUPA_CM_GSI_QPN,
					       .qkey = NUPA_CM_GSI_QKEY,
					       .source_qpn = NUPA_CM_GSI_QPN };
	const uint32_t bytes = nupa_roce_write(packet, &head);

	nupa_cm_mad_write(mad, packet + bytes);
	return seal(stage, packet, bytes + NUPA_CM_MAD_BYTES);
}

static uint32_t make_packet(struct stage *stage, uint8_t packet[NUPA_WIRE_PACKET_MAX_BYTES])
{
	struct nupa_cm_mad mad = { .attribute = (uint16_t)(0x10 + below(stage, 9)),
				   .local_id = below(stage, 2) ? below(stage, UINT32_MAX)
							       : 1 + below(stage, 8),
				   .remote_id = below(stage, 4) ? below(stage, UINT32_MAX)
								: stage->end->self.qpn >> 16,
				   .qpn = below(stage, 1024) };
	uint32_t bytes, n = below(stage, 8);

	if (below(stage, 2))
		memcpy(mad.data, "NUPA", 4);
	bytes = make_mad(stage, packet, &mad);
	if (below(stage, 4) == 0) { /* another queue pair's */
		packet[5] = (uint8_t)below(stage, 8);
		bytes = 16 + below(stage, NUPA_WIRE_PACKET_MAX_BYTES - 16);
	}
	for (uint32_t i = 0; i < n; i++)
		packet[below(stage, bytes)] = (uint8_t)below(stage, 256);
	if (below(stage, 2) && bytes > 20)
		bytes = seal(stage, packet, bytes - 4);
	return below(stage, 4) ? bytes : below(stage, bytes + 1);
}

static void send_packet(struct stage *stage)
{
	uint8_t packet[NUPA_WIRE_PACKET_MAX_BYTES + 64] = { 0 };
	const uint32_t bytes = make_packet(stage, packet);

	(void)sendto(stage->far, packet, bytes, MSG_DONTWAIT, (struct sockaddr *)&stage->to,
		     sizeof(stage->to));
}

/* --- processes ----------------------------------------------------------------------- */

static void meet(struct stage *stage, int *fd)
{
	struct nupa_wire_hello hello = { NUPA_WIRE_MAGIC, NUPA_WIRE_VERSION,
					 stage->end->self.qpn >> 16, 0 };
	const uint64_t claim =
	    __atomic_load_n(&stage->fabric->slots[hello.slot].claim, __ATOMIC_ACQUIRE);
	uint8_t bytes[2048];
	uint32_t n = sizeof(hello);

	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(*fd >= 0);
	if (connect(*fd, (struct sockaddr *)&stage->path, sizeof(stage->path))) {
		close(*fd); /* its queue is full */
		*fd = -1;
		return;
	}
	hello.epoch = NUPA_CLAIM_EPOCH(claim);
	memset(bytes, 'x', sizeof(bytes));
	memcpy(bytes, &hello, sizeof(hello));
	switch (below(stage, 4)) {
	case 0:
		bytes[below(stage, sizeof(hello))] = (uint8_t)below(stage, 256);
		break;
	case 1:
		memcpy(bytes, &(uint32_t){ NUPA_WIRE_REQUEST_MAGIC }, 4);
		n = below(stage, sizeof(bytes));
		break;
	case 2:
		n = below(stage, sizeof(bytes));
		break;
	default:
		break; /* as it should be */
	}
	(void)send(*fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void pass_on(struct stage *stage, int fd)
{
	struct {
		struct nupa_wire_envelope envelope;
		uint8_t bytes[NUPA_WIRE_PACKET_MAX_BYTES + 64];
	} came = { 0 };
	uint32_t n = make_packet(stage, came.bytes);

	memcpy(came.envelope.src, below(stage, 4) ? stage->remote : stage->local, 16);
	memcpy(came.envelope.dst, below(stage, 4) ? stage->local : stage->remote, 16);
	came.envelope.bytes = n;
	came.envelope.src_port = NUPA_WIRE_UDP_PORT;
	came.envelope.flags = below(stage, 2);
	for (uint32_t i = below(stage, 3); i > 0; i--)
		((uint8_t *)&came.envelope)[below(stage, sizeof(came.envelope))] =
		    (uint8_t)below(stage, 256);
	n += (uint32_t)sizeof(came.envelope);
	(void)send(fd, &came, below(stage, 8) ? n : below(stage, n + 1),
		   MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sockets that come with a welcome are ours to close. */
static void read_all(int fd)
{
	uint8_t bytes[8192];
	union {
		struct cmsghdr header;
		uint8_t bytes[256];
	} control;
	struct iovec piece = { bytes, sizeof(bytes) };

	for (;;) {
		struct msghdr msg = { .msg_iov = &piece,
				      .msg_iovlen = 1,
				      .msg_control = &control,
				      .msg_controllen = sizeof(control) };
		const struct cmsghdr *header;
		int passed;

		if (recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
			return;
		header = CMSG_FIRSTHDR(&msg);
		if (!header)
			continue;
		memcpy(&passed, CMSG_DATA(header), sizeof(passed));
		close(passed);
	}
}

static void act(struct stage *stage)
{
	int *fd = &stage->peers[below(stage, PEERS)];

	if (below(stage, 2)) {
		send_packet(stage);
	} else if (*fd < 0) {
		meet(stage, fd);
	} else if (below(stage, 8)) {
		pass_on(stage, *fd);
		read_all(*fd);
	} else {
		read_all(*fd);
		close(*fd);
		*fd = -1;
	}
}

/* --- the keeper ---------------------------------------------------------------------- */

static void serve(struct stage *stage)
{
	char text[1100];
	int fd;

	while (nupa_keeper_run(stage->keeper, -1, 0, text, sizeof(text), &fd) ==
	       NUPA_KEEPER_REQUEST) {
		CHECK(memchr(text, 0, sizeof(text)));
		close(fd);
	}
}

static void open_stage(struct stage *stage)
{
	static const struct timeval patience = { .tv_sec = 20 };
	char local[INET_ADDRSTRLEN], remote[INET_ADDRSTRLEN], why[512] = "";
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(NUPA_WIRE_UDP_PORT) };

	memset(stage, 0, sizeof(*stage));
	stage->random = test_seed();
	wired_address(local, 0);
	wired_address(remote, 1);
	stage->local[10] = stage->local[11] = stage->remote[10] = stage->remote[11] = 0xff;
	inet_pton(AF_INET, local, stage->local + 12);
	inet_pton(AF_INET, remote, stage->remote + 12);
	stage->to = from;
	memcpy(&stage->to.sin_addr, stage->local + 12, 4);
	memcpy(&from.sin_addr, stage->remote + 12, 4);
	stage->path.sun_family = AF_UNIX;
	wired_path(stage->path.sun_path);
	stage->fabric = test_fabric();
	stage->end = end_open(stage->fabric, &end_defaults);
	stage->keeper = nupa_keeper_open(stage->fabric, stage->local, why, sizeof(why));
	CHECK(stage->keeper);
	if (nupa_keeper_add(stage->keeper, WIRE_HOST, stage->remote, NUPA_WIRE_UDP,
			    stage->path.sun_path, "", why, sizeof(why)) < 0) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	stage->far = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(stage->far >= 0);
	CHECK_EQ(bind(stage->far, (struct sockaddr *)&from, sizeof(from)), 0);
	CHECK_EQ(setsockopt(stage->far, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	for (int i = 0; i < PEERS; i++)
		stage->peers[i] = -1;
}

static void close_stage(struct stage *stage)
{
	for (int i = 0; i < PEERS; i++)
		if (stage->peers[i] >= 0) {
			read_all(stage->peers[i]);
			close(stage->peers[i]);
		}
	close(stage->far);
	nupa_keeper_close(stage->keeper);
	CHECK(access(stage->path.sun_path, F_OK) != 0);
	wired_path_remove(stage->path.sun_path);
	end_close(stage->end);
	nupa_fabric_put(stage->fabric);
}

/* A probe gets its answer, among whatever else comes. */
static void check_alive(struct stage *stage)
{
	struct nupa_cm_mad mad = { .attribute = NUPA_CM_DREQ,
				   .local_id = 0x12345600,
				   .remote_id = 0x100,
				   .data = "NUPA" };
	uint8_t packet[NUPA_WIRE_PACKET_MAX_BYTES + 64], answer[8192];
	const uint32_t bytes = make_mad(stage, packet, &mad);

	CHECK_EQ(
	    sendto(stage->far, packet, bytes, 0, (struct sockaddr *)&stage->to, sizeof(stage->to)),
	    bytes);
	for (;;) {
		struct nupa_roce_packet read;
		const uint8_t *payload;
		ssize_t n;

		serve(stage);
		n = recv(stage->far, answer, sizeof(answer), 0);
		CHECK(n > 0);
		CHECK(nupa_roce_read(answer, (uint32_t)n, &read, &payload));
		if (nupa_cm_mad_read(payload, read.payload_bytes, &mad) &&
		    mad.attribute == NUPA_CM_DREP && mad.remote_id == 0x12345600)
			return;
	}
}

TEST(a_keeper_outlives_anything_that_comes_and_answers_afterwards)
{
	const uint64_t until_ns = test_now_ns() + test_fuzz_ns(2);
	struct stage stage;

	open_stage(&stage);
	do {
		for (int i = 0; i < ROUNDS; i++) {
			act(&stage);
			if (below(&stage, 3) == 0)
				serve(&stage);
		}
		while (recv(stage.far, &(uint8_t){ 0 }, 1, MSG_DONTWAIT | MSG_TRUNC) > 0)
			;
	} while (test_now_ns() < until_ns);
	for (int i = 0; i < ROUNDS; i++)
		serve(&stage);
	while (recv(stage.far, &(uint8_t){ 0 }, 1, MSG_DONTWAIT | MSG_TRUNC) > 0)
		;
	check_alive(&stage);
	close_stage(&stage);
}
