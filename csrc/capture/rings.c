/* SPDX-License-Identifier: BSD-3-Clause
 * The rings of all attachments, read by copying and merged by time (trace.h, T1 to T4).
 *
 * pread(2) reads them, not a mapping.  A touched page that its owner has given back would be
 * allocated again, or raise SIGBUS where there is no memory. */
#include "capture/rings.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "segment/slot/slot.h"

#include <stdlib.h>
#include <time.h>

#define RING_MASK ((uint64_t)NUPA_TRACE_BYTES - 1)
#define BUFFER_MAX_BYTES (2u * (size_t)NUPA_TRACE_BYTES)
#define FUTURE_NS UINT64_C(1000000000) /* no record is that much newer than our clock */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t ring_off(const struct nupa_watch *watch, uint32_t slot)
{
	return nupa_arena_offset(watch->fabric, slot) +
	       nupa_arena_map(&watch->fabric->geometry).trace_off;
}

static bool read_header(const struct nupa_watch *watch, uint32_t slot,
			struct nupa_trace_header *header)
{
	bool read =
	    !nupa_fabric_read(watch->fabric, ring_off(watch, slot), header, sizeof(*header));

	/* T1: bytes copied from here on were stored before `tail`; bytes copied earlier, before
	 * `begun`. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return read && header->epoch && header->tail % 8 == 0;
}

int nupa_rings_open(struct nupa_watch *watch)
{
	const uint32_t n_slots = watch->fabric->geometry.n_slots;

	watch->readers = calloc(n_slots, sizeof(*watch->readers));
	if (!watch->readers)
		return -1;
	for (uint32_t i = 1; i < n_slots; i++) {
		struct nupa_reader *reader = &watch->readers[i];
		struct nupa_trace_header header;

		reader->slot = i;
		reader->epoch = NUPA_CLAIM_EPOCH(nupa_slot_claim(&watch->fabric->slots[i]));
		/* Records for other watches are skipped. */
		if (!reader->epoch || !read_header(watch, i, &header) ||
		    header.epoch != reader->epoch)
			continue;
		reader->position = header.tail;
		reader->sequence = header.tail ? UINT32_MAX : 0;
	}
	return 0;
}

void nupa_rings_close(struct nupa_watch *watch)
{
	for (uint32_t i = 1; watch->readers && i < watch->fabric->geometry.n_slots; i++)
		free(watch->readers[i].buffer);
	free(watch->readers);
}

/* --- copying ------------------------------------------------------------------------- */

/* Room for *bytes* more behind the present ones. */
static bool make_room(struct nupa_reader *reader, size_t bytes)
{
	size_t used = reader->end - reader->begin, room = reader->room_bytes;
	uint8_t *more;

	if (used + bytes > BUFFER_MAX_BYTES)
		return false;
	if (reader->begin) {
		memmove(reader->buffer, reader->buffer + reader->begin, used);
		reader->begin = 0;
		reader->end = used;
	}
	if (used + bytes <= room)
		return true;
	for (room = room ? room : 65536; room < used + bytes;)
		room *= 2;
	more = realloc(reader->buffer, room);
	if (!more)
		return false;
	reader->buffer = more;
	reader->room_bytes = room;
	return true;
}

static bool copy(struct nupa_watch *watch, struct nupa_reader *reader, uint64_t bytes)
{
	const uint64_t at = reader->position & RING_MASK;
	const uint64_t data = ring_off(watch, reader->slot) + sizeof(struct nupa_trace_header);
	const uint64_t first = bytes < NUPA_TRACE_BYTES - at ? bytes : NUPA_TRACE_BYTES - at;
	uint8_t *to = reader->buffer + reader->end;

	return !nupa_fabric_read(watch->fabric, data + at, to, first) &&
	       (first == bytes ||
		!nupa_fabric_read(watch->fabric, data, to + first, bytes - first));
}

/* The first position from which the copy is readable.  Bytes before `valid` may have been
 * overwritten; behind it, records are found again where the ring begins (T2). */
static uint64_t whole_from(uint64_t position, uint64_t valid, uint64_t tail)
{
	const uint64_t lap = tail & ~RING_MASK;

	if (valid <= position)
		return position;
	return lap >= valid && lap >= position ? lap : tail;
}

/* T1: copies, then determines how much of it was whole. */
static void follow(struct nupa_watch *watch, struct nupa_reader *reader,
		   const struct nupa_trace_header *header)
{
	struct nupa_trace_header after;
	const uint64_t tail = header->tail;
	uint64_t bytes, from;

	if (tail < reader->position) {
		watch->counts.invalid++;
		reader->position = tail;
	}
	if (tail - reader->position > NUPA_TRACE_BYTES) {
		watch->counts.lost += reader->sequence == UINT32_MAX; /* at least */
		reader->position = whole_from(reader->position, tail - NUPA_TRACE_BYTES, tail);
	}
	bytes = tail - reader->position;
	if (!bytes || !make_room(reader, bytes) || !copy(watch, reader, bytes))
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!read_header(watch, reader->slot, &after) || after.epoch != reader->epoch) {
		watch->counts.lost++; /* at least */
		reader->position = tail;
		return;
	}
	from =
	    whole_from(reader->position,
		       after.begun > NUPA_TRACE_BYTES ? after.begun - NUPA_TRACE_BYTES : 0, tail);
	if (from != reader->position) {
		watch->counts.lost += reader->sequence == UINT32_MAX; /* at least */
		memmove(reader->buffer + reader->end,
			reader->buffer + reader->end + (from - reader->position), tail - from);
		/* The present bytes end where the gap begins: records on both sides are whole. */
	}
	reader->end += tail - from;
	reader->position = tail;
}

static bool is_newer(uint32_t epoch, uint32_t than)
{
	return ((epoch - than) & 0xffffff) - 1 < 0x7fffff;
}

static void look_at(struct nupa_watch *watch, uint32_t slot)
{
	struct nupa_reader *reader = &watch->readers[slot];
	const struct nupa_slot *entry = &watch->fabric->slots[slot];
	const uint64_t claim = nupa_slot_claim(entry);
	const uint32_t epoch = NUPA_CLAIM_EPOCH(claim), state = NUPA_CLAIM_STATE(claim);
	struct nupa_trace_header header;

	if (!epoch || (reader->drained && reader->epoch == epoch))
		return;
	/* The claim is the owner's, that of the last owner we know, or of one in between. */
	if (!read_header(watch, slot, &header) || is_newer(header.epoch, epoch) ||
	    is_newer(reader->epoch, header.epoch))
		return;
	if (reader->epoch != header.epoch) {
		reader->epoch = header.epoch;
		reader->position = 0;
		reader->sequence = 0;
		reader->drained = false;
	}
	if (state == NUPA_SLOT_LIVE || watch->slot_host[slot] == 0) {
		reader->host = nupa_load_relaxed(&entry->host);
		if (reader->host < watch->fabric->geometry.n_hosts)
			watch->slot_host[slot] = (uint16_t)(reader->host + 1);
	}
	follow(watch, reader, &header);
	/* Read again behind the claim: no process appends to it any more. */
	if (state == NUPA_SLOT_FREE && reader->epoch == epoch && reader->position == header.tail)
		reader->drained = true;
}

void nupa_rings_gather(struct nupa_watch *watch)
{
	/* T3: the clock first, then the tails. */
	watch->horizon_ns = now_ns();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 1; i < watch->fabric->geometry.n_slots; i++)
		look_at(watch, i);
	watch->current = NULL;
}

/* --- merging ------------------------------------------------------------------------- */

static size_t body_bytes(uint8_t kind)
{
	static const uint8_t bytes[] = {
		[NUPA_TRACE_WQE] = sizeof(struct nupa_trace_wqe),
		[NUPA_TRACE_DOORBELL] = sizeof(struct nupa_trace_doorbell),
		[NUPA_TRACE_MESSAGE] = sizeof(struct nupa_trace_message),
		[NUPA_TRACE_DIRECT] = sizeof(struct nupa_trace_direct),
		[NUPA_TRACE_CQE] = sizeof(struct nupa_trace_cqe),
		[NUPA_TRACE_FRAME] = sizeof(struct nupa_trace_frame),
		[NUPA_TRACE_PACKET] = sizeof(struct nupa_trace_packet),
	};

	return kind < sizeof(bytes) ? bytes[kind] : 0;
}

static void skip(struct nupa_reader *reader, size_t bytes)
{
	reader->begin += bytes;
	if (reader->begin == reader->end)
		reader->begin = reader->end = 0;
}

/* W1.  Whether a whole record of a known kind begins here. */
static bool is_record(const struct nupa_trace_record *record, size_t left)
{
	const size_t body = body_bytes(record->kind);

	return body && record->bytes % 8 == 0 && record->bytes <= left &&
	       record->bytes <= NUPA_TRACE_RECORD_MAX_BYTES &&
	       record->bytes >= sizeof(*record) + body &&
	       record->data_bytes <= record->bytes - sizeof(*record) - body;
}

/* The reader's next record; invalid ones and those of no interest are skipped. */
static const struct nupa_trace_record *peek(struct nupa_watch *watch, struct nupa_reader *reader)
{
	while (reader->end - reader->begin >= 8) {
		const struct nupa_trace_record *record =
		    (const void *)(reader->buffer + reader->begin);
		const size_t left = reader->end - reader->begin;

		if (record->kind == NUPA_TRACE_PAD && record->bytes >= 8 &&
		    record->bytes % 8 == 0 && record->bytes <= left) {
			skip(reader, record->bytes);
			continue;
		}
		if (left < sizeof(*record) || !is_record(record, left) ||
		    record->time_ns > watch->horizon_ns + FUTURE_NS)
			break;
		return record;
	}
	if (reader->end != reader->begin) { /* nothing tells where the next record begins */
		watch->counts.invalid++;
		skip(reader, reader->end - reader->begin);
	}
	return NULL;
}

static void choose(struct nupa_watch *watch)
{
	uint64_t first_ns = UINT64_MAX;

	watch->current = NULL;
	watch->others_ns = UINT64_MAX;
	for (uint32_t i = 1; i < watch->fabric->geometry.n_slots; i++) {
		struct nupa_reader *reader = &watch->readers[i];
		const struct nupa_trace_record *record;

		if (reader->begin == reader->end)
			continue;
		record = peek(watch, reader);
		if (!record)
			continue;
		if (!watch->current || record->time_ns < first_ns) {
			watch->others_ns = first_ns;
			first_ns = record->time_ns;
			watch->current = reader;
		} else if (record->time_ns < watch->others_ns) {
			watch->others_ns = record->time_ns;
		}
	}
}

static void count(struct nupa_watch *watch, struct nupa_reader *reader,
		  const struct nupa_trace_record *record)
{
	if (reader->sequence != UINT32_MAX && record->sequence != reader->sequence)
		watch->counts.lost += record->sequence - reader->sequence;
	reader->sequence = record->sequence + 1;
	if (reader->sequence == UINT32_MAX)
		reader->sequence = 0;
	watch->counts.records++;
}

const struct nupa_trace_record *nupa_rings_next(struct nupa_watch *watch)
{
	for (;;) {
		const struct nupa_trace_record *record = NULL;

		if (watch->current)
			record = peek(watch, watch->current);
		if (!record || record->time_ns > watch->others_ns) {
			choose(watch);
			record = watch->current ? peek(watch, watch->current) : NULL;
		}
		if (!record || record->time_ns > watch->horizon_ns)
			return NULL;
		count(watch, watch->current, record);
		watch->record_bytes = record->bytes;
		if (!watch->stopped_ns || record->time_ns <= watch->stopped_ns)
			return record;
		nupa_rings_pass(watch);
	}
}

void nupa_rings_pass(struct nupa_watch *watch)
{
	skip(watch->current, watch->record_bytes);
	watch->record_bytes = 0;
}
