/* SPDX-License-Identifier: BSD-3-Clause
 * The checks of what a segment claims: its superblock, its tables, their checksum. */
#include "base/explain.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The layout follows from the sizes alone, so what differs from our own plan is corrupt. */
static int check_plan(const struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	struct nupa_config config = {
		.slots = sb->n_slots,
		.ring_lines = sb->ring_lines,
		.dma_bytes = sb->dma_bytes,
		.qp_entries = sb->qp_entries,
		.mr_entries = sb->mr_entries,
		.extent_bytes = sb->extent_bytes,
		.flags = sb->flags,
		.pool_bytes = sb->flags & NUPA_SEGMENT_MACHINES ? 0 : sb->pool_bytes,
		.segment_bytes = sb->flags & NUPA_SEGMENT_MACHINES ? sb->segment_bytes : 0,
		.machine = sb->trunk.machine,
		.machines = sb->trunk.machines,
	};
	/* Not on the stack: those of kernel threads are short. */
	struct nupa_superblock *planned = malloc(sizeof(*planned));
	char reason[160] = "";
	int rc = 0;

	if (!planned)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	*planned = *sb;
	memcpy(config.machine_slots, sb->trunk.first_slot, sizeof(config.machine_slots));
	memcpy(config.host_machine, sb->trunk.host_machine, sizeof(config.host_machine));
	if (nupa_geometry_plan(&config, sb->n_hosts, sb->n_ports, planned, reason, sizeof(reason)))
		rc =
		    nupa_explain(-EUCLEAN, why, why_bytes, "its superblock is corrupt: %s", reason);
	else if (memcmp(planned, sb, offsetof(struct nupa_superblock, checksum)) != 0)
		rc = nupa_explain(-EUCLEAN, why, why_bytes,
				  "its superblock is corrupt: offsets and sizes do not agree");
	free(planned);
	return rc;
}

int nupa_geometry_check(const struct nupa_superblock *sb, uint64_t file_bytes, char *why,
			size_t why_bytes)
{
	int rc;

	if (sb->magic == 0)
		return nupa_explain(
		    -ENODATA, why, why_bytes,
		    "it was never finished or is zeroed: remove it and make it again");
	if (sb->magic != NUPA_MAGIC)
		return nupa_explain(-EILSEQ, why, why_bytes,
				    "it holds no fabric (magic %#" PRIx64 ", not %#" PRIx64 ")",
				    sb->magic, NUPA_MAGIC);
	if (sb->layout_version != NUPA_LAYOUT_VERSION)
		return nupa_explain(
		    -EPROTONOSUPPORT, why, why_bytes,
		    "it has layout version %u, this program speaks version %u: take the "
		    "fabric down and make it again with one version of nupa",
		    sb->layout_version, NUPA_LAYOUT_VERSION);
	rc = check_plan(sb, why, why_bytes);
	if (rc)
		return rc;
	if (!sb->name[0] || !memchr(sb->name, 0, sizeof(sb->name)))
		return nupa_explain(-EUCLEAN, why, why_bytes,
				    "its superblock is corrupt: the name is empty or does not end");
	if (file_bytes < sb->segment_bytes)
		return nupa_explain(-EMSGSIZE, why, why_bytes,
				    "it is truncated: %" PRIu64 " bytes of %" PRIu64, file_bytes,
				    sb->segment_bytes);
	return 0;
}

static bool name_ok(const char *name)
{
	return name[0] && memchr(name, 0, NUPA_NAME_BYTES);
}

static int check_host(const struct nupa_superblock *sb, const struct nupa_tables *t, uint32_t i,
		      char *why, size_t why_bytes)
{
	const struct nupa_host *host = &t->hosts[i];

	if (!name_ok(host->name))
		return nupa_explain(-EUCLEAN, why, why_bytes,
				    "host %u: the name is empty or longer than %u bytes", i,
				    NUPA_NAME_BYTES - 1);
	if (host->port >= sb->n_ports || t->ports[host->port].is_switch ||
	    t->ports[host->port].node != i)
		return nupa_explain(-EUCLEAN, why, why_bytes, "host %u: port %u is not its port", i,
				    host->port);
	if (host->link_layer != NUPA_LINK_INFINIBAND && host->link_layer != NUPA_LINK_ETHERNET)
		return nupa_explain(-EUCLEAN, why, why_bytes, "host %u: no link layer %u", i,
				    host->link_layer);
	return 0;
}

static int check_port(const struct nupa_superblock *sb, const struct nupa_tables *t, uint32_t i,
		      char *why, size_t why_bytes)
{
	const struct nupa_port *port = &t->ports[i];

	if (!name_ok(port->name))
		return nupa_explain(-EUCLEAN, why, why_bytes,
				    "port %u: the name is empty or longer than %u bytes", i,
				    NUPA_NAME_BYTES - 1);
	if (port->peer >= sb->n_ports || port->peer == i || t->ports[port->peer].peer != i)
		return nupa_explain(-EUCLEAN, why, why_bytes,
				    "port %u: port %u is not the other end of its link", i,
				    port->peer);
	if (!port->is_switch && port->node >= sb->n_hosts)
		return nupa_explain(-EUCLEAN, why, why_bytes, "port %u: no host %u", i, port->node);
	if (!port->width_lanes || !port->speed_mtps)
		return nupa_explain(-EUCLEAN, why, why_bytes, "port %u: a link without speed", i);
	return 0;
}

static int check_route(const struct nupa_superblock *sb, const struct nupa_tables *t, uint32_t from,
		       uint32_t to, char *why, size_t why_bytes)
{
	const struct nupa_route *route = &t->routes[(uint64_t)from * sb->n_hosts + to];
	uint32_t last = route->hops - 1u;

	if (from == to && route->hops == 0)
		return 0;
	if (route->hops < 2 || route->hops > NUPA_HOPS_MAX ||
	    route->port[0] != t->hosts[from].port || route->port[last] != t->hosts[to].port)
		return nupa_explain(-EUCLEAN, why, why_bytes,
				    "the route from host %u to host %u does not join them", from,
				    to);
	for (uint32_t hop = 0; hop <= last; hop++)
		if (route->port[hop] >= sb->n_ports)
			return nupa_explain(-EUCLEAN, why, why_bytes,
					    "the route from host %u to host %u has no port %u",
					    from, to, route->port[hop]);
	return 0;
}

int nupa_geometry_check_tables(const struct nupa_superblock *sb, const struct nupa_tables *tables,
			       char *why, size_t why_bytes)
{
	int rc = 0;

	for (uint32_t i = 0; i < sb->n_hosts && !rc; i++)
		rc = check_host(sb, tables, i, why, why_bytes);
	for (uint32_t i = 0; i < sb->n_ports && !rc; i++)
		rc = check_port(sb, tables, i, why, why_bytes);
	for (uint32_t from = 0; from < sb->n_hosts && !rc; from++)
		for (uint32_t to = 0; to < sb->n_hosts && !rc; to++)
			rc = check_route(sb, tables, from, to, why, why_bytes);
	return rc;
}

/* A multiply and a shift a word: each step is a bijection, so one changed word always shows. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint64_t word;

	for (; bytes; at += sizeof(word), bytes -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return hash;
}

uint32_t nupa_geometry_checksum(const struct nupa_superblock *sb, const struct nupa_tables *tables)
{
	const size_t start = offsetof(struct nupa_superblock, layout_version);
	const size_t identity = offsetof(struct nupa_port, state);
	uint64_t hash = mix(NUPA_MAGIC, (const uint8_t *)sb + start,
			    offsetof(struct nupa_superblock, checksum) - start);

	_Static_assert((offsetof(struct nupa_superblock, checksum) - 8) % 8 == 0, "whole words");
	_Static_assert(offsetof(struct nupa_port, state) % 8 == 0, "whole words");
	hash = mix(hash, tables->hosts, sb->n_hosts * sizeof(*tables->hosts));
	for (uint32_t i = 0; i < sb->n_ports; i++)
		hash = mix(hash, &tables->ports[i], identity);
	hash =
	    mix(hash, tables->routes, (size_t)sb->n_hosts * sb->n_hosts * sizeof(*tables->routes));
	return (uint32_t)(hash >> 32) ^ (uint32_t)hash;
}
