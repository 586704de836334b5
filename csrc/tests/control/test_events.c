/* SPDX-License-Identifier: BSD-3-Clause
 * Events: many writers at once, a reader beside them, writers that died, rows that are not true. */
#include "base/atomics.h"
#include "segment/control/event.h"
#include "segment/control/table.h"
#include "tests/support/end.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define WRITERS 4u
#define EACH 6000u /* six rings, so that writers and reader are overtaken */

struct stage {
	struct nupa_fabric *fabric;
	uint32_t writers; /* that are still writing */
};

static void *post_many(void *argument)
{
	struct stage *stage = argument;

	for (uint32_t i = 0; i < EACH; i++)
		nupa_event_post(stage->fabric, i % (NUPA_SEVERITY_CRITICAL + 1), "test.event",
				"subject", "%u is %u, and %u", i, i, i);
	nupa_fetch_add_seq(&stage->writers, UINT32_MAX);
	return NULL;
}

static void check_whole(const struct nupa_control_event *event, uint64_t seq)
{
	unsigned int a, b, c;

	CHECK_EQ(event->seq, seq);
	CHECK(strcmp(event->kind, "test.event") == 0 && strcmp(event->subject, "subject") == 0);
	CHECK(sscanf(event->text, "%u is %u, and %u", &a, &b, &c) == 3);
	CHECK(a == b && b == c && event->severity == a % (NUPA_SEVERITY_CRITICAL + 1));
	CHECK(event->time_ns);
}

TEST(events_of_many_writers_are_whole_and_none_of_the_last_ring_is_missing)
{
	struct nupa_fabric *fabric = test_fabric();
	struct stage stage = { fabric, WRITERS };
	struct nupa_control_event event;
	pthread_t writers[WRITERS];
	uint64_t found = 0;

	for (uint32_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&writers[i], NULL, post_many, &stage) == 0);
	for (uint64_t seq = 1; nupa_load_acquire(&stage.writers); seq++) {
		int rc;

		do
			rc = nupa_event_get(fabric, seq, &event);
		while ((rc == -EAGAIN || rc == -ENOENT) && nupa_load_acquire(&stage.writers));
		CHECK(rc == 0 || rc == -ESTALE || rc == -EAGAIN || rc == -ENOENT);
		if (rc == 0) {
			check_whole(&event, seq);
			found++;
		}
	}
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	CHECK_EQ(nupa_event_last(fabric), WRITERS * EACH);
	for (uint64_t seq = WRITERS * EACH - NUPA_EVENTS_MAX + 1; seq <= WRITERS * EACH; seq++) {
		const int rc = nupa_event_get(fabric, seq, &event);

		/* A writer that lost its processor for a whole ring may have spoilt a later one. */
		CHECK(rc == 0 || rc == -EAGAIN);
		if (rc == 0)
			check_whole(&event, seq);
	}
	CHECK(found);
	nupa_fabric_put(fabric);
}

TEST(the_ring_keeps_its_room_and_not_one_more)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_control_event event;

	CHECK_EQ(nupa_event_last(fabric), 0);
	CHECK_EQ(nupa_event_get(fabric, 1, &event), -ENOENT);
	CHECK_EQ(nupa_event_room(fabric), NUPA_EVENTS_MAX);
	for (uint32_t i = 1; i <= NUPA_EVENTS_MAX; i++)
		CHECK_EQ(nupa_event_add(fabric, 0, "kind", "subject", "text"), i);
	CHECK_EQ(nupa_event_get(fabric, 1, &event), 0);
	CHECK_EQ(nupa_event_add(fabric, 0, "kind", "subject", "text"), NUPA_EVENTS_MAX + 1);
	CHECK_EQ(nupa_event_get(fabric, 1, &event), -ESTALE);
	CHECK_EQ(nupa_event_get(fabric, 2, &event), 0);
	CHECK_EQ(nupa_event_get(fabric, 0, &event), -ENOENT);
	CHECK_EQ(nupa_event_get(fabric, NUPA_EVENTS_MAX + 2, &event), -ENOENT);
	CHECK_EQ(nupa_event_get(fabric, UINT64_MAX, &event), -ENOENT);
	CHECK_EQ(nupa_event_add(fabric, NUPA_SEVERITY_CRITICAL + 1, "", "", ""), -EINVAL);
	nupa_fabric_put(fabric);
}

TEST(text_beyond_its_room_is_cut)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_control_event event;
	char text[300];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = 0;
	CHECK_EQ(nupa_event_add(fabric, 0, text, text, text), 1);
	CHECK_EQ(nupa_event_get(fabric, 1, &event), 0);
	CHECK_EQ(strlen(event.kind), sizeof(event.kind) - 1);
	CHECK_EQ(strlen(event.subject), sizeof(event.subject) - 1);
	CHECK_EQ(strlen(event.text), sizeof(event.text) - 1);
	nupa_fabric_put(fabric);
}

TEST(a_writer_that_died_or_was_overtaken_leaves_no_event)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_control_event event;
	struct nupa_control t;

	CHECK_EQ(nupa_event_add(fabric, 0, "a", "b", "c"), 1);
	CHECK_EQ(nupa_control(fabric, false, &t), 0);
	/* It took a number and died. */
	nupa_fetch_add_seq(&t.header->events, 1);
	CHECK_EQ(nupa_event_get(fabric, 2, &event), -EAGAIN);
	CHECK_EQ(nupa_event_add(fabric, 0, "a", "b", "c"), 3);
	CHECK_EQ(nupa_event_get(fabric, 3, &event), 0);
	/* Torn: part of another event. */
	t.events[3].body.text[0] ^= 1;
	CHECK_EQ(nupa_event_get(fabric, 3, &event), -EAGAIN);
	t.events[3].body.text[0] ^= 1;
	CHECK_EQ(nupa_event_get(fabric, 3, &event), 0);
	/* An older one, of a writer that was overtaken. */
	t.events[3].body.seq = 1;
	CHECK_EQ(nupa_event_get(fabric, 3, &event), -EAGAIN);
	nupa_fabric_put(fabric);
}

struct wait {
	struct nupa_fabric *fabric;
	uint32_t seen;
};

static void *await_first(void *argument)
{
	struct wait *wait = argument;
	struct nupa_control_event event;

	while (nupa_event_get(wait->fabric, 1, &event))
		CHECK_EQ(nupa_event_await(wait->fabric, 0, 10000), 0);
	nupa_store_release(&wait->seen, 1);
	return NULL;
}

TEST(a_follower_is_woken)
{
	struct nupa_fabric *fabric = test_fabric();
	struct wait wait = { fabric, 0 };
	pthread_t follower;

	CHECK(pthread_create(&follower, NULL, await_first, &wait) == 0);
	CHECK_EQ(nupa_event_add(fabric, 0, "a", "b", "c"), 1);
	CHECK(pthread_join(follower, NULL) == 0);
	CHECK(wait.seen);
	CHECK_EQ(nupa_event_await(fabric, 0, 10000), 0); /* at once: it is later */
	CHECK_EQ(nupa_event_await(fabric, 1, 1), 0);
	nupa_fabric_put(fabric);
}
