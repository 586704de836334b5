/* SPDX-License-Identifier: BSD-3-Clause
 * The hosts of the fabric, and their addresses where no nupa_net0 is: programs of `nupa run` share
 * the network namespace of their machine, and the fabric's addresses would lead to a real network.
 *
 * An address of loopback stands for each: 127.78.85.N for 10.0.0.N, 127.78.86.N for
 * fd4e:5550:4100::N.  Sockets are given the alias, programs the host's address.  So nothing has to
 * be remembered of a socket, and both ends agree. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "abi/verbs_abi.h"
#include "base/atomics.h"
#include "base/hint.h"
#include "segment/gid.h"
#include "segment/wire.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#define SUBNET UINT32_C(0x0a000000)       /* 10.0.0.0/24 */
#define ALIASES UINT32_C(0x7f4e5500)      /* 127.78.85.0/24 */
#define ALIASES_IPV6 UINT32_C(0x7f4e5600) /* 127.78.86.0/24 */
#define SUBNET_MASK UINT32_C(0xffffff00)

static struct {
	uint32_t ready;
	bool there;
	struct nupa_shim_net net;
} self;

static uint32_t mapped_in(const uint8_t ipv6[16]);

/* A host that is a wire has the address of its machine. */
static void copy_wire(const struct nupa_fabric *fabric, uint32_t i, struct nupa_shim_host *host)
{
	const int wire = nupa_wire_of_host(fabric, i);
	const struct nupa_wire_entry *entry =
	    wire < 0 ? NULL : nupa_wire_at(fabric, (uint32_t)wire);

	if (!entry || !nupa_wire_remote(entry, host->far_ipv6))
		return;
	host->wired = true;
	host->far_ipv4 = mapped_in(host->far_ipv6);
}

static void copy_hosts(const struct nupa_fabric *fabric)
{
	union ibv_gid gid;

	self.net.n_hosts = fabric->geometry.n_hosts;
	for (uint32_t i = 0; i < self.net.n_hosts; i++) {
		struct nupa_shim_host *host = &self.net.hosts[i];

		memcpy(host->name, fabric->hosts[i].name, NUPA_NAME_BYTES);
		host->ipv4 = fabric->hosts[i].ipv4;
		nupa_host_gid(fabric, i, NUPA_GID_IPV6, &gid);
		memcpy(host->ipv6, gid.raw, sizeof(host->ipv6));
		copy_wire(fabric, i, host);
	}
}

/* Two threads may do this at once: both store the same. */
static void learn(void)
{
	const char *path, *name, *base;
	struct nupa_fabric *fabric;
	char why[512];
	int found;

	/* A segment without a name (registry.py) is the device of a guest. */
	if (!nupa_shim_place(&path, &name))
		return;
	base = strrchr(path, '/');
	if (strncmp(base ? base + 1 : path, "nupa-", 5) != 0)
		return;
	if (nupa_fabric_open(path, &fabric, why, sizeof(why))) {
		nupa_hint("%s", why);
		return;
	}
	found = nupa_host_of_name(fabric, name);
	if (found >= 0) {
		copy_hosts(fabric);
		self.net.self = (uint32_t)found;
		self.net.machines = nupa_fabric_machines(fabric);
		self.net.aliased = !if_nametoindex("nupa_net0");
		self.there = true;
	}
	nupa_fabric_put(fabric);
}

const struct nupa_shim_net *nupa_shim_net(void)
{
	int saved = errno;

	if (!nupa_load_acquire(&self.ready)) {
		learn();
		nupa_store_release(&self.ready, 1);
	}
	errno = saved;
	return self.there ? &self.net : NULL;
}

const struct nupa_shim_host *nupa_shim_host_of_name(const char *name)
{
	const struct nupa_shim_net *net = nupa_shim_net();

	for (uint32_t i = 0; net && i < net->n_hosts; i++)
		if (!strcasecmp(net->hosts[i].name, name))
			return &net->hosts[i];
	return NULL;
}

static uint32_t ipv4_of(const struct sockaddr *addr)
{
	return ntohl(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr);
}

static uint8_t *ipv6_of(struct sockaddr *addr)
{
	return ((struct sockaddr_in6 *)(void *)addr)->sin6_addr.s6_addr;
}

/* The IPv4 address that is mapped to the last four bytes, in host byte order; 0: none is. */
static uint32_t mapped_in(const uint8_t ipv6[16])
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };
	uint32_t be;

	if (memcmp(ipv6, prefix, sizeof(prefix)) != 0)
		return 0;
	memcpy(&be, ipv6 + 12, sizeof(be));
	return ntohl(be);
}

static void map(uint8_t ipv6[16], uint32_t ipv4)
{
	const uint32_t be = htonl(ipv4);

	memset(ipv6, 0, 10);
	memset(ipv6 + 10, 0xff, 2);
	memcpy(ipv6 + 12, &be, sizeof(be));
}

static int host_of_ipv4(const struct nupa_shim_net *net, uint32_t ipv4)
{
	for (uint32_t i = 0; i < net->n_hosts; i++)
		if (net->hosts[i].ipv4 == ipv4)
			return (int)i;
	return -1;
}

static int host_of_ipv6(const struct nupa_shim_net *net, const uint8_t ipv6[16])
{
	for (uint32_t i = 0; i < net->n_hosts; i++)
		if (!memcmp(net->hosts[i].ipv6, ipv6, sizeof(net->hosts[i].ipv6)))
			return (int)i;
	return -1;
}

bool nupa_shim_may_lead_to_a_host(const struct sockaddr *addr, socklen_t bytes)
{
	const uint8_t *ipv6;

	if (!addr || bytes < sizeof(struct sockaddr_in))
		return false;
	if (addr->sa_family == AF_INET)
		return (ipv4_of(addr) & SUBNET_MASK) == SUBNET;
	if (addr->sa_family != AF_INET6 || bytes < sizeof(struct sockaddr_in6))
		return false;
	ipv6 = ((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr.s6_addr;
	return nupa_gid_is_unique_local(ipv6) || (mapped_in(ipv6) & SUBNET_MASK) == SUBNET;
}

uint32_t nupa_shim_alias(const struct nupa_shim_net *net, uint32_t host, bool ipv6)
{
	return (ipv6 ? ALIASES_IPV6 : ALIASES) | (net->hosts[host].ipv4 & ~SUBNET_MASK);
}

/* The machine of a wire in place of a host's address; none of that family: no host is meant. */
static void lead_far(const struct nupa_shim_net *net, struct nupa_shim_target *to)
{
	const struct nupa_shim_host *host = to->host >= 0 ? &net->hosts[to->host] : NULL;

	if (!host || !host->wired)
		return;
	to->wired = true;
	if (to->alias.ss_family == AF_INET && host->far_ipv4)
		((struct sockaddr_in *)(void *)&to->alias)->sin_addr.s_addr = htonl(host->far_ipv4);
	else if (to->alias.ss_family == AF_INET6 && to->ipv6 == !host->far_ipv4)
		memcpy(ipv6_of((struct sockaddr *)&to->alias), host->far_ipv6, 16);
	else
		to->host = -1;
}

bool nupa_shim_target(const struct sockaddr *addr, socklen_t bytes, struct nupa_shim_target *to)
{
	const struct nupa_shim_net *net = nupa_shim_net();

	if (!net || !net->aliased)
		return false;
	memset(to, 0, sizeof(*to));
	to->bytes = bytes < sizeof(to->alias) ? bytes : sizeof(to->alias);
	memcpy(&to->alias, addr, to->bytes);
	if (addr->sa_family == AF_INET) {
		struct sockaddr_in *alias = (struct sockaddr_in *)(void *)&to->alias;

		to->host = host_of_ipv4(net, ipv4_of(addr));
		to->port = ntohs(alias->sin_port);
		if (to->host >= 0)
			alias->sin_addr.s_addr =
			    htonl(nupa_shim_alias(net, (uint32_t)to->host, false));
		lead_far(net, to);
		return true;
	}
	uint8_t *ipv6 = ipv6_of((struct sockaddr *)&to->alias);

	to->port = ntohs(((struct sockaddr_in6 *)(void *)&to->alias)->sin6_port);
	to->ipv6 = mapped_in(ipv6) == 0;
	to->host = to->ipv6 ? host_of_ipv6(net, ipv6) : host_of_ipv4(net, mapped_in(ipv6));
	if (to->host >= 0)
		map(ipv6, nupa_shim_alias(net, (uint32_t)to->host, to->ipv6));
	lead_far(net, to);
	return true;
}

void nupa_shim_unalias(struct sockaddr *addr, socklen_t bytes)
{
	const struct nupa_shim_net *net;
	uint32_t ipv4;
	int host;

	if (bytes < sizeof(struct sockaddr_in))
		return;
	if (addr->sa_family == AF_INET)
		ipv4 = ipv4_of(addr);
	else if (addr->sa_family == AF_INET6 && bytes >= sizeof(struct sockaddr_in6))
		ipv4 = mapped_in(ipv6_of(addr));
	else
		return;
	if ((ipv4 & SUBNET_MASK) != ALIASES && (ipv4 & SUBNET_MASK) != ALIASES_IPV6)
		return;
	net = nupa_shim_net();
	host = net && net->aliased ? host_of_ipv4(net, SUBNET | (ipv4 & ~SUBNET_MASK)) : -1;
	if (host < 0)
		return;
	if (addr->sa_family == AF_INET)
		((struct sockaddr_in *)(void *)addr)->sin_addr.s_addr =
		    htonl(net->hosts[host].ipv4);
	else if ((ipv4 & SUBNET_MASK) == ALIASES)
		map(ipv6_of(addr), net->hosts[host].ipv4);
	else
		memcpy(ipv6_of(addr), net->hosts[host].ipv6, sizeof(net->hosts[host].ipv6));
}

void nupa_shim_own_alias(const struct nupa_shim_target *to, struct sockaddr_storage *own)
{
	const struct nupa_shim_net *net = nupa_shim_net();
	const uint32_t alias = nupa_shim_alias(net, net->self, to->ipv6);

	memset(own, 0, sizeof(*own));
	own->ss_family = to->alias.ss_family;
	if (own->ss_family == AF_INET)
		((struct sockaddr_in *)(void *)own)->sin_addr.s_addr = htonl(alias);
	else
		map(ipv6_of((struct sockaddr *)own), alias);
}
