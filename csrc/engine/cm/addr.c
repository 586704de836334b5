/* SPDX-License-Identifier: BSD-3-Clause
 * Addresses: the host that an address leads to, the hosts' own addresses, and their GIDs.  A host
 * has those of its nupa_net0: 10.0.0.N, the same v4-mapped, fd4e:5550:4100::N and the link-local
 * one of GID 0.  It also has loopback and the real machine's, of which machine.c says where they
 * lead. */
#include "engine/cm/wire/wire.h"

#include <arpa/inet.h>
#include <unistd.h>

#define SUBNET UINT32_C(0x0a000000) /* 10.0.0.0/24 */
#define SUBNET_MASK UINT32_C(0xffffff00)

static const struct sockaddr_in *v4(const struct sockaddr_storage *addr)
{
	return (const struct sockaddr_in *)(const void *)addr;
}

static const struct sockaddr_in6 *v6(const struct sockaddr_storage *addr)
{
	return (const struct sockaddr_in6 *)(const void *)addr;
}

uint16_t cm_addr_port(const struct sockaddr_storage *addr)
{
	return ntohs(addr->ss_family == AF_INET6 ? v6(addr)->sin6_port : v4(addr)->sin_port);
}

void cm_addr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)(void *)addr)->sin_port = htons(port);
}

int cm_addr_copy(const struct sockaddr *from, struct sockaddr_storage *to)
{
	memset(to, 0, sizeof(*to));
	if (from->sa_family == AF_INET)
		memcpy(to, from, sizeof(struct sockaddr_in));
	else if (from->sa_family == AF_INET6)
		memcpy(to, from, sizeof(struct sockaddr_in6));
	else
		return EAFNOSUPPORT;
	return 0;
}

/* The IPv4 address, also out of a v4-mapped one, in host byte order. */
static bool ipv4_of(const struct sockaddr_storage *addr, uint32_t *ipv4)
{
	uint32_t be;

	if (addr->ss_family == AF_INET) {
		*ipv4 = ntohl(v4(addr)->sin_addr.s_addr);
		return true;
	}
	if (!IN6_IS_ADDR_V4MAPPED(&v6(addr)->sin6_addr))
		return false;
	memcpy(&be, &v6(addr)->sin6_addr.s6_addr[12], sizeof(be));
	*ipv4 = ntohl(be);
	return true;
}

/* Whether the real machine has it: then a socket can be bound to it. */
static bool machine_has(const struct sockaddr_storage *addr)
{
	struct sockaddr_storage any_port = *addr;
	bool has;
	int fd = socket(addr->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	cm_addr_set_port(&any_port, 0);
	has = bind(fd, (const struct sockaddr *)(const void *)&any_port,
		   addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					      : sizeof(struct sockaddr_in6)) == 0;
	close(fd);
	return has;
}

static enum nupa_gid_index gid_of(enum cm_addr_kind kind)
{
	if (kind < CM_ADDR_ANY6)
		return NUPA_GID_IPV4;
	return kind == CM_ADDR_HOST6 ? NUPA_GID_IPV6 : NUPA_GID_LINK;
}

/* Whether an IPv6 address that is not v4-mapped is one of the host's own in the fabric. */
static bool host_has(const struct nupa_engine *engine, uint32_t host, const struct in6_addr *ip6,
		     enum cm_addr_kind *kind)
{
	union ibv_gid gid;

	for (*kind = CM_ADDR_LINK6; *kind <= CM_ADDR_HOST6; ++*kind) {
		nupa_host_gid(engine->fabric, host, (int)gid_of(*kind), &gid);
		if (!memcmp(gid.raw, ip6, sizeof(gid.raw)))
			return true;
	}
	return false;
}

/* Whether it is of a network of the fabric, whether or not the machine has it. */
static bool in_fabric(const struct sockaddr_storage *addr)
{
	uint32_t ipv4;

	return ipv4_of(addr, &ipv4) ? (ipv4 & SUBNET_MASK) == SUBNET
				    : nupa_gid_is_unique_local(v6(addr)->sin6_addr.s6_addr);
}

bool cm_addr_is_multicast(const struct sockaddr_storage *addr)
{
	uint32_t ipv4;

	if (ipv4_of(addr, &ipv4))
		return ipv4 >> 28 == 0xe;
	return IN6_IS_ADDR_MULTICAST(&v6(addr)->sin6_addr);
}

int cm_addr_kind_of(const struct nupa_engine *engine, uint32_t host,
		    const struct sockaddr_storage *addr)
{
	enum cm_addr_kind kind;
	uint32_t ipv4;

	if (ipv4_of(addr, &ipv4)) {
		if (ipv4 == INADDR_ANY)
			return CM_ADDR_ANY4;
		if (ipv4 == engine->fabric->hosts[host].ipv4)
			return CM_ADDR_HOST4;
		if (ipv4 >> 24 == IN_LOOPBACKNET)
			return CM_ADDR_LOOPBACK4;
		if (cm_wire_has_local(engine->fabric, addr))
			return CM_ADDR_WIRE4;
		return !in_fabric(addr) && machine_has(addr) ? CM_ADDR_MACHINE4 : -ENODEV;
	}
	if (IN6_IS_ADDR_UNSPECIFIED(&v6(addr)->sin6_addr))
		return CM_ADDR_ANY6;
	if (IN6_IS_ADDR_LOOPBACK(&v6(addr)->sin6_addr))
		return CM_ADDR_LOOPBACK6;
	if (host_has(engine, host, &v6(addr)->sin6_addr, &kind))
		return (int)kind;
	if (cm_wire_has_local(engine->fabric, addr))
		return CM_ADDR_WIRE6;
	return !in_fabric(addr) && machine_has(addr) ? CM_ADDR_MACHINE6 : -ENODEV;
}

/* A host of the fabric by one of its addresses there, or -1. */
static int host_of(const struct nupa_engine *engine, const struct sockaddr_storage *addr,
		   enum cm_addr_kind *kind)
{
	const struct nupa_fabric *fabric = engine->fabric;
	uint32_t ipv4;
	bool is_v4 = ipv4_of(addr, &ipv4);
	uint32_t far;

	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		*kind = CM_ADDR_HOST4;
		if (is_v4 ? fabric->hosts[host].ipv4 == ipv4
			  : host_has(engine, host, &v6(addr)->sin6_addr, kind))
			return (int)host;
	}
	*kind = is_v4 ? CM_ADDR_WIRE4 : CM_ADDR_WIRE6;
	return cm_wire_has_remote(fabric, addr, &far) ? (int)far : -1;
}

int cm_addr_resolve(const struct nupa_engine *engine, const struct sockaddr_storage *addr,
		    uint32_t *host, enum cm_addr_kind *kind)
{
	int found = host_of(engine, addr, kind);

	if (found >= 0) {
		*host = (uint32_t)found;
		return 0;
	}
	*host = engine->host;
	found = cm_addr_kind_of(engine, engine->host, addr);
	if (found >= 0) {
		*kind = (enum cm_addr_kind)found;
		return 0;
	}
	/* A neighbour that does not answer, or a network without an RDMA device. */
	if (in_fabric(addr) ||
	    (addr->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(addr)->sin6_addr)))
		return EHOSTUNREACH;
	return ENODEV;
}

void cm_addr_loopback(struct sockaddr_storage *addr, enum cm_addr_kind *kind)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)(void *)addr;
	const uint32_t ipv4 = htonl(INADDR_LOOPBACK);

	if (addr->ss_family == AF_INET)
		((struct sockaddr_in *)(void *)addr)->sin_addr.s_addr = ipv4;
	else if (*kind == CM_ADDR_ANY4) /* v4-mapped */
		memcpy(&sin6->sin6_addr.s6_addr[12], &ipv4, sizeof(ipv4));
	else
		sin6->sin6_addr = in6addr_loopback;
	*kind = *kind == CM_ADDR_ANY4 ? CM_ADDR_LOOPBACK4 : CM_ADDR_LOOPBACK6;
}

void cm_addr_of_host(const struct nupa_engine *engine, uint32_t host, sa_family_t family,
		     enum cm_addr_kind kind, struct sockaddr_storage *addr)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)(void *)addr;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)(void *)addr;
	union ibv_gid gid;

	memset(addr, 0, sizeof(*addr));
	addr->ss_family = family;
	if (family == AF_INET) {
		sin->sin_addr.s_addr = htonl(engine->fabric->hosts[host].ipv4);
		return;
	}
	nupa_host_gid(engine->fabric, host, (int)gid_of(kind), &gid);
	memcpy(&sin6->sin6_addr, gid.raw, sizeof(gid.raw));
}

void cm_addr_source_for(const struct nupa_cm_id *id, struct sockaddr_storage *src,
			enum cm_addr_kind *src_kind)
{
	const struct nupa_engine *engine = id->engine;
	const struct sockaddr_storage *dst = &id->dst;
	const enum cm_addr_kind dst_kind = id->dst_kind;
	struct cm_way way;
	bool own =
	    dst_kind != CM_ADDR_HOST4 && dst_kind != CM_ADDR_LINK6 && dst_kind != CM_ADDR_HOST6;

	if (!id->multicast_dst && cm_way_to(engine->fabric, id->dst_host, &way) &&
	    cm_wire_source(&way, dst->ss_family, src)) {
		*src_kind = dst_kind < CM_ADDR_ANY6 ? CM_ADDR_WIRE4 : CM_ADDR_WIRE6;
		return;
	}
	if (own && !cm_addr_is_multicast(dst)) { /* this machine: both ends have one address */
		*src = *dst;
		cm_addr_set_port(src, 0);
		*src_kind = dst_kind;
		return;
	}
	*src_kind = own ? dst->ss_family == AF_INET6 ? CM_ADDR_LINK6 : CM_ADDR_HOST4 : dst_kind;
	cm_addr_of_host(engine, engine->host, dst->ss_family, *src_kind, src);
}

void cm_addr_to_wire(const struct sockaddr_storage *addr, uint8_t bytes[16])
{
	memset(bytes, 0, 16);
	if (addr->ss_family == AF_INET6)
		memcpy(bytes, &v6(addr)->sin6_addr, 16);
	else
		memcpy(bytes, &v4(addr)->sin_addr, 4);
}

bool cm_addr_from_wire(uint16_t family, const uint8_t bytes[16], uint16_t port,
		       struct sockaddr_storage *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->ss_family = family;
	if (family == AF_INET6)
		memcpy(&((struct sockaddr_in6 *)(void *)addr)->sin6_addr, bytes, 16);
	else if (family == AF_INET)
		memcpy(&((struct sockaddr_in *)(void *)addr)->sin_addr, bytes, 4);
	else
		return false;
	cm_addr_set_port(addr, port);
	return true;
}

/* RoCE v2 maps an IPv4 group as it does a host's address.  InfiniBand: RFC 4391 4, with the
 * partition's P_Key and the signature that the kernel's CM gives to groups of its UDP space. */
void cm_addr_mgid(const struct nupa_cm_id *id, const struct sockaddr_storage *addr,
		  union ibv_gid *mgid)
{
	static const uint8_t infiniband[] = { 0xff, 0x12, 0x40, 0x1b };
	uint32_t ipv4, be;

	memset(mgid, 0, sizeof(*mgid));
	if (!ipv4_of(addr, &ipv4)) {
		memcpy(mgid->raw, &v6(addr)->sin6_addr, sizeof(mgid->raw));
		return;
	}
	if (cm_is_ethernet(id->engine)) {
		mgid->raw[10] = mgid->raw[11] = 0xff;
	} else {
		const uint16_t pkey = cm_pkey(id) | 0x8000; /* of full members */

		memcpy(mgid->raw, infiniband, sizeof(infiniband));
		mgid->raw[4] = (uint8_t)(pkey >> 8);
		mgid->raw[5] = (uint8_t)pkey;
		if (id->ps == RDMA_PS_UDP)
			mgid->raw[3] = 0x01;
		ipv4 &= 0x0fffffff;
	}
	be = htonl(ipv4);
	memcpy(&mgid->raw[12], &be, sizeof(be));
}

/* The LID that a subnet manager would assign: 0xc000 to 0xfffe (IBTA 4.1.3).  Only the group
 * decides. */
uint16_t cm_addr_mlid(const union ibv_gid *mgid)
{
	uint32_t hash = 0;

	for (size_t i = 0; i < sizeof(mgid->raw); i++)
		hash = (hash ^ mgid->raw[i]) * 16777619u;
	return (uint16_t)(0xc000 + hash % 0x3fff);
}

uint8_t cm_addr_gid(const struct nupa_engine *engine, uint32_t host, enum cm_addr_kind kind,
		    union ibv_gid *gid)
{
	enum nupa_gid_index index = cm_is_ethernet(engine) ? gid_of(kind) : NUPA_GID_LINK;

	nupa_host_gid(engine->fabric, host, (int)index, gid);
	return (uint8_t)index;
}
