/* SPDX-License-Identifier: BSD-3-Clause
 * Two processes wake each other by eventfds, each asleep in read: the bare round trip of programs
 * that wait for events. */
#include "bench.h"

#include <sys/eventfd.h>

static void ring(int fd)
{
	if (write(fd, &(uint64_t){ 1 }, sizeof(uint64_t)) != (ssize_t)sizeof(uint64_t))
		bench_die("write to an eventfd");
}

static void await(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
		bench_die("read from an eventfd");
}

int main(int argc, char **argv)
{
	static struct bench_samples round_trip_ns;
	struct bench_options options = { .seconds = 1.0 };
	int there, back;

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	there = eventfd(0, EFD_CLOEXEC);
	back = eventfd(0, EFD_CLOEXEC);
	if (there < 0 || back < 0)
		bench_die("eventfd");
	pid_t child = bench_fork();
	bench_pin(options.cpu[child == 0]);
	if (child == 0)
		for (;;) {
			await(there);
			ring(back);
		}
	uint64_t end_ns = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
	for (uint64_t start_ns = bench_now_ns(); start_ns < end_ns;) {
		ring(there);
		await(back);
		uint64_t now_ns = bench_now_ns();
		bench_add(&round_trip_ns, (double)(now_ns - start_ns));
		start_ns = now_ns;
	}
	bench_end(child);

	double median_ns = bench_median(&round_trip_ns);
	if (options.json)
		printf("{\"round_trip_ns\": %.0f}\n", median_ns);
	else
		printf("a wake-up there and back by eventfd: %.1f us (median)\n", median_ns / 1e3);
	return 0;
}
