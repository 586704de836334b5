/* SPDX-License-Identifier: BSD-3-Clause
 * The bus of transact.h: created, changed while no request is in flight, queried, and freed. */
#include "cxl/bus.h"

#include "cxl/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBERS 65536u /* hops and nodes have 16 bits */

static int lock_new(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attributes;
	int error = pthread_rwlockattr_init(&attributes);

	if (error)
		return error;
	/* Changes are rare and must not wait for a pause between many readers. */
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	error = pthread_rwlock_init(lock, &attributes);
	pthread_rwlockattr_destroy(&attributes);
	return error;
}

struct nupa_cxl_bus *nupa_cxl_bus_new(uint32_t n_devices, uint32_t n_ports)
{
	struct nupa_cxl_bus *bus;

	if (n_devices > MAX_NUMBERS || n_ports > MAX_NUMBERS) {
		errno = EINVAL;
		return NULL;
	}
	bus = calloc(1, sizeof(*bus));
	if (!bus)
		return NULL;
	bus->n_devices = n_devices;
	bus->n_ports = n_ports;
	bus->devices = calloc(n_devices + 1, sizeof(*bus->devices));
	bus->ports = aligned_alloc(_Alignof(struct bus_port), (n_ports + 1) * sizeof(*bus->ports));
	if (!bus->devices || !bus->ports || (errno = lock_new(&bus->lock))) {
		free(bus->devices);
		free(bus->ports);
		free(bus);
		return NULL;
	}
	memset(bus->ports, 0, (n_ports + 1) * sizeof(*bus->ports));
	return bus;
}

static void table_free(struct nupa_cxl_table *table)
{
	free((void *)table->ranges);
	free((void *)table->nodes);
	free((void *)table->hops);
}

void nupa_cxl_bus_free(struct nupa_cxl_bus *bus)
{
	if (!bus)
		return;
	cache_free(bus->cache);
	for (uint32_t i = 0; i < bus->n_devices; i++)
		free(bus->devices[i].parts);
	table_free(&bus->table);
	pthread_rwlock_destroy(&bus->lock);
	free(bus->devices);
	free(bus->ports);
	free(bus);
}

/* --- changes ----------------------------------------------------------------------- */

static void *copy(const void *from, size_t n, size_t bytes)
{
	void *to = calloc(n + 1, bytes);

	if (to && n)
		memcpy(to, from, n * bytes);
	return to;
}

int nupa_cxl_bus_set_table(struct nupa_cxl_bus *bus, const struct nupa_cxl_table *table)
{
	struct nupa_cxl_table now = *table, before;

	if (!nupa_cxl_table_check(table, bus->n_devices, bus->n_ports))
		return -EINVAL;
	now.ranges = copy(table->ranges, table->n_ranges, sizeof(*table->ranges));
	now.nodes = copy(table->nodes, table->n_nodes, sizeof(*table->nodes));
	now.hops = copy(table->hops, table->n_hops, sizeof(*table->hops));
	if (!now.ranges || !now.nodes || !now.hops) {
		table_free(&now);
		return -ENOMEM;
	}
	pthread_rwlock_wrlock(&bus->lock);
	before = bus->table;
	bus->table = now;
	pthread_rwlock_unlock(&bus->lock);
	table_free(&before);
	return 0;
}

static bool parts_check(const struct nupa_cxl_part *parts, uint32_t n)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct nupa_cxl_part *part = &parts[i];

		if ((part->dpa | part->bytes | part->offset) % CXL_LINE_BYTES || !part->memory ||
		    part->dpa < end || part->bytes > UINT64_MAX - part->dpa ||
		    part->offset > part->memory->size ||
		    part->bytes > part->memory->size - part->offset)
			return false;
		end = part->dpa + part->bytes;
	}
	return true;
}

int nupa_cxl_bus_set_parts(struct nupa_cxl_bus *bus, uint32_t device,
			   const struct nupa_cxl_part *parts, uint32_t n)
{
	struct nupa_cxl_part *now;
	struct bus_device *changed, before;

	if (device >= bus->n_devices || !parts_check(parts, n))
		return -EINVAL;
	now = copy(parts, n, sizeof(*parts));
	if (!now)
		return -ENOMEM;
	pthread_rwlock_wrlock(&bus->lock);
	changed = &bus->devices[device];
	before = *changed;
	cache_drop_parts(bus, before.parts, before.n_parts);
	changed->parts = now;
	changed->n_parts = n;
	pthread_rwlock_unlock(&bus->lock);
	free(before.parts);
	return 0;
}

int nupa_cxl_bus_set_link(struct nupa_cxl_bus *bus, uint32_t port, bool up)
{
	if (port >= bus->n_ports)
		return -EINVAL;
	pthread_rwlock_wrlock(&bus->lock);
	bus->ports[port].is_down = !up;
	if (!up)
		cache_lose(bus);
	pthread_rwlock_unlock(&bus->lock);
	return 0;
}

int nupa_cxl_bus_set_viral(struct nupa_cxl_bus *bus, uint32_t device, bool viral)
{
	if (device >= bus->n_devices)
		return -EINVAL;
	pthread_rwlock_wrlock(&bus->lock);
	bus->devices[device].is_viral = viral;
	pthread_rwlock_unlock(&bus->lock);
	return 0;
}

/* --- poison ------------------------------------------------------------------------ */

int nupa_cxl_bus_set_poison(struct nupa_cxl_bus *bus, uint32_t device, uint64_t dpa, uint64_t bytes,
			    bool poisoned)
{
	const struct nupa_cxl_part *part;
	int error = -EINVAL;

	if (device >= bus->n_devices || dpa % CXL_LINE_BYTES || bytes % CXL_LINE_BYTES)
		return error;
	bus_enter(bus);
	part = bus_part(&bus->devices[device], dpa);
	if (part && bytes <= part->bytes - (dpa - part->dpa))
		error = nupa_cxl_memory_set_poison(part->memory, part->offset + (dpa - part->dpa),
						   bytes, poisoned);
	bus_leave(bus);
	return error;
}

/* --- questions --------------------------------------------------------------------- */

int nupa_cxl_bus_is_poisoned(struct nupa_cxl_bus *bus, uint32_t device, uint64_t dpa)
{
	const struct nupa_cxl_part *part;
	int answer = -EINVAL;

	if (device >= bus->n_devices)
		return answer;
	bus_enter(bus);
	part = bus_part(&bus->devices[device], dpa);
	if (part)
		answer = cxl_memory_has_poison(part->memory, part->offset + (dpa - part->dpa));
	bus_leave(bus);
	return answer;
}

int nupa_cxl_bus_counters(struct nupa_cxl_bus *bus, uint32_t port,
			  struct nupa_cxl_counters *counters)
{
	const struct nupa_cxl_counters *from;

	if (port >= bus->n_ports)
		return -EINVAL;
	from = &bus->ports[port].counters;
	counters->reads = __atomic_load_n(&from->reads, __ATOMIC_RELAXED);
	counters->writes = __atomic_load_n(&from->writes, __ATOMIC_RELAXED);
	counters->partial_writes = __atomic_load_n(&from->partial_writes, __ATOMIC_RELAXED);
	counters->refused = __atomic_load_n(&from->refused, __ATOMIC_RELAXED);
	counters->poison = __atomic_load_n(&from->poison, __ATOMIC_RELAXED);
	return 0;
}

bool nupa_cxl_bus_find(struct nupa_cxl_bus *bus, uint64_t hpa, uint32_t *device, uint64_t *dpa)
{
	struct nupa_cxl_place place;
	bool found;

	bus_enter(bus);
	found = nupa_cxl_table_find(&bus->table, hpa, &place);
	if (found) {
		*device = place.device;
		*dpa = place.dpa;
	}
	bus_leave(bus);
	return found;
}
