/* SPDX-License-Identifier: BSD-3-Clause
 * The cost of ibv_reg_mr and ibv_dereg_mr together, of touched memory.  Memory that peers may reach
 * moves into shared memory and back; memory for local use does not.  Beside them: memcpy of the
 * same bytes there and back into fresh pages, which moving pages cannot be faster than. */
#include "bench_fabric.h"

#define REACHED (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ROUNDS_MIN 5u

struct size {
	struct ibv_pd *pd;
	uint8_t *memory;
	uint64_t bytes;
};

static double registered_ns(const struct size *size, int access)
{
	uint64_t start_ns = bench_now_ns();
	struct ibv_mr *mr =
	    nupa_reg_mr(size->pd, size->memory, size->bytes, (uintptr_t)size->memory, access);

	if (!mr)
		bench_die("ibv_reg_mr");
	if ((errno = nupa_dereg_mr(mr)) != 0)
		bench_die("ibv_dereg_mr");
	return (double)(bench_now_ns() - start_ns);
}

static double reached_ns(const struct size *size)
{
	return registered_ns(size, REACHED);
}

static double local_ns(const struct size *size)
{
	return registered_ns(size, IBV_ACCESS_LOCAL_WRITE);
}

static uint8_t *fresh(uint64_t bytes)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE))
		bench_die("mmap");
	return memory;
}

static double copied_ns(const struct size *size)
{
	uint64_t start_ns = bench_now_ns();

	for (int way = 0; way < 2; way++) {
		uint8_t *copy = fresh(size->bytes);

		memcpy(copy, size->memory, size->bytes);
		__asm__ volatile("" : : "r"(copy) : "memory");
		munmap(copy, size->bytes);
	}
	return (double)(bench_now_ns() - start_ns);
}

static double median_ns(double (*once)(const struct size *), const struct size *size,
			double seconds)
{
	static struct bench_samples samples;
	uint64_t end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9);

	samples.count = 0;
	while (samples.count < ROUNDS_MIN || bench_now_ns() < end_ns)
		bench_add(&samples, once(size));
	return bench_median(&samples);
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0,
					 .size_bytes = { 4096, 1 << 20, 64 << 20 },
					 .n_sizes = 3 };
	char why[512] = "";

	bench_parse(&options, argc, argv);
	struct ibv_context *context =
	    nupa_open_host(bench_fabric("registration", &(struct nupa_config){ .slots = 4 }), 0,
			   NUPA_MOVER_NONE, why, sizeof(why));
	struct ibv_pd *pd = context ? nupa_alloc_pd(context) : NULL;
	if (!pd) {
		fprintf(stderr, "registration: %s\n", why);
		return 1;
	}
	if (options.json)
		printf("{\"results\": [");
	for (uint32_t i = 0; i < options.n_sizes; i++) {
		struct size size = { pd, fresh(options.size_bytes[i]), options.size_bytes[i] };
		double share = options.seconds / 3 / options.n_sizes;
		double reached, local, copied;

		memset(size.memory, 1, size.bytes);
		reached = median_ns(reached_ns, &size, share);
		local = median_ns(local_ns, &size, share);
		copied = median_ns(copied_ns, &size, share);
		munmap(size.memory, size.bytes);
		if (options.json)
			printf("%s{\"bytes\": %" PRIu64 ", \"reached_ns\": %.0f, "
			       "\"local_ns\": %.0f, \"copied_ns\": %.0f}",
			       i ? ", " : "", size.bytes, reached, local, copied);
		else
			printf("%10" PRIu64
			       " B: %.1f us for peers, %.1f us for local use, %.1f us to "
			       "copy there and back\n",
			       size.bytes, reached / 1e3, local / 1e3, copied / 1e3);
	}
	if (options.json)
		printf("]}\n");
	return 0;
}
