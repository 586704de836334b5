/* SPDX-License-Identifier: BSD-3-Clause
 * memcpy between two reused buffers of one process: the upper limit of a bulk transfer by load and
 * store. */
#include "bench.h"

#define SAMPLE_NS 100000u

static double median_ns(uint8_t *to, const uint8_t *from, uint64_t bytes, double seconds)
{
	static struct bench_samples samples;
	uint64_t end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9);
	uint32_t rounds = 1;

	samples.count = 0;
	for (uint64_t start_ns = bench_now_ns(); start_ns < end_ns;) {
		for (uint32_t i = 0; i < rounds; i++) {
			memcpy(to, from, bytes);
			__asm__ volatile("" ::: "memory");
		}
		uint64_t now_ns = bench_now_ns();
		if (now_ns - start_ns >= SAMPLE_NS)
			bench_add(&samples, (double)(now_ns - start_ns) / rounds);
		else
			rounds *= 2;
		start_ns = now_ns;
	}
	return bench_median(&samples);
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0,
					 .n_sizes = 3,
					 .size_bytes = { 4096, 65536, 1048576 } };

	bench_parse(&options, argc, argv);
	bench_pin(options.cpu[0]);
	if (options.json)
		printf("{\"results\": [");
	for (uint32_t i = 0; i < options.n_sizes; i++) {
		uint64_t bytes = options.size_bytes[i];
		uint8_t *from = bench_map(bytes, true), *to = bench_map(bytes, true);
		double ns = median_ns(to, from, bytes, options.seconds / options.n_sizes);

		if (options.json)
			printf("%s{\"bytes\": %" PRIu64 ", \"ns\": %.1f, \"gb_per_s\": %.2f}",
			       i ? ", " : "", bytes, ns, (double)bytes / ns);
		else
			printf("memcpy of %" PRIu64 " B: %.1f ns, %.2f GB/s\n", bytes, ns,
			       (double)bytes / ns);
		munmap(from, bytes);
		munmap(to, bytes);
	}
	if (options.json)
		printf("]}\n");
	return 0;
}
