/* SPDX-License-Identifier: BSD-3-Clause
 * What a subnet manager has set in a fabric: rows of an attribute each, in a file beside the
 * segment that all processes map.  It is made with the first row, and removed with the fabric.
 *
 *   U1  Writers hold the control lock.  A row is odd while it is written; a reader that finds the
 *       same even number before and after has read one value.
 *   U2  Rows are never removed, so a row that was found stays where it is. */
#ifndef NUPA_MAD_SUBNET_H
#define NUPA_MAD_SUBNET_H

#include "segment/segment.h"

#define NUPA_SUBNET_ROWS 65536u /* 5 MiB, once anything is set */
#define NUPA_SUBNET_VALUE_BYTES 64u

struct nupa_subnet_row {
	uint64_t key; /* 0: free.  Stored last */
	uint32_t changes;
	uint32_t pad;
	uint8_t value[NUPA_SUBNET_VALUE_BYTES];
};
NUPA_ASSERT_SIZE(struct nupa_subnet_row, 80);

struct nupa_subnet {
	struct nupa_fabric *fabric;
	struct nupa_subnet_row *rows; /* NULL: nothing was set yet */
	/* Whether a subnet manager runs at the host (PortInfo.CapabilityMask.IsSM); NULL: none. */
	bool (*is_sm)(const struct nupa_subnet *subnet, uint32_t host);
};

/* The key of a row: which attribute, of which port or node, with which modifier. */
uint64_t nupa_subnet_key(uint16_t attribute, bool is_switch, uint32_t node, uint32_t modifier);
/* Reads a value; false: it was never set. */
bool nupa_subnet_get(struct nupa_subnet *subnet, uint64_t key,
		     uint8_t value[NUPA_SUBNET_VALUE_BYTES]);
/* -ENOSPC: all rows are in use, or the file system is full.  The caller holds the lock. */
int nupa_subnet_set(struct nupa_subnet *subnet, uint64_t key,
		    const uint8_t value[NUPA_SUBNET_VALUE_BYTES]);
void nupa_subnet_close(struct nupa_subnet *subnet);

/* The lock of nupa/fabric/registry.py, under which the control plane changes fabrics: a descriptor,
 * or a negative errno.  A fabric without a name has no lock. */
#define NUPA_SUBNET_NO_LOCK (-4096)
int nupa_subnet_lock(const struct nupa_fabric *fabric);
void nupa_subnet_unlock(const struct nupa_fabric *fabric, int lock);
/* The folder of what belongs to the segment, "DIR/.NAME.files", which is made; or -errno. */
int nupa_subnet_folder(const struct nupa_fabric *fabric, char *path, size_t bytes);

#endif
