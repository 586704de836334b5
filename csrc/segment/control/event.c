/* SPDX-License-Identifier: BSD-3-Clause
 * The ring of events: many writers, none waits for another. */
#include "segment/control/event.h"

#include "base/atomics.h"
#include "segment/control/table.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define MS_NS 1000000
#define WORDS (sizeof(struct nupa_control_event) / sizeof(uint64_t))

/* FNV-1a over words: torn rows are accidents. */
static uint64_t check_of(const uint64_t words[WORDS])
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < WORDS; i++)
		hash = (hash ^ words[i]) * UINT64_C(1099511628211);
	return hash;
}

static void store(struct nupa_event_row *row, const struct nupa_control_event *event)
{
	uint64_t words[WORDS], *body = (uint64_t *)(void *)&row->body;

	memcpy(words, event, sizeof(words));
	/* Readers of the event before turn away first. */
	(void)nupa_exchange_seq(&row->body.seq, 0);
	nupa_store_relaxed(&row->check, check_of(words));
	for (size_t i = 1; i < WORDS; i++)
		nupa_store_relaxed(&body[i], words[i]);
	nupa_store_release(&row->body.seq, event->seq);
}

static int64_t post(struct nupa_fabric *fabric, struct nupa_control_event *event)
{
	struct nupa_control t;
	struct timespec now;
	const int rc = nupa_control(fabric, true, &t);

	if (rc)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	event->time_ns = (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
	event->seq = nupa_fetch_add_seq(&t.header->events, 1) + 1;
	store(&t.events[event->seq % t.n_events], event);
	nupa_fetch_add_seq(&t.header->event_bell, 1);
	syscall(SYS_futex, &t.header->event_bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return (int64_t)(event->seq & INT64_MAX);
}

void nupa_event_post(struct nupa_fabric *fabric, enum nupa_severity severity, const char *kind,
		     const char *subject, const char *format, ...)
{
	struct nupa_control_event event = { .severity = severity };
	va_list args;

	snprintf(event.kind, sizeof(event.kind), "%s", kind);
	snprintf(event.subject, sizeof(event.subject), "%s", subject);
	va_start(args, format);
	vsnprintf(event.text, sizeof(event.text), format, args);
	va_end(args);
	post(fabric, &event);
}

int64_t nupa_event_add(struct nupa_fabric *fabric, uint32_t severity, const char *kind,
		       const char *subject, const char *text)
{
	struct nupa_control_event event = { .severity = severity };

	if (severity > NUPA_SEVERITY_CRITICAL)
		return -EINVAL;
	snprintf(event.kind, sizeof(event.kind), "%s", kind);
	snprintf(event.subject, sizeof(event.subject), "%s", subject);
	snprintf(event.text, sizeof(event.text), "%s", text);
	return post(fabric, &event);
}

uint64_t nupa_event_last(struct nupa_fabric *fabric)
{
	struct nupa_control t;

	return nupa_control(fabric, false, &t) ? 0 : nupa_load_acquire(&t.header->events);
}

uint32_t nupa_event_room(const struct nupa_fabric *fabric)
{
	return nupa_control_map(&fabric->geometry).events;
}

/* Whether a body that was read can be an event's (I5). */
static bool is_sound(const struct nupa_control_event *event)
{
	return event->severity <= NUPA_SEVERITY_CRITICAL &&
	       memchr(event->kind, 0, sizeof(event->kind)) &&
	       memchr(event->subject, 0, sizeof(event->subject)) &&
	       memchr(event->text, 0, sizeof(event->text));
}

int nupa_event_get(struct nupa_fabric *fabric, uint64_t seq, struct nupa_control_event *out)
{
	uint64_t words[WORDS], before, check;
	const struct nupa_event_row *row;
	struct nupa_control t;

	if (seq == 0 || nupa_control(fabric, false, &t) ||
	    seq > nupa_load_acquire(&t.header->events))
		return -ENOENT;
	row = &t.events[seq % t.n_events];
	before = nupa_load_acquire(&row->body.seq);
	check = nupa_load_acquire(&row->check);
	words[0] = seq;
	for (size_t i = 1; i < WORDS; i++)
		words[i] = nupa_load_acquire((const uint64_t *)(const void *)&row->body + i);
	if (nupa_load_acquire(&t.header->events) - seq >= t.n_events)
		return -ESTALE;
	if (before != seq || nupa_load_relaxed(&row->body.seq) != seq || check != check_of(words))
		return -EAGAIN;
	memcpy(out, words, sizeof(*out));
	return is_sound(out) ? 0 : -ESTALE;
}

int nupa_event_await(struct nupa_fabric *fabric, uint64_t after, uint32_t timeout_ms)
{
	const struct timespec timeout = { timeout_ms / 1000, (long)(timeout_ms % 1000) * MS_NS };
	struct nupa_control t;
	const int rc = nupa_control(fabric, true, &t);
	uint32_t bell;

	if (rc)
		return rc;
	bell = nupa_load_seq(&t.header->event_bell);
	if (nupa_load_seq(&t.header->events) <= after)
		syscall(SYS_futex, &t.header->event_bell, FUTEX_WAIT, bell, &timeout, NULL, 0);
	return 0;
}
