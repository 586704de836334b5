/* SPDX-License-Identifier: BSD-3-Clause
 * Send queues: how their requests wait for what they need, and how long.
 *
 * A sender of UC or UD waits for room as long as its peer takes messages.  So a process that is
 * slow or without a CPU core loses nothing.  The wait ends if the kernel says that the peer is
 * stopped, or it takes nothing for RING_PATIENCE_NS.  Until it takes a message again, messages
 * without room are lost at once.  An adapter would fill the receives of a stopped process, and lose
 * later messages; here the ring stands for the receives. */
#include "engine/rate/rate.h"
#include "engine/transport/sq.h"

/* How soon a peer QP that was not ready is asked again: doubled each time. */
#define PEER_RETRY_MIN_NS 20000u
#define PEER_RETRY_MAX_NS 2000000u

/* Turns of a program that spins for one look at the clock. */
#define LOOK_TURNS_MIN 8u
#define LOOK_TURNS_MAX 64u

/* How often a peer that has not opened its direction is asked again, and for how long at least. */
#define CONTACT_RETRY_NS 1000000u
#define CONTACT_MIN_NS UINT64_C(500000000)

/* As long as the timer and its repetitions take; 0: for ever. */
static uint64_t patience_ns(const struct nupa_qp *qp)
{
	return qp->timeout_ns * nupa_retry_times(qp);
}

/* When it is to be looked at again: a rate gives some time in advance. */
static uint64_t due_ns(const struct nupa_qp *qp)
{
	uint64_t until_ns = qp->wait_until_ns;

	if (qp->wait == NUPA_WAIT_RATE)
		return until_ns > NUPA_RATE_AHEAD_NS ? until_ns - NUPA_RATE_AHEAD_NS : 0;
	return qp->wait_deadline_ns && qp->wait_deadline_ns < until_ns ? qp->wait_deadline_ns
								       : until_ns;
}

static struct nupa_heap *heap_of(const struct nupa_qp *qp)
{
	return qp->wait == NUPA_WAIT_RATE ? &qp->engine->paced : &qp->engine->timed;
}

static void add_until(struct nupa_qp *qp, uint64_t key_ns)
{
	struct nupa_engine *engine = qp->engine;
	struct nupa_heap *heap = heap_of(qp);

	nupa_heap_add(heap, &qp->wait_item, key_ns);
	if (heap->top == &qp->wait_item && engine->turns_a_look > engine->turns + LOOK_TURNS_MIN)
		engine->turns_a_look = engine->turns + LOOK_TURNS_MIN;
}

/* Behind now, so that a turn which runs what is due ends. */
static void await_time(struct nupa_qp *qp, uint64_t now_ns)
{
	const uint64_t key = due_ns(qp);

	add_until(qp, key > now_ns ? key : now_ns + 1);
}

void nupa_sq_wait_anew(struct nupa_qp *qp)
{
	nupa_heap_del(heap_of(qp), &qp->wait_item);
	add_until(qp, due_ns(qp));
}

bool nupa_sq_wait(struct nupa_qp *qp, enum nupa_wait why, uint64_t now_ns, uint64_t delay_ns)
{
	nupa_qp_unsettle(qp);
	nupa_requester_end_wait(qp);
	if ((why == NUPA_WAIT_PEER || why == NUPA_WAIT_PATH) && !qp->wait_deadline_ns &&
	    qp->timeout_ns)
		qp->wait_deadline_ns = now_ns + patience_ns(qp);
	qp->wait = why;
	qp->wait_until_ns = now_ns + delay_ns;
	if (NUPA_WAITS_FOR_TIME >> why & 1)
		await_time(qp, now_ns);
	else
		nupa_list_add(&qp->engine->waiting, &qp->wait_link);
	/* A port thread that sleeps did so by the timers of before (under the lock: port_sleep). */
	if (unlikely(nupa_load_relaxed(qp->engine->bell)))
		nupa_port_wake(qp->engine);
	return false;
}

bool nupa_sq_wait_for_peer(struct nupa_qp *qp)
{
	uint64_t now_ns = qp->engine->now_ns();
	uint64_t started_ns =
	    qp->wait_deadline_ns ? qp->wait_deadline_ns - patience_ns(qp) : now_ns;
	uint64_t delay_ns = now_ns - started_ns; /* so far: the next pause doubles it */

	if (delay_ns < PEER_RETRY_MIN_NS)
		delay_ns = PEER_RETRY_MIN_NS;
	if (delay_ns > PEER_RETRY_MAX_NS)
		delay_ns = PEER_RETRY_MAX_NS;
	return nupa_sq_wait(qp, NUPA_WAIT_PEER, now_ns, delay_ns);
}

/* Without its direction of the channel the peer cannot answer: its process has not looked yet, or
 * has no memory for it.  An adapter would have been there: short timeouts do not count. */
void nupa_sq_wait_for_contact(struct nupa_qp *qp)
{
	uint64_t now_ns = qp->engine->now_ns();

	if (!qp->wait_deadline_ns && qp->timeout_ns)
		qp->wait_deadline_ns =
		    now_ns + (qp->timeout_ns > CONTACT_MIN_NS ? qp->timeout_ns : CONTACT_MIN_NS);
	nupa_sq_wait(qp, NUPA_WAIT_CONTACT, now_ns, CONTACT_RETRY_NS);
}

/* True when the wait is over, by its event or by its deadline (then the QP has failed). */
bool nupa_sq_wait_over(struct nupa_qp *qp)
{
	uint64_t now_ns;

	if (qp->wait == NUPA_WAIT_RING || qp->wait == NUPA_WAIT_WINDOW) {
		/* A peer that was not ready before may still not be: its deadline stays. */
		nupa_requester_end_wait(qp);
		return true;
	}
	now_ns = qp->engine->now_ns();
	if (qp->wait == NUPA_WAIT_RATE) { /* not for the peer: its deadline stays */
		if (now_ns + NUPA_RATE_AHEAD_NS < qp->wait_until_ns)
			return false;
		nupa_requester_end_wait(qp);
		return true;
	}
	if (qp->wait_deadline_ns && now_ns >= qp->wait_deadline_ns) {
		if (qp->wait == NUPA_WAIT_PATH && qp->channel)
			nupa_channel_count_closed(qp->channel, false);
		nupa_partner_explain(qp);
		nupa_requester_stop_waiting(qp);
		/* Requests issued before have been acknowledged or never will be. */
		nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	if (qp->wait == NUPA_WAIT_PATH) {
		if (!nupa_channel_path_up(qp->engine, qp->channel))
			return false;
		nupa_requester_stop_waiting(qp);
		return true;
	}
	if (qp->wait == NUPA_WAIT_CONTACT && qp->channel->rx_open) {
		nupa_requester_stop_waiting(qp);
		return true;
	}
	if (now_ns < qp->wait_until_ns)
		return false;
	if (qp->wait == NUPA_WAIT_CONTACT) {
		nupa_channel_knock(qp->engine, qp->channel);
		nupa_sq_wait_for_contact(qp);
		return false;
	}
	/* RNR, PEER: asked again, and the deadline stays for the next wait, until something
	 * succeeds. */
	nupa_requester_end_wait(qp);
	return true;
}

/* Each has one turn: those that wait anew do so for later. */
static void run_until(struct nupa_heap *heap, uint64_t now_ns)
{
	while (heap->top && heap->top->key <= now_ns) {
		struct nupa_qp *qp = container_of(heap->top, struct nupa_qp, wait_item);

		nupa_heap_del(heap, &qp->wait_item);
		nupa_requester_run(qp);
		if (NUPA_WAITS_FOR_TIME >> qp->wait & 1 && !nupa_heap_has(&qp->wait_item))
			await_time(qp, now_ns);
	}
}

/* To read the clock costs as much as all else of an empty turn.  So a program that spins does so in
 * one turn of many: half of those that it makes until the next time, if it goes on as it did. */
static uint32_t turns_a_look(const struct nupa_engine *engine, uint64_t now_ns)
{
	const struct nupa_heap_item *top = engine->timed.top;
	const uint64_t left_ns = top && top->key > now_ns ? top->key - now_ns : 0;
	const uint64_t turn_ns = (now_ns - engine->looked_at_ns) / (engine->turns + 1) + 1;
	const uint64_t turns = left_ns / 2 / turn_ns;

	if (turns < LOOK_TURNS_MIN)
		return LOOK_TURNS_MIN;
	return turns < LOOK_TURNS_MAX ? (uint32_t)turns : LOOK_TURNS_MAX;
}

void nupa_sq_run_timed(struct nupa_engine *engine)
{
	uint64_t now_ns = engine->now_ns();

	run_until(&engine->timed, now_ns);
	run_until(&engine->paced, now_ns);
	engine->turns_a_look = turns_a_look(engine, now_ns);
	engine->turns = 0;
	engine->looked_at_ns = now_ns;
}

/* A sleeper is woken when a rate is due, not from when on it may go. */
uint64_t nupa_sq_next_timer_ns(const struct nupa_engine *engine)
{
	const struct nupa_heap_item *timed = engine->timed.top, *paced = engine->paced.top;
	const uint64_t timed_ns = timed ? timed->key : UINT64_MAX;
	const uint64_t paced_ns =
	    paced ? container_of(paced, struct nupa_qp, wait_item)->wait_until_ns : UINT64_MAX;

	return paced_ns < timed_ns ? paced_ns : timed_ns;
}

/* Something of this QP got through: retry counters start anew (IBTA 9.7.5.1.4). */
void nupa_sq_made_progress(struct nupa_qp *qp)
{
	qp->rnr_left = qp->attr.rnr_retry;
	qp->psn_retries_left = qp->attr.retry_cnt;
	qp->steady_tx = qp->type == IBV_QPT_RC && !qp->xrc && qp->state == IBV_QPS_RTS &&
			qp->channel && qp->channel->rx_open && !qp->channel->broken &&
			!qp->channel->faulty && !qp->rated;
	qp->went_back = false;
	if (unlikely(qp->retrying))
		nupa_retry_progress(qp);
	if (unlikely(qp->wait != NUPA_WAIT_NONE || qp->wait_deadline_ns))
		nupa_requester_stop_waiting(qp);
}

/* --- peers that take nothing --------------------------------------------------------- */

#define RING_PATIENCE_NS UINT64_C(1000000000)
/* To another machine besides: TCP repeats what an outage took after up to twice the outage. */
#define TRUNK_PATIENCE_NS UINT64_C(4000000000)
/* Longer than a peer has patience with its program (backlog.c). */
#define BACKLOG_PATIENCE_NS UINT64_C(200000000)
/* No message waits longer than this, however slowly its peer goes on. */
#define WAIT_MAX_NS UINT64_C(2000000000)

#define LOOK_NS 1000000u

/* Asked of the kernel now and then: where the pid is one of this process's namespace. */
static bool is_stopped(struct nupa_channel *channel, uint64_t now_ns)
{
	if (channel->foreign ||
	    nupa_slot_elsewhere(channel->engine->fabric, nupa_slot_claim(channel->peer_slot)))
		return false;
	if (now_ns - channel->stop_looked_ns >= LOOK_NS) {
		channel->stop_looked_ns = now_ns;
		channel->stopped = nupa_process_stopped(channel->peer_pid);
	}
	return channel->stopped;
}

static bool moved_lately(struct nupa_channel *channel, struct nupa_stall *stall, uint64_t mark,
			 uint64_t now_ns, uint64_t patience_ns)
{
	if (!stall->since_ns || stall->mark != mark) {
		*stall = (struct nupa_stall){ .mark = mark, .since_ns = now_ns };
		channel->stopped = false; /* not just now */
		channel->stop_looked_ns = now_ns;
	}
	return now_ns - stall->since_ns < patience_ns;
}

/* How much longer a message may take than without faults, and to another machine: what holds it
 * back on its way. */
static uint64_t slowest_ns(const struct nupa_channel *channel, uint64_t now_ns)
{
	const struct nupa_engine *engine = channel->engine;
	uint64_t most_ns = channel->trunked ? TRUNK_PATIENCE_NS : 0;

	if (!channel->faulty)
		return most_ns;
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		const struct nupa_fault_view *view = &engine->faults->views[i];
		uint64_t ns = 0, free_ns;

		if (view->id && view->kind >= NUPA_FAULT_REORDER &&
		    view->kind <= NUPA_FAULT_CORRUPT)
			ns = view->duration_ns;
		if (view->id && view->kind == NUPA_FAULT_BANDWIDTH) {
			free_ns = nupa_load_relaxed(&view->entry->free_at_ns);
			ns = free_ns > now_ns ? free_ns - now_ns : 0;
		}
		most_ns = ns > most_ns ? ns : most_ns;
	}
	return most_ns;
}

bool nupa_stall_waits(struct nupa_qp *qp, struct nupa_channel *channel, bool backlogged)
{
	struct nupa_engine *engine = qp->engine;
	uint64_t now_ns = engine->now_ns();
	uint64_t slow_ns = slowest_ns(channel, now_ns);
	bool moves;

	if (backlogged) {
		moves = moved_lately(channel, &channel->starved,
				     nupa_load_relaxed(&channel->peer_slot->backlog_moves), now_ns,
				     BACKLOG_PATIENCE_NS);
	} else {
		(void)nupa_tx_drained(&channel->tx);
		moves = moved_lately(channel, &channel->full, channel->tx.head_seen, now_ns,
				     RING_PATIENCE_NS + slow_ns);
	}
	if (!qp->wait_deadline_ns)
		qp->wait_deadline_ns = now_ns + WAIT_MAX_NS + slow_ns;
	if (moves && now_ns < qp->wait_deadline_ns && !is_stopped(channel, now_ns)) {
		nupa_sq_wait(qp, NUPA_WAIT_RING, 0, 0);
		return true;
	}
	nupa_count(&engine->hw->tx_no_room, 1);
	return false;
}

bool nupa_stall_times_out(struct nupa_qp *qp)
{
	struct nupa_channel *channel = qp->channel;

	if (!qp->timeout_ns)
		return false;
	(void)nupa_tx_drained(&channel->tx);
	if (moved_lately(channel, &channel->full, channel->tx.head_seen, qp->engine->now_ns(),
			 patience_ns(qp)))
		return false;
	nupa_count(&qp->engine->hw->local_ack_timeout_err, 1);
	return true;
}

/* --- local memory -------------------------------------------------------------------- */

bool nupa_sq_local_spans(struct nupa_qp *qp, struct nupa_wqe *wqe, struct nupa_span *spans,
			 uint32_t *n_spans)
{
	int access = nupa_is_fetching_op(wqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (wqe->flags & IBV_SEND_INLINE) {
		spans[0] = (struct nupa_span){ nupa_wqe_inline(wqe), wqe->length_bytes };
		*n_spans = 1;
		return true;
	}
	return nupa_mr_resolve(qp->engine, qp->ibv.pd, wqe->sge, wqe->n_sge, access, spans,
			       n_spans) == IBV_WC_SUCCESS;
}

/* An error that is ours completes in its turn: when all before it has. */
bool nupa_sq_fail_in_turn(struct nupa_qp *qp, uint64_t index, enum ibv_wc_status status)
{
	if (qp->sq.acked == index)
		nupa_requester_fail(qp, status);
	return false;
}
