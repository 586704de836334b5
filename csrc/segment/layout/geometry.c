/* SPDX-License-Identifier: BSD-3-Clause
 * The arithmetic of the segment's layout and the checks of what a segment claims. */
#include "segment/layout/geometry.h"

#include "base/explain.h"
#include "segment/layout/control_layout.h"
#include "segment/layout/qpn.h"
#include "segment/layout/rate_layout.h"
#include "segment/layout/region_layout.h"
#include "segment/layout/resource_layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_DEFAULT 256u
#define RING_LINES_DEFAULT 1024u
#define DMA_BYTES_DEFAULT (1u << 20)
#define MR_ENTRIES_DEFAULT NUPA_MR_MAX
#define EXTENT_BYTES_DEFAULT (64u << 10)
/* 1 GiB beside the CXL devices that a fabric has by default: 512 MiB for each host and 512 MiB of
 * dynamic capacity (nupa/cxl/site/fabric_switch.py). */
#define POOL_BYTES_DEFAULT(hosts) ((UINT64_C(3) << 29) + (hosts) * (UINT64_C(1) << 29))

/* Of a segment in a device's memory: it is as small as that. */
#define MACHINES_RING_LINES_DEFAULT 512u
#define MACHINES_DMA_BYTES_DEFAULT (512u << 10) /* frames of the netdev take a quarter each */
#define MACHINES_QP_ENTRIES_DEFAULT 1024u
#define MACHINES_MR_ENTRIES_DEFAULT 4096u
#define MACHINES_SLOTS_DEFAULT 64u /* at most, and no more than leave room for a pool */

static uint64_t pad_to(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

static bool power_of_two(uint64_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

struct nupa_arena_map nupa_arena_map(const struct nupa_superblock *sb)
{
	struct nupa_arena_map map;

	map.flows_off = 0;
	map.hw_off = sb->n_hosts * sizeof(struct nupa_flow);
	map.qps_off = pad_to(map.hw_off + sizeof(struct nupa_hw_counters), NUPA_PAGE_BYTES);
	map.mrs_off =
	    map.qps_off + pad_to(sb->qp_entries * sizeof(struct nupa_qp_entry), NUPA_PAGE_BYTES);
	map.mcast_off =
	    map.mrs_off + pad_to(sb->mr_entries * sizeof(struct nupa_mr_entry), NUPA_PAGE_BYTES);
	map.xrcds_off =
	    map.mcast_off + NUPA_MCAST_MEMBERSHIPS_MAX * sizeof(struct nupa_mcast_entry);
	map.net_off =
	    map.xrcds_off + pad_to(NUPA_XRCD_MAX * sizeof(struct nupa_xrcd_entry), NUPA_PAGE_BYTES);
	map.resources_off = map.net_off + pad_to(sizeof(struct nupa_net_counters), NUPA_PAGE_BYTES);
	map.trace_off = map.resources_off +
			pad_to(sizeof(struct nupa_resource_header) +
				   nupa_resource_rows(sb) * sizeof(struct nupa_resource_row),
			       NUPA_PAGE_BYTES);
	map.rings_off = map.trace_off + pad_to(sizeof(struct nupa_trace_header) + NUPA_TRACE_BYTES,
					       NUPA_PAGE_BYTES);
	map.ring_stride =
	    pad_to(sizeof(struct nupa_ring_header) +
		       (uint64_t)sb->ring_lines * NUPA_CACHE_LINE_BYTES + sb->dma_bytes,
		   NUPA_PAGE_BYTES);
	return map;
}

struct limit {
	const char *name;
	uint64_t value, min, max;
	bool power;
};

static int check_limits(const struct limit *limits, size_t n, char *why, size_t why_bytes)
{
	for (size_t i = 0; i < n; i++) {
		const struct limit *l = &limits[i];

		if (l->value < l->min || l->value > l->max)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "%s is %" PRIu64 ": choose %" PRIu64 " to %" PRIu64,
					    l->name, l->value, l->min, l->max);
		if (l->power && !power_of_two(l->value))
			return nupa_explain(-EINVAL, why, why_bytes,
					    "%s is %" PRIu64 ": choose a power of two", l->name,
					    l->value);
	}
	return 0;
}

uint64_t nupa_contacts_off(const struct nupa_superblock *sb)
{
	return sb->slots_off + sb->n_slots * sizeof(struct nupa_slot);
}

uint32_t nupa_contact_words(const struct nupa_superblock *sb)
{
	return (uint32_t)(pad_to(sb->n_slots * sizeof(uint32_t), NUPA_CACHE_LINE_BYTES) /
			  sizeof(uint32_t));
}

uint64_t nupa_past_flows_off(const struct nupa_superblock *sb)
{
	return pad_to(sb->extents_off + sb->n_extents * sizeof(uint32_t), NUPA_CACHE_LINE_BYTES);
}

uint64_t nupa_past_hw_off(const struct nupa_superblock *sb)
{
	return nupa_past_flows_off(sb) +
	       (uint64_t)sb->n_hosts * sb->n_hosts * sizeof(struct nupa_flow);
}

uint64_t nupa_cm_backed_off(const struct nupa_superblock *sb)
{
	return nupa_past_hw_off(sb) + sb->n_hosts * sizeof(struct nupa_hw_counters);
}

uint64_t nupa_group_flows_off(const struct nupa_superblock *sb)
{
	return pad_to(nupa_cm_backed_off(sb) + sb->n_hosts * sizeof(uint32_t),
		      NUPA_CACHE_LINE_BYTES);
}

uint64_t nupa_rates_off(const struct nupa_superblock *sb)
{
	return pad_to(nupa_group_flows_off(sb) + sb->n_ports * sizeof(struct nupa_group_flow),
		      NUPA_CACHE_LINE_BYTES);
}

uint64_t nupa_cm_table_off(const struct nupa_superblock *sb, uint32_t host)
{
	return sb->pool_off + sb->pool_bytes + host * NUPA_CM_TABLE_BYTES;
}

uint64_t nupa_regions_off(const struct nupa_superblock *sb)
{
	return nupa_cm_table_off(sb, sb->n_hosts);
}

uint32_t nupa_region_rows(const struct nupa_superblock *sb)
{
	return sb->flags & NUPA_SEGMENT_MACHINES ? NUPA_REGIONS_MACHINES_MAX : NUPA_REGIONS_MAX;
}

uint32_t nupa_region_mappings(const struct nupa_superblock *sb)
{
	return sb->flags & NUPA_SEGMENT_MACHINES ? NUPA_REGION_MAPPINGS_MACHINES_MAX
						 : NUPA_REGION_MAPPINGS_MAX;
}

uint64_t nupa_regions_bytes(const struct nupa_superblock *sb)
{
	return pad_to(sizeof(struct nupa_region_header) +
			  nupa_region_rows(sb) * sizeof(struct nupa_region_row) +
			  nupa_region_mappings(sb) * sizeof(struct nupa_region_mapping),
		      NUPA_PAGE_BYTES);
}

uint64_t nupa_control_off(const struct nupa_superblock *sb)
{
	return nupa_regions_off(sb) + nupa_regions_bytes(sb);
}

struct nupa_control_map nupa_control_map(const struct nupa_superblock *sb)
{
	const bool machines = sb->flags & NUPA_SEGMENT_MACHINES;
	struct nupa_control_map map = {
		.tenants = machines ? NUPA_TENANTS_MACHINES_MAX : NUPA_TENANTS_MAX,
		.partitions = machines ? NUPA_PARTITIONS_MACHINES_MAX : NUPA_PARTITIONS_MAX,
		.members = machines ? NUPA_MEMBERS_MACHINES_MAX : NUPA_MEMBERS_MAX,
		.events = machines ? NUPA_EVENTS_MACHINES_MAX : NUPA_EVENTS_MAX,
	};

	map.tenants_off = sizeof(struct nupa_control_header);
	map.partitions_off = map.tenants_off + map.tenants * sizeof(struct nupa_tenant_row);
	map.members_off = map.partitions_off + map.partitions * sizeof(struct nupa_partition_row);
	map.events_off = map.members_off + map.members * sizeof(struct nupa_member_row);
	map.bytes =
	    pad_to(map.events_off + map.events * sizeof(struct nupa_event_row), NUPA_PAGE_BYTES);
	return map;
}

static void lay_out(struct nupa_superblock *sb)
{
	struct nupa_arena_map arena = nupa_arena_map(sb);
	uint64_t n_routes = (uint64_t)sb->n_hosts * sb->n_hosts;

	sb->hosts_off = sizeof(*sb);
	sb->ports_off = sb->hosts_off + sb->n_hosts * sizeof(struct nupa_host);
	sb->routes_off = sb->ports_off + sb->n_ports * sizeof(struct nupa_port);
	sb->controls_off =
	    pad_to(sb->routes_off + n_routes * sizeof(struct nupa_route), NUPA_CACHE_LINE_BYTES);
	sb->slots_off = pad_to(sb->controls_off + sb->n_hosts * sizeof(struct nupa_host_control),
			       NUPA_PAGE_BYTES);
	sb->extents_off = nupa_contacts_off(sb) +
			  (uint64_t)sb->n_slots * nupa_contact_words(sb) * sizeof(uint32_t);
	sb->arenas_off = pad_to(
	    nupa_rates_off(sb) + NUPA_RATES_MAX * sizeof(struct nupa_rate_entry), NUPA_PAGE_BYTES);
	sb->arena_bytes = arena.rings_off + sb->n_slots * arena.ring_stride;
	sb->pool_off =
	    pad_to(sb->arenas_off + (sb->n_slots - 1) * sb->arena_bytes, sb->extent_bytes);
	sb->segment_bytes = nupa_control_off(sb) + nupa_control_map(sb).bytes;
}

static uint64_t default_pool(const struct nupa_superblock *sb)
{
	const uint64_t most = (uint64_t)sb->extent_bytes * NUPA_EXTENTS_MAX;
	const uint64_t wanted = POOL_BYTES_DEFAULT(sb->n_hosts);

	return wanted < most ? wanted : most;
}

static void take_defaults(struct nupa_superblock *sb, const struct nupa_config *c)
{
	const bool machines = c->flags & NUPA_SEGMENT_MACHINES;

	sb->n_slots = c->slots ? c->slots : machines ? MACHINES_SLOTS_DEFAULT : SLOTS_DEFAULT;
	sb->ring_lines = c->ring_lines ? c->ring_lines
			 : machines    ? MACHINES_RING_LINES_DEFAULT
				       : RING_LINES_DEFAULT;
	sb->dma_bytes = c->dma_bytes ? c->dma_bytes
			: machines   ? MACHINES_DMA_BYTES_DEFAULT
				     : DMA_BYTES_DEFAULT;
	sb->qp_entries = c->qp_entries ? c->qp_entries
			 : machines    ? MACHINES_QP_ENTRIES_DEFAULT
				       : nupa_qp_most(sb);
	sb->mr_entries = c->mr_entries ? c->mr_entries
			 : machines    ? MACHINES_MR_ENTRIES_DEFAULT
				       : MR_ENTRIES_DEFAULT;
	sb->extent_bytes = c->extent_bytes ? c->extent_bytes : EXTENT_BYTES_DEFAULT;
	sb->pool_bytes = c->pool_bytes ? c->pool_bytes : machines ? 0 : default_pool(sb);
}

/* The whole is given: the pool has what the rest leaves, a quarter at least if the number of slots
 * is ours to choose. */
static int fit(struct nupa_superblock *sb, bool choose_slots, char *why, size_t why_bytes)
{
	const uint64_t bytes = sb->segment_bytes;

	for (;;) {
		uint64_t rest;

		/* Extents have their words before the pool: laid out for the most there can be, the
		 * rest only shrinks. */
		sb->n_extents = (uint32_t)(bytes / sb->extent_bytes);
		lay_out(sb);
		rest = sb->pool_off + sb->n_hosts * NUPA_CM_TABLE_BYTES + nupa_regions_bytes(sb) +
		       nupa_control_map(sb).bytes;
		if (rest + (choose_slots ? bytes / 4 : sb->extent_bytes) <= bytes) {
			sb->pool_bytes = (bytes - rest) / sb->extent_bytes * sb->extent_bytes;
			sb->n_extents = (uint32_t)(sb->pool_bytes / sb->extent_bytes);
			lay_out(sb);
			sb->segment_bytes = bytes;
			return 0;
		}
		if (!choose_slots || sb->n_slots == NUPA_SLOTS_MIN)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "%" PRIu64 " bytes hold no fabric of %u slots with "
					    "rings of %u lines and %u bytes: choose more memory",
					    bytes, sb->n_slots, sb->ring_lines, sb->dma_bytes);
		sb->n_slots--;
	}
}

static int plan_machines(struct nupa_superblock *sb, const struct nupa_config *c, char *why,
			 size_t why_bytes)
{
	int rc;

	if (c->pool_bytes)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "pool_bytes is %" PRIu64 ": in a device's memory the pool has "
				    "what is left, so leave it out",
				    c->pool_bytes);
	sb->segment_bytes = c->segment_bytes;
	rc = fit(sb, !c->slots, why, why_bytes);
	if (rc || !(sb->flags & NUPA_SEGMENT_SOFTWARE) || sb->n_slots > sb->n_hosts)
		return rc;
	return nupa_explain(-EINVAL, why, why_bytes,
			    "%u slots for %u hosts: where memory is not coherent each host needs "
			    "one of its own, so choose more memory",
			    sb->n_slots - 1, sb->n_hosts);
}

static int plan_file(struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	if (sb->pool_bytes % sb->extent_bytes)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "pool_bytes is %" PRIu64
				    ": choose a multiple of extent_bytes, %u",
				    sb->pool_bytes, sb->extent_bytes);
	if (sb->pool_bytes / sb->extent_bytes > NUPA_EXTENTS_MAX)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "pool_bytes %" PRIu64 " is %" PRIu64
				    " extents, the most is %u: choose larger extent_bytes",
				    sb->pool_bytes, sb->pool_bytes / sb->extent_bytes,
				    NUPA_EXTENTS_MAX);
	sb->n_extents = (uint32_t)(sb->pool_bytes / sb->extent_bytes);
	lay_out(sb);
	return 0;
}

static int check_machines(const struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	const struct nupa_trunk_area *area = &sb->trunk;

	if (area->machines < 2 || area->machines > NUPA_MACHINES_MAX)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "a trunk joins %u machines: choose 2 to %u", area->machines,
				    NUPA_MACHINES_MAX);
	if (area->machine >= area->machines)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "this is machine %u of %u: choose 0 to %u", area->machine,
				    area->machines, area->machines - 1);
	for (uint32_t i = 0; i < area->machines; i++) {
		const uint32_t first = area->first_slot[i];
		const uint32_t end = i + 1 < area->machines ? area->first_slot[i + 1] : sb->n_slots;

		if ((i == 0 && first != 1) || first >= end)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "machine %u has slots %u to before %u: each needs one, "
					    "the first begins at 1, and there are %u",
					    i, first, end, sb->n_slots - 1);
	}
	for (uint32_t host = 0; host < sb->n_hosts; host++)
		if (area->host_machine[host] >= area->machines)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "host %u is on machine %u: choose 0 to %u", host,
					    area->host_machine[host], area->machines - 1);
	return 0;
}

static int plan_trunk(struct nupa_superblock *sb, const struct nupa_config *c, char *why,
		      size_t why_bytes)
{
	struct nupa_trunk_area *area = &sb->trunk;

	area->machine = c->machine;
	area->machines = c->machines;
	memcpy(area->first_slot, c->machine_slots, sizeof(area->first_slot));
	memcpy(area->host_machine, c->host_machine, sizeof(area->host_machine));
	return check_machines(sb, why, why_bytes);
}

int nupa_geometry_plan(const struct nupa_config *config, uint32_t n_hosts, uint32_t n_ports,
		       struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	static const struct nupa_config none;
	const struct nupa_config *c = config ? config : &none;
	const bool machines = c->flags & NUPA_SEGMENT_MACHINES;
	int rc;

	sb->layout_version = NUPA_LAYOUT_VERSION;
	sb->flags = c->flags;
	sb->n_hosts = n_hosts;
	sb->n_ports = n_ports;
	take_defaults(sb, c);

	const struct limit limits[] = {
		{ "hosts", n_hosts, 1, NUPA_HOSTS_MAX, false },
		{ "ports", n_ports, 1, NUPA_PORTS_MAX, false },
		{ "flags", sb->flags, 0,
		  machines ? NUPA_SEGMENT_MACHINES | NUPA_SEGMENT_SOFTWARE
			   : NUPA_SEGMENT_AUTO | NUPA_SEGMENT_TRUNK,
		  false },
		{ "slots", sb->n_slots, NUPA_SLOTS_MIN, NUPA_SLOTS_MAX, false },
		{ "ring_lines", sb->ring_lines, NUPA_RING_LINES_MIN, NUPA_RING_LINES_MAX, true },
		{ "dma_bytes", sb->dma_bytes, NUPA_DMA_BYTES_MIN, NUPA_DMA_BYTES_MAX, true },
		{ "qp_entries", sb->qp_entries, 1, nupa_qp_most(sb), false },
		{ "mr_entries", sb->mr_entries, 1, NUPA_MR_MAX, false },
		{ "extent_bytes", sb->extent_bytes, NUPA_EXTENT_BYTES_MIN, NUPA_EXTENT_BYTES_MAX,
		  true },
		{ "pool_bytes", sb->pool_bytes, machines ? 0 : sb->extent_bytes,
		  NUPA_POOL_BYTES_MAX, false },
		{ "segment_bytes", c->segment_bytes, machines ? NUPA_PAGE_BYTES : 0,
		  machines ? (uint64_t)sb->extent_bytes * NUPA_EXTENTS_MAX : 0, false },
	};

	rc = check_limits(limits, sizeof(limits) / sizeof(limits[0]), why, why_bytes);
	if (rc)
		return rc;
	rc = machines ? plan_machines(sb, c, why, why_bytes) : plan_file(sb, why, why_bytes);
	if (!rc && sb->flags & NUPA_SEGMENT_TRUNK)
		rc = plan_trunk(sb, c, why, why_bytes);
	return rc;
}

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
