/* SPDX-License-Identifier: BSD-3-Clause
 * Hosts by their names and GIDs: arithmetic over the host table, without an attachment. */
#include "segment/gid.h"

#include "base/atomics.h"
#include "segment/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

/* A unique local prefix (RFC 4193 3.1): fd, "NUPA" and zeros. */
static const uint8_t unique_local[8] = { 0xfd, 0x4e, 0x55, 0x50, 0x41 };

bool nupa_gid_is_unique_local(const uint8_t gid[16])
{
	return !memcmp(gid, unique_local, sizeof(unique_local));
}

/* The host of a wire has its remote address, others the local ones. */
static bool wire_gid(const struct nupa_fabric *fabric, uint32_t host, uint32_t n, uint8_t gid[16])
{
	const int wire = nupa_wire_of_host(fabric, host);
	struct nupa_wire_entry *entry = wire < 0 ? NULL : nupa_wire_at(fabric, (uint32_t)wire);

	if (!entry)
		return nupa_wire_local(fabric, n, gid);
	return n == 0 && nupa_wire_remote(entry, gid);
}

uint32_t nupa_host_gids(const struct nupa_fabric *fabric, uint32_t host)
{
	uint8_t found[NUPA_WIRE_LOCALS_MAX][16];

	if (fabric->hosts[host].link_layer != NUPA_LINK_ETHERNET)
		return 1;
	if (nupa_wire_of_host(fabric, host) >= 0)
		return NUPA_GIDS + 1;
	return NUPA_GIDS + nupa_wire_locals(fabric, found);
}

/* The addresses of nupa_net0: link-local from the port's EUI-64 (RFC 4291 2.5.6); the IPv4 address,
 * mapped; fd4e:5550:4100::N with the digits of 10.0.0.N.  An index of a hostile message is taken
 * for IPv4. */
void nupa_host_gid(const struct nupa_fabric *fabric, uint32_t host, int index, union ibv_gid *gid)
{
	const struct nupa_host *h = &fabric->hosts[host];

	memset(gid, 0, sizeof(*gid));
	if (index >= NUPA_GID_WIRE &&
	    wire_gid(fabric, host, (uint32_t)index - NUPA_GID_WIRE, gid->raw))
		return;
	if (index == NUPA_GID_LINK) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
		memcpy(&gid->raw[8], h->mac, 3);
		gid->raw[8] ^= 2;
		gid->raw[11] = 0xff;
		gid->raw[12] = 0xfe;
		memcpy(&gid->raw[13], h->mac + 3, 3);
	} else if (index == NUPA_GID_IPV6) {
		memcpy(gid->raw, unique_local, sizeof(unique_local));
		gid->raw[14] = (uint8_t)((h->ipv4 & 0xff) / 100);
		gid->raw[15] = (uint8_t)((h->ipv4 & 0xff) / 10 % 10 << 4 | (h->ipv4 & 0xff) % 10);
	} else {
		uint32_t ipv4_be = htonl(h->ipv4);

		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &ipv4_be, 4);
	}
}

int nupa_host_of_gid(const struct nupa_fabric *fabric, const union ibv_gid *gid)
{
	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		for (int index = 0; index < NUPA_GIDS; index++) {
			union ibv_gid own;

			nupa_host_gid(fabric, host, index, &own);
			if (!memcmp(own.raw, gid->raw, sizeof(own.raw)))
				return (int)host;
		}
	}
	return nupa_wire_host_of_remote(fabric, gid->raw);
}

uint64_t nupa_host_guid_be(const struct nupa_fabric *fabric, uint32_t host)
{
	union ibv_gid gid;
	uint64_t guid;

	nupa_host_gid(fabric, host, NUPA_GID_LINK, &gid);
	memcpy(&guid, &gid.raw[8], sizeof(guid));
	return guid;
}

uint16_t nupa_host_sm_lid(const struct nupa_fabric *fabric, uint32_t host)
{
	const uint32_t lid = nupa_load_relaxed(&fabric->controls[host].sm_lid);

	return (uint16_t)(lid ? lid : 1);
}

int nupa_host_of_name(const struct nupa_fabric *fabric, const char *name)
{
	char *end;
	long number;

	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++)
		if (!strncmp(fabric->hosts[host].name, name, sizeof(fabric->hosts[host].name)))
			return (int)host;
	number = strtol(name, &end, 10);
	if (*name && !*end && number >= 0 && number < (long)fabric->geometry.n_hosts)
		return (int)number;
	return -ENOENT;
}
