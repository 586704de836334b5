/* SPDX-License-Identifier: BSD-3-Clause
 * Responses to READs and atomics: jobs, sent as far as the channel has room.
 *
 * Duplicates (IBTA 9.7.5.1.5): a READ is executed again, because its response, or a part of it, was
 * lost.  An atomic is executed once; its original value is sent again. */
#include "engine/transport/responder.h"

#include <stdlib.h>

bool nupa_responder_may_answer(struct nupa_qp *qp)
{
	if (unlikely(!qp->answers))
		qp->answers = calloc(1, sizeof(*qp->answers));
	return qp->answers != NULL;
}

bool nupa_responder_add_job(struct nupa_qp *qp, const struct nupa_job *job)
{
	if (qp->jobs_tail - qp->jobs_head == NUPA_RD_ATOMIC_MAX) {
		if (!nupa_responder_job(qp, qp->jobs_head)->again) {
			nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
			return false;
		}
		qp->jobs_head++; /* a requester that asks for more has that answer */
	}
	*nupa_responder_job(qp, qp->jobs_tail++) = *job;
	if (nupa_list_empty(&qp->job_link))
		nupa_list_add(&qp->engine->reading, &qp->job_link);
	return true;
}

/* The oldest cannot be answered, so none behind it is. */
static void drop_jobs(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	nupa_responder_expect(qp, nupa_responder_job(qp, qp->jobs_head)->psn);
	qp->jobs_head = qp->jobs_tail;
	nupa_list_del(&qp->job_link);
	nupa_responder_nak_fatal(qp, syndrome);
}

/* The region is gone.  The answer is a repeated one, which the requester most likely does not
 * need. */
static bool drop_again(struct nupa_qp *qp, const struct nupa_job *job)
{
	if (!job->again)
		return false;
	qp->jobs_head++;
	return true;
}

/* Of its response: all of them are full. */
static uint32_t packets_before(const struct nupa_qp *qp, const struct nupa_job *job)
{
	return job->sent_bytes ? nupa_packets(job->sent_bytes, nupa_qp_mtu_bytes(qp)) : 0;
}

/* Sends responses as far as the channel has room. */
void nupa_responder_run_jobs(struct nupa_qp *qp)
{
	if (!qp->channel || qp->channel->broken)
		qp->jobs_head = qp->jobs_tail; /* no requester waits */
	while (qp->jobs_head != qp->jobs_tail) {
		struct nupa_job *job = nupa_responder_job(qp, qp->jobs_head);
		struct nupa_channel *channel = qp->channel;
		uint32_t left = job->total_bytes - job->sent_bytes;
		uint32_t chunk_max = nupa_part_bytes(qp);
		uint32_t chunk = left < chunk_max ? left : chunk_max;
		struct nupa_msg *msg;
		uint8_t *payload = NULL, *source = NULL;
		bool on_demand = false;

		/* Looked up for each part: the region may go away in between. */
		if (chunk &&
		    !(source = nupa_mr_remote(qp, job->rkey, job->raddr + job->sent_bytes, chunk,
					      IBV_ACCESS_REMOTE_READ, &on_demand))) {
			if (drop_again(qp, job))
				continue;
			nupa_mr_explain_remote(qp, job->rkey, job->raddr + job->sent_bytes, chunk,
					       IBV_ACCESS_REMOTE_READ);
			drop_jobs(qp, NUPA_NAK_REMOTE_ACCESS);
			return;
		}
		if (unlikely(chunk && !channel->dma_backed) &&
		    nupa_channel_back_dma(qp->engine, channel)) {
			drop_jobs(qp, NUPA_NAK_REMOTE_OPERATION);
			return;
		}
		msg = nupa_responder_reserve(qp->engine, channel, chunk, &payload);
		if (!msg || (unlikely(qp->rated) && !nupa_pace_answer(qp, chunk)))
			return;
		msg->op = job->is_atomic ? NUPA_OP_ATOMIC_RESP : NUPA_OP_READ_RESP;
		msg->flags = chunk ? NUPA_F_DMA : 0;
		msg->dest_qpn = qp->dest_qpn;
		msg->src_qpn = qp->ibv.qp_num;
		msg->psn = nupa_psn_of(qp->peer_incarnation, job->psn);
		if (unlikely(channel->wired))
			msg->psn = nupa_psn_add(job->psn, packets_before(qp, job));
		msg->length_bytes = chunk;
		msg->syndrome = job->is_bare ? NUPA_ATOMIC_BARE : 0;
		msg->original = job->raddr;
		msg->total_bytes = job->total_bytes;
		msg->offset_bytes = job->sent_bytes;
		if (chunk && !nupa_responder_copy(payload, source, chunk, on_demand)) {
			if (drop_again(qp, job))
				continue;
			drop_jobs(qp, NUPA_NAK_REMOTE_OPERATION);
			return;
		}
		nupa_channel_publish(channel, msg, chunk);
		job->sent_bytes += chunk;
		if (job->sent_bytes == job->total_bytes)
			qp->jobs_head++;
	}
	nupa_list_del(&qp->job_link);
}

/* --- duplicates ---------------------------------------------------------------------- */

/* No more atomics wait for answers than this. */
void nupa_responder_remember(struct nupa_qp *qp, const struct nupa_job *job)
{
	qp->answers->given[qp->n_answers++ % NUPA_RD_ATOMIC_MAX] =
	    (struct nupa_answer){ job->psn, job->is_bare, job->raddr };
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
 * requests.  Sets *there if it is one of them. */
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

static void add_again(struct nupa_qp *qp, const struct nupa_job *again)
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
	/* An atomic that is forgotten is not awaited any more.  By a wire a SEND may be on its way
	 * though a READ before it has to be answered again; the target of XRC has one SRQ at a
	 * time, and its requesters, which are NUPA's, wait for the READ's data. */
	if ((msg->op == NUPA_OP_ATOMIC && !answer) ||
	    (unlikely(qp->xrc) && (qp->recv_active || !nupa_xrc_bind_again(qp, msg))) ||
	    !nupa_responder_may_answer(qp))
		return;
	if (answer) {
		job.is_atomic = true;
		job.is_bare = answer->is_bare;
		job.raddr = answer->original;
	} else {
		job.rkey = msg->reth.rkey;
		job.raddr = msg->reth.raddr;
		job.total_bytes = msg->reth.total_bytes;
	}
	add_again(qp, &job);
	nupa_responder_run_jobs(qp);
}
