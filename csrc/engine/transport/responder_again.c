/* SPDX-License-Identifier: BSD-3-Clause
 * Duplicates at the responder (IBTA 9.7.5.1.5).  A READ is executed again, as its answer, or part
 * of it, was lost.  An atomic is not: its original value is answered again. */
#include "engine/transport/responder.h"

#include <stdlib.h>

bool nupa_responder_may_answer(struct nupa_qp *qp)
{
	if (unlikely(!qp->answers))
		qp->answers = calloc(1, sizeof(*qp->answers));
	return qp->answers != NULL;
}

/* No more atomics wait for answers than this. */
void nupa_responder_remember(struct nupa_qp *qp, const struct nupa_job *job)
{
	qp->answers->given[qp->n_answers++ % NUPA_RD_ATOMIC_MAX] =
	    (struct nupa_answer){ job->psn, job->raddr };
}

static const struct nupa_answer *find_answer(const struct nupa_qp *qp, uint32_t psn)
{
	for (uint32_t i = 1; i <= NUPA_RD_ATOMIC_MAX && i <= qp->n_answers; i++) {
		const struct nupa_answer *answer =
		    &qp->answers->given[(qp->n_answers - i) % NUPA_RD_ATOMIC_MAX];

		if (answer->psn == psn)
			return answer;
	}
	return NULL;
}

/* The place of the answer to this PSN among those to be sent, which go in the order of their
 * requests.  *there: it is one of them. */
static uint32_t place_of(const struct nupa_qp *qp, uint32_t psn, bool *there)
{
	uint32_t at = qp->jobs_head;
	int32_t behind = 1;

	while (at != qp->jobs_tail &&
	       (behind = nupa_psn_diff(nupa_responder_job(qp, at)->psn, psn)) < 0)
		at++;
	*there = at != qp->jobs_tail && behind == 0;
	return at;
}

static void add_job(struct nupa_qp *qp, const struct nupa_job *again)
{
	bool there;
	uint32_t at = place_of(qp, again->psn, &there);
	struct nupa_job *job = nupa_responder_job(qp, at);

	if (there) { /* it begins anew */
		bool was_given = job->again;

		*job = *again;
		job->again = was_given;
		return;
	}
	if (qp->jobs_tail - qp->jobs_head == NUPA_RD_ATOMIC_MAX)
		return; /* asked for long ago: not awaited */
	for (uint32_t i = qp->jobs_tail++; i != at; i--) {
		*nupa_responder_job(qp, i) = *nupa_responder_job(qp, i - 1);
		nupa_responder_job(qp, i)->sent_bytes = 0;
	}
	*job = *again;
	if (nupa_list_empty(&qp->job_link))
		nupa_list_add(&qp->engine->reading, &qp->job_link);
}

void nupa_responder_answer_again(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_job job = { .psn = msg->psn, .again = true };
	const struct nupa_answer *answer = NULL;

	if (msg->op == NUPA_OP_ATOMIC)
		answer = find_answer(qp, msg->psn);
	/* An atomic that is forgotten is not awaited any more.  Nor is a READ while a SEND is on
	 * its way: a SEND begins when the READ's data has come. */
	if (qp->recv_active || (msg->op == NUPA_OP_ATOMIC && !answer) ||
	    (unlikely(qp->xrc) && !nupa_xrc_bind_again(qp, msg)) || !nupa_responder_may_answer(qp))
		return;
	if (answer) {
		job.is_atomic = true;
		job.raddr = answer->original;
	} else {
		job.rkey = msg->reth.rkey;
		job.raddr = msg->reth.raddr;
		job.total_bytes = msg->reth.total_bytes;
	}
	add_job(qp, &job);
	nupa_responder_run_jobs(qp);
}
