/* SPDX-License-Identifier: BSD-3-Clause
 * Posting arrays of work requests and waiting for several completions: loops that would cost a
 * call each turn if the caller ran them. */
#include "engine/device/batch.h"

#include <sched.h>
#include <time.h>

/* Empty polls between two looks at the clock, after which the processor is offered to others. */
#define POLLS_PER_YIELD 64u

int nupa_batch_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t n, uint32_t *posted)
{
	struct ibv_send_wr *bad = NULL;

	*posted = 0;
	if (n == 0)
		return 0;
	for (uint32_t i = 0; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	wr[n - 1].next = NULL;
	int rc = nupa_post_send(qp, wr, &bad);
	*posted = rc ? (uint32_t)(bad - wr) : n;
	return rc;
}

static void link_recvs(struct ibv_recv_wr *wr, uint32_t n)
{
	for (uint32_t i = 0; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	wr[n - 1].next = NULL;
}

int nupa_batch_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, uint32_t n, uint32_t *posted)
{
	struct ibv_recv_wr *bad = NULL;

	*posted = 0;
	if (n == 0)
		return 0;
	link_recvs(wr, n);
	int rc = nupa_post_recv(qp, wr, &bad);
	*posted = rc ? (uint32_t)(bad - wr) : n;
	return rc;
}

int nupa_batch_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, uint32_t n,
			     uint32_t *posted)
{
	struct ibv_recv_wr *bad = NULL;

	*posted = 0;
	if (n == 0)
		return 0;
	link_recvs(wr, n);
	int rc = nupa_post_srq_recv(srq, wr, &bad);
	*posted = rc ? (uint32_t)(bad - wr) : n;
	return rc;
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int nupa_batch_poll(struct ibv_cq *cq, uint32_t at_least, uint32_t n, struct ibv_wc *wc,
		    uint64_t timeout_ns)
{
	uint64_t start_ns = 0;
	uint32_t found = 0;
	uint32_t empty = 0;

	if (n > INT32_MAX)
		n = INT32_MAX;
	for (;;) {
		int got = nupa_poll_cq(cq, (int)(n - found), wc + found);

		if (got < 0)
			return found ? (int)found : got;
		found += (uint32_t)got;
		if (found >= at_least || found == n)
			return (int)found;
		if (got > 0 || ++empty % POLLS_PER_YIELD != 0)
			continue;
		uint64_t now_ns = monotonic_ns();

		if (start_ns == 0)
			start_ns = now_ns;
		if (now_ns - start_ns >= timeout_ns)
			return (int)found;
		sched_yield();
	}
}
