/* SPDX-License-Identifier: BSD-3-Clause
 * Places where a packet is seen: the watched ports on its way or, if all are watched, its source's
 * port. */
#include "capture/expand/expand.h"

#include "base/atomics.h"

static void add(struct nupa_cast *cast, uint32_t port, uint32_t host, enum nupa_direction direction)
{
	if (cast->n_sights < sizeof(cast->sights) / sizeof(cast->sights[0]))
		cast->sights[cast->n_sights++] =
		    (struct nupa_sight){ (uint16_t)port, (uint16_t)host, (uint8_t)direction };
}

static bool is_host(const struct nupa_watch *watch, uint32_t host)
{
	return host < watch->fabric->geometry.n_hosts;
}

void nupa_sights_port(const struct nupa_watch *watch, uint32_t host, enum nupa_direction direction,
		      struct nupa_cast *cast)
{
	uint32_t port;

	if (!is_host(watch, host))
		return;
	port = watch->fabric->hosts[host].port;
	if (!watch->n_ports || watch->watched[port])
		add(cast, port, host, direction);
	port = watch->fabric->ports[port].peer;
	if (watch->n_ports && watch->watched[port])
		add(cast, port, host, direction);
}

void nupa_sights_device(const struct nupa_watch *watch, uint32_t host,
			enum nupa_direction direction, struct nupa_cast *cast)
{
	if (is_host(watch, host) &&
	    (!watch->n_ports || watch->watched[watch->fabric->hosts[host].port]))
		add(cast, watch->fabric->hosts[host].port, host, direction);
}

void nupa_sights_route(const struct nupa_watch *watch, uint32_t from, uint32_t to,
		       struct nupa_cast *cast)
{
	const struct nupa_route *route = nupa_fabric_route(watch->fabric, from, to);

	if (!watch->n_ports || !route || !route->hops) { /* to itself, too */
		nupa_sights_port(watch, from, NUPA_OUTBOUND, cast);
		return;
	}
	for (uint32_t i = 0; i < route->hops && i < NUPA_HOPS_MAX; i++) {
		bool at_source = i < route->hops / 2u;

		if (watch->watched[route->port[i]])
			add(cast, route->port[i], at_source ? from : to,
			    at_source ? NUPA_OUTBOUND : NUPA_INBOUND);
	}
}

void nupa_sights_flood(const struct nupa_watch *watch, uint32_t from, struct nupa_cast *cast)
{
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts;

	if (!watch->n_ports || n_hosts < 2) {
		nupa_sights_port(watch, from, NUPA_OUTBOUND, cast);
		return;
	}
	for (uint32_t to = 0; to < n_hosts; to++) {
		struct nupa_cast one = { 0 };

		if (to == from)
			continue;
		nupa_sights_route(watch, from, to, &one);
		for (uint32_t i = 0; i < one.n_sights; i++) {
			bool there = false;

			for (uint32_t k = 0; k < cast->n_sights; k++)
				there |= cast->sights[k].port == one.sights[i].port;
			if (!there)
				add(cast, one.sights[i].port, one.sights[i].host,
				    (enum nupa_direction)one.sights[i].direction);
		}
	}
}

uint32_t nupa_host_of(const struct nupa_watch *watch, uint32_t slot)
{
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts;
	uint32_t host;

	if (slot == 0 || slot >= watch->fabric->geometry.n_slots)
		return n_hosts;
	if (watch->slot_host[slot])
		return watch->slot_host[slot] - 1u;
	host = nupa_load_relaxed(&watch->fabric->slots[slot].host);
	return host < n_hosts ? host : n_hosts;
}

void nupa_sights_drop_outbound(struct nupa_cast *cast)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cast->n_sights; i++)
		if (cast->sights[i].direction != NUPA_OUTBOUND)
			cast->sights[n++] = cast->sights[i];
	cast->n_sights = (uint8_t)n;
}
