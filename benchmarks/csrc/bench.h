/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the raw benchmarks: a clock, pinning, medians, and options.  A child never outlives its
 * parent, nor a run its time. */
#ifndef NUPA_BENCH_H
#define NUPA_BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity, process_vm_writev */
#endif

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BENCH_SIZES_MAX 32u
#define BENCH_SAMPLES_MAX 65536u
#define BENCH_MESSAGE_MAX_BYTES (UINT64_C(1) << 30)
#define BENCH_SECONDS_MAX 60.0

struct bench_options {
	const char *program;
	int cpu[2];
	double seconds; /* of measuring, all sizes together */
	uint64_t size_bytes[BENCH_SIZES_MAX];
	uint32_t n_sizes;
	bool json;
};

struct bench_samples {
	double value[BENCH_SAMPLES_MAX];
	uint32_t count;
};

_Noreturn static inline void bench_die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Waits until the other of two processes has come as often as this one, *me*.  They may share a
 * CPU. */
static inline void bench_meet(uint32_t come[2], int me)
{
	uint32_t step = ++come[me];

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (__atomic_load_n(&come[!me], __ATOMIC_ACQUIRE) < step)
		sched_yield();
}

static inline uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline void bench_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) == 0)
		return;
	fprintf(stderr, "cannot pin to CPU %d: %s; choose others with --cpus A,B\n", cpu,
		strerror(errno));
	exit(1);
}

/* Anonymous memory, touched; *shared*: with children made later. */
static inline void *bench_map(size_t bytes, bool shared)
{
	int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (memory == MAP_FAILED)
		bench_die("mmap");
	memset(memory, 1, bytes);
	return memory;
}

/* As fork, but the child dies with its parent. */
static inline pid_t bench_fork(void)
{
	pid_t parent = getpid();
	pid_t child = fork();

	if (child < 0)
		bench_die("fork");
	if (child == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
			bench_die("PR_SET_PDEATHSIG");
		if (getppid() != parent)
			_exit(1); /* it died before the line above */
	}
	return child;
}

static inline void bench_end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static inline void bench_overdue(int signal_number)
{
	static const char message[] = "gave up: the two ends did not finish in time\n";
	ssize_t ignored = write(STDERR_FILENO, message, sizeof(message) - 1);

	(void)signal_number;
	(void)ignored; /* nothing is left to be done about it */
	_exit(1);
}

static inline void bench_add(struct bench_samples *samples, double value)
{
	if (samples->count < BENCH_SAMPLES_MAX)
		samples->value[samples->count++] = value;
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the samples; exits if there are none. */
static inline double bench_median(struct bench_samples *samples)
{
	if (samples->count == 0) {
		fprintf(stderr, "no sample in the time given: give more with --seconds\n");
		exit(1);
	}
	qsort(samples->value, samples->count, sizeof(double), bench_compare);
	return samples->value[samples->count / 2];
}

_Noreturn static inline void bench_usage(const struct bench_options *options, int status)
{
	fprintf(status ? stderr : stdout, "usage: %s [--cpus A,B] [--seconds S%s] [--json]\n",
		options->program, options->n_sizes ? "] [--sizes BYTES,BYTES..." : "");
	exit(status);
}

static inline uint64_t bench_number(const struct bench_options *options, const char **text,
				    uint64_t min, uint64_t max)
{
	char *end;

	errno = 0;
	uint64_t number = strtoull(*text, &end, 10);
	if (**text < '0' || **text > '9' || errno || number < min || number > max) {
		fprintf(stderr, "'%s': a number from %" PRIu64 " to %" PRIu64 " was expected\n",
			*text, min, max);
		bench_usage(options, 2);
	}
	*text = end;
	return number;
}

static inline void bench_parse_cpus(struct bench_options *options, const char *text)
{
	options->cpu[0] = (int)bench_number(options, &text, 0, CPU_SETSIZE - 1);
	if (*text++ != ',')
		bench_usage(options, 2);
	options->cpu[1] = (int)bench_number(options, &text, 0, CPU_SETSIZE - 1);
	if (*text != '\0')
		bench_usage(options, 2);
}

static inline void bench_parse_sizes(struct bench_options *options, const char *text)
{
	options->n_sizes = 0;
	do {
		if (options->n_sizes == BENCH_SIZES_MAX) {
			fprintf(stderr, "--sizes: at most %u\n", BENCH_SIZES_MAX);
			exit(2);
		}
		options->size_bytes[options->n_sizes++] =
		    bench_number(options, &text, 1, BENCH_MESSAGE_MAX_BYTES);
	} while (*text++ == ',');
	if (text[-1] != '\0')
		bench_usage(options, 2);
}

/* The first two CPUs that this process may use. */
static inline void bench_default_cpus(struct bench_options *options)
{
	cpu_set_t set;
	int found = 0;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		bench_die("sched_getaffinity");
	for (size_t cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET(cpu, &set))
			options->cpu[found++] = (int)cpu;
	if (found == 1)
		options->cpu[1] = options->cpu[0];
}

/* *options* holds the defaults; a program without sizes leaves n_sizes 0. */
static inline void bench_parse(struct bench_options *options, int argc, char **argv)
{
	static const struct option known[] = {
		{ "cpus", required_argument, NULL, 'c' },
		{ "seconds", required_argument, NULL, 's' },
		{ "sizes", required_argument, NULL, 'z' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool sized = options->n_sizes > 0;
	int option;

	options->program = argv[0];
	bench_default_cpus(options);
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'c')
			bench_parse_cpus(options, optarg);
		else if (option == 's')
			options->seconds = strtod(optarg, NULL);
		else if (option == 'z' && sized)
			bench_parse_sizes(options, optarg);
		else if (option == 'j')
			options->json = true;
		else
			bench_usage(options, option == 'h' ? 0 : 2);
	}
	if (optind != argc)
		bench_usage(options, 2);
	if (!(options->seconds > 0.0 && options->seconds <= BENCH_SECONDS_MAX)) {
		fprintf(stderr, "--seconds: more than 0, at most %.0f\n", BENCH_SECONDS_MAX);
		exit(2);
	}
	bench_pin(options->cpu[1]); /* refused here, before there is a child to mind */
	bench_pin(options->cpu[0]);
	signal(SIGALRM, bench_overdue);
	alarm((unsigned int)options->seconds + 10);
}

/* Two ends that spin on one CPU would wait for a time slice at each step. */
static inline void bench_need_two_cpus(const struct bench_options *options)
{
	if (options->cpu[0] != options->cpu[1])
		return;
	fprintf(stderr, "two CPUs are needed, only CPU %d was given or may be used\n",
		options->cpu[0]);
	exit(1);
}

#endif
