/* SPDX-License-Identifier: BSD-3-Clause
 * Addresses: which host one leads to, which of a host's own it is, and the GIDs that go with it.
 * A host has 10.0.0.N, the same v4-mapped, and the link-local address of GID 0; besides, inside
 * itself, loopback and whatever addresses the real machine has. */
#include "cm_internal.h"

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

static void link_local_of(const struct nupa_engine *engine, uint32_t host, union ibv_gid *gid)
{
	nupa_host_gid(engine->fabric, host, 0, gid);
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
	union ibv_gid own;
	uint32_t ipv4;

	if (ipv4_of(addr, &ipv4)) {
		if (ipv4 == INADDR_ANY)
			return CM_ADDR_ANY4;
		if (ipv4 == engine->fabric->hosts[host].ipv4)
			return CM_ADDR_HOST4;
		if (ipv4 >> 24 == IN_LOOPBACKNET)
			return CM_ADDR_LOOPBACK4;
		if ((ipv4 & SUBNET_MASK) == SUBNET) /* the fabric's, whatever the machine has */
			return -ENODEV;
		return machine_has(addr) ? CM_ADDR_MACHINE4 : -ENODEV;
	}
	if (IN6_IS_ADDR_UNSPECIFIED(&v6(addr)->sin6_addr))
		return CM_ADDR_ANY6;
	if (IN6_IS_ADDR_LOOPBACK(&v6(addr)->sin6_addr))
		return CM_ADDR_LOOPBACK6;
	link_local_of(engine, host, &own);
	if (!memcmp(own.raw, &v6(addr)->sin6_addr, sizeof(own.raw)))
		return CM_ADDR_LINK6;
	return machine_has(addr) ? CM_ADDR_MACHINE6 : -ENODEV;
}

/* A host of the fabric by one of its addresses there, or -1. */
static int host_of(const struct nupa_engine *engine, const struct sockaddr_storage *addr,
		   enum cm_addr_kind *kind)
{
	const struct nupa_fabric *fabric = engine->fabric;
	union ibv_gid gid;
	uint32_t ipv4;
	bool is_v4 = ipv4_of(addr, &ipv4);

	*kind = is_v4 ? CM_ADDR_HOST4 : CM_ADDR_LINK6;
	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		if (is_v4 && fabric->hosts[host].ipv4 == ipv4)
			return (int)host;
		if (is_v4)
			continue;
		link_local_of(engine, host, &gid);
		if (!memcmp(gid.raw, &v6(addr)->sin6_addr, sizeof(gid.raw)))
			return (int)host;
	}
	return -1;
}

int cm_addr_resolve(const struct nupa_engine *engine, const struct sockaddr_storage *addr,
		    uint32_t *host, enum cm_addr_kind *kind)
{
	int found = host_of(engine, addr, kind);
	uint32_t ipv4;

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
	/* A neighbour that does not answer, or a network that no RDMA device is on. */
	if (ipv4_of(addr, &ipv4) ? (ipv4 & SUBNET_MASK) == SUBNET
				 : IN6_IS_ADDR_LINKLOCAL(&v6(addr)->sin6_addr))
		return EHOSTUNREACH;
	return ENODEV;
}

void cm_addr_of_host(const struct nupa_engine *engine, uint32_t host, bool ip6, bool mapped,
		     struct sockaddr_storage *addr)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)(void *)addr;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)(void *)addr;
	union ibv_gid gid;

	memset(addr, 0, sizeof(*addr));
	if (!ip6) {
		sin->sin_family = AF_INET;
		sin->sin_addr.s_addr = htonl(engine->fabric->hosts[host].ipv4);
		return;
	}
	sin6->sin6_family = AF_INET6;
	if (mapped) {
		uint32_t be = htonl(engine->fabric->hosts[host].ipv4);

		sin6->sin6_addr.s6_addr[10] = sin6->sin6_addr.s6_addr[11] = 0xff;
		memcpy(&sin6->sin6_addr.s6_addr[12], &be, sizeof(be));
	} else {
		link_local_of(engine, host, &gid);
		memcpy(&sin6->sin6_addr, gid.raw, sizeof(gid.raw));
	}
}

void cm_addr_source_for(const struct nupa_engine *engine, const struct sockaddr_storage *dst,
			enum cm_addr_kind dst_kind, struct sockaddr_storage *src,
			enum cm_addr_kind *src_kind)
{
	bool ip6 = dst->ss_family == AF_INET6;
	bool own = dst_kind != CM_ADDR_HOST4 && dst_kind != CM_ADDR_LINK6;

	if (own && !cm_addr_is_multicast(dst)) { /* within this host: both ends have one address */
		*src = *dst;
		cm_addr_set_port(src, 0);
		*src_kind = dst_kind;
		return;
	}
	cm_addr_of_host(engine, engine->host, ip6, dst_kind == CM_ADDR_HOST4, src);
	*src_kind = ip6 && dst_kind != CM_ADDR_HOST4 ? CM_ADDR_LINK6 : CM_ADDR_HOST4;
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
 * signature that the kernel's CM gives to groups of its UDP space. */
void cm_addr_mgid(const struct nupa_cm_id *id, const struct sockaddr_storage *addr,
		  union ibv_gid *mgid)
{
	static const uint8_t infiniband[] = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff };
	uint32_t ipv4, be;

	memset(mgid, 0, sizeof(*mgid));
	if (!ipv4_of(addr, &ipv4)) {
		memcpy(mgid->raw, &v6(addr)->sin6_addr, sizeof(mgid->raw));
		return;
	}
	if (cm_is_ethernet(id->engine)) {
		mgid->raw[10] = mgid->raw[11] = 0xff;
	} else {
		memcpy(mgid->raw, infiniband, sizeof(infiniband));
		if (id->ps == RDMA_PS_UDP)
			mgid->raw[3] = 0x01;
		ipv4 &= 0x0fffffff;
	}
	be = htonl(ipv4);
	memcpy(&mgid->raw[12], &be, sizeof(be));
}

/* What a subnet manager would assign: 0xc000 to 0xfffe (IBTA 4.1.3).  Only the group decides. */
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
	uint8_t index = cm_is_ethernet(engine) && kind < CM_ADDR_ANY6 ? 1 : 0;

	nupa_host_gid(engine->fabric, host, index, gid);
	return index;
}
