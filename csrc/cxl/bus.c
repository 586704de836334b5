/* SPDX-License-Identifier: BSD-3-Clause
 * The bus of transact.h: made, changed while no request is under way, asked, and freed. */
#include "bus.h"

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
	/* Who changes the bus is rare and must not wait for a pause of many readers. */
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
	for (uint32_t i = 0; i < bus->n_devices; i++)
		free(bus->devices[i].poison);
	table_free(&bus->table);
	pthread_rwlock_destroy(&bus->lock);
	free(bus->devices);
	free(bus->ports);
	free(bus);
}

void bus_enter(struct nupa_cxl_bus *bus)
{
	/* It fails if we have the lock, which we never do, or with 2^29 readers: then we wait. */
	while (pthread_rwlock_rdlock(&bus->lock))
		;
}

void bus_leave(struct nupa_cxl_bus *bus)
{
	pthread_rwlock_unlock(&bus->lock);
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

int nupa_cxl_bus_set_device(struct nupa_cxl_bus *bus, uint32_t device, void *memory, uint64_t bytes)
{
	struct bus_device now = { .memory = memory, .bytes = memory ? bytes : 0 }, before;

	if (device >= bus->n_devices || bytes % BUS_LINE_BYTES)
		return -EINVAL;
	now.poison = calloc(now.bytes / BUS_LINE_BYTES / 64 + 1, sizeof(*now.poison));
	if (!now.poison)
		return -ENOMEM;
	pthread_rwlock_wrlock(&bus->lock);
	before = bus->devices[device];
	bus->devices[device] = now;
	pthread_rwlock_unlock(&bus->lock);
	free(before.poison);
	return 0;
}

int nupa_cxl_bus_set_link(struct nupa_cxl_bus *bus, uint32_t port, bool up)
{
	if (port >= bus->n_ports)
		return -EINVAL;
	pthread_rwlock_wrlock(&bus->lock);
	bus->ports[port].is_down = !up;
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

static uint64_t poison_bit(uint64_t dpa)
{
	return UINT64_C(1) << (dpa / BUS_LINE_BYTES % 64);
}

bool bus_has_poison(const struct bus_device *device, uint64_t dpa)
{
	if (!__atomic_load_n(&device->n_poisoned, __ATOMIC_RELAXED))
		return false;
	return __atomic_load_n(&device->poison[dpa / BUS_LINE_BYTES / 64], __ATOMIC_RELAXED) &
	       poison_bit(dpa);
}

void bus_poison_line(struct bus_device *device, uint64_t dpa, bool poisoned)
{
	uint64_t *word = &device->poison[dpa / BUS_LINE_BYTES / 64], bit = poison_bit(dpa), before;

	if (!poisoned && !bus_has_poison(device, dpa))
		return;
	before = poisoned ? __atomic_fetch_or(word, bit, __ATOMIC_RELAXED)
			  : __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
	if (!(before & bit) == poisoned)
		__atomic_fetch_add(&device->n_poisoned, poisoned ? 1 : UINT64_MAX,
				   __ATOMIC_RELAXED);
}

int nupa_cxl_bus_set_poison(struct nupa_cxl_bus *bus, uint32_t device, uint64_t dpa, uint64_t bytes,
			    bool poisoned)
{
	int error = 0;

	if (device >= bus->n_devices || dpa % BUS_LINE_BYTES || bytes % BUS_LINE_BYTES)
		return -EINVAL;
	pthread_rwlock_wrlock(&bus->lock);
	if (dpa > bus->devices[device].bytes || bytes > bus->devices[device].bytes - dpa)
		error = -EINVAL;
	for (uint64_t i = 0; !error && i < bytes; i += BUS_LINE_BYTES)
		bus_poison_line(&bus->devices[device], dpa + i, poisoned);
	pthread_rwlock_unlock(&bus->lock);
	return error;
}

/* --- questions --------------------------------------------------------------------- */

int nupa_cxl_bus_is_poisoned(struct nupa_cxl_bus *bus, uint32_t device, uint64_t dpa)
{
	int answer = -EINVAL;

	if (device >= bus->n_devices)
		return answer;
	bus_enter(bus);
	if (dpa < bus->devices[device].bytes)
		answer = bus_has_poison(&bus->devices[device], dpa);
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
