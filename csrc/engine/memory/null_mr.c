/* SPDX-License-Identifier: BSD-3-Clause
 * Null regions (man ibv_alloc_null_mr): they read zeros, and swallow what is written. */
#define _GNU_SOURCE
#include "base/explain.h"
#include "base/rlimit.h"
#include "engine/memory/mr.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* As long as a message can be.  Zeros are pages of zeros; what is swallowed goes round in few. */
#define VOID_BYTES ((size_t)NUPA_MSG_MAX_BYTES)
#define SINK_BYTES ((size_t)4 << 20)

static struct {
	pthread_once_t once;
	uint8_t *zeros, *sink; /* NULL: they could not be made */
	int error;
} the_void = { .once = PTHREAD_ONCE_INIT };

static void map_void(void)
{
	int fd = memfd_create("nupa-null", MFD_CLOEXEC);
	uint8_t *zeros =
	    mmap(NULL, VOID_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *sink =
	    mmap(NULL, VOID_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bool mapped = fd >= 0 && zeros != MAP_FAILED && sink != MAP_FAILED &&
		      nupa_limit_allows_file(SINK_BYTES) && ftruncate(fd, SINK_BYTES) == 0 &&
		      /* Backed before use: a full file system is an errno, not a SIGBUS. */
		      fallocate(fd, 0, 0, SINK_BYTES) == 0;

	for (size_t at = 0; mapped && at < VOID_BYTES; at += SINK_BYTES)
		mapped = mmap(sink + at, SINK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			      fd, 0) != MAP_FAILED;
	if (!mapped) {
		the_void.error = errno;
		nupa_limit_address_space(2 * VOID_BYTES);
	}
	if (fd >= 0)
		close(fd);
	if (mapped) {
		the_void.zeros = zeros;
		the_void.sink = sink;
		return;
	}
	if (zeros != MAP_FAILED)
		munmap(zeros, VOID_BYTES);
	if (sink != MAP_FAILED)
		munmap(sink, VOID_BYTES);
}

struct ibv_mr *nupa_alloc_null_mr(struct ibv_pd *pd)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	struct nupa_mr *mr;
	int error;

	pthread_once(&the_void.once, map_void);
	if (!the_void.sink) {
		nupa_hint("ibv_alloc_null_mr: %s%s", strerror(the_void.error),
			  nupa_remedy(the_void.error));
		errno = the_void.error;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	mr->ibv = (struct ibv_mr){ pd->context, pd, NULL, SIZE_MAX, 0, 0, 0 };
	mr->length = UINT64_MAX;
	mr->kind = NUPA_MR_NULL;
	nupa_engine_lock(engine);
	error = nupa_mr_place(engine, mr);
	if (!error) {
		nupa_mr_expose(engine, mr); /* without any remote access */
		container_of(pd, struct nupa_pd, ibv)->users++;
	}
	nupa_engine_unlock(engine);
	if (!error)
		return &mr->ibv;
	free(mr);
	errno = error;
	return NULL;
}

uint8_t *nupa_mr_void(bool to_write)
{
	return to_write ? the_void.sink : the_void.zeros;
}
