/* SPDX-License-Identifier: BSD-3-Clause
 * An MPI program of two ranks, in the manner of the OSU micro-benchmarks.  It measures for each
 * size the time one way of a ping-pong, and the rate of a window of messages one way.  Data is
 * checked.
 *
 * usage: pingpong [ITERATIONS]     prints "BYTES  LATENCY_US  MB/S", a line for each size */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (4 << 20)
#define WINDOW 16

static unsigned char *outgoing, *incoming;

static void check(int rank, int bytes, unsigned char round)
{
	for (int i = 0; i < bytes; i++)
		if (incoming[i] != (unsigned char)(round + i)) {
			fprintf(stderr, "rank %d: byte %d of %d is wrong\n", rank, i, bytes);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

static void fill(int bytes, unsigned char round)
{
	for (int i = 0; i < bytes; i++)
		outgoing[i] = (unsigned char)(round + i);
}

/* Seconds one way. */
static double latency(int rank, int bytes, int iterations)
{
	double start = MPI_Wtime();

	for (int i = 0; i < iterations; i++) {
		if (rank == 0)
			MPI_Send(outgoing, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
		MPI_Recv(incoming, bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(outgoing, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	}
	return (MPI_Wtime() - start) / iterations / 2;
}

/* Bytes a second. */
static double bandwidth(int rank, int bytes, int iterations)
{
	MPI_Request requests[WINDOW];
	double start = MPI_Wtime();

	for (int i = 0; i < iterations; i++) {
		for (int w = 0; w < WINDOW; w++) {
			if (rank == 0)
				MPI_Isend(outgoing, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD,
					  &requests[w]);
			else
				MPI_Irecv(incoming, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD,
					  &requests[w]);
		}
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	}
	if (rank == 0)
		MPI_Recv(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
	return (double)bytes * WINDOW * iterations / (MPI_Wtime() - start);
}

int main(int argc, char **argv)
{
	int iterations = argc > 1 ? atoi(argv[1]) : 1000;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	outgoing = malloc(LARGEST);
	incoming = malloc(LARGEST);
	if (ranks != 2 || iterations < 1 || !outgoing || !incoming) {
		fprintf(stderr, "two ranks, at least one iteration, and 8 MiB of memory\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (int bytes = 1; bytes <= LARGEST; bytes *= 4) {
		unsigned char round = (unsigned char)bytes;
		double seconds, rate;

		fill(bytes, round);
		memset(incoming, 0, (size_t)bytes);
		seconds = latency(rank, bytes, iterations);
		check(rank, bytes, round);
		rate = bandwidth(rank, bytes, iterations / WINDOW + 1);
		check(rank, bytes, round);
		if (rank == 0)
			printf("%d %.2f %.6f\n", bytes, seconds * 1e6, rate / 1e6);
	}
	MPI_Finalize();
	free(outgoing);
	free(incoming);
	return 0;
}
