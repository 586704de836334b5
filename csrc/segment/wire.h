/* SPDX-License-Identifier: BSD-3-Clause
 * The table of wires (layout/wire_layout.h): entries found and read.  Made: slot/wire.h. */
#ifndef NUPA_SEGMENT_WIRE_H
#define NUPA_SEGMENT_WIRE_H

#include "segment/segment.h"

/* Whether an entry has a host; whether its keeper is attached (W2). */
bool nupa_wire_taken(const struct nupa_fabric *fabric, const struct nupa_wire_entry *entry);
bool nupa_wire_kept(const struct nupa_fabric *fabric, const struct nupa_wire_entry *entry);
/* The entry at an index; NULL: it is free, or its keeper is gone. */
struct nupa_wire_entry *nupa_wire_at(const struct nupa_fabric *fabric, uint32_t index);
/* The index of a host's wire, or -ENOENT: it has none, or its keeper is gone. */
int nupa_wire_of_host(const struct nupa_fabric *fabric, uint32_t host);
/* Whether a host is a wire's whose keeper is gone: its processes are not to be looked for here, as
 * the next keeper may be attached before its wire stands. */
bool nupa_wire_is_lost(const struct nupa_fabric *fabric, uint32_t host);
/* Its remote and its local address; false: the entry has just changed. */
bool nupa_wire_remote(const struct nupa_wire_entry *entry, uint8_t gid[16]);
bool nupa_wire_near(const struct nupa_wire_entry *entry, uint8_t gid[16]);
/* The host that is reached at an address, or -ENOENT. */
int nupa_wire_host_of_remote(const struct nupa_fabric *fabric, const uint8_t gid[16]);
/* The n-th of the different local addresses, in the order of the table; false: there are fewer. */
bool nupa_wire_local(const struct nupa_fabric *fabric, uint32_t n, uint8_t gid[16]);
/* All of them; returns how many there are. */
uint32_t nupa_wire_locals(const struct nupa_fabric *fabric,
			  uint8_t found[NUPA_WIRE_LOCALS_MAX][16]);
bool nupa_wire_is_mtu(uint32_t bytes);
/* The largest RoCE MTU that a wire carries, 256 to 4096; of all wires: the least. */
uint32_t nupa_wire_mtu_bytes(const struct nupa_wire_entry *entry);
uint32_t nupa_wires_mtu_bytes(const struct nupa_fabric *fabric);

#endif
