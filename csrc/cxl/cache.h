/* SPDX-License-Identifier: BSD-3-Clause
 * A host's cache of lines in front of its bus: MESI, kept coherent by the snoop filters of the
 * memory.  Memory without a filter is not cached. */
#ifndef NUPA_CXL_CACHE_H
#define NUPA_CXL_CACHE_H

#include "cxl/snoop.h"
#include "cxl/transact.h"

/* cffi: begin */
enum nupa_cxl_mesi { NUPA_CXL_I, NUPA_CXL_S, NUPA_CXL_E, NUPA_CXL_M };

struct nupa_cxl_cache_shape {
	uint32_t host; /* its number in all filters, below 64 */
	uint32_t sets, ways;
	uint32_t tells; /* 1: MemClnEvct for each clean line that is evicted; 0: no message */
};

struct nupa_cxl_cache_counts {
	uint64_t hits, misses;
	uint64_t upgrades;    /* misses of writes to lines in S */
	uint64_t evictions;   /* evicted for want of room */
	uint64_t write_backs; /* of the host's own accord, or asked by a BISnp */
	uint64_t snoops;      /* that found their line */
	uint64_t lost;        /* lines whose link went down */
};

/* Each returns 0 or a negative errno unless stated otherwise. */

/* A cache of sets * ways lines.  sets 0 removes the cache after writing back its lines.  EINVAL:
 * sets are not a power of two up to 2^20, ways are not 1 to 64, or there is no such host.  EBUSY:
 * the host has a cache; ENOMEM.  If another cache has the number in a filter, that memory is not
 * cached. */
int nupa_cxl_bus_set_cache(struct nupa_cxl_bus *bus, const struct nupa_cxl_cache_shape *shape);
/* Writes back and drops all lines of the cache, and tells the filters. */
int nupa_cxl_bus_flush(struct nupa_cxl_bus *bus);
/* Writes back and drops these lines in all caches. */
struct nupa_cxl_result nupa_cxl_flush(struct nupa_cxl_bus *bus, uint64_t hpa, uint64_t bytes);
/* enum nupa_cxl_mesi.  EINVAL: no cache; EFAULT: no memory is reached there. */
int nupa_cxl_cache_state(struct nupa_cxl_bus *bus, uint64_t hpa);
/* EINVAL: no cache. */
int nupa_cxl_cache_counts(struct nupa_cxl_bus *bus, struct nupa_cxl_cache_counts *counts);
/* cffi: end */

struct bus_line;

/* I is without memory. */
struct cache_line {
	_Alignas(64) uint8_t data[CXL_LINE_BYTES];
	struct nupa_cxl_memory *memory;
	uint64_t offset;
	uint64_t hpa;  /* the route by which it was fetched */
	uint64_t used; /* when, by the set's `now` */
	enum nupa_cxl_mesi state;
};

/* C1 Lines are added, leave S, and are removed only under the lock of their memory's filter, too.
 * C2 A line in E becomes M under the set's lock alone. */
struct cache_set {
	pthread_mutex_t lock;
	struct cache_line *lines;
	uint64_t now;
	struct nupa_cxl_cache_counts counts;
	struct nupa_cxl_memory *wanted; /* the last request in flight */
	uint64_t wanted_offset;
};

struct nupa_cxl_cache {
	struct nupa_cxl_cache_shape shape;
	struct cache_set *sets;
	struct cache_line *lines;
	struct nupa_cxl_snoop **joined; /* under snoop_joins */
	uint32_t n_joined;
};

/* A host's answer to a BISnp; `state` is then the directory's. */
struct cache_answer {
	enum nupa_cxl_meta state;
	bool is_conflict, has_written;
};

/* For a filter, which holds its lock. */
void cache_snoop(struct nupa_cxl_cache *cache, struct nupa_cxl_memory *memory, uint64_t offset,
		 enum nupa_cxl_snp snp, struct cache_answer *answer);
/* The filter and its memory end; the caller holds `snoop_joins`, too. */
void cache_leave(struct nupa_cxl_cache *cache, struct nupa_cxl_snoop *snoop);

/* cache_lines.c.  Except the first, all need the set's lock. */
struct cache_set *cache_set_of(struct nupa_cxl_cache *cache, uint64_t offset);
struct cache_line *cache_find(struct nupa_cxl_cache *cache, struct cache_set *set,
			      const struct nupa_cxl_memory *memory, uint64_t offset);
void cache_line_drop(struct cache_line *line);
/* Poisons a changed line: readers of the memory must not take it for the data written last. */
void cache_line_lose(struct cache_line *line);
/* Changed data goes to the memory. */
void cache_line_write_back(struct cache_set *set, struct cache_line *line);

/* Loses all lines of *memory*.  Under the lock of its filter. */
void cache_lose_memory(struct nupa_cxl_cache *cache, const struct nupa_cxl_memory *memory);

/* For cache_request.c. */
/* Removes a line, if it is still there.  tells: the directory learns of a clean line, too. */
void cache_evict(struct nupa_cxl_bus *bus, struct nupa_cxl_memory *memory, uint64_t offset,
		 bool tells);

/* For a bus.  Functions that change it hold its lock for writing, requests for reading. */

/* Whether the line at hpa is reached and cached; if so it is in *line. */
bool cache_has(struct nupa_cxl_bus *bus, uint64_t hpa, struct bus_line *line);
enum nupa_cxl_status cache_read(struct nupa_cxl_bus *bus, const struct bus_line *line, uint64_t hpa,
				uint8_t *to, size_t bytes);
enum nupa_cxl_status cache_write(struct nupa_cxl_bus *bus, const struct bus_line *line,
				 uint64_t hpa, const uint8_t *from, size_t bytes);
/* The bus is about to lose these parts: their lines are written back. */
void cache_drop_parts(struct nupa_cxl_bus *bus, const struct nupa_cxl_part *parts, uint32_t n);
/* Ports are down: lines behind them are lost, and poisoned if they were changed. */
void cache_lose(struct nupa_cxl_bus *bus);
/* NULL does nothing.  Lines not written back are lost, and poisoned if they were changed. */
void cache_free(struct nupa_cxl_cache *cache);

#endif
