/* SPDX-License-Identifier: BSD-3-Clause
 * Polling completion queues, and waiting for their events: the program's thread runs the engine. */
#include "engine/core/lane.h"
#include "engine/device/device.h"

#include <sched.h>
#include <time.h>

/* How many lines an empty poll looks at before it gives up the lock, some of them again.  A look
 * costs a few nanoseconds, a return through the program ten times that. */
#define LINES_OF_A_POLL 3u

/* Polls without asking for a notification that make a program a spinning one. */
#define SPINNING_POLLS 64u

/* So often a program that spins reviews which rings it looks at: after some milliseconds.  To leave
 * one costs a membarrier, which interrupts other processors. */
#define REVIEW_POLLS (1u << 18)

/* Empty polls before a polling program lets others run: two of them on one core must both get on.
 */
#define IDLE_POLLS_MAX 2000u
#define IDLE_POLLS_BETWEEN_YIELDS 500u

/* Empty polls before a program whose requests all wait for their rate sleeps, and for how long. */
#define IDLE_POLLS_BEFORE_NAP 32u
#define NAP_MAX_NS 200000u
#define NAP_FOR_TRUNK_NS 50000 /* a full ring is work for longer */

static struct nupa_cq *cq_of(struct ibv_cq *ibv)
{
	return container_of(ibv, struct nupa_cq, ibv);
}

/* --- events -------------------------------------------------------------------------- */

int nupa_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **out, void **cq_context)
{
	struct nupa_comp_channel *channel = container_of(ibv, struct nupa_comp_channel, ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	struct nupa_cq *cq = NULL;
	uint64_t count;

	nupa_engine_lock(engine);
	nupa_engine_flush(engine);
	nupa_port_takes_over(engine);
	if (unlikely(engine->recorder))
		nupa_record_wait(engine->recorder, false);
	nupa_engine_unlock(engine);
	/* An event may have gone with its CQ between fd and list: then wait for the next. */
	while (!cq) {
		if (read(ibv->fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
			return -1;
		nupa_engine_lock(engine);
		if (!nupa_list_empty(&channel->cqs)) {
			cq = container_of(channel->cqs.next, struct nupa_cq, event_link);
			nupa_list_del(&cq->event_link);
			cq->events_got++;
			if (--cq->events_pending)
				nupa_list_add(&channel->cqs, &cq->event_link);
		}
		nupa_engine_unlock(engine);
	}
	*out = &cq->ibv;
	*cq_context = cq->ibv.cq_context;
	return 0;
}

void nupa_cq_arm(struct nupa_engine *engine, struct nupa_cq *cq, bool solicited_only)
{
	if (cq->arm != NUPA_ARM_NEXT) /* the wider request stands */
		cq->arm = solicited_only ? NUPA_ARM_SOLICITED : NUPA_ARM_NEXT;
	if (unlikely(cq->notes & NUPA_CQ_TRACED))
		nupa_trace_doorbell(engine, NUPA_QUEUE_CQ, cq->ibv.handle, cq->head,
				    solicited_only);
}

int nupa_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	/* IBTA 11.4.2.2: only what is added from now on is told of.  All that has arrived counts as
	 * before; otherwise most events of a program that arms and then polls would be stale. */
	nupa_engine_progress(engine);
	nupa_engine_flush(engine);
	nupa_port_takes_over(engine);
	nupa_cq_arm(engine, cq_of(ibv), solicited_only != 0);
	nupa_engine_unlock(engine);
	return 0;
}

/* --- completions --------------------------------------------------------------------- */

static void fill_wc(struct ibv_wc *wc, const struct nupa_cqe *cqe)
{
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->imm_data = cqe->imm; /* shares its place with invalidated_rkey */
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	wc->wc_flags = cqe->wc_flags;
	wc->pkey_index = cqe->pkey_index;
	wc->slid = cqe->slid;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = 0;
}

/* All that the program sends waits for its rate: others have better use for the processor.  False:
 * it is not so. */
static bool nap(struct nupa_engine *engine)
{
	uint64_t until_ns = nupa_pace_idle_until_ns(engine), now_ns = engine->now_ns();
	struct timespec time = { 0 };

	if (until_ns <= now_ns)
		return false;
	time.tv_nsec = until_ns - now_ns < NAP_MAX_NS ? (long)(until_ns - now_ns) : NAP_MAX_NS;
	nupa_engine_unlock(engine);
	nanosleep(&time, NULL);
	nupa_engine_lock(engine);
	return true;
}

/* What waits for room in a ring to another machine needs the processor for the trunk. */
static bool waits_for_trunk(const struct nupa_engine *engine)
{
	const struct nupa_qp *qp = container_of(engine->waiting.next, struct nupa_qp, wait_link);

	return qp->wait == NUPA_WAIT_RING && qp->channel && qp->channel->trunked;
}

static void leave_it_to_the_trunk(struct nupa_engine *engine)
{
	const struct timespec time = { .tv_nsec = NAP_FOR_TRUNK_NS };

	nupa_engine_unlock(engine);
	nanosleep(&time, NULL);
	nupa_engine_lock(engine);
}

/* An empty poll. */
static void poll_idle(struct nupa_engine *engine)
{
	if (unlikely(!nupa_list_empty(&engine->waiting)) && waits_for_trunk(engine)) {
		leave_it_to_the_trunk(engine);
		return;
	}
	if (unlikely(engine->rates) && engine->idle_polls >= IDLE_POLLS_BEFORE_NAP && nap(engine))
		return;
	if (++engine->idle_polls < IDLE_POLLS_MAX)
		return;
	engine->idle_polls -= IDLE_POLLS_BETWEEN_YIELDS;
	nupa_engine_unlock(engine);
	sched_yield();
	nupa_engine_lock(engine);
}

/* A turn changes it. */
static uint32_t lines_looked_at(const struct nupa_engine *engine)
{
	return nupa_engine_looks_at_some(engine) ? engine->n_hot : engine->n_attended;
}

/* The engine runs in the thread that polls (engine.h I2). */
void nupa_cq_drive(struct nupa_engine *engine, struct nupa_cq *cq)
{
	if (unlikely(engine->recorder))
		nupa_record_wait(engine->recorder, true);
	nupa_store_relaxed(&engine->polls, engine->polls + 1);
	cq->found_empty = cq->tail;
	if (unlikely(++engine->polls_in_row == SPINNING_POLLS) &&
	    !nupa_load_relaxed(&engine->app_drives))
		nupa_port_app_drives(engine);
	if (unlikely(engine->polls % REVIEW_POLLS == 0))
		nupa_attention_review(engine);
	if (engine->polls_in_row > SPINNING_POLLS * 2)
		engine->polls_in_row = 0;
	if (unlikely(!nupa_list_empty(&engine->backlogs))) {
		nupa_backlog_run(engine, cq);
		if (cq->head != cq->tail)
			return; /* these first: a backlog that is worked off does not grow */
	}
	for (uint32_t lines = 0, n; lines < LINES_OF_A_POLL; lines += n ? n : 1) {
		n = lines_looked_at(engine);
		if (lines && !nupa_engine_lines_ready(engine, n))
			continue;
		if (nupa_engine_turn(engine)) {
			engine->idle_polls = 0;
			return;
		}
	}
	if (unlikely(engine->next || nupa_load_relaxed(&nupa_engines) != engine))
		nupa_engine_progress_siblings(engine);
	if (cq->head == cq->tail)
		poll_idle(engine);
}

int nupa_cq_take(struct nupa_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = 0;

	while (n < num_entries && cq->head != cq->tail)
		fill_wc(&wc[n++], &cq->ring[cq->head++ & cq->mask]);
	return n;
}

/* An empty poll in a lane. */
static void poll_idle_in_lane(struct nupa_engine *engine, struct nupa_lane *lane)
{
	lane->idle_polls++;
	if (lane->idle_polls % SPINNING_POLLS == 0) /* the port thread sees it */
		nupa_store_relaxed(&engine->polls, nupa_load_relaxed(&engine->polls) + 1);
	if (lane->idle_polls < IDLE_POLLS_MAX)
		return;
	lane->idle_polls -= IDLE_POLLS_BETWEEN_YIELDS;
	sched_yield();
}

/* Polls without the lock; -1: it takes the lock. */
static int poll_in_lane(struct nupa_engine *engine, struct nupa_cq *cq, int num_entries,
			struct ibv_wc *wc)
{
	struct nupa_lane *lane = nupa_load_relaxed(&cq->lane);
	bool idle = false;
	int n = -1;

	if (!nupa_lane_enter(engine, lane))
		return -1;
	if (likely(cq->lane == lane && !cq->notes && !cq->overrun)) {
		n = nupa_cq_take(cq, num_entries, wc);
		idle = !n && nupa_engine_is_idle(engine);
	}
	nupa_lock_leave();
	if (n > 0) {
		lane->idle_polls = 0;
		return n;
	}
	if (!idle)
		return -1;
	poll_idle_in_lane(engine, lane);
	return 0;
}

int nupa_poll_cq(struct ibv_cq *ibv, int num_entries, struct ibv_wc *wc)
{
	struct nupa_cq *cq = cq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(ibv->context);
	int n;

	if (unlikely(!nupa_lock_acquire_unless_shared(&engine->lock))) {
		n = poll_in_lane(engine, cq, num_entries, wc);
		if (n >= 0)
			return n;
		nupa_engine_lock(engine);
	}
	if (cq->head == cq->tail)
		nupa_cq_drive(engine, cq);
	n = nupa_cq_take(cq, num_entries, wc);
	if (unlikely(n > 0 && cq->notes & NUPA_CQ_RECORDED))
		nupa_record_taken(engine->recorder, cq, cq->head - (uint64_t)n);
	if (unlikely(n == 0 && cq->overrun))
		n = -1;
	nupa_engine_unlock(engine);
	return n;
}
