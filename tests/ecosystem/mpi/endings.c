/* SPDX-License-Identifier: BSD-3-Clause
 * Two ranks exchange buffers that are mapped for one message and unmapped after it.  UCX's
 * registration cache deregisters them after that.  The ranks end with messages still on their
 * way. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROUNDS 8
#define BYTES (256 << 10)

static unsigned char *buffer(int value)
{
	unsigned char *at =
	    mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		abort();
	memset(at, value, BYTES);
	return at;
}

int main(int argc, char **argv)
{
	int rank, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i <= ROUNDS; i++) {
		unsigned char *out = buffer(i), *in = buffer(0);
		int bytes = i % 2 ? BYTES : 1000;

		MPI_Sendrecv(out, bytes, MPI_BYTE, 1 - rank, i, in, bytes, MPI_BYTE, 1 - rank, i,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int at = 0; at < bytes; at++)
			wrong += in[at] != i;
		munmap(out, BYTES);
		munmap(in, BYTES);
	}
	MPI_Finalize();
	if (wrong)
		printf("rank %d: %d bytes are wrong\n", rank, wrong);
	return wrong != 0;
}
