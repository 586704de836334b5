/* SPDX-License-Identifier: BSD-3-Clause
 * UC connected by the RDMA CM: messages come back as they were sent, and a written buffer arrives.
 *
 *   uc_by_cm server ADDRESS PORT SEED
 *   uc_by_cm client ADDRESS PORT SEED
 */
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 16
#define MESSAGE_BYTES 8192u
#define WRITTEN_BYTES (256u << 10)
#define IMMEDIATE 0x75631234u

/* Where the server's buffer is: private data of its acceptance. */
struct place {
	uint64_t address;
	uint32_t rkey;
};

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *received, *sent, *written;
	uint8_t in[MESSAGES + 1][MESSAGE_BYTES], out[MESSAGE_BYTES], large[WRITTEN_BYTES];
};

static struct end end;

static void check(int failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "uc_by_cm: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void fill(uint8_t *to, uint32_t bytes, uint64_t seed)
{
	for (uint32_t i = 0; i < bytes; i++) {
		seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		to[i] = (uint8_t)(seed >> 56);
	}
}

/* Of message *number*: each has another length. */
static uint32_t bytes_of(uint32_t number)
{
	return MESSAGE_BYTES - 509 * number;
}

static void compare(const uint8_t *found, uint32_t bytes, uint64_t seed, const char *what)
{
	static uint8_t expected[WRITTEN_BYTES];

	fill(expected, bytes, seed);
	if (!memcmp(found, expected, bytes))
		return;
	fprintf(stderr, "uc_by_cm: %s differs\n", what);
	exit(1);
}

static struct rdma_cm_id *endpoint(const char *address, const char *port, bool listens)
{
	struct rdma_addrinfo hints = { .ai_flags = listens ? RAI_PASSIVE : 0,
				       .ai_qp_type = IBV_QPT_UC,
				       .ai_port_space = RDMA_PS_IB };
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = MESSAGES + 1,
						  .max_recv_wr = MESSAGES + 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .sq_sig_all = 1,
					 .qp_type = IBV_QPT_UC };
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	check(rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
	check(rdma_create_ep(&id, found, NULL, &attr), "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

/* Receives are there before the other end may send. */
static void prepare(struct rdma_cm_id *id)
{
	end.id = id;
	end.received = rdma_reg_msgs(id, end.in, sizeof(end.in));
	end.sent = rdma_reg_msgs(id, end.out, sizeof(end.out));
	end.written = rdma_reg_write(id, end.large, sizeof(end.large));
	check(!end.received || !end.sent || !end.written, "registration");
	for (uint32_t i = 0; i <= MESSAGES; i++)
		check(rdma_post_recv(id, NULL, end.in[i], MESSAGE_BYTES, end.received),
		      "rdma_post_recv");
}

static void await_sent(void)
{
	struct ibv_wc wc;

	check(rdma_get_send_comp(end.id, &wc) != 1, "rdma_get_send_comp");
	if (wc.status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "uc_by_cm: sending: %s\n", ibv_wc_status_str(wc.status));
	exit(1);
}

static void await_received(struct ibv_wc *wc)
{
	check(rdma_get_recv_comp(end.id, wc) != 1, "rdma_get_recv_comp");
	if (wc->status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "uc_by_cm: receiving: %s\n", ibv_wc_status_str(wc->status));
	exit(1);
}

static void send_message(uint32_t number, uint64_t seed)
{
	fill(end.out, bytes_of(number), seed + number);
	check(rdma_post_send(end.id, NULL, end.out, bytes_of(number), end.sent, 0),
	      "rdma_post_send");
	await_sent();
}

static void receive_message(uint32_t number, uint64_t seed)
{
	struct ibv_wc wc;

	await_received(&wc);
	if (wc.byte_len != bytes_of(number)) {
		fprintf(stderr, "uc_by_cm: message %u has %u bytes\n", number, wc.byte_len);
		exit(1);
	}
	compare(end.in[number], wc.byte_len, seed + number, "a message");
}

static void write_buffer(const struct place *to, uint64_t seed)
{
	struct ibv_sge sge = { (uintptr_t)end.large, WRITTEN_BYTES, end.written->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .imm_data = htobe32(IMMEDIATE),
				  .wr.rdma = { to->address, to->rkey } };
	struct ibv_send_wr *refused;

	fill(end.large, WRITTEN_BYTES, ~seed);
	check(ibv_post_send(end.id->qp, &wr, &refused), "ibv_post_send");
	await_sent();
}

static void serve(const char *address, const char *port, uint64_t seed)
{
	struct rdma_cm_id *listener = endpoint(address, port, true), *id;
	struct rdma_conn_param param = { 0 };
	struct place place;
	struct ibv_wc wc;

	check(rdma_listen(listener, 1), "rdma_listen");
	check(rdma_get_request(listener, &id), "rdma_get_request");
	prepare(id);
	place = (struct place){ (uintptr_t)end.large, end.written->rkey };
	param.private_data = &place;
	param.private_data_len = sizeof(place);
	check(rdma_accept(id, &param), "rdma_accept");
	for (uint32_t i = 0; i < MESSAGES; i++) {
		receive_message(i, seed);
		send_message(i, ~seed);
	}
	await_received(&wc);
	if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || be32toh(wc.imm_data) != IMMEDIATE) {
		fprintf(stderr, "uc_by_cm: not the immediate data of the WRITE\n");
		exit(1);
	}
	compare(end.large, WRITTEN_BYTES, ~seed, "what was written");
	printf("written %u bytes\n", WRITTEN_BYTES);
	check(rdma_disconnect(id), "rdma_disconnect");
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void ask(const char *address, const char *port, uint64_t seed)
{
	struct rdma_cm_id *id = endpoint(address, port, false);
	struct rdma_conn_param param = { 0 };
	struct place place;

	if (id->qp->qp_type != IBV_QPT_UC) {
		fprintf(stderr, "uc_by_cm: the queue pair is not of UC\n");
		exit(1);
	}
	prepare(id);
	check(rdma_connect(id, &param), "rdma_connect");
	if (!id->event || id->event->param.conn.private_data_len < sizeof(place)) {
		fprintf(stderr, "uc_by_cm: no private data\n");
		exit(1);
	}
	memcpy(&place, id->event->param.conn.private_data, sizeof(place));
	for (uint32_t i = 0; i < MESSAGES; i++) {
		send_message(i, seed);
		receive_message(i, ~seed);
	}
	write_buffer(&place, seed);
	printf("%d messages came back\n", MESSAGES);
	check(rdma_disconnect(id), "rdma_disconnect");
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: uc_by_cm server|client ADDRESS PORT SEED\n");
		return 2;
	}
	const uint64_t seed = strtoull(argv[4], NULL, 10);
	if (!strcmp(argv[1], "server"))
		serve(argv[2], argv[3], seed);
	else
		ask(argv[2], argv[3], seed);
	return 0;
}
