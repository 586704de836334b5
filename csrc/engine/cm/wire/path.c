/* SPDX-License-Identifier: BSD-3-Clause
 * Addresses and paths of wires.  Packets to a wire's host leave with the wire's local address, so
 * that is the source of connections to it, also where the host was named by its address in the
 * fabric. */
#include "engine/cm/wire/wire.h"

#include <netinet/in.h>

static uint8_t mtu_of(uint32_t bytes)
{
	uint8_t mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 128u << mtu < bytes)
		mtu++;
	return mtu;
}

bool cm_way_to(const struct nupa_fabric *fabric, uint32_t host, struct cm_way *way)
{
	const int index = nupa_wire_of_host(fabric, host);
	const struct nupa_wire_entry *entry =
	    index < 0 ? NULL : nupa_wire_at(fabric, (uint32_t)index);

	if (!entry || !nupa_wire_near(entry, way->local) || !nupa_wire_remote(entry, way->remote))
		return false;
	way->index = (uint32_t)index;
	way->slot = nupa_load_relaxed(&entry->slot);
	way->mtu = mtu_of(nupa_wire_mtu_bytes(entry));
	return way->slot != 0 && way->slot < fabric->geometry.n_slots;
}

bool cm_far_mtu_fits(const struct nupa_channel *channel, const struct cm_wire *wire)
{
	struct cm_way way;

	return !cm_way_to(channel->engine->fabric, channel->peer_host, &way) ||
	       wire->path_mtu <= way.mtu;
}

struct nupa_channel *cm_way_channel(struct nupa_engine *engine, uint32_t host)
{
	struct cm_way way;

	return cm_way_to(engine->fabric, host, &way) ? nupa_channel_current(engine, way.slot)
						     : NULL;
}

/* --- addresses ----------------------------------------------------------------------- */

static bool is_mapped(const uint8_t gid[16])
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)gid);
}

/* The bytes of cm_addr_to_wire as a GID, and the reverse. */
static void to_gid(uint16_t family, const uint8_t bytes[16], uint8_t gid[16])
{
	memcpy(gid, bytes, 16);
	if (family == AF_INET6)
		return;
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, bytes, 4);
}

static bool from_gid(uint16_t family, const uint8_t gid[16], uint8_t bytes[16])
{
	memset(bytes, 0, 16);
	if (family == AF_INET6)
		memcpy(bytes, gid, 16);
	else
		memcpy(bytes, gid + 12, 4);
	return family == AF_INET6 || is_mapped(gid);
}

static void gid_of(const struct sockaddr_storage *addr, uint8_t gid[16])
{
	uint8_t bytes[16];

	cm_addr_to_wire(addr, bytes);
	to_gid(addr->ss_family, bytes, gid);
}

bool cm_wire_has_local(const struct nupa_fabric *fabric, const struct sockaddr_storage *addr)
{
	uint8_t locals[NUPA_WIRE_LOCALS_MAX][16], gid[16];
	const uint32_t n = nupa_wire_locals(fabric, locals);

	gid_of(addr, gid);
	for (uint32_t i = 0; i < n; i++)
		if (!memcmp(locals[i], gid, sizeof(gid)))
			return true;
	return false;
}

bool cm_wire_has_remote(const struct nupa_fabric *fabric, const struct sockaddr_storage *addr,
			uint32_t *host)
{
	uint8_t gid[16];
	int found;

	gid_of(addr, gid);
	found = nupa_wire_host_of_remote(fabric, gid);
	if (found < 0)
		return false;
	*host = (uint32_t)found;
	return true;
}

bool cm_wire_source(const struct cm_way *way, sa_family_t family, struct sockaddr_storage *addr)
{
	uint8_t bytes[16];

	return from_gid(family, way->local, bytes) && cm_addr_from_wire(family, bytes, 0, addr);
}

void cm_wire_addresses(const struct cm_way *way, struct cm_wire *wire)
{
	const bool ipv4 = is_mapped(way->remote) && is_mapped(way->local);

	wire->family = ipv4 ? AF_INET : AF_INET6;
	(void)from_gid(wire->family, way->local, wire->src);
	(void)from_gid(wire->family, way->remote, wire->dst);
}

/* --- GIDs ---------------------------------------------------------------------------- */

/* The place of a wire's local address in the table of a host. */
static int index_of(const struct nupa_fabric *fabric, const uint8_t gid[16])
{
	uint8_t locals[NUPA_WIRE_LOCALS_MAX][16];
	const uint32_t n = nupa_wire_locals(fabric, locals);

	for (uint32_t i = 0; i < n; i++)
		if (!memcmp(locals[i], gid, sizeof(locals[i])))
			return (int)(NUPA_GID_WIRE + i);
	return -1;
}

uint8_t cm_id_sgid(const struct nupa_cm_id *id, union ibv_gid *gid)
{
	const struct nupa_fabric *fabric = id->engine->fabric;
	struct cm_way way;
	int index = -1;

	if (id->dst.ss_family && !id->multicast_dst && cm_way_to(fabric, id->dst_host, &way)) {
		memcpy(gid->raw, way.local, sizeof(gid->raw));
		index = index_of(fabric, gid->raw);
	} else if (id->src_kind == CM_ADDR_WIRE4 || id->src_kind == CM_ADDR_WIRE6) {
		gid_of(&id->src, gid->raw);
		index = index_of(fabric, gid->raw);
	}
	return index >= 0 ? (uint8_t)index
			  : cm_addr_gid(id->engine, id->engine->host, id->src_kind, gid);
}

void cm_id_dgid(const struct nupa_cm_id *id, union ibv_gid *gid)
{
	struct cm_way way;

	if (cm_way_to(id->engine->fabric, id->dst_host, &way))
		memcpy(gid->raw, way.remote, sizeof(gid->raw));
	else
		cm_addr_gid(id->engine, id->dst_host, id->dst_kind, gid);
}

uint8_t cm_id_mtu(const struct nupa_cm_id *id)
{
	struct cm_way way;

	if (id->far.path_mtu)
		return id->far.path_mtu;
	return id->dst.ss_family && !id->multicast_dst &&
		       cm_way_to(id->engine->fabric, id->dst_host, &way)
		   ? way.mtu
		   : IBV_MTU_4096;
}
