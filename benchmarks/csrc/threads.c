/* SPDX-License-Identifier: BSD-3-Clause
 * Two threads of one process, on the engine's own verbs, each with a QP and a CQ of its own.  They
 * WRITE 8 B to another process, which sleeps, and poll for each completion.  They have one context,
 * or one each.  Beside it, one thread alone. */
#include "bench_fabric.h"

#include <pthread.h>

#define THREADS 2u
#define ENDS (2u * THREADS) /* the first half in one context, the rest in one each */
#define BYTES 8u
#define STRIDE 4096u
#define DEPTH 16u
#define OPS_AT_ONCE 1024u

struct meeting {
	uint32_t ready[2];
	uint32_t qpn[2][ENDS];
	uint64_t addr;
	uint32_t rkey;
};

struct worker {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	const struct meeting *meeting;
	uint32_t index;
	int cpu;
	double seconds;
	pthread_barrier_t *begin;
	double per_s;
};

_Noreturn static void fail(const char *what)
{
	bench_fail("threads", what);
}

static struct ibv_pd *open_pd(struct nupa_fabric *fabric, int me)
{
	struct ibv_pd *pd = nupa_alloc_pd(bench_open_host("threads", fabric, me));

	if (!pd)
		fail("ibv_alloc_pd");
	return pd;
}

static struct ibv_mr *reg(struct ibv_pd *pd, uint8_t *memory)
{
	struct ibv_mr *mr = nupa_reg_mr(pd, memory, ENDS * STRIDE, (uintptr_t)memory,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		fail("ibv_reg_mr");
	return mr;
}

static void open_workers(struct worker workers[ENDS], struct nupa_fabric *fabric,
			 struct meeting *meeting, int me)
{
	struct ibv_pd *shared = open_pd(fabric, me);
	uint8_t *memory = bench_map(ENDS * STRIDE, false);
	struct ibv_mr *mr = reg(shared, memory);

	if (me) {
		meeting->addr = (uintptr_t)memory;
		meeting->rkey = mr->rkey;
	}
	for (uint32_t i = 0; i < ENDS; i++) {
		struct worker *worker = &workers[i];
		const bool alone = i >= THREADS && !me;

		worker->index = i;
		worker->meeting = meeting;
		worker->pd = alone ? open_pd(fabric, me) : shared;
		worker->mr = alone ? reg(worker->pd, memory) : mr;
		worker->cq = nupa_create_cq(worker->pd->context, DEPTH, NULL, NULL, 0);
		if (!worker->cq)
			fail("ibv_create_cq");
		worker->qp = bench_make_qp("threads", worker->pd, worker->cq, DEPTH);
		meeting->qpn[me][i] = worker->qp->qp_num;
	}
	bench_meet(meeting->ready, me);
	for (uint32_t i = 0; i < ENDS; i++)
		bench_connect_qp("threads", workers[i].qp, meeting->qpn[!me][i], !me);
	bench_meet(meeting->ready, me);
}

static void write_one(const struct worker *worker)
{
	const uint32_t at = worker->index * STRIDE;
	struct ibv_sge sge = { (uintptr_t)worker->mr->addr + at, BYTES, worker->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { worker->meeting->addr + at, worker->meeting->rkey },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int got;

	if ((errno = nupa_post_send(worker->qp, &wr, &bad)) != 0)
		fail("ibv_post_send");
	while ((got = nupa_poll_cq(worker->cq, 1, &wc)) <= 0)
		if (got < 0)
			fail("ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS)
		fail("a WRITE");
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	uint64_t start_ns, now_ns, end_ns, done = 0;

	bench_pin(worker->cpu);
	pthread_barrier_wait(worker->begin);
	start_ns = now_ns = bench_now_ns();
	end_ns = start_ns + (uint64_t)(worker->seconds * 1e9);
	for (; now_ns < end_ns; done += OPS_AT_ONCE) {
		for (uint32_t k = 0; k < OPS_AT_ONCE; k++)
			write_one(worker);
		now_ns = bench_now_ns();
	}
	worker->per_s = (double)done / ((double)(now_ns - start_ns) / 1e9);
	return NULL;
}

/* WRITEs a second of all n, each in a thread and on a CPU of its own. */
static double run(struct worker *workers, uint32_t n, const struct bench_options *options)
{
	pthread_t threads[THREADS];
	pthread_barrier_t begin;
	double sum = 0;

	pthread_barrier_init(&begin, NULL, n);
	for (uint32_t i = 0; i < n; i++) {
		workers[i].begin = &begin;
		workers[i].cpu = options->cpu[i];
		workers[i].seconds = options->seconds / 3;
		if ((errno = pthread_create(&threads[i], NULL, work, &workers[i])) != 0)
			fail("pthread_create");
	}
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		sum += workers[i].per_s;
	}
	pthread_barrier_destroy(&begin);
	return sum;
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0 };
	struct worker workers[ENDS] = { 0 };

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	struct meeting *meeting = bench_map(sizeof(*meeting), true);
	memset(meeting, 0, sizeof(*meeting));
	struct nupa_fabric *fabric = bench_fabric("threads", &(struct nupa_config){ .slots = 4 });
	pid_t child = bench_fork();
	open_workers(workers, fabric, meeting, child == 0);
	if (child == 0)
		for (;;)
			pause();
	double one = run(workers, 1, &options);
	double two = run(workers, THREADS, &options);
	double contexts = run(workers + THREADS, THREADS, &options);
	bench_end(child);
	if (options.json)
		printf("{\"one_per_s\": %.0f, \"two_per_s\": %.0f, \"contexts_per_s\": %.0f}\n",
		       one, two, contexts);
	else
		printf("%.1f M WRITEs/s by two threads, %.1f M/s with a context each, %.1f M/s by "
		       "one\n",
		       two / 1e6, contexts / 1e6, one / 1e6);
	return 0;
}
