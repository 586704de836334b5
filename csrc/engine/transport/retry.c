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
	uint64_t ns = UINT64_C(4096) << qp->attr.timeout;

	return ns > TIMEOUT_MIN_NS ? ns : TIMEOUT_MIN_NS;
}

struct nupa_qp_faults *nupa_qp_faults(struct nupa_qp *qp)
{
	if (qp->faults)
		return qp->faults;
	qp->faults = calloc(1, sizeof(*qp->faults));
	if (!qp->faults)
		abort(); /* a timer that does not run would be a hung QP */
	qp->faults->qp = qp;
	nupa_list_init(&qp->faults->retry_link);
	nupa_list_init(&qp->faults->stuck_link);
	return qp->faults;
}

static void start(struct nupa_qp *qp)
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
static uint64_t oldest(struct nupa_qp *qp)
{
	uint64_t i = qp->sq.acked;

	while (i != qp->sq.issued && nupa_sq_wqe(&qp->sq, i)->state == NUPA_WQE_DONE)
		i++;
	return i;
}

void nupa_retry_sent(struct nupa_qp *qp)
{
	if (!qp->retrying || oldest(qp) == qp->sq.issued - 1)
		start(qp);
	nupa_qp_faults(qp)->retry_tail = qp->channel->tx.tail;
}

void nupa_retry_progress(struct nupa_qp *qp)
{
	qp->went_back = false;
	if (qp->retrying)
		start(qp);
}

void nupa_retry_begin(struct nupa_qp *qp)
{
	if (qp->type == IBV_QPT_RC && oldest(qp) != qp->sq.issued)
		nupa_retry_sent(qp);
}

void nupa_retry_end(struct nupa_qp *qp)
{
	/* One that is being sent in parts counts. */
	nupa_qp_faults(qp)->retry_end = qp->sq.issued + 1;
}

static bool in_ring(const struct nupa_qp *qp)
{
	struct nupa_channel *channel = qp->channel;

	(void)nupa_tx_drained(&channel->tx);
	/* Or the answer in its one, where a fault keeps it. */
	return channel->tx.head_seen < qp->faults->retry_tail ||
	       (channel->gated && nupa_channel_ready(channel));
}

static void expire(struct nupa_qp *qp)
{
	uint64_t index = oldest(qp);
	bool lies_in_ring;

	if (index == qp->sq.issued || !qp->channel || qp->channel->broken ||
	    (!qp->channel->faulty && index >= qp->faults->retry_end) ||
	    (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)) {
		nupa_retry_stop(qp);
		return;
	}
	lies_in_ring = in_ring(qp);
	if (lies_in_ring && !qp->channel->timed) { /* I7 */
		start(qp);
		return;
	}
	nupa_count(&qp->engine->hw->local_ack_timeout_err, 1);
	if (lies_in_ring && qp->psn_retries_left) {
		qp->psn_retries_left--;
		start(qp);
		return;
	}
	if (!nupa_requester_go_back(qp, index))
		return;
	qp->went_back = false; /* a NAK of that pass is as good as the first one was */
	start(qp);
	nupa_requester_run(qp);
}

uint64_t nupa_retry_run(struct nupa_engine *engine, uint64_t now_ns)
{
	struct nupa_list *list = &engine->faults->retries;
	struct nupa_list *at = list->next;
	uint64_t next_ns = UINT64_MAX;

	while (at != list) {
		const struct nupa_qp_faults *faults =
		    container_of(at, struct nupa_qp_faults, retry_link);

		if (now_ns >= faults->retry_at_ns) {
			expire(faults->qp); /* may take others off the list; none is due twice */
			at = list->next;
			next_ns = UINT64_MAX;
			continue;
		}
		next_ns = faults->retry_at_ns < next_ns ? faults->retry_at_ns : next_ns;
		at = at->next;
	}
	return next_ns;
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
