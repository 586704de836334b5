/* SPDX-License-Identifier: BSD-3-Clause
 * Max-min fair rates: all grow alike, and where a resource is full its flows keep theirs. */
#include "model/sharing.h"

#include <math.h>
#include <stdlib.h>

static void *array_new(size_t count, size_t bytes)
{
	return calloc(count ? count : 1, bytes);
}

static bool users_init(struct sharing *sharing)
{
	const struct nupa_model_flow_work *work = sharing->work;
	const uint32_t uses = work->use_start[work->classes];

	sharing->user_start = array_new(work->resources + 1ul, sizeof(*sharing->user_start));
	sharing->user_count = array_new(work->resources, sizeof(*sharing->user_count));
	sharing->users = array_new(uses, sizeof(*sharing->users));
	sharing->place = array_new(uses, sizeof(*sharing->place));
	sharing->use_class = array_new(uses, sizeof(*sharing->use_class));
	if (!sharing->user_start || !sharing->user_count || !sharing->users || !sharing->place ||
	    !sharing->use_class)
		return false;
	for (uint32_t class = 0; class < work->classes; class ++)
		for (uint32_t it = work->use_start[class]; it < work->use_start[class + 1]; it++)
			sharing->use_class[it] = class;
	for (uint32_t it = 0; it < uses; it++) {
		if (work->use[it] >= work->resources) /* checked before: for the analyzer */
			return false;
		sharing->user_start[work->use[it] + 1]++;
	}
	for (uint32_t it = 0; it < work->resources; it++)
		sharing->user_start[it + 1] += sharing->user_start[it];
	return true;
}

bool sharing_init(struct sharing *sharing, const struct nupa_model_flow_work *work)
{
	const size_t heap = (size_t)work->resources + work->classes;
	uint32_t marks = 0;

	*sharing = (struct sharing){ .work = work };
	sharing->class = array_new(work->classes, sizeof(*sharing->class));
	sharing->mark = array_new(work->operations, sizeof(*sharing->mark));
	sharing->resource = array_new(work->resources, sizeof(*sharing->resource));
	sharing->queue = array_new(work->classes, sizeof(*sharing->queue));
	sharing->group = array_new(work->classes, sizeof(*sharing->group));
	sharing->reached = array_new(work->resources, sizeof(*sharing->reached));
	sharing->level_id = array_new(heap, sizeof(*sharing->level_id));
	sharing->level = array_new(heap, sizeof(*sharing->level));
	if (!users_init(sharing) || !sharing->class || !sharing->mark || !sharing->resource ||
	    !sharing->queue || !sharing->group || !sharing->reached || !sharing->level_id ||
	    !sharing->level)
		return false;
	for (uint32_t it = 0; it < work->operations; it++)
		if (work->class_of[it] != FLOW_NONE)
			sharing->class[work->class_of[it]].mark_start++;
	for (uint32_t it = 0; it < work->classes; it++) {
		const uint32_t count = sharing->class[it].mark_start;

		sharing->class[it].mark_start = marks;
		sharing->class[it].queue_place = FLOW_NONE;
		marks += count;
	}
	return true;
}

void sharing_free(struct sharing *sharing)
{
	free(sharing->class);
	free(sharing->mark);
	free(sharing->resource);
	free(sharing->user_start);
	free(sharing->user_count);
	free(sharing->users);
	free(sharing->place);
	free(sharing->use_class);
	free(sharing->queue);
	free(sharing->group);
	free(sharing->reached);
	free(sharing->level_id);
	free(sharing->level);
}

void sharing_advance(struct sharing *sharing, uint32_t class, double now_ns)
{
	struct flow_class *one = &sharing->class[class];
	const double more = one->rate * (now_ns - one->at_ns) * 1e-9;

	one->sent += more;
	one->at_ns = now_ns;
	sharing->received_bytes += more * one->flows;
}

void sharing_join(struct sharing *sharing, uint32_t class)
{
	const struct nupa_model_flow_work *work = sharing->work;

	for (uint32_t it = work->use_start[class]; it < work->use_start[class + 1]; it++) {
		const uint32_t resource = work->use[it];
		const uint32_t at = sharing->user_start[resource] + sharing->user_count[resource]++;

		sharing->users[at] = it;
		sharing->place[it] = at;
	}
	sharing->class[class].queue_place = sharing->queued;
	sharing->class[class].end_ns = INFINITY;
	sharing->queue[sharing->queued++] = class;
}

void sharing_leave(struct sharing *sharing, uint32_t class)
{
	const struct nupa_model_flow_work *work = sharing->work;
	const uint32_t at = sharing->class[class].queue_place;
	const uint32_t last = sharing->queue[--sharing->queued];

	for (uint32_t it = work->use_start[class]; it < work->use_start[class + 1]; it++) {
		const uint32_t resource = work->use[it], free_at = sharing->place[it];
		const uint32_t end =
		    sharing->user_start[resource] + --sharing->user_count[resource];

		sharing->users[free_at] = sharing->users[end];
		sharing->place[sharing->users[free_at]] = free_at;
	}
	sharing->class[class].rate = 0;
	sharing->class[class].queue_place = FLOW_NONE;
	if (last == class)
		return;
	sharing->queue[at] = last;
	sharing->class[last].queue_place = at;
	sharing_queue_fix(sharing, last);
}

static void queue_swap(struct sharing *sharing, uint32_t a, uint32_t b)
{
	const uint32_t first = sharing->queue[a], second = sharing->queue[b];

	sharing->queue[a] = second;
	sharing->queue[b] = first;
	sharing->class[second].queue_place = a;
	sharing->class[first].queue_place = b;
}

/* By the end; classes that end together by their number. */
static bool queue_before(const struct sharing *sharing, uint32_t a, uint32_t b)
{
	const uint32_t first = sharing->queue[a], second = sharing->queue[b];
	const double ends[] = { sharing->class[first].end_ns, sharing->class[second].end_ns };

	return ends[0] < ends[1] || (ends[0] == ends[1] && first < second);
}

/* Moves a class to where its end belongs. */
void sharing_queue_fix(struct sharing *sharing, uint32_t class)
{
	uint32_t at = sharing->class[class].queue_place;

	for (; at && queue_before(sharing, at, (at - 1) / 2); at = (at - 1) / 2)
		queue_swap(sharing, at, (at - 1) / 2);
	for (;;) {
		uint32_t least = at;

		for (uint32_t child = 2 * at + 1; child <= 2 * at + 2; child++)
			if (child < sharing->queued && queue_before(sharing, child, least))
				least = child;
		if (least == at)
			return;
		queue_swap(sharing, at, least);
		at = least;
	}
}

/* The classes of a group whose rate is not known yet have this one. */
#define UNKNOWN (-1.0)

/* A heap of the rates at which resources, or flows by their limit, are full. */
struct levels {
	double *level;
	uint32_t *id;
	uint32_t count;
};

static void levels_down(struct levels *heap, uint32_t at)
{
	const double level = heap->level[at];
	const uint32_t id = heap->id[at];

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && heap->level[child + 1] < heap->level[child])
			child++;
		if (heap->level[child] >= level)
			break;
		heap->level[at] = heap->level[child];
		heap->id[at] = heap->id[child];
		at = child;
	}
	heap->level[at] = level;
	heap->id[at] = id;
}

static void levels_pop(struct levels *heap)
{
	heap->count--;
	heap->level[0] = heap->level[heap->count];
	heap->id[0] = heap->id[heap->count];
	if (heap->count)
		levels_down(heap, 0);
}

static void levels_add(struct levels *heap, double level, uint32_t id)
{
	heap->level[heap->count] = level;
	heap->id[heap->count++] = id;
}

static void resource_reach(struct sharing *sharing, uint32_t resource, uint32_t *reached,
			   uint32_t *grouped)
{
	struct flow_resource *one = &sharing->resource[resource];
	const uint32_t start = sharing->user_start[resource];

	if (one->seen == sharing->seen)
		return;
	*one = (struct flow_resource){ .free = sharing->work->capacity[resource],
				       .seen = sharing->seen };
	sharing->reached[(*reached)++] = resource;
	for (uint32_t at = start; at < start + sharing->user_count[resource]; at++) {
		const uint32_t class = sharing->use_class[sharing->users[at]];

		if (sharing->class[class].seen == sharing->seen)
			continue;
		sharing->class[class].seen = sharing->seen;
		sharing->group[(*grouped)++] = class;
	}
}

/* Fills `group` and `reached` with all that shares links with the changed classes. */
static uint32_t group_fill(struct sharing *sharing, const uint32_t *changed, uint32_t count,
			   uint32_t *reached)
{
	const struct nupa_model_flow_work *work = sharing->work;
	uint32_t grouped = 0;

	*reached = 0;
	sharing->seen++;
	for (uint32_t it = 0; it < count; it++) {
		if (sharing->class[changed[it]].seen == sharing->seen)
			continue;
		sharing->class[changed[it]].seen = sharing->seen;
		sharing->group[grouped++] = changed[it];
	}
	for (uint32_t at = 0; at < grouped; at++) {
		const uint32_t class = sharing->group[at];

		for (uint32_t it = work->use_start[class]; it < work->use_start[class + 1]; it++)
			resource_reach(sharing, work->use[it], reached, &grouped);
	}
	return grouped;
}

/* Takes the rate of a class's flows from the resources that they use. */
static void class_keep(struct sharing *sharing, uint32_t class, double rate, uint32_t bound)
{
	const struct nupa_model_flow_work *work = sharing->work;
	struct flow_class *one = &sharing->class[class];

	one->rate = rate;
	one->bound = bound;
	for (uint32_t it = work->use_start[class]; it < work->use_start[class + 1]; it++) {
		struct flow_resource *used = &sharing->resource[work->use[it]];
		const double part = work->part[it] * one->flows;

		used->free = used->free > rate * part ? used->free - rate * part : 0;
		used->waiting--;
		used->weight = used->waiting ? used->weight - part : 0;
	}
}

static void resource_full(struct sharing *sharing, uint32_t resource, double rate)
{
	const uint32_t start = sharing->user_start[resource];

	for (uint32_t at = start; at < start + sharing->user_count[resource]; at++) {
		const uint32_t class = sharing->use_class[sharing->users[at]];

		if (sharing->class[class].rate < 0)
			class_keep(sharing, class, rate, resource);
	}
}

static void levels_solve(struct sharing *sharing, struct levels *heap)
{
	const uint32_t resources = sharing->work->resources;
	double filled = 0; /* rates only grow: a lower level is rounding */

	while (heap->count) {
		const double level = heap->level[0] > filled ? heap->level[0] : filled;
		const uint32_t id = heap->id[0];
		struct flow_resource *one;

		if (id >= resources) {
			levels_pop(heap);
			filled = level;
			if (sharing->class[id - resources].rate < 0)
				class_keep(sharing, id - resources, level, FLOW_NONE);
			continue;
		}
		one = &sharing->resource[id];
		if (one->waiting && one->free / one->weight > level * (1 + 1e-12)) {
			/* Flows over it were bounded elsewhere: it is full later. */
			heap->level[0] = one->free / one->weight;
			levels_down(heap, 0);
			continue;
		}
		levels_pop(heap);
		if (!one->waiting)
			continue;
		filled = level;
		resource_full(sharing, id, level);
	}
}

void sharing_solve(struct sharing *sharing, const uint32_t *changed, uint32_t count, double now_ns)
{
	const struct nupa_model_flow_work *work = sharing->work;
	struct levels heap = { .level = sharing->level, .id = sharing->level_id };
	uint32_t reached;
	const uint32_t grouped = group_fill(sharing, changed, count, &reached);

	for (uint32_t at = 0; at < grouped; at++) {
		const uint32_t class = sharing->group[at];
		struct flow_class *one = &sharing->class[class];

		if (!one->flows)
			continue;
		sharing_advance(sharing, class, now_ns);
		one->rate = UNKNOWN;
		for (uint32_t it = work->use_start[class]; it < work->use_start[class + 1]; it++) {
			sharing->resource[work->use[it]].weight += work->part[it] * one->flows;
			sharing->resource[work->use[it]].waiting++;
		}
		if (isfinite(work->limit[class]))
			levels_add(&heap, work->limit[class], work->resources + class);
	}
	for (uint32_t at = 0; at < reached; at++) {
		const struct flow_resource *one = &sharing->resource[sharing->reached[at]];

		if (one->waiting)
			levels_add(&heap, one->free / one->weight, sharing->reached[at]);
	}
	for (uint32_t at = heap.count / 2; at--;)
		levels_down(&heap, at);
	levels_solve(sharing, &heap);
	for (uint32_t at = 0; at < grouped; at++) {
		const uint32_t class = sharing->group[at];
		struct flow_class *one = &sharing->class[class];
		const double left =
		    one->flows ? sharing->mark[one->mark_start].bytes - one->sent : 0;

		if (!one->flows)
			continue;
		one->end_ns = now_ns + (left > 0 ? left / one->rate * 1e9 : 0);
		sharing_queue_fix(sharing, class);
	}
}
