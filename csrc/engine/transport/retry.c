/* SPDX-License-Identifier: BSD-3-Clause
 * The requester's retransmission timer (IBTA 9.7.6.1.3).  It runs only where messages may be lost:
 * for requests on a path with a fault (fault.h F3).
 *
 *   I6  A repeated request has the shape, and so the PSNs, that it had the first time (struct
 *       nupa_wqe.by_message, pulled): the responder may have executed any of it.
 *   I7  A message in a ring is not lost: the timer waits until the peer has taken it.  Under a
 *       fault of kind TIMEOUT it does not wait; but messages in the ring are not repeated. */
#include "engine/transport/sq.h"

#include <stdlib.h>

/* Shorter timeouts would measure the scheduler; adapters have such a limit as well. */
#define TIMEOUT_MIN_NS UINT64_C(1000000)

static uint64_t timeout_ns(const struct nupa_qp *qp)
{
	const uint64_t ns = (UINT64_C(4096) << qp->attr.timeout) * nupa_retry_times(qp);

	return ns > TIMEOUT_MIN_NS ? ns : TIMEOUT_MIN_NS;
}

bool nupa_qp_has_faults(struct nupa_qp *qp)
{
	if (qp->faults)
		return true;
	qp->faults = calloc(1, sizeof(*qp->faults));
	if (!qp->faults)
		return false;
	qp->faults->qp = qp;
	nupa_list_init(&qp->faults->retry_link);
	nupa_list_init(&qp->faults->stuck_link);
	return true;
}

struct nupa_qp_faults *nupa_qp_faults(struct nupa_qp *qp)
{
	if (!nupa_qp_has_faults(qp))
		abort(); /* a timer that does not run would be a hung QP */
	return qp->faults;
}

void nupa_retry_start(struct nupa_qp *qp)
{
	struct nupa_qp_faults *faults = nupa_qp_faults(qp);
	struct nupa_engine *engine = qp->engine;

	if (!qp->attr.timeout) /* IBTA: none */
		return;
	if (!qp->retrying)
		nupa_list_add(&engine->faults->retries, &faults->retry_link);
	qp->retrying = true;
	faults->retry_at_ns = engine->now_ns() + timeout_ns(qp);
	nupa_fault_due(engine, faults->retry_at_ns);
}

void nupa_retry_stop(struct nupa_qp *qp)
{
	if (!qp->retrying)
		return;
	qp->retrying = false;
	nupa_list_del(&qp->faults->retry_link);
}

void nupa_retry_reset(struct nupa_qp *qp)
{
	nupa_retry_stop(qp);
	if (!qp->faults)
		return;
	qp->faults->retry_end = qp->faults->part_of = 0;
	qp->stuck = false;
	nupa_list_del(&qp->faults->stuck_link);
}

/* The oldest request that waits for an answer; `issued`: none does. */
uint64_t nupa_retry_oldest(struct nupa_qp *qp)
{
	uint64_t i = qp->sq.acked;

	while (i != qp->sq.issued && nupa_sq_wqe(&qp->sq, i)->state == NUPA_WQE_DONE)
		i++;
	return i;
}

void nupa_retry_sent(struct nupa_qp *qp)
{
	if (!qp->retrying || nupa_retry_oldest(qp) == qp->sq.issued - 1)
		nupa_retry_start(qp);
	nupa_qp_faults(qp)->retry_tail = qp->channel->tx.tail;
}

void nupa_retry_progress(struct nupa_qp *qp)
{
	qp->went_back = false;
	if (qp->retrying)
		nupa_retry_start(qp);
}

void nupa_retry_begin(struct nupa_qp *qp)
{
	if (qp->type == IBV_QPT_RC && nupa_retry_oldest(qp) != qp->sq.issued)
		nupa_retry_sent(qp);
}

void nupa_retry_end(struct nupa_qp *qp)
{
	/* One that is being sent in parts counts. */
	nupa_qp_faults(qp)->retry_end = qp->sq.issued + 1;
}

void nupa_fault_due(struct nupa_engine *engine, uint64_t at_ns)
{
	struct nupa_faults *faults = engine->faults;

	if (at_ns >= faults->next_ns)
		return;
	faults->next_ns = at_ns;
	engine->fault_duty = true;
	/* A port thread that sleeps did so by the timers of before. */
	if (nupa_load_relaxed(engine->bell))
		nupa_port_wake(engine);
}
