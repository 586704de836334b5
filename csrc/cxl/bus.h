/* SPDX-License-Identifier: BSD-3-Clause
 * What a bus of transact.h is made of: for bus.c, which changes it, and transact.c, which uses it.
 */
#ifndef NUPA_CXL_BUS_H
#define NUPA_CXL_BUS_H

#include "transact.h"

#include <pthread.h>

#define BUS_LINE_BYTES 64u

struct bus_device {
	uint8_t *memory;
	uint64_t bytes;
	/* A bit for each line.  Writes of hosts change it beside each other: atomics. */
	uint64_t *poison;
	uint64_t n_poisoned; /* so that who has none does not look */
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
	struct nupa_cxl_table table; /* of our own arrays */
	struct bus_device *devices;
	struct bus_port *ports;
	uint32_t n_devices, n_ports;
};

void bus_enter(struct nupa_cxl_bus *bus);
void bus_leave(struct nupa_cxl_bus *bus);

bool bus_has_poison(const struct bus_device *device, uint64_t dpa);
void bus_poison_line(struct bus_device *device, uint64_t dpa, bool poisoned);

#endif
