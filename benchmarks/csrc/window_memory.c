/* SPDX-License-Identifier: BSD-3-Clause
 * Measures loads, stores and memcpy through windows on regions of the pool, and in ordinary memory.
 * The latter is of the same kind: shared, 4 KiB pages, touched.  Private memory may have huge pages
 * where files have none, so it would compare page sizes.  Beyond the caches the choice of pages
 * makes 10 % either way.  So there are two runs of pages, and each is measured both as a window and
 * by a plain mmap.  Samples take turns. */
#include "bench_fabric.h"

#include "region/region.h"
#include "region/view/view.h"

#define SAMPLE_NS 200000u
#define LINE_BYTES 64u
#define EXTENT_BYTES UINT64_C(65536)
#define PIECE_LINES UINT64_C(1024)

/* One link a line: a ring through all of them, each load needs the one before. */
struct line {
	uint64_t next; /* index */
	uint64_t value[7];
};
_Static_assert(sizeof(struct line) == LINE_BYTES, "a line");

#define RUNS 2u

/* Windows, or plain mappings, of the same runs of pages. */
struct side {
	struct line *lines[RUNS];
	uint64_t at[RUNS]; /* where the next sample goes on */
	struct bench_samples samples;
};

/* Takes so many steps from line *at* on; returns where the next one goes on. */
typedef uint64_t work(struct line *lines, uint64_t n_lines, uint64_t at, uint64_t steps);

static uint64_t load(struct line *lines, uint64_t n_lines, uint64_t at, uint64_t steps)
{
	(void)n_lines;
	for (uint64_t i = 0; i < steps; i++)
		at = lines[at].next;
	return at;
}

/* In an order that no prefetcher knows, as far apart as loads. */
static uint64_t store(struct line *lines, uint64_t n_lines, uint64_t at, uint64_t steps)
{
	for (uint64_t i = 0; i < steps; i++) {
		lines[at].value[0] = i;
		at = (at * 5 + 1) & (n_lines - 1); /* a full period: Hull and Dobell */
	}
	__asm__ volatile("" ::: "memory");
	return at;
}

/* A step is a line, copied from one half to the other, by pieces. */
static uint64_t copy(struct line *lines, uint64_t n_lines, uint64_t at, uint64_t steps)
{
	const uint64_t half = n_lines / 2;
	const uint64_t piece = half < PIECE_LINES ? half : PIECE_LINES;

	at = at % half / piece * piece; /* other works end anywhere */
	for (uint64_t done = 0; done < steps; done += piece) {
		memcpy(&lines[half + at], &lines[at], piece * LINE_BYTES);
		__asm__ volatile("" ::: "memory");
		at = (at + piece) % half;
	}
	return at;
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

static double sample_ns(work *run, struct side *side, uint32_t r, uint64_t n_lines, uint64_t steps)
{
	const uint64_t start_ns = bench_now_ns();

	side->at[r] = run(side->lines[r], n_lines, side->at[r], steps);
	return (double)(bench_now_ns() - start_ns) / (double)steps;
}

static void measure(work *run, struct side side[2], uint64_t n_lines, double seconds)
{
	uint64_t end_ns, steps = PIECE_LINES;

	for (uint32_t i = 0; i < 2; i++) {
		side[i].samples.count = 0;
		/* Not the lines that the other side has just had. */
		for (uint32_t r = 0; r < RUNS; r++)
			side[i].at[r] = i * n_lines / 4;
	}
	while (sample_ns(run, &side[0], 0, n_lines, steps) * (double)steps < SAMPLE_NS)
		steps *= 2;
	end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9);
	for (uint32_t round = 0; round < 4 || bench_now_ns() < end_ns; round++) {
		/* The two take turns at going first, and on the same pages. */
		const uint32_t i = round / 2 % 2, r = round % 2;

		bench_add(&side[i].samples, sample_ns(run, &side[i], r, n_lines, steps));
		bench_add(&side[1 - i].samples,
			  sample_ns(run, &side[1 - i], 1 - r, n_lines, steps));
	}
}

static struct nupa_fabric *make_fabric(uint64_t bytes)
{
	const struct nupa_config config = { .pool_bytes = bytes, .extent_bytes = EXTENT_BYTES };

	return bench_fabric("window_memory", &config);
}

/* A window on a region of its own, and the same pages by a plain mapping. */
static struct nupa_view *make_window(struct nupa_fabric *fabric, uint64_t bytes, void **plain)
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
	*plain = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fabric->fd,
		      (off_t)(fabric->geometry.pool_off + region.pieces[0]));
	if (*plain == MAP_FAILED)
		bench_die("mmap");
	return view;
}

/* Both have all pages, and the same advice: no huge ones. */
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
		struct nupa_view *views[RUNS];
		struct nupa_fabric *fabric;

		if (bytes < 4096 || bytes & (bytes - 1)) {
			fprintf(stderr, "--sizes: powers of two, 4096 and more\n");
			return 2;
		}
		fabric = make_fabric(RUNS * (bytes < EXTENT_BYTES ? EXTENT_BYTES : bytes));
		for (uint32_t r = 0; r < RUNS; r++) {
			void *plain;

			views[r] = make_window(fabric, bytes, &plain);
			side[0].lines[r] = ready(nupa_view_at(views[r]), bytes);
			side[1].lines[r] = ready(plain, bytes);
		}
		/* The last one breaks the rings of the first. */
		for (uint32_t w = 0; w < 3; w++) {
			measure(works[w].run, side, bytes / LINE_BYTES,
				options.seconds / (3 * options.n_sizes));
			report(&options, works[w].name, bytes, side, i == 0 && w == 0);
		}
		for (uint32_t r = 0; r < RUNS; r++) {
			munmap(side[1].lines[r], bytes);
			nupa_view_free(views[r]);
		}
		nupa_fabric_put(fabric);
	}
	if (options.json)
		printf("]}\n");
	return 0;
}
