/* SPDX-License-Identifier: BSD-3-Clause
 * Many RC QPs between two processes, on the engine's own verbs.  Measures how fast they are made
 * and connected, and the memory of each after use.  Then it measures the rate of 8 B WRITEs over
 * all of them by turns, beside the same over one. */
#include "bench_fabric.h"

#define QPS 1024u
#define DEPTH 16u
#define SIGNAL_EVERY 16u
#define BYTES 8u

struct meeting {
	uint32_t ready[2]; /* how far each end is */
	uint32_t qpn[2][QPS];
	uint64_t addr[2];
	uint32_t rkey[2];
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[QPS];
	uint8_t *memory;
	int me;
};

_Noreturn static void fail(const char *what)
{
	bench_fail("many_qps", what);
}

static void open_end(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	end->context = bench_open_host("many_qps", fabric, end->me);
	end->memory = bench_map(QPS * 64u, false);
	end->pd = nupa_alloc_pd(end->context);
	end->cq = nupa_create_cq(end->context, (int)(QPS * DEPTH), NULL, NULL, 0);
	end->mr = end->pd
		      ? nupa_reg_mr(end->pd, end->memory, QPS * 64u, (uintptr_t)end->memory, access)
		      : NULL;
	if (!end->cq || !end->mr)
		fail("verbs objects");
	meeting->addr[end->me] = (uintptr_t)end->memory;
	meeting->rkey[end->me] = end->mr->rkey;
}

static void make_qp(struct end *end, uint32_t i, struct meeting *meeting)
{
	end->qp[i] = bench_make_qp("many_qps", end->pd, end->cq, DEPTH);
	meeting->qpn[end->me][i] = end->qp[i]->qp_num;
}

static void connect_qp(struct end *end, uint32_t i, const struct meeting *meeting)
{
	bench_connect_qp("many_qps", end->qp[i], meeting->qpn[!end->me][i], !end->me);
}

/* 8 B WRITEs to the peer by turns over n QPs, for so long: a second. */
static double writes_per_s(struct end *end, const struct meeting *meeting, uint32_t n,
			   double seconds)
{
	uint64_t start_ns = bench_now_ns(), now_ns = start_ns, done = 0;
	uint64_t end_ns = start_ns + (uint64_t)(seconds * 1e9);

	while (now_ns < end_ns) {
		for (uint32_t k = 0; k < 4096; k++, done++) {
			uint32_t i = (uint32_t)(done % n);
			bool signal = done / n % SIGNAL_EVERY == SIGNAL_EVERY - 1;
			struct ibv_sge sge = { (uintptr_t)end->memory + i * 64u, BYTES,
					       end->mr->lkey };
			struct ibv_send_wr wr = {
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = signal ? IBV_SEND_SIGNALED : 0,
				.wr.rdma = { meeting->addr[!end->me] + i * 64u,
					     meeting->rkey[!end->me] },
			};
			struct ibv_send_wr *bad;
			struct ibv_wc wc;
			int got;

			if ((errno = nupa_post_send(end->qp[i], &wr, &bad)) != 0)
				fail("ibv_post_send");
			while (signal && (got = nupa_poll_cq(end->cq, 1, &wc)) <= 0)
				if (got < 0)
					fail("ibv_poll_cq");
			if (signal && wc.status != IBV_WC_SUCCESS)
				fail("a WRITE");
		}
		now_ns = bench_now_ns();
	}
	return (double)done / ((double)(now_ns - start_ns) / 1e9);
}

static double resident_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	unsigned long kib = 0;

	if (!status)
		fail("/proc/self/status");
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmRSS: %lu kB", &kib) == 1)
			break;
	fclose(status);
	return (double)kib;
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0 };
	struct end end = { 0 };

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	struct meeting *meeting = bench_map(sizeof(*meeting), true);
	memset(meeting, 0, sizeof(*meeting));
	struct nupa_fabric *fabric = bench_fabric("many_qps", &(struct nupa_config){ .slots = 4 });
	pid_t child = bench_fork();
	end.me = child == 0;
	bench_pin(options.cpu[end.me]);
	open_end(&end, fabric, meeting);
	make_qp(&end, 0, meeting);
	bench_meet(meeting->ready, end.me);
	connect_qp(&end, 0, meeting);
	bench_meet(meeting->ready, end.me);
	if (child)
		(void)writes_per_s(&end, meeting, 1, 0.01); /* all that the first one needs */
	double before_kib = resident_kib();
	uint64_t start_ns = bench_now_ns();
	for (uint32_t i = 1; i < QPS; i++)
		make_qp(&end, i, meeting);
	bench_meet(meeting->ready, end.me);
	for (uint32_t i = 1; i < QPS; i++)
		connect_qp(&end, i, meeting);
	bench_meet(meeting->ready, end.me);
	double connects_per_s = (QPS - 1) / ((double)(bench_now_ns() - start_ns) / 1e9);
	if (child == 0)
		for (;;)
			pause();
	double many = writes_per_s(&end, meeting, QPS, options.seconds / 2);
	double kib = (resident_kib() - before_kib) / (QPS - 1);
	double one = writes_per_s(&end, meeting, 1, options.seconds / 2);
	bench_end(child);
	if (options.json)
		printf("{\"qps\": %u, \"one_per_s\": %.0f, \"many_per_s\": %.0f, "
		       "\"kib_each\": %.2f, \"connects_per_s\": %.0f}\n",
		       QPS, one, many, kib, connects_per_s);
	else
		printf("%u QPs: %.1f M WRITEs/s by turns, %.1f M/s over one; %.1f KiB each; %.0f "
		       "made and connected a second\n",
		       QPS, many / 1e6, one / 1e6, kib, connects_per_s);
	return 0;
}
