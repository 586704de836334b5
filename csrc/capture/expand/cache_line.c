/* SPDX-License-Identifier: BSD-3-Clause
 * CXL.cache messages of the fast channel.  A record names the line that was written.  As rings
 * work, its consumer has read the line's former content, and so shares the line.  The messages are
 * the fewest that coherent caches need: polling a line that has not changed is a hit. */
#include "capture/expand/cache_line.h"

#include "base/bytes.h"
#include "segment/layout/geometry.h"
#include "segment/ring/ring.h"
#include "segment/segment_internal.h"
#include "abi/verbs_abi.h"
#include "capture/expand/expand.h"

#include <stddef.h>
#include <stdlib.h>

enum { INVALID, SHARED, EXCLUSIVE, MODIFIED };

/* CXL 3.1, 3.2.3: channels, as the format numbers them. */
enum { D2H_REQ = 1, D2H_RSP, D2H_DATA, H2D_REQ, H2D_RSP, H2D_DATA };
/* 3.2.4: opcodes */
enum { RD_OWN = 2, RD_SHARED = 3, RD_OWN_NO_DATA = 5 };
enum { RSP_I_HIT_SE = 5, RSP_S_FWD_M = 7 };
enum { SNP_DATA = 1, SNP_INV = 2 };
enum { GO = 4 };

#define FLIT_256B 1
#define VALID 0x80u
#define CACHE_HIT (1u << 1) /* RSP_PRE: another cache had it */

/* One message: its port is the writer's or the reader's; it carries the states of both. */
struct step {
	bool at_reader;
	uint8_t channel, opcode;
	uint8_t writer_before, writer_after, reader_before, reader_after;
};

static const struct step write_steps[] = {
	{ false, D2H_REQ, RD_OWN, INVALID, INVALID, INVALID, INVALID },
	{ false, H2D_RSP, GO, INVALID, EXCLUSIVE, INVALID, INVALID },
	{ false, H2D_DATA, 0, EXCLUSIVE, EXCLUSIVE, INVALID, INVALID },
};

static const struct step again_steps[] = {
	{ false, D2H_REQ, RD_OWN_NO_DATA, SHARED, SHARED, SHARED, SHARED },
	{ true, H2D_REQ, SNP_INV, SHARED, SHARED, SHARED, SHARED },
	{ true, D2H_RSP, RSP_I_HIT_SE, SHARED, SHARED, SHARED, INVALID },
	{ false, H2D_RSP, GO, SHARED, EXCLUSIVE, INVALID, INVALID },
};

/* The store in between turns EXCLUSIVE into MODIFIED without a message. */
static const struct step read_steps[] = {
	{ true, D2H_REQ, RD_SHARED, MODIFIED, MODIFIED, INVALID, INVALID },
	{ false, H2D_REQ, SNP_DATA, MODIFIED, MODIFIED, INVALID, INVALID },
	{ false, D2H_RSP, RSP_S_FWD_M, MODIFIED, SHARED, INVALID, INVALID },
	{ false, D2H_DATA, 0, SHARED, SHARED, INVALID, INVALID },
	{ true, H2D_RSP, GO, SHARED, SHARED, INVALID, SHARED },
	{ true, H2D_DATA, 0, SHARED, SHARED, SHARED, SHARED },
};

static const struct {
	const struct step *steps;
	uint32_t n;
} acts[] = {
	[NUPA_CACHE_WRITE] = { write_steps, sizeof(write_steps) / sizeof(struct step) },
	[NUPA_CACHE_WRITE_AGAIN] = { again_steps, sizeof(again_steps) / sizeof(struct step) },
	[NUPA_CACHE_READ] = { read_steps, sizeof(read_steps) / sizeof(struct step) },
};

/* --- one by one ---------------------------------------------------------------------- */

static const struct nupa_cache_part *part_of(const struct nupa_cache *cache)
{
	return &cache->parts[cache->part];
}

static const struct step *step_of(const struct nupa_cache *cache)
{
	return &acts[part_of(cache)->act].steps[cache->step];
}

/* The producer writes lines and reads the head. */
static bool is_producer(const struct nupa_cache *cache, bool reader)
{
	return (part_of(cache)->what == NUPA_CACHE_MESSAGE) != reader;
}

uint16_t nupa_cache_host(const struct nupa_cache *cache)
{
	return is_producer(cache, step_of(cache)->at_reader) ? cache->producer : cache->consumer;
}

bool nupa_cache_is_outbound(const struct nupa_cache *cache)
{
	return step_of(cache)->channel <= D2H_DATA;
}

bool nupa_cache_is_last(const struct nupa_cache *cache)
{
	return cache->part + 1 == cache->n_parts && cache->step + 1 == acts[part_of(cache)->act].n;
}

bool nupa_cache_next(struct nupa_cache *cache)
{
	if (nupa_cache_is_last(cache))
		return false;
	if (++cache->step == acts[part_of(cache)->act].n) {
		cache->step = 0;
		cache->part++;
	}
	return true;
}

/* --- bytes --------------------------------------------------------------------------- */

/* 3.2.3.5: RspData of a GO is the state that is granted. */
static uint32_t granted(uint8_t state)
{
	static const uint8_t codes[] = {
		[INVALID] = 3,
		[SHARED] = 1,
		[EXCLUSIVE] = 2,
		[MODIFIED] = 6,
	};

	return codes[state];
}

static uint8_t *put_front(const struct nupa_cache *cache, const struct step *step, uint64_t address,
			  uint8_t *at)
{
	const bool at_reader = step->at_reader;
	const uint8_t writer = (uint8_t)(step->writer_before << 4 | step->writer_after);
	const uint8_t reader = (uint8_t)(step->reader_before << 4 | step->reader_after);

	*at++ = step->channel;
	*at++ = FLIT_256B;
	*at++ = part_of(cache)->what;
	*at++ = at_reader ? 2 : 1;
	*at++ = at_reader ? reader : writer;
	*at++ = at_reader ? writer : reader;
	at = nupa_put16(at, is_producer(cache, at_reader) ? cache->consumer : cache->producer);
	return nupa_put64(at, address);
}

/* 64 bytes, or as many as are known. */
static uint32_t put_line(const struct nupa_cache *cache, uint8_t *at)
{
	memset(at, 0, NUPA_CACHE_LINE);
	if (part_of(cache)->act != NUPA_CACHE_READ)
		return NUPA_CACHE_LINE; /* rings start zeroed */
	if (part_of(cache)->what == NUPA_CACHE_HEAD) {
		memcpy(at, &cache->head, sizeof(cache->head));
		return NUPA_CACHE_LINE;
	}
	memcpy(at, cache->line, NUPA_CACHE_LINE);
	return cache->known_bytes;
}

uint32_t nupa_cache_build(const struct nupa_cache *cache, uint8_t *out, uint32_t *original_bytes)
{
	const struct nupa_cache_part *part = part_of(cache);
	const struct step *step = step_of(cache);
	const uint64_t address = part->what == NUPA_CACHE_HEAD ? cache->head_at : cache->line_at;
	const uint32_t hit = part->act == NUPA_CACHE_WRITE ? 0 : CACHE_HIT;
	uint8_t *at = put_front(cache, step, address, out);
	uint32_t known;

	switch (step->channel) {
	case D2H_REQ:
		*at++ = (uint8_t)(VALID | (uint32_t)step->opcode << 2);
		at = nupa_put(nupa_put(at, (uint32_t)part->cqid << 4, 2), 0, 3);
		at = nupa_put64(at, address);
		break;
	case D2H_RSP:
		*at++ = (uint8_t)(VALID | (uint32_t)step->opcode << 2);
		at = nupa_put(at, (uint32_t)part->uqid << 12, 3);
		break;
	case H2D_REQ:
		*at++ = (uint8_t)(VALID | (uint32_t)step->opcode << 4);
		at = nupa_put(nupa_put(at, (uint32_t)part->uqid << 4, 2), 0, 3);
		at = nupa_put64(at, address);
		break;
	case H2D_RSP:
		*at++ = (uint8_t)(VALID | (uint32_t)step->opcode << 3 | hit);
		at = nupa_put(
		    at, granted(step->at_reader ? step->reader_after : step->writer_after) << 4, 2);
		at = nupa_put(at, (uint32_t)part->cqid << 12, 3);
		break;
	default:
		*at++ = VALID;
		at = nupa_put(
		    at, (uint32_t)(step->channel == D2H_DATA ? part->uqid : part->cqid) << 12, 3);
		known = put_line(cache, at);
		*original_bytes = (uint32_t)(at - out) + NUPA_CACHE_LINE;
		return (uint32_t)(at - out) + known;
	}
	*original_bytes = (uint32_t)(at - out);
	return *original_bytes;
}

/* --- from records -------------------------------------------------------------------- */

/* How far the producer of a ring knows its consumer to have read. */
struct nupa_cache_ring {
	uint64_t head;
	uint32_t epoch; /* the producer's; 0: nothing is known */
};

int nupa_caches_open(struct nupa_watch *watch)
{
	const size_t n = watch->fabric->geometry.n_slots;

	if (!(watch->levels & NUPA_WATCH_CACHE))
		return 0;
	watch->cache_rings = calloc(n * n, sizeof(*watch->cache_rings));
	return watch->cache_rings ? 0 : -1;
}

void nupa_caches_close(struct nupa_watch *watch)
{
	free(watch->cache_rings);
}

/* CQIDs are the requesting host's; UQIDs are given to the snooped one: 12 bits each. */
static uint16_t next_id(uint16_t *ids, uint32_t host)
{
	return ids[host]++ & 0xfff;
}

static void add_part(struct nupa_watch *watch, struct nupa_cache *cache, enum nupa_cache_what what,
		     enum nupa_cache_act act)
{
	struct nupa_cache_part *part = &cache->parts[cache->n_parts++];
	const bool reads = act == NUPA_CACHE_READ;
	const bool producer_asks = (what == NUPA_CACHE_MESSAGE) != reads;
	const uint32_t asks = producer_asks ? cache->producer : cache->consumer;
	const uint32_t other = producer_asks ? cache->consumer : cache->producer;

	*part = (struct nupa_cache_part){ .act = (uint8_t)act, .what = (uint8_t)what };
	part->cqid = next_id(watch->cqids, asks);
	if (act != NUPA_CACHE_WRITE)
		part->uqid = next_id(watch->uqids, other);
}

/* The line as it was published.  Its payload stands behind the record's structure. */
static void copy_line(struct nupa_cache *cache, const struct nupa_trace_record *record)
{
	const struct nupa_trace_message *body = (const void *)(record + 1);
	const struct nupa_msg *msg = &body->msg;
	const uint32_t front = offsetof(struct nupa_msg, data), bytes = body->data.total_bytes;

	memcpy(cache->line, msg, sizeof(*msg));
	cache->known_bytes = NUPA_CACHE_LINE;
	/* Other payloads of lines have their bytes in the recorded line, too. */
	if (!bytes || bytes > NUPA_SEND_INLINE_BYTES || msg->flags & NUPA_F_DMA ||
	    (msg->op != NUPA_OP_SEND && msg->op != NUPA_OP_READ_RESP && msg->op != NUPA_OP_CM) ||
	    body->qp_type == IBV_QPT_UD)
		return;
	memcpy(cache->line + front, body + 1,
	       record->data_bytes < bytes ? record->data_bytes : bytes);
	if (record->data_bytes < bytes)
		cache->known_bytes = front + record->data_bytes;
}

void nupa_cache_message(struct nupa_watch *watch, const struct nupa_trace_record *record,
			uint32_t source, uint32_t from, uint32_t to, uint64_t transfer, bool ends)
{
	const struct nupa_superblock *sb = &watch->fabric->geometry;
	const struct nupa_arena_map map = nupa_arena_map(sb);
	const struct nupa_trace_message *body = (const void *)(record + 1);
	const uint32_t n_lines = body->line_shift < 32 ? 1u << body->line_shift : 0;
	const uint64_t lap = (uint64_t)body->msg.tag - 1;
	const uint64_t tail = lap * n_lines + body->line, ahead = body->data.ahead;
	const uint64_t ring = nupa_arena_offset(watch->fabric, source) + map.rings_off +
			      (uint64_t)record->peer * map.ring_stride;
	struct nupa_cache_ring *known;
	struct nupa_run *run;

	/* A receiver's record repeats what was sent before.  Messages between processes of a host
	 * pass no port.  W1: an impossible place counts as none. */
	if (!(watch->levels & NUPA_WATCH_CACHE) || record->flags & NUPA_TRACE_BY_RECEIVER ||
	    from == to || !body->msg.tag || n_lines > sb->ring_lines || body->line >= n_lines ||
	    ahead > tail || !record->peer || record->peer >= sb->n_slots)
		return;
	run = nupa_run_add(watch, NUPA_LEVEL_CACHE, NUPA_KIND_CXL_CACHE, transfer,
			   nupa_flags_of(record));
	run->how = NUPA_RUN_CACHE;
	run->cast.ends_transfer = ends;
	nupa_sights_port(watch, from, NUPA_OUTBOUND, &run->cast);
	nupa_sights_port(watch, to, NUPA_OUTBOUND, &run->cast);
	run->cache.producer = (uint16_t)from;
	run->cache.consumer = (uint16_t)to;
	run->cache.head_at = ring + offsetof(struct nupa_ring_header, head);
	run->cache.line_at =
	    ring + sizeof(struct nupa_ring_header) + (uint64_t)body->line * sizeof(struct nupa_msg);
	copy_line(&run->cache, record);

	known = &watch->cache_rings[(size_t)source * sb->n_slots + record->peer];
	if (known->epoch != watch->readers[source].epoch || tail - ahead < known->head) {
		known->epoch = watch->readers[source].epoch;
		known->head = tail - ahead;
	}
	if (tail - ahead != known->head) {
		add_part(watch, &run->cache, NUPA_CACHE_HEAD,
			 known->head ? NUPA_CACHE_WRITE_AGAIN : NUPA_CACHE_WRITE);
		add_part(watch, &run->cache, NUPA_CACHE_HEAD, NUPA_CACHE_READ);
		known->head = tail - ahead;
		run->cache.head = NUPA_HEAD(known->epoch, known->head);
	}
	add_part(watch, &run->cache, NUPA_CACHE_MESSAGE,
		 body->is_fresh ? NUPA_CACHE_WRITE : NUPA_CACHE_WRITE_AGAIN);
	add_part(watch, &run->cache, NUPA_CACHE_MESSAGE, NUPA_CACHE_READ);
}
