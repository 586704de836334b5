/* SPDX-License-Identifier: BSD-3-Clause
 * The words for a connection that nobody listens for: the address asked for, and the listeners that
 * there are.  Once for an engine: a program that tries again and again knows already. */
#include "base/hint.h"
#include "engine/cm/internal.h"
#include "segment/control/pkey.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>

#define LISTENERS_MAX 64u /* of a host, that are looked at */
#define NAMED_MAX 3u

struct found {
	enum rdma_port_space space;
	uint32_t port; /* 0: any */
	uint32_t n;
	size_t bytes;
	char text[320];
};

static const char *space_name(enum rdma_port_space space)
{
	switch (space) {
	case RDMA_PS_TCP:
		return "TCP";
	case RDMA_PS_UDP:
		return "UDP";
	case RDMA_PS_IB:
		return "IB";
	default:
		return "IPoIB";
	}
}

/* The name of a slot's program is another process's, and may have any content. */
static void name_of(const struct nupa_slot *slot, char name[sizeof(slot->comm)])
{
	size_t i;

	for (i = 0; i < sizeof(slot->comm) - 1 && slot->comm[i]; i++)
		name[i] = isprint((unsigned char)slot->comm[i]) ? slot->comm[i] : '?';
	name[i] = '\0';
}

static void add(struct found *found, const struct nupa_fabric *fabric, uint32_t host,
		const struct nupa_listener_info *info)
{
	const struct nupa_slot *slot = &fabric->slots[info->slot];
	const uint32_t ipv4 = htonl(fabric->hosts[host].ipv4);
	char name[sizeof(slot->comm)], address[INET_ADDRSTRLEN];
	int n;

	if (found->n++ >= NAMED_MAX)
		return;
	name_of(slot, name);
	inet_ntop(AF_INET, &ipv4, address, sizeof(address));
	n = snprintf(found->text + found->bytes, sizeof(found->text) - found->bytes,
		     "%s%s (process %u) on %s, %s%s%s port %u", found->n > 1 ? "; " : "", name,
		     NUPA_CLAIM_PID(nupa_slot_claim(slot)), fabric->hosts[host].name, address,
		     info->ipv6 ? ", IPv6 " : "", info->ipv6 ? info->address : "", info->port);
	if (n > 0)
		found->bytes += (size_t)n;
	if (found->bytes >= sizeof(found->text))
		found->bytes = sizeof(found->text) - 1;
}

static void look(struct nupa_fabric *fabric, struct found *found)
{
	struct nupa_listener_info infos[LISTENERS_MAX];

	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		uint32_t n = nupa_fabric_listeners(fabric, host, infos, LISTENERS_MAX);

		for (uint32_t i = 0; i < n && i < LISTENERS_MAX; i++)
			if (infos[i].space == found->space &&
			    (!found->port || infos[i].port == found->port))
				add(found, fabric, host, &infos[i]);
	}
}

void cm_explain_partition(const struct nupa_cm_id *id)
{
	const struct nupa_fabric *fabric = id->engine->fabric;
	char own[NUPA_PKEYS_TEXT_BYTES], others[NUPA_PKEYS_TEXT_BYTES];

	nupa_hint("rdma_resolve_route: hosts %s and %s share no partition "
		  "(RDMA_CM_EVENT_ROUTE_ERROR): the P_Keys of %s are %s, those of %s %s; see "
		  "`nupa partition`",
		  fabric->hosts[id->engine->host].name, fabric->hosts[id->dst_host].name,
		  fabric->hosts[id->engine->host].name,
		  nupa_pkeys_named(fabric, id->engine->host, own), fabric->hosts[id->dst_host].name,
		  nupa_pkeys_named(fabric, id->dst_host, others));
}

void cm_explain_refusal(const struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;
	struct found found = { .space = id->ps, .port = cm_addr_port(&id->dst) };
	const char *space = space_name(id->ps);
	const char *own = engine->fabric->hosts[engine->host].name;
	char address[INET6_ADDRSTRLEN] = "";
	uint8_t bytes[16];

	if (engine->cm->explained)
		return;
	engine->cm->explained = true;
	cm_addr_to_wire(&id->dst, bytes);
	inet_ntop(id->dst.ss_family, bytes, address, sizeof(address));
	look(engine->fabric, &found);
	if (found.n) {
		const bool alone = cm_addr_is_machine(id->dst_kind) && !engine->cm->machine;

		nupa_hint(
		    "rdma_connect: no program listens at %s, %s port %u%s%s.  Connect to: %s%s",
		    address, space, cm_addr_port(&id->dst),
		    alone ? ", which is here the own host, " : "", alone ? own : "", found.text,
		    found.n > NAMED_MAX ? "; ..." : "");
		return;
	}
	found.port = 0;
	look(engine->fabric, &found);
	nupa_hint(
	    "rdma_connect: no program listens at %s, %s port %u, nor on that port of another host "
	    "of fabric %s.  %s%s%s",
	    address, space, cm_addr_port(&id->dst), nupa_fabric_name(engine->fabric),
	    found.n ? "These listen: " : "Start the server first, on the same fabric", found.text,
	    found.n > NAMED_MAX ? "; ...: see `nupa show`" : "");
}
