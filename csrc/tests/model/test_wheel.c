/* SPDX-License-Identifier: BSD-3-Clause
 * The event queue of csrc/model/wheel.h beside a slow model: an array that is searched. */
#include "model/wheel.h"
#include "tests/support/runner.h"

#include <string.h>

#define N_EVENTS 400u
#define N_STEPS 60000
#define HORIZON_PS UINT64_C(1000000)

struct thing {
	struct nupa_model_event event;
	uint32_t waits;
	uint64_t time_ps, order;
	bool far;
};

static struct thing packets[N_EVENTS], timers[N_EVENTS];

static struct thing *thing_of(uint32_t id)
{
	const uint32_t index = id & ~NUPA_MODEL_TIMER;

	CHECK(index < N_EVENTS);
	return id & NUPA_MODEL_TIMER ? &timers[index] : &packets[index];
}

/* The first by time; of one time those of the heap, then by the order in which they went in. */
static uint32_t first_waiting(void)
{
	uint32_t found = NUPA_MODEL_NONE;

	for (uint32_t at = 0; at < 2 * N_EVENTS; at++) {
		const uint32_t id = at < N_EVENTS ? at : (at - N_EVENTS) | NUPA_MODEL_TIMER;
		const struct thing *one = thing_of(id), *best;

		if (!one->waits)
			continue;
		if (found == NUPA_MODEL_NONE) {
			found = id;
			continue;
		}
		best = thing_of(found);
		if (one->time_ps != best->time_ps) {
			found = one->time_ps < best->time_ps ? id : found;
			continue;
		}
		if (one->far != best->far)
			found = one->far ? id : found;
		else if (one->order < best->order)
			found = id;
	}
	return found;
}

static void put(struct nupa_model_wheel *wheel, uint32_t id, uint64_t time_ps, uint64_t order)
{
	struct thing *thing = thing_of(id);

	thing->waits = 1;
	thing->time_ps = time_ps;
	thing->order = order;
	thing->far = (time_ps >> wheel->shift) - wheel->bucket >= NUPA_MODEL_BUCKETS;
	CHECK(nupa_model_wheel_put(wheel, id, time_ps));
}

static void compare(uint64_t seed, uint64_t horizon_ps, uint64_t spread_ps)
{
	struct nupa_model_wheel wheel;
	uint64_t now_ps = 0;

	memset(packets, 0, sizeof(packets));
	memset(timers, 0, sizeof(timers));
	CHECK(nupa_model_wheel_init(&wheel, horizon_ps));
	wheel.packets = (char *)packets;
	wheel.timers = (char *)timers;
	wheel.packet_bytes = wheel.timer_bytes = sizeof(struct thing);
	for (uint64_t step = 0; step < N_STEPS; step++) {
		const uint64_t random = test_random(&seed);
		const uint32_t id = (uint32_t)(random % N_EVENTS) |
				    (random & UINT64_C(1) << 40 ? NUPA_MODEL_TIMER : 0);

		if (random >> 41 & 1 && !thing_of(id)->waits) {
			uint64_t ahead = test_random(&seed) % spread_ps;

			if ((random >> 42 & 15) == 0) /* the far future, the same instant */
				ahead *= 100000;
			else if ((random >> 42 & 15) < 3)
				ahead = 0;
			put(&wheel, id, now_ps + ahead, step);
		} else {
			const uint32_t wanted = first_waiting();
			uint64_t time_ps = 0;
			uint32_t found = 0;

			CHECK_EQ(nupa_model_wheel_take(&wheel, &found, &time_ps),
				 wanted != NUPA_MODEL_NONE);
			if (wanted == NUPA_MODEL_NONE)
				continue;
			CHECK_EQ(time_ps, thing_of(wanted)->time_ps);
			CHECK_EQ(found, wanted);
			thing_of(found)->waits = 0;
			now_ps = time_ps;
		}
	}
	nupa_model_wheel_free(&wheel);
}

TEST(events_come_out_in_the_order_of_the_slow_model)
{
	uint64_t seed = test_seed();

	compare(seed, HORIZON_PS, HORIZON_PS);
	compare(seed + 1, HORIZON_PS, 30 * HORIZON_PS);
	compare(seed + 2, HORIZON_PS << 10, HORIZON_PS);
	compare(seed + 3, 1, 100);
}
