/* SPDX-License-Identifier: BSD-3-Clause
 * Loads, stores and memcpy through a window on a region of the pool, and in ordinary memory of the
 * same kind: shared, of 4 KiB pages, touched.  Without that the reference would have huge pages
 * where the system gives them to anonymous memory and not to files, and fewer TLB misses with them.
 * Both sides take turns, a sample each. */
#include "bench.h"

#include "region.h"
#include "view.h"

#define SAMPLE_NS 200000u
#define LINE_BYTES 64u

/* One link a line: a ring through all of them, each load needs the one before. */
struct line {
	uint64_t next; /* index */
	uint64_t value[7];
};
_Static_assert(sizeof(struct line) == LINE_BYTES, "a line");

struct side {
	struct line *lines;
	struct bench_samples samples;
};

typedef void work(struct line *lines, uint64_t n_lines, uint64_t steps);

static volatile uint64_t sink;

static void load(struct line *lines, uint64_t n_lines, uint64_t steps)
{
	uint64_t at = 0;

	(void)n_lines;
	for (uint64_t i = 0; i < steps; i++)
		at = lines[at].next;
	sink = at;
}

/* In an order that no prefetcher knows, as far apart as loads. */
static void store(struct line *lines, uint64_t n_lines, uint64_t steps)
{
	for (uint64_t i = 0, at = 0; i < steps; i++) {
		lines[at].value[i % 7] = i;
		at = (at * 5 + 1) & (n_lines - 1); /* a full period: Hull and Dobell */
	}
	__asm__ volatile("" ::: "memory");
}

/* A step is a line that is copied, from one half to the other. */
static void copy(struct line *lines, uint64_t n_lines, uint64_t steps)
{
	const uint64_t half = n_lines / 2;

	for (uint64_t done = 0; done < steps; done += half) {
		memcpy(&lines[half].value, &lines[0].value, half * LINE_BYTES - LINE_BYTES);
		__asm__ volatile("" ::: "memory");
	}
}

static void shuffle(struct line *lines, uint64_t n_lines)
{
	uint64_t random = 88172645463325252u;

	for (uint64_t i = 0; i < n_lines; i++)
		lines[i].next = i;
	/* Sattolo: one cycle. */
	for (uint64_t i = n_lines - 1; i > 0; i--) {
		uint64_t other, was = lines[i].next;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		other = random % i;
		lines[i].next = lines[other].next;
		lines[other].next = was;
	}
}

static double sample_ns(work *run, struct line *lines, uint64_t n_lines, uint64_t steps)
{
	uint64_t start_ns = bench_now_ns();

	run(lines, n_lines, steps);
	return (double)(bench_now_ns() - start_ns) / (double)steps;
}

static void measure(work *run, struct side side[2], uint64_t n_lines, double seconds)
{
	uint64_t end_ns, steps = n_lines;

	for (int i = 0; i < 2; i++) {
		side[i].samples.count = 0;
		sample_ns(run, side[i].lines, n_lines, steps);
	}
	while (sample_ns(run, side[0].lines, n_lines, steps) * (double)steps < SAMPLE_NS)
		steps *= 2;
	end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9);
	for (uint32_t round = 0; round < 3 || bench_now_ns() < end_ns; round++)
		for (uint32_t i = 0; i < 2; i++) {
			struct side *now = &side[(round + i) % 2];

			bench_add(&now->samples, sample_ns(run, now->lines, n_lines, steps));
		}
}

#define LINK .width_lanes = 4, .speed_mtps = 32000, .state = NUPA_PORT_ACTIVE

static struct nupa_fabric *make_fabric(uint64_t bytes)
{
	const struct nupa_config config = { .pool_bytes = 2 * bytes, .extent_bytes = 65536 };
	const struct nupa_host hosts[] = {
		{ .name = "host0",
		  .port = 0,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000001 },
		{ .name = "host1",
		  .port = 1,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000002 },
	};
	const struct nupa_port ports[] = {
		{ .name = "host0/1", .peer = 1, .node = 0, .number = 1, LINK },
		{ .name = "host1/1", .peer = 0, .node = 1, .number = 1, LINK },
	};
	const struct nupa_route routes[] = {
		{ 0 }, { .hops = 2, .port = { 0, 1 } }, { .hops = 2, .port = { 1, 0 } }, { 0 }
	};
	struct nupa_fabric *fabric;
	char why[256];

	if (nupa_fabric_create(NULL, "bench", &config, hosts, 2, ports, 2, routes, &fabric, why,
			       sizeof(why))) {
		fprintf(stderr, "no fabric: %s\n", why);
		exit(1);
	}
	return fabric;
}

static struct nupa_view *make_window(struct nupa_fabric *fabric, uint64_t bytes)
{
	const struct nupa_region_info wish = { .bytes = bytes, .pid = (uint32_t)getpid() };
	struct nupa_region_info region;
	struct nupa_view *view;
	char why[256];

	if (nupa_region_alloc(fabric, 0, &wish, &region)) {
		fprintf(stderr, "no region of %" PRIu64 " bytes\n", bytes);
		exit(1);
	}
	if (nupa_view_of_region(fabric, region.id, 0, &view, why, sizeof(why))) {
		fprintf(stderr, "no window: %s\n", why);
		exit(1);
	}
	return view;
}

/* The same advice for both, so that neither has huge pages. */
static struct line *ready(void *memory, uint64_t bytes)
{
	madvise(memory, bytes, MADV_NOHUGEPAGE); /* EINVAL: a kernel without them */
	shuffle(memory, bytes / LINE_BYTES);
	return memory;
}

static void report(const struct bench_options *options, const char *what, uint64_t bytes,
		   struct side side[2], bool first)
{
	const double window = bench_median(&side[0].samples);
	const double ordinary = bench_median(&side[1].samples);

	if (options->json)
		printf("%s{\"what\": \"%s\", \"bytes\": %" PRIu64
		       ", \"window_ns\": %.3f, \"ordinary_ns\": %.3f}",
		       first ? "" : ", ", what, bytes, window, ordinary);
	else
		printf("%-6s %9" PRIu64 " B: %.3f ns in a window, %.3f ns in ordinary memory: "
		       "%.3f x\n",
		       what, bytes, window, ordinary, window / ordinary);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		work *run;
	} works[] = { { "load", load }, { "store", store }, { "memcpy", copy } };
	struct bench_options options = { .seconds = 3.0,
					 .n_sizes = 2,
					 .size_bytes = { 16384, UINT64_C(64) << 20 } };
	static struct side side[2];

	bench_parse(&options, argc, argv);
	bench_pin(options.cpu[0]);
	if (options.json)
		printf("{\"results\": [");
	for (uint32_t i = 0; i < options.n_sizes; i++) {
		const uint64_t bytes = options.size_bytes[i];
		struct nupa_fabric *fabric;
		struct nupa_view *view;

		if (bytes < 4096 || bytes & (bytes - 1)) {
			fprintf(stderr, "--sizes: powers of two, 4096 and more\n");
			return 2;
		}
		fabric = make_fabric(bytes < 65536 ? 65536 : bytes);
		view = make_window(fabric, bytes);
		side[0].lines = ready(nupa_view_at(view), bytes);
		side[1].lines = ready(bench_map(bytes, true), bytes);
		for (uint32_t w = 0; w < 3; w++) {
			measure(works[w].run, side, bytes / LINE_BYTES,
				options.seconds / (3 * options.n_sizes));
			report(&options, works[w].name, bytes, side, i == 0 && w == 0);
		}
		munmap(side[1].lines, bytes);
		nupa_view_free(view);
		nupa_fabric_put(fabric);
	}
	if (options.json)
		printf("]}\n");
	return 0;
}
