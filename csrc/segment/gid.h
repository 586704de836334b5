/* SPDX-License-Identifier: BSD-3-Clause
 * Hosts by their names and GIDs. */
#ifndef NUPA_GID_H
#define NUPA_GID_H

#include "abi/verbs_abi.h"
#include "segment/segment.h"

/* A host by its name or number, or -ENOENT. */
int nupa_host_of_name(const struct nupa_fabric *fabric, const char *name);
enum nupa_gid_index {
	NUPA_GID_LINK,
	NUPA_GID_IPV4,
	NUPA_GID_IPV6,
	NUPA_GID_WIRE, /* the first of those that wires give */
};
_Static_assert(NUPA_GID_IPV6 == NUPA_GIDS - 1, "the last");
/* GIDs of a host: the first ones of its table.  Behind its own ones a host on Ethernet has the
 * local addresses of all wires, and the host of a wire has the remote address. */
uint32_t nupa_host_gids(const struct nupa_fabric *fabric, uint32_t host);
void nupa_host_gid(const struct nupa_fabric *fabric, uint32_t host, int index, union ibv_gid *gid);
/* The host that has a GID, or -ENOENT.  Local addresses of wires are those of all hosts, so they
 * lead to none. */
int nupa_host_of_gid(const struct nupa_fabric *fabric, const union ibv_gid *gid);
bool nupa_gid_is_unique_local(const uint8_t gid[16]);
/* The LID of the subnet manager: that of the first host until one says its own. */
uint16_t nupa_host_sm_lid(const struct nupa_fabric *fabric, uint32_t host);
uint64_t nupa_host_guid_be(const struct nupa_fabric *fabric, uint32_t host);

#endif
