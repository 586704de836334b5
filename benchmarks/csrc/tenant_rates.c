/* SPDX-License-Identifier: BSD-3-Clause
 * Rates of partitions, between processes, on the engine's own verbs.
 *
 * Accuracy: two partitions with rates flood, each by two processes.  Their receivers count what
 * comes in each 100 ms, headers included.
 * Latency: two processes play ping-pong by SENDs of 8 B, by turns: alone; with a rate of another
 * partition in the table; beside a neighbour of that partition who floods, with the rate and
 * without. */
#include "bench_fabric.h"

#include "segment/control/pkey.h"
#include "segment/control/rate.h"

#define PARTITIONS 2u
#define FLOWS 2u /* of each partition */
#define DEPTH 16u
#define WINDOW_NS UINT64_C(100000000)
#define WINDOWS_MAX 700u
#define BYTES_MAX (1u << 20)
#define ROUND_TRIPS_MAX 4000000u
#define TURNS 6u

static const uint16_t pkeys[PARTITIONS] = { 0x8011, 0x8012 };
static const uint64_t rates[PARTITIONS] = { 100000000, 300000000 };

struct meeting {
	uint32_t ready[2];
	uint32_t qpn[2];
	uint64_t addr[2];
	uint32_t rkey[2];
	uint32_t run; /* the sender sends; 2: and ends */
	uint64_t start_ns;
	uint64_t window[WINDOWS_MAX]; /* bytes that came */
};

struct end {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory;
	uint32_t bytes;
	int me;
};

/* --- ends ---------------------------------------------------------------------------- */

static void open_end(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting,
		     uint16_t pkey_index)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 2 * DEPTH,
			 .max_recv_wr = 2 * DEPTH,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .pkey_index = pkey_index,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	char why[512] = "";
	struct ibv_pd *pd;

	end->context = nupa_open_host(fabric, end->me, NUPA_MOVER_NONE, why, sizeof(why));
	if (!end->context) {
		fprintf(stderr, "tenant_rates: %s\n", why);
		exit(1);
	}
	end->memory = bench_map(end->bytes, false);
	pd = nupa_alloc_pd(end->context);
	end->channel = nupa_create_comp_channel(end->context);
	end->cq = nupa_create_cq(end->context, 4 * DEPTH, NULL, end->channel, 0);
	end->mr =
	    pd ? nupa_reg_mr(pd, end->memory, end->bytes, (uintptr_t)end->memory, access) : NULL;
	if (!end->cq || !end->mr)
		bench_die("verbs objects");
	init.send_cq = init.recv_cq = end->cq;
	end->qp = nupa_create_qp(pd, &init);
	if (!end->qp ||
	    nupa_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		bench_die("ibv_create_qp");
	meeting->qpn[end->me] = end->qp->qp_num;
	meeting->addr[end->me] = (uintptr_t)end->memory;
	meeting->rkey[end->me] = end->mr->rkey;
}

static void connect_end(struct end *end, const struct meeting *meeting)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = meeting->qpn[!end->me],
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } },
	};
	uint8_t *raw = attr.ah_attr.grh.dgid.raw;

	raw[10] = raw[11] = 0xff; /* ::ffff:10.0.0.N */
	raw[12] = 10;
	raw[15] = (uint8_t)(1 + !end->me);
	if (nupa_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		bench_die("to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (nupa_modify_qp(end->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		bench_die("to RTS");
}

static void join(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting,
		 uint16_t pkey_index)
{
	open_end(end, fabric, meeting, pkey_index);
	bench_meet(meeting->ready, end->me);
	connect_end(end, meeting);
	bench_meet(meeting->ready, end->me);
}

static void post_recv(struct end *end)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, end->bytes, end->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if ((errno = nupa_post_recv(end->qp, &wr, &bad)) != 0)
		bench_die("ibv_post_recv");
}

static void post(struct end *end, enum ibv_wr_opcode opcode, uint32_t bytes,
		 const struct meeting *meeting)
{
	struct ibv_sge sge = { (uintptr_t)end->memory, bytes, end->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.wr.rdma = { meeting->addr[!end->me], meeting->rkey[!end->me] },
	};
	struct ibv_send_wr *bad;

	if ((errno = nupa_post_send(end->qp, &wr, &bad)) != 0)
		bench_die("ibv_post_send");
}

/* The next completions; asleep until there is one. */
static int await(struct end *end, struct ibv_wc *wc, int n)
{
	int got = nupa_poll_cq(end->cq, n, wc);

	while (got == 0) {
		struct ibv_cq *cq;
		void *context;

		if (nupa_req_notify_cq(end->cq, 0))
			bench_die("ibv_req_notify_cq");
		got = nupa_poll_cq(end->cq, n, wc);
		if (got)
			break;
		if (nupa_get_cq_event(end->channel, &cq, &context))
			bench_die("ibv_get_cq_event");
		nupa_ack_cq_events(cq, 1);
		got = nupa_poll_cq(end->cq, n, wc);
	}
	for (int i = 0; i < got; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			bench_die("a completion");
	return got < 0 ? 0 : got;
}

/* --- floods -------------------------------------------------------------------------- */

static void flood(struct end *end, enum ibv_wr_opcode opcode, struct meeting *meeting)
{
	uint32_t pending = 0;
	struct ibv_wc wc[DEPTH];

	for (uint32_t run; (run = __atomic_load_n(&meeting->run, __ATOMIC_ACQUIRE)) != 2;) {
		while (run == 1 && pending < DEPTH) {
			post(end, opcode, end->bytes, meeting);
			pending++;
		}
		if (pending)
			pending -= (uint32_t)await(end, wc, DEPTH);
		else
			usleep(1000);
	}
}

static void count(struct end *end, struct meeting *meeting)
{
	struct ibv_wc wc[DEPTH];

	for (;;) {
		int got = await(end, wc, DEPTH);
		uint64_t start_ns = __atomic_load_n(&meeting->start_ns, __ATOMIC_ACQUIRE);
		uint64_t window = start_ns ? (bench_now_ns() - start_ns) / WINDOW_NS : WINDOWS_MAX;

		for (int i = 0; i < got; i++)
			post_recv(end);
		if (window < WINDOWS_MAX)
			meeting->window[window] +=
			    (uint64_t)got * (end->bytes + NUPA_RATE_HEADER_BYTES);
	}
}

/* A sender and a receiver, each a process; they end with this one. */
static void start_flow(struct nupa_fabric *fabric, struct meeting *meeting, uint16_t pkey_index,
		       uint32_t bytes, enum ibv_wr_opcode opcode)
{
	for (int me = 0; me < 2; me++) {
		struct end end = { .me = me, .bytes = bytes };

		if (bench_fork())
			continue;
		alarm(0);
		if (me) {
			open_end(&end, fabric, meeting, pkey_index);
			for (uint32_t i = 0; i < 2 * DEPTH; i++)
				post_recv(&end);
			bench_meet(meeting->ready, me);
			connect_end(&end, meeting);
			bench_meet(meeting->ready, me);
		} else {
			join(&end, fabric, meeting, pkey_index);
		}
		if (me && opcode == IBV_WR_SEND)
			count(&end, meeting);
		if (!me)
			flood(&end, opcode, meeting);
		for (;;)
			pause();
	}
	while (__atomic_load_n(&meeting->ready[0], __ATOMIC_ACQUIRE) < 2 ||
	       __atomic_load_n(&meeting->ready[1], __ATOMIC_ACQUIRE) < 2)
		usleep(1000);
}

static void set_rate(struct nupa_fabric *fabric, uint32_t partition, uint64_t bytes_per_s)
{
	char why[256] = "";

	if (!nupa_rate_set(fabric, NUPA_RATE_PARTITION, 0, 0, pkeys[partition], bytes_per_s, why,
			   sizeof(why)))
		return;
	fprintf(stderr, "tenant_rates: %s\n", why);
	exit(1);
}

/* --- accuracy ------------------------------------------------------------------------ */

struct accuracy {
	double mean, worst; /* per cent beside the rate */
};

static struct accuracy judge(struct meeting (*flows)[FLOWS], uint32_t partition, uint32_t n)
{
	struct accuracy accuracy = { 0 };
	double sum = 0;

	for (uint32_t window = 1; window < n - 1; window++) {
		double wanted = (double)rates[partition] * (double)WINDOW_NS * 1e-9, bytes = 0;
		double off;

		for (uint32_t flow = 0; flow < FLOWS; flow++)
			bytes += (double)flows[partition][flow].window[window];
		off = 100 * (bytes / wanted - 1);
		sum += off;
		if ((off < 0 ? -off : off) >
		    (accuracy.worst < 0 ? -accuracy.worst : accuracy.worst))
			accuracy.worst = off;
	}
	accuracy.mean = sum / (n - 2);
	return accuracy;
}

static void measure_accuracy(struct nupa_fabric *fabric, uint32_t bytes, double seconds,
			     struct accuracy *result)
{
	struct meeting(*flows)[FLOWS] = bench_map(PARTITIONS * sizeof(*flows), true);
	uint32_t n = (uint32_t)(seconds * 1e9 / (double)WINDOW_NS);
	uint64_t start_ns;

	n = n < 4 ? 4 : n > WINDOWS_MAX ? WINDOWS_MAX : n;
	memset(flows, 0, PARTITIONS * sizeof(*flows));
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		set_rate(fabric, p, rates[p]);
		for (uint32_t flow = 0; flow < FLOWS; flow++)
			start_flow(fabric, &flows[p][flow], (uint16_t)(p + 1), bytes, IBV_WR_SEND);
	}
	start_ns = bench_now_ns();
	for (uint32_t i = 0; i < PARTITIONS * FLOWS; i++) {
		__atomic_store_n(&(&flows[0][0])[i].start_ns, start_ns, __ATOMIC_RELEASE);
		__atomic_store_n(&(&flows[0][0])[i].run, 1, __ATOMIC_RELEASE);
	}
	while (bench_now_ns() < start_ns + n * WINDOW_NS)
		usleep(1000);
	for (uint32_t i = 0; i < PARTITIONS * FLOWS; i++)
		__atomic_store_n(&(&flows[0][0])[i].run, 2, __ATOMIC_RELEASE);
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		result[p] = judge(flows, p, n);
		set_rate(fabric, p, 0);
	}
}

/* --- latency ------------------------------------------------------------------------- */

static void wait_polling(struct end *end)
{
	struct ibv_wc wc;
	bool received = false, sent = false;

	while (!received || !sent) {
		if (nupa_poll_cq(end->cq, 1, &wc) <= 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			bench_die("ping-pong");
		received |= wc.opcode == IBV_WC_RECV;
		sent |= wc.opcode == IBV_WC_SEND;
	}
}

static void answer(struct end *end, const struct meeting *meeting)
{
	for (;;) {
		struct ibv_wc wc;

		if (nupa_poll_cq(end->cq, 1, &wc) <= 0 || wc.opcode != IBV_WC_RECV)
			continue;
		post_recv(end);
		post(end, IBV_WR_SEND, 8, meeting);
	}
}

struct times {
	uint32_t n;
	uint32_t best_ns; /* the least median of a turn */
	uint32_t ns[ROUND_TRIPS_MAX];
};

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void play(struct end *end, const struct meeting *meeting, double seconds,
		 struct times *times)
{
	uint64_t begin_ns = bench_now_ns(), now_ns = begin_ns;
	uint32_t first = times->n, *turn = &times->ns[first], median_ns;

	while (now_ns < begin_ns + (uint64_t)(seconds * 1e9) && times->n < ROUND_TRIPS_MAX) {
		uint64_t before_ns = now_ns;

		post_recv(end);
		post(end, IBV_WR_SEND, 8, meeting);
		wait_polling(end);
		now_ns = bench_now_ns();
		times->ns[times->n++] = (uint32_t)(now_ns - before_ns);
	}
	if (times->n == first)
		return;
	qsort(turn, times->n - first, sizeof(*turn), compare);
	median_ns = turn[(times->n - first) / 2];
	if (!times->best_ns || median_ns < times->best_ns)
		times->best_ns = median_ns;
}

/* Half a round trip, in ns. */
static double one_way(struct times *times, double part)
{
	qsort(times->ns, times->n, sizeof(times->ns[0]), compare);
	return times->n ? times->ns[(uint32_t)(part * (times->n - 1))] / 2.0 : 0;
}

enum beside { ALONE, TABLE, RATED, UNRATED, BESIDES };

static void measure_latency(struct nupa_fabric *fabric, const struct bench_options *options,
			    double seconds, struct times *times)
{
	struct meeting *game = bench_map(sizeof(*game), true);
	struct meeting *neighbour = bench_map(sizeof(*neighbour), true);
	struct end end = { .bytes = 4096 };
	pid_t child;

	memset(game, 0, sizeof(*game));
	memset(neighbour, 0, sizeof(*neighbour));
	start_flow(fabric, neighbour, 2, 65536, IBV_WR_RDMA_WRITE);
	child = bench_fork();
	end.me = child == 0;
	bench_pin(options->cpu[end.me]);
	join(&end, fabric, game, 0);
	if (!child) {
		for (uint32_t i = 0; i < DEPTH; i++)
			post_recv(&end);
		bench_meet(game->ready, end.me);
		answer(&end, game);
	}
	bench_meet(game->ready, end.me);
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		for (uint32_t beside = 0; beside < BESIDES; beside++) {
			set_rate(fabric, 1, beside == RATED || beside == TABLE ? rates[1] : 0);
			__atomic_store_n(&neighbour->run, beside >= RATED, __ATOMIC_RELEASE);
			usleep(20000); /* what was posted before is done */
			play(&end, game, seconds / (TURNS * (double)BESIDES), &times[beside]);
		}
	}
	__atomic_store_n(&neighbour->run, 2, __ATOMIC_RELEASE);
	bench_end(child);
}

static void report(const struct bench_options *options, const struct accuracy *accuracy,
		   struct times *times)
{
	double p50[BESIDES], p99[BESIDES];

	for (uint32_t i = 0; i < BESIDES; i++) {
		p50[i] = times[i].best_ns / 2.0;
		p99[i] = one_way(&times[i], 0.99);
	}
	if (options->json)
		printf("{\"mean_percent\": [%.2f, %.2f], \"worst_percent\": [%.2f, %.2f], "
		       "\"p50_ns\": [%.1f, %.1f, %.1f, %.1f], \"p99_ns\": [%.1f, %.1f, %.1f, "
		       "%.1f]}\n",
		       accuracy[0].mean, accuracy[1].mean, accuracy[0].worst, accuracy[1].worst,
		       p50[0], p50[1], p50[2], p50[3], p99[0], p99[1], p99[2], p99[3]);
	else
		printf("100 and 300 MB/s: off by %.2f and %.2f %% on average, %.2f and %.2f %% in "
		       "the worst 100 ms\n"
		       "ping-pong alone, with a rate elsewhere, beside a flood with it and "
		       "without: p50 %.1f, %.1f, %.1f, %.1f ns; p99 %.1f, %.1f, %.1f, %.1f ns\n",
		       accuracy[0].mean, accuracy[1].mean, accuracy[0].worst, accuracy[1].worst,
		       p50[0], p50[1], p50[2], p50[3], p99[0], p99[1], p99[2], p99[3]);
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 4.0, .size_bytes = { 16384 }, .n_sizes = 1 };
	struct accuracy accuracy[PARTITIONS];
	struct times *times;
	cpu_set_t all;
	char why[256];

	if (sched_getaffinity(0, sizeof(all), &all))
		bench_die("sched_getaffinity");
	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	if (options.size_bytes[0] > BYTES_MAX) {
		fprintf(stderr, "--sizes: at most %u\n", BYTES_MAX);
		return 2;
	}
	/* Floods run where they find room; only the ping-pong is pinned. */
	CPU_ZERO(&all);
	CPU_SET((size_t)options.cpu[0], &all);
	CPU_SET((size_t)options.cpu[1], &all);
	if (sched_setaffinity(0, sizeof(all), &all))
		bench_die("sched_setaffinity");
	struct nupa_fabric *fabric =
	    bench_fabric("tenant_rates", &(struct nupa_config){ .slots = 32 });
	for (uint32_t host = 0; host < 2; host++)
		if (nupa_pkey_table_set(fabric, host, 1, pkeys, PARTITIONS, why, sizeof(why)))
			bench_die(why);
	times = bench_map(BESIDES * sizeof(*times), false);
	for (uint32_t i = 0; i < BESIDES; i++)
		times[i].n = times[i].best_ns = 0;
	measure_accuracy(fabric, (uint32_t)options.size_bytes[0], options.seconds / 2, accuracy);
	measure_latency(fabric, &options, options.seconds / 2, times);
	report(&options, accuracy, times);
	return 0;
}
