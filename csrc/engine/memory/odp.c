/* SPDX-License-Identifier: BSD-3-Clause
 * Regions that are not plain memory: on-demand paging, where the kernel is asked at each access
 * instead of at registration; and null regions. */
#define _GNU_SOURCE
#include "base/explain.h"
#include "base/memory.h"
#include "base/rlimit.h"
#include "engine/memory/mr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- the null region ----------------------------------------------------------------- */

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

/* --- local access -------------------------------------------------------------------- */

uint8_t *nupa_mr_local_rare(const struct nupa_mr *mr, const struct ibv_pd *pd,
			    const struct ibv_sge *sge, int access)
{
	uint8_t *at;

	if (!mr || mr->kind == NUPA_MR_WINDOW || mr->kind == NUPA_MR_DEVICE || !pd ||
	    mr->ibv.pd->handle != pd->handle)
		return NULL;
	if (mr->kind == NUPA_MR_NULL)
		return access & IBV_ACCESS_LOCAL_WRITE ? the_void.sink : the_void.zeros;
	if ((mr->access & access) != access)
		return NULL;
	at = nupa_mr_at(mr, sge->addr, sge->length);
	if (mr->kind == NUPA_MR_ON_DEMAND && at &&
	    !nupa_memory_present(at, sge->length, (access & IBV_ACCESS_LOCAL_WRITE) != 0))
		return NULL;
	return at;
}

/* --- advice -------------------------------------------------------------------------- */

/* The errors of man ibv_advise_mr; *at: where the memory is, NULL for none. */
static int check_advice(struct nupa_engine *engine, const struct ibv_pd *pd,
			enum ibv_advise_mr_advice advice, const struct ibv_sge *sge, uint8_t **at)
{
	uint32_t index = sge->lkey >> NUPA_KEY_VARIANT_BITS;
	const struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);

	if (!mr)
		return index < engine->mr_limit && engine->mrs[index] ? ENOENT : EFAULT;
	if (mr->kind != NUPA_MR_ON_DEMAND)
		return EINVAL;
	if (mr->ibv.pd->handle != pd->handle || (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
						 !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	*at = nupa_mr_at(mr, sge->addr, sge->length);
	return *at || !sge->length ? 0 : EFAULT;
}

static int advise_one(struct nupa_engine *engine, const struct ibv_pd *pd,
		      enum ibv_advise_mr_advice advice, const struct ibv_sge *sge)
{
	uint8_t *at = NULL;
	bool there;
	int error;

	nupa_engine_lock(engine);
	error = check_advice(engine, pd, advice, sge, &at);
	nupa_engine_unlock(engine);
	if (error || !sge->length)
		return error;
	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		there = nupa_memory_mapped(at, sge->length);
	else
		there = nupa_memory_present(at, sge->length,
					    advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
	return there ? 0 : EFAULT;
}

int nupa_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		   struct ibv_sge *sg_list, uint32_t num_sge)
{
	int error = 0;

	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !num_sge)
		return EINVAL;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return ENOTSUP;
	/* All of it now, flushed or not: there is nothing to wait for but the pages. */
	for (uint32_t i = 0; i < num_sge && !error; i++)
		error = advise_one(nupa_engine_of(pd->context), pd, advice, &sg_list[i]);
	return error;
}
