/* SPDX-License-Identifier: BSD-3-Clause
 * Two noisy tenants, each of several processes: together they keep the rates of their tenants, in
 * each tenth of a second.  A machine that is busy may delay a sender but adds no bytes. */
#include "segment/control/rate.h"
#include "tests/support/target.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TENANTS 2u
#define PROCESSES 2u /* of each tenant, with a target each */
#define RUN_NS (1000 * MS)
#define WINDOW_NS (100 * MS)
#define SAMPLES 60u

static const uint64_t rates[TENANTS] = { 100000000, 300000000 };
static const uint32_t lengths[] = { 65536, 200, 300000, 8 };

/* Writes in several lengths until it is told to end. */
static void flood(struct nupa_fabric *fabric, int host, const uint32_t *end)
{
	struct end_options options = end_defaults, theirs = end_defaults;
	struct target target = target_fork(fabric);
	uint32_t pending = 0;
	struct end *a;

	options.host = host;
	theirs.host = !host;
	target_open(&target, fabric, &theirs);
	a = end_open(fabric, &options);
	target_connect(&target, &a->self);
	end_connect(a, &target.address);
	for (uint32_t i = 0; !nupa_load_acquire(end) || pending; i++) {
		struct ibv_wc wc;

		if (pending < 8 && !nupa_load_acquire(end)) {
			end_start(a, i % 7 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, i, 0,
				  lengths[i % 4]);
			pending++;
		}
		while (nupa_poll_cq(a->send_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			pending--;
		}
	}
	target_close(&target);
	end_close(a);
}

struct sample {
	uint64_t before_ns, after_ns; /* it was taken in between */
	uint64_t bytes[TENANTS], idle_ns[TENANTS];
};

static struct sample take(struct nupa_fabric *fabric)
{
	struct sample sample = { .before_ns = test_now_ns() };
	struct nupa_rate_info info[TENANTS];

	CHECK_EQ(nupa_rate_list(fabric, info, TENANTS), TENANTS);
	for (uint32_t i = 0; i < TENANTS; i++) {
		sample.bytes[i] = info[i].bytes;
		sample.idle_ns[i] = info[i].idle_ns;
	}
	sample.after_ns = test_now_ns();
	return sample;
}

/* R2, for what each process has booked and not sent: a piece. */
static void no_more(const struct sample *from, const struct sample *to, uint32_t tenant)
{
	uint64_t bytes = to->bytes[tenant] - from->bytes[tenant];
	uint64_t piece = nupa_rate_piece_bytes(rates[tenant]) + NUPA_RATE_HEADER_BYTES;
	double ns =
	    (double)(to->after_ns - from->before_ns + NUPA_RATE_AHEAD_NS + NUPA_RATE_BURST_NS);

	if ((double)bytes <= (double)rates[tenant] * 1e-9 * ns + 2.0 * PROCESSES * (double)piece)
		return;
	fprintf(stderr, "tenant %u: %llu bytes in %.0f us\n", tenant + 1, (unsigned long long)bytes,
		ns * 1e-3);
	CHECK(false);
}

TEST(each_tenant_keeps_its_rate_in_each_tenth_of_a_second)
{
	const struct nupa_config config = { .slots = 32, .qp_entries = 64, .mr_entries = 64 };
	struct nupa_fabric *fabric = test_fabric_of(&config);
	const struct timespec pause = { .tv_nsec = RUN_NS / (SAMPLES - 1) };
	struct sample samples[SAMPLES], *last;
	uint32_t n = 0, *end = mmap(NULL, sizeof(*end), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[TENANTS * PROCESSES];
	uint64_t start_ns;
	char why[256] = "";

	CHECK(end != MAP_FAILED);
	for (uint32_t i = 0; i < TENANTS; i++) {
		nupa_store_relaxed(&fabric->controls[i].tenant, i + 1);
		CHECK_EQ(nupa_rate_set(fabric, NUPA_RATE_TENANT, i + 1, 0, 0, rates[i], why,
				       sizeof(why)),
			 0);
	}
	for (uint32_t i = 0; i < TENANTS * PROCESSES; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (!children[i]) {
			flood(fabric, (int)(i % TENANTS), end);
			_exit(0);
		}
	}
	do /* all have begun */
		samples[0] = take(fabric);
	while (samples[0].bytes[0] < rates[0] / 100 || samples[0].bytes[1] < rates[1] / 100);
	start_ns = samples[0].before_ns;
	for (n = 1; n < SAMPLES && samples[n - 1].after_ns < start_ns + RUN_NS; n++) {
		nanosleep(&pause, NULL);
		samples[n] = take(fabric);
	}
	nupa_store_release(end, 1);
	for (uint32_t i = 0; i < TENANTS * PROCESSES; i++)
		CHECK_CHILD(children[i]);
	last = &samples[n - 1];
	for (uint32_t tenant = 0; tenant < TENANTS; tenant++) {
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = i + 1; j < n; j++)
				if (samples[j].after_ns - samples[i].before_ns >= WINDOW_NS)
					no_more(&samples[i], &samples[j], tenant);
		/* R3: the rate, but for the time in which no process of it had a core. */
		CHECK((double)(last->bytes[tenant] - samples[0].bytes[tenant]) >=
		      0.95 * (double)rates[tenant] * 1e-9 *
			  ((double)(last->before_ns - samples[0].after_ns) -
			   (double)(last->idle_ns[tenant] - samples[0].idle_ns[tenant]) -
			   (double)(NUPA_RATE_AHEAD_NS + NUPA_RATE_BURST_NS)));
	}
	nupa_fabric_put(fabric);
}
