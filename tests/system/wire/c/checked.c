/* SPDX-License-Identifier: BSD-3-Clause
 * RC operations whose every byte is checked: checked -d DEVICE -g GID_INDEX -m MTU -p PORT [HOST]
 *
 * The server waits at a TCP port.  The client sends the requests, of lengths on both sides of a
 * packet's, and tells the server of each by TCP: both check what they have then. */
#include <infiniband/verbs.h>

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LENGTH_MAX (1u << 20)
#define GUARD 64u /* bytes around the data, which no request may change */
#define AREA (GUARD + LENGTH_MAX + GUARD)
#define BYTES (2 * AREA) /* one to send from, one to receive in */
#define ATOMICS 40u
#define PSN 0xfffff0u /* it wraps soon */
#define IMM(seed) (0x01020304u * (seed))

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if (!(call)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, strerror(errno));    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FETCH_ADD, CMP_SWAP, KINDS };

static const enum ibv_wr_opcode OPCODES[KINDS] = {
	[SEND] = IBV_WR_SEND,
	[SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[WRITE] = IBV_WR_RDMA_WRITE,
	[WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[READ] = IBV_WR_RDMA_READ,
	[FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

struct step {
	uint32_t kind, length, seed;
};

struct address {
	union ibv_gid gid;
	uint64_t at;
	uint32_t qpn, rkey;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *memory;
	struct address peer;
	int gid_index, mtu, tcp;
};

static unsigned char *out(const struct end *end)
{
	return end->memory + GUARD;
}

static unsigned char *in(const struct end *end)
{
	return end->memory + AREA + GUARD;
}

static unsigned char byte_of(uint32_t seed, uint32_t i)
{
	return (unsigned char)((i + seed * 40503u) * 2654435761u >> 24);
}

static void fill(unsigned char *at, const struct step *step)
{
	for (uint32_t i = 0; i < step->length; i++)
		at[i] = byte_of(step->seed, i);
}

/* The data, and nothing around it. */
static void check(const struct end *end, const struct step *step)
{
	const unsigned char *at = in(end);

	for (uint32_t i = 0; i < step->length; i++)
		if (at[i] != byte_of(step->seed, i)) {
			fprintf(stderr, "kind %u, %u bytes: byte %u is wrong\n", step->kind,
				step->length, i);
			exit(1);
		}
	for (uint32_t i = 0; i < GUARD; i++)
		MUST(!at[-1 - (int)i] && !at[step->length + i]);
}

static void say(const struct end *end, const void *bytes, size_t n)
{
	MUST(send(end->tcp, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

static void hear(const struct end *end, void *bytes, size_t n)
{
	MUST(recv(end->tcp, bytes, n, MSG_WAITALL) == (ssize_t)n);
}

static struct ibv_wc completion(const struct end *end)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(end->cq, 1, &wc)))
		;
	MUST(n == 1);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static void open_device(struct end *end, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 8, 8, 2, 1, 0 },
	};

	MUST(list);
	for (int i = 0; list[i] && !end->context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			MUST(end->context = ibv_open_device(list[i]));
	MUST(end->context);
	ibv_free_device_list(list);
	MUST(end->pd = ibv_alloc_pd(end->context));
	MUST(end->memory = aligned_alloc(4096, BYTES));
	memset(end->memory, 0, BYTES);
	MUST(end->mr = ibv_reg_mr(end->pd, end->memory, BYTES,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	MUST(end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0));
	init.send_cq = init.recv_cq = end->cq;
	MUST(end->qp = ibv_create_qp(end->pd, &init));
}

static void connect_qp(struct end *end)
{
	struct address own = { .at = (uintptr_t)in(end),
			       .qpn = end->qp->qp_num,
			       .rkey = end->mr->rkey };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .rq_psn = PSN, .max_dest_rd_atomic = 4, .min_rnr_timer = 12
	};
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS,
				   .sq_psn = PSN,
				   .max_rd_atomic = 4,
				   .timeout = 17,
				   .retry_cnt = 7,
				   .rnr_retry = 7 };

	MUST(!ibv_query_gid(end->context, 1, end->gid_index, &own.gid));
	say(end, &own, sizeof(own));
	hear(end, &end->peer, sizeof(end->peer));
	for (rtr.path_mtu = IBV_MTU_256; 128 << rtr.path_mtu < end->mtu; rtr.path_mtu++)
		;
	rtr.dest_qp_num = end->peer.qpn;
	rtr.ah_attr = (struct ibv_ah_attr){
		.grh = { .dgid = end->peer.gid,
			 .sgid_index = (uint8_t)end->gid_index,
			 .hop_limit = 64 },
		.is_global = 1,
		.port_num = 1,
	};
	MUST(!ibv_modify_qp(end->qp, &init,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	MUST(!ibv_modify_qp(end->qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	MUST(!ibv_modify_qp(end->qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Two elements, whose border lies in no packet's; the reply of a READ or atomic comes to in(). */
static void post(struct end *end, const struct step *step, uint64_t compare_add, uint64_t swap)
{
	const bool reply = step->kind >= READ;
	const uint64_t from = (uintptr_t)(reply ? in(end) : out(end));
	const uint32_t split = step->kind >= FETCH_ADD ? step->length : step->length / 3;
	struct ibv_sge sge[2] = { { from, split, end->mr->lkey },
				  { from + split, step->length - split, end->mr->lkey } };
	struct ibv_send_wr *bad, wr = { .sg_list = split ? sge : sge + 1,
					.num_sge = split && split < step->length ? 2 : 1,
					.opcode = OPCODES[step->kind],
					.send_flags = IBV_SEND_SIGNALED,
					.imm_data = htobe32(IMM(step->seed)) };

	if (step->kind >= FETCH_ADD) {
		wr.wr.atomic.remote_addr = end->peer.at;
		wr.wr.atomic.rkey = end->peer.rkey;
		wr.wr.atomic.compare_add = compare_add;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr = end->peer.at;
		wr.wr.rdma.rkey = end->peer.rkey;
	}
	MUST(!ibv_post_send(end->qp, &wr, &bad));
	(void)completion(end);
}

/* The value that the server's memory has after so many atomics. */
static uint64_t value_after(uint32_t count)
{
	return count * 0x123456789abcdefull;
}

/* Every second one compares with a wrong value, and changes nothing. */
static void run_atomics(struct end *end, const struct step *step)
{
	uint64_t found;

	for (uint32_t i = 0; i < ATOMICS; i++) {
		const uint64_t now = value_after(i), next = value_after(i + 1);

		if (step->kind == FETCH_ADD) {
			post(end, step, next - now, 0);
		} else {
			post(end, step, ~now, 1);
			memcpy(&found, in(end), sizeof(found));
			MUST(found == now);
			post(end, step, now, next);
		}
		memcpy(&found, in(end), sizeof(found));
		MUST(found == now);
	}
}

static void request(struct end *end, const struct step *step)
{
	char word;

	memset(end->memory, 0, BYTES);
	say(end, step, sizeof(*step));
	hear(end, &word, 1);
	fill(out(end), step);
	if (step->kind >= FETCH_ADD)
		run_atomics(end, step);
	else
		post(end, step, 0, 0);
	if (step->kind == READ)
		check(end, step);
	say(end, "d", 1);
	hear(end, &word, 1);
}

static void run_client(struct end *end)
{
	static const uint32_t lengths[] = { 1,    3,    255,  256,    257,       1024,
					    1025, 4096, 4099, 100000, LENGTH_MAX };
	uint32_t seed = 0;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (uint32_t kind = SEND; kind <= READ; kind++)
			request(end, &(struct step){ kind, lengths[i], ++seed });
	for (uint32_t kind = FETCH_ADD; kind <= CMP_SWAP; kind++)
		request(end, &(struct step){ kind, sizeof(uint64_t), ++seed });
	shutdown(end->tcp, SHUT_WR);
	printf("%u steps, all bytes right\n", seed);
}

static void serve_step(struct end *end, const struct step *step)
{
	const bool receives = step->kind <= SEND_IMM || step->kind == WRITE_IMM;
	const bool immediate = step->kind == SEND_IMM || step->kind == WRITE_IMM;
	struct ibv_sge sge = { (uintptr_t)in(end), LENGTH_MAX, end->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	uint64_t value;
	char word;

	memset(end->memory, 0, BYTES);
	if (step->kind == READ)
		fill(in(end), step);
	if (receives)
		MUST(!ibv_post_recv(end->qp, &wr, &bad));
	say(end, "r", 1);
	hear(end, &word, 1);
	if (receives) {
		const struct ibv_wc wc = completion(end);

		MUST(wc.byte_len == step->length);
		MUST(!immediate || be32toh(wc.imm_data) == IMM(step->seed));
	}
	memcpy(&value, in(end), sizeof(value));
	if (step->kind < FETCH_ADD)
		check(end, step);
	else
		MUST(value == value_after(ATOMICS));
	say(end, "y", 1);
}

static void run_server(struct end *end)
{
	struct step step;
	uint32_t steps = 0;

	for (; recv(end->tcp, &step, sizeof(step), MSG_WAITALL) == sizeof(step); steps++) {
		MUST(step.kind < KINDS && step.length <= LENGTH_MAX);
		serve_step(end, &step);
	}
	printf("%u steps, all bytes right\n", steps);
}

static int meet(const char *host, const char *port)
{
	const struct addrinfo hints = { .ai_flags = AI_PASSIVE,
					.ai_family = AF_INET,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *at;
	int tcp, listener;

	MUST(!getaddrinfo(host, port, &hints, &at));
	tcp = listener = socket(at->ai_family, at->ai_socktype, 0);
	MUST(tcp >= 0);
	if (host) {
		MUST(!connect(tcp, at->ai_addr, at->ai_addrlen));
	} else {
		MUST(!bind(listener, at->ai_addr, at->ai_addrlen));
		MUST(!listen(listener, 1));
		MUST((tcp = accept(listener, NULL, NULL)) >= 0);
		close(listener);
	}
	freeaddrinfo(at);
	return tcp;
}

int main(int argc, char **argv)
{
	struct end end = { .mtu = 1024 };
	const char *device = "", *port = "";
	int option;

	while ((option = getopt(argc, argv, "d:g:m:p:")) > 0) {
		if (option == 'd')
			device = optarg;
		else if (option == 'g')
			end.gid_index = atoi(optarg);
		else if (option == 'm')
			end.mtu = atoi(optarg);
		else if (option == 'p')
			port = optarg;
		else
			return 2;
	}
	open_device(&end, device);
	end.tcp = meet(argv[optind], port);
	connect_qp(&end);
	if (argv[optind])
		run_client(&end);
	else
		run_server(&end);
	return 0;
}
