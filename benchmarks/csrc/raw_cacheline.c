/* SPDX-License-Identifier: BSD-3-Clause
 * The floor of every message: the time in which a cache line, stored by one core, is seen by
 * another.  Two processes pinned to two cores answer each other, in two ways.  Both store to the
 * same line, which then goes back and forth.  Or each stores to a line of its own that the other
 * polls, as programs do that poll their own memory.  Then the line crosses twice for each way: the
 * writer takes it from the poller first.  The speed of a line depends on the slice of the cache
 * that its address falls to.  So each sample takes other lines of a buffer as large as a ring of
 * the engine. */
#include "bench.h"

#include <stdatomic.h>

#define ROUNDS_PER_SAMPLE 1000u
#define LINES 1024u

struct line {
	_Alignas(64) _Atomic uint64_t turn; /* odd: the parent's */
};

/* Turns 1 and 2 are the first round trip. */
static struct line *line_of(struct line *lines, uint64_t turn, bool apart)
{
	uint64_t index = (turn - 1) / 2 / ROUNDS_PER_SAMPLE % LINES;

	return &lines[index + (apart && turn % 2 == 0 ? LINES : 0)];
}

/* No pause instruction: on recent cores it costs more than the line's way. */
static void await(struct line *line, uint64_t turn)
{
	while (atomic_load_explicit(&line->turn, memory_order_acquire) != turn)
		;
}

_Noreturn static void echo(struct line *lines, bool apart)
{
	for (uint64_t turn = 1;; turn += 2) {
		await(line_of(lines, turn, apart), turn);
		atomic_store_explicit(&line_of(lines, turn + 1, apart)->turn, turn + 1,
				      memory_order_release);
	}
}

static void measure(const struct bench_options *options, bool apart,
		    struct bench_samples *one_way_ns)
{
	struct line *lines = bench_map(2 * LINES * sizeof(*lines), true);
	pid_t child = bench_fork();
	uint64_t turn = 0;

	bench_pin(options->cpu[child == 0]);
	if (child == 0)
		echo(lines, apart);

	uint64_t end_ns = bench_now_ns() + (uint64_t)(options->seconds / 2 * 1e9);
	for (uint64_t start_ns = bench_now_ns(); start_ns < end_ns;) {
		struct line *to = line_of(lines, turn + 1, apart);
		struct line *from = line_of(lines, turn + 2, apart);

		for (uint32_t round = 0; round < ROUNDS_PER_SAMPLE; round++) {
			atomic_store_explicit(&to->turn, ++turn, memory_order_release);
			await(from, ++turn);
		}
		uint64_t now_ns = bench_now_ns();
		bench_add(one_way_ns, (double)(now_ns - start_ns) / (2.0 * ROUNDS_PER_SAMPLE));
		start_ns = now_ns;
	}
	bench_end(child);
	munmap(lines, 2 * LINES * sizeof(*lines));
}

int main(int argc, char **argv)
{
	static struct bench_samples one_line, two_lines;
	struct bench_options options = { .seconds = 1.0 };

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	measure(&options, false, &one_line);
	measure(&options, true, &two_lines);

	double one_ns = bench_median(&one_line), two_ns = bench_median(&two_lines);
	if (options.json)
		printf("{\"cpus\": [%d, %d], \"one_way_ns\": %.1f, \"min_ns\": %.1f, "
		       "\"two_lines_ns\": %.1f, \"samples\": %u}\n",
		       options.cpu[0], options.cpu[1], one_ns, one_line.value[0], two_ns,
		       one_line.count);
	else
		printf(
		    "CPU %d to CPU %d, one way, medians of samples of %u round trips: %.1f ns by "
		    "one line (least %.1f), %.1f ns by a line for each way\n",
		    options.cpu[0], options.cpu[1], ROUNDS_PER_SAMPLE, one_ns, one_line.value[0],
		    two_ns);
	return 0;
}
