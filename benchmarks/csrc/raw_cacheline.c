/* SPDX-License-Identifier: BSD-3-Clause
 * The floor of every message: the time in which one cache line, stored by one core, is seen
 * by another.  Two processes pinned to two cores pass a 64 B line back and forth.  How fast a line
 * is depends on which slice of the cache its address falls to, so that one line is a lottery: each
 * sample takes another line of a buffer as large as a ring of the engine. */
#include "bench.h"

#include <stdatomic.h>

#define ROUNDS_PER_SAMPLE 1000u
#define LINES 1024u

struct line {
	_Alignas(64) _Atomic uint64_t turn; /* odd: the child's */
};

/* Turns 1 and 2 are the first round trip. */
static struct line *line_of(struct line *lines, uint64_t turn)
{
	return &lines[(turn - 1) / 2 / ROUNDS_PER_SAMPLE % LINES];
}

/* No pause instruction: on recent cores it costs more than the line's way. */
static void await(struct line *line, uint64_t turn)
{
	while (atomic_load_explicit(&line->turn, memory_order_acquire) != turn)
		;
}

_Noreturn static void echo(struct line *lines)
{
	for (uint64_t turn = 1;; turn += 2) {
		struct line *line = line_of(lines, turn);

		await(line, turn);
		atomic_store_explicit(&line->turn, turn + 1, memory_order_release);
	}
}

int main(int argc, char **argv)
{
	static struct bench_samples one_way_ns;
	struct bench_options options = { .seconds = 1.0 };
	uint64_t turn = 0;

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);

	struct line *lines = bench_map(LINES * sizeof(*lines), true);
	pid_t child = bench_fork();
	bench_pin(options.cpu[child == 0]);
	if (child == 0)
		echo(lines);

	uint64_t end_ns = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
	for (uint64_t start_ns = bench_now_ns(); start_ns < end_ns;) {
		struct line *line = line_of(lines, turn + 1);

		for (uint32_t round = 0; round < ROUNDS_PER_SAMPLE; round++) {
			atomic_store_explicit(&line->turn, ++turn, memory_order_release);
			await(line, ++turn);
		}
		uint64_t now_ns = bench_now_ns();
		bench_add(&one_way_ns, (double)(now_ns - start_ns) / (2.0 * ROUNDS_PER_SAMPLE));
		start_ns = now_ns;
	}
	bench_end(child);

	double median_ns = bench_median(&one_way_ns);
	if (options.json)
		printf("{\"cpus\": [%d, %d], \"one_way_ns\": %.1f, \"min_ns\": %.1f, "
		       "\"samples\": %u}\n",
		       options.cpu[0], options.cpu[1], median_ns, one_way_ns.value[0],
		       one_way_ns.count);
	else
		printf("a cache line from CPU %d to CPU %d: %.1f ns one way (median of %u samples "
		       "of %u round trips; least %.1f)\n",
		       options.cpu[0], options.cpu[1], median_ns, one_way_ns.count,
		       ROUNDS_PER_SAMPLE, one_way_ns.value[0]);
	return 0;
}
