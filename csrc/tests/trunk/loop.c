/* SPDX-License-Identifier: BSD-3-Clause
 * A carrier between trunks of this process: see loop.h. */
#define _GNU_SOURCE
#include "tests/trunk/loop.h"

#include "base/atomics.h"
#include "tests/check.h"
#include "tests/trunk/windows.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum kind { LOOP_MET, LOOP_PACKET, LOOP_SENT, LOOP_LOST };

struct item {
	struct item *next;
	enum kind kind;
	uint32_t machine; /* the other one */
	void *link;
	struct nupa_packet *packet;
};

/* A connection's end, by machine; the number tells it from former ones. */
struct place {
	struct nupa_carrier carrier;
	struct loop *loop;
	uint32_t machine;
	bool open;
	bool cut;
	int event;
	struct item *first, **last;
	bool slow;
	struct nupa_packet *behind, **behind_end; /* packets that wait */
	uintptr_t links[LOOP_MACHINES];           /* 0: none */
};

struct loop {
	pthread_mutex_t mutex;
	uintptr_t next_link;
	bool held;
	struct windows windows;
	struct place places[LOOP_MACHINES];
};

static struct place *place_of(struct nupa_carrier *carrier)
{
	return (struct place *)(void *)carrier; /* its first member */
}

/* With the mutex. */
static void put(struct place *place, enum kind kind, uint32_t machine, uintptr_t link,
		struct nupa_packet *packet)
{
	struct item *item = calloc(1, sizeof(*item));

	CHECK(item);
	*item = (struct item){ NULL, kind, machine, (void *)link, packet };
	*place->last = item;
	place->last = &item->next;
	CHECK_EQ(write(place->event, &(uint64_t){ 1 }, sizeof(uint64_t)), sizeof(uint64_t));
}

static void *loop_connect(struct nupa_carrier *carrier, uint32_t machine)
{
	struct place *place = place_of(carrier);
	struct place *other = &place->loop->places[machine];
	uintptr_t link;

	pthread_mutex_lock(&place->loop->mutex);
	link = ++place->loop->next_link;
	place->links[machine] = link;
	if (other->open && !other->cut && !place->cut) {
		other->links[place->machine] = link;
		put(other, LOOP_MET, place->machine, link, NULL);
		put(place, LOOP_MET, machine, link, NULL);
	} else {
		put(place, LOOP_LOST, machine, link, NULL);
	}
	pthread_mutex_unlock(&place->loop->mutex);
	return (void *)link;
}

static struct nupa_packet *copy_of(const void *bytes, uint32_t n)
{
	struct nupa_packet *packet =
	    aligned_alloc(_Alignof(struct nupa_packet), sizeof(struct nupa_packet));

	CHECK(packet);
	CHECK(n <= NUPA_PACKET_BYTES);
	memcpy(packet->data, bytes, n);
	packet->bytes = n;
	return packet;
}

static void go(struct place *place, struct nupa_packet *packet)
{
	struct nupa_carrier *carrier = &place->carrier;
	void *link = packet->link;
	uint32_t machine = 0;

	carrier->events->goes(carrier->arg, 0, packet);
	pthread_mutex_lock(&place->loop->mutex);
	while (machine < LOOP_MACHINES && place->links[machine] != (uintptr_t)link)
		machine++;
	if (machine < LOOP_MACHINES &&
	    place->loop->places[machine].links[place->machine] == (uintptr_t)link)
		put(&place->loop->places[machine], LOOP_PACKET, place->machine, (uintptr_t)link,
		    copy_of(packet->data, packet->bytes));
	put(place, LOOP_SENT, machine, (uintptr_t)link, packet);
	pthread_mutex_unlock(&place->loop->mutex);
}

/* Those behind puts that have arrived by now. */
static bool let_go(struct place *place)
{
	bool any = false;

	while (place->behind && !nupa_load_acquire(&place->slow)) {
		struct nupa_packet *packet = place->behind;

		place->behind = packet->next;
		if (!place->behind)
			place->behind_end = &place->behind;
		go(place, packet);
		any = true;
	}
	return any;
}

static void loop_send(struct nupa_carrier *carrier, void *link, struct nupa_packet *packet)
{
	struct place *place = place_of(carrier);

	packet->link = link;
	packet->next = NULL;
	*place->behind_end = packet;
	place->behind_end = &packet->next;
	(void)let_go(place);
}

static void *loop_window(struct nupa_carrier *carrier, void *memory, size_t bytes,
			 uint8_t key[NUPA_KEY_BYTES], uint32_t *key_bytes)
{
	return window_open(&place_of(carrier)->loop->windows, memory, bytes, key, key_bytes);
}

static void loop_unwindow(struct nupa_carrier *carrier, void *window)
{
	window_close(&place_of(carrier)->loop->windows, window);
}

static void *loop_unlock(struct nupa_carrier *carrier, void *link, const uint8_t *key,
			 uint32_t key_bytes)
{
	(void)link;
	return window_of(&place_of(carrier)->loop->windows, key, key_bytes);
}

static void loop_lock(struct nupa_carrier *carrier, void *unlocked)
{
	(void)carrier;
	(void)unlocked;
}

static void loop_put(struct nupa_carrier *carrier, void *unlocked, const void *from, uint64_t to,
		     uint32_t bytes)
{
	window_put(&place_of(carrier)->loop->windows, unlocked, from, to, bytes);
}

static void end_link(struct place *place, uint32_t machine, bool tell)
{
	struct place *other = &place->loop->places[machine];
	const uintptr_t link = place->links[machine];

	if (!link)
		return;
	place->links[machine] = 0;
	if (tell)
		put(place, LOOP_LOST, machine, link, NULL);
	if (other->links[place->machine] == link) {
		other->links[place->machine] = 0;
		put(other, LOOP_LOST, place->machine, link, NULL);
	}
}

static void loop_close(struct nupa_carrier *carrier, void *link)
{
	struct place *place = place_of(carrier);

	pthread_mutex_lock(&place->loop->mutex);
	for (uint32_t i = 0; i < LOOP_MACHINES; i++)
		if (place->links[i] == (uintptr_t)link)
			end_link(place, i, false);
	pthread_mutex_unlock(&place->loop->mutex);
}

/* With the mutex. */
static bool is_held(const struct place *place)
{
	return place->loop->held && place->first && place->first->kind == LOOP_PACKET;
}

static struct item *take(struct place *place)
{
	struct item *item;

	pthread_mutex_lock(&place->loop->mutex);
	item = is_held(place) ? NULL : place->first;
	if (item) {
		place->first = item->next;
		if (!place->first)
			place->last = &place->first;
	}
	pthread_mutex_unlock(&place->loop->mutex);
	return item;
}

static bool loop_progress(struct nupa_carrier *carrier, uint64_t now_ns)
{
	const struct nupa_carrier_events *events = carrier->events;
	struct place *place = place_of(carrier);
	struct item *item;
	uint64_t count;
	bool any;

	(void)now_ns;
	(void)!read(place->event, &count, sizeof(count));
	any = let_go(place);
	while ((item = take(place))) {
		any = true;
		switch (item->kind) {
		case LOOP_MET:
			events->met(carrier->arg, item->machine, item->link);
			break;
		case LOOP_PACKET:
			events->received(carrier->arg, item->machine, item->link,
					 item->packet->data, item->packet->bytes);
			free(item->packet);
			break;
		case LOOP_SENT:
			events->sent(carrier->arg, item->machine, item->packet, item->link);
			break;
		case LOOP_LOST:
			events->lost(carrier->arg, item->machine, item->link, "cut");
			break;
		}
		free(item);
	}
	return any;
}

static bool loop_arm(struct nupa_carrier *carrier)
{
	struct place *place = place_of(carrier);
	bool empty;

	pthread_mutex_lock(&place->loop->mutex);
	empty = !place->first || is_held(place);
	pthread_mutex_unlock(&place->loop->mutex);
	return empty;
}

static int loop_fd(const struct nupa_carrier *carrier)
{
	return ((const struct place *)(const void *)carrier)->event;
}

static uint32_t loop_port(const struct nupa_carrier *carrier)
{
	return ((const struct place *)(const void *)carrier)->machine;
}

static const char *loop_name(const struct nupa_carrier *carrier)
{
	(void)carrier;
	return "loop";
}

static void loop_carrier_free(struct nupa_carrier *carrier)
{
	struct place *place = place_of(carrier);

	pthread_mutex_lock(&place->loop->mutex);
	for (uint32_t i = 0; i < LOOP_MACHINES; i++)
		end_link(place, i, false);
	place->open = place->slow = false;
	pthread_mutex_unlock(&place->loop->mutex);
	(void)loop_progress(carrier, 0);
	close(place->event);
}

static const struct nupa_carrier_ops ops = {
	.connect = loop_connect,
	.send = loop_send,
	.window = loop_window,
	.unwindow = loop_unwindow,
	.unlock = loop_unlock,
	.lock = loop_lock,
	.put = loop_put,
	.close = loop_close,
	.progress = loop_progress,
	.arm = loop_arm,
	.fd = loop_fd,
	.port = loop_port,
	.name = loop_name,
	.free = loop_carrier_free,
};

struct loop *loop_new(void)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	CHECK(loop);
	pthread_mutex_init(&loop->mutex, NULL);
	pthread_mutex_init(&loop->windows.mutex, NULL);
	return loop;
}

void loop_free(struct loop *loop)
{
	free(loop);
}

struct nupa_carrier *loop_carrier(struct loop *loop, uint32_t machine)
{
	struct place *place = &loop->places[machine];

	pthread_mutex_lock(&loop->mutex);
	memset(place, 0, sizeof(*place));
	place->carrier.ops = &ops;
	place->loop = loop;
	place->machine = machine;
	place->last = &place->first;
	place->behind_end = &place->behind;
	place->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	CHECK(place->event >= 0);
	place->open = true;
	pthread_mutex_unlock(&loop->mutex);
	return &place->carrier;
}

uint64_t loop_put_bytes(struct loop *loop)
{
	return window_bytes(&loop->windows);
}

void loop_cut(struct loop *loop, uint32_t machine)
{
	pthread_mutex_lock(&loop->mutex);
	loop->places[machine].cut = true;
	for (uint32_t i = 0; i < LOOP_MACHINES; i++)
		end_link(&loop->places[machine], i, true);
	pthread_mutex_unlock(&loop->mutex);
}

void loop_join(struct loop *loop, uint32_t machine)
{
	pthread_mutex_lock(&loop->mutex);
	loop->places[machine].cut = false;
	pthread_mutex_unlock(&loop->mutex);
}

void loop_hold(struct loop *loop, bool held)
{
	pthread_mutex_lock(&loop->mutex);
	loop->held = held;
	for (uint32_t i = 0; i < LOOP_MACHINES && !held; i++)
		if (loop->places[i].open)
			CHECK_EQ(write(loop->places[i].event, &(uint64_t){ 1 }, sizeof(uint64_t)),
				 sizeof(uint64_t));
	pthread_mutex_unlock(&loop->mutex);
}

void loop_slow(struct loop *loop, uint32_t machine, bool slow)
{
	nupa_store_release(&loop->places[machine].slow, slow);
}

void loop_forge(struct loop *loop, uint32_t from, uint32_t to, const void *bytes, uint32_t n)
{
	struct place *place = &loop->places[to];

	pthread_mutex_lock(&loop->mutex);
	if (place->links[from])
		put(place, LOOP_PACKET, from, place->links[from], copy_of(bytes, n));
	pthread_mutex_unlock(&loop->mutex);
}
