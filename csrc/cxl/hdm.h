/* SPDX-License-Identifier: BSD-3-Clause
 * The committed HDM decoders of a host's paths as a flat table.  It translates a host physical
 * address to a device and a device physical address.  CXL 3.1 8.2.4.20.13, 9.18.1.3 and 9.18.1.4.
 */
#ifndef NUPA_CXL_HDM_H
#define NUPA_CXL_HDM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum nupa_cxl_node_kind {
	NUPA_CXL_NOTHING, /* no decoder has it */
	NUPA_CXL_STEP,    /* a window, host bridge or switch, which chooses one of its targets */
	NUPA_CXL_DEVICE,
};

/* Ways are 1 << bits, or 3 << bits, which take turns of 1 << shift bytes. */
struct nupa_cxl_node {
	uint64_t xor_maps[4]; /* of a step */
	uint64_t hpa_base;    /* of a device's decoder */
	uint64_t dpa_base;
	uint32_t
	    next; /* step: of its choices, the first in `nodes`; device: of its hops, in `hops` */
	uint16_t device;
	uint8_t n_hops;
	uint8_t kind;   /* enum nupa_cxl_node_kind */
	uint8_t shift;  /* 8 to 14 */
	uint8_t bits;   /* 0 to 4 */
	uint8_t thirds; /* 1: the ways are 3, 6 or 12 */
	uint8_t n_maps; /* 0: modulo; else `bits` */
	uint32_t pad;
};

/* Addresses first to last, both inclusive. */
struct nupa_cxl_range {
	uint64_t first, last;
	uint32_t node;
	uint32_t pad;
};

/* nupa_cxl_table_check() returns whether these hold:
 *   I1  ranges are in order and apart;
 *   I2  the choices of a step lie behind it in `nodes`, so that each walk ends;
 *   I3  each index is inside its array;
 *   I4  bases are multiples of 64, so that a line stays whole. */
struct nupa_cxl_table {
	const struct nupa_cxl_range *ranges;
	const struct nupa_cxl_node *nodes;
	const uint16_t *hops; /* ports, by the order in which a request passes them */
	uint32_t n_ranges, n_nodes, n_hops;
};

struct nupa_cxl_place {
	uint64_t dpa;
	const uint16_t *hops;
	uint32_t device, n_hops;
};

/* Whether I1 to I4 hold, for these numbers of devices and ports. */
bool nupa_cxl_table_check(const struct nupa_cxl_table *table, uint32_t n_devices, uint32_t n_ports);

/* The device that decodes hpa, in a checked table; false: none, and *place is unchanged. */
bool nupa_cxl_table_find(const struct nupa_cxl_table *table, uint64_t hpa,
			 struct nupa_cxl_place *place);
/* cffi: end */

#endif
