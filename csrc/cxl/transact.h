/* SPDX-License-Identifier: BSD-3-Clause
 * CXL.mem requests of a host, 64 bytes each, through ports and decoders to the memory of devices.
 * There are counters, poison, viral devices, and links that are down. */
#ifndef NUPA_CXL_TRANSACT_H
#define NUPA_CXL_TRANSACT_H

#include "cxl/hdm.h"
#include "cxl/poison.h"

/* cffi: begin */
enum nupa_cxl_status {
	NUPA_CXL_OK,
	NUPA_CXL_NO_DECODER, /* no decoder has the address */
	NUPA_CXL_LINK_DOWN,  /* a port on the way has no link */
	NUPA_CXL_VIRAL,      /* CXL 3.1 12.4: the device contains an error and returns no data */
	NUPA_CXL_POISON,
	NUPA_CXL_NO_MEMORY, /* in none of the device's parts */
};

/* Counts of a port. `refused`: requests that ended here, as its link is down. */
struct nupa_cxl_counters {
	uint64_t reads, writes, partial_writes, refused, poison;
};

/* The outcome of a request: the first line that failed, and why. */
struct nupa_cxl_result {
	uint64_t hpa;
	uint32_t status; /* enum nupa_cxl_status */
	uint32_t pad;
};

/* Of a device's memory: `bytes` from dpa on are those of `memory` from `offset` on.  All are
 * multiples of 64. */
struct nupa_cxl_part {
	uint64_t dpa, bytes, offset;
	struct nupa_cxl_memory *memory;
};

struct nupa_cxl_bus;

/* Requests of any threads run concurrently; a change of the bus waits until they are done, and none
 * begins meanwhile. */

/* NULL, with errno: no memory, or EINVAL: more than 65536 of either. */
struct nupa_cxl_bus *nupa_cxl_bus_new(uint32_t n_devices, uint32_t n_ports);
void nupa_cxl_bus_free(struct nupa_cxl_bus *bus);

/* Each returns 0 or a negative errno: EINVAL: an unknown number, an invalid table, or bytes that
 * are not whole lines; ENOMEM. Nothing has changed then. */

/* Copies the table. */
int nupa_cxl_bus_set_table(struct nupa_cxl_bus *bus, const struct nupa_cxl_table *table);
/* The device's parts from now on, in the order of its addresses, without overlap; its viral state
 * stays.  Requests to its former parts are done when this returns.  The caller keeps the memory. */
int nupa_cxl_bus_set_parts(struct nupa_cxl_bus *bus, uint32_t device,
			   const struct nupa_cxl_part *parts, uint32_t n);
int nupa_cxl_bus_set_link(struct nupa_cxl_bus *bus, uint32_t port, bool up);
int nupa_cxl_bus_set_viral(struct nupa_cxl_bus *bus, uint32_t device, bool viral);
/* Poison has the granularity of lines: dpa and bytes are multiples of 64. */
int nupa_cxl_bus_set_poison(struct nupa_cxl_bus *bus, uint32_t device, uint64_t dpa, uint64_t bytes,
			    bool poisoned);
/* 1, 0, or -EINVAL. */
int nupa_cxl_bus_is_poisoned(struct nupa_cxl_bus *bus, uint32_t device, uint64_t dpa);
int nupa_cxl_bus_counters(struct nupa_cxl_bus *bus, uint32_t port,
			  struct nupa_cxl_counters *counters);

/* The device that decodes hpa now: *device and *dpa; false: none. */
bool nupa_cxl_bus_find(struct nupa_cxl_bus *bus, uint64_t hpa, uint32_t *device, uint64_t *dpa);

/* Any bytes, line by line; lines that fail read as all ones, or are not written; the others are.  A
 * write of a whole line clears its poison, a partial one leaves it. */
struct nupa_cxl_result nupa_cxl_read(struct nupa_cxl_bus *bus, uint64_t hpa, void *to,
				     size_t bytes);
struct nupa_cxl_result nupa_cxl_write(struct nupa_cxl_bus *bus, uint64_t hpa, const void *from,
				      size_t bytes);
/* cffi: end */

#endif
