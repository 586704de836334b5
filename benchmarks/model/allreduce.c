/* SPDX-License-Identifier: BSD-3-Clause
 * MPI_Allreduce of BYTES, COUNT times: rank 0 prints the median time of one in ns. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int rank, bytes = argc == 3 ? atoi(argv[1]) : 0, count = argc == 3 ? atoi(argv[2]) : 0;
	float *from, *to;
	double *ns;

	if (bytes < (int)sizeof(*from) || count < 1) {
		fprintf(stderr, "usage: %s BYTES COUNT\n", argv[0]);
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	from = calloc(1, (size_t)bytes);
	to = calloc(1, (size_t)bytes);
	ns = calloc((size_t)count, sizeof(*ns));
	if (!from || !to || !ns)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < count; i++) {
		double begun_s = MPI_Wtime();

		MPI_Allreduce(from, to, bytes / (int)sizeof(*from), MPI_FLOAT, MPI_SUM,
			      MPI_COMM_WORLD);
		ns[i] = (MPI_Wtime() - begun_s) * 1e9;
	}
	qsort(ns, (size_t)count, sizeof(*ns), ascending);
	if (rank == 0)
		printf("%.0f\n", ns[count / 2]);
	MPI_Finalize();
	return 0;
}
