/* SPDX-License-Identifier: BSD-3-Clause
 * The event queue: a wheel of buckets for the near future, a heap for the far one.
 *
 * An event is a packet or a timer: the object itself is chained into a bucket, so nothing is
 * allocated.  Events come out by time; those of one time in the order in which they went in,
 * those of the heap first. */
#ifndef NUPA_MODEL_WHEEL_H
#define NUPA_MODEL_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

enum {
	NUPA_MODEL_BUCKET_BITS = 15,
	NUPA_MODEL_BUCKETS = 1 << NUPA_MODEL_BUCKET_BITS,
};
#define NUPA_MODEL_NONE UINT32_MAX
#define NUPA_MODEL_TIMER 0x80000000u /* an id with this bit is a timer, another one a packet */

/* What packets and timers begin with: 12 bytes, as a packet has 32. */
struct nupa_model_event {
	uint64_t time_ps;
	uint32_t next; /* in its bucket */
} __attribute__((packed, aligned(4)));

struct nupa_model_due {
	uint64_t time_ps;
	uint64_t order; /* heap only */
	uint32_t id;
};

struct nupa_model_wheel {
	char *packets, *timers; /* arrays of structs that begin with an event */
	uint32_t packet_bytes, timer_bytes;
	unsigned shift;  /* a bucket has 1 << shift ps */
	uint64_t bucket; /* number of the current one: the time >> shift */
	uint32_t now_count, now_next, now_room;
	struct nupa_model_due *now; /* events of the current bucket, sorted */
	uint32_t heap_count, heap_room;
	struct nupa_model_due *heap;
	uint64_t order;
	uint64_t *full; /* a bit for each bucket with events, and a bit for each word of these */
	uint64_t summary[NUPA_MODEL_BUCKETS / 64 / 64];
	uint32_t *head; /* the event that went in last */
};

/* false: no memory.  `horizon_ps`: the delay of most events is shorter. */
bool nupa_model_wheel_init(struct nupa_model_wheel *wheel, uint64_t horizon_ps);
void nupa_model_wheel_free(struct nupa_model_wheel *wheel);

/* Loads the next bucket with events, or sets *id to the heap's first event. */
bool nupa_model_wheel_advance(struct nupa_model_wheel *wheel, uint32_t *id, uint64_t *time_ps);
bool nupa_model_wheel_now(struct nupa_model_wheel *wheel, uint32_t id, uint64_t time_ps);
bool nupa_model_wheel_far(struct nupa_model_wheel *wheel, uint32_t id, uint64_t time_ps);
uint32_t nupa_model_wheel_pop_far(struct nupa_model_wheel *wheel);

static inline struct nupa_model_event *nupa_model_wheel_at(const struct nupa_model_wheel *wheel,
							   uint32_t id)
{
	if (id & NUPA_MODEL_TIMER)
		return (void *)(wheel->timers +
				(uint64_t)(id & ~NUPA_MODEL_TIMER) * wheel->timer_bytes);
	return (void *)(wheel->packets + (uint64_t)id * wheel->packet_bytes);
}

/* false: no memory.  `time_ps` is not before the event that came out last. */
static inline bool nupa_model_wheel_put(struct nupa_model_wheel *wheel, uint32_t id,
					uint64_t time_ps)
{
	const uint64_t ahead = (time_ps >> wheel->shift) - wheel->bucket;
	struct nupa_model_event *event = nupa_model_wheel_at(wheel, id);
	uint32_t slot;

	event->time_ps = time_ps;
	if (__builtin_expect(ahead - 1 >= NUPA_MODEL_BUCKETS - 1, 0))
		return ahead ? nupa_model_wheel_far(wheel, id, time_ps)
			     : nupa_model_wheel_now(wheel, id, time_ps);
	slot = (uint32_t)(time_ps >> wheel->shift) & (NUPA_MODEL_BUCKETS - 1);
	event->next = wheel->head[slot];
	wheel->head[slot] = id;
	wheel->full[slot / 64] |= 1ull << slot % 64;
	wheel->summary[slot / 64 / 64] |= 1ull << slot / 64 % 64;
	return true;
}

/* Takes the next event out.  false: there is none. */
static inline bool nupa_model_wheel_take(struct nupa_model_wheel *wheel, uint32_t *id,
					 uint64_t *time_ps)
{
	for (;;) {
		if (wheel->now_next < wheel->now_count) {
			const struct nupa_model_due *due = &wheel->now[wheel->now_next];

			if (wheel->heap_count && wheel->heap[0].time_ps <= due->time_ps) {
				*time_ps = wheel->heap[0].time_ps;
				*id = nupa_model_wheel_pop_far(wheel);
				return true;
			}
			wheel->now_next++;
			*id = due->id;
			*time_ps = due->time_ps;
			return true;
		}
		*id = NUPA_MODEL_NONE;
		if (!nupa_model_wheel_advance(wheel, id, time_ps))
			return false;
		if (*id != NUPA_MODEL_NONE)
			return true;
	}
}

#endif
