/* SPDX-License-Identifier: BSD-3-Clause
 * The use of a bus by requests: its lock, and the parts of devices. */
#include "cxl/bus.h"

void bus_enter(struct nupa_cxl_bus *bus)
{
	/* This fails if the caller has the lock, which it never has, or with 2^29 readers: then it
	 * waits. */
	while (pthread_rwlock_rdlock(&bus->lock))
		;
}

void bus_leave(struct nupa_cxl_bus *bus)
{
	pthread_rwlock_unlock(&bus->lock);
}

const struct nupa_cxl_part *bus_part(const struct bus_device *device, uint64_t dpa)
{
	uint32_t low = 0, high = device->n_parts;

	while (low < high) { /* the first that begins after dpa */
		uint32_t middle = low + (high - low) / 2;

		if (device->parts[middle].dpa > dpa)
			high = middle;
		else
			low = middle + 1;
	}
	if (!low || dpa - device->parts[low - 1].dpa >= device->parts[low - 1].bytes)
		return NULL;
	return &device->parts[low - 1];
}
