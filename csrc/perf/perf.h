/* SPDX-License-Identifier: BSD-3-Clause
 * The loops of `nupa perf`, in C because a loop in Python would measure Python.  They are latency
 * of one operation at a time, bandwidth with a queue kept full, and the peer's part of each. */
#ifndef NUPA_PERF_H
#define NUPA_PERF_H

#include "engine/core/nupa.h"

/* cffi: begin */
enum nupa_perf_operation {
	NUPA_PERF_WRITE,
	NUPA_PERF_READ,
	NUPA_PERF_SEND,
	NUPA_PERF_ATOMIC, /* FETCH_AND_ADD of 1 */
};

/* One end of a measurement.  Both ends have the same operation, sizes and counts.
 * `inbox` is the target of the peer's WRITEs and SENDs (UD: behind a GRH) and of this end's READs.
 * `outbox` has the data written, sent or offered to READs, and the results of atomics. */
struct nupa_perf {
	/* The caller sets these ... */
	struct ibv_qp *qp;            /* in RTS */
	struct ibv_cq *cq;            /* of both queues */
	struct ibv_ah *ah;            /* UD: of the peer; else NULL */
	uint32_t peer_qpn, peer_qkey; /* UD */
	enum nupa_perf_operation operation;
	uint8_t *outbox, *inbox;
	uint32_t lkey;
	uint32_t receive_bytes; /* room for a receive, from inbox on */
	uint64_t peer_addr;     /* of the peer's inbox; READ: of its outbox */
	uint32_t peer_rkey;
	uint32_t size_bytes;
	uint32_t inline_bytes; /* messages up to here are posted inline */
	uint32_t depth;        /* work requests outstanding, at most */
	uint32_t receives;     /* that each end has posted */
	uint64_t iterations;
	uint64_t stall_ns; /* without any progress for so long: -ETIMEDOUT */
	uint64_t limit_ns; /* for one call: -ETIME */
	/* ... and the calls these. */
	enum ibv_wc_status status; /* of the work request that failed: -EIO */
	uint64_t posted, completed, received;
	uint64_t elapsed_ns; /* from the first post to the last completion */
	double tick_ns;      /* nupa_perf_latency: the unit of its ticks */
	uint64_t unchecked_bytes, progress, progress_ns, end_ns;
	uint32_t receive_length; /* that each receive has to have; else -EBADMSG */
};

struct nupa_perf_summary {
	double min_us, typical_us, mean_us, p99_us, p99_9_us, max_us; /* typical: the median */
};

/* All return 0 or a negative errno: those named above, that of a rejected post, and -EBADMSG where
 * data is not as expected. */

/* Posts the receives; once, before the peer starts. */
int nupa_perf_prepare(struct nupa_perf *perf);

/* One operation at a time.  active: the end that starts and takes the time.  ticks[i], of
 * 0 .. iterations, is when operation i was posted.  WRITE and SEND are answered by the other
 * end, which calls this too; READ and ATOMIC do not need it there. */
int nupa_perf_latency(struct nupa_perf *perf, int active, uint64_t *ticks);

/* Sorts the times between ticks[0 .. n] into their order, in place; each is divided by *trips*. */
int nupa_perf_summarise(uint64_t *ticks, uint64_t n, double tick_ns, uint32_t trips,
			struct nupa_perf_summary *summary);

/* *depth* operations at a time.  The sink is called at the other end of SENDs, and of unreliable
 * WRITEs (nupa_perf_confirms), whose completions do not confirm their arrival. */
int nupa_perf_source(struct nupa_perf *perf);
int nupa_perf_sink(struct nupa_perf *perf);
int nupa_perf_confirms(const struct nupa_perf *perf);
/* cffi: end */

#endif
