/* SPDX-License-Identifier: BSD-3-Clause
 * Receive queues: a QP's own, or an SRQ's. */
#define _GNU_SOURCE
#include "engine/queue/queue.h"

#include <errno.h>
#include <sys/mman.h>

static uint32_t wqe_bytes(uint32_t max_sge)
{
	uint32_t bytes = (uint32_t)(sizeof(struct nupa_rwqe) + max_sge * sizeof(struct ibv_sge));

	return (bytes + 31) & ~UINT32_C(31);
}

uint32_t nupa_pow2_at_least(uint32_t n)
{
	return n <= 1 ? 1 : UINT32_C(1) << (32 - __builtin_clz(n - 1));
}

/* Large and mostly empty: pages come as they are used. */
void *nupa_queue_map(size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return map == MAP_FAILED ? NULL : map;
}

int nupa_rq_init(struct nupa_rq *rq, uint32_t capacity, uint32_t max_sge)
{
	uint32_t entries = nupa_pow2_at_least(capacity);

	memset(rq, 0, sizeof(*rq));
	rq->capacity = capacity;
	rq->max_sge = max_sge;
	rq->mask = entries - 1;
	rq->stride = wqe_bytes(max_sge);
	rq->ring = nupa_queue_map(nupa_rq_ring_bytes(rq));
	return rq->ring ? 0 : ENOMEM;
}

void nupa_rq_free(struct nupa_rq *rq)
{
	if (rq->ring)
		munmap(rq->ring, nupa_rq_ring_bytes(rq));
	rq->ring = NULL;
}
