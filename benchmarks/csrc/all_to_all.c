/* SPDX-License-Identifier: BSD-3-Clause
 * What a fabric takes of memory when 200 processes send to each other: once each has sent a message
 * that fits into a line to each, and once each has sent 4 KiB.  The engine's own verbs. */
#include "bench_fabric.h"

#include "segment/segment_internal.h"

#include <sys/stat.h>

#define PROCESSES 200u
#define LARGE_BYTES 4096u
#define RECEIVE_BYTES (LARGE_BYTES + 40u)
#define QKEY 0x11111111u

struct meeting {
	uint32_t qpn[PROCESSES];
	uint32_t come[4]; /* to each step */
	uint32_t step;    /* how far the parent lets them go */
};

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah[2]; /* by host */
	struct ibv_mr *mr;
	uint8_t *memory;
	uint32_t received, sent;
};

_Noreturn static void fail(const char *what)
{
	bench_fail("all_to_all", what);
}

static void make_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = 8,
			 .max_recv_wr = 2 * PROCESSES,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	end->qp = nupa_create_qp(end->pd, &init);
	if (!end->qp ||
	    nupa_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		fail("ibv_create_qp");
	attr.qp_state = IBV_QPS_RTR;
	if (nupa_modify_qp(end->qp, &attr, IBV_QP_STATE))
		fail("to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (nupa_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		fail("to RTS");
}

static void open_end(struct end *end, struct nupa_fabric *fabric, int host)
{
	struct ibv_context *context = bench_open_host("all_to_all", fabric, host);

	end->pd = nupa_alloc_pd(context);
	end->cq = nupa_create_cq(context, 4 * PROCESSES, NULL, NULL, 0);
	end->memory = bench_map(2 * RECEIVE_BYTES, false);
	end->mr = nupa_reg_mr(end->pd, end->memory, 2 * RECEIVE_BYTES, (uintptr_t)end->memory,
			      IBV_ACCESS_LOCAL_WRITE);
	if (!end->pd || !end->cq || !end->mr)
		fail("verbs objects");
	make_qp(end);
	for (uint8_t peer = 0; peer < 2; peer++) {
		struct ibv_ah_attr attr = { .is_global = 1,
					    .port_num = 1,
					    .grh = { .sgid_index = 1 } };
		uint8_t *raw = attr.grh.dgid.raw;

		raw[10] = raw[11] = 0xff; /* ::ffff:10.0.0.N */
		raw[12] = 10;
		raw[15] = (uint8_t)(1 + peer);
		end->ah[peer] = nupa_create_ah(end->pd, &attr);
		if (!end->ah[peer])
			fail("ibv_create_ah");
	}
}

/* All receives share a place: what comes is only counted. */
static void post_receives(const struct end *end, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, RECEIVE_BYTES, end->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	while (n--)
		if ((errno = nupa_post_recv(end->qp, &wr, &bad)) != 0)
			fail("ibv_post_recv");
}

static void poll(struct end *end)
{
	struct ibv_wc wc[16];
	const int n = nupa_poll_cq(end->cq, 16, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			fail("a completion with an error");
		*(wc[i].opcode & IBV_WC_RECV ? &end->received : &end->sent) += 1;
	}
	if (n <= 0)
		sched_yield();
}

static void send_to(struct end *end, const struct meeting *meeting, uint32_t peer, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + RECEIVE_BYTES, bytes, end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	const uint32_t sent = end->sent;

	wr.wr.ud.ah = end->ah[peer & 1];
	wr.wr.ud.remote_qpn = meeting->qpn[peer];
	wr.wr.ud.remote_qkey = QKEY;
	if ((errno = nupa_post_send(end->qp, &wr, &bad)) != 0)
		fail("ibv_post_send");
	while (end->sent == sent)
		poll(end);
}

static void arrive(struct meeting *meeting, uint32_t step)
{
	__atomic_fetch_add(&meeting->come[step], 1, __ATOMIC_ACQ_REL);
}

/* All have come, and the parent has looked. */
static void wait_for(struct end *end, const struct meeting *meeting, uint32_t step)
{
	while (__atomic_load_n(&meeting->step, __ATOMIC_ACQUIRE) < step)
		poll(end);
}

_Noreturn static void be(uint32_t me, struct nupa_fabric *fabric, struct meeting *meeting)
{
	static const uint32_t bytes[] = { 8, LARGE_BYTES };
	struct end end = { 0 };

	open_end(&end, fabric, (int)(me & 1));
	post_receives(&end, 2 * (PROCESSES - 1));
	meeting->qpn[me] = end.qp->qp_num;
	arrive(meeting, 0);
	wait_for(&end, meeting, 1);
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 1; i < PROCESSES; i++)
			send_to(&end, meeting, (me + i) % PROCESSES, bytes[round]);
		while (end.received < (round + 1) * (PROCESSES - 1))
			poll(&end);
		arrive(meeting, round + 1);
		wait_for(&end, meeting, round + 2);
	}
	_exit(0);
}

static double backed_bytes(const struct nupa_fabric *fabric)
{
	struct stat stat;

	if (fstat(fabric->fd, &stat))
		fail("fstat");
	return (double)stat.st_blocks * 512;
}

int main(int argc, char **argv)
{
	struct bench_options options = { .program = "all_to_all", .seconds = 30 };
	const struct nupa_config config = { .slots = PROCESSES + 1 };
	struct nupa_fabric *fabric = bench_fabric("all_to_all", &config);
	struct meeting *meeting = bench_map(sizeof(*meeting), true);
	const uint64_t until_ns = bench_now_ns() + 55000000000;
	double backed[3];

	bench_parse(&options, argc, argv);
	memset(meeting, 0, sizeof(*meeting));
	for (uint32_t i = 0; i < PROCESSES; i++)
		if (bench_fork() == 0)
			be(i, fabric, meeting);
	for (uint32_t step = 0; step < 3; step++) {
		while (__atomic_load_n(&meeting->come[step], __ATOMIC_ACQUIRE) < PROCESSES) {
			errno = ETIMEDOUT;
			if (bench_now_ns() > until_ns || waitpid(-1, NULL, WNOHANG) > 0)
				fail("processes that send to each other");
			usleep(1000);
		}
		backed[step] = backed_bytes(fabric);
		__atomic_store_n(&meeting->step, step + 1, __ATOMIC_RELEASE);
	}
	while (wait(NULL) > 0)
		;
	nupa_fabric_put(fabric);
	if (options.json)
		printf("{\"processes\": %u, \"idle_bytes\": %.0f, \"lines_bytes\": %.0f, "
		       "\"payloads_bytes\": %.0f}\n",
		       PROCESSES, backed[0], backed[1], backed[2]);
	else
		printf("%u processes: %.3f GB; each has sent 8 B to each: %.3f GB; and 4 KiB: "
		       "%.3f GB\n",
		       PROCESSES, backed[0] / 1e9, backed[1] / 1e9, backed[2] / 1e9);
	return 0;
}
