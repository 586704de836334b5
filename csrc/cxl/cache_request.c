/* SPDX-License-Identifier: BSD-3-Clause
 * Requests of a host with a cache: hits, and the requests that a miss sends to the memory's snoop
 * filter.  CXL 3.1 3.3.5: MemRd for a line to share, MemRd or MemInv for one to own. */
#include "cxl/bus.h"
#include "cxl/cache.h"

#include <stdlib.h>
#include <string.h>

/* A request, of a line or of bytes of one; its memory's filter knows the cache. */
struct access {
	struct nupa_cxl_bus *bus;
	const struct bus_line *place;
	struct nupa_cxl_snoop *snoop;
	struct cache_set *set;
	uint64_t offset, hpa; /* of the line */
	size_t at, bytes;     /* in the line */
	uint8_t *to;          /* a read's */
	const uint8_t *from;  /* a write's */
	bool writes;
};

/* --- filters that know the cache --------------------------------------------------- */

static bool join(struct nupa_cxl_cache *cache, struct nupa_cxl_snoop *snoop)
{
	struct nupa_cxl_cache **place = &snoop->caches[cache->shape.host];
	struct nupa_cxl_snoop **joined;

	if (__atomic_load_n(place, __ATOMIC_ACQUIRE) == cache)
		return true;
	pthread_mutex_lock(&snoop_joins);
	joined = realloc(cache->joined, (cache->n_joined + 1) * sizeof(struct nupa_cxl_snoop *));
	if (joined) {
		cache->joined = joined;
		pthread_mutex_lock(&snoop->lock);
		if (!*place) {
			joined[cache->n_joined++] = snoop;
			__atomic_store_n(place, cache, __ATOMIC_RELEASE);
		}
		pthread_mutex_unlock(&snoop->lock);
	}
	pthread_mutex_unlock(&snoop_joins);
	return __atomic_load_n(place, __ATOMIC_ACQUIRE) == cache;
}

bool cache_has(struct nupa_cxl_bus *bus, uint64_t hpa, struct bus_line *line)
{
	struct nupa_cxl_snoop *snoop;

	if (!nupa_cxl_table_find(&bus->table, hpa, &line->place))
		return false;
	for (uint32_t i = 0; i < line->place.n_hops; i++)
		if (bus->ports[line->place.hops[i]].is_down)
			return false;
	if (bus_line_find(bus, line) != NUPA_CXL_OK)
		return false;
	snoop = snoop_of(line->memory);
	return snoop && join(bus->cache, snoop);
}

/* --- the line ---------------------------------------------------------------------- */

static void use(const struct access *access, struct cache_line *line)
{
	line->used = ++access->set->now;
	if (access->writes) {
		memcpy(line->data + access->at, access->from, access->bytes);
		line->state = NUPA_CXL_M;
	} else {
		memcpy(access->to, line->data + access->at, access->bytes);
	}
}

static struct cache_line *find(const struct access *access)
{
	return cache_find(access->bus->cache, access->set, access->place->memory, access->offset);
}

static bool hit(const struct access *access)
{
	struct cache_set *set = access->set;
	struct cache_line *line;
	bool found;

	pthread_mutex_lock(&set->lock);
	line = find(access);
	found = line && (!access->writes || line->state >= NUPA_CXL_E);
	if (found) {
		use(access, line);
		set->counts.hits++;
	} else {
		set->counts.misses++;
		set->counts.upgrades += line != NULL;
		set->wanted = access->place->memory;
		set->wanted_offset = access->offset;
	}
	pthread_mutex_unlock(&set->lock);
	return found;
}

/* The line, a free one, or the least recently used one. */
static struct cache_line *choose(const struct access *access)
{
	struct cache_line *line = find(access), *lines = access->set->lines;

	if (line)
		return line;
	line = lines;
	for (uint32_t i = 0; i < access->bus->cache->shape.ways && line->memory; i++)
		if (!lines[i].memory || lines[i].used < line->used)
			line = &lines[i];
	return line;
}

static void make_room(const struct access *access)
{
	struct nupa_cxl_memory *memory;
	struct cache_line *line;
	uint64_t offset;

	pthread_mutex_lock(&access->set->lock);
	line = choose(access);
	memory = line->memory;
	offset = line->offset;
	if (memory == access->place->memory && offset == access->offset)
		memory = NULL;
	if (memory)
		access->set->counts.evictions++;
	pthread_mutex_unlock(&access->set->lock);
	if (memory)
		cache_evict(access->bus, memory, offset, access->bus->cache->shape.tells);
}

/* --- misses, under the filter's lock ----------------------------------------------- */

static void say(const struct access *access, enum nupa_cxl_kind kind, enum nupa_cxl_meta meta,
		enum nupa_cxl_snp snp, bool poison)
{
	struct nupa_cxl_trace message = { .offset = access->offset,
					  .host = (uint8_t)access->bus->cache->shape.host,
					  .kind = (uint8_t)kind,
					  .meta = (uint8_t)meta,
					  .snp = (uint8_t)snp,
					  .lines = 1,
					  .poison = poison };

	snoop_say(access->snoop, &message);
}

/* The state of the line: only E may change into M now. */
static enum nupa_cxl_mesi state_now(const struct access *access)
{
	struct cache_line *line;
	enum nupa_cxl_mesi state;

	pthread_mutex_lock(&access->set->lock);
	line = find(access);
	state = line ? line->state : NUPA_CXL_I;
	pthread_mutex_unlock(&access->set->lock);
	return state;
}

/* The request is no longer in flight. */
static void settle(const struct access *access)
{
	struct cache_set *set = access->set;

	if (set->wanted == access->place->memory && set->wanted_offset == access->offset)
		set->wanted = NULL;
}

/* The line in the granted state; false: another thread has taken the room. */
static bool install(const struct access *access, enum nupa_cxl_mesi state, bool is_new)
{
	struct cache_line *line;
	bool has_room;

	pthread_mutex_lock(&access->set->lock);
	settle(access);
	line = choose(access);
	has_room = !line->memory || !is_new;
	if (has_room) {
		if (is_new) {
			line->memory = access->place->memory;
			line->offset = access->offset;
			line->hpa = access->hpa;
			memcpy(line->data, line->memory->bytes + access->offset, CXL_LINE_BYTES);
		}
		line->state = state;
		use(access, line);
	}
	pthread_mutex_unlock(&access->set->lock);
	return has_room;
}

/* Another thread of this host was first: the line cannot be evicted, but it may become M. */
static void join_in(const struct access *access)
{
	pthread_mutex_lock(&access->set->lock);
	settle(access);
	use(access, find(access));
	pthread_mutex_unlock(&access->set->lock);
}

/* Straight to the memory, which no other host has then. */
static void bypass(const struct access *access, bool is_poisoned)
{
	const uint64_t at = access->offset + access->at;
	bool is_whole = access->bytes == CXL_LINE_BYTES;

	if (!access->writes) {
		memcpy(access->to, access->place->memory->bytes + at, access->bytes);
		return;
	}
	say(access, is_whole ? NUPA_CXL_MEM_WR : NUPA_CXL_MEM_WR_PTL, NUPA_CXL_META_I,
	    NUPA_CXL_SNP_NONE, is_poisoned);
	snoop_answer(access->snoop, access->bus->cache->shape.host, access->offset, NUPA_CXL_CMP);
	cxl_memory_write(access->place->memory, at, access->from, access->bytes);
}

static bool is_whole_write(const struct access *access)
{
	return access->writes && access->bytes == CXL_LINE_BYTES;
}

/* A line that the host does not have, or only shares and wants to change. */
static enum nupa_cxl_status request(const struct access *access, enum nupa_cxl_mesi state)
{
	uint32_t host = access->bus->cache->shape.host;
	bool owns = access->writes;
	bool has_data = state == NUPA_CXL_S || is_whole_write(access);
	enum nupa_cxl_snp snp = owns ? NUPA_CXL_SNP_INV : NUPA_CXL_SNP_DATA;
	enum nupa_cxl_meta meta = owns ? NUPA_CXL_META_A : NUPA_CXL_META_S;
	struct snoop_entry *entry;
	bool is_poisoned;

	say(access, has_data ? NUPA_CXL_MEM_INV : NUPA_CXL_MEM_RD, meta, snp, false);
	entry = snoop_entry_get(access->snoop, access->offset);
	snoop_others(access->snoop, entry, UINT64_C(1) << host, snp);
	owns = owns || !(entry->sharers & ~(UINT64_C(1) << host));
	is_poisoned = !has_data && cxl_memory_has_poison(access->place->memory, access->offset);
	say(access, owns ? NUPA_CXL_CMP_E : NUPA_CXL_CMP_S, 0, 0, false);
	if (!has_data)
		say(access, NUPA_CXL_MEM_DATA, 0, 0, is_poisoned);
	snoop_set(access->snoop, entry, host, owns ? NUPA_CXL_META_A : NUPA_CXL_META_S);
	if (!is_poisoned && install(access, owns ? NUPA_CXL_E : NUPA_CXL_S, state == NUPA_CXL_I))
		return NUPA_CXL_OK;
	snoop_set(access->snoop, entry, host, NUPA_CXL_META_I);
	pthread_mutex_lock(&access->set->lock);
	settle(access);
	pthread_mutex_unlock(&access->set->lock);
	if (is_poisoned && !access->writes)
		return NUPA_CXL_POISON;
	bypass(access, is_poisoned);
	return NUPA_CXL_OK;
}

static void count(const struct access *access, size_t counter)
{
	const struct nupa_cxl_place *place = &access->place->place;

	for (uint32_t i = 0; i < place->n_hops; i++)
		bus_pass(access->bus, place->hops[i], counter);
}

static enum nupa_cxl_status access_line(const struct access *access)
{
	enum nupa_cxl_status status = NUPA_CXL_OK;
	enum nupa_cxl_mesi state;

	if (hit(access))
		return status;
	make_room(access);
	pthread_mutex_lock(&access->snoop->lock);
	state = state_now(access);
	if (state == NUPA_CXL_I || (state == NUPA_CXL_S && access->writes))
		status = request(access, state);
	else
		join_in(access);
	pthread_mutex_unlock(&access->snoop->lock);
	if (state == NUPA_CXL_I && !is_whole_write(access))
		count(access, BUS_READS);
	if (status == NUPA_CXL_POISON)
		count(access, offsetof(struct nupa_cxl_counters, poison));
	return status;
}

static void prepare(struct access *access)
{
	access->snoop = snoop_of(access->place->memory);
	access->at = access->place->offset % CXL_LINE_BYTES;
	access->offset = access->place->offset - access->at;
	access->hpa -= access->at;
	access->set = cache_set_of(access->bus->cache, access->offset);
}

enum nupa_cxl_status cache_read(struct nupa_cxl_bus *bus, const struct bus_line *line, uint64_t hpa,
				uint8_t *to, size_t bytes)
{
	struct access access = { .bus = bus, .place = line, .hpa = hpa, .bytes = bytes, .to = to };

	prepare(&access);
	return access_line(&access);
}

enum nupa_cxl_status cache_write(struct nupa_cxl_bus *bus, const struct bus_line *line,
				 uint64_t hpa, const uint8_t *from, size_t bytes)
{
	struct access access = {
		.bus = bus, .place = line, .hpa = hpa, .bytes = bytes, .from = from, .writes = true
	};

	prepare(&access);
	return access_line(&access);
}
