/* SPDX-License-Identifier: BSD-3-Clause
 * The structure of a bus of transact.h: for bus.c, which changes it, and transact.c, which uses it.
 */
#ifndef NUPA_CXL_BUS_H
#define NUPA_CXL_BUS_H

#include "cxl/transact.h"

#include <pthread.h>
#include <stddef.h>

struct bus_device {
	struct nupa_cxl_part *parts; /* in order, and apart */
	uint32_t n_parts;
	bool is_viral;
};

struct bus_port {
	_Alignas(
	    64) struct nupa_cxl_counters counters; /* atomics: relaxed, as they order nothing */
	bool is_down;
};

/* The lock is for all but poison and counters: requests hold it shared. */
struct nupa_cxl_bus {
	pthread_rwlock_t lock;
	struct nupa_cxl_table table; /* of the bus's own arrays */
	struct bus_device *devices;
	struct bus_port *ports;
	uint32_t n_devices, n_ports;
	struct nupa_cxl_cache *cache; /* cache.h, or NULL */
};

/* The counter that a request adds to. */
#define BUS_READS offsetof(struct nupa_cxl_counters, reads)
#define BUS_WRITES offsetof(struct nupa_cxl_counters, writes)
#define BUS_PARTIAL_WRITES offsetof(struct nupa_cxl_counters, partial_writes)

/* The place of a line of memory. */
struct bus_line {
	struct nupa_cxl_place place;
	struct nupa_cxl_memory *memory;
	uint64_t offset;
};

void bus_enter(struct nupa_cxl_bus *bus);
void bus_leave(struct nupa_cxl_bus *bus);

/* The part that contains dpa, or NULL. */
const struct nupa_cxl_part *bus_part(const struct bus_device *device, uint64_t dpa);

static inline void bus_count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* The steps of a request in a bus that was entered: past each port of its place, to the memory
 * behind it.  False: a port has no link. */
static inline bool bus_pass(struct nupa_cxl_bus *bus, uint16_t number, size_t counter)
{
	struct bus_port *port = &bus->ports[number];

	if (port->is_down) {
		bus_count(&port->counters.refused);
		return false;
	}
	bus_count((uint64_t *)((char *)&port->counters + counter));
	return true;
}

/* NUPA_CXL_VIRAL, NUPA_CXL_NO_MEMORY, or the rest of *line is known. */
static inline enum nupa_cxl_status bus_line_find(struct nupa_cxl_bus *bus, struct bus_line *line)
{
	const struct bus_device *device = &bus->devices[line->place.device];
	const struct nupa_cxl_part *part;

	if (device->is_viral)
		return NUPA_CXL_VIRAL;
	part = bus_part(device, line->place.dpa);
	if (!part)
		return NUPA_CXL_NO_MEMORY;
	line->memory = part->memory;
	line->offset = part->offset + (line->place.dpa - part->dpa);
	return NUPA_CXL_OK;
}

#endif
