/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on a cache beside reads and writes: flushes of lines, states, and counts. */
#include "cxl/bus.h"
#include "cxl/cache.h"

#include <errno.h>
#include <string.h>

static enum nupa_cxl_status flush_line(struct nupa_cxl_bus *bus, uint64_t hpa)
{
	uint32_t host = bus->cache ? bus->cache->shape.host : SNOOP_HOSTS;
	struct bus_line line;
	enum nupa_cxl_status status;

	if (!nupa_cxl_table_find(&bus->table, hpa, &line.place))
		return NUPA_CXL_NO_DECODER;
	for (uint32_t i = 0; i < line.place.n_hops; i++)
		if (bus->ports[line.place.hops[i]].is_down)
			return NUPA_CXL_LINK_DOWN;
	status = bus_line_find(bus, &line);
	if (status != NUPA_CXL_OK || !snoop_of(line.memory))
		return status;
	line.offset -= line.offset % CXL_LINE_BYTES;
	if (bus->cache)
		cache_evict(bus, line.memory, line.offset, true);
	snoop_flush(snoop_of(line.memory), host, line.offset);
	return NUPA_CXL_OK;
}

struct nupa_cxl_result nupa_cxl_flush(struct nupa_cxl_bus *bus, uint64_t hpa, uint64_t bytes)
{
	struct nupa_cxl_result result = { .status = NUPA_CXL_OK };
	uint64_t end = hpa + bytes;

	bus_enter(bus);
	for (uint64_t at = hpa - hpa % CXL_LINE_BYTES; bytes && at < end; at += CXL_LINE_BYTES) {
		enum nupa_cxl_status status = flush_line(bus, at);

		if (status != NUPA_CXL_OK && result.status == NUPA_CXL_OK)
			result = (struct nupa_cxl_result){ .hpa = at, .status = status };
	}
	bus_leave(bus);
	return result;
}

static int state_at(struct nupa_cxl_bus *bus, uint64_t hpa)
{
	struct bus_line line;
	struct cache_line *found;
	struct cache_set *set;
	int state;

	if (!bus->cache)
		return -EINVAL;
	if (!nupa_cxl_table_find(&bus->table, hpa, &line.place) ||
	    bus_line_find(bus, &line) != NUPA_CXL_OK)
		return -EFAULT;
	line.offset -= line.offset % CXL_LINE_BYTES;
	set = cache_set_of(bus->cache, line.offset);
	pthread_mutex_lock(&set->lock);
	found = cache_find(bus->cache, set, line.memory, line.offset);
	state = found ? (int)found->state : NUPA_CXL_I;
	pthread_mutex_unlock(&set->lock);
	return state;
}

int nupa_cxl_cache_state(struct nupa_cxl_bus *bus, uint64_t hpa)
{
	int state;

	bus_enter(bus);
	state = state_at(bus, hpa);
	bus_leave(bus);
	return state;
}

int nupa_cxl_cache_counts(struct nupa_cxl_bus *bus, struct nupa_cxl_cache_counts *counts)
{
	int error = -EINVAL;

	memset(counts, 0, sizeof(*counts));
	bus_enter(bus);
	for (uint32_t i = 0; bus->cache && i < bus->cache->shape.sets; i++) {
		struct cache_set *set = &bus->cache->sets[i];
		const uint64_t *from = (const uint64_t *)&set->counts;

		error = 0;
		pthread_mutex_lock(&set->lock);
		for (size_t k = 0; k < sizeof(*counts) / sizeof(uint64_t); k++)
			((uint64_t *)counts)[k] += from[k];
		pthread_mutex_unlock(&set->lock);
	}
	bus_leave(bus);
	return error;
}
