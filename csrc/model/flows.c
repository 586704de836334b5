/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that wait for each other, and the flows between their starts and ends. */
#include "model/flows.h"
#include "model/sharing.h"

#include <math.h>
#include <stdlib.h>

enum event_kind { FLOW_STARTS, FLOW_COMPLETES };

struct flow_event {
	double time_ns;
	uint64_t order; /* of events at one time */
	uint32_t operation, kind;
};

struct run {
	const struct nupa_model_flow_work *work;
	struct nupa_model_flow_result *result;
	struct sharing sharing;
	struct flow_event *event; /* a heap: an operation has one event at a time */
	uint32_t events;
	uint64_t order;
	uint32_t *waits, *follower_start, *follower;
	uint32_t *latest;       /* of a lane: the operation that it started last */
	uint32_t *sends, *tail; /* of a connection: the flow that runs, and the last behind it */
	uint32_t *behind;       /* of an operation: the next one of its connection */
	uint32_t *ended;        /* of an operation: another that ended with it */
	uint32_t *changed, changes;
	uint32_t *changed_at; /* of a class: the round in which it changed */
	uint32_t round, done;
};

static bool event_before(const struct flow_event *a, const struct flow_event *b)
{
	return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->order < b->order);
}

static void event_push(struct run *run, double time_ns, uint32_t operation, uint32_t kind)
{
	const struct flow_event made = { time_ns, run->order++, operation, kind };
	uint32_t at = run->events++;

	for (; at && event_before(&made, &run->event[(at - 1) / 2]); at = (at - 1) / 2)
		run->event[at] = run->event[(at - 1) / 2];
	run->event[at] = made;
}

static struct flow_event event_pop(struct run *run)
{
	const struct flow_event first = run->event[0], last = run->event[--run->events];
	uint32_t at = 0;

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= run->events)
			break;
		if (child + 1 < run->events &&
		    event_before(&run->event[child + 1], &run->event[child]))
			child++;
		if (!event_before(&run->event[child], &last))
			break;
		run->event[at] = run->event[child];
		at = child;
	}
	run->event[at] = last;
	return first;
}

static void operation_ready(struct run *run, uint32_t at, double now_ns, uint32_t cause)
{
	const struct nupa_model_flow_work *work = run->work;
	struct nupa_model_flow_result *result = run->result;
	const bool flows = work->class_of[at] != FLOW_NONE;
	const uint32_t before = run->latest[work->lane[at]];

	result->ready_ns[at] = now_ns;
	result->cause[at] = cause;
	result->why[at] = cause == FLOW_NONE ? NUPA_MODEL_AT_ONCE : NUPA_MODEL_AFTER;
	if (before != FLOW_NONE && result->ready_ns[before] + work->busy_ns[before] > now_ns) {
		result->ready_ns[at] = result->ready_ns[before] + work->busy_ns[before];
		result->cause[at] = before;
		result->why[at] = NUPA_MODEL_IN_TURN;
	}
	run->latest[work->lane[at]] = at;
	event_push(run, result->ready_ns[at] + work->before_ns[at], at,
		   flows ? FLOW_STARTS : FLOW_COMPLETES);
}

static void class_changed(struct run *run, uint32_t class)
{
	if (run->changed_at[class] == run->round)
		return;
	run->changed_at[class] = run->round;
	run->changed[run->changes++] = class;
}

static bool mark_before(struct flow_mark a, struct flow_mark b)
{
	return a.bytes < b.bytes || (a.bytes == b.bytes && a.operation < b.operation);
}

static void mark_push(struct flow_mark *heap, uint32_t count, struct flow_mark made)
{
	uint32_t at = count;

	for (; at && mark_before(made, heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = made;
}

static void mark_pop(struct flow_mark *heap, uint32_t count)
{
	const struct flow_mark last = heap[count - 1];
	uint32_t at = 0;

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= count - 1)
			break;
		if (child + 2 < count && mark_before(heap[child + 1], heap[child]))
			child++;
		if (!mark_before(heap[child], last))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
}

static void flow_send(struct run *run, uint32_t at, double now_ns)
{
	const uint32_t class = run->work->class_of[at];
	struct flow_class *one = &run->sharing.class[class];

	sharing_advance(&run->sharing, class, now_ns);
	if (!one->flows)
		sharing_join(&run->sharing, class);
	mark_push(run->sharing.mark + one->mark_start, one->flows++,
		  (struct flow_mark){ one->sent + run->work->bytes[at], at });
	class_changed(run, class);
}

/* At once, or behind the flows of its connection. */
static void flow_start(struct run *run, uint32_t at, double now_ns)
{
	const uint32_t connection = run->work->connection[at];

	run->behind[at] = FLOW_NONE;
	if (run->sends[connection] == FLOW_NONE) {
		run->sends[connection] = at;
		flow_send(run, at, now_ns);
	} else {
		run->behind[run->tail[connection]] = at;
	}
	run->tail[connection] = at;
}

/* Ends the flows of a class whose last byte has been sent: the first one, and equal ones. */
static void flows_end(struct run *run, uint32_t class, double now_ns)
{
	struct flow_class *one = &run->sharing.class[class];
	struct flow_mark *mark = run->sharing.mark + one->mark_start;
	uint32_t ended = FLOW_NONE, next;
	double until;

	sharing_advance(&run->sharing, class, now_ns);
	if (one->sent < mark->bytes)
		one->sent = mark->bytes; /* rounding leaves no byte behind */
	until = one->sent + one->rate * 1e-15 + mark->bytes * 1e-14;
	while (one->flows && mark->bytes <= until) {
		const uint32_t at = mark->operation;

		run->result->bound[at] = one->bound;
		event_push(run, now_ns + run->work->after_ns[at], at, FLOW_COMPLETES);
		mark_pop(mark, one->flows--);
		next = run->behind[at];
		run->sends[run->work->connection[at]] = next;
		if (next != FLOW_NONE) {
			run->ended[at] = ended;
			ended = at;
		}
	}
	if (!one->flows)
		sharing_leave(&run->sharing, class);
	class_changed(run, class);
	for (; ended != FLOW_NONE; ended = run->ended[ended])
		flow_send(run, run->behind[ended], now_ns);
}

static void operation_complete(struct run *run, uint32_t at, double now_ns)
{
	run->result->end_ns[at] = now_ns;
	run->done++;
	for (uint32_t it = run->follower_start[at]; it < run->follower_start[at + 1]; it++)
		if (!--run->waits[run->follower[it]])
			operation_ready(run, run->follower[it], now_ns, at);
}

static bool run_init(struct run *run)
{
	const struct nupa_model_flow_work *work = run->work;
	const uint32_t count = work->operations;
	const uint32_t edges = work->after_start[count];

	run->event = calloc(count + 1ul, sizeof(*run->event));
	run->waits = calloc(count + 1ul, sizeof(*run->waits));
	run->follower_start = calloc(count + 2ul, sizeof(*run->follower_start));
	run->follower = calloc(edges + 1ul, sizeof(*run->follower));
	run->latest = calloc(work->lanes + 1ul, sizeof(*run->latest));
	run->sends = calloc(work->connections + 1ul, sizeof(*run->sends));
	run->tail = calloc(work->connections + 1ul, sizeof(*run->tail));
	run->behind = calloc(count + 1ul, sizeof(*run->behind));
	run->ended = calloc(count + 1ul, sizeof(*run->ended));
	run->changed = calloc(work->classes + 1ul, sizeof(*run->changed));
	run->changed_at = calloc(work->classes + 1ul, sizeof(*run->changed_at));
	if (!run->event || !run->waits || !run->follower_start || !run->follower || !run->latest ||
	    !run->sends || !run->tail || !run->behind || !run->ended || !run->changed ||
	    !run->changed_at || !sharing_init(&run->sharing, work))
		return false;
	for (uint32_t lane = 0; lane < work->lanes; lane++)
		run->latest[lane] = FLOW_NONE;
	for (uint32_t at = 0; at < work->connections; at++)
		run->sends[at] = FLOW_NONE;
	/* Counted two places ahead, so that filling moves each start to where it belongs. */
	for (uint32_t it = 0; it < edges; it++)
		run->follower_start[work->after[it] + 2]++;
	for (uint32_t at = 0; at < count; at++)
		run->follower_start[at + 2] += run->follower_start[at + 1];
	for (uint32_t at = 0; at < count; at++) {
		run->waits[at] = work->after_start[at + 1] - work->after_start[at];
		run->result->end_ns[at] = -1;
		run->result->bound[at] = FLOW_NONE;
		for (uint32_t it = work->after_start[at]; it < work->after_start[at + 1]; it++)
			run->follower[run->follower_start[work->after[it] + 1]++] = at;
	}
	return true;
}

static void run_free(struct run *run)
{
	sharing_free(&run->sharing);
	free(run->event);
	free(run->waits);
	free(run->follower_start);
	free(run->follower);
	free(run->latest);
	free(run->sends);
	free(run->tail);
	free(run->behind);
	free(run->ended);
	free(run->changed);
	free(run->changed_at);
}

/* All that happens at the next time; then the rates.  false: nothing is left. */
static bool run_round(struct run *run)
{
	struct sharing *sharing = &run->sharing;
	double now_ns;

	if (!run->events && !sharing->queued)
		return false;
	now_ns = run->events ? run->event[0].time_ns : sharing->class[sharing->queue[0]].end_ns;
	if (sharing->queued && sharing->class[sharing->queue[0]].end_ns < now_ns)
		now_ns = sharing->class[sharing->queue[0]].end_ns;
	run->round++;
	run->changes = 0;
	while (run->events && run->event[0].time_ns <= now_ns) {
		const struct flow_event event = event_pop(run);

		run->result->events++;
		if (event.kind == FLOW_STARTS)
			flow_start(run, event.operation, now_ns);
		else
			operation_complete(run, event.operation, now_ns);
	}
	while (sharing->queued && sharing->class[sharing->queue[0]].end_ns <= now_ns) {
		const uint32_t class = sharing->queue[0];

		flows_end(run, class, now_ns);
		if (sharing->class[class].flows) {
			/* Until its rate is known again. */
			sharing->class[class].end_ns = 1e300;
			sharing_queue_fix(sharing, class);
		}
	}
	if (run->changes)
		sharing_solve(sharing, run->changed, run->changes, now_ns);
	return true;
}

static bool rises(const uint32_t *start, uint32_t count)
{
	bool sound = start[0] == 0;

	for (uint32_t it = 0; it < count; it++)
		sound &= start[it] <= start[it + 1];
	return sound;
}

static bool below(const uint32_t *index, uint32_t count, uint32_t most)
{
	bool sound = true;

	for (uint32_t it = 0; it < count; it++)
		sound &= index[it] < most;
	return sound;
}

static bool amounts(const double *amount, uint32_t count)
{
	bool sound = true;

	for (uint32_t it = 0; it < count; it++)
		sound &= amount[it] >= 0 && amount[it] < INFINITY;
	return sound;
}

/* Divisors; a limit may be infinite. */
static bool rates(const double *rate, uint32_t count)
{
	bool sound = true;

	for (uint32_t it = 0; it < count; it++)
		sound &= rate[it] > 0;
	return sound;
}

static bool work_check(const struct nupa_model_flow_work *work)
{
	const uint32_t count = work->operations, classes = work->classes;

	if (count == FLOW_NONE || !rises(work->after_start, count) ||
	    !rises(work->use_start, classes))
		return false;
	for (uint32_t it = 0; it < count; it++)
		if (work->class_of[it] != FLOW_NONE &&
		    (work->class_of[it] >= classes || work->connection[it] >= work->connections))
			return false;
	return below(work->after, work->after_start[count], count) &&
	       below(work->use, work->use_start[classes], work->resources) &&
	       below(work->lane, count, work->lanes) && amounts(work->bytes, count) &&
	       amounts(work->before_ns, count) && amounts(work->after_ns, count) &&
	       amounts(work->busy_ns, count) && rates(work->limit, classes) &&
	       rates(work->part, work->use_start[classes]) &&
	       rates(work->capacity, work->resources);
}

int64_t nupa_model_flows_run(const struct nupa_model_flow_work *work,
			     struct nupa_model_flow_result *result)
{
	struct run run = { .work = work, .result = result };
	int64_t left = -1;

	result->events = 0;
	if (!work_check(work))
		return -2;
	if (run_init(&run)) {
		for (uint32_t at = 0; at < work->operations; at++)
			if (!run.waits[at])
				operation_ready(&run, at, 0, FLOW_NONE);
		while (run.done < work->operations && run_round(&run))
			;
		left = (int64_t)work->operations - run.done;
		result->received_bytes = run.sharing.received_bytes;
	}
	run_free(&run);
	return left;
}
