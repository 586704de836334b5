/* SPDX-License-Identifier: BSD-3-Clause
 * The cache of cache.h: its beginning and end, and the lines that leave it. */
#include "cxl/cache.h"

#include "cxl/bus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETS (1u << 20)
#define MAX_WAYS 64u

/* --- lines that go ----------------------------------------------------------------- */

void cache_evict(struct nupa_cxl_bus *bus, struct nupa_cxl_memory *memory, uint64_t offset,
		 bool tells)
{
	struct nupa_cxl_cache *cache = bus->cache;
	struct nupa_cxl_snoop *snoop = snoop_of(memory);
	struct cache_set *set = cache_set_of(cache, offset);
	struct nupa_cxl_trace message = { .offset = offset,
					  .host = (uint8_t)cache->shape.host,
					  .kind = NUPA_CXL_MEM_CLN_EVCT,
					  .lines = 1 };
	struct nupa_cxl_place place;
	struct cache_line *line;
	bool is_written = false;
	uint64_t hpa = 0;

	pthread_mutex_lock(&snoop->lock);
	pthread_mutex_lock(&set->lock);
	line = cache_find(cache, set, memory, offset);
	if (line) {
		hpa = line->hpa;
		is_written = line->state == NUPA_CXL_M;
		if (is_written)
			cache_line_write_back(set, line);
		cache_line_drop(line);
	}
	pthread_mutex_unlock(&set->lock);
	if (line && (is_written || tells)) {
		struct snoop_entry *entry = snoop_find(snoop, offset);

		if (is_written)
			message.kind = NUPA_CXL_MEM_WR;
		snoop_say(snoop, &message);
		snoop_answer(snoop, cache->shape.host, offset, NUPA_CXL_CMP);
		if (entry)
			snoop_set(snoop, entry, cache->shape.host, NUPA_CXL_META_I);
	}
	pthread_mutex_unlock(&snoop->lock);
	if (!is_written || !nupa_cxl_table_find(&bus->table, hpa, &place))
		return;
	for (uint32_t i = 0; i < place.n_hops; i++)
		if (!bus_pass(bus, place.hops[i], BUS_WRITES))
			return;
}

static bool is_of(const struct cache_line *line, const struct nupa_cxl_part *parts, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (line->memory == parts[i].memory && line->offset >= parts[i].offset &&
		    line->offset - parts[i].offset < parts[i].bytes)
			return true;
	return false;
}

/* Lines of these parts, or all: parts are NULL. */
static void evict_all(struct nupa_cxl_bus *bus, const struct nupa_cxl_part *parts, uint32_t n)
{
	const struct nupa_cxl_cache_shape *shape = &bus->cache->shape;

	for (size_t i = 0; i < (size_t)shape->sets * shape->ways; i++) {
		struct cache_set *set = &bus->cache->sets[i / shape->ways];
		struct nupa_cxl_memory *memory;
		uint64_t offset;

		pthread_mutex_lock(&set->lock);
		memory = bus->cache->lines[i].memory;
		offset = bus->cache->lines[i].offset;
		if (memory && parts && !is_of(&bus->cache->lines[i], parts, n))
			memory = NULL;
		pthread_mutex_unlock(&set->lock);
		if (memory)
			cache_evict(bus, memory, offset, true);
	}
}

void cache_drop_parts(struct nupa_cxl_bus *bus, const struct nupa_cxl_part *parts, uint32_t n)
{
	if (bus->cache && n)
		evict_all(bus, parts, n);
}

int nupa_cxl_bus_flush(struct nupa_cxl_bus *bus)
{
	int error = 0;

	bus_enter(bus);
	if (bus->cache)
		evict_all(bus, NULL, 0);
	else
		error = -EINVAL;
	bus_leave(bus);
	return error;
}

static bool is_behind_a_dead_link(const struct nupa_cxl_bus *bus, uint64_t hpa)
{
	struct nupa_cxl_place place;

	if (!nupa_cxl_table_find(&bus->table, hpa, &place))
		return false;
	for (uint32_t i = 0; i < place.n_hops; i++)
		if (bus->ports[place.hops[i]].is_down)
			return true;
	return false;
}

void cache_lose(struct nupa_cxl_bus *bus)
{
	struct nupa_cxl_cache *cache = bus->cache;

	for (size_t i = 0; cache && i < (size_t)cache->shape.sets * cache->shape.ways; i++) {
		struct cache_set *set = &cache->sets[i / cache->shape.ways];
		struct cache_line *line = &cache->lines[i];
		struct nupa_cxl_memory *memory;
		struct nupa_cxl_snoop *snoop;
		uint64_t offset;

		pthread_mutex_lock(&set->lock);
		memory = line->memory;
		offset = line->offset;
		if (memory && !is_behind_a_dead_link(bus, line->hpa))
			memory = NULL;
		pthread_mutex_unlock(&set->lock);
		if (!memory)
			continue;
		snoop = snoop_of(memory);
		pthread_mutex_lock(&snoop->lock);
		pthread_mutex_lock(&set->lock);
		if (line->memory) { /* no BISnp came first */
			cache_line_lose(line);
			set->counts.lost++;
			snoop_forget(snoop, cache->shape.host, offset);
		}
		pthread_mutex_unlock(&set->lock);
		pthread_mutex_unlock(&snoop->lock);
	}
}

/* --- made, and freed --------------------------------------------------------------- */

static struct nupa_cxl_cache *cache_new(const struct nupa_cxl_cache_shape *shape)
{
	struct nupa_cxl_cache *cache = calloc(1, sizeof(*cache));
	size_t bytes = (size_t)shape->sets * shape->ways * sizeof(*cache->lines);

	if (!cache)
		return NULL;
	cache->shape = *shape;
	cache->lines = aligned_alloc(_Alignof(struct cache_line), bytes);
	cache->sets = calloc(shape->sets, sizeof(*cache->sets));
	if (!cache->lines || !cache->sets) {
		free(cache->lines);
		free(cache->sets);
		free(cache);
		return NULL;
	}
	memset(cache->lines, 0, bytes);
	for (uint32_t i = 0; i < shape->sets; i++) {
		/* It has no attributes, and cannot fail. */
		pthread_mutex_init(&cache->sets[i].lock, NULL);
		cache->sets[i].lines = cache->lines + (size_t)i * shape->ways;
	}
	return cache;
}

void cache_free(struct nupa_cxl_cache *cache)
{
	if (!cache)
		return;
	pthread_mutex_lock(&snoop_joins);
	for (uint32_t i = 0; i < cache->n_joined; i++) {
		struct nupa_cxl_snoop *snoop = cache->joined[i];

		pthread_mutex_lock(&snoop->lock);
		cache_lose_memory(cache, snoop->memory);
		snoop_forget_all(snoop, cache->shape.host);
		__atomic_store_n(&snoop->caches[cache->shape.host], NULL, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&snoop->lock);
	}
	pthread_mutex_unlock(&snoop_joins);
	for (uint32_t i = 0; i < cache->shape.sets; i++)
		pthread_mutex_destroy(&cache->sets[i].lock);
	free(cache->joined);
	free(cache->sets);
	free(cache->lines);
	free(cache);
}

int nupa_cxl_bus_set_cache(struct nupa_cxl_bus *bus, const struct nupa_cxl_cache_shape *shape)
{
	struct nupa_cxl_cache *cache = NULL, *before = NULL;
	int error = 0;

	if (shape->host >= SNOOP_HOSTS ||
	    (shape->sets && (shape->sets > MAX_SETS || shape->sets & (shape->sets - 1) ||
			     !shape->ways || shape->ways > MAX_WAYS)))
		return -EINVAL;
	if (shape->sets && !(cache = cache_new(shape)))
		return -ENOMEM;
	pthread_rwlock_wrlock(&bus->lock);
	if (cache && bus->cache) {
		error = -EBUSY;
		before = cache;
	} else {
		if (bus->cache)
			evict_all(bus, NULL, 0);
		before = bus->cache;
		bus->cache = cache;
	}
	pthread_rwlock_unlock(&bus->lock);
	cache_free(before);
	return error;
}
