/* SPDX-License-Identifier: BSD-3-Clause
 * What an empty ibv_poll_cq costs, on the engine's own verbs: with 2,000 QPs idle, with the same
 * QPs of which each waits after an RNR NAK, and with 64 more processes that are connected and send
 * nothing. */
#include "bench_fabric.h"

#define QPS 2000u
#define PEERS 64u
#define POLLS_AT_ONCE 1000u

struct meeting {
	uint32_t ready[2];
	uint32_t qpn[2][QPS];
	struct {
		uint32_t ready[2];
		uint32_t qpn[2];
	} peers[PEERS];
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

/* A further QP of this end, connected with that of this peer, or the other way. */
static void connect_peer(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting,
			 uint32_t i)
{
	uint32_t *ready = meeting->peers[i].ready, *qpn = meeting->peers[i].qpn;

	if (end->me) {
		struct ibv_context *context = bench_open_host("empty_poll", fabric, end->me);

		end->pd = nupa_alloc_pd(context);
		end->cq = nupa_create_cq(context, 4, NULL, NULL, 0);
		if (!end->pd || !end->cq)
			fail("verbs objects");
	}
	end->qp[0] = bench_make_qp("empty_poll", end->pd, end->cq, 4);
	qpn[end->me] = end->qp[0]->qp_num;
	bench_meet(ready, end->me);
	bench_connect_qp("empty_poll", end->qp[0], qpn[!end->me], !end->me);
	bench_meet(ready, end->me);
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

/* Another process: once it is told to, it connects, sends something, and sleeps. */
_Noreturn static void be_peer(struct nupa_fabric *fabric, struct meeting *meeting, uint32_t i,
			      int wake)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct end end = { .me = 1 };
	struct ibv_wc wc;
	char byte;

	if (read(wake, &byte, 1) != 1)
		fail("read");
	connect_peer(&end, fabric, meeting, i);
	if ((errno = nupa_post_send(end.qp[0], &wr, &bad)) != 0)
		fail("ibv_post_send");
	while (nupa_poll_cq(end.cq, 1, &wc) == 0)
		;
	bench_meet(meeting->peers[i].ready, end.me);
	for (;;)
		pause();
}

static void fork_peers(struct nupa_fabric *fabric, struct meeting *meeting, int wakes[PEERS])
{
	for (uint32_t i = 0; i < PEERS; i++) {
		int ends[2];

		if (pipe(ends))
			fail("pipe");
		if (bench_fork() == 0)
			be_peer(fabric, meeting, i, ends[0]);
		close(ends[0]);
		wakes[i] = ends[1];
	}
}

static void meet_peers(const struct end *end, struct nupa_fabric *fabric, struct meeting *meeting,
		       const int wakes[PEERS])
{
	for (uint32_t i = 0; i < PEERS; i++) {
		struct end own = *end;

		if (write(wakes[i], "", 1) != 1)
			fail("write");
		connect_peer(&own, fabric, meeting, i);
		bench_meet(meeting->peers[i].ready, own.me);
		poll_in_vain(end);
	}
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
	    bench_fabric("empty_poll", &(struct nupa_config){ .slots = PEERS + 4 });
	int wakes[PEERS];
	fork_peers(fabric, meeting, wakes);
	pid_t child = bench_fork();
	end.me = child == 0;
	bench_pin(options.cpu[end.me]);
	open_end(&end, fabric, meeting);
	if (child == 0)
		for (;;)
			poll_in_vain(&end);
	double idle_ns = ns_each(&end, options.seconds / 3);
	send_all(&end);
	double waiting_ns = ns_each(&end, options.seconds / 3);
	meet_peers(&end, fabric, meeting, wakes);
	double peers_ns = ns_each(&end, options.seconds / 3);
	bench_end(child);
	if (options.json)
		printf("{\"idle_ns\": %.1f, \"waiting_ns\": %.1f, \"peers_ns\": %.1f}\n", idle_ns,
		       waiting_ns, peers_ns);
	else
		printf("%.1f ns an empty poll, %.1f while %u QPs wait for receives, %.1f with %u "
		       "peers\n",
		       idle_ns, waiting_ns, QPS, peers_ns, PEERS);
	return 0;
}
