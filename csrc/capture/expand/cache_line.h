/* SPDX-License-Identifier: BSD-3-Clause
 * A line of the fast channel as CXL.cache moves it: from the cache of the writing host into that of
 * the reading host.  The bytes are those of nupa/packet/tables/cxl_cache.py. */
#ifndef NUPA_CAPTURE_CACHE_LINE_H
#define NUPA_CAPTURE_CACHE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#define NUPA_CACHE_LINE 64u
#define NUPA_CACHE_MAX_BYTES (16u + 14u + NUPA_CACHE_LINE) /* of a message */
#define NUPA_CACHE_PARTS_MAX 4u

/* Operations on a line. */
enum nupa_cache_act {
	NUPA_CACHE_WRITE,       /* neither has it */
	NUPA_CACHE_WRITE_AGAIN, /* both share it */
	NUPA_CACHE_READ,        /* by the reader, from the writer's cache */
};

/* `line` in the format. */
enum nupa_cache_what { NUPA_CACHE_MESSAGE = 1, NUPA_CACHE_HEAD };

struct nupa_cache_part {
	uint8_t act;  /* enum nupa_cache_act */
	uint8_t what; /* enum nupa_cache_what */
	uint16_t cqid, uqid;
};

/* Messages about one line, or two: of the head before, where the producer has read it. */
struct nupa_cache {
	uint32_t n_parts, part, step;
	struct nupa_cache_part parts[NUPA_CACHE_PARTS_MAX];
	uint16_t producer, consumer; /* hosts */
	uint64_t line_at, head_at;   /* in the segment */
	uint64_t head;               /* the word */
	uint32_t known_bytes;        /* of the line: it ends where a snap length cut it */
	uint8_t line[NUPA_CACHE_LINE];
};

/* The host at whose port this message is seen; whether the message comes from there. */
uint16_t nupa_cache_host(const struct nupa_cache *cache);
bool nupa_cache_is_outbound(const struct nupa_cache *cache);
/* Advances; false: that was the last one. */
bool nupa_cache_next(struct nupa_cache *cache);
bool nupa_cache_is_last(const struct nupa_cache *cache);
/* How much of this message was captured. */
uint32_t nupa_cache_build(const struct nupa_cache *cache, uint8_t *out, uint32_t *original_bytes);

struct nupa_watch;
struct nupa_trace_record;

int nupa_caches_open(struct nupa_watch *watch);
void nupa_caches_close(struct nupa_watch *watch);
/* The line of a message that `source` sends from host to host; ends: its transfer. */
void nupa_cache_message(struct nupa_watch *watch, const struct nupa_trace_record *record,
			uint32_t source, uint32_t from, uint32_t to, uint64_t transfer, bool ends);

#endif
