/* SPDX-License-Identifier: BSD-3-Clause
 * Many regions of one peer, on the engine's own verbs.  One process registers a buffer, and pieces
 * of it as regions of their own.  The other one WRITEs 8 B to each by turns, and waits for the
 * completion before the next.  Beside it, the same over few of them. */
#include "bench_fabric.h"

#define REGIONS 100000u
#define FEW 64u
#define REGION_BYTES 1024u
#define BYTES 8u
#define OPS_AT_ONCE 1000u

struct meeting {
	uint32_t ready[2];
	uint32_t qpn[2];
	uint64_t addr; /* of the first region */
	uint32_t rkey[REGIONS];
};

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int me;
};

_Noreturn static void fail(const char *what)
{
	bench_fail("many_regions", what);
}

static void open_end(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting)
{
	struct ibv_context *context = bench_open_host("many_regions", fabric, end->me);

	end->pd = nupa_alloc_pd(context);
	end->cq = nupa_create_cq(context, 16, NULL, NULL, 0);
	if (!end->pd || !end->cq)
		fail("verbs objects");
	end->qp = bench_make_qp("many_regions", end->pd, end->cq, 16);
	meeting->qpn[end->me] = end->qp->qp_num;
	bench_meet(meeting->ready, end->me);
	bench_connect_qp("many_regions", end->qp, meeting->qpn[!end->me], !end->me);
}

static struct ibv_mr *reg(const struct end *end, uint8_t *at, size_t bytes)
{
	struct ibv_mr *mr = nupa_reg_mr(end->pd, at, bytes, (uintptr_t)at,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		fail("ibv_reg_mr");
	return mr;
}

_Noreturn static void own(const struct end *end, struct meeting *meeting)
{
	uint8_t *all = bench_map((size_t)REGIONS * REGION_BYTES, false);

	reg(end, all, (size_t)REGIONS * REGION_BYTES);
	meeting->addr = (uintptr_t)all;
	for (uint32_t i = 0; i < REGIONS; i++)
		meeting->rkey[i] = reg(end, all + (size_t)i * REGION_BYTES, REGION_BYTES)->rkey;
	bench_meet(meeting->ready, end->me);
	for (;;)
		pause();
}

static void write_one(const struct end *end, const struct meeting *meeting, struct ibv_mr *mr,
		      uint32_t i)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, BYTES, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { meeting->addr + (uint64_t)i * REGION_BYTES, meeting->rkey[i] },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int got;

	if ((errno = nupa_post_send(end->qp, &wr, &bad)) != 0)
		fail("ibv_post_send");
	while ((got = nupa_poll_cq(end->cq, 1, &wc)) <= 0)
		if (got < 0)
			fail("ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS)
		fail("a WRITE");
}

/* A WRITE, over the first n of them by turns, when each was written to before. */
static double ns_each(const struct end *end, const struct meeting *meeting, struct ibv_mr *mr,
		      uint32_t n, double seconds)
{
	uint64_t start_ns, now_ns, end_ns, done = 0;
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++)
		write_one(end, meeting, mr, i);
	start_ns = now_ns = bench_now_ns();
	end_ns = start_ns + (uint64_t)(seconds * 1e9);
	while (now_ns < end_ns || done < n) {
		for (uint32_t k = 0; k < OPS_AT_ONCE; k++, done++) {
			write_one(end, meeting, mr, at);
			at = at + 1 < n ? at + 1 : 0;
		}
		now_ns = bench_now_ns();
	}
	return (double)(now_ns - start_ns) / (double)done;
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0 };
	struct end end = { 0 };

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	alarm(60); /* registrations take their time, too */
	struct meeting *meeting = bench_map(sizeof(*meeting), true);
	memset(meeting, 0, sizeof(*meeting));
	struct nupa_fabric *fabric =
	    bench_fabric("many_regions", &(struct nupa_config){ .slots = 4 });
	pid_t child = bench_fork();
	end.me = child == 0;
	bench_pin(options.cpu[end.me]);
	open_end(&end, fabric, meeting);
	if (child == 0)
		own(&end, meeting);
	bench_meet(meeting->ready, end.me);
	struct ibv_mr *mr = reg(&end, bench_map(4096, false), 4096);
	double few_ns = ns_each(&end, meeting, mr, FEW, options.seconds / 2);
	double many_ns = ns_each(&end, meeting, mr, REGIONS, options.seconds / 2);
	bench_end(child);
	if (options.json)
		printf("{\"regions\": %u, \"few_ns\": %.1f, \"many_ns\": %.1f}\n", REGIONS, few_ns,
		       many_ns);
	else
		printf("%u regions: %.1f ns a WRITE of 8 B, %.1f over %u of them\n", REGIONS,
		       many_ns, few_ns, FEW);
	return 0;
}
