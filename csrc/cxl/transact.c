/* SPDX-License-Identifier: BSD-3-Clause
 * Requests of transact.h, one line at a time. */
#include "cxl/transact.h"

#include "cxl/bus.h"
#include "cxl/cache.h"

#include <string.h>

/* Through the ports on the way; false: one of them has no link. */
static bool pass(struct nupa_cxl_bus *bus, const struct nupa_cxl_place *place, size_t counter)
{
	for (uint32_t i = 0; i < place->n_hops; i++)
		if (!bus_pass(bus, place->hops[i], counter))
			return false;
	return true;
}

/* The memory that answers for hpa, once the request has arrived there. */
static enum nupa_cxl_status reach(struct nupa_cxl_bus *bus, uint64_t hpa, size_t counter,
				  struct bus_line *line)
{
	if (!nupa_cxl_table_find(&bus->table, hpa, &line->place))
		return NUPA_CXL_NO_DECODER;
	if (!pass(bus, &line->place, counter))
		return NUPA_CXL_LINK_DOWN;
	return bus_line_find(bus, line);
}

/* NUPA_CXL_POISON: *to is as before. */
static enum nupa_cxl_status media_read(struct nupa_cxl_bus *bus, const struct bus_line *line,
				       uint8_t *to, size_t bytes)
{
	struct nupa_cxl_snoop *snoop = snoop_of(line->memory);

	if (snoop ? snoop_read(snoop, line->offset, to, bytes)
		  : cxl_memory_read(line->memory, line->offset, to, bytes))
		return NUPA_CXL_OK;
	for (uint32_t i = 0; i < line->place.n_hops; i++)
		bus_count(&bus->ports[line->place.hops[i]].counters.poison);
	return NUPA_CXL_POISON;
}

static void media_write(const struct bus_line *line, const uint8_t *from, size_t bytes)
{
	struct nupa_cxl_snoop *snoop = snoop_of(line->memory);

	if (snoop)
		snoop_write(snoop, line->offset, from, bytes);
	else
		cxl_memory_write(line->memory, line->offset, from, bytes);
}

/* One line, or bytes of one. */
static enum nupa_cxl_status read_line(struct nupa_cxl_bus *bus, uint64_t hpa, uint8_t *to,
				      size_t bytes)
{
	struct bus_line line;
	enum nupa_cxl_status status;

	if (bus->cache && cache_has(bus, hpa, &line)) {
		status = cache_read(bus, &line, hpa, to, bytes);
	} else {
		status = reach(bus, hpa, BUS_READS, &line);
		if (status == NUPA_CXL_OK)
			status = media_read(bus, &line, to, bytes);
	}
	if (status != NUPA_CXL_OK)
		memset(to, 0xFF, bytes);
	return status;
}

static enum nupa_cxl_status write_line(struct nupa_cxl_bus *bus, uint64_t hpa, const uint8_t *from,
				       size_t bytes)
{
	struct bus_line line;
	size_t counter = bytes == CXL_LINE_BYTES ? BUS_WRITES : BUS_PARTIAL_WRITES;
	enum nupa_cxl_status status;

	if (bus->cache && cache_has(bus, hpa, &line))
		return cache_write(bus, &line, hpa, from, bytes);
	status = reach(bus, hpa, counter, &line);
	if (status == NUPA_CXL_OK)
		media_write(&line, from, bytes);
	return status;
}

static size_t line_rest(uint64_t hpa, size_t bytes)
{
	size_t rest = CXL_LINE_BYTES - hpa % CXL_LINE_BYTES;

	return bytes < rest ? bytes : rest;
}

static void note(struct nupa_cxl_result *result, uint64_t hpa, enum nupa_cxl_status status)
{
	if (status == NUPA_CXL_OK || result->status != NUPA_CXL_OK)
		return;
	result->hpa = hpa;
	result->status = status;
}

struct nupa_cxl_result nupa_cxl_read(struct nupa_cxl_bus *bus, uint64_t hpa, void *to, size_t bytes)
{
	struct nupa_cxl_result result = { .status = NUPA_CXL_OK };
	uint8_t *at = to;

	bus_enter(bus);
	for (size_t part; bytes; bytes -= part, hpa += part, at += part) {
		part = line_rest(hpa, bytes);
		note(&result, hpa, read_line(bus, hpa, at, part));
	}
	bus_leave(bus);
	return result;
}

struct nupa_cxl_result nupa_cxl_write(struct nupa_cxl_bus *bus, uint64_t hpa, const void *from,
				      size_t bytes)
{
	struct nupa_cxl_result result = { .status = NUPA_CXL_OK };
	const uint8_t *at = from;

	bus_enter(bus);
	for (size_t part; bytes; bytes -= part, hpa += part, at += part) {
		part = line_rest(hpa, bytes);
		note(&result, hpa, write_line(bus, hpa, at, part));
	}
	bus_leave(bus);
	return result;
}
