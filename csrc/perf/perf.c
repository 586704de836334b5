/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of `nupa perf`.  Latency is measured as perftest does: ping-pongs for WRITE (the pong
 * is seen in memory) and SEND, from post to completion for READ and ATOMIC.  Bandwidth is measured
 * with a queue of work requests that is kept full. */
#include "perf/perf.h"

#include <stdlib.h>
#include <time.h>

#define POLL_BATCH 16
/* The clock is read after so many bytes; an empty poll counts as some.  A reading takes far below
 * 1 % of the work since the last one, and a limit is missed by one round of posts. */
#define CHECK_BYTES (512u << 10)
#define POLL_BYTES 64u
/* Polls memory before the engine has its turn: by relay, this process's engine writes there. */
#define LOOKS_PER_POLL 16
/* Time is anchored to the clock over at least so long, for an error below 0.01 %. */
#define CALIBRATION_NS 2000000u
/* A receiver grants the sender its receive queue in so many parts, one by one. */
#define GRANTS 4u

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A clock that is cheaper than the others: reading it must not show in 0.2 us. */
static uint64_t ticks_now(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	return clock_ns();
#endif
}

static void begin(struct nupa_perf *perf)
{
	uint64_t now_ns = clock_ns();

	perf->status = IBV_WC_SUCCESS;
	perf->posted = perf->completed = perf->received = 0;
	perf->unchecked_bytes = perf->progress = 0;
	perf->elapsed_ns = 0;
	perf->progress_ns = now_ns;
	perf->end_ns = now_ns + perf->limit_ns;
}

static int check_time(struct nupa_perf *perf)
{
	uint64_t progress = perf->posted + perf->completed + perf->received;
	uint64_t now_ns = clock_ns();

	perf->unchecked_bytes = 0;
	if (now_ns > perf->end_ns)
		return -ETIME;
	if (progress != perf->progress) {
		perf->progress = progress;
		perf->progress_ns = now_ns;
	} else if (now_ns - perf->progress_ns > perf->stall_ns) {
		return -ETIMEDOUT;
	}
	return 0;
}

/* Counts the completions that are ready. */
static int take(struct nupa_perf *perf)
{
	uint64_t before = perf->completed + perf->received;
	struct ibv_wc wc[POLL_BATCH];
	int n = nupa_poll_cq(perf->cq, POLL_BATCH, wc);

	if (n < 0)
		return -EOVERFLOW;
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			perf->status = wc[i].status;
			return -EIO;
		}
		if (!(wc[i].opcode & IBV_WC_RECV)) {
			perf->completed += wc[i].wr_id; /* how many it stands for */
		} else {
			if (wc[i].byte_len != perf->receive_length)
				return -EBADMSG;
			perf->received++;
		}
	}
	perf->unchecked_bytes +=
	    POLL_BYTES + (perf->completed + perf->received - before) * perf->size_bytes;
	return perf->unchecked_bytes < CHECK_BYTES ? 0 : check_time(perf);
}

static int wait_completed(struct nupa_perf *perf, uint64_t count)
{
	while (perf->completed < count) {
		int rc = take(perf);

		if (rc)
			return rc;
	}
	return 0;
}

static int wait_received(struct nupa_perf *perf, uint64_t count)
{
	while (perf->received < count) {
		int rc = take(perf);

		if (rc)
			return rc;
	}
	return 0;
}

static int post_receives(struct nupa_perf *perf, uint64_t count)
{
	struct ibv_sge sge = { (uintptr_t)perf->inbox, perf->receive_bytes, perf->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	for (uint64_t i = 0; i < count; i++) {
		int rc = nupa_post_recv(perf->qp, &wr, &bad);

		if (rc)
			return -rc;
	}
	return 0;
}

/* A request and its SGE, made once and posted as often as wanted. */
struct request {
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

/* wr_id: how many requests its completion stands for. */
static void make_request(const struct nupa_perf *perf, struct request *request)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[NUPA_PERF_WRITE] = IBV_WR_RDMA_WRITE,
		[NUPA_PERF_READ] = IBV_WR_RDMA_READ,
		[NUPA_PERF_SEND] = IBV_WR_SEND,
		[NUPA_PERF_ATOMIC] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_send_wr *wr = &request->wr;
	const uint8_t *local = perf->operation == NUPA_PERF_READ ? perf->inbox : perf->outbox;

	memset(request, 0, sizeof(*request));
	request->sge = (struct ibv_sge){ (uintptr_t)local, perf->size_bytes, perf->lkey };
	wr->wr_id = 1;
	wr->sg_list = &request->sge;
	wr->num_sge = 1;
	wr->opcode = opcodes[perf->operation];
	wr->send_flags = IBV_SEND_SIGNALED;
	if (perf->operation == NUPA_PERF_ATOMIC) {
		wr->wr.atomic.remote_addr = perf->peer_addr;
		wr->wr.atomic.rkey = perf->peer_rkey;
		wr->wr.atomic.compare_add = 1;
	} else if (perf->operation != NUPA_PERF_SEND) {
		wr->wr.rdma.remote_addr = perf->peer_addr;
		wr->wr.rdma.rkey = perf->peer_rkey;
	} else if (perf->ah) {
		wr->wr.ud.ah = perf->ah;
		wr->wr.ud.remote_qpn = perf->peer_qpn;
		wr->wr.ud.remote_qkey = perf->peer_qkey;
	}
	if ((perf->operation == NUPA_PERF_WRITE || perf->operation == NUPA_PERF_SEND) &&
	    perf->size_bytes <= perf->inline_bytes)
		wr->send_flags |= IBV_SEND_INLINE;
}

/* An empty SEND, which confirms that something was received. */
static void make_word(const struct nupa_perf *perf, struct request *request)
{
	struct nupa_perf send = *perf;

	send.operation = NUPA_PERF_SEND;
	make_request(&send, request);
	request->wr.num_sge = 0;
	request->wr.send_flags = IBV_SEND_SIGNALED;
}

static int post(struct nupa_perf *perf, struct request *request)
{
	struct ibv_send_wr *bad;
	int rc = nupa_post_send(perf->qp, &request->wr, &bad);

	perf->posted++;
	return -rc;
}

static uint32_t grh_bytes(const struct nupa_perf *perf)
{
	return perf->ah ? NUPA_GRH_BYTES : 0;
}

static uint64_t read_word(const void *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

int nupa_perf_prepare(struct nupa_perf *perf)
{
	return post_receives(perf, perf->receives);
}

/* --- latency ------------------------------------------------------------------------- */

/* Until the last byte of the inbox is *value*. */
static int wait_byte(struct nupa_perf *perf, uint8_t value)
{
	const uint8_t *last = perf->inbox + perf->size_bytes - 1;

	for (;;) {
		for (int i = 0; i < LOOKS_PER_POLL; i++) {
			if (__atomic_load_n(last, __ATOMIC_ACQUIRE) == value)
				return 0;
		}
		int rc = take(perf);

		if (rc)
			return rc;
	}
}

/* Until message *i* of the peer is complete as far as its last byte, which counts, tells. */
static int wait_pong(struct nupa_perf *perf, uint64_t i)
{
	if (perf->operation == NUPA_PERF_WRITE)
		return wait_byte(perf, (uint8_t)i);

	int rc = wait_received(perf, i);

	if (!rc && perf->inbox[grh_bytes(perf) + perf->size_bytes - 1] != (uint8_t)i)
		rc = -EBADMSG;
	return rc;
}

static int ping(struct nupa_perf *perf, struct request *request, uint64_t i)
{
	perf->outbox[perf->size_bytes - 1] = (uint8_t)i;

	int rc = post(perf, request);

	/* While the message is in flight: the receive used last is posted again. */
	if (!rc && perf->operation == NUPA_PERF_SEND && i > 1)
		rc = post_receives(perf, 1);
	return rc;
}

static int ping_pong(struct nupa_perf *perf, int active, uint64_t *ticks)
{
	struct request request;
	int rc = 0;

	make_request(perf, &request);
	for (uint64_t i = 1; !rc && i <= perf->iterations; i++) {
		if (active) {
			ticks[i - 1] = ticks_now();
			rc = ping(perf, &request, i);
			if (!rc)
				rc = wait_pong(perf, i);
		} else {
			rc = wait_pong(perf, i);
			if (!rc)
				rc = ping(perf, &request, i);
		}
	}
	if (active)
		ticks[perf->iterations] = ticks_now();
	if (!rc && perf->operation == NUPA_PERF_SEND)
		rc = post_receives(perf, 1);
	return rc ? rc : wait_completed(perf, perf->posted);
}

/* READ, ATOMIC: there and back. */
static int one_by_one(struct nupa_perf *perf, uint64_t *ticks)
{
	struct request request;
	int rc = 0;

	make_request(perf, &request);
	for (uint64_t i = 0; !rc && i < perf->iterations; i++) {
		ticks[i] = ticks_now();
		rc = post(perf, &request);
		if (!rc)
			rc = wait_completed(perf, i + 1);
		/* The peer's word counts from 0: no operation is lost or done twice. */
		if (!rc && perf->operation == NUPA_PERF_ATOMIC && read_word(perf->outbox) != i)
			rc = -EBADMSG;
	}
	ticks[perf->iterations] = ticks_now();
	return rc;
}

int nupa_perf_latency(struct nupa_perf *perf, int active, uint64_t *ticks)
{
	uint64_t start_ns, end_ns, start_ticks, end_ticks;
	int rc;

	begin(perf);
	perf->receive_length = perf->size_bytes + grh_bytes(perf);
	start_ns = clock_ns();
	start_ticks = ticks_now();
	if (perf->operation == NUPA_PERF_READ || perf->operation == NUPA_PERF_ATOMIC)
		rc = one_by_one(perf, ticks);
	else
		rc = ping_pong(perf, active, ticks);
	if (rc)
		return rc;
	perf->elapsed_ns = clock_ns() - start_ns;
	do {
		end_ns = clock_ns();
		end_ticks = ticks_now();
	} while (active && end_ns - start_ns < CALIBRATION_NS);
	perf->tick_ns = (double)(end_ns - start_ns) / (double)(end_ticks - start_ticks);
	return 0;
}

static int compare_ticks(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest value that *permille* of them do not exceed (nearest rank). */
static uint64_t rank(const uint64_t *sorted, uint64_t n, uint64_t permille)
{
	return sorted[(n * permille + 999) / 1000 - 1];
}

int nupa_perf_summarise(uint64_t *ticks, uint64_t n, double tick_ns, uint32_t trips,
			struct nupa_perf_summary *summary)
{
	double unit_us = tick_ns / 1000.0 / trips;

	if (n == 0 || trips == 0)
		return -EINVAL;
	summary->mean_us = (double)(ticks[n] - ticks[0]) * unit_us / (double)n;
	for (uint64_t i = 0; i < n; i++)
		ticks[i] = ticks[i + 1] - ticks[i];
	qsort(ticks, n, sizeof(*ticks), compare_ticks);
	summary->min_us = (double)ticks[0] * unit_us;
	summary->typical_us = (double)rank(ticks, n, 500) * unit_us;
	summary->p99_us = (double)rank(ticks, n, 990) * unit_us;
	summary->p99_9_us = (double)rank(ticks, n, 999) * unit_us;
	summary->max_us = (double)ticks[n - 1] * unit_us;
	return 0;
}

/* --- bandwidth ----------------------------------------------------------------------- */

int nupa_perf_confirms(const struct nupa_perf *perf)
{
	return perf->operation == NUPA_PERF_SEND ||
	       (perf->operation == NUPA_PERF_WRITE && perf->qp->qp_type != IBV_QPT_RC);
}

/* Receives that one word of the sink grants again. */
static uint64_t grant(const struct nupa_perf *perf)
{
	return perf->receives / GRANTS;
}

/* How many requests may have been posted by now. */
static uint64_t allowed(const struct nupa_perf *perf, uint64_t words)
{
	uint64_t by_queue = perf->completed + perf->depth;
	uint64_t by_peer = perf->receives + words * grant(perf);

	return perf->operation == NUPA_PERF_SEND && by_peer < by_queue ? by_peer : by_queue;
}

/* Results of atomics have come in order: each is one more than the one before. */
static int check_atomics(const struct nupa_perf *perf, uint64_t from)
{
	for (uint64_t i = from; i < perf->completed; i++) {
		if (read_word(perf->outbox + i % perf->depth * sizeof(uint64_t)) != i)
			return -EBADMSG;
	}
	return 0;
}

/* Takes completions, and words of the sink, each of which needs a receive in turn. */
static int source_take(struct nupa_perf *perf)
{
	uint64_t completed = perf->completed, words = perf->received;
	int rc = take(perf);

	if (!rc && perf->operation == NUPA_PERF_ATOMIC)
		rc = check_atomics(perf, completed);
	if (!rc && perf->received != words)
		rc = post_receives(perf, perf->received - words);
	return rc;
}

static int post_due(struct nupa_perf *perf, struct request *request, uint64_t every)
{
	uint64_t until = allowed(perf, perf->received);
	int rc = 0;

	if (until > perf->iterations)
		until = perf->iterations;
	while (!rc && perf->posted < until) {
		uint64_t i = perf->posted;
		bool last = i + 1 == perf->iterations;

		request->wr.wr_id = last ? i % every + 1 : every;
		if (last || (i + 1) % every == 0)
			request->wr.send_flags |= IBV_SEND_SIGNALED;
		else
			request->wr.send_flags &= ~(unsigned int)IBV_SEND_SIGNALED;
		if (perf->operation == NUPA_PERF_ATOMIC)
			request->sge.addr =
			    (uintptr_t)perf->outbox + i % perf->depth * sizeof(uint64_t);
		rc = post(perf, request);
	}
	return rc;
}

/* After all requests: until the sink has confirmed them. */
static int confirm(struct nupa_perf *perf)
{
	uint64_t words = 1;
	int rc = 0;

	if (perf->operation == NUPA_PERF_SEND) {
		words += perf->iterations / grant(perf);
	} else {
		struct request request;

		make_word(perf, &request);
		rc = post(perf, &request);
	}
	while (!rc && (perf->received < words || perf->completed < perf->posted))
		rc = source_take(perf);
	return rc;
}

int nupa_perf_source(struct nupa_perf *perf)
{
	/* A completion for each would cost more than the request itself. */
	uint64_t every = perf->depth >= 4 ? perf->depth / 4 : 1;
	struct request request;
	uint64_t start_ns;
	int rc = 0;

	begin(perf);
	perf->receive_length = grh_bytes(perf);
	make_request(perf, &request);
	start_ns = clock_ns();
	while (!rc && perf->completed < perf->iterations) {
		rc = post_due(perf, &request, every);
		if (!rc)
			rc = source_take(perf);
	}
	if (!rc && nupa_perf_confirms(perf))
		rc = confirm(perf);
	perf->elapsed_ns = clock_ns() - start_ns;
	return rc;
}

int nupa_perf_sink(struct nupa_perf *perf)
{
	bool sends = perf->operation == NUPA_PERF_SEND;
	uint64_t expected = sends ? perf->iterations : 1;
	uint64_t words = 0;
	struct request word;
	int rc = 0;

	begin(perf);
	perf->receive_length = (sends ? perf->size_bytes : 0) + grh_bytes(perf);
	make_word(perf, &word);
	while (!rc && perf->received < expected) {
		uint64_t before = perf->received;

		rc = take(perf);
		if (!rc && perf->received != before)
			rc = post_receives(perf, perf->received - before);
		while (!rc && words < perf->received / grant(perf)) {
			words++;
			rc = post(perf, &word);
		}
	}
	if (!rc)
		rc = post(perf, &word);
	return rc ? rc : wait_completed(perf, perf->posted);
}
