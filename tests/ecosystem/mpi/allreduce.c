/* SPDX-License-Identifier: BSD-3-Clause
 * An MPI program: all ranks reduce, exchange and gather, of sizes from a word to megabytes, and
 * each looks at every element that it got.  Prints "rank N of M: K elements right" and ends with 0,
 * or says what was wrong and ends with 1. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const int sizes[] = { 1, 7, 1024, 8191, 65536, 1 << 20 }; /* elements of 8 bytes */
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static int rank, ranks;
static unsigned long long looked_at;

static void expect(const char *what, int size, int at, uint64_t got, uint64_t wanted)
{
	looked_at++;
	if (got == wanted)
		return;
	fprintf(stderr, "rank %d: %s of %d: element %d is %llu, not %llu\n", rank, what, size, at,
		(unsigned long long)got, (unsigned long long)wanted);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t element(int owner, int at)
{
	return (uint64_t)(owner + 1) * 1000003u + (uint64_t)at * 7919u;
}

static void *allocate(size_t elements)
{
	void *memory = malloc(elements * sizeof(uint64_t));

	if (!memory) {
		fprintf(stderr, "rank %d: no memory for %zu elements\n", rank, elements);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

static void reduce_all(int size)
{
	uint64_t *mine = allocate((size_t)size), *sum = allocate((size_t)size);

	for (int i = 0; i < size; i++)
		mine[i] = element(rank, i);
	MPI_Allreduce(mine, sum, size, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++) {
		uint64_t wanted = 0;

		for (int r = 0; r < ranks; r++)
			wanted += element(r, i);
		expect("the sum", size, i, sum[i], wanted);
	}
	free(mine);
	free(sum);
}

/* Each rank sends each rank a different block. */
static void exchange_all(int size)
{
	size_t elements = (size_t)size * (size_t)ranks;
	uint64_t *from = allocate(elements), *to = allocate(elements);

	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < size; i++)
			from[(size_t)r * (size_t)size + (size_t)i] = element(rank * ranks + r, i);
	MPI_Alltoall(from, size, MPI_UINT64_T, to, size, MPI_UINT64_T, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < size; i++)
			expect("the block", size, i, to[(size_t)r * (size_t)size + (size_t)i],
			       element(r * ranks + rank, i));
	free(from);
	free(to);
}

/* One-sided: each rank puts into its neighbour's window, adds to rank 0's counter, reads it. */
static void put_and_add(int size)
{
	uint64_t *window, *mine = allocate((size_t)size), one = 1, seen = 0;
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	MPI_Win win;

	MPI_Win_allocate((MPI_Aint)(((size_t)size + 1) * sizeof(uint64_t)), sizeof(uint64_t),
			 MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	for (int i = 0; i < size; i++)
		mine[i] = element(rank, i);
	MPI_Win_fence(0, win);
	window[size] = 0;
	MPI_Win_fence(0, win);
	MPI_Put(mine, size, MPI_UINT64_T, next, 0, size, MPI_UINT64_T, win);
	MPI_Accumulate(&one, 1, MPI_UINT64_T, 0, size, 1, MPI_UINT64_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < size; i++)
		expect("what was put", size, i, window[i], element(previous, i));
	MPI_Get(&seen, 1, MPI_UINT64_T, 0, size, 1, MPI_UINT64_T, win);
	MPI_Win_fence(0, win);
	expect("the counter", size, 0, seen, (uint64_t)ranks);
	MPI_Win_free(&win);
	free(mine);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (size_t i = 0; i < N_SIZES; i++) {
		reduce_all(sizes[i]);
		exchange_all(sizes[i] / 4 + 1);
		put_and_add(sizes[i]);
	}
	printf("rank %d of %d: %llu elements right\n", rank, ranks, looked_at);
	MPI_Finalize();
	return 0;
}
