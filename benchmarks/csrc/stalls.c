/* SPDX-License-Identifier: BSD-3-Clause
 * How long others' slow verbs hold a thread up, on the engine's own verbs.  One thread polls an
 * empty CQ and times each poll.  On the other CPU one thread registers 512 MiB, another one
 * registers and deregisters 64 KiB; then one thread calls ibv_rereg_mr of 512 MiB.  Beside them:
 * the same two threads copy memory of their own.
 *
 * Then the first WRITE of 8 B to a region of 256 MiB that the peer has never touched. */
#include "bench_fabric.h"

#include <pthread.h>

#define LARGE_BYTES (UINT64_C(512) << 20)
#define SMALL_BYTES (UINT64_C(64) << 10)
#define UNTOUCHED_BYTES (UINT64_C(256) << 20)
#define PAGE_BYTES UINT64_C(4096)
#define REACHED (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

#define PAUSE_NS 5000000

/* Durations by their first five binary digits. */
#define DIGITS 4u
#define BUCKETS (64u << DIGITS)

struct times {
	uint64_t count[BUCKETS], all, worst_ns;
};

struct meeting {
	uint32_t ready[2];
	uint32_t qpn[2], rkey;
	uint64_t address;
	uint64_t pages; /* of the peer's region that the WRITE made present */
};

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int me;
};

struct work {
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* NULL: none yet */
	uint8_t *memory, *copy;
	uint64_t bytes;
	void (*once)(struct work *);
	uint32_t again; /* so often, after a pause each */
	bool repeats;   /* until stop */
	const bool *stop;
	bool done;
	pthread_t thread;
	int cpu;
};

_Noreturn static void fail(const char *what)
{
	bench_fail("stalls", what);
}

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t top = 63u - (uint32_t)__builtin_clzll(ns | 1);

	if (top < DIGITS)
		return (uint32_t)ns;
	return ((top - DIGITS + 1) << DIGITS) +
	       (uint32_t)(ns >> (top - DIGITS) & ((1u << DIGITS) - 1));
}

/* The least duration of the next bucket. */
static uint64_t bucket_end(uint32_t bucket)
{
	uint32_t shift;

	if (++bucket < 2u << DIGITS)
		return bucket;
	shift = (bucket >> DIGITS) - 1;
	return ((UINT64_C(1) << DIGITS) + (bucket & ((1u << DIGITS) - 1))) << shift;
}

static double percentile_us(const struct times *times, double part)
{
	uint64_t before = 0;
	uint32_t bucket = 0;

	for (; bucket < BUCKETS - 1; bucket++) {
		before += times->count[bucket];
		if ((double)before >= part * (double)times->all)
			break;
	}
	return (double)bucket_end(bucket) / 1e3;
}

static void poll_once(const struct end *end, struct times *times)
{
	uint64_t start_ns = bench_now_ns(), ns;
	struct ibv_wc wc;

	if (nupa_poll_cq(end->cq, 1, &wc) != 0)
		fail("a poll that should be empty");
	ns = bench_now_ns() - start_ns;
	times->count[bucket_of(ns)]++;
	times->all++;
	if (ns > times->worst_ns)
		times->worst_ns = ns;
}

/* --- the others' work ---------------------------------------------------------------- */

static void *run(void *arg)
{
	struct work *work = arg;
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	bench_pin(work->cpu);
	work->once(work);
	for (uint32_t i = 0; i < work->again; i++) {
		nanosleep(&pause, NULL);
		work->once(work);
	}
	while (work->repeats && !__atomic_load_n(work->stop, __ATOMIC_ACQUIRE))
		work->once(work);
	__atomic_store_n(&work->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void register_it(struct work *work)
{
	work->mr =
	    nupa_reg_mr(work->pd, work->memory, work->bytes, (uintptr_t)work->memory, REACHED);
	if (!work->mr)
		fail("ibv_reg_mr");
}

static void deregister_it(struct work *work)
{
	if ((errno = nupa_dereg_mr(work->mr)) != 0)
		fail("ibv_dereg_mr");
	work->mr = NULL;
}

static void register_and_back(struct work *work)
{
	register_it(work);
	deregister_it(work);
}

static void change_access(struct work *work)
{
	if (nupa_rereg_mr(work->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ))
		fail("ibv_rereg_mr");
}

static void change_memory(struct work *work)
{
	if (nupa_rereg_mr(work->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, work->memory,
			  work->bytes / 2, 0))
		fail("ibv_rereg_mr");
}

static void copy_it(struct work *work)
{
	memcpy(work->copy, work->memory, work->bytes);
	__asm__ volatile("" : : "r"(work->copy) : "memory");
}

/* So that no poll is the first to write to a page of them: it would wait for the kernel. */
static void touch(struct times *times)
{
	for (uint32_t i = 0; i < BUCKETS; i++)
		__atomic_fetch_add(&times->count[i], 0, __ATOMIC_RELAXED);
}

/* Polls while *large* is worked on once, and *small* again and again; NULL: by nobody. */
static void time_polls(const struct end *end, struct work work[2], void (*large)(struct work *),
		       void (*small)(struct work *), struct times *times)
{
	struct work *slow = &work[0], *beside = &work[1];
	bool stop = false;

	touch(times);
	slow->once = large;
	beside->once = small;
	slow->repeats = false;
	slow->done = false;
	beside->repeats = true;
	beside->stop = &stop;
	if ((small && pthread_create(&beside->thread, NULL, run, beside)) ||
	    pthread_create(&slow->thread, NULL, run, slow))
		fail("pthread_create");
	while (!__atomic_load_n(&slow->done, __ATOMIC_ACQUIRE))
		poll_once(end, times);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(slow->thread, NULL);
	if (small)
		pthread_join(beside->thread, NULL);
}

/* --- the first WRITE ----------------------------------------------------------------- */

static void open_end(struct end *end, struct nupa_fabric *fabric, struct meeting *meeting)
{
	struct ibv_context *context = bench_open_host("stalls", fabric, end->me);

	end->pd = nupa_alloc_pd(context);
	end->cq = nupa_create_cq(context, 16, NULL, NULL, 0);
	if (!end->pd || !end->cq)
		fail("verbs objects");
	end->qp = bench_make_qp("stalls", end->pd, end->cq, 4);
	meeting->qpn[end->me] = end->qp->qp_num;
	bench_meet(meeting->ready, end->me);
	bench_connect_qp("stalls", end->qp, meeting->qpn[!end->me], !end->me);
}

static uint8_t *untouched(uint64_t bytes)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE))
		fail("mmap");
	return memory;
}

static uint64_t present_pages(uint8_t *memory, uint64_t bytes)
{
	static unsigned char present[UNTOUCHED_BYTES / PAGE_BYTES];
	uint64_t n = 0;

	if (mincore(memory, bytes, present))
		fail("mincore");
	for (uint64_t i = 0; i < bytes / PAGE_BYTES; i++)
		n += present[i] & 1;
	return n;
}

/* The other process: has the region, and counts its pages around the WRITE. */
_Noreturn static void be_target(struct end *end, struct meeting *meeting)
{
	uint8_t *memory = untouched(UNTOUCHED_BYTES);
	struct ibv_mr *mr =
	    nupa_reg_mr(end->pd, memory, UNTOUCHED_BYTES, (uintptr_t)memory, REACHED);

	if (!mr)
		fail("ibv_reg_mr");
	meeting->rkey = mr->rkey;
	meeting->address = (uintptr_t)memory;
	meeting->pages = present_pages(memory, UNTOUCHED_BYTES);
	bench_meet(meeting->ready, end->me);
	bench_meet(meeting->ready, end->me);
	meeting->pages = present_pages(memory, UNTOUCHED_BYTES) - meeting->pages;
	bench_meet(meeting->ready, end->me);
	for (;;)
		pause();
}

static double write_us(const struct end *end, const struct meeting *meeting)
{
	uint64_t word = 1, start_ns;
	struct ibv_sge sge = { (uintptr_t)&word, sizeof(word), 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
				  .sg_list = &sge,
				  .num_sge = 1 };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = meeting->address + UNTOUCHED_BYTES / 2;
	wr.wr.rdma.rkey = meeting->rkey;
	start_ns = bench_now_ns();
	if ((errno = nupa_post_send(end->qp, &wr, &bad)) != 0)
		fail("ibv_post_send");
	while ((n = nupa_poll_cq(end->cq, 1, &wc)) == 0)
		;
	if (n != 1 || wc.status != IBV_WC_SUCCESS)
		fail("the WRITE");
	return (double)(bench_now_ns() - start_ns) / 1e3;
}

/* The peer goes: what follows needs none. */
static void time_first_write(const struct end *end, struct meeting *meeting, pid_t peer,
			     double us[2])
{
	bench_meet(meeting->ready, end->me);
	us[0] = write_us(end, meeting);
	us[1] = write_us(end, meeting);
	bench_meet(meeting->ready, end->me);
	bench_meet(meeting->ready, end->me);
	bench_end(peer);
}

static struct work make_work(const struct end *end, uint64_t bytes, int cpu)
{
	return (struct work){ .pd = end->pd,
			      .memory = bench_map(bytes, false),
			      .copy = bench_map(bytes, false),
			      .bytes = bytes,
			      .cpu = cpu };
}

enum row { QUIET, REGISTERED, CHANGED, ROWS };

static void report(const struct times times[ROWS], const double write_us[2], uint64_t pages,
		   bool json)
{
	static const char *const keys[ROWS] = { "quiet", "reg", "rereg" };
	static const char *const names[ROWS] = { "copies", "registrations", "ibv_rereg_mr" };

	printf(json ? "{" : "polls, 99.99th percentile and worst, in us:\n");
	for (int row = 0; row < ROWS; row++) {
		double part = percentile_us(&times[row], 0.9999);
		double worst = (double)times[row].worst_ns / 1e3;

		if (json)
			printf("\"%s_p9999_us\": %.2f, \"%s_worst_us\": %.1f, ", keys[row], part,
			       keys[row], worst);
		else
			printf("  beside %-16s %8.2f %8.1f\n", names[row], part, worst);
	}
	printf(json ? "\"first_write_us\": %.2f, \"second_write_us\": %.2f, \"pages\": %" PRIu64
		      "}\n"
		    : "first WRITE to 256 MiB: %.2f us (second %.2f), %" PRIu64
		      " page(s) made present there\n",
	       write_us[0], write_us[1], pages);
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 20 };
	static struct times times[ROWS];
	struct end end = { 0 };
	double first_us[2];

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	struct meeting *meeting = bench_map(sizeof(*meeting), true);
	memset(meeting, 0, sizeof(*meeting));
	struct nupa_fabric *fabric = bench_fabric("stalls", &(struct nupa_config){ .slots = 4 });
	pid_t child = bench_fork();
	end.me = child == 0;
	bench_pin(options.cpu[end.me]);
	open_end(&end, fabric, meeting);
	if (child == 0)
		be_target(&end, meeting);
	time_first_write(&end, meeting, child, first_us);

	struct work work[2] = { make_work(&end, LARGE_BYTES, options.cpu[1]),
				make_work(&end, SMALL_BYTES, options.cpu[1]) };
	time_polls(&end, work, copy_it, copy_it, &times[QUIET]);
	time_polls(&end, work, register_it, register_and_back, &times[REGISTERED]);
	work[0].again = 50;
	time_polls(&end, work, change_access, NULL, &times[CHANGED]);
	time_polls(&end, work, change_memory, NULL, &times[CHANGED]);
	work[0].again = 0;
	time_polls(&end, work, deregister_it, register_and_back, &times[REGISTERED]);
	report(times, first_us, meeting->pages, options.json);
	return 0;
}
