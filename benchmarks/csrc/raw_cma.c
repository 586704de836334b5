/* SPDX-License-Identifier: BSD-3-Clause
 * The floor of the `cma` mover: process_vm_writev and process_vm_readv between two processes
 * pinned to two cores.  "pingpong" is the floor of a WRITE latency test.  Each side writes into the
 * other's memory and spins until the other has written into its own. */
#include "bench.h"

#include <sys/uio.h>

#define SAMPLE_NS 100000u /* calls are timed in groups of at least this */
#define PINGPONG_BYTES 64u

struct peer {
	pid_t pid;
	uint8_t *buffer; /* at the same address in both processes */
};

enum op { WRITEV, READV, N_OPS };

static const char *const op_name[N_OPS] = { "writev", "readv" };

static void move(enum op op, const struct peer *peer, uint8_t *local, size_t bytes)
{
	struct iovec here = { local, bytes }, there = { peer->buffer, bytes };
	ssize_t moved = op == WRITEV ? process_vm_writev(peer->pid, &here, 1, &there, 1, 0)
				     : process_vm_readv(peer->pid, &here, 1, &there, 1, 0);

	if (moved == (ssize_t)bytes)
		return;
	if (moved < 0)
		bench_die(op == WRITEV ? "process_vm_writev" : "process_vm_readv");
	fprintf(stderr, "process_vm_%s moved %zd of %zu bytes\n", op_name[op], moved, bytes);
	exit(1);
}

/* Median time of one call, ns. */
static double measure(enum op op, const struct peer *peer, uint8_t *local, size_t bytes,
		      double seconds)
{
	static struct bench_samples samples;
	uint64_t end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9), now_ns;

	samples.count = 0;
	do {
		uint64_t start_ns = bench_now_ns();
		uint32_t calls = 0;

		do {
			for (uint32_t i = 0; i < 8; i++)
				move(op, peer, local, bytes);
			calls += 8;
			now_ns = bench_now_ns();
		} while (now_ns - start_ns < SAMPLE_NS);
		bench_add(&samples, (double)(now_ns - start_ns) / calls);
	} while (now_ns < end_ns);
	return bench_median(&samples);
}

static void await(uint8_t *buffer, uint8_t value)
{
	while (__atomic_load_n(buffer, __ATOMIC_ACQUIRE) != value)
		;
}

static void send_turn(const struct peer *peer, uint8_t *message, uint8_t value)
{
	message[0] = value;
	move(WRITEV, peer, message, PINGPONG_BYTES);
}

/* Answers each write of the parent with one into the parent's buffer. */
_Noreturn static void echo(const struct peer *parent, uint8_t *message, int ready)
{
	memset(parent->buffer, 0, PINGPONG_BYTES);
	if (write(ready, "r", 1) != 1)
		bench_die("write");
	for (uint8_t value = 2;; value = value == 255 ? 2 : (uint8_t)(value + 1)) {
		await(parent->buffer, value);
		send_turn(parent, message, value);
	}
}

/* Median one-way time, ns. */
static double pingpong(const struct peer *child, uint8_t *message, double seconds)
{
	static struct bench_samples samples;
	uint64_t end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9);

	for (uint8_t value = 2;; value = value == 255 ? 2 : (uint8_t)(value + 1)) {
		uint64_t start_ns = bench_now_ns();

		send_turn(child, message, value);
		await(child->buffer, value);
		uint64_t now_ns = bench_now_ns();
		bench_add(&samples, (double)(now_ns - start_ns) / 2.0);
		if (now_ns >= end_ns)
			return bench_median(&samples);
	}
}

/* A child that sleeps, or with *pair* one that answers; pinned, its buffer its own. */
static pid_t start_peer(const struct bench_options *options, uint8_t *buffer, size_t bytes,
			bool pair)
{
	int ready[2];
	char byte;

	if (pipe(ready) != 0)
		bench_die("pipe");
	struct peer parent = { getpid(), buffer };
	pid_t child = bench_fork();
	if (child == 0) {
		static uint8_t message[PINGPONG_BYTES];

		bench_pin(options->cpu[1]);
		memset(buffer, 2, bytes); /* no page shared with the parent any more */
		if (pair)
			echo(&parent, message, ready[1]);
		if (write(ready[1], "r", 1) != 1)
			bench_die("write");
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		fprintf(stderr, "the peer ended before it was ready\n");
		exit(1);
	}
	close(ready[0]);
	return child;
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0,
					 .size_bytes = { 64, 4096, 65536, 1048576 },
					 .n_sizes = 4 };
	size_t largest_bytes = PINGPONG_BYTES;

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	for (uint32_t i = 0; i < options.n_sizes; i++)
		if (options.size_bytes[i] > largest_bytes)
			largest_bytes = options.size_bytes[i];
	/* Where Yama restricts ptrace, a child may write to us only if we say so. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);

	uint8_t *remote = bench_map(largest_bytes, false);
	uint8_t *local = bench_map(largest_bytes, false);
	double part_seconds = options.seconds / (N_OPS * options.n_sizes + 1);
	struct peer peer = { start_peer(&options, remote, largest_bytes, false), remote };
	bench_pin(options.cpu[0]);

	if (options.json)
		printf("{\"cpus\": [%d, %d], \"results\": [", options.cpu[0], options.cpu[1]);
	for (uint32_t i = 0; i < options.n_sizes * N_OPS; i++) {
		size_t bytes = options.size_bytes[i / N_OPS];
		enum op op = (enum op)(i % N_OPS);
		double ns = measure(op, &peer, local, bytes, part_seconds);

		if (options.json)
			printf("%s{\"op\": \"%s\", \"bytes\": %zu, \"ns\": %.1f, "
			       "\"gb_per_s\": %.3f}",
			       i ? ", " : "", op_name[op], bytes, ns, (double)bytes / ns);
		else
			printf("process_vm_%-6s %10zu B  %12.1f ns  %8.3f GB/s\n", op_name[op],
			       bytes, ns, (double)bytes / ns);
	}
	bench_end(peer.pid);

	memset(remote, 0, PINGPONG_BYTES);
	peer.pid = start_peer(&options, remote, PINGPONG_BYTES, true);
	double one_way_ns = pingpong(&peer, local, part_seconds);
	bench_end(peer.pid);
	if (options.json)
		printf("], \"pingpong_64_ns\": %.1f}\n", one_way_ns);
	else
		printf("ping-pong of 64 B by process_vm_writev: %.1f ns one way\n", one_way_ns);
	return 0;
}
