/* SPDX-License-Identifier: BSD-3-Clause
 * What an empty ibv_poll_cq costs, on the engine's own verbs: with 2,000 QPs of which each waits
 * after an RNR NAK, and beside it with the same QPs idle. */
#include "bench_fabric.h"

#define QPS 2000u
#define POLLS_AT_ONCE 1000u

struct meeting {
	uint32_t ready[2];
	uint32_t qpn[2][QPS];
};

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[QPS];
	int me;
};

_Noreturn static void fail(const char *what)
{
	bench_fail("empty_poll", what);
}

static void open_end(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting)
{
	struct ibv_context *context = bench_open_host("empty_poll", fabric, end->me);

	end->pd = nupa_alloc_pd(context);
	end->cq = nupa_create_cq(context, (int)QPS, NULL, NULL, 0);
	if (!end->pd || !end->cq)
		fail("verbs objects");
	for (uint32_t i = 0; i < QPS; i++) {
		end->qp[i] = bench_make_qp("empty_poll", end->pd, end->cq, 4);
		meeting->qpn[end->me][i] = end->qp[i]->qp_num;
	}
	bench_meet(meeting->ready, end->me);
	for (uint32_t i = 0; i < QPS; i++)
		bench_connect_qp("empty_poll", end->qp[i], meeting->qpn[!end->me][i], !end->me);
	bench_meet(meeting->ready, end->me);
}

static void poll_in_vain(const struct end *end)
{
	struct ibv_wc wc;

	if (nupa_poll_cq(end->cq, 1, &wc) != 0)
		fail("a poll that should be empty");
}

static double ns_each(const struct end *end, double seconds)
{
	uint64_t start_ns = bench_now_ns(), now_ns = start_ns, done = 0;
	uint64_t end_ns = start_ns + (uint64_t)(seconds * 1e9);

	while (now_ns < end_ns) {
		for (uint32_t k = 0; k < POLLS_AT_ONCE; k++, done++)
			poll_in_vain(end);
		now_ns = bench_now_ns();
	}
	return (double)(now_ns - start_ns) / (double)done;
}

/* The receiver has posted no receive: it answers each, to come again in 655 ms. */
static void send_all(const struct end *end)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	uint64_t until_ns;

	for (uint32_t i = 0; i < QPS; i++) {
		struct ibv_send_wr *bad;

		if ((errno = nupa_post_send(end->qp[i], &wr, &bad)) != 0)
			fail("ibv_post_send");
		poll_in_vain(end);
	}
	until_ns = bench_now_ns() + 50000000;
	while (bench_now_ns() < until_ns)
		poll_in_vain(end);
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 0.6 };
	struct end end = { 0 };

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	struct meeting *meeting = bench_map(sizeof(*meeting), true);
	memset(meeting, 0, sizeof(*meeting));
	struct nupa_fabric *fabric =
	    bench_fabric("empty_poll", &(struct nupa_config){ .slots = 4 });
	pid_t child = bench_fork();
	end.me = child == 0;
	bench_pin(options.cpu[end.me]);
	open_end(&end, fabric, meeting);
	if (child == 0)
		for (;;)
			poll_in_vain(&end);
	double idle_ns = ns_each(&end, options.seconds / 2);
	send_all(&end);
	double waiting_ns = ns_each(&end, options.seconds / 2);
	bench_end(child);
	if (options.json)
		printf("{\"qps\": %u, \"idle_ns\": %.1f, \"waiting_ns\": %.1f}\n", QPS, idle_ns,
		       waiting_ns);
	else
		printf("%u QPs: %.1f ns an empty poll, %.1f while all wait for receives\n", QPS,
		       idle_ns, waiting_ns);
	return 0;
}
