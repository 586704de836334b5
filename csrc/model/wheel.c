/* SPDX-License-Identifier: BSD-3-Clause */
#include "model/wheel.h"

#include <stdlib.h>
#include <string.h>

enum { NOW_ROOM = 256, HEAP_ROOM = 1024 };

bool nupa_model_wheel_init(struct nupa_model_wheel *wheel, uint64_t horizon_ps)
{
	memset(wheel, 0, sizeof(*wheel));
	while (horizon_ps >> wheel->shift >= NUPA_MODEL_BUCKETS - 1 && wheel->shift < 40)
		wheel->shift++;
	wheel->now_room = NOW_ROOM;
	wheel->heap_room = HEAP_ROOM;
	wheel->now = malloc(NOW_ROOM * sizeof(*wheel->now));
	wheel->heap = malloc(HEAP_ROOM * sizeof(*wheel->heap));
	wheel->full = calloc(NUPA_MODEL_BUCKETS / 64, sizeof(*wheel->full));
	wheel->head = malloc(NUPA_MODEL_BUCKETS * sizeof(*wheel->head));
	if (!wheel->now || !wheel->heap || !wheel->full || !wheel->head)
		return false;
	memset(wheel->head, 0xff, NUPA_MODEL_BUCKETS * sizeof(*wheel->head));
	return true;
}

void nupa_model_wheel_free(struct nupa_model_wheel *wheel)
{
	free(wheel->now);
	free(wheel->heap);
	free(wheel->full);
	free(wheel->head);
}

static bool grow(struct nupa_model_due **array, uint32_t *room)
{
	struct nupa_model_due *larger = NULL;

	if (*room)
		larger = realloc(*array, 2ull * *room * sizeof(**array));
	if (!larger)
		return false;
	*array = larger;
	*room *= 2;
	return true;
}

/* Into the current bucket, behind those of the same time. */
bool nupa_model_wheel_now(struct nupa_model_wheel *wheel, uint32_t id, uint64_t time_ps)
{
	uint32_t at;

	if (wheel->now_count == wheel->now_room && !grow(&wheel->now, &wheel->now_room))
		return false;
	for (at = wheel->now_count; at > wheel->now_next; at--) {
		if (wheel->now[at - 1].time_ps <= time_ps)
			break;
		wheel->now[at] = wheel->now[at - 1];
	}
	wheel->now[at] = (struct nupa_model_due){ .time_ps = time_ps, .id = id };
	wheel->now_count++;
	return true;
}

static bool before(const struct nupa_model_due *a, const struct nupa_model_due *b)
{
	return a->time_ps < b->time_ps || (a->time_ps == b->time_ps && a->order < b->order);
}

bool nupa_model_wheel_far(struct nupa_model_wheel *wheel, uint32_t id, uint64_t time_ps)
{
	const struct nupa_model_due due = { time_ps, wheel->order++, id };
	uint32_t at = wheel->heap_count;

	if (at == wheel->heap_room && !grow(&wheel->heap, &wheel->heap_room))
		return false;
	wheel->heap_count++;
	for (; at && before(&due, &wheel->heap[(at - 1) / 2]); at = (at - 1) / 2)
		wheel->heap[at] = wheel->heap[(at - 1) / 2];
	wheel->heap[at] = due;
	return true;
}

uint32_t nupa_model_wheel_pop_far(struct nupa_model_wheel *wheel)
{
	const uint32_t id = wheel->heap[0].id;
	const struct nupa_model_due last = wheel->heap[--wheel->heap_count];
	uint32_t at = 0;

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= wheel->heap_count)
			break;
		if (child + 1 < wheel->heap_count &&
		    before(&wheel->heap[child + 1], &wheel->heap[child]))
			child++;
		if (!before(&wheel->heap[child], &last))
			break;
		wheel->heap[at] = wheel->heap[child];
		at = child;
	}
	wheel->heap[at] = last;
	return id;
}

/* Returns how many buckets the next one with events is ahead, or NUPA_MODEL_BUCKETS. */
static uint32_t next_full(const struct nupa_model_wheel *wheel)
{
	enum { WORDS = NUPA_MODEL_BUCKETS / 64, SUMMARIES = WORDS / 64 };
	const uint32_t from = (uint32_t)(wheel->bucket + 1) & (NUPA_MODEL_BUCKETS - 1);
	uint64_t bits = wheel->full[from / 64] & (~0ull << from % 64);
	uint32_t word = from / 64;

	if (!bits) {
		uint32_t at = (word + 1) % WORDS;
		uint64_t words = wheel->summary[at / 64] & (~0ull << at % 64);

		for (uint32_t tried = 0; !words && tried <= SUMMARIES; tried++) {
			at = (at / 64 + 1) % SUMMARIES * 64;
			words = wheel->summary[at / 64];
		}
		if (!words)
			return NUPA_MODEL_BUCKETS;
		word = at / 64 * 64 + (uint32_t)__builtin_ctzll(words);
		bits = wheel->full[word];
		/* The word that holds the current bucket, from its beginning. */
	}
	return (word * 64 + (uint32_t)__builtin_ctzll(bits) - from + 1) & (NUPA_MODEL_BUCKETS - 1);
}

/* Copies the chain of a bucket to `now`, sorted; of one time, the one that went in last is last. */
static bool load(struct nupa_model_wheel *wheel, uint32_t slot)
{
	uint32_t count = 0;

	for (uint32_t id = wheel->head[slot]; id != NUPA_MODEL_NONE;) {
		const struct nupa_model_event *event = nupa_model_wheel_at(wheel, id);
		uint32_t at = count;

		if (count == wheel->now_room && !grow(&wheel->now, &wheel->now_room))
			return false;
		/* The chain is backwards: an equal time stands before those that are here. */
		for (; at && wheel->now[at - 1].time_ps < event->time_ps; at--)
			wheel->now[at] = wheel->now[at - 1];
		wheel->now[at] = (struct nupa_model_due){ .time_ps = event->time_ps, .id = id };
		count++;
		id = event->next;
	}
	/* Descending by time, equal ones latest first: turned around, it is the order wanted. */
	for (uint32_t low = 0, high = count - 1; low < high; low++, high--) {
		const struct nupa_model_due swap = wheel->now[low];

		wheel->now[low] = wheel->now[high];
		wheel->now[high] = swap;
	}
	wheel->head[slot] = NUPA_MODEL_NONE;
	wheel->full[slot / 64] &= ~(1ull << slot % 64);
	if (!wheel->full[slot / 64])
		wheel->summary[slot / 64 / 64] &= ~(1ull << slot / 64 % 64);
	wheel->now_next = 0;
	wheel->now_count = count;
	return true;
}

bool nupa_model_wheel_advance(struct nupa_model_wheel *wheel, uint32_t *id, uint64_t *time_ps)
{
	const uint32_t ahead = next_full(wheel);
	const bool near = ahead < NUPA_MODEL_BUCKETS && ahead;

	wheel->now_next = wheel->now_count = 0;
	if (wheel->heap_count) {
		const uint64_t far = wheel->heap[0].time_ps >> wheel->shift;

		if (!near || far < wheel->bucket + ahead) {
			wheel->bucket = far;
			*time_ps = wheel->heap[0].time_ps;
			*id = nupa_model_wheel_pop_far(wheel);
			return true;
		}
	}
	if (!near)
		return false;
	wheel->bucket += ahead;
	return load(wheel, (uint32_t)wheel->bucket & (NUPA_MODEL_BUCKETS - 1));
}
