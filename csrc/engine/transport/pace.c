/* SPDX-License-Identifier: BSD-3-Clause
 * QPs with a rate: of their tenant, their partition, or their host as a member of it; or, by a
 * wire, the one to which congestion slows them down.
 *
 *   I12  While a QP is `rated`, the express lane is closed to it.  Bytes are booked where a message
 *        is reserved or a piece is copied, and go when their turn comes.
 *   I13  The sender waits, before anything is in the ring.  So no other QP waits with it, and no
 *        timer of an answer runs.
 *   I14  The host whose memory is read sends a READ's bytes.  The requester books them if it copies
 *        them itself, the responder if they go by messages. */
#include "engine/rate/rate.h"
#include "engine/transport/congestion.h"
#include "engine/transport/responder.h"
#include "engine/transport/sq.h"
#include "segment/control/pkey.h"

#include <stdlib.h>

struct nupa_qp_rate {
	struct nupa_pace out;     /* requests */
	struct nupa_pace in;      /* what READs fetch */
	struct nupa_pace answers; /* responses, as `out` but booked apart */
};

#define HEADERS_BYTES 78u /* Ethernet, IPv4, UDP, BTH, RETH, ICRC */

static bool is_slow(const struct nupa_qp *qp)
{
	return qp->congestion && qp->congestion->slow;
}

static struct nupa_qp_rate *rate_of(struct nupa_qp *qp)
{
	if (!qp->rate)
		qp->rate = calloc(1, sizeof(*qp->rate));
	if (!qp->rate)
		abort(); /* a QP that keeps no rate would take what is others' */
	return qp->rate;
}

void nupa_pace_look(struct nupa_qp *qp)
{
	const struct nupa_engine *engine = qp->engine;
	struct nupa_pace out, in = { 0 };
	uint16_t pkey;

	if (likely(!engine->rates))
		return;
	pkey = nupa_pkey_at(engine->fabric, engine->host, qp->attr.pkey_index);
	nupa_pace_find(engine, engine->host, pkey, &out);
	if (qp->type == IBV_QPT_RC)
		nupa_pace_find(engine, qp->dest_host, pkey, &in);
	qp->rated = out.n || in.n || is_slow(qp);
	if (qp->rated || qp->rate) {
		struct nupa_qp_rate *rate = rate_of(qp);

		rate->out = rate->answers = out;
		rate->in = in;
	}
	nupa_qp_unsettle(qp);
	if (qp->wait == NUPA_WAIT_RATE) { /* booked by what was: it books anew */
		qp->wait_until_ns = 0;
		nupa_sq_wait_anew(qp);
	}
}

void nupa_pace_follow(struct nupa_engine *engine)
{
	if (!nupa_rate_follow(engine))
		return; /* no memory: the setter of the rate waits in vain */
	for (uint32_t i = 0; engine->rates && engine->qps && i < engine->qp_limit; i++)
		if (engine->qps[i])
			nupa_pace_look(engine->qps[i]);
	nupa_rate_say_seen(engine);
}

uint32_t nupa_pace_piece_bytes(const struct nupa_qp *qp)
{
	return qp->rate ? qp->rate->out.piece_bytes : UINT32_MAX;
}

static bool may_go(struct nupa_qp *qp, struct nupa_pace *pace, uint64_t bytes)
{
	uint64_t now_ns = qp->engine->now_ns();
	uint64_t due_ns = nupa_pace_due_ns(pace, bytes, now_ns);

	if (!due_ns)
		return true;
	nupa_sq_wait(qp, NUPA_WAIT_RATE, now_ns, due_ns - now_ns);
	return false;
}

/* When congestion on the way lets so many bytes go; 0: now. */
static uint64_t congestion_due_ns(struct nupa_qp *qp, uint64_t bytes, uint64_t now_ns)
{
	uint64_t due_ns;

	if (!is_slow(qp))
		return 0;
	due_ns = nupa_congestion_due_ns(qp->congestion, bytes + HEADERS_BYTES, now_ns);
	if (!is_slow(qp))
		qp->rated = qp->rate && (qp->rate->out.n || qp->rate->in.n);
	return due_ns;
}

bool nupa_pace_request(struct nupa_qp *qp, uint64_t bytes)
{
	const uint64_t now_ns = qp->engine->now_ns();
	uint64_t due_ns;

	if (qp->rate && !may_go(qp, &qp->rate->out, bytes))
		return false;
	due_ns = congestion_due_ns(qp, bytes, now_ns);
	if (!due_ns)
		return true;
	if (qp->rate)
		nupa_pace_keep(&qp->rate->out, bytes);
	nupa_sq_wait(qp, NUPA_WAIT_RATE, now_ns, due_ns - now_ns);
	return false;
}

/* run_jobs comes again by the engine's timer for answers that are owed. */
bool nupa_pace_answer(struct nupa_qp *qp, uint64_t bytes)
{
	const uint64_t now_ns = qp->engine->now_ns();

	if (qp->rate && nupa_pace_due_ns(&qp->rate->answers, bytes, now_ns))
		return false;
	if (!congestion_due_ns(qp, bytes, now_ns))
		return true;
	if (qp->rate)
		nupa_pace_keep(&qp->rate->answers, bytes);
	return false;
}

struct nupa_congestion *nupa_pace_congestion(struct nupa_qp *qp)
{
	if (!qp->congestion)
		qp->congestion = calloc(1, sizeof(*qp->congestion));
	return qp->congestion;
}

void nupa_pace_slow_down(struct nupa_qp *qp, uint64_t first)
{
	if (!nupa_pace_congestion(qp))
		return;
	nupa_congestion_notified(qp->congestion, qp->engine->now_ns(), first);
	qp->rated = true;
	nupa_qp_unsettle(qp);
}

/* The spans of [from, +bytes); returns how many. */
static uint32_t cut(const struct nupa_span *spans, uint32_t n_spans, uint64_t from, uint64_t bytes,
		    struct nupa_span *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_spans && bytes; i++) {
		uint64_t length;

		if (from >= spans[i].bytes) {
			from -= spans[i].bytes;
			continue;
		}
		length = spans[i].bytes - from < bytes ? spans[i].bytes - from : bytes;
		out[n++] = (struct nupa_span){ (uint8_t *)spans[i].va + from, length };
		bytes -= length;
		from = 0;
	}
	return n;
}

enum nupa_direct nupa_pace_direct(struct nupa_qp *qp, struct nupa_wqe *wqe,
				  const struct nupa_span *spans, uint32_t n_spans)
{
	struct nupa_pace *pace = wqe->opcode == IBV_WR_RDMA_READ ? &qp->rate->in : &qp->rate->out;

	if (!wqe->moved_bytes) /* it has begun, and may be taken back: then by messages */
		wqe->first_psn = wqe->last_psn = qp->next_psn;
	do {
		uint32_t left = wqe->length_bytes - wqe->moved_bytes;
		uint32_t bytes = left < pace->piece_bytes || !pace->n ? left : pace->piece_bytes;
		struct nupa_span piece[NUPA_SGE_MAX];
		enum nupa_direct result;
		uint32_t n_piece;

		if (!may_go(qp, pace, bytes))
			return NUPA_DIRECT_WAITS;
		n_piece = cut(spans, n_spans, wqe->moved_bytes, bytes, piece);
		result =
		    nupa_mover_direct(qp->engine, qp, wqe, piece, n_piece, wqe->moved_bytes, bytes);
		if (result != NUPA_DIRECT_DONE) {
			nupa_pace_keep(pace, bytes);
			return result;
		}
		wqe->moved_bytes += bytes;
	} while (wqe->moved_bytes < wqe->length_bytes);
	return NUPA_DIRECT_DONE;
}

uint64_t nupa_pace_idle_until_ns(const struct nupa_engine *engine)
{
	const struct nupa_heap_item *first = engine->paced.top;

	if (!first || engine->timed.top || !nupa_list_empty(&engine->waiting))
		return 0;
	return container_of(first, struct nupa_qp, wait_item)->wait_until_ns;
}
