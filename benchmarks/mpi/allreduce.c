/* SPDX-License-Identifier: BSD-3-Clause
 * MPI_Allreduce of sums of float, for each number of bytes: the median over rounds of the time that
 * the slowest rank took, in microseconds.  Built by mpi.py with mpicc; rank 0 prints.
 *
 *   allreduce ROUNDS BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *left, const void *right)
{
	const double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double median_us(long rounds, int count, const float *from, float *to, double *took_us)
{
	for (long round = 0; round < rounds; round++) {
		double begun_s;

		MPI_Barrier(MPI_COMM_WORLD);
		begun_s = MPI_Wtime();
		MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		took_us[round] = (MPI_Wtime() - begun_s) * 1e6;
	}
	MPI_Allreduce(MPI_IN_PLACE, took_us, (int)rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(took_us, (size_t)rounds, sizeof(*took_us), compare);
	return took_us[rounds / 2];
}

int main(int argc, char **argv)
{
	long rounds;
	int rank, ranks;
	double *took_us;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 3 || (rounds = strtol(argv[1], NULL, 10)) < 1)
		MPI_Abort(MPI_COMM_WORLD, 2);
	took_us = malloc((size_t)rounds * sizeof(*took_us));
	for (int i = 2; i < argc; i++) {
		const int count = (int)(strtol(argv[i], NULL, 10) / (long)sizeof(float));
		float *from = calloc((size_t)count, sizeof(float));
		float *to = calloc((size_t)count, sizeof(float));
		double us;

		if (!took_us || !from || !to)
			MPI_Abort(MPI_COMM_WORLD, 1);
		for (int at = 0; at < count; at++)
			from[at] = (float)(at % 64);
		us = median_us(rounds, count, from, to, took_us);
		for (int at = 0; at < count; at++)
			if (to[at] != (float)(at % 64 * ranks)) /* small sums are exact */
				MPI_Abort(MPI_COMM_WORLD, 3);
		if (rank == 0)
			printf("%s %.3f\n", argv[i], us);
		free(from);
		free(to);
	}
	free(took_us);
	MPI_Finalize();
	return 0;
}
