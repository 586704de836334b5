/* SPDX-License-Identifier: BSD-3-Clause
 * What a bus of transact.h is made of: for bus.c, which changes it, and transact.c, which uses it.
 */
#ifndef NUPA_CXL_BUS_H
#define NUPA_CXL_BUS_H

#include "transact.h"

#include <pthread.h>

struct bus_device {
	struct nupa_cxl_part *parts; /* in order, and apart */
	uint32_t n_parts;
	bool is_viral;
	struct nupa_cxl_memory *own; /* of nupa_cxl_bus_set_device() */
};

struct bus_port {
	_Alignas(
	    64) struct nupa_cxl_counters counters; /* atomics: relaxed, as they order nothing */
	bool is_down;
};

/* The lock is for all but poison and counters: requests hold it shared. */
struct nupa_cxl_bus {
	pthread_rwlock_t lock;
	struct nupa_cxl_table table; /* of our own arrays */
	struct bus_device *devices;
	struct bus_port *ports;
	uint32_t n_devices, n_ports;
};

void bus_enter(struct nupa_cxl_bus *bus);
void bus_leave(struct nupa_cxl_bus *bus);

/* The part that has dpa, or NULL. */
const struct nupa_cxl_part *bus_part(const struct bus_device *device, uint64_t dpa);

#endif
